"""A folder in which nothing changed: what `docdelta sync` plans (and then sends nothing), beside peers over the same files.

The like of what peers do, who compare documents in hand with what they remember: here it is the front door that does, and nothing
goes through the broker. Neither start-up nor imports are counted, reading of what is remembered is. Twice for docdelta: files that
it knows by their stat (`streams/connectors/known_files.py`), as any sync but the first after an edit finds them, and all files
read, as `--all` does, which is what peers do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.document_change import DocumentChange
from streams.connectors.base import Confirmed
from streams.connectors.directory import DirectoryConnector
from streams.connectors.known_files import SETTLED_SECONDS
from tests.bench.pipeline.pages import pages

SIZES = (1_000, 10_000)
ROUNDS = 3


class _Taker:
    """A broker that takes everything at once: what is measured sends nothing."""

    def send(self, changes: Iterable[DocumentChange], confirmed: Confirmed) -> None:
        """Confirm every change."""
        for change in changes:
            confirmed(change, None)


@contextmanager
def site(documents: int) -> Iterator[Path]:
    """Give a folder of so many pages of 4 kB."""
    with tempfile.TemporaryDirectory(prefix="docdelta-bench-") as name:
        root = Path(name) / "site"
        root.mkdir()
        for page, text in pages(documents).items():
            (root / f"{page}.md").write_text(text, encoding="utf-8")
        yield root


def measure(root: Path) -> dict[str, Any]:
    """Return how long docdelta takes to find that nothing changed in a folder: the best of some rounds."""
    connector = DirectoryConnector(root, "acme", root.parent / "state" / "sync.json")
    connector.execute(connector.plan(), _Taker())
    time.sleep(SETTLED_SECONDS + 1)  # what changed a moment ago is read again
    first = connector.plan()
    count = len(first.unchanged)
    assert not first.size, "an unchanged file would be sent"
    known, read = _best(connector.plan), _best(lambda: connector.plan(everything=True))
    return {
        "documents": count,
        "seconds": known,
        "documents_per_second": count / known,
        "seconds_all_read": read,
        "documents_per_second_all_read": count / read,
    }


def _best(plan: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        plan()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
