"""Plots as SVG, without a library: bars and lines on logarithmic scales, for light and dark pages.

Owns: the drawing. Must not know: what the figures mean, or how they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

COLORS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#57606a")
WIDTH = 880
MARGIN_LEFT = 70
LEGEND_LINE = 15
FONT = "-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif"
STYLE = """
.back{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0;fill:none}
@media (prefers-color-scheme: dark){
.back{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#3d444d}}
"""


@dataclass(frozen=True)
class Series:
    """A name and its figures; None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """Points of one line, and what is said of it."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One small plot: curves over a quantity that grows."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]


def bars(title: str, groups: Sequence[str], series: Sequence[Series], unit: str) -> str:
    """Groups of horizontal bars on one logarithmic scale."""
    values = [v for one in series for v in one.values if v]
    low, high = _decades(values)
    left, right, bar, top = 330, WIDTH - 50, 12, 74
    group_height = bar * len(series) + 16
    height = top + group_height * len(groups) + 34

    def x(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low) * (right - left)

    parts = [_text(20, 28, title, "ink", size=16, weight=600)]
    at = 20.0
    for one, color in zip(series, COLORS, strict=False):
        parts.append(f'<rect x="{at:.0f}" y="42" width="11" height="11" rx="2" fill="{color}"/>')
        parts.append(_text(at + 16, 52, one.name, "soft", size=12))
        at += 36 + 7.2 * len(one.name)
    bottom = height - 30
    for decade in range(low, high + 1):
        across = x(10**decade)
        parts.append(f'<path class="grid" d="M{across:.1f} {top - 8}V{bottom}"/>')
        label = _power(decade) + (f" {unit}" if decade == high else "")
        parts.append(_text(across, bottom + 16, label, "soft", size=11, anchor="middle"))
    for number, name in enumerate(groups):
        y = top + number * group_height
        middle = y + bar * len(series) / 2 + 4
        parts.append(_text(left - 12, middle, name, "ink", size=12, anchor="end"))
        for place, (one, color) in enumerate(zip(series, COLORS, strict=False)):
            value = one.values[number]
            below = y + place * bar
            if not value:
                parts.append(_text(left + 4, below + 10, "–", "soft", size=10))
                continue
            width = max(x(value) - left, 1)
            parts.append(
                f'<rect x="{left}" y="{below}" width="{width:.1f}" height="{bar - 2}" rx="2"'
                f' fill="{color}"/>'
            )
            parts.append(_text(left + width + 5, below + 9.5, short(value), "soft", size=10))
    return _picture(title, height, parts)


def grid(title: str, panels: Sequence[Panel]) -> str:
    """Two plots to a row, both of their scales logarithmic."""
    wide, high, top = WIDTH / 2, 290, 44
    parts = [_text(20, 28, title, "ink", size=16, weight=600)]
    for number, panel in enumerate(panels):
        across, down = number % 2 * wide, top + number // 2 * high
        parts.append(f'<g transform="translate({across:.0f} {down:.0f})">')
        parts += _panel(panel, wide, high)
        parts.append("</g>")
    return _picture(title, top + (len(panels) + 1) // 2 * high + 10, parts)


def _panel(panel: Panel, wide: float, high: float) -> Iterable[str]:
    left, right, bottom = MARGIN_LEFT, wide - 22, high - 48
    top = 46 + LEGEND_LINE * (len(panel.curves) + 1) // 2  # two names to a line
    points = [point for curve in panel.curves for point in curve.points]
    x_low, x_high = _decades([x for x, _ in points])
    y_low, y_high = _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (math.log10(x) - x_low) / (x_high - x_low) * (right - left),
            bottom - (math.log10(y) - y_low) / (y_high - y_low) * (bottom - top),
        )

    yield _text(left, 14, panel.title, "ink", size=13, weight=600)
    yield _text(left, 31, panel.up, "soft", size=11)
    yield _text((left + right) / 2, bottom + 34, panel.across, "soft", size=11, anchor="middle")
    for decade in range(x_low, x_high + 1):
        across = place(10**decade, 10**y_low)[0]
        yield f'<path class="grid" d="M{across:.1f} {top}V{bottom}"/>'
        yield _text(across, bottom + 16, _power(decade), "soft", size=10, anchor="middle")
    for decade in range(y_low, y_high + 1):
        up = place(10**x_low, 10**decade)[1]
        yield f'<path class="grid" d="M{left} {up:.1f}H{right:.1f}"/>'
        yield _text(left - 7, up + 4, short(10.0**decade), "soft", size=10, anchor="end")
    for curve, color in zip(panel.curves, COLORS, strict=False):
        placed = [place(x, y) for x, y in curve.points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        yield f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        for x, y in placed:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
    for number, (curve, color) in enumerate(zip(panel.curves, COLORS, strict=False)):
        x, y = left + number % 2 * 185, 48 + number // 2 * LEGEND_LINE
        yield f'<rect x="{x}" y="{y - 8}" width="9" height="9" rx="2" fill="{color}"/>'
        yield _text(x + 14, y, curve.name, "ink", size=11)


def short(value: float) -> str:
    """A figure in few characters: 0.25, 12, 3.4k, 1.2M."""
    for bound, letter in ((1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:.3g}{letter}"
    return f"{value:.3g}"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values; never one alone."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    return low, max(math.ceil(math.log10(max(values)) - 1e-9), low + 1)


def _power(decade: int) -> str:
    return short(10.0**decade) if decade < 3 else f"10{str(decade).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _text(
    x: float, y: float, text: str, kind: str, size: int, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


def _picture(title: str, height: float, parts: Iterable[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{FONT}">'
    back = f'<rect class="back" width="{WIDTH}" height="{height:.0f}" rx="10"/>'
    lines = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", back, *parts]
    return "\n".join([*lines, "</svg>"]) + "\n"
