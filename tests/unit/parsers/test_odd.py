"""Binary under a text's name is refused with a place and a way out; texts with a few odd characters are read as before."""

from __future__ import annotations

import pytest

from chunking.parsers import UnreadableMarkup, parse_document
from chunking.parsers.odd import FEW, MOST

TYPES = ("text/markdown", "text/plain", "text/html")
CHINESE = "第十条　值班员应当每日巡查。\n发现异常的，立即报告。\n"
RUBBISH = [
    pytest.param(bytes(range(1, 32)) * 20, id="control-characters"),
    pytest.param(b"\x01\x02\x03\x04", id="a-few-control-characters-and-nothing-else"),
    pytest.param(b"\x1c\x1d\x1e\x1f" * 9, id="controls-that-python-takes-for-blanks"),
    pytest.param(b"\xff\xfe" + b"\xff" * 1_000, id="a-byte-order-mark-and-bytes-of-ff"),
    pytest.param(b"\xfe\xff" + b"\xff" * 1_000, id="the-other-byte-order-mark-and-bytes-of-ff"),
    pytest.param(b"\xff" * 1_000, id="bytes-of-ff"),
    pytest.param(b"\x00" * 1_000, id="nuls"),
    pytest.param(b"\x01\x00" * 1_000, id="small-integers-of-two-bytes"),
    pytest.param("\ufffd".encode() * 500, id="what-a-wrong-conversion-left"),
    pytest.param(b"\x7fELF\x02\x01\x01" + b"\x03\x10\x05AVAUATUSH" * 30, id="a-program-without-nuls"),
    pytest.param(b"\x1b" * 40, id="escapes-of-no-colour"),
    pytest.param(b"head of a text\n" + b"\x06\x07\x08\x0f" * 100, id="a-text-that-becomes-binary"),
]


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("data", RUBBISH)
def test_what_is_no_text_is_refused(data: bytes, media_type: str) -> None:
    with pytest.raises(UnreadableMarkup) as caught:
        parse_document(data, media_type)
    assert "charset" in str(caught.value)
    assert str(caught.value).replace("…", "").isascii(), "the content is quoted"


def test_the_refusal_says_how_much_where_it_begins_and_what_to_do() -> None:
    with pytest.raises(UnreadableMarkup) as caught:
        parse_document("line\n好" + "\x02" * 40, "text/plain")
    words = str(caught.value)
    assert words.startswith("not a text: 40 of 45 characters are control or replacement characters, ")
    assert "the first at line 2, character 6:" in words
    assert "saved as UTF-8" in words


PROPER = [
    pytest.param((CHINESE * 3).encode("utf-16-le"), id="utf-16-le-without-a-mark"),
    pytest.param((CHINESE * 3).replace("　", " ").encode("utf-16-be"), id="utf-16-be-without-a-mark"),
    pytest.param("A page in Latin letters.\n".encode("utf-16-le"), id="utf-16-of-latin-letters"),
    pytest.param(CHINESE.encode("gb18030"), id="gb18030"),
    pytest.param((CHINESE * 5).encode("gb18030") + b"\x1a\x07", id="gb18030-with-an-old-end-of-file"),
    pytest.param(CHINESE.encode() + b"\x0c" * 40 + CHINESE.encode(), id="page-feeds"),
    pytest.param(b"\x1b[32mINFO\x1b[0m 12:00:01 request of 12 ms for /documents/7\n" * 50, id="a-coloured-log"),
    pytest.param(b"\x1b[0m\x1b[01;34mbin\x1b[0m  \x1b[01;32mrun\x1b[0m\n" * 20, id="a-folder-listed-in-colours"),
    pytest.param(b"\x1b[32m.\x1b[0m" * 100, id="dots-of-a-test-run-in-colours"),
    pytest.param(("张\ufffd明同志：" + CHINESE).encode(), id="a-name-spoilt-by-a-conversion"),
    pytest.param(b"a\x07b", id="a-bell-in-a-short-text"),
    pytest.param("\ue000\ue001 private use".encode(), id="characters-of-an-icon-font"),
    pytest.param("\U0001f469\u200d\U0001f4bb \u200e \u202e".encode(), id="joiners-and-directions"),
    pytest.param(b"", id="nothing"),
    pytest.param(b" \r\n\t\r\n", id="blanks"),
]


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("data", PROPER)
def test_a_text_with_a_few_odd_characters_is_read(data: bytes, media_type: str) -> None:
    parse_document(data, media_type)


@pytest.mark.parametrize("odd", [FEW + 1, 40, 4_000])
def test_one_odd_character_more_than_the_bound_is_too_much(odd: int) -> None:
    text = "\x05" * odd + "字" * (odd * MOST - odd)
    assert parse_document(text, "text/plain").blocks
    assert parse_document(text + " \n" * 500, "text/plain").blocks
    with pytest.raises(UnreadableMarkup):
        parse_document(text[:-1] + " \n" * 500, "text/plain")


def test_so_many_may_stand_in_any_text() -> None:
    assert parse_document("\x05" * FEW + "a", "text/plain").text.endswith("a")
    with pytest.raises(UnreadableMarkup):
        parse_document("\x05" * (FEW + 1) + "a", "text/plain")
