"""Plots as SVG text: grouped bars and step histograms. Colours and fonts come from the page's style sheet, so dark pages work."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, log10

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 16, 36
SERIES = 8
"""Colours that the style sheet has: classes s0 to s7, then over again."""


def bars(title: str, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return grouped bars of shares (0 to 1): a group per name in `groups`, in it a bar per series."""
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    slot = plot_width / max(1, len(groups))
    width = min(36.0, slot * 0.8 / max(1, len(series)))
    parts = [_grid(share / 4, f"{share / 4:.2f}") for share in range(5)]
    for position, group in enumerate(groups):
        middle = _LEFT + slot * (position + 0.5)
        start = middle - width * len(series) / 2
        for number, (name, values) in enumerate(series):
            height = plot_height * min(1.0, max(0.0, values[position]))
            x, y = start + width * number, _TOP + plot_height - height
            parts.append(
                f'<rect class="s{number % SERIES}" x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height:.1f}">'
                f"<title>{escape(name)}, {escape(group)}: {values[position]:.3f}</title></rect>"
            )
            if len(series) <= 3:
                parts.append(f'<text class="value" x="{x + width / 2:.1f}" y="{y - 3:.1f}">{values[position]:.2f}</text>')
        parts.append(f'<text class="group" x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 16}">{escape(group)}</text>')
    return _svg(title, parts)


def steps(title: str, unit: str, series: Sequence[tuple[str, Sequence[int]]], bins: int = 24) -> str:
    """Return histograms as step lines over one axis: for each series the share of its values in every bin."""
    largest = max((max(values) for _, values in series if values), default=1)
    bin_width = _round_up(max(1, largest + 1) / bins)
    count = largest // bin_width + 1
    shares = []
    for _, values in series:
        tally = [0] * count
        for value in values:
            tally[value // bin_width] += 1
        shares.append([number / max(1, len(values)) for number in tally])
    top = max((max(each) for each in shares), default=1.0) or 1.0
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = _TOP + plot_height
    parts = [_grid(share / 4, f"{top * share / 4:.0%}") for share in range(5)]
    for number, ((name, _), each) in enumerate(zip(series, shares, strict=True)):
        points = [f"M{_LEFT},{base}"]
        for position, share in enumerate(each):
            left, right = (_LEFT + plot_width * edge / count for edge in (position, position + 1))
            y = base - plot_height * share / top
            points.append(f"L{left:.1f},{y:.1f} L{right:.1f},{y:.1f}")
        points.append(f"L{_LEFT + plot_width},{base}")
        parts.append(f'<path class="s{number % SERIES}" d="{" ".join(points)}"><title>{escape(name)}</title></path>')
    for position in range(0, count + 1, max(1, ceil(count / 8))):
        x = _LEFT + plot_width * position / count
        parts.append(f'<text class="group" x="{x:.1f}" y="{base + 16}">{position * bin_width}</text>')
    parts.append(f'<text class="group" x="{_LEFT + plot_width / 2}" y="{base + 31}">{escape(unit)}</text>')
    return _svg(title, parts)


def _grid(share: float, label: str) -> str:
    y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}">{label}</text>'
    )


def _svg(title: str, parts: Sequence[str]) -> str:
    frame = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _round_up(width: float) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, … that is not below `width`."""
    scale = int(10 ** max(0, int(log10(max(1.0, width)))))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= width)
