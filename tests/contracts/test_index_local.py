"""What only the embedded index has: a folder, one owner thread, no walks over all points."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from qdrant_client import models
from qdrant_client.local import payload_filters

from streams.errors import InvariantBroken, NotPrepared, UsageError
from streams.index.qdrant import QdrantIndex, open_index
from streams.index.qdrant_local import LocalStore
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, chunk_id, contents, payload, plan, point, query, same, vector


async def test_a_folder_keeps_points_aliases_and_what_belongs_to_which_document(tmp_path: Path) -> None:
    settings = QdrantSettings(path=tmp_path / "index")
    first = open_index(settings)
    await first.ensure_collection("kb", SPEC)
    await first.set_alias("served", "kb")
    await first.apply("kb", plan(1, [point("a", 1), point("b", 1, None, role="parent"), point("c", 1)]))
    await first.apply("kb", plan(2, [], {"a": payload("a", 2)}, stamps=["b"], deletes=["c"]))
    before = await contents(first, "kb")
    await first.close()
    second = open_index(settings)
    assert await second.alias_target("served") == "kb"
    assert await second.collection_spec("served") == SPEC
    same(before, await contents(second, "kb"))
    assert {stored.chunk_id for stored in await second.document_points("kb", "acme", "d1")} == {chunk_id("a"), chunk_id("b")}
    await second.close()


def test_a_folder_held_by_another_process_is_refused_with_what_to_do(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from streams.index.qdrant import open_index; "
        "from streams.settings import QdrantSettings; index = open_index(QdrantSettings(path=Path(sys.argv[1]))); "
        "print('open', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "index")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(NotPrepared, match="another process holds the index folder"):
            open_index(QdrantSettings(path=tmp_path / "index"))
        holder.kill()
    index = open_index(QdrantSettings(path=tmp_path / "index"))
    asyncio.run(index.close())


def test_a_folder_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(NotPrepared, match="can't be opened"):
        open_index(QdrantSettings(path=tmp_path / "file" / "index"))


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="DOCDELTA_QDRANT__URL"):
        open_index(QdrantSettings(url="ftp://host"))


async def test_writers_and_readers_at_once_lose_nothing(tmp_path: Path) -> None:
    index = open_index(QdrantSettings(path=tmp_path / "index"))
    await index.ensure_collection("kb", SPEC)

    async def write(document: str) -> None:
        for revision in range(1, 6):
            names = [f"{document}-{number}" for number in range(10)]
            await index.apply("kb", plan(revision, [point(n, revision, document=document) for n in names], document=document))

    async def read() -> None:
        for _ in range(30):
            assert len(await index.search("kb", query(vector(1, 1), limit=3))) <= 3

    await asyncio.gather(*(write(f"d{number}") for number in range(8)), read(), read())
    assert await index.count("kb") == 80
    assert {stored.payload["revision"] for stored in (await contents(index, "kb")).values()} == {5}
    await index.close()


async def test_every_call_runs_in_the_one_owner_thread() -> None:
    store = LocalStore(None)
    names = {await store.run(lambda _: threading.current_thread().name) for _ in range(20)}
    assert len(names) == 1
    assert threading.current_thread().name not in names
    await store.close()


async def test_after_close_the_index_says_that_it_is_closed() -> None:
    index = open_index(QdrantSettings())
    await index.ensure_collection("kb", SPEC)
    await index.close()
    await index.close()
    with pytest.raises(InvariantBroken, match="closed"):
        await index.count("kb")


class Walks:
    """Counts how often local mode looks at a payload, by a profile of the owner thread."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: object, event: str, argument: object) -> None:
        code = getattr(frame, "f_code", None)
        if event == "call" and code is payload_filters.check_filter.__code__:
            self.count += 1


async def looked_at(store: LocalStore, walks: Walks) -> int:
    """Return how many payloads were looked at since the last time."""
    count, walks.count = walks.count, 0
    return count


@pytest.mark.parametrize("size", [50, 1500])
async def test_writing_and_reading_one_document_looks_at_its_own_points_only(size: int) -> None:
    index = open_index(QdrantSettings())
    await index.ensure_collection("kb", SPEC)
    for number in range(size // 50):
        names = [f"{number}-{n}" for n in range(50)]
        await index.apply("kb", plan(1, [point(n, 1, document=f"x{number}") for n in names], document=f"x{number}"))
    await index.apply("kb", plan(1, [point(name, 1) for name in "abcdef"]))
    assert isinstance(index.store, LocalStore)
    walks = Walks()
    await index.store.run(lambda _: sys.setprofile(walks))
    change = plan(2, [point("g", 2), point("a", 2)], {"b": payload("b", 2)}, stamps=["c", "d"], deletes=["e", "f"])
    await index.apply("kb", change)
    assert await looked_at(index.store, walks) == 4  # a by its fence; b, c, d by filters; g is new, e and f go by id
    assert len(await index.document_points("kb", "acme", "d1")) == 5
    assert await looked_at(index.store, walks) == 5
    await index.retrieve("kb", [chunk_id("a")])
    assert await looked_at(index.store, walks) == 0
    await index.search("kb", query(vector(1), limit=2))
    assert await looked_at(index.store, walks) <= 64
    await index.store.run(lambda _: sys.setprofile(None))
    await index.close()


async def test_filters_it_can_not_narrow_still_work() -> None:
    store = LocalStore(None)
    index = QdrantIndex(store)
    await index.ensure_collection("kb", SPEC)
    await index.apply("kb", plan(1, [point("a", 1, kind="table"), point("b", 1), point("c", 1, None)]))
    tables = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="table"))])
    bare = models.Filter(must_not=[models.HasVectorCondition(has_vector="dense")])
    await store.batch("kb", [models.SetPayloadOperation(set_payload=models.SetPayload(payload={"note": 1}, filter=tables))])
    assert (await contents(index, "kb"))[chunk_id("a")].payload["note"] == 1
    await store.batch("kb", [models.DeleteOperation(delete=models.FilterSelector(filter=tables))])
    await store.batch("kb", [models.DeleteOperation(delete=models.FilterSelector(filter=bare))])
    assert set(await contents(index, "kb")) == {chunk_id("b")}
    assert [stored.chunk_id for stored in await index.document_points("kb", "acme", "d1")] == [chunk_id("b")]
    await index.close()
