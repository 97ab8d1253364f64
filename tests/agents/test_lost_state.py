"""Lost state: the manifests' changelog is empty and [changes] is not; records so far are then compared with the index."""

from __future__ import annotations

import pytest

from schemas.chunk_changes import ChunkChanges
from schemas.codec import decode
from streams.agents.lost_state import LostState, never_worked_on
from streams.kafka.offsets import PartitionLag
from tests.support.pipeline import Pipeline, sections

PARSED, CHANGES, CHANGELOG = "t.parsed", "t.changes", "t.manifests"


def places(parsed: tuple[int, int], changes: tuple[int, int], changelog: tuple[int, int], partition: int = 0) -> list[PartitionLag]:
    """What a broker says of one partition: (begin, end) of each topic."""
    extents = {PARSED: parsed, CHANGES: changes, CHANGELOG: changelog}
    return [PartitionLag(topic, partition, begin, None, end) for topic, (begin, end) in extents.items()]


@pytest.mark.parametrize(
    ("changes", "changelog", "lost"),
    [
        pytest.param((0, 4), (0, 0), True, id="a changelog made anew"),
        pytest.param((0, 4), (9, 9), True, id="a changelog that was truncated"),
        pytest.param((2, 4), (0, 0), True, id="changes of which the oldest are gone"),
        pytest.param((0, 0), (0, 0), False, id="nothing has happened yet"),
        pytest.param((4, 4), (0, 0), False, id="no changes are kept"),
        pytest.param((0, 4), (8, 9), False, id="memory is there"),
    ],
)
def test_memory_is_lost_where_changes_are_kept_and_no_manifest_is(
    changes: tuple[int, int], changelog: tuple[int, int], lost: bool
) -> None:
    pipeline = Pipeline()
    state = LostState(pipeline.chunker, pipeline.indexer, PARSED, CHANGES, CHANGELOG)
    assert state.look(places((0, 7), changes, changelog), {0}) == ({0} if lost else set())
    assert pipeline.chunker.compare_until == ({0: 7} if lost else {})
    assert pipeline.indexer.compare_until == ({0: changes[1]} if lost else {})


def test_only_the_partitions_that_are_new_here_are_looked_at() -> None:
    pipeline = Pipeline()
    state = LostState(pipeline.chunker, pipeline.indexer, PARSED, CHANGES, CHANGELOG)
    both = [*places((0, 7), (0, 4), (0, 0), 0), *places((0, 9), (0, 5), (0, 0), 1)]
    assert state.look(both, {1}) == {1}
    assert pipeline.chunker.compare_until == {1: 9}


async def test_every_record_that_was_there_when_memory_was_lost_is_compared_with_the_index() -> None:
    """Not only the first of each document, whose manifest is missing; and none that comes later."""
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    pipeline.send("d1", 2, sections("ash", "cedar", "birch"))
    await pipeline.drain(index=False)
    pipeline.table.values.clear()
    pipeline.send("d1", 3, sections("ash", "elm", "birch"))
    pipeline.send("d1", 4, sections("ash", "birch"))
    for record in pipeline.log.topics[pipeline.names.documents][2:]:
        await pipeline.parser.handle(record)
        pipeline.positions[record.topic] = record.offset + 1
    pipeline.restart()
    changes = pipeline.log.topics[pipeline.names.changes(pipeline.batch)]
    ends = (0, len(pipeline.log.topics[pipeline.names.parsed])), (0, len(changes))
    LostState(pipeline.chunker, pipeline.indexer, PARSED, CHANGES, CHANGELOG).look(places(*ends, (0, 0)), {0})
    await pipeline.drain(index=False)
    pipeline.send("d1", 5, sections("ash", "fir"))
    await pipeline.drain()
    assert [decode(record.value or b"", ChunkChanges).complete for record in changes] == [True, False, True, True, False]
    assert [text.split()[1] for text in await pipeline.texts("d1")] == ["ash", "fir"]


@pytest.mark.parametrize(
    ("committed", "changelog_end", "partitions", "fresh"),
    [
        pytest.param(None, 0, {0, 1}, True, id="a new group"),
        pytest.param(3, 0, {0, 1}, False, id="somebody committed"),
        pytest.param(0, 0, {0, 1}, False, id="somebody committed the beginning"),
        pytest.param(None, 1, {0, 1}, False, id="somebody remembered something"),
        pytest.param(None, 0, {1}, False, id="somebody else is there"),
    ],
)
def test_a_group_has_nothing_behind_it_only_where_nobody_can_have_been(
    committed: int | None, changelog_end: int, partitions: set[int], fresh: bool
) -> None:
    found = [PartitionLag(PARSED, 0, 0, committed, 9), PartitionLag(PARSED, 1, 0, None, 9)]
    found += [PartitionLag(CHANGELOG, number, 0, None, changelog_end) for number in (0, 1)]
    assert never_worked_on(found, CHANGELOG, partitions) is fresh


@pytest.mark.parametrize(
    ("never_worked_on_", "changes", "points", "known"),
    [
        pytest.param(True, (0, 0), False, True, id="nothing at all"),
        pytest.param(False, (0, 0), False, False, id="somebody was there"),
        pytest.param(True, (0, 2), False, False, id="changes are on their way"),
        pytest.param(True, (0, 0), True, False, id="the broker forgot, the index did not"),
    ],
)
async def test_a_new_document_needs_no_look_at_the_index_where_a_batch_began_with_nothing(
    never_worked_on_: bool, changes: tuple[int, int], points: bool, known: bool
) -> None:
    pipeline = Pipeline()
    await pipeline.drain()
    if points:
        pipeline.send("old", 1, sections("ash"))
        await pipeline.drain()
        pipeline.table.values.clear()
    state = LostState(pipeline.chunker, pipeline.indexer, PARSED, CHANGES, CHANGELOG)
    await state.look_for_nothing(places((0, 7), changes, (0, 0)), {0}, never_worked_on_)
    assert pipeline.chunker.begun_empty == ({0} if known else set())
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    planned = pipeline.log.topics[pipeline.names.changes(pipeline.batch)][-1]
    assert decode(planned.value or b"", ChunkChanges).complete is not known
    assert [text.split()[1] for text in await pipeline.texts("d1")] == ["ash", "birch"]


async def test_a_partition_that_comes_back_is_asked_about_again() -> None:
    pipeline = Pipeline()
    await pipeline.drain()
    state = LostState(pipeline.chunker, pipeline.indexer, PARSED, CHANGES, CHANGELOG)
    await state.look_for_nothing(places((0, 7), (0, 0), (0, 0)), {0}, True)
    await state.look_for_nothing(places((0, 7), (0, 0), (0, 0), 1), {1}, False)
    assert pipeline.chunker.begun_empty == {0}
    await state.look_for_nothing(places((0, 7), (0, 0), (0, 0)), {0}, False)
    assert pipeline.chunker.begun_empty == set()
