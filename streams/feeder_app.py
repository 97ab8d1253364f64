"""The feeder app: [bulk] to [documents]. A consumer group of its own, in every worker that parses."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from streams import telemetry
from streams.agents.refusals import Clock, Outbox
from streams.controls.release import WAITED, waited_in
from streams.faustio.app import SafeApp, make_app, raw_topic
from streams.faustio.delivery import deliver
from streams.faustio.keyed_runner import Handler, KeyedRunner
from streams.faustio.log import FaustLog
from streams.lanes.feeder import Feeder
from streams.lanes.mark import HEADER
from streams.patience import Patience
from streams.ports import InRecord
from streams.settings import Settings
from streams.topics import FRAME_BYTES, MAX_EVENT_BYTES

READ_AHEAD = 64
"""Records taken and not passed on yet: turns go round among the tenants of these."""
COMMIT_SECONDS = 0.25
"""What is passed on twice after a crash gets no second outcome, and the window waits for it: so it is kept short."""


class FeederRunner(KeyedRunner):
    """A keyed runner whose handlers wait for turns, and are told when the wait is in vain."""

    def __init__(self, app: Any, name: str, handle: Handler, in_flight: int, turn_away: Callable[[], None]) -> None:
        super().__init__(app, name, handle, in_flight)
        self._turn_away = turn_away

    def _forget(self) -> None:
        self._turn_away()


def build_feeder_app(settings: Settings, served: Callable[[], str | None], now: Clock) -> tuple[SafeApp, Feeder]:
    """Return a Faust app, not yet started, whose one agent feeds [documents], and its feeder, to be listened for (`listen`)."""
    topics = settings.topics
    app = make_app(topics.feeder_group, settings, settings.worker.state_dir / topics.feeder_group)
    app.conf.broker_commit_interval = COMMIT_SECONDS

    async def forward(record: InRecord, mark: bytes) -> None:
        own = {HEADER: mark, WAITED: waited_in(record)}
        headers = [*{**record.headers, **telemetry.headers_of(record.key), **own}.items()]
        limit = MAX_EVENT_BYTES + FRAME_BYTES
        await deliver(app, topics.documents, record.key, record.value, limit=limit, headers=headers)

    outbox = Outbox(FaustLog(app), topics, Patience(app.leaving), now, stage="parser")
    feeder = Feeder(secrets.token_hex(8), outbox, forward, served)
    FeederRunner(app, "feeder", feeder.handle, READ_AHEAD, feeder.turn_away).attach(
        raw_topic(app, topics.bulk, settings.kafka.partitions)
    )
    return app, feeder
