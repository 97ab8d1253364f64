"""What mends a finding: documents are sent again; what nobody knows is ended by an event; what no event can mend is told."""

from __future__ import annotations

import pytest

from chunking.manifest import Manifest, ManifestEntry
from streams.audit.findings import MEANING, Finding, Kind
from streams.audit.repair import FEW, plan_repair, spoil
from streams.repair.newest import Newest
from tests.unit.audit.site import COLLECTION, Site, chunk_name

KEY = b"acme/d"
KNOWN = {KEY: Newest(5, "upsert", 0, 0)}
LIVE = {KEY: Manifest(5, (ManifestEntry("chk_a", "0", 1),))}


def finding(kind: Kind, key: bytes = KEY, revision: int = 5, **more: object) -> Finding:
    return Finding(kind, key, "chk_a", "", revision, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind, (_, action) in MEANING.items() if action == "docdelta audit --repair"])
def test_a_known_document_is_sent_again(kind: Kind) -> None:
    plan = plan_repair([finding(kind)], KNOWN, LIVE)
    assert (plan.reindex, dict(plan.delete), plan.left) == ((KEY,), {}, ())
    assert (plan.vectors == {"chk_a"}) == (kind == "wrong_vector")


@pytest.mark.parametrize("kind", [kind for kind, (_, action) in MEANING.items() if action != "docdelta audit --repair"])
def test_what_needs_the_source_is_left_to_a_person(kind: Kind) -> None:
    plan = plan_repair([finding(kind)], KNOWN, LIVE)
    assert (plan.reindex, dict(plan.delete)) == ((), {})
    assert [action for _, action in plan.left] == [MEANING[kind][1]]


def test_points_that_nobody_knows_are_ended_at_their_newest_revision() -> None:
    found = [finding("left_over_point", b"acme/ghost", revision) for revision in (3, 9, 4)]
    assert dict(plan_repair(found, KNOWN, LIVE).delete) == {b"acme/ghost": 9}


def test_points_of_a_deleted_document_that_the_log_forgot_are_ended_at_its_end() -> None:
    found = [finding("left_over_point", b"acme/ghost", 3)]
    plan = plan_repair(found, KNOWN, {**LIVE, b"acme/ghost": Manifest(7, deleted=True)})
    assert dict(plan.delete) == {b"acme/ghost": 7}


def test_points_newer_than_the_end_in_the_log_are_ended_at_their_own_revision() -> None:
    """Each batch may hold left-over points of its own revision: the delete that one needed is too old for the next."""
    found = [finding("left_over_point", b"acme/ghost", 8)]
    log = {**KNOWN, b"acme/ghost": Newest(5, "delete", 0, 1)}
    assert dict(plan_repair(found, log, {**LIVE, b"acme/ghost": Manifest(5, deleted=True)}).delete) == {b"acme/ghost": 8}
    living = {**LIVE, b"acme/ghost": Manifest(8, (ManifestEntry("chk_a", "0", 1),))}
    assert dict(plan_repair(found, log, living).delete) == {}, "a manifest that lives knows more than what is left of the log"


def test_a_living_document_without_events_is_never_deleted() -> None:
    plan = plan_repair([finding("left_over_point")], {}, LIVE)
    assert (plan.reindex, dict(plan.delete)) == ((), {})
    assert "from its source" in plan.left[0][1]


def test_a_lost_log_deletes_nothing() -> None:
    """All that is in the index is unknown: it is the log that is gone, not the documents."""
    found = [finding("left_over_point", b"acme/g%d" % number) for number in range(FEW + 1)]
    plan = plan_repair(found, {}, {})
    assert dict(plan.delete) == {}
    assert len(plan.left) == FEW + 1
    assert "docdelta sync --all" in plan.left[0][1]
    many = {b"acme/k%d" % number: Manifest(1, (ManifestEntry("chk_a", "0", 1),)) for number in range(200)}
    assert len(plan_repair(found, KNOWN, many).delete) == FEW + 1, "eleven beside two hundred are few"


def test_a_point_of_a_newer_revision_than_the_newest_event_is_fenced_and_told() -> None:
    plan = plan_repair([finding("wrong_order", revision=6)], KNOWN, LIVE)
    assert plan.reindex == ()
    assert "above 6" in plan.left[0][1]


def test_a_point_of_somebody_else_is_told() -> None:
    plan = plan_repair([Finding("left_over_point", b"", "point:7")], KNOWN, LIVE)
    assert [action for _, action in plan.left] == ["remove it from the index by its id: no event can"]


async def test_what_is_wrong_under_a_right_hash_loses_its_hash_so_that_every_look_finds_it() -> None:
    site = await Site().begin()
    key = await site.put("d", chunks=3)
    one, two = chunk_name(key, 0), chunk_name(key, 2)
    found = [Finding("wrong_vector", key, one, "", 1), Finding("wrong_payload", key, two, "", 1, payload_edited=True)]
    plan = plan_repair(found, site.events, {key: Manifest(1)})
    for _ in range(2):
        for of, chunks in plan.spoil.items():
            await spoil(site.index, COLLECTION, of, chunks, plan)
    points = await site.index.retrieve(COLLECTION, [one, two], with_vectors=True)
    assert points[one].payload["embed_hash"] == points[one].payload["payload_hash"] == points[two].payload["payload_hash"] == ""
    assert points[two].payload["embed_hash"], "its vector is right: no embedding"
    assert points[one].vector is not None, "it is found by searches until it is made anew"
    report = await site.audit().run()
    assert [(each.kind, each.chunk_id) for each in report.findings] == [("wrong_payload", each) for each in sorted([one, two])]
