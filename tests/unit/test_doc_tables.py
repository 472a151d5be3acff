"""Tables of the how-tos that list all values of a type."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from evenbeat.core.explanations import Verdict
from evenbeat.core.records import Reason

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


@pytest.mark.parametrize(
    ("page", "heading", "values"),
    [
        ("why-did-it-not-run.md", "| check | verdicts |", get_args(Verdict)),
        ("catching-up.md", "| reason | the tick did not run because |", get_args(Reason)),
    ],
)
def test_a_table_has_each_value_of_its_type(page: str, heading: str, values: tuple[str, ...]) -> None:
    _, _, rest = (HOWTO / page).read_text().partition(heading)
    table = rest.partition("\n\n")[0]
    assert set(values) - set(re.findall(r"`(\w+)`", table)) == set()


def test_the_section_about_further_pages_has_a_bullet_for_each_that_its_heading_names() -> None:
    _, _, rest = (HOWTO / "dashboard.md").read_text().partition("## Backfills, ")
    heading, _, section = rest.partition("\n## ")[0].partition("\n")
    named = {"backfills", *heading.replace(" and repair", "").replace(" and ", ", ").split(", ")}
    bullets = {
        name.lower().removesuffix(" and repair") for name in re.findall(r"^- \*\*(.+?)\*\*", section, re.M)
    }
    assert bullets == named
