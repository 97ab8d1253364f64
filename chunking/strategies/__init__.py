"""The table of strategies: (Document, options, Budget) to passages. A file per strategy, a row per file."""

from __future__ import annotations

from chunking.strategies.base import Strategy
from chunking.strategies.recursive import RECURSIVE
from chunking.strategies.structure import STRUCTURE

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (STRUCTURE, RECURSIVE)}
