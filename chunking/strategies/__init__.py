"""The table of strategies: (Document, options, TokenCounter, Limits) to passages. A file per strategy, a row per file."""

from __future__ import annotations

from chunking.strategies.base import Strategy

STRATEGIES: dict[str, Strategy] = {}
