"""The table of clause rules: which line begins a chapter, a clause or a numbered item, and which only speaks of one.

A rule sees one line. "第十条　值班员…" begins an article; "第十条规定的…", "7.2.2的要求…", "第三回合" are running text.
Every decision is local to the line, so that an edit elsewhere changes nothing here; what needs the neighbours (contents pages)
is in `outline`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from chunking.quick import quick

NUMERAL = "〇零一二两兩三四五六七八九十百千万萬０-９0-9"
_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2, "○": 0}
_UNITS = {"十": 10, "百": 100, "千": 1_000}
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1_000}
LONGEST_LINE = 400
"""Characters of a line that rules look at."""


class Marks(StrEnum):
    """What a matching line is.

    HEADING: a title, or nothing. CLAUSE: the first line of a clause; alone and short it is the clause's title.
    TITLE: a heading when short and without a sentence's end, else a clause. ITEM: an item of an enumeration.
    """

    HEADING = "heading"
    CLAUSE = "clause"
    TITLE = "title"
    ITEM = "item"


@dataclass(frozen=True, slots=True)
class ClauseRule:
    """One way to number the parts of a text.

    pattern: matched at the line's first visible character; group 0 is the mark, without what follows. starts: the characters
    that a mark can begin with, as inside a regex class. rank: smaller stands higher; `deepens` adds one per dot.
    needs_blank: only a blank, a colon or the line's end may follow the mark. longest: most characters of a title behind it.
    """

    name: str
    pattern: str
    starts: str
    rank: int
    marks: Marks
    needs_blank: bool = False
    deepens: bool = False
    longest: int = 60


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that begins something: by which rule, the mark as written (blanks taken out), what follows it, its rank."""

    rule: ClauseRule
    text: str
    rest: str
    rank: int

    @property
    def clause(self) -> str:
        """The number that the clause is cited by; empty for chapters and for small items."""
        rule = self.rule
        if rule.name in ("counted", "paren", "circled", "head", "roman") or (
            rule.marks is Marks.HEADING and rule.name != "integer"
        ):
            return ""
        return self.text

    @property
    def label(self) -> str:
        """The whole line as a title, with single blanks."""
        between = "" if not self.rest or self.text[-1] in "、.．）)" else " "
        return self.text + between + " ".join(self.rest.split())

    @property
    def is_title(self) -> bool:
        """Whether the line can stand as a heading."""
        if self.rule.marks is Marks.HEADING:
            return True
        return self.rule.marks is not Marks.ITEM and bool(self.rest) and _is_title(self.rest, self.rule.longest)


