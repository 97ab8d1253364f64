"""After a handover: what the new owner's rows say is held and [held] has not is asked again, or its mark goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from schemas.codec import decode
from schemas.held_change import HeldChange
from schemas.record import document_key
from streams.agents.recheck import Place, amiss, recheck_held
from streams.duties import Group, ReadHeld
from streams.errors import PoisonRecord
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord, produce_all
from streams.ports import InRecord
from streams.settings import KafkaSettings
from streams.steps.limits import Limits
from streams.steps.settle_change import HeldMark, Seen
from tests.support.apps import create_topics
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections
from tests.support.ports import impatient

NAMES = [f"d{number}" for number in range(8)]
KEYS = [document_key("A", name) for name in NAMES]


async def with_five_held() -> Pipeline:
    """Return a pipeline in which three of eight deletes went, and five are held."""
    pipeline = Pipeline(breaker=Limits(share=0.5, minimum=4))
    for name in NAMES:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@1")
    for name in NAMES:
        pipeline.send(name, 2, None, event_id=f"{name}@2")
    await pipeline.drain()
    return pipeline


@dataclass
class There:
    """streams.agents.recheck.HeldLog that notes what it was asked for."""

    pipeline: Pipeline
    asked: list[object] = field(default_factory=list)

    async def amiss(self, marks: Mapping[bytes, HeldMark]) -> Mapping[bytes, Place | None]:
        self.asked.append(set(marks))
        return amiss(self.pipeline.log.topics["t.held"], marks)

    async def at(self, place: Place) -> InRecord | None:
        self.asked.append(place)
        return next((each for each in self.pipeline.log.topics["t.held"] if each.offset == place[1]), None)


async def checked_again(pipeline: Pipeline) -> list[object]:
    """Let the owner re-check all documents, and return what it read of [held]."""
    holding, there = pipeline.holding, There(pipeline)
    await recheck_held(holding.outbox, pipeline.seen, holding.counts, 0, KEYS, there, pipeline._say)
    return there.asked


def held(pipeline: Pipeline) -> set[str]:
    return {each.change.document_id for each in desk_over(pipeline).held().values()}


def marked(pipeline: Pipeline) -> set[str]:
    return {name for name, key in zip(NAMES, KEYS, strict=True) if Seen.from_bytes(pipeline.seen.values[key]).held is not None}


async def test_where_all_is_in_order_no_event_is_read_twice_and_nothing_is_said() -> None:
    pipeline = await with_five_held()
    documents, before = len(pipeline.log.topics["t.documents"]), len(pipeline.log.topics["t.held"])
    assert await checked_again(pipeline) == [set(KEYS[3:])]
    assert (len(pipeline.log.topics["t.documents"]), len(pipeline.log.topics["t.held"])) == (documents, before)


@pytest.mark.parametrize("verdict", ["approve", "reject", ""])
async def test_what_a_predecessor_let_go_of_is_held_and_asked_again(verdict: str) -> None:
    pipeline = await with_five_held()
    desk = desk_over(pipeline)
    if verdict:
        desk.rule(desk.plan("A", verdict, ""), 0)  # type: ignore[arg-type]
        pipeline.view.look()
        del pipeline.log.topics["t.documents"][-5:]  # the predecessor had them in hand
    await pipeline.log.publish("t.held", KEYS[3], None)
    await pipeline.log.publish("t.held", KEYS[5], None)
    assert held(pipeline) == {"d4", "d6", "d7"}
    asked = await checked_again(pipeline)
    assert len(asked) == 3
    assert held(pipeline) == set(NAMES[3:])
    await pipeline.drain()
    left = {"d4", "d6", "d7"} if verdict else set(NAMES[3:])
    assert (held(pipeline), marked(pipeline)) == (left, left)
    there = [name for name in NAMES if await pipeline.ids(name)]
    assert there == ([name for name in NAMES[3:] if name in left] if verdict == "approve" else NAMES[3:])
    assert len(await checked_again(pipeline)) == 1, "once is enough"


async def test_an_older_event_that_a_predecessor_put_last_gives_way_to_the_marked_one() -> None:
    pipeline = await with_five_held()
    (old,) = [record for record in pipeline.log.topics["t.held"] if record.key == KEYS[7]]
    pipeline.send("d7", 3, None, event_id="d7@3")
    await pipeline.drain()
    await pipeline.log.publish("t.held", KEYS[7], old.value)
    await checked_again(pipeline)
    await pipeline.drain()
    assert desk_over(pipeline).held()[KEYS[7]].change.event_id == "d7@3"


async def test_a_mark_of_an_event_that_is_gone_altogether_goes_and_is_counted_no_more() -> None:
    pipeline = await with_five_held()
    pipeline.log.topics["t.held"] = [record for record in pipeline.log.topics["t.held"] if record.key != KEYS[7]]
    await pipeline.log.publish("t.held", KEYS[7], None)
    await checked_again(pipeline)
    assert marked(pipeline) == set(NAMES[3:7])
    assert pipeline.holding.counts.held({0})["breaker"] == 4
    pipeline.send("d7", 3, sections("again"))
    await pipeline.drain()
    assert "again" in "".join(await pipeline.texts("d7"))


async def test_one_that_can_not_be_sent_again_stays_held_and_stops_nobody() -> None:
    pipeline = await with_five_held()
    for key in KEYS[3:5]:
        await pipeline.log.publish("t.held", key, None)
    say, holding = pipeline._say, pipeline.holding

    async def refuses(record: InRecord, value: bytes, headers: Mapping[str, bytes]) -> None:
        if record.key == KEYS[3]:
            raise PoisonRecord("record is over the broker's size limit")
        await say(record, value, headers)

    await recheck_held(holding.outbox, pipeline.seen, holding.counts, 0, KEYS, There(pipeline), refuses)
    assert held(pipeline) == set(NAMES[3:])
    assert [record.key for record in pipeline.log.topics["t.documents"][16:]] == [KEYS[4]]


async def test_however_much_is_held_no_event_stays_in_memory() -> None:
    pipeline = await with_five_held()
    alive = 0

    class Counted(InRecord):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def many() -> Iterator[InRecord]:
        nonlocal alive
        for record in list(pipeline.log.topics["t.held"]) * 20:
            alive += 1
            assert alive <= 2
            yield Counted(record.topic, record.partition, record.offset, record.key, record.value)

    marks = {key: row.held for key in KEYS if (row := Seen.from_bytes(pipeline.seen.values[key])).held is not None}
    assert amiss(many(), marks) == {}


async def test_the_topic_is_read_from_a_broker_where_the_keys_lie(any_broker: KafkaSettings, fresh: str) -> None:
    pipeline = await with_five_held()
    marks = {key: row.held for key in KEYS if (row := Seen.from_bytes(pipeline.seen.values[key])).held is not None}
    topic = f"{fresh}.held"
    create_topics(any_broker, topic)
    let_go = (OutRecord(topic, key, None) for key in KEYS[3:5])
    kept = (OutRecord(topic, each.key, each.value) for each in pipeline.log.topics["t.held"] if each.key != KEYS[4])
    produce_all(any_broker, [*kept, *let_go])
    there = ReadHeld(Group(any_broker, fresh, (), "", impatient()), topic)
    found = await there.amiss(marks)
    assert found.keys() == {*KEYS[3:5]}
    assert found[KEYS[4]] is None
    place = found[KEYS[3]]
    assert place is not None
    record = await there.at(place)
    assert record is not None
    assert (record.key, decode(record.value or b"", HeldChange).event_id) == (KEYS[3], "d3@2")
    assert len({partition_of(key, 2) for key in marks}) == 2
    (one,) = (await there.amiss({KEYS[3]: marks[KEYS[3]]})).items()
    assert one == (KEYS[3], place)


async def test_what_can_not_be_read_counts_as_the_event_in_question() -> None:
    pipeline = await with_five_held()
    mark = Seen.from_bytes(pipeline.seen.values[KEYS[7]]).held
    assert mark is not None
    of_a_newer_release = InRecord("t.held", 0, 99, KEYS[7], b'{"record_version":99}')
    assert amiss([of_a_newer_release], {KEYS[7]: mark}) == {}
    assert amiss([of_a_newer_release, replace(of_a_newer_release, offset=100, value=None)], {KEYS[7]: mark}) == {KEYS[7]: None}
