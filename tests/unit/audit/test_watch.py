"""The continuous audit: finds what drifts in its own partitions, at its own pace, and lets go of what is mended or given up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from chunking.manifest import Manifest
from schemas.record import split_document_key
from streams import metrics
from streams.audit.watch import Watch
from streams.errors import Unavailable
from streams.index.memory import MemoryIndex
from streams.ports import IndexPlan
from tests.unit.audit.site import COLLECTION, PARTITIONS, Site


@dataclass
class Owned:
    """The partitions of a site that one worker owns."""

    site: Site
    mine: tuple[int, ...] = tuple(range(PARTITIONS))
    flying: frozenset[bytes] | None = frozenset()
    asked: int = 0

    def partitions(self) -> tuple[int, ...]:
        return self.mine

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in self.site.manifests.items() if self.site.partition(key) == partition)

    def manifest(self, partition: int, key: bytes) -> Manifest | None:
        return self.site.manifest(key)

    async def in_flight(self, partition: int, limit: int) -> frozenset[bytes] | None:
        self.asked += 1
        return self.flying


@dataclass
class Clock:
    """A clock that sleeping moves."""

    time: float = 1000.0
    quiet_asked: int = 0

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    async def quiet(self) -> None:
        self.quiet_asked += 1


@dataclass
class Watched:
    site: Site
    owned: Owned
    clock: Clock
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(
            "watched",
            COLLECTION,
            self.site.index,
            self.owned,
            PARTITIONS,
            points_per_second=100,
            every_seconds=60,
            quiet=self.clock.quiet,
            sleep=self.clock.sleep,
            now=lambda: self.clock.time,
            elapsed=lambda: self.clock.time,
        )

    def drift(self) -> dict[str, float]:
        found = {
            kind: metrics.REGISTRY.get_sample_value("docdelta_drift_points", {"batch": "watched", "kind": kind})
            for kind in metrics.DRIFT_KINDS
        }
        return {kind: count for kind, count in found.items() if count}


@pytest.fixture
async def watched() -> Watched:
    site = await Site().begin()
    for number in range(40):
        await site.put(f"d{number}", chunks=5)
    return Watched(site, Owned(site), Clock())


async def test_a_sound_batch_drifts_nowhere_and_costs_its_rate(watched: Watched) -> None:
    began = watched.clock.time
    assert await watched.watch.round()
    assert watched.drift() == {}
    assert watched.clock.time - began == pytest.approx(200 / 100)
    assert watched.clock.quiet_asked == PARTITIONS, "live work is let go first before each group"


async def test_drift_shows_after_two_looks_and_goes_when_it_is_mended(watched: Watched) -> None:
    await watched.site.remove(b"acme/d3", 1, 2)
    await watched.site.write(b"acme/d4", [9])
    await watched.site.write(b"acme/ghost", range(3))
    assert await watched.watch.round()
    assert watched.drift() == {}, "one look is none"
    await watched.watch.look_again()
    assert watched.drift() == {"missing_point": 2, "left_over_point": 4}
    await watched.watch.round()
    assert watched.drift() == {"missing_point": 2, "left_over_point": 4}
    await watched.site.write(b"acme/d3", [1, 2])
    await watched.watch.look_again()
    assert watched.drift() == {"left_over_point": 4}
    await watched.site.remove(b"acme/d4", 9)
    await watched.site.remove(b"acme/ghost", 0, 1, 2)
    await watched.watch.look_again()
    assert watched.drift() == {}
    assert watched.watch.suspects == {}


async def test_what_is_on_its_way_or_in_doubt_is_not_judged(watched: Watched) -> None:
    await watched.site.remove(b"acme/d3", 1)
    await watched.site.remove(b"acme/d4", 1)
    watched.site.plan(b"acme/d4", 5, suspect=True)
    watched.owned.flying = frozenset([b"acme/d3"])
    for _ in range(4):
        await watched.watch.round()
    assert watched.drift() == {}
    watched.owned.flying = None  # too far behind to tell
    await watched.watch.look_again()
    assert watched.drift() == {}
    watched.owned.flying = frozenset()
    for _ in range(2):
        await watched.watch.look_again()
    assert watched.drift() == {"missing_point": 1}


async def test_a_mark_in_the_bucket_of_another_partition_is_no_drift(watched: Watched) -> None:
    key = b"acme/d3"
    tenant, document = split_document_key(key)
    (point, *_) = await watched.site.index.document_points(COLLECTION, tenant, document)
    payloads = ((point.chunk_id, point.payload),)
    elsewhere = (watched.site.partition(key) + 1) % PARTITIONS
    await watched.site.index.apply(COLLECTION, IndexPlan(tenant, document, 1, payloads=payloads, partition=elsewhere))
    for _ in range(3):
        await watched.watch.round()
    assert watched.drift() == {}


async def test_an_edit_between_two_looks_begins_anew(watched: Watched) -> None:
    await watched.site.remove(b"acme/d3", 1)
    await watched.watch.round()
    watched.site.plan(b"acme/d3", 5, revision=2)
    await watched.watch.look_again()
    assert watched.drift() == {}
    await watched.watch.look_again()
    assert watched.drift() == {"missing_point": 1}


async def test_only_owned_partitions_are_looked_at_and_given_up_with_their_drift(watched: Watched) -> None:
    for number in range(40):
        await watched.site.remove(b"acme/d%d" % number, 0)
    share = [
        sum(watched.site.partition(b"acme/d%d" % number) == partition for number in range(40)) for partition in range(PARTITIONS)
    ]
    watched.owned.mine = (0, 2)
    await watched.watch.round()
    await watched.watch.look_again()
    assert watched.drift() == {"missing_point": share[0] + share[2]}
    watched.owned.mine = (2,)
    await watched.watch.look_again()
    assert watched.drift() == {"missing_point": share[2]}
    watched.owned.mine = ()
    await watched.watch.look_again()
    assert watched.drift() == {}


async def test_an_index_that_is_away_ends_a_round_and_not_the_watch(watched: Watched) -> None:
    class Away(MemoryIndex):
        async def digests(self, collection: str, first: int, end: int, limit: int) -> dict[int, int]:
            raise Unavailable("away")

    def stamp() -> float | None:
        return metrics.REGISTRY.get_sample_value("docdelta_audit_round_timestamp_seconds", {"batch": "watched"})

    watched.watch.index = Away()
    seen: list[float | None] = []

    async def sleep(seconds: float) -> None:
        watched.clock.time += seconds
        if watched.clock.time > 1200 and not seen:
            seen.append(stamp())
            watched.watch.index = watched.site.index
        if watched.clock.time > 1400:
            raise KeyboardInterrupt

    watched.watch.sleep = sleep
    with pytest.raises(KeyboardInterrupt):
        await watched.watch.run()
    assert seen == [1000.0], "no round has ended while the index was away"
    assert stamp() is None, "who watches no more shows no age"