_mark = quick(Mark)
_N = f"[{NUMERAL}]{{1,9}}"
_GAP = r"[ \t\u3000]{0,2}"
RULES: tuple[ClauseRule, ...] = (
    ClauseRule("division", rf"第{_GAP}{_N}{_GAP}部分", "第", 11, Marks.HEADING, needs_blank=True),
    ClauseRule("volume", rf"(?:第{_GAP}{_N}{_GAP}[卷部集]|卷{_GAP}{_N})", "第卷", 10, Marks.HEADING, needs_blank=True),
    ClauseRule("part", rf"第{_GAP}{_N}{_GAP}[编編篇]", "第", 14, Marks.HEADING),
    ClauseRule("chapter", rf"第{_GAP}{_N}{_GAP}章", "第", 20, Marks.HEADING),
    ClauseRule("episode", rf"第{_GAP}{_N}{_GAP}[回折幕话話]", "第", 20, Marks.HEADING, needs_blank=True),
    ClauseRule(
        "frame",
        r"(?:楔子|序(?:言|章|幕|曲)?|自序|前言|引[子言]|尾[声聲]|番外(?:篇|[〇零一二三四五六七八九十\d]{1,3})?|后记|後記|跋|[结結][语語]|[终終]章|"
        r"附[录錄则則](?:[ \t]?[A-Z一二三四五六七八九十\d])?)",
        "楔序自前引尾番后後跋结結终終附",
        20,
        Marks.HEADING,
        needs_blank=True,
        longest=30,
    ),
    ClauseRule("section", rf"第{_GAP}{_N}{_GAP}[节節]", "第", 30, Marks.HEADING),
    ClauseRule("subsection", rf"第{_GAP}{_N}{_GAP}目", "第", 35, Marks.HEADING, needs_blank=True),
    ClauseRule("head", r"[一二三四五六七八九十]{1,3}、", "一二三四五六七八九十", 40, Marks.TITLE, longest=30),
    ClauseRule(
        "article", rf"第{_GAP}{_N}{_GAP}[条條](?:{_GAP}之{_GAP}[一二三四五六七八九十]{{1,3}})?", "第", 50, Marks.CLAUSE, longest=20
    ),
    ClauseRule(
        "decimal", r"\d{1,3}(?:\.\d{1,3}){1,5}(?![\d.．:])", "0-9", 60, Marks.TITLE, needs_blank=True, deepens=True, longest=40
    ),
    ClauseRule("integer", r"\d{1,2}(?![\d.．,:：/%-])", "0-9", 60, Marks.HEADING, needs_blank=True, longest=20),
    ClauseRule("paren_zh", rf"[（(]{_GAP}[一二三四五六七八九十百]{{1,4}}{_GAP}[）)]", "（(", 70, Marks.ITEM),
    ClauseRule("counted", r"\d{1,3}[.、．](?![\d.])", "0-9", 75, Marks.ITEM),
    ClauseRule("paren", r"(?:[（(]\s?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,6})\s?[）)]|\d{1,3}[）)])", "（(0-9", 80, Marks.ITEM),
    ClauseRule("circled", "[①-⑳⑴-⒇㈠-㈩]", "①-⑳⑴-⒇㈠-㈩", 85, Marks.ITEM),
    ClauseRule(
        "chapter_en",
        r"(?:Chapter|CHAPTER)[ \t]{1,3}(?:\d{1,4}|[IVXLC]{1,8}|[A-Z][A-Za-z]{2,9}(?:-[A-Za-z]{3,5})?)(?![\w.]\w)",
        "C",
        20,
        Marks.HEADING,
        needs_blank=True,
    ),
    ClauseRule(
        "part_en",
        r"(?:Part|PART|Book|BOOK|Volume|VOLUME)[ \t]{1,3}(?:\d{1,3}|[IVXLC]{1,8}|(?i:One|Two|Three|Four|Five|Six))\b",
        "PBV",
        12,
        Marks.HEADING,
        needs_blank=True,
    ),
    ClauseRule(
        "frame_en",
        "(?:Prologue|Epilogue|Preface|Foreword|Afterword|Interlude|PROLOGUE|EPILOGUE|PREFACE|FOREWORD|AFTERWORD)(?!\\w)",
        "PEFAI",
        20,
        Marks.HEADING,
        needs_blank=True,
        longest=40,
    ),
    ClauseRule(
        "article_en",
        r"(?:Article|ARTICLE|Section|SECTION|Clause|CLAUSE)[ \t]{1,3}(?:\d{1,4}(?:\.\d{1,3}){0,4}[A-Z]?|[IVXLC]{1,8})(?!\w)",
        "ASC",
        50,
        Marks.CLAUSE,
        needs_blank=True,
        longest=60,
    ),
    ClauseRule("sign", r"§{1,2}[ \t]?\d{1,4}(?:\.\d{1,3}){0,4}[a-z]?(?!\w)", "§", 50, Marks.CLAUSE, needs_blank=True),
    ClauseRule(
        "roman", r"(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})[.．、](?!\S[.．])", "IVX", 40, Marks.TITLE, needs_blank=True, longest=60
    ),
)

