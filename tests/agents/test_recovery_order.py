"""In which order recovery does what must not be done the other way round, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from faust.types import TP

from streams.faustio.app import make_app, raw_table
from streams.settings import Settings


async def test_changelogs_are_sought_once_a_fetch_of_the_last_generation_is_back(tmp_path: Path) -> None:
    """What it brings is dropped. Where it came back after the seek, that would be the first rows of this generation."""
    happened: list[str] = []
    settings = Settings.model_validate({"worker": {"state": "memory"}})
    app = make_app("group", settings, tmp_path)
    raw_table(app, "t", 2, settings.topics.changelog("group", "t"))
    consumer, changelog = app.consumer, TP("group-t-changelog", 0)
    seeks: list[asyncio.Future[None]] = []

    async def fetch(active_partitions: Any, timeout: float) -> dict[TP, list[str]]:  # noqa: ASYNC109 - as Faust's
        consumer.stop_flow()
        seeks.append(asyncio.ensure_future(app.tables.recovery._seek_offsets(consumer, {changelog}, {changelog: 7}, "active")))
        for _ in range(20):
            await asyncio.sleep(0)
        happened.append("fetched")
        return {changelog: ["a row of this generation"]}

    async def seek_wait(offsets: dict[TP, int]) -> None:
        happened.append(f"sought {offsets[changelog]}")

    consumer._getmany, consumer.seek_wait = fetch, seek_wait
    consumer._active_partitions = {changelog}
    consumer.resume_flow()
    records, _ = await consumer._wait_next_records(1.0)
    await seeks[0]
    assert records is None
    assert happened == ["fetched", "sought 7"]
