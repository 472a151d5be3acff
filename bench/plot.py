"""Draw a curve or bars as an SVG: axes, labels, and colours for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 32, 52, 56
# More points would not be visible.
POINTS = 500
BAR, GAP, NAMES = 22, 30, 236

# Draws its own background: a picture inside a page can't know the page's colour.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.ground { fill: #ffffff } .frame { stroke: #59636e } .grid { stroke: #d1d9e0 }
.curve { stroke: #0969da; fill: none; stroke-width: 2.5; stroke-linejoin: round }
.ours { fill: #0969da } .peer { fill: #afb8c1 }
.limit { stroke: #bc4c00; stroke-dasharray: 6 4 } .limit-text { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ground { fill: #0d1117 } .frame { stroke: #9198a1 } .grid { stroke: #30363d }
.curve { stroke: #4493f8 } .ours { fill: #4493f8 } .peer { fill: #59636e }
.limit { stroke: #f0883e } .limit-text { fill: #f0883e }
}
"""


def curve(values: Sequence[float], *, title: str, across: str, up: str, limit: tuple[float, str]) -> str:
    """Draw the values in their order, from left to right, above zero; ``limit`` is a height and its name."""
    most, step_up = scale(max(*values, limit[0]))
    most_across, step_across = scale(len(values))

    def x(position: float) -> float:
        return LEFT + position / most_across * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - max(value, 0.0) / most * (HEIGHT - TOP - BOTTOM)

    parts = _opening(title, HEIGHT, LEFT)
    for tick in ticks(most, step_up):
        parts.append(_line(x(0), y(tick), x(most_across), y(tick), "grid"))
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick:,.0f}", "end"))
    for tick in ticks(most_across, step_across):
        parts.append(_line(x(tick), y(0), x(tick), y(0) + 5, "frame"))
        parts.append(_text(x(tick), y(0) + 20, f"{tick:,.0f}", "middle"))
    height, name = limit
    parts += [
        _line(x(0), y(0), x(most_across), y(0), "frame"),
        _line(x(0), y(0), x(0), y(most), "frame"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, across, "middle"),
        (
            f'<text transform="translate(20 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(up)}</text>'
        ),
        _line(x(0), y(height), x(most_across), y(height), "limit"),
        _text(x(0) + 8, y(height) + 17, name, "start", "limit-text"),
    ]
    count = min(POINTS, len(values))
    chosen = sorted({round(at * (len(values) - 1) / max(1, count - 1)) for at in range(count)})
    points = " ".join(f"{x(at + 1):.1f},{y(values[at]):.1f}" for at in chosen)
    parts += [f'<polyline class="curve" points="{points}"/>', "</svg>"]
    return "\n".join(parts) + "\n"


def bars(groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], *, title: str, unit: str) -> str:
    """Draw a bar for each value, in groups; those whose name begins with Evenbeat get our colour."""
    most, _ = scale(max(value for _, values in groups for _, value in values))
    height = TOP + sum(GAP + BAR * len(values) for _, values in groups) + LEFT // 4
    parts = _opening(title, height, RIGHT)
    top = float(TOP)
    for name, values in groups:
        parts.append(_text(RIGHT, top + GAP - 10, name, "start", "title"))
        top += GAP
        for who, value in values:
            # Room for the figure behind its bar.
            width = value / most * (WIDTH - NAMES - RIGHT - 90)
            kind = "ours" if who.startswith("Evenbeat") else "peer"
            parts.append(_text(NAMES - 8, top + BAR - 7, who, "end"))
            parts.append(
                f'<rect class="{kind}" x="{NAMES}" y="{top + 2:.1f}" width="{width:.1f}" height="{BAR - 4}"/>'
            )
            parts.append(_text(NAMES + width + 8, top + BAR - 7, f"{value:,.0f} {unit}", "start"))
            top += BAR
    return "\n".join([*parts, "</svg>"]) + "\n"


def _opening(title: str, height: int, left: int) -> list[str]:
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="{escape(title)}">'
        ),
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(left, 30, title, "start", "title"),
    ]


def scale(most: float) -> tuple[float, float]:
    """Return the end of an axis and the step of its labels: round numbers, four to eight of them."""
    power = 10.0 ** math.floor(math.log10(max(most, 1e-9)))
    step = next(power * part for part in (0.2, 0.25, 0.5, 1, 2) if most / (power * part) <= 8)
    return math.ceil(most / step) * step, step


def ticks(most: float, step: float) -> list[float]:
    return [number * step for number in range(round(most / step) + 1)]


def _line(left: float, top: float, right: float, bottom: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}"/>'


def _text(left: float, base: float, text: str, anchor: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text{of_kind} x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
