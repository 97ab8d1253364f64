"""plot(): the samples of a soak as one HTML page without anything from outside: a line chart a figure, a mark a fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 170, 64, 22
Sample = Mapping[str, float]
CHARTS = {
    "memory_mib": "Resident memory of the worker that lives throughout, MiB",
    "parser_memory_mib": "Resident memory of its parser process, MiB",
    "file_handles": "Open file handles of that worker",
    "threads": "Threads of that worker",
    "lag": "Commit lag of all groups, records",
    "freshness_p50_seconds": "Sent to settled, median of the interval, seconds",
    "freshness_max_seconds": "Sent to settled, slowest of the interval, seconds",
}


def plot(samples: Sequence[Sample], faults: Sequence[tuple[float, str]], verdict: str) -> str:
    """Return the page. samples: figures with `minute`; faults: (minute, what happened)."""
    charts = "\n".join(f"<h2>{escape(title)}</h2>\n{_chart(samples, name, faults)}" for name, title in CHARTS.items())
    rows = "".join(f"<tr><td>{minute:.1f}</td><td>{escape(what)}</td></tr>" for minute, what in faults)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>docdelta soak</title>'
        "<style>body{font:14px system-ui;max-width:900px;margin:2em auto}h2{font-size:14px;margin:1.2em 0 .2em}"
        "svg{background:#fafafa}td{padding:0 1em 0 0}pre{white-space:pre-wrap}</style>"
        f"<h1>Soak</h1><pre>{escape(verdict)}</pre>{charts}"
        f"<h2>Faults (grey lines)</h2><table><tr><th>minute</th><th>what</th></tr>{rows}</table></html>"
    )


def _chart(samples: Sequence[Sample], name: str, faults: Sequence[tuple[float, str]]) -> str:
    points = [(sample["minute"], sample[name]) for sample in samples if name in sample]
    if not points:
        return "<p>no figures</p>"
    last = max(points[-1][0], 1e-9)
    top = max(value for _, value in points) or 1.0

    def x(minute: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * minute / last

    def y(value: float) -> float:
        return 10 + (HEIGHT - BOTTOM - 10) * (1 - value / top)

    marks = "".join(
        f'<line x1="{x(m):.1f}" x2="{x(m):.1f}" y1="10" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>' for m, _ in faults if m <= last
    )
    line = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in points)
    labels = "".join(
        f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" font-size="11">{value:.4g}</text>'
        for value in (0.0, top / 2, top)
    ) + "".join(
        f'<text x="{x(minute):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}" font-size="11">{minute:.3g} min</text>'
        for minute, anchor in ((0.0, "middle"), (last / 2, "middle"), (last, "end"))
    )
    axis = f'<path d="M{LEFT} 10V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="#888"/>'
    curve = f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="1.5"/>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}">{marks}{axis}{curve}{labels}</svg>'
