"""README: its figures are those of docs/benchmarks.md, and the commands that it shows work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bench import readme

from evenbeat.cli.local import own_command

ROOT = Path(__file__).parents[2]


def test_the_figures_are_those_of_the_benchmarks() -> None:
    text = readme.README.read_text()
    assert readme.written(text, readme.PAGE.read_text()) == text, "run: python -m bench.readme"


def test_a_figure_has_three_digits_and_a_missed_goal_is_shown() -> None:
    assert [readme.short(number) for number in (20_806, 1_234_567, 960, 12.25, 0.033, 3.0)] == [
        "20,800",
        "1,230,000",
        "960",
        "12.2",
        "0.033",
        "3",
    ]
    page = """## Cron

|  | Evenbeat | p99 | goal |  |
| --- | --- | --- | --- | --- |
| next | 1,234 us | 5.00 | < 1 us | **missed** |
| parse | 2.00 us |  | < 9 us | met |
"""
    slow = "{Cron > next} us{missed: Cron > next}, {Cron > next > p99} at most"
    assert readme.filled(slow, page) == "1,230 us (our goal: < 1 us), 5 at most"
    assert readme.filled("{Cron > parse} us{missed: Cron > parse}", page) == "2 us"
    with pytest.raises(
        SystemExit, match="the goal of 'next' in 'Cron' was missed, and the text does not say"
    ):
        readme.filled("{Cron > next > p99}", page)
    for place in ("{Cron > prev}", "{Crom > next}", "{Cron > parse > p95}", "{Cron > parse > p99}"):
        with pytest.raises(SystemExit, match=r"docs/benchmarks\.md has no "):
            readme.filled(place, page)


def test_the_first_command_of_the_readme_is_make_demo() -> None:
    first = next(line for line in readme.README.read_text().splitlines() if line.startswith("$ "))
    assert first == "$ make demo"
    assert "\ndemo: " in (ROOT / "Makefile").read_text()
    assert "\nshell: " in (ROOT / "Makefile").read_text()


def test_commands_to_paste_begin_with_a_path_where_the_shell_would_not_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / ".venv" / "bin" / "evenbeat"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", [".venv/bin/evenbeat", "demo"])
    assert own_command() == ".venv/bin/evenbeat"
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}/usr/bin")
    assert own_command() == "evenbeat"
    monkeypatch.setattr(sys, "argv", ["/usr/lib/python3/evenbeat/__main__.py", "demo"])
    assert own_command().endswith(" -m evenbeat")