_BLANK = " \t\u3000\xa0"
_COLONS = ":：.．、-—–|"
_SENTENCE_END = "。；;，,！？!?…、"
_TITLE_END = "。；;，,：:、."
_INNER_END = re.compile(r"[。；;]|[.!?] [A-Z]")
_PAGE_NUMBER = re.compile(r"(?:[.．…·_]{3,}|[ \t\u3000.]{3,}|\t)[ \t\u3000]{0,9}[（(]?\d{1,4}[)）]?$")
_REFERENCE = re.compile(
    "(?:[之]?(?:规定|規定)|的|所|中|里|裡|内|內|时|時|以[上下内外前后]|是|在|已|也|都|就|曾|把|被|让|则|則|及|和|与|與|或|至|到|、|，|,|。|；|;|）|\\)|"
    "之[前后後上下间間]|前的|[后後]的|版|等|第|款|项|項|目(?!录)|列|条|條|相|有关|有關|关于|适用|適用|要求|明确|指出|应|應|可|不|未|为准|為準|为由|为依据)"
)
_MEASURE = re.compile(
    "(?:mm|cm|dm|km|m|kg|g|mg|t|ml|L|ms|s|min|h|Hz|[kMG]Hz|[kKMGT]i?B|bit|[kM]?W|[kM]?V|m?A|[kM]?Pa|℃|°|%|‰|x|×|\\+|=|<|>|/|~|～)(?![A-Za-z])|"
    "[倍万萬亿億元米克吨噸升秒分时時天日月年岁歲人个個名位次条條件项項种種章节節页頁级級度台套只隻张張本部家回楼樓号號点點座辆輛把块塊支批份组組周週届屆]"
)
_UPPER = re.compile(r"[A-Z0-9\"“‘'(（《〈「『【\[`*]")


