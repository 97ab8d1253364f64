"""Laws of the comparison: groups leave nothing out, differences of digests name every fault, and nothing that is right."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from chunking.manifest import Manifest, ManifestEntry
from streams.audit.compare import Wanted, chunks_in, groups, judge
from streams.index.marks import digest_of
from streams.ports import StoredPoint

rows = st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=3), st.integers(1, 40)), max_size=60)
entries = st.lists(
    st.builds(
        ManifestEntry,
        st.integers(0, 40).map(lambda number: f"chk_{number:064x}"),
        st.integers(0, 3).map(lambda number: f"{number:032x}"),
        st.integers(0, 50),
    ),
    unique_by=lambda entry: entry.chunk_id,
    max_size=12,
)


def points(held: list[ManifestEntry]) -> list[StoredPoint]:
    return [
        StoredPoint(each.chunk_id, {"payload_hash": each.payload_hash, "order_key": each.order_key, "revision": 1}) for each in held
    ]


@given(rows, st.integers(1, 60))
def test_groups_hold_every_document_once_and_leave_no_bucket_out(found: list[tuple[int, bytes, int]], size: int) -> None:
    made = list(groups(sorted(found), 0, 100, size))
    assert [key for group in made for key in group.keys] == [key for _, key, _ in sorted(found)]
    assert [made[0].first, *[group.end for group in made]] == [*[group.first for group in made], 100]
    place = iter(sorted(found))
    for group in made:
        for _ in group.keys:
            assert group.first <= next(place)[0] < group.end


@given(entries, entries)
def test_a_document_is_judged_as_set_differences_say(wanted: list[ManifestEntry], held: list[ManifestEntry]) -> None:
    ours, theirs = {e.chunk_id: e for e in wanted}, {e.chunk_id: e for e in held}
    found = {(finding.kind, finding.chunk_id) for finding in judge(b"t/d", Manifest(1, tuple(wanted)), points(held))}
    both = ours.keys() & theirs.keys()
    assert found == {
        *(("missing_point", each) for each in ours.keys() - theirs.keys()),
        *(("left_over_point", each) for each in theirs.keys() - ours.keys()),
        *(("wrong_payload", each) for each in both if ours[each].payload_hash != theirs[each].payload_hash),
        *(("wrong_order", each) for each in both if ours[each].order_key != theirs[each].order_key),
    }


@given(entries, entries)
def test_digests_differ_exactly_where_points_do(wanted: list[ManifestEntry], held: list[ManifestEntry]) -> None:
    group = Wanted()
    group.add(b"t/d", Manifest(1, tuple(wanted)))
    counts = Counter(digest_of(each.chunk_id, each.payload_hash, each.order_key) for each in held)
    lacking, extra = group.differing(counts)
    assert bool(lacking) == bool(set(wanted) - set(held))
    assert extra == {digest_of(each.chunk_id, each.payload_hash, each.order_key) for each in set(held) - set(wanted)}


@given(entries, st.text(max_size=20))
def test_chunks_are_counted_without_reading_a_manifest(held: list[ManifestEntry], event: str) -> None:
    assert chunks_in(Manifest(3, tuple(held), event_id=event, changed=3).to_bytes()) == len(held)


def test_without_a_manifest_nothing_should_be_there() -> None:
    one = points([ManifestEntry("chk_a", "0", 1)])
    assert [finding.kind for finding in judge(b"t/d", None, one)] == ["left_over_point"]
    assert [finding.kind for finding in judge(b"t/d", Manifest(2, deleted=True), one)] == ["left_over_point"]
    assert judge(b"t/d", None, []) == ()
