"""Plugin for the chunking bench: docdelta's own strategies, as adapters of ``chunking_peers.py --plugin``.

Each adapter parses the text and cuts it, so its speed includes the parser and the outline pass. The bench hands over text without
a media type: what has a Markdown heading or fence is parsed as Markdown, the rest as plain text. The bench looks for the units of
its *source*: what the parser takes out (comments, front matter, images in base64) counts as lost there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from chunking_peers import adapter

_MARKDOWN = re.compile(r"^(?:#{1,6} |```|~~~)", re.MULTILINE)
Split = Callable[[str], list[str]]


def _splitter(strategy_name: str, size: int, unit: str, options: dict[str, Any], parents: bool = False) -> Split:
    from chunking.parsers import parse_document
    from chunking.passage import Role
    from chunking.strategies import STRATEGIES
    from chunking.strategies.base import Budget
    from chunking.tokens import counter

    strategy = STRATEGIES[strategy_name]
    chosen = strategy.options(**options)
    budget = Budget(counter("cl100k_base" if unit == "tokens" else "characters"), size)

    def split(text: str) -> list[str]:
        document = parse_document(text, "text/markdown" if _MARKDOWN.search(text) else "text/plain")
        texts = []
        for passage in strategy.cut(document, chosen, budget):
            if passage.role is (Role.PARENT if parents else Role.BODY):
                body = passage.rendering if passage.rendering is not None else passage.span.of(document.text)
                texts.append(passage.repeat + body)
        return texts

    return split


def _register(name: str, strategy: str, options: Callable[[int, str], dict[str, Any]], units: tuple[str, ...]) -> None:
    adapter(name, units=units, note=f"docdelta {strategy}")(
        lambda size, unit, encoding: _splitter(strategy, size, unit, options(size, unit), name.endswith("-parents"))
    )


BOTH = ("tokens", "chars")
_register("docdelta-structure", "structure", lambda size, unit: {}, BOTH)
_register("docdelta-structure-w3", "structure", lambda size, unit: {"walls": 3}, BOTH)
_register("docdelta-structure-greedy", "structure", lambda size, unit: {"packing": "greedy"}, BOTH)
_register("docdelta-recursive", "recursive", lambda size, unit: _sized(size, unit, 0), BOTH)
_register("docdelta-recursive-strength", "recursive", lambda size, unit: {**_sized(size, unit, 0), "packing": "strength"}, BOTH)


_register("docdelta-children", "parent_child", lambda size, unit: _nested(size, 0), BOTH)
_register("docdelta-children-overlap", "parent_child", lambda size, unit: _nested(size, size * 3 // 20), BOTH)
_register("docdelta-parents", "parent_child", lambda size, unit: _nested(size, 0), BOTH)
_register("docdelta-chapters", "chapters", lambda size, unit: {"overlap": False}, BOTH)
_register("docdelta-sentences", "sentences", lambda size, unit: _units(size, unit), BOTH)
_register("docdelta-sentences-strength", "sentences", lambda size, unit: {**_units(size, unit), "packing": "strength"}, BOTH)
_register("docdelta-tokens", "tokens", lambda size, unit: {"size": size, "overlap": 0}, ("tokens",))
_register("docdelta-fixed", "fixed", lambda size, unit: _units(size, unit), BOTH)
_register("docdelta-semantic", "semantic", lambda size, unit: {}, ("tokens",))


def _nested(size: int, overlap: int) -> dict[str, Any]:
    return {"child_size": size, "parent_size": 4 * size, "overlap": overlap, "above": 0}


def _units(size: int, unit: str) -> dict[str, Any]:
    return {"size": size, "overlap": 0, "unit": "tokens" if unit == "tokens" else "characters"}


def _sized(size: int, unit: str, overlap: int) -> dict[str, Any]:
    return {"size": size, "overlap": overlap, "unit": "tokens" if unit == "tokens" else "characters", "max_tokens": 100_000}
