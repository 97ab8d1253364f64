"""What a reading of lag shows: ages, tenants, builds. Nothing here needs a broker."""

from __future__ import annotations

from datetime import UTC, datetime

from schemas.batch import BatchRecord, BatchState, EmbeddingRecord, LaunchRecord
from schemas.receipt import Receipt
from streams import metrics
from streams.kafka.offsets import PartitionLag
from streams.lag import Ahead, Reading, build_progress, show
from streams.reading.waiting import GroupLag
from streams.settings import Settings

NOW = 1_900_000_000.0
T0 = datetime(2031, 1, 1, tzinfo=UTC)
SETTINGS = Settings()
PARSED, GROUP = SETTINGS.topics.parsed, SETTINGS.topics.batch_group


def batch(name: str, state: BatchState, launch: dict[int, int] | None = None) -> BatchRecord:
    return BatchRecord(
        batch=name,
        state=state,
        policy_yaml="",
        policy_fingerprint="f",
        collection=name,
        embedding=EmbeddingRecord(model="m", dimensions=2),
        alias="a",
        created_at=T0,
        updated_at=T0,
        launch=None if launch is None else LaunchRecord(at=T0, parsed=launch),
    )


def value(name: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, labels)


def test_a_build_that_lags_does_not_make_tenants_wait() -> None:
    ahead = {
        (GROUP("served"), PARSED, 0): Ahead(4, NOW - 30, {"acme": NOW - 30, "beta": NOW - 10}),
        (GROUP("served"), PARSED, 1): Ahead(9, NOW - 50, {"beta": NOW - 50}),
        (GROUP("new"), PARSED, 0): Ahead(0, NOW - 9000, {"acme": NOW - 9000}),
    }
    reading = Reading((), ahead, 0)
    assert reading.oldest_by_tenant([GROUP("new")]) == {"beta": NOW - 50, "acme": NOW - 30}


def test_only_the_tenants_that_wait_longest_are_shown() -> None:
    tenants = {f"t{n}": NOW - n for n in range(1000)}
    reading = Reading((), {("g", PARSED, 0): Ahead(0, NOW - 999, tenants)}, 0)
    assert list(reading.oldest_by_tenant([])) == [f"t{n}" for n in range(999, 989, -1)]
    show(reading, [], SETTINGS, NOW)
    shown = [sample for family in metrics.OLDEST_UNSYNCED.collect() for sample in family.samples]
    assert len(shown) == metrics.TOP_TENANTS


def test_what_a_scrape_says_does_not_grow_with_letters_tenants_and_chunks() -> None:
    """10,000 letters, 1,000 tenants that wait, are held and paused, 1,000,000 chunks: as many samples as with a hundredth."""

    def scraped(letters: int, tenants: int, documents: int) -> int:
        since = {f"t{n}": NOW - n for n in range(tenants)}
        show(Reading((), {("g", PARSED, 0): Ahead(0, NOW - 999, since)}, letters), [batch("v1", "active")], SETTINGS, NOW)
        metrics.breakers_open(since)
        metrics.paused(since)
        for number in range(documents):
            fields = {"tenant_id": f"t{number % tenants}", "document_id": f"d{number}", "event_id": f"{number}", "added": 20}
            metrics.settled(Receipt(revision=1, batch="v1", stage="indexer", outcome="indexed", **fields))
        assert value("docdelta_dead_letter_records") == letters
        return len(metrics.exposition().splitlines())

    assert scraped(100, 10, 500) == scraped(10_000, 1_000, 50_000)
    metrics.breakers_open({})
    metrics.paused({})
    show(Reading((), {}, 0), [], SETTINGS, NOW)


def test_gauges_are_those_of_the_last_reading_and_of_no_earlier_one() -> None:
    first = GroupLag(GROUP("old"), (PartitionLag(PARSED, 0, 0, 1, 9),))
    show(Reading((first,), {(GROUP("old"), PARSED, 0): Ahead(1, NOW - 60)}, 3), [batch("old", "active")], SETTINGS, NOW)
    labels = {"group": GROUP("old"), "topic": PARSED, "partition": "0", "lane": "live"}
    assert value("docdelta_consumer_lag_records", **labels) == 8
    assert value("docdelta_consumer_lag_seconds", **labels) == 60
    assert value("docdelta_dead_letter_records") == 3
    assert value("docdelta_batch_info", batch="old", state="active") == 1

    show(Reading((), {}, 0), [batch("old", "warm")], SETTINGS, NOW + 15)
    assert value("docdelta_consumer_lag_records", **labels) is None
    assert value("docdelta_batch_info", batch="old", state="active") is None
    assert value("docdelta_batch_info", batch="old", state="warm") == 1
    assert value("docdelta_lag_read_timestamp_seconds") == NOW + 15


def test_a_build_is_measured_by_what_stood_at_its_launch() -> None:
    partitions = [PartitionLag(PARSED, 0, 10, 60, 500), PartitionLag(PARSED, 1, 0, None, 7), PartitionLag(PARSED, 2, 0, 900, 900)]
    assert build_progress({0: 110, 1: 5, 2: 40}, partitions) == (50 + 0 + 40, 100 + 5 + 40)

    group = GroupLag(GROUP("new"), (*partitions, PartitionLag(SETTINGS.topics.changes("new"), 0, 0, 0, 99)))
    show(Reading((group,), {}, 0), [batch("new", "building", {0: 110, 1: 5, 2: 40})], SETTINGS, NOW)
    assert value("docdelta_batch_build_remaining_records", batch="new") == 55
    assert value("docdelta_batch_build_progress_ratio", batch="new") == 90 / 145


def test_a_build_over_an_empty_log_is_done() -> None:
    show(Reading((), {}, 0), [batch("first", "building", {})], SETTINGS, NOW)
    assert value("docdelta_batch_build_progress_ratio", batch="first") == 1
