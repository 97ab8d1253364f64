"""The continuous audit: finds what drifts in its own partitions, at its own pace, and lets go of what is mended or given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from chunking.manifest import Manifest
from schemas.record import split_document_key
from streams import metrics
from streams.audit.expected import BLOCKS, Expected, OnRow
from streams.audit.watch import COUNT_AGAIN_SECONDS, LOOK_AGAIN_SECONDS, NAMED, Watch
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
    on_row: OnRow | None = None

    def partitions(self) -> tuple[int, ...]:
        return self.mine

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in self.site.manifests.items() if self.site.partition(key) == partition)

    def manifest(self, partition: int, key: bytes) -> Manifest | None:
        return self.site.manifest(key)

    def generation(self) -> int:
        return hash(self.mine)

    def follow(self, on_row: OnRow) -> None:
        self.on_row = on_row

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
        self.watch = self.at_rate(100)

    def at_rate(self, points_per_second: float, every_seconds: float = 60) -> Watch:
        return Watch(
            "watched",
            COLLECTION,
            self.site.index,
            self.owned,
            PARTITIONS,
            points_per_second=points_per_second,
            every_seconds=every_seconds,
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


async def test_much_drift_is_counted_in_full_and_named_in_part(watched: Watched) -> None:
    for again in range(2):
        for number in range(30):
            await watched.site.remove(f"acme/d{number}".encode(), 1)
        with capture_logs() as lines:
            await watched.watch.round()
            await watched.watch.look_again()
            await watched.watch.round()
        assert watched.drift() == {"missing_point": 30}
        said = Counter(line["event"] for line in lines if line["log_level"] == "warning")
        assert said == {"drift found": NAMED, "drift found in more documents": 1}, again
        for number in range(30):
            await watched.site.write(f"acme/d{number}".encode(), [1])
        await watched.watch.look_again()
        assert watched.drift() == {}


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


# A batch that is too large for its rate: counts of whole partitions


class Counting(MemoryIndex):
    """An index that notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = 0

    async def count(self, collection: str, buckets: tuple[int, int] | None = None) -> int:
        self.counts += 1
        return await super().count(collection, buckets)


@dataclass
class Large:
    """40 documents of 5 chunks at one point a second: a round takes over three minutes, a group some 50 s."""

    watched: Watched
    index: Counting
    began: float = 0.0
    seen_after: float | None = None

    async def until_drift(self, fault_at: float, kind: str, least: int = 1) -> None:
        """Run a round; `seen_after` is the time from a fault to its showing."""
        watch, sleep = self.watched.watch, self.watched.clock.sleep
        self.began = self.watched.clock.time

        async def looking(seconds: float) -> None:
            for _ in range(max(1, int(seconds * 10))):
                await sleep(seconds / max(1, int(seconds * 10)))
                if self.seen_after is None and self.watched.drift().get(kind, 0) >= least:
                    self.seen_after = self.watched.clock.time - fault_at

        watch.sleep = looking
        assert await watch.round()


@pytest.fixture
async def large() -> Large:
    site = await Site(Counting()).begin()
    for number in range(40):
        await site.put(f"d{number}", chunks=5)
    watched = Watched(site, Owned(site), Clock())
    watched.watch = watched.at_rate(1, every_seconds=20)
    assert isinstance(site.index, Counting)
    return Large(watched, site.index)


async def test_what_is_missing_or_left_over_shows_long_before_the_round_comes_by(large: Large) -> None:
    watched = large.watched
    last = [key for key in watched.site.manifests if watched.site.partition(key) == PARTITIONS - 1]
    await watched.site.remove(last[0], 1, 2)
    await watched.site.write(b"acme/ghost", range(3))
    ghost_at = watched.site.partition(b"acme/ghost")
    await large.until_drift(watched.clock.time, "missing_point", 2)
    assert watched.drift() == {"missing_point": 2, "left_over_point": 3}, ghost_at
    assert large.seen_after is not None
    longest_group = 15 * 5  # points of one partition, a second each: what stands between two looks here
    assert large.seen_after <= COUNT_AGAIN_SECONDS + LOOK_AGAIN_SECONDS + 2 * longest_group
    assert large.seen_after < 200 - longest_group, "the round itself takes 200 s, and that partition is its last"


async def test_points_written_otherwise_change_no_count_and_wait_for_the_round(large: Large) -> None:
    watched = large.watched
    key = next(key for key in watched.site.manifests if watched.site.partition(key) == PARTITIONS - 1)
    await watched.site.write(key, [1], payload_hash="0" * 32)
    await large.until_drift(watched.clock.time, "wrong_payload")
    await watched.watch.look_again()
    assert watched.drift() == {"wrong_payload": 1}


async def test_a_sound_partition_costs_one_count_a_look_and_what_was_explained_none_more(large: Large) -> None:
    watched, index = large.watched, large.index
    await watched.watch._quick_look()
    assert index.counts == PARTITIONS
    key = b"acme/d3"
    tenant, document = split_document_key(key)
    (point, *_) = await index.document_points(COLLECTION, tenant, document)
    elsewhere = (watched.site.partition(key) + 1) % PARTITIONS  # a mark in the wrong place: the counts differ for ever
    payloads = ((point.chunk_id, point.payload),)
    await index.apply(COLLECTION, IndexPlan(tenant, document, 1, payloads=payloads, partition=elsewhere))
    await watched.watch._quick_look()
    assert watched.drift() == {}
    before = index.counts
    await watched.watch._quick_look()
    assert index.counts - before == PARTITIONS


async def test_a_manifest_that_is_written_is_expected_at_once(large: Large) -> None:
    watched = large.watched
    await watched.watch._quick_look()
    key = b"acme/d3"
    before = watched.site.manifests[key]
    watched.site.plan(key, 7, revision=2)
    assert watched.owned.on_row is not None
    watched.owned.on_row(watched.site.partition(key), key, before, watched.site.manifests[key])
    await watched.site.write(key, [5, 6], revision=2)
    large.index.counts = 0
    await watched.watch._quick_look()
    assert large.index.counts == PARTITIONS, "nothing differs"
    watched.owned.mine = (0, 1)
    watched.owned.mine = tuple(range(PARTITIONS))
    await watched.watch._quick_look()
    assert watched.drift() == {}


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 4), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 8)), max_size=12),
)
def test_counts_of_rows_are_those_of_the_last_writes_whenever_they_came(
    begun: dict[int, int], writes: list[tuple[int, int, int]]
) -> None:
    """`writes`: document, chunks, and before which step of loading."""
    site = Site()
    stored: dict[bytes, bytes] = {}

    def row(number: int, chunks: int) -> tuple[bytes, bytes]:
        key = b"acme/d%d" % number
        site.plan(key, chunks)
        return key, site.manifests[key]

    for number, chunks in begun.items():
        key, value = row(number, chunks)
        stored[key] = value
    expected = Expected(0)
    steps = expected.load(list(stored.items()))
    for step in range(10):
        for number, chunks, when in writes:
            if when == step:
                key, value = row(number, chunks)
                expected.change(key, stored.get(key), value)
                stored[key] = value
        next(steps, None)
    recounted = Expected(0)
    for _ in recounted.load(stored.items()):
        pass
    assert expected.loaded
    assert expected.counts == recounted.counts
    assert sum(expected.counts) == expected.within(0, BLOCKS) == expected.total
