"""The operator's desk over a Pipeline's log: `docdelta breaker`, `pause` and `resume` without a broker."""

from __future__ import annotations

from collections.abc import Iterable

from streams.controls.desk import Desk
from streams.controls.standing import Standing, held_by_key
from streams.controls.state import fold
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from tests.support.pipeline import Pipeline
from tests.support.ports import SteppingClock


def desk_over(pipeline: Pipeline) -> Desk:
    """Return a desk that waits for nobody: workers run when the test says so."""
    topics, names = pipeline.log.topics, pipeline.names

    def write(records: Iterable[OutRecord]) -> None:
        for record in records:
            log = topics[record.topic]
            log.append(InRecord(record.topic, 0, len(log), record.key, record.value, record.headers))

    return Desk(
        standing=lambda: Standing(fold(topics[names.controls]), held_by_key(topics[names.held])),
        controls=lambda: fold(topics[names.controls]),
        held=lambda: held_by_key(topics[names.held]),
        write=write,
        ends=lambda: {0: len(topics[names.documents])},
        bulk_ends=lambda: {0: len(topics[names.bulk])},
        topic_ids=lambda: (pipeline.view.topic_id, ""),
        now=SteppingClock(),
        documents=names.documents,
        controls_topic=names.controls,
        by="ops",
        sleep=lambda seconds: None,
        clock=lambda: 0.0,
    )
