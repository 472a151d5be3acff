"""The report on mutants: scores by module, and accepted survivors with the reasons."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tests.mutation.mutants import Mutant
from tests.mutation.runner import Results
from tests.mutation.suites import Suite

_ACCEPTED = Path(__file__).parent / "accepted.toml"

Chosen: TypeAlias = Iterable[tuple[Suite, list[Mutant]]]

_INTRODUCTION = """\
# Mutants

A test that can't fail proves nothing. `make mutants` changes the code in one place at a time (a comparison, a
condition, a number, a statement or an argument left out, an operator or a condition of an SQL text or a Lua
script) and runs the tests of that module until one fails. A person reads each mutant that survives: either a
test is missing, or the code is not needed, or the mutant is accepted for a reason given below.

Docstrings, annotations, assertions, and the texts of errors and log lines are not mutated: no test should pin
them. A fixed seed draws the samples. A *timeout* (the tests did not end) counts as caught. Tests that are
marked long do not run, and samples leave out the constants of Python modules: each takes every test, twice.

A row stands for the code of the day on which its mutants were *tried*.
"""

_HEAD = (
    "| module | mutants | tried | caught | of these by timeout | accepted | not caught | score | on |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
)


class Score(NamedTuple):
    module: str
    mutants: int
    tried: int
    caught: int
    timeouts: int
    accepted: int
    day: str = ""
    """On which the mutants were tried."""

    @property
    def missed(self) -> int:
        return self.tried - self.caught - self.accepted


class Reason(NamedTuple):
    text: str
    mutants: dict[str, str]
    """The description of each mutant, by its id."""


def read_accepted() -> list[Reason]:
    if not _ACCEPTED.exists():
        return []
    groups = tomllib.loads(_ACCEPTED.read_text())["accepted"]
    return [
        Reason(group["reason"], dict(line.split(" ", 1) for line in group["mutants"])) for group in groups
    ]


def stale(chosen: Chosen, accepted: list[Reason]) -> Iterator[str]:
    """Yield the accepted entries whose mutants no longer exist: their code has changed."""
    present = {mutant.id for _, mutants in chosen for mutant in mutants}
    for reason in accepted:
        yield from (f"{id_} {text}" for id_, text in reason.mutants.items() if id_ not in present)


def survivors(chosen: Chosen, results: Results, accepted: list[Reason]) -> Iterator[Mutant]:
    known = {mutant for reason in accepted for mutant in reason.mutants}
    for _, mutants in chosen:
        for mutant in mutants:
            result = results.get(mutant.id)
            if result is not None and result.survived and mutant.id not in known:
                yield mutant


def scores(chosen: Chosen, results: Results, accepted: list[Reason]) -> Iterator[Score]:
    known = {mutant for reason in accepted for mutant in reason.mutants}
    for suite, mutants in chosen:
        for module in suite.modules:
            own = [mutant.id for mutant in mutants if mutant.module == module]
            own = [mutant for mutant in own if (found := results.get(mutant)) is None or found.is_mutant]
            tried = [result for mutant in own if (result := results.get(mutant)) is not None]
            yield Score(
                module=module,
                mutants=len(own),
                tried=len(tried),
                caught=sum(not result.survived for result in tried),
                timeouts=sum(result.outcome == "timeout" for result in tried),
                accepted=sum(result.survived and result.id in known for result in tried),
                day=date.today().isoformat(),
            )


# If at least this share of a module's mutants was tried, the score is representative.
_MOST = 0.8


def write_page(chosen: Chosen, results: Results, accepted: list[Reason], before: str = "") -> str:
    """Return the page. Modules of which this run tried nothing keep their rows of the page ``before``."""
    chosen = list(chosen)
    known = {score.module: score for score in _read_rows(before)}
    found = [
        score if score.tried else known.get(score.module, score)
        for score in scores(chosen, results, accepted)
    ]
    rows = [score for score in found if score.tried]
    most = [score for score in rows if score.tried >= _MOST * score.mutants]
    some = [score for score in rows if score not in most]
    lines = [
        _INTRODUCTION,
        *_HEAD,
        *(_row(score, f"`{score.module}`") for score in rows),
        *([_row(_total(most), "**modules tried almost in full**")] if most else []),
        *([_row(_total(some), "**modules tried in samples**")] if some else []),
        "",
        "*Score* is the share of tried mutants that were caught; accepted ones count against it. A sample",
        "of a dozen proves little. There is no total score: modules tried in full would dominate it.",
        "",
        *_untried(found),
    ]
    present = {mutant.id: mutant for _, mutants in chosen for mutant in mutants}
    missed = list(survivors(chosen, results, accepted))
    if missed:
        lines += ["## Not caught, and not accepted", "", *map(_line, missed), ""]
    lines += ["## Accepted survivors", ""]
    for reason in accepted:
        still = [
            present[mutant]
            for mutant in reason.mutants
            if mutant in present and ((result := results.get(mutant)) is None or result.survived)
        ]
        if still:
            lines += [f"**{reason.text}** ({len(still)})", "", *map(_line, still), ""]
    return "\n".join(lines).rstrip() + "\n"


def _read_rows(page: str) -> Iterator[Score]:
    """Yield the rows of modules on a page that was written earlier."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0].startswith("`") and len(cells) == len(_HEAD[0].split(" | ")):
            mutants, caught, timeouts, accepted = (int(cells[at].replace(",", "")) for at in (1, 3, 4, 5))
            tried = mutants if cells[2] == "all" else int(cells[2].replace(",", ""))
            yield Score(cells[0].strip("`"), mutants, tried, caught, timeouts, accepted, cells[8])


def _untried(found: Iterable[Score]) -> list[str]:
    """Return a sentence that names the modules of which no mutant was tried."""
    missing = [f"`{score.module}` ({score.mutants})" for score in found if not score.tried]
    return [f"Not tried in their present form: {', '.join(missing)}.", ""] if missing else []


def _total(rows: list[Score]) -> Score:
    mutants, tried, caught, timeouts, accepted = map(sum, zip(*(row[1:6] for row in rows), strict=True))
    return Score("", mutants, tried, caught, timeouts, accepted)


def _row(score: Score, name: str) -> str:
    tried = "all" if score.tried == score.mutants else f"{score.tried:,}"
    share = f"{100 * score.caught / score.tried:.0f} %" if score.tried else ""
    counts = " | ".join(
        f"{count:,}" for count in (score.caught, score.timeouts, score.accepted, score.missed)
    )
    return f"| {name} | {score.mutants:,} | {tried} | {counts} | {share} | {score.day} |"


def _line(mutant: Mutant) -> str:
    change = mutant.change.replace("|", "\\|").replace("`", "'")
    return f"- `{mutant.module}`, {mutant.place}: `{change}`"
