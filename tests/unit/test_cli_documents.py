"""``evenbeat documents``: a processor as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from evenbeat.cli.root import root

ORDERS = """
import time
from datetime import UTC, datetime
from pathlib import Path
from evenbeat.documents import MemoryDocuments, Processor

def handle(order):
    print("handling", order["customer"], flush=True)
    while not Path("go").exists():  # real time: a signal comes while the handler runs
        time.sleep(0.01)
    print("handled", order["customer"], flush=True)

orders = {7: {"sleep_until": datetime(2026, 1, 1, tzinfo=UTC), "customer": "Ada"}}
processor = Processor(MemoryDocuments(orders), handle)
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a processor whose handler ends when the folder has a file "go"."""
    (folder / "orders.py").write_text(ORDERS)
    command = [sys.executable, "-m", "evenbeat", "documents", "run", "orders.py:processor", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_signal_waits_for_the_handler_that_runs(tmp_path: Path) -> None:
    with started(tmp_path, "--log-format", "json") as process:
        assert line(process) == "handling Ada"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        messages = [json.loads(process.stderr.readline()) for _ in range(3)]
        (tmp_path / "go").touch()
        out, logged = process.communicate(timeout=30)

    assert (process.returncode, out) == (0, "handled Ada\n")
    messages += map(json.loads, logged.splitlines())
    waiting = "stopping, and waiting for documents that are being processed"
    assert [message["msg"] for message in messages] == ["starting", "started", waiting, "stopped"]
    assert messages[2]["waiting_for"] == "7"
    assert messages[-1]["component"] == "documents"
    assert messages[-1]["unfinished"] is False


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert line(process) == "handling Ada"
        process.send_signal(signal.SIGTERM)
        # Two signals that come together are one: until the first was seen, it is sent again.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        out, _ = process.communicate(timeout=30)

    # A third one that comes while the interpreter ends is Python's own to handle.
    assert process.returncode in (1, -signal.SIGINT)
    assert out == ""


def test_an_object_that_is_not_a_processor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty_orders.py").write_text("")
    result = CliRunner().invoke(root, ["documents", "run", str(tmp_path / "empty_orders.py")])

    assert result.exit_code == 2
    assert "there is no Processor in" in result.output