class Rules:
    """Rules ready for use: `lines` finds the lines of a text that may begin something, `match` decides about one of them."""

    def __init__(self, rules: Iterable[ClauseRule]) -> None:
        self.rules = tuple(rules)
        self._compiled = [(rule, re.compile(rule.pattern)) for rule in self.rules]
        self._by_start: dict[str, list[tuple[ClauseRule, re.Pattern[str]]]] = {}
        self._classes = [re.compile(f"[{rule.starts}]") for rule in self.rules]
        marks = "|".join(f"(?:{rule.pattern})" for rule in self.rules)
        starts = "".join(rule.starts for rule in self.rules)
        # A search for a line feed is many times as fast as one for ^; the first line has none and is matched by itself.
        visible = rf"[ \t\u3000\xa0]{{0,80}}+(?:\*\*|__)?+(?=[{starts}])(?={marks})"
        self._first_line, self._next_line = re.compile(visible), re.compile("\n" + visible)

    def lines(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and first visible position of each line that may begin something, in order."""
        first = self._first_line.match(text)
        if first is not None:
            yield 0, first.end()
        for found in self._next_line.finditer(text):
            yield found.start() + 1, found.end()

    def match(self, line: str) -> Mark | None:
        """Return what a line begins, or None where it begins nothing. Blanks and emphasis before the mark are looked through."""
        line = line[:LONGEST_LINE].strip()
        if line.startswith(("**", "__")):
            line = line.replace(line[:2], "").strip()
        if not line:
            return None
        for rule, pattern in self._candidates(line[0]):
            found = pattern.match(line)
            if found is not None:
                mark = _checked(rule, found.group(), line[found.end() :])
                if mark is not None:
                    return mark
        return None

    def _candidates(self, first: str) -> list[tuple[ClauseRule, re.Pattern[str]]]:
        candidates = self._by_start.get(first)
        if candidates is None:
            candidates = [
                pair for pair, starts in zip(self._compiled, self._classes, strict=True) if starts.match(first) is not None
            ]
            if len(self._by_start) < 4_096:
                self._by_start[first] = candidates
        return candidates


@lru_cache(maxsize=64)
def rule_set(extra: tuple[ClauseRule, ...] = ()) -> Rules:
    """Return the built-in rules with others tried before them."""
    return Rules(extra + RULES)


def is_contents_line(rest: str) -> bool:
    """Return whether what follows a mark ends in leaders and a page number, as on a contents page."""
    return bool(_PAGE_NUMBER.search(rest))


def _checked(rule: ClauseRule, mark: str, after: str) -> Mark | None:
    """Return the mark unless what follows shows that the line only speaks of it."""
    rest = after.strip()
    is_apart = not after or after[0] in _BLANK
    if (rest and rest[0] in "：:" and not is_apart) or (rest and not is_apart and rest[0] in ".—–-" and rule.name.endswith("_en")):
        is_apart, rest = True, rest[1:].strip()
    if rule.needs_blank and not is_apart:
        return None
    text = (" " if rule.name.endswith("_en") else "").join(mark.split())
    rank = rule.rank + (mark.count(".") if rule.deepens else 0)
    if _refers(rule, mark, rest, is_apart):
        return None
    if rule.marks is Marks.HEADING and not _is_title(rest, rule.longest):
        return None
    return _mark(rule, text, rest, rank)


def _refers(rule: ClauseRule, mark: str, rest: str, is_apart: bool) -> bool:
    """Return whether a line that begins with a mark is running text about the part of that number."""
    if not rest:
        return rule.name in ("integer", "circled")
    if rule.name in ("integer", "decimal"):
        if _MEASURE.match(rest) or _REFERENCE.match(rest):
            return True
        if rest[0].isascii() and not _UPPER.match(rest):
            return True
        return rule.name == "integer" and not rest[0].isalpha()
    if rule.name.endswith("_en"):
        return rest[0].isascii() and not _UPPER.match(rest) and not (rule.marks is Marks.CLAUSE and rest[0] in "—–-.:")
    if rule.marks is Marks.ITEM:
        if rule.name == "counted" and mark[-1] == "、" and rest[0].isdigit():
            return True
        return rest[0] in "、，,；;" or (rule.name in ("paren_zh", "paren") and bool(re.match("[项項款目至]|所|规定", rest)))
    if rule.name == "head":
        return rest[0] in "一二三四五六七八九十"
    if rule.name == "roman":
        return False
    if mark[0] not in "第卷":
        return False
    if is_apart:
        return bool(re.match("(?:[的、，,。；;）)]|规定的|規定的|所[称稱指述]|第[^章节節条條回编編]{1,6}[款项項])", rest))
    if rule.marks is Marks.HEADING and (len(rest) > 20 or re.search("[，,！？!?]", rest) or rest[0] in "课課车車目"):
        return True
    return bool(_REFERENCE.match(rest)) or (rest[0].isascii() and rest[0].isalnum()) or rest[0] in "〉》」』”’\"'"


def _is_title(rest: str, longest: int) -> bool:
    """Return whether the words behind a mark read as a title: short, and no sentence."""
    if len(rest) > longest:
        return False
    if not rest:
        return True
    if rest[-1] in _TITLE_END and not rest.endswith("etc."):
        return False
    return not _INNER_END.search(rest)


def number_of(mark: str) -> int | None:
    """Return the number in a mark: 第一千二百六十条 is 1260, 第〇八回 is 8, Chapter XII is 12; None where there is none.

    Of 第十条之一 it is the number of the article, 10.
    """
    digits = re.search(r"[0-9０-９]{1,9}", mark)
    if digits:
        return int(digits.group())
    numeral = re.search("[〇○零一二两兩三四五六七八九十百千万萬]{1,16}", mark)
    if numeral:
        return _chinese(numeral.group())
    roman = re.search(r"(?<![A-Za-z])[IVXLCDM]{1,15}(?![A-Za-z])", mark.upper())
    return _roman(roman.group()) if roman else None


def _chinese(numeral: str) -> int:
    """Return the value of a Chinese numeral, in words (一千二百) or digit by digit (一二〇)."""
    if not any(character in "十百千万萬" for character in numeral):
        return int("".join(str(_DIGITS[character]) for character in numeral))
    total = section = digit = 0
    for character in numeral:
        if character in "万萬":
            total, section, digit = total + (section + digit or 1) * 10_000, 0, 0
        elif character in _UNITS:
            section, digit = section + (digit or 1) * _UNITS[character], 0
        else:
            digit = _DIGITS[character]
    return total + section + digit


def _roman(numeral: str) -> int:
    values = [_ROMAN[character] for character in numeral]
    return sum(-value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True))
