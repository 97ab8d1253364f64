"""Trim: what the indexer is past is removed from the front of [changes], gently, so that the topic does not grow for ever.

Deltas may go by no clock: one that is not applied yet may not go at all. So a worker that hosts a batch removes what lies further
behind the group's committed offset than `worker.changes_kept`. Nobody reads there any more:
  an owner, new or restarted      begins at the committed offset
  the re-check of a handover      reads what was taken and not committed since assignment
  state lost (agents/lost_state)  reads the index; of [changes] it asks only whether any is kept: at least one always is
  commits forgotten               (a group unused for a week) begins at the front that is left, which is its first offset then
                                  (faustio/continuity.py); what lies there was applied, and is found to be
Workers may do so at once: the front moves forward only. Where the broker can't, or we may not, nothing is trimmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog
from confluent_kafka import TopicPartition

from streams.daemon import in_daemon_thread
from streams.errors import DocdeltaError, NotAuthorised
from streams.kafka.client import REQUEST_SECONDS, in_our_words, make_admin
from streams.kafka.offsets import PartitionLag, group_lag
from streams.settings import Settings

log = structlog.get_logger(__name__)
STEP_SHARE = 0.25
"""A partition is trimmed when this share of `kept` more can go: a request a quarter of the margin, not one a record."""


def plan_trim(places: Iterable[PartitionLag], kept: int) -> dict[tuple[str, int], int]:
    """Return (topic, partition) to the offset that becomes the first one, where enough lies before it. At least one stays."""
    kept = max(1, kept)
    fronts = [(place, (place.committed or 0) - kept) for place in places]
    enough = max(1, kept * STEP_SHARE)
    return {(place.topic, place.partition): front for place, front in fronts if front - place.begin >= enough}


@dataclass(slots=True)
class Trimmer:
    """Trims the [changes] of the batches that a worker hosts, until the broker refuses."""

    settings: Settings
    hosted: Callable[[], Iterable[str]]
    """Batches whose [changes] this worker reads."""

    async def run(self) -> None:
        """Trim every `worker.trim_seconds`; return when trimming is off or refused."""
        seconds = self.settings.worker.trim_seconds
        while seconds and not self.settings.kafka.single_record_batches:  # the embedded broker can't
            await asyncio.sleep(seconds)
            for batch in list(self.hosted()):
                try:
                    removed = await in_daemon_thread(partial(trim, self.settings, batch), "trimming changes")
                except NotAuthorised as error:
                    log.info("changes are not trimmed: the broker refuses", batch=batch, reason=str(error))
                    return
                except (DocdeltaError, TimeoutError) as error:  # the broker is away, or the batch was retired meanwhile
                    log.debug("changes are not trimmed now", batch=batch, reason=str(error))
                else:
                    if removed:
                        log.info("changes trimmed", batch=batch, records=removed)


def trim(settings: Settings, batch: str) -> int:
    """Trim the [changes] of a batch; return how many offsets the fronts moved. Blocking. DocdeltaError."""
    topic = settings.topics.changes(batch)
    places = group_lag(settings.kafka, settings.topics.batch_group(batch), [topic])
    plan = plan_trim(places, settings.worker.changes_kept)
    if not plan:
        return 0
    wanted = [TopicPartition(name, number, front) for (name, number), front in plan.items()]
    admin = make_admin(settings.kafka)  # kept in hand: with it would go the answers
    with in_our_words(admin, topic):
        for answer in admin.delete_records(wanted, request_timeout=REQUEST_SECONDS).values():
            answer.result(2 * REQUEST_SECONDS)
    begins = {(place.topic, place.partition): place.begin for place in places}
    return sum(front - begins[place] for place, front in plan.items())
