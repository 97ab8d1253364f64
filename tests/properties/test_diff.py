"""Laws of diff: applying a delta reaches the target; nothing that stayed is written; order keys ascend."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chunking.chunk import Chunk
from chunking.diff import LIMIT, apply, diff
from chunking.document import Span
from chunking.identity import digest, payload_hash
from chunking.manifest import Manifest, ManifestEntry


def a_chunk(name: str, payload: int, ordinal: int = 0) -> Chunk:
    content = {"name": name, "payload": payload}
    return Chunk(
        "chk_" + digest(name), ordinal, name, name, digest(name), payload_hash(content), content, 1, Span(0, 1), "p", "s/1"
    )


documents = st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(0, 2)), unique_by=lambda pair: pair[0]).map(
    lambda pairs: [a_chunk(name, payload, index) for index, (name, payload) in enumerate(pairs)]
)


@given(st.lists(documents, min_size=1, max_size=6))
@settings(max_examples=400)
def test_a_chain_of_deltas_always_reaches_the_newest_target(history: list[list[Chunk]]) -> None:
    manifest: Manifest | None = None
    for revision, chunks in enumerate(history):
        delta, after = diff(manifest, chunks, revision)
        held = apply(delta, manifest)
        assert held == {entry.chunk_id: entry for entry in after.entries}
        assert [entry.chunk_id for entry in sorted(held.values(), key=lambda e: e.order_key)] == [c.chunk_id for c in chunks]
        assert all(0 < entry.order_key < LIMIT for entry in after.entries)
        manifest = after


@given(documents)
def test_the_same_chunks_again_give_an_empty_delta(chunks: list[Chunk]) -> None:
    _, manifest = diff(None, chunks, 1)
    delta, after = diff(manifest, chunks, 2)
    assert delta.empty
    assert after.entries == manifest.entries


@given(documents, st.data())
def test_inserting_one_chunk_writes_one_chunk(chunks: list[Chunk], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chunks)))
    _, manifest = diff(None, chunks, 1)
    delta, _ = diff(manifest, [*chunks[:place], a_chunk("new", 0), *chunks[place:]], 2)
    assert (len(delta.added), len(delta.updated), len(delta.removed)) == (1, 0, 0)


@given(documents.filter(lambda chunks: len(chunks) > 2), st.data())
def test_moving_one_chunk_touches_its_own_order_key_and_no_vector(chunks: list[Chunk], data: st.DataObject) -> None:
    source = data.draw(st.integers(0, len(chunks) - 1))
    rest = chunks[:source] + chunks[source + 1 :]
    target = data.draw(st.integers(0, len(rest)))
    _, manifest = diff(None, chunks, 1)
    delta, _ = diff(manifest, [*rest[:target], chunks[source], *rest[target:]], 2)
    assert not delta.added
    assert not delta.removed
    assert len(delta.updated) <= 1


def test_inserting_at_one_place_for_ever_never_runs_out_of_keys_and_rewrites_few() -> None:
    chunks = [a_chunk("first", 0), a_chunk("last", 0)]
    _, manifest = diff(None, chunks, 0)
    rewritten = 0
    for number in range(500):
        chunks.insert(1, a_chunk(f"n{number}", 0))
        delta, manifest = diff(manifest, chunks, number + 1)
        assert len(delta.added) == 1
        rewritten += len(delta.updated)
    assert rewritten < 500 * 4


@given(
    st.lists(st.tuples(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(1, LIMIT - 1)), max_size=20), st.text()
)
def test_a_manifest_survives_its_bytes(entries: list[tuple[str, int]], event: str) -> None:
    manifest = Manifest(7, tuple(ManifestEntry("chk_" + h, h[:32], k) for h, k in entries), True, event, True, 6)
    value = manifest.to_bytes()
    assert value
    assert Manifest.from_bytes(value) == manifest
