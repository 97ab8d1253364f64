"""decode(): bytes of unknown origin to text. Sure signs first, statistics last, and a refusal where nothing fits.

Order: byte-order mark, ASCII, strict UTF-8, the declared label, NUL bytes on one side (UTF-16), then GB 18030, Big5 (cp950) and
UTF-16 LE by the share of common Chinese characters. A character cut off at the end of the data is dropped.
"""

from __future__ import annotations

import codecs
import re

_COMMON = frozenset(
    # The most frequent simplified characters of modern text, then the traditional forms that differ, then punctuation.
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方"
    "多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情"
    "明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给"
    "世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太"
    "量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象"
    "完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运笔级百六八九七米办查章节款项例"
    "责府县省检请按根护服服务单责户存布施检测标准本页码器系列接程序配置参数版说明用户文件数据库"
    "這個們來為國說時會對學後過發經麼動還進樣開從實軍無與長機關業將兩間問應戰頭體見產號話給門員兒東聲論處義條係氣題爾別變總電"
    "數報結務場計資統區隊決馬書則聽卻達強難權設記類據張該規萬術領觀讓識帶導爭運於裡麽當點現種沒嗎級辦節項責縣檢請護單戶標準頁"
    "碼參檔案內黨團聯連車錢買賣讀寫語調選議認證準質財費鐵銀錄際陽陰難離電響順須預頭風飛飯館"
    "，。、；：？！“”‘’（）《》「」『』【】—…·　０１２３４５６７８９"
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ALIASES = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb_2312-80": "gb18030",
    "x-gbk": "gb18030",
    "cp936": "gb18030",
    "big5": "cp950",
    "big5-hkscs": "big5hkscs",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "utf-16": "utf-16-le",
    "unicode": "utf-16-le",
}
_SEVEN_BIT = ("iso2022", "iso-2022", "hz")
_LETTERS = re.compile("[^\x00-\x7f\\s]")
_BAD = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffe\uffff\U000f0000-\U0010ffff]")
_SAMPLE = 60_000
_LEAST_SHARE = 0.1


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """Return the text and the name of the charset it was in. `declared` is a label from a header or `<meta>`.

    A declared label is believed where the bytes agree with it. Raises ValueError saying what to do when nothing fits.
    """
    for bom, name in _BOMS:
        if data.startswith(bom):
            text = _strict(data[len(bom) :], name)
            if text is None:
                raise ValueError(f"the byte-order mark says {name} but the bytes are not: save the file again as UTF-8")
            return text, name
    label = _python_name(declared)
    if b"\x00" not in data:
        if data.isascii() and not (label or "").startswith(_SEVEN_BIT):
            return data.decode("ascii"), "ascii"
        utf8 = _strict(data, "utf-8")
        if utf8 is not None and not utf8.isascii():
            told = _strict(data, label) if label and label != "utf-8" else None
            if told is not None and label is not None and _share(told) > _share(utf8):
                return told, label
            return utf8, "utf-8"
    if label is not None and label != "utf-8":
        told = _strict(data, label)
        if told is not None and _BAD.search(told) is None:
            return told, label
    wide = _wide_by_nuls(data)
    if wide is not None:
        text = _strict(data, wide)
        if text is not None and not text.count("\x00"):
            return text, wide
    best_share, best_text, best_name = 0.0, "", ""
    for name in ("gb18030", "cp950", "utf-16-le"):
        text = _strict(data, name)
        if text is not None and (share := _share(text)) > best_share:
            best_share, best_text, best_name = share, text, name
    if best_share < _LEAST_SHARE:
        raise ValueError("no charset fits the bytes: declare it (media type parameter charset=…) or save the file as UTF-8")
    return best_text, best_name


def _python_name(label: str | None) -> str | None:
    """Return the codec to use for a declared label; None where there is none or it is no text encoding."""
    if not label:
        return None
    label = label.strip().strip("\"'").lower()
    label = _ALIASES.get(label, label)
    try:
        codec = codecs.lookup(label)
        "".encode(codec.name)
    except (LookupError, ValueError):
        return None
    return _ALIASES.get(codec.name, codec.name)


def _strict(data: bytes, name: str) -> str | None:
    """Return the text, without a character cut off at the end; None where the bytes are not in that charset."""
    try:
        return codecs.getincrementaldecoder(name)("strict").decode(data, False)
    except (UnicodeError, LookupError):
        return None


def _wide_by_nuls(data: bytes) -> str | None:
    """Return UTF-16 LE or BE where NULs stand on one side of the byte pairs only, as Latin letters and blanks make them."""
    low = data[: 2 * _SAMPLE : 2].count(0)
    high = data[1 : 2 * _SAMPLE : 2].count(0)
    if high > 8 * low:
        return "utf-16-le"
    if low > 8 * high:
        return "utf-16-be"
    return None


def _share(text: str) -> float:
    """Return the share of common Chinese characters among what is not ASCII or blank, minus three times that of impossible ones."""
    sample = text[:_SAMPLE]
    letters = _LETTERS.findall(sample)
    bad = len(_BAD.findall(sample))
    if not letters:
        return -3.0 * bad
    return (sum(letter in _COMMON for letter in letters) - 3 * bad) / len(letters)
