"""What type checkers make of tasks: arguments are checked where they are bound, the run aside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each line with a comment: what mypy must say about it. All others: nothing.
SNIPPET = """
from evenbeat import RunContext, Scheduler, cron, every
from evenbeat.testing import virtual

app = Scheduler("memory://")

@app.task
def digest(team: str, urgent: bool = False) -> int:
    return len(team)

@app.task(schedule=every("1h"), retries=3)
def report(run: RunContext, day: str) -> str:
    return run.id + day

@app.task
async def fetch(run: RunContext, url: str) -> bytes:
    return b""

reveal_type(digest)  # Revealed type is "evenbeat.tasks.task.Task[[team: str, urgent: bool =], int]"
reveal_type(report)  # Revealed type is "evenbeat.tasks.task.Task[[day: str], str]"
reveal_type(fetch)  # "evenbeat.tasks.task.Task[[url: str], typing.Coroutine[Any, Any, bytes]]"
reveal_type(digest("ops"))  # Revealed type is "int"
digest.bind(team="ops", urgent=True)
digest.bind(team=3)  # Argument "team" to "bind" of "Task" has incompatible type "int"; expected "str"
digest.bind("ops", True, 1)  # Too many arguments for "bind" of "Task"
report.bind(run=None, day="monday")  # Unexpected keyword argument "run" for "bind" of "Task"
report.bind(day="monday")
fetch(3)  # Argument 1 to "__call__" of "Task" has incompatible type "int"; expected "str"
app.enqueue(digest.bind("ops"), retries=2)
app.enqueue(digest, {"team": "ops"}, retry=2)  # Unexpected keyword argument "retry" for "enqueue"
app.schedules.add("d", cron("0 9 * * *"), digest, overlap="never")  # Argument "overlap" to "add"

async def main() -> None:
    reveal_type(await app.aenqueue(digest, delay="1m"))  # Revealed type is "evenbeat.core.results.Run"

with virtual(app) as scheduler:
    reveal_type(scheduler.travel("+3d"))  # Revealed type is "list[evenbeat.core.results.Run]"
    reveal_type(scheduler.task(len))  # Revealed type is "evenbeat.tasks.task.Task[[typing.Sized], int]"
"""


@pytest.mark.long
def test_type_checkers_see_the_arguments_of_tasks(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    cache = ROOT / ".mypy_cache"  # that of make types: what is in there need not be checked again
    options = (f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={cache}", "--no-error-summary")
    # In a process of its own: mypy leaves millions of objects behind, which the garbage collector visits.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(file)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    reported: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        if (found := re.match(r".*snippet\.py:(\d+): (?:error|note): (.*)", line)) is None:
            continue  # of our own modules: make types tells
        reported.setdefault(int(found[1]), []).append(found[2])
    for number, line in enumerate(SNIPPET.splitlines(), 1):
        _, _, expected = line.partition("  # ")
        messages = reported.pop(number, [])
        if expected:
            assert any(expected in message for message in messages), (line, messages)
        else:
            assert messages == [], (line, messages)
    assert reported == {}
