"""What a policy would change, told from real documents before anything is built; and what borrowing then saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import TokenCounter, counter
from streams.batches.preview import preview, sample_of
from streams.ports import InRecord
from tests.support.batches import BLUE, GREEN, Installation, page

SITE = Path(__file__).resolve().parents[3] / "deploy/sample-site"


def using(text: str) -> tuple[ChunkPolicy, TokenCounter]:
    policy = load_policy(text)
    return policy, counter(policy.limits.tokenizer)


async def a_site(*pages: tuple[str, str]) -> Installation:
    site = Installation()
    await site.host(BLUE, "active")
    for name, text in pages:
        site.put(name, text)
    return site


async def test_the_preview_foretells_what_the_build_then_costs() -> None:
    """Counts of the preview over all documents are those of the build: chunks, embedded, borrowed."""
    site = await a_site(*((f"d{n}", page(f"d{n}", n % 4 + 1)) for n in range(8)))
    await site.drain()
    foretold = preview(sample_of(site.parsed), using(BLUE), using(GREEN))
    green = await site.host(GREEN)
    await site.drain(green)
    receipts = green.receipts()
    assert foretold.documents == 8
    assert foretold.chunks == sum(receipt.added for receipt in receipts)
    assert foretold.embedded == green.embedded
    assert foretold.borrowed == foretold.chunks - green.embedded
    lines = "\n".join(foretold.lines(16, chunks_a_second=100))
    assert "sample: 8 of 16 documents" in lines
    assert f"expected: {2 * foretold.chunks} chunks, {2 * foretold.embedded} embedded" in lines


async def test_a_sample_is_of_newest_revisions_and_leaves_out_what_is_gone() -> None:
    site = await a_site(("a", page("a")), ("b", page("b")))
    site.put("a", "# A\n\nshort now")
    site.delete("b")
    site.parsed.append(InRecord("parsed", 0, 99, b"acme/x", b"not a record"))
    assert [(each.document_id, each.revision) for each in sample_of(site.parsed)] == [("a", 2)]


async def test_a_document_that_the_new_policy_refuses_is_named() -> None:
    site = await a_site(("a", page("a")))
    strict = GREEN.replace("{max_tokens: 40}", "{max_tokens: 40, max_chunks: 1}")
    found = preview(sample_of(site.parsed), using(BLUE), using(strict))
    assert list(found.refused) == ["acme/a"]
    assert "limits.max_chunks 1" in found.refused["acme/a"]


A_TENTH = 320
"""Tokens a chunk at which a tenth of the sample site's boundaries (11 %) stand elsewhere than at 400."""


@pytest.mark.parametrize("tokens", [300, A_TENTH, 350, 380])
async def test_a_policy_that_moves_a_tenth_of_the_boundaries_embeds_hardly_more_than_a_tenth(tokens: int) -> None:
    """On the sample site: chunks embedded are at most those whose boundaries moved, and twelve percent for a tenth."""
    site = Installation()
    for path in sorted(SITE.rglob("*.md")):
        site.put(str(path.relative_to(SITE)), path.read_text(encoding="utf-8"))
    old = BLUE.replace("{max_tokens: 60}", "{max_tokens: 400}")
    new = GREEN.replace("{max_tokens: 40}", f"{{max_tokens: {tokens}}}")
    blue = await site.host(old, "active")
    await site.drain(blue)
    green = await site.host(new)
    await site.drain(green)
    await site.check(green)
    found = preview(sample_of(site.parsed), using(old), using(new))
    moved = found.chunks - found.same
    assert green.embedded <= moved
    if tokens == A_TENTH:
        assert moved >= 0.10 * found.chunks
        assert green.embedded <= 0.12 * found.chunks
