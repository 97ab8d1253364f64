"""Figures of a bench: printed as they come and written as JSON, with the machine and how busy it was."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "docdelta": version("docdelta"),
    }


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes: above the number of cores, seconds are not worth much."""
    return [round(value, 2) for value in os.getloadavg()]


def save(folder: Path, name: str, figures: Mapping[str, Any], load_before: list[float]) -> None:
    """Print figures and write ``<folder>/<name>.json``."""
    whole = {
        "bench": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": load_before,
        "load_after": load(),
        **figures,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    json.dump({"bench": name, **figures, "load": [load_before[0], whole["load_after"][0]]}, sys.stdout, indent=1)
    print(flush=True)


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 1).__int__() - 1))]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
