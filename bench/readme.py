"""``python -m bench.readme`` writes the figures of docs/benchmarks.md into README.md.

The text around the figures is bench/readme.md. The figures come from the page, since the results themselves
are not kept: so a test can repeat this and compare. A placeholder names a section, a row and, unless it means
Evenbeat's column, a column: ``{Cron > next > p99}``. A placeholder that begins with ``missed:`` becomes our
goal if we missed it, else nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, README, TEXT = ROOT / "docs" / "benchmarks.md", ROOT / "README.md", ROOT / "bench" / "readme.md"
BEGIN, END = "<!-- figures: written by python -m bench.readme -->", "<!-- end of figures -->"


class Figures:
    """The tables of the page; finds a cell by its section, row and column."""

    def __init__(self, page: str) -> None:
        self._rows: dict[tuple[str, str], dict[str, str]] = {}
        section, head = "", list[str]()
        for line in page.splitlines():
            if line.startswith("## "):
                section, head = line[3:], []
            elif line.startswith("|"):
                cells = [cell.strip() for cell in line.strip("|").split(" | ")]
                if not head:
                    head = cells
                elif not cells[0].startswith("---"):
                    self._rows[section, cells[0]] = dict(zip(head[1:], cells[1:], strict=False))

    def cell(self, section: str, row: str, column: str = "Evenbeat") -> str:
        found = self._rows.get((section, row), {}).get(column, "")
        if not found:
            raise SystemExit(f"docs/benchmarks.md has no {column!r} of {row!r} in {section!r}")
        return found

    def number(self, section: str, row: str, column: str = "Evenbeat") -> str:
        return short(float(self.cell(section, row, column).split()[0].replace(",", "")))

    def missed(self, section: str, row: str) -> str:
        """Return our goal if we missed it, else nothing."""
        self.cell(section, row)
        cells = self._rows[section, row]
        return f" (our goal: {cells['goal']})" if "**missed**" in cells.values() else ""


def short(number: float) -> str:
    """Round to three digits: the rest is noise."""
    if number >= 1000:
        return f"{round(number, 3 - len(str(int(number)))):,.0f}"
    return f"{number:.3g}"


def filled(text: str, page: str) -> str:
    """Return the text with the figures of the page."""
    figures = Figures(page)
    places = {tuple(place.split(" > ")) for place in re.findall(r"\{([^{}]+)\}", text)}
    named = {(section.removeprefix("missed: "), *rest) for section, *rest in places}

    def figure(place: re.Match[str]) -> str:
        section, *rest = place[1].split(" > ")
        if section.startswith("missed: "):
            return figures.missed(section.removeprefix("missed: "), *rest)
        return figures.number(section, *rest)

    for section, row, *_ in sorted(named):
        if figures.missed(section, row) and (f"missed: {section}", row) not in places:
            raise SystemExit(f"the goal of {row!r} in {section!r} was missed, and the text does not say so")
    return re.sub(r"\{([^{}]+)\}", figure, text)


def written(readme: str, page: str) -> str:
    """Return README with the figures of the page."""
    found = re.search(re.escape(BEGIN) + ".*?" + re.escape(END), readme, re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has no {BEGIN!r} … {END!r}")
    return (
        f"{readme[: found.start()]}{BEGIN}\n\n{filled(TEXT.read_text(), page)}\n{END}{readme[found.end() :]}"
    )


def write() -> None:
    README.write_text(written(README.read_text(), PAGE.read_text()))


if __name__ == "__main__":
    write()
    sys.stdout.write("written to README.md\n")
