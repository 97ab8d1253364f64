"""Inputs that once broke something, kept small."""

from __future__ import annotations

import pytest

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.normalize import normalize
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy
from chunking.tokens import counter
from schemas.codec import UndecodableRecord, decode
from schemas.document_change import DocumentChange


def test_a_forced_cut_within_the_first_cluster_ends() -> None:
    """A cut was moved before a closing mark, to where it began, for ever."""
    document = parse_document("e" + "\u0301" * 40 + "。", "text/plain")
    policy = ChunkPolicy.model_validate({"name": "f", "version": 1, "rules": [{"use": "tokens"}], "limits": {"max_tokens": 16}})
    assert chunk(document, Provenance(DocumentKey("t", "d"), 1), policy, counter("cl100k_base"))


@pytest.mark.parametrize("blank", ["\x85", "\xa0", "\u2028", "\u3000"])
@pytest.mark.parametrize("media_type", ["text/markdown", "text/plain", "text/html"])
def test_a_joiner_beside_a_blank_goes_with_it(blank: str, media_type: str) -> None:
    text = parse_document(f"甲{blank}\u200c乙\n\n{blank}\u200c丙", media_type).text
    assert normalize(text) == text


@pytest.mark.parametrize(
    ("markup", "words"),
    [
        ("<td><td>one<math><tr>", ["one"]),
        ("<table><tr><td>one<math><tr><td>two</td>three</table>four", ["one", "two", "three", "four"]),
        ("<table><td>one<math><tr></table>two", ["one", "two"]),
    ],
)
def test_rows_within_foreign_markup_of_a_cell_lose_nothing(markup: str, words: list[str]) -> None:
    """A cell was looked for in the last row, which had none, or was another one."""
    text = parse_document(markup, "text/html").text
    assert [word for word in words if word not in text] == []


def test_the_error_of_an_unknown_schema_is_ascii() -> None:
    with pytest.raises(UndecodableRecord) as caught:
        decode('{"schema":"耀"}'.encode(), DocumentChange)
    assert str(caught.value).isascii()


def test_the_error_of_a_damaged_record_quotes_no_content() -> None:
    named = '"tenant_id":"a","document_id":"d","revision":1,"第十条 值班员\\n巡查":1,'.encode()
    with pytest.raises(UndecodableRecord) as caught:
        decode(b'{"schema":"docdelta.document_change/1",' + named + b'"op":"delete"}', DocumentChange)
    assert "(no name): unknown field" in str(caught.value)
    assert str(caught.value).isascii()
