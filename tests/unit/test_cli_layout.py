"""Tables that fit the line: columns that are dropped, that wrap, and that end with an ellipsis."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from evenbeat.cli.layout import Column, Fitted

NOTE = "paused: the mail provider has a fault, which they repair tonight, ticket 4711"


def lines_of(table: Fitted, width: int) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(table)
    return [line.rstrip() for line in page.getvalue().splitlines()]


def test_a_long_text_has_so_many_lines_and_an_ellipsis() -> None:
    table = Fitted([Column("name", ["newsletter"]), Column("state", [NOTE], wraps=14, lines=2)])
    (_, _, *rows) = lines_of(table, 40)
    assert rows == ["newsletter  paused: the mail provider", "            has a fault, which they…"]


@pytest.mark.parametrize("lines", [0, 2])
def test_a_text_with_room_for_all_of_it_is_whole(lines: int) -> None:
    table = Fitted([Column("name", ["newsletter"]), Column("state", [NOTE], wraps=14, lines=lines)])
    assert NOTE in lines_of(table, 200)[2]


def test_without_a_bound_a_text_has_the_lines_that_it_needs() -> None:
    table = Fitted([Column("name", ["newsletter"]), Column("state", [NOTE], wraps=14)])
    shown = " ".join(" ".join(lines_of(table, 30)[2:]).split())
    assert shown == f"newsletter {NOTE}"


def test_a_word_that_is_longer_than_the_column_is_cut_to_its_width() -> None:
    table = Fitted([Column("", ["a"]), Column("trigger", ["x" * 100], wraps=10, lines=2)])
    (_, _, *rows) = lines_of(table, 13)
    assert rows == ["a  xxxxxxxxxx", "   xxxxxxxxx…"]
