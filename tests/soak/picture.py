"""The samples of all stores over time, as one SVG: a panel for each measure, a line for each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from bench.plot import scale, ticks

Series = Mapping[str, Sequence[tuple[float, float]]]
"""By store: (minute, value)."""

_WIDTH, _LEFT, _RIGHT, _PANEL, _GAP, _TOP = 760, 76, 24, 96, 44, 70
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 } .name { font-weight: 600 }
.ground { fill: #ffffff } .frame { stroke: #59636e } .grid { stroke: #d1d9e0 }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round }
.s0 { stroke: #0969da } .s1 { stroke: #1a7f37 } .s2 { stroke: #bc4c00 } .s3 { stroke: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ground { fill: #0d1117 } .frame { stroke: #9198a1 } .grid { stroke: #30363d }
.s0 { stroke: #4493f8 } .s1 { stroke: #3fb950 } .s2 { stroke: #f0883e } .s3 { stroke: #ab7df8 }
}
"""


def drawn(title: str, panels: Sequence[tuple[str, Series]], stores: Sequence[str], minutes: float) -> str:
    height = _TOP + len(panels) * (_PANEL + _GAP) + 16
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" aria-label="{escape(title)}">'
        ),
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="{_LEFT}" y="26">{escape(title)}</text>',
    ]
    for at, store in enumerate(stores):
        left = _LEFT + at * 120
        parts.append(f'<line class="s{at}" stroke-width="3" x1="{left}" y1="44" x2="{left + 24}" y2="44"/>')
        parts.append(f'<text x="{left + 30}" y="48">{escape(store)}</text>')
    end, step = scale(minutes)
    for number, (name, series) in enumerate(panels):
        top = _TOP + number * (_PANEL + _GAP) + 20
        parts += _panel(name, series, stores, top, end, step)
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{height - 8}" text-anchor="end">minutes since the start</text></svg>'
    )
    return "\n".join(parts) + "\n"


def _panel(
    name: str, series: Series, stores: Sequence[str], top: float, end: float, step: float
) -> list[str]:
    most, _ = scale(max((value for line in series.values() for _, value in line), default=1.0) or 1.0)

    def x(minute: float) -> float:
        return _LEFT + minute / end * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return top + _PANEL * (1 - value / most)

    parts = [f'<text class="name" x="{_LEFT}" y="{top - 8}">{escape(name)}</text>']
    for tick in (0.0, most / 2, most):
        parts.append(f'<line class="grid" x1="{x(0)}" y1="{y(tick):.1f}" x2="{x(end)}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,.4g}</text>')
    for minute in ticks(end, step):
        parts.append(
            f'<text x="{x(minute):.1f}" y="{top + _PANEL + 15:.1f}" text-anchor="middle">{minute:,.3g}</text>'
        )
    for at, store in enumerate(stores):
        if line := series.get(store):
            points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in line)
            parts.append(f'<polyline class="s{at}" points="{points}"/>')
    return parts
