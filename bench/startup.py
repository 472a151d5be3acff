"""How long a user waits before anything happens: import and command start, each in a new process."""

from __future__ import annotations

import subprocess
import sys

from bench.measure import Row, interleaved, median


def run() -> list[Row]:
    def start(*arguments: str) -> None:
        # `health` exits with 1 if no node runs, which takes as long.
        subprocess.run([sys.executable, *arguments], check="health" not in arguments, capture_output=True)

    taken = interleaved(
        {
            "python": lambda: start("-c", "pass"),
            "import": lambda: start("-c", "from evenbeat import Scheduler"),
            "health": lambda: start("-m", "evenbeat", "health", "--json"),
            "help": lambda: start("-m", "evenbeat", "--help"),
            "next": lambda: start("-m", "evenbeat", "next", "0 9 * * mon-fri", "--json"),
        },
        rounds=11,
    )
    ms = {name: median(seconds) * 1e3 for name, seconds in taken.items()}
    importing = ms["import"] - ms["python"]
    return [
        _row("from evenbeat import Scheduler, less Python's own start", importing, 150),
        _row("evenbeat health, whole process", ms["health"], 200),
        _row("evenbeat --help, whole process", ms["help"], 350),
        Row("startup", "evenbeat next EXPR --json, whole process", "ms", ms["next"]),
        Row("startup", "python -c pass, for comparison", "ms", ms["python"]),
    ]


def _row(name: str, ms: float, goal: int) -> Row:
    return Row("startup", name, "ms", ms, goal=f"< {goal} ms", met=ms < goal)
