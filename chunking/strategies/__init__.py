"""The table of strategies: (Document, options, Budget) to passages. A file per strategy, a row per file."""

from __future__ import annotations

from chunking.strategies.base import Strategy
from chunking.strategies.chapters import CHAPTERS
from chunking.strategies.fixed import FIXED
from chunking.strategies.parent_child import PARENT_CHILD
from chunking.strategies.recursive import RECURSIVE
from chunking.strategies.semantic import SEMANTIC
from chunking.strategies.sentences import SENTENCES
from chunking.strategies.structure import STRUCTURE
from chunking.strategies.tokens import TOKENS

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (STRUCTURE, CHAPTERS, RECURSIVE, TOKENS, PARENT_CHILD, SENTENCES, SEMANTIC, FIXED)
}
