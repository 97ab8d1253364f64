"""The table of strategies: (Document, options, Budget) to passages. A file per strategy, a row per file."""

from __future__ import annotations

from chunking.strategies.base import Strategy
from chunking.strategies.fixed import FIXED
from chunking.strategies.recursive import RECURSIVE
from chunking.strategies.sentences import SENTENCES
from chunking.strategies.structure import STRUCTURE
from chunking.strategies.tokens import TOKENS

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (STRUCTURE, RECURSIVE, SENTENCES, FIXED, TOKENS)}
