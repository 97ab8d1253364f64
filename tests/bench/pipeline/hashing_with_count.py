"""The hashing embedder of docdelta, counted. Peers load it from its file, since their environment has no docdelta."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DIMENSIONS = 64
_FILE = Path(__file__).resolve().parents[3] / "streams" / "embedders" / "hashing.py"


def _hashed() -> Any:
    """Return `hashed` of the file. Its one import from docdelta is a type."""
    if "streams.ports" not in sys.modules:
        import numpy as np

        stand_in = types.ModuleType("streams.ports")
        stand_in.Vector = np.ndarray  # type: ignore[attr-defined]
        sys.modules.setdefault("streams", types.ModuleType("streams"))
        sys.modules["streams.ports"] = stand_in
    spec = importlib.util.spec_from_file_location("hashing_of_docdelta", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.hashed


class Counted:
    """Embeds and counts. `texts`: how many so far."""

    def __init__(self) -> None:
        self._hashed = _hashed()
        self.texts = 0

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a unit vector a text."""
        self.texts += len(texts)
        return [self._hashed(text, DIMENSIONS).tolist() for text in texts]
