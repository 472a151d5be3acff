"""Systems without POSIX calls, such as Windows: some commands work, the others name an alternative."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What CPython has on POSIX and not on Windows, as far as anything here asks for it.
LACKING = """
import os, select, signal, time
for module, names in {
    os: ["fork", "register_at_fork", "killpg", "setsid", "getuid"],
    select: ["poll"],
    signal: ["SIGKILL", "SIGHUP", "pthread_sigmask"],
    time: ["CLOCK_BOOTTIME"],
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""

APP = """
from evenbeat import Scheduler, every

app = Scheduler("sqlite:///app.db")

@app.task(schedule=every("1s"))
def tick() -> str:
    return "ticked"

@app.task
async def later() -> str:
    return "awaited"

if __name__ == "__main__":
    app.start()
    try:
        run = app.enqueue(later)
        assert app.runs.join(run.id, "60s").result == "awaited"
        while not app.runs.list(schedule="tick", state="succeeded"):
            app.store.wait(1)
    finally:
        app.stop()
        app.close()
    print("it works")
"""

COMMAND = "import sys; sys.argv = ['evenbeat', *{}]\nfrom evenbeat.cli import main\nmain()"


def run_without_posix(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    # No bytecode, no site of the user's: only what the code itself imports after the names are gone.
    command = [sys.executable, "-c", f"{LACKING}\n{code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_a_node_in_ones_own_program_works_on_sqlite(tmp_path: Path) -> None:
    done = run_without_posix(tmp_path, APP)
    assert done.stdout == "it works\n", done.stderr


def test_dev_without_reloading_runs_an_app(tmp_path: Path) -> None:
    """The task itself presses Ctrl-C, so that the command ends."""
    stopping = APP.replace(
        'return "ticked"', 'import signal; signal.raise_signal(signal.SIGINT); return "ticked"'
    )
    (tmp_path / "app.py").write_text(stopping)
    done = run_without_posix(tmp_path, COMMAND.format(["dev", "--no-reload", "app.py"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Evenbeat runs app.py" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "app.py"], "that calls app.run()"),
        (["dev", "app.py"], "--no-reload"),
        (["schedules", "list", "--store", "postgresql://localhost/app"], "has no select.poll"),
    ],
)
def test_an_unsupported_command_names_an_alternative(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = run_without_posix(tmp_path, COMMAND.format(arguments))
    assert (done.returncode == 0, "Traceback" in done.stderr) == (False, False), done.stderr
    assert expected in done.stderr
