"""Plain text and the table of parsers."""

from __future__ import annotations

import pickle

import pytest

from chunking.document import Document
from chunking.parsers import PARSERS, UnreadableMarkup, UnsupportedMediaType, media_type_of, parse_document


def paragraphs(text: str) -> list[str]:
    document = parse_document(text, "text/plain")
    return [document.text_of(block) for block in document.blocks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\nb\n\nc\n", ["a\nb", "c"], id="a-line-break-within-a-paragraph-stays"),
        pytest.param("　　甲\n　　乙\n丙\n", ["甲", "乙\n丙"], id="an-ideographic-indent-begins-a-paragraph"),
        pytest.param("a\n \t　\nb", ["a", "b"], id="a-line-of-blanks-parts-paragraphs"),
        pytest.param("# a\n- b\n| c |", ["# a\n- b\n| c |"], id="marks-mean-nothing"),
        pytest.param("a\x0cb\u2028c", ["a\x0cb\u2028c"], id="only-lf-ends-a-line"),
        pytest.param("", [], id="nothing"),
        pytest.param(" \n\t\n", [], id="blanks"),
    ],
)
def test_paragraphs_are_parted_by_blank_lines(text: str, expected: list[str]) -> None:
    assert paragraphs(text) == expected


def test_media_type_parameters_are_honoured() -> None:
    document = parse_document("café".encode("cp1252"), 'Text/Plain; format=flowed; Charset="windows-1252"')
    assert (document.text, document.media_type, document.parser) == ("café", "text/plain", "plain_text/1")


def test_what_the_sender_says_goes_before_what_the_file_says() -> None:
    document = parse_document("---\ntitle: A\nlang: en\n---\nx", "text/markdown", title="B", language="zh", kind="k", labels=["l"])
    assert (document.title, document.language, document.kind, document.labels) == ("B", "zh", "k", frozenset({"l"}))


def test_an_unknown_media_type_is_refused_with_what_to_send() -> None:
    with pytest.raises(UnsupportedMediaType, match=r"application/zip.*send one of.*text/markdown"):
        parse_document(b"", "application/zip")


@pytest.mark.parametrize("media_type", PARSERS)
def test_bytes_in_no_charset_are_refused_with_what_to_do(media_type: str) -> None:
    with pytest.raises(UnreadableMarkup, match="declare it"):
        parse_document("café noir".encode("cp1252"), media_type)


@pytest.mark.parametrize("media_type", PARSERS)
def test_documents_and_parsers_can_be_sent_to_another_process(media_type: str) -> None:
    document = parse_document("# a\n\n|b|c|\n|-|-|\n|1|2|", media_type)
    assert pickle.loads(pickle.dumps(document)) == document
    assert pickle.loads(pickle.dumps(PARSERS[media_type])).versioned_name == PARSERS[media_type].versioned_name
    assert isinstance(document, Document)


def test_media_types_follow_from_file_names() -> None:
    assert media_type_of("a/B.MD") == "text/markdown"
    with pytest.raises(UnsupportedMediaType, match=r"\.exe"):
        media_type_of("a.exe")
