"""The tables of options in docs/reference.md, made from ``evenbeat.core.options``.

``python -m tests.option_tables`` writes them into the page; tests/unit/test_reference.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from evenbeat.core.durations import write_duration
from evenbeat.core.option import Option
from evenbeat.core.options import NEW_SCHEDULE, NODE, RUN, SETTINGS

PAGE = Path(__file__).parents[1] / "docs/reference.md"

# Sentences for the page alone, most of them with links.
_MORE = {
    "timeout": "[More](howto/timeouts-and-cancelling.md)",
    "catch_up_max_age": "[More](howto/catching-up.md#not-too-old-and-not-all-at-once)",
    "catch_up_rate": "[More](howto/catching-up.md#not-too-old-and-not-all-at-once)",
    "expires": "[More](howto/timeouts-and-cancelling.md#expiry)",
    "catch_up": "[More](howto/catching-up.md)",
    "overlap": "[More](#overlap-and-runs-by-hand)",
    "poll_interval": "A store whose notifications fail is asked every second.",
    "store": "Commands use the store of the `app` if this is not set.",
    "template": "[More](howto/templates.md)",
    "paused": "Only when it is created.",
    "wait_for_store": "`0s` does not wait.",
}


_WORDS = {
    "url": "a URL",
    "web_url": "a URL",
    "label": "a name",
    "labels": "names",
    "hosts": "host names",
    "tags": "words",
    "priority": "0 to 9, `low`, `normal`, `high`",
    "flag": "True, False",
    "rate": "a rate such as `10/m`",
    "after": "`after(…)`, or its text",
}


def page_with_tables(page: str) -> str:
    """Return the page with its tables of options made anew."""
    tables = {
        "run option": _table("run option", RUN.values()),
        "schedule option": _table(
            "schedule option", (option for name, option in NEW_SCHEDULE.items() if name not in RUN)
        ),
        "node option": _table("node option", NODE.values()),
        "setting": [
            *_table("setting", (option for name, option in SETTINGS.items() if name not in NODE)),
            f"| {', '.join(f'`{name}`' for name in NODE)} | | | The [options of nodes](#node-options). |",
        ],
    }
    for heading, lines in tables.items():
        pattern = rf"^\| {heading} \|.*\n(?:\|.*\n)+"
        (old,) = re.findall(pattern, page, re.MULTILINE)
        page = page.replace(old, "".join(f"{line}\n" for line in lines))
    return page


def _table(heading: str, options: Iterable[Option]) -> list[str]:
    return [f"| {heading} | default | takes | meaning |", "| --- | --- | --- | --- |", *map(_row, options)]


def _row(option: Option) -> str:
    meaning = " ".join(filter(None, (option.help, _MORE.get(option.name))))
    cells = (f"`{option.name}`", option.shown_default, _takes(option), meaning)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _takes(option: Option) -> str:
    words = ", ".join(_values(option))
    return f"{words}, None" if option.is_optional else words


def _values(option: Option) -> Iterator[str]:
    if option.kind == "count":
        yield f"{option.low:,} to {option.high:,}"
    elif option.kind == "duration":
        yield "a duration"
        if option.low:
            yield f"at least {write_duration(option.low)}"
        if option.high is not None:
            yield f"at most {write_duration(option.high)}"
    elif option.kind == "text":
        yield "a text" if option.high is None else f"a text of at most {option.high:,} characters"
    elif option.choices:
        yield from (f"`{choice}`" for choice in option.choices)
    else:
        yield _WORDS[option.kind]


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text("utf-8")), "utf-8")
