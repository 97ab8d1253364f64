"""decode(): the rule, and how short a file may be."""

from __future__ import annotations

import codecs

import pytest

from chunking.charset import decode

SIMPLIFIED = "我们在这里说明如何使用这个系统的配置文件，以及它与数据库之间的关系。请先阅读本章内容，再进行操作。"
TRADITIONAL = "我們在這裡說明如何使用這個系統的設定，以及它與資料之間的關係。請先讀過這一節的內容，再進行下一步。"


@pytest.mark.parametrize("length", [6, 12, 30])
@pytest.mark.parametrize(
    ("text", "charset", "name"),
    [
        pytest.param(SIMPLIFIED, "gb18030", "gb18030", id="gb18030"),
        pytest.param(SIMPLIFIED, "utf-8", "utf-8", id="utf-8"),
        pytest.param(SIMPLIFIED, "utf-16-le", "utf-16-le", id="utf-16-le"),
        pytest.param(TRADITIONAL, "cp950", "cp950", id="big5"),
        pytest.param(TRADITIONAL, "utf-8", "utf-8", id="traditional-utf-8"),
    ],
)
def test_short_chinese_files_are_read_right(text: str, charset: str, name: str, length: int) -> None:
    for start in range(0, len(text) - length, 3):
        piece = text[start : start + length]
        assert decode(piece.encode(charset)) == (piece, name)


@pytest.mark.parametrize("bom", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE])
def test_a_byte_order_mark_decides(bom: bytes) -> None:
    charset = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(bom, "utf-32-le")
    assert decode(bom + "中a".encode(charset)) == ("中a", charset)


@pytest.mark.parametrize("label", ["gb2312", "GBK", "x-gbk", '"gb18030"'])
def test_the_labels_gb2312_and_gbk_read_characters_beyond_gb2312(label: str) -> None:
    assert decode("朱镕基€𠮷".encode("gb18030"), label)[0] == "朱镕基€𠮷"


def test_a_declared_label_is_believed_where_the_bytes_agree() -> None:
    assert decode("café".encode("cp1252"), "iso-8859-1") == ("café", "cp1252")
    assert decode("あいう".encode("shift_jis"), "shift_jis")[0] == "あいう"


def test_utf_8_is_recognised_under_a_wrong_label() -> None:
    assert decode("café 中文".encode(), "iso-8859-1") == ("café 中文", "utf-8")


def test_a_character_cut_off_at_the_end_is_dropped() -> None:
    assert decode("中文".encode()[:-1]) == ("中", "utf-8")


def test_nul_bytes_on_one_side_mean_utf_16() -> None:
    assert decode("plain words".encode("utf-16-be")) == ("plain words", "utf-16-be")
    assert decode("plain words".encode("utf-16-le")) == ("plain words", "utf-16-le")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("café noir".encode("cp1252"), id="latin-1-without-a-label"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe\x00\x01", id="an-image"),
        pytest.param(codecs.BOM_UTF8 + b"\xff\xff", id="a-byte-order-mark-that-lies"),
    ],
)
def test_what_fits_no_charset_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"declare it|save the file"):
        decode(data)


@pytest.mark.parametrize("label", ["no-such-charset", "rot13", "base64", "", "\x00"])
def test_an_unknown_label_is_no_error(label: str) -> None:
    assert decode(b"abc", label) == ("abc", "ascii")
