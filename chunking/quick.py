"""quick(): frozen values made as cheaply as open ones, for loops that make thousands a document.

The constructor of a frozen dataclass sets each field through `object.__setattr__`: a block of nine fields takes five times as long
as one that is open. So a twin of the class that is open is filled, and then becomes the class itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

Fields = ParamSpec("Fields")
Value = TypeVar("Value")


def quick(cls: Callable[Fields, Value]) -> Callable[Fields, Value]:
    """Return a constructor of a frozen dataclass with slots: the same arguments, the same value, but no `__post_init__`."""

    def freeze(made: Any) -> None:
        made.__class__ = cls

    known = dataclasses.fields(cast(Any, cls))
    fields = [(each.name, Any, dataclasses.field(default=each.default, default_factory=each.default_factory)) for each in known]
    twin = dataclasses.make_dataclass("Open", fields, slots=True, eq=False, repr=False, namespace={"__post_init__": freeze})
    return cast(Callable[Fields, Value], twin)
