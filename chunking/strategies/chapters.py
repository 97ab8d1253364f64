"""chapters: narrative text by chapters, with the tail of one chapter and the head of the next as a chunk of its own.

Chapters come from headings or from lines such as 第十二回, 楔子, Chapter 3 (the outline pass). Inside a chapter paragraphs are
packed by strength; a paragraph that opens a new scene (次日, 却说, "The next morning") is a stronger boundary; verse stays whole.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pydantic import Field, model_validator

from chunking.document import Block, BlockKind, Document, Span
from chunking.outline import outline
from chunking.packing import NO_WALL, merge_order, pack_by_strength
from chunking.passage import Overlap, Passage, Role
from chunking.pieces import Weigh, head_within, tail_within
from chunking.strategies.assemble import Assembler
from chunking.strategies.atoms import CLAUSE, SEMICOLON, Atom, build_atoms, heading_rank
from chunking.strategies.base import Budget, Options, Strategy
from chunking.strategies.visible import is_blank, trimmed

_CHAPTER_RULES = frozenset(
    ["division", "volume", "part", "chapter", "episode", "frame", "section", "chapter_en", "part_en", "frame_en"]
)
_TURN = re.compile(
    r"[“‘「『\"]?(?:[忽这那有]?一[日夜晚天]|[次翌]日|[次翌]晨|第二[天日]|[当是]夜|[当那]晚|过了?[几数两三一]|不觉|光阴|"
    r"却说|且说|话说|再说|只说|单说|单表|话分两头|"
    r"The next (?:day|morning|evening|night)|(?:One|That) (?:day|morning|evening|night)|"
    r"(?:Some|Many|A few|Several) (?:days|weeks|months|years) )"
)
_VERSE_LINE = 40
_VERSE_LEAD = re.compile(r"[曰云道诗词歌赋偈][^。！？\n]{0,6}[：:][”’」』\"\s]*$")
_WALL = 50
_MOST_HEADINGS = 16
"""Headings in a row that may open a chapter; more are no text to bridge to."""


class ChaptersOptions(Options):
    """Options of `chapters`.

    size: tokens a chunk may hold, the policy's limit where not given. overlap: make the chunks that span two chapters, of
    `tail_paragraphs` and `head_paragraphs`, with `weight` on their score. min_chapter: a chapter of fewer tokens may share chunks
    with the next one. level: headings of this level and above begin a chapter.
    """

    size: int | None = Field(default=None, ge=16)
    overlap: bool = True
    weight: float = Field(default=0.6, gt=0, le=1)
    tail_paragraphs: int = Field(default=1, ge=0)
    head_paragraphs: int = Field(default=1, ge=0)
    min_chapter: int = Field(default=100, ge=0)
    level: int = Field(default=2, ge=0, le=6)

    @model_validator(mode="after")
    def _both_sides(self) -> ChaptersOptions:
        if self.overlap and not (self.tail_paragraphs and self.head_paragraphs):
            raise ValueError("overlap needs tail_paragraphs and head_paragraphs of 1 or more; set overlap: false for none")
        return self


def cut(document: Document, options: ChaptersOptions, budget: Budget) -> list[Passage]:
    """Return the passages of each chapter, and before those of a next one the CONTEXT passage that spans the two."""
    if not document.blocks:
        return []
    document = outline(document)
    weigh, tally = budget.counter.count, budget.counter.tally(document.text)
    limit = min(options.size or budget.limit, budget.limit)
    atoms = build_atoms(document, limit, weigh, tally)
    _rank_verse_and_turns(document, atoms)
    chapters = _wall_chapters(document, atoms, options)
    ranks = [atom.rank for atom in atoms]
    order = merge_order(document.text, [atom.start for atom in atoms], atoms[-1].end, ranks)
    extras = [atom.repeat.weight if atom.repeat else 0 for atom in atoms]
    cuts = pack_by_strength([atom.weight for atom in atoms], extras, ranks, order, limit, _WALL, whole=heading_rank(6))
    assembler = Assembler(document, CHAPTERS.versioned_name, limit, weigh, tally)
    found = assembler.passages(atoms, cuts)
    if not options.overlap:
        return found
    bridges = [_bridge(document, assembler, at, options, limit, weigh) for at in chapters]
    return _merged(found, [bridge for bridge in bridges if bridge is not None])


def _is_chapter(block: Block, level: int) -> bool:
    return block.kind is BlockKind.HEADING and (block.level <= level or block.attributes.get("rule") in _CHAPTER_RULES)


def _wall_chapters(document: Document, atoms: Sequence[Atom], options: ChaptersOptions) -> list[int]:
    """Make the boundaries of chapters walls. Returns the first block of each chapter but the first that text comes before."""
    opening = [
        place
        for place, atom in enumerate(atoms)
        if any(_is_chapter(block, options.level) for block in document.blocks[atom.block : atom.last + 1])
        and document.blocks[atom.block].kind is BlockKind.HEADING
    ]
    starts: list[int] = []
    pending = 0  # tokens of the chapters that are too small to stand alone, up to here
    for turn, place in enumerate(opening):
        after = opening[turn + 1] if turn + 1 < len(opening) else len(atoms)
        size = sum(atom.weight for atom in atoms[place:after])
        if place and not pending:
            atoms[place].rank, atoms[place].rule = _WALL, "chapter"
            starts.append(atoms[place].block)
        pending = pending + size if pending + size < options.min_chapter else 0
    return starts


def _rank_verse_and_turns(document: Document, atoms: Sequence[Atom]) -> None:
    """Strengthen boundaries before new scenes, weaken those between the lines of a poem."""
    in_verse = False
    for before, atom in itertools.pairwise(atoms):
        block = document.blocks[atom.block]
        if block.kind is not BlockKind.PARAGRAPH or atom.start > block.span.start:
            in_verse = False
            continue
        text = document.text
        previous = document.blocks[before.last]
        lead = text[max(previous.span.start, previous.span.end - 20) : previous.span.end]
        short = len(block.span) <= _VERSE_LINE
        in_verse = short and (in_verse or _VERSE_LEAD.search(lead) is not None)
        if in_verse:
            atom.rank, atom.rule = SEMICOLON, "verse"
        elif _TURN.match(text, block.span.start):
            atom.rank, atom.rule = CLAUSE, "turn"


def _bridge(
    document: Document, assembler: Assembler, at: int, options: ChaptersOptions, limit: int, weigh: Weigh
) -> tuple[int, Passage] | None:
    """Return the position and the CONTEXT passage around the chapter that begins at blocks[at]; each side gets half the limit."""
    text, blocks = document.text, document.blocks
    tail = [i for i in range(max(0, at - 4 * options.tail_paragraphs), at) if blocks[i].kind is not BlockKind.HEADING]
    tail = tail[-options.tail_paragraphs :]
    first = at
    while first < min(len(blocks), at + _MOST_HEADINGS) and blocks[first].kind is BlockKind.HEADING:
        first += 1
    last = min(first + options.head_paragraphs, len(blocks)) - 1
    if not tail or last < first or blocks[first].kind is BlockKind.HEADING:
        return None
    border = blocks[at].span.start
    before = tail_within(text[blocks[tail[0]].span.start : border], limit // 2, weigh)
    after = head_within(text[border : blocks[last].span.end], limit - weigh(before) - 1, weigh)
    span = trimmed(text, border - len(before), border + len(after))
    if is_blank(before) or span.end <= blocks[first].span.start or weigh(span.of(text)) > limit:
        return None
    places = assembler.places
    details = {"from": " > ".join(places.paths[at - 1]), "to": " > ".join(places.paths[first])}
    passage = Passage(
        span=span,
        kind=str(blocks[tail[0]].kind),
        strategy=CHAPTERS.versioned_name,
        heading_path=places.paths[first],
        parts=places.parts_of(span),
        role=Role.CONTEXT,
        overlap=Overlap("CHAPTER_TAIL", options.weight, details),
        page=blocks[tail[0]].page,
        boundary=f"{NO_WALL}:chapter tail",
    )
    return border, passage


def _merged(found: Sequence[Passage], bridges: Sequence[tuple[int, Passage]]) -> list[Passage]:
    """Return the passages in document order, each bridge before the first body passage of its second chapter."""
    merged: list[Passage] = []
    waiting = list(bridges)[::-1]
    for passage in found:
        while waiting and passage.span.start >= waiting[-1][0]:
            merged.append(waiting.pop()[1])
        merged.append(passage)
    return merged


def chapter_spans(document: Document, level: int = 2) -> list[tuple[str, Span]]:
    """Return title and span of each chapter heading, for previews and tests."""
    return [(block.label, block.span) for block in outline(document).blocks if _is_chapter(block, level)]


CHAPTERS = Strategy("chapters", 2, ChaptersOptions, cut)
