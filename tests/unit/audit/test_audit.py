"""An audit names what is wrong, all of it and nothing else, and reads next to nothing for it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from chunking.manifest import Manifest
from streams.audit.findings import POINT_KINDS
from streams.index.marks import BUCKETS
from streams.index.memory import MemoryIndex
from streams.index.qdrant import QdrantIndex
from streams.index.qdrant_local import LocalStore
from streams.metrics import DRIFT_KINDS
from streams.ports import StoredPoint
from tests.unit.audit.site import COLLECTION, Site, chunk_name


@pytest.fixture
async def site() -> Site:
    made = await Site().begin()
    for number in range(12):
        await made.put(f"d{number}", chunks=number % 4 + 1, tenant="acme" if number % 2 else "other")
    return made


async def found(site: Site, tenant: str = "") -> list[tuple[str, bytes, str]]:
    report = await site.audit(tenant).run()
    return [(each.kind, each.key, each.chunk_id) for each in report.findings]


async def test_a_sound_site_has_no_findings_and_no_point_is_read(site: Site) -> None:
    report = await site.audit().run()
    assert report.clean
    assert (report.documents, report.chunks, report.points) == (12, 30, 30)
    assert report.reads.points == 0
    assert report.reads.facets == 1, "a small site is one group"
    assert site.pauses == 0


async def test_each_kind_is_named_with_its_place(site: Site) -> None:
    await site.remove(b"acme/d3", 1)
    await site.write(b"acme/d5", [7])
    await site.write(b"other/d6", [0], payload_hash="0" * 32)
    await site.write(b"acme/d7", [2], order_key=5)
    site.tell(b"acme/d9", 2, "delete")
    site.tell(b"acme/new", 1)
    del site.events[b"other/d8"]
    assert await found(site) == [
        ("missing_point", b"acme/d3", chunk_name(b"acme/d3", 1)),
        ("left_over_point", b"acme/d5", chunk_name(b"acme/d5", 7)),
        ("wrong_payload", b"other/d6", chunk_name(b"other/d6", 0)),
        ("wrong_order", b"acme/d7", chunk_name(b"acme/d7", 2)),
        ("document_without_manifest", b"acme/new", ""),
        ("manifest_without_document", b"other/d8", ""),
        ("deleted_but_present", b"acme/d9", ""),
    ]
    assert {key for _, key, _ in await found(site, tenant="other")} == {b"other/d6", b"other/d8"}


async def test_points_of_a_document_that_nobody_knows_are_left_over(site: Site) -> None:
    await site.write(b"acme/ghost", range(3))
    assert await found(site) == [
        ("left_over_point", b"acme/ghost", name) for name in sorted(chunk_name(b"acme/ghost", n) for n in range(3))
    ]


async def test_points_of_a_deleted_document_are_left_over(site: Site) -> None:
    site.manifests[b"acme/d1"] = Manifest(2, deleted=True, changed=2).to_bytes()
    site.tell(b"acme/d1", 2, "delete")
    assert [kind for kind, _, _ in await found(site)] == ["left_over_point"] * 2


async def test_what_is_on_its_way_is_not_judged(site: Site) -> None:
    await site.remove(b"acme/d3", 1)
    site.flies(b"acme/d3")
    report = await site.audit().run()
    assert report.clean
    assert report.in_flight == 1


async def test_an_edit_that_lands_between_two_looks_is_no_drift(site: Site) -> None:
    """The manifest is ahead of the index at the first look, and the points come before the second."""
    site.plan(b"acme/d3", 6, revision=2)
    looks = iter(range(100))

    def edits() -> None:
        if next(looks) == 2:
            index = site.index
            assert isinstance(index, MemoryIndex)
            stored = index._collections[COLLECTION].points
            other = stored[chunk_name(b"acme/d3", 0)]
            for entry in site.manifest(b"acme/d3").entries:  # type: ignore[union-attr]
                fields = {"payload_hash": entry.payload_hash, "order_key": entry.order_key, "chunk_id": entry.chunk_id}
                stored[entry.chunk_id] = StoredPoint(entry.chunk_id, {**other.payload, **fields}, other.vector)
                index._collections[COLLECTION].documents["acme", "d3"].add(entry.chunk_id)

    site.on_look = edits
    report = await site.audit().run()
    assert report.clean
    assert site.pauses == 2


async def test_a_page_under_the_editors_hands_is_not_judged(site: Site) -> None:
    """Its manifest changes at each look."""
    looks = iter(range(2, 100))

    def edits() -> None:
        site.plan(b"acme/d3", 6, revision=next(looks))

    site.on_look = edits
    report = await site.audit().run()
    assert report.clean
    assert report.in_flight == 1


async def test_what_a_person_kept_is_told_is_no_drift_and_is_looked_through_like_any_other(site: Site) -> None:
    for key in (b"acme/d1", b"acme/d3", b"acme/d5"):
        site.tell(key, 2, "delete")
    site.said = replace(site.said, rejected=frozenset([b"acme/d1", b"acme/d3"]))
    await site.remove(b"acme/d3", 0)
    report = await site.audit().run()
    assert [(each.kind, each.key) for each in report.findings] == [
        ("missing_point", b"acme/d3"),
        ("deleted_but_present", b"acme/d5"),
    ]
    assert (report.rejected, report.as_json()["rejected"]) == (2, 2)


async def test_a_refused_revision_and_a_held_one_are_told_and_are_no_drift(site: Site) -> None:
    site.tell(b"acme/new", 1)
    site.tell(b"acme/d1", 2, "delete")
    site.plan(b"acme/d3", 6, suspect=True)
    site.said = replace(site.said, refused=frozenset([b"acme/new"]), held=frozenset([b"acme/d1"]))
    report = await site.audit().run()
    assert report.clean
    assert (report.refused, report.held) == (2, 1)


async def test_a_dead_letter_excuses_no_lost_point(site: Site) -> None:
    await site.remove(b"acme/d3", 0)
    site.said = replace(site.said, refused=frozenset([b"acme/d3"]))
    assert [kind for kind, _, _ in await found(site)] == ["missing_point"]


async def test_points_without_marks_are_read_in_full_and_judged_alike(site: Site) -> None:
    """A collection of before there were marks."""
    index = site.index
    assert isinstance(index, MemoryIndex)
    points = index._collections[COLLECTION].points
    for name, point in points.items():
        fields = {field: value for field, value in point.payload.items() if field not in ("bucket", "digest")}
        points[name] = StoredPoint(name, fields, point.vector)
    report = await site.audit().run()
    assert report.clean
    assert report.unmarked == report.reads.points == 30
    await site.remove(b"acme/d3", 1)
    await site.write(b"other/d6", [0], order_key=9)
    assert [kind for kind, _, _ in await found(site)] == ["missing_point", "wrong_order"]


async def test_a_mark_in_the_wrong_place_is_looked_at_and_is_no_drift(site: Site) -> None:
    """As after topics were made anew with other partitions: marks choose what is read, points decide."""
    index = site.index
    assert isinstance(index, MemoryIndex)
    points = index._collections[COLLECTION].points
    name = chunk_name(b"acme/d1", 0)
    points[name] = StoredPoint(name, {**points[name].payload, "bucket": 77 * BUCKETS, "digest": 1}, points[name].vector)
    report = await site.audit(group_chunks=4).run()
    assert report.clean
    assert 0 < report.reads.points < 10


async def test_a_small_share_of_many_points_is_read() -> None:
    """20,000 points in the in-process index, 50 faults of all kinds: all are named, at most a tenth of the points is read."""
    site = await Site(QdrantIndex(LocalStore(None))).begin()
    for number in range(2_000):
        await site.put(f"d{number}", chunks=10)
    dice = random.Random(7)
    broken = [f"acme/d{number}".encode() for number in dice.sample(range(2_000), 50)]
    expected = set()
    for number, key in enumerate(broken):
        kind = POINT_KINDS[number % 4]
        if kind == "missing_point":
            await site.remove(key, 4)
        elif kind == "left_over_point":
            await site.write(key, [11])
        elif kind == "wrong_payload":
            await site.write(key, [4], payload_hash="0" * 32)
        else:
            await site.write(key, [4], order_key=1)
        expected.add((kind, key))
    report = await site.audit().run()
    await site.index.close()
    assert {(each.kind, each.key) for each in report.findings} == expected
    assert len(report.findings) == 50
    assert report.points == 20_000
    assert report.reads.points <= 2_000, "a tenth; two looks at fifty documents of ten points, and the points that were extra"
    assert report.reads.facets <= 45, "512 chunks a request"


def test_the_metric_knows_the_kinds_that_a_watch_can_find() -> None:
    assert POINT_KINDS == DRIFT_KINDS
