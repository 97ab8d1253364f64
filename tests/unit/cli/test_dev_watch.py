"""`docdelta dev` watches a name, not one folder: what is put back or put in its place is looked at again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from streams.cli.dev_session import DevSession
from streams.connectors.directory import DirectoryConnector


class Looks(DevSession):
    """Only the watching half: notes what each sync would have seen."""

    def __init__(self, root: Path) -> None:
        self._connector = DirectoryConnector(root, "acme", root.parent / "state.json")
        self._stop = asyncio.Event()
        self.looked = asyncio.Condition()
        self.seen: set[str] = set()

    def _check_broker(self) -> None:
        """None runs."""

    async def _sync(self, sender: object, everything: bool = False) -> list[str]:
        async with self.looked:
            self.seen = {path.name for path in self._connector.root.glob("*.md")}
            self.looked.notify_all()
        return []

    async def until(self, name: str) -> None:
        async with asyncio.timeout(20), self.looked:
            await self.looked.wait_for(lambda: name in self.seen)


async def test_a_folder_that_is_put_back_or_replaced_is_watched_again(tmp_path: Path) -> None:
    root = tmp_path / "site"
    root.mkdir()
    watch = Looks(root)

    async def forever() -> None:
        while not watch._stop.is_set():
            await watch._watch_this_folder(None)  # type: ignore[arg-type]
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(forever())
    (root / "first.md").touch()
    await watch.until("first.md")
    root.rename(tmp_path / "away")
    (tmp_path / "away").rename(root)
    (root / "back.md").touch()
    await watch.until("back.md")
    root.rename(tmp_path / "away")
    root.mkdir()
    (root / "other.md").touch()
    await watch.until("other.md")
    watch._stop.set()
    await asyncio.wait_for(watching, 10)
