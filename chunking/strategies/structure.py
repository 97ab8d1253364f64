"""structure: follows headings, clauses, lists and tables; packs by boundary strength inside walled sections. The default.

Blocks become atoms (`atoms`), `packing` merges them over the weakest boundaries first, `assemble` makes passages. No step looks
further than a block's neighbours, so an edit in one walled section changes no chunk of another.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from pydantic import Field, model_validator

from chunking.clauses import ClauseRule, Marks, Rules, rule_set
from chunking.document import Document
from chunking.outline import DEFAULT
from chunking.outline import outline as find_outline
from chunking.packing import NO_WALL, in_doubt, merge_order, pack_by_strength, pack_greedily
from chunking.passage import Passage
from chunking.strategies.assemble import Assembler
from chunking.strategies.atoms import Atom, build_atoms, heading_rank
from chunking.strategies.base import Budget, Options, Strategy


class ClauseOption(Options):
    """A clause rule of a policy's own, tried before the built-in ones; fields as in `chunking.clauses.ClauseRule`."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    pattern: str = Field(min_length=1, max_length=200)
    starts: str = Field(min_length=1, max_length=100)
    rank: int = Field(ge=0, le=100)
    marks: Marks = Marks.CLAUSE
    needs_blank: bool = False
    deepens: bool = False
    longest: int = Field(default=60, ge=1, le=500)

    @model_validator(mode="after")
    def _compiles(self) -> ClauseOption:
        try:
            re.compile(self.pattern)
            re.compile(f"[{self.starts}]")
        except re.error as error:
            raise ValueError(f"pattern or starts is no regular expression: {error}") from error
        return self


class StructureOptions(Options):
    """Options of `structure`.

    size: tokens a chunk may hold, the policy's limit where not given. walls: headings of this level and above (1 = highest)
    always begin a chunk; 0 for none, 6 for all. tables: repeat the header rows before each part of a long table (``rows``), or
    read rows out as sentences, 区域：华东；预计时效：两天。 (``sentences``). outline: find clauses and chapters in plain lines.
    clauses: further ways to number clauses, tried before those of `chunking.clauses`.
    """

    size: int | None = Field(default=None, ge=16)
    walls: int = Field(default=2, ge=0, le=6)
    packing: Literal["strength", "greedy"] = "strength"
    tables: Literal["rows", "sentences"] = "rows"
    outline: bool = True
    clauses: tuple[ClauseOption, ...] = ()


def cut(document: Document, options: StructureOptions, budget: Budget) -> list[Passage]:
    """Return the passages of a document; parts of long lists and tables repeat their lead-in or header."""
    if not document.blocks:
        return []
    if options.outline:
        document = find_outline(document, _rules(options.clauses))
    limit = min(options.size or budget.limit, budget.limit)
    weigh, tally = budget.counter.count, budget.counter.tally(document.text)
    atoms = build_atoms(document, limit, weigh, tally, rows_as_sentences=options.tables == "sentences")
    cuts = pack(document.text, atoms, limit, options.walls, greedy=options.packing == "greedy")
    return Assembler(document, STRUCTURE.versioned_name, limit, weigh, tally).passages(atoms, cuts)


@cache
def _rules(clauses: tuple[ClauseOption, ...]) -> Rules:
    return rule_set(tuple(ClauseRule(**clause.model_dump()) for clause in clauses)) if clauses else DEFAULT


def pack(text: str, atoms: list[Atom], limit: int, walls: int, *, greedy: bool = False) -> list[int]:
    """Return the indices of the atoms that begin a chunk. walls: heading levels that never merge, 0 for none."""
    weights = [atom.weight for atom in atoms]
    extras = [atom.repeat.weight if atom.repeat else 0 for atom in atoms]
    ranks = [atom.rank for atom in atoms]
    wall = heading_rank(walls) if walls else NO_WALL
    if greedy:
        return pack_greedily(weights, extras, ranks, limit, wall)
    whole = heading_rank(6)
    never, doubtful = in_doubt(weights, extras, ranks, limit, wall, whole)
    order = merge_order(text, [atom.start for atom in atoms], atoms[-1].end, ranks, doubtful)
    return sorted(never + pack_by_strength(weights, extras, ranks, order, limit, wall, whole=whole))


STRUCTURE = Strategy("structure", 2, StructureOptions, cut)
