"""``evenbeat health``: whether the nodes on this host work."""

from __future__ import annotations

import time

import click

from evenbeat.cli.failures import ExitCode, warn
from evenbeat.cli.output import json_text
from evenbeat.cli.phrases import printable
from evenbeat.observe import status_files
from evenbeat.observe.health import SILENT, Verdict, judge
from evenbeat.observe.phrases import count
from evenbeat.observe.status_files import ProcessStatus, can_be_written, read_all

_STYLES = {"ok": "green", "note": "yellow", "fail": "red"}


@click.command("health")
@click.option(
    "--pid", type=int, metavar="N", help="Only this process: that of 'evenbeat run' or of app.run()."
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def command(pid: int | None, as_json: bool) -> ExitCode:
    """Check the nodes on this host, for containers and services.

    Checks all nodes that this user runs here, or only the one of --pid. Answers in a fraction of a second,
    from a file that each node writes every five seconds, without the store and the app.

    The exit code is 1 only for problems that a restart could solve: no node runs, a node is frozen, or one of
    its loops has not stepped for two minutes. A store that does not answer is shown and is not a failure:
    nodes keep trying. 'evenbeat doctor' checks the store and all nodes together.
    """
    found = [status for status in read_all() if pid is None or status.pid == pid]
    now = time.monotonic()
    verdicts = [(status, judge(status, now)) for status in found]
    is_known = bool(found) or can_be_written()
    well = all(not verdict.problems for _, verdict in verdicts) and (bool(found) or not is_known)
    if as_json:
        click.echo(json_text(_document(well, verdicts)))
    elif found:
        for status, verdict in verdicts:
            _write(status, verdict, now)
    elif is_known:
        who = "no node of this user runs here" if pid is None else f"process {pid} is not a node of this user"
        _line("fail", f"{who}: there is no status file in {' or '.join(status_files.folders())}")
    if not is_known:
        warn(
            "nodes can't write a status file here, so their health is not known; "
            "set XDG_RUNTIME_DIR to a folder that this user can write to, or mount a tmpfs at /tmp"
        )
    return ExitCode.OK if well else ExitCode.FAILED


def _write(status: ProcessStatus, verdict: Verdict, now: float) -> None:
    who = f"{status.kind} {status.name}, pid {status.pid}"
    if not verdict.problems:
        up = sum(node.up for node in status.nodes)
        recent = [
            node for node in status.nodes if node.last_message is None or now - node.last_message <= SILENT
        ]
        loops = sum(len(node.loops) for node in recent)
        processes = f"{count(up, 'process', 'processes')} up, " if status.kind == "supervisor" else ""
        well = f"{processes}{count(loops, 'loop')} stepping" if up else "no process is up"
        _line("ok", f"{who}: {well}")
    for problem in verdict.problems:
        _line("fail", f"{who}: {problem}")
    for note in verdict.notes:
        _line("note", note)


def _line(level: str, text: str) -> None:
    click.echo(click.style(f"{level:<4}", fg=_STYLES[level]) + f"  {printable(text, keep='')}")


def _document(well: bool, verdicts: list[tuple[ProcessStatus, Verdict]]) -> dict[str, object]:
    return {
        "ok": well,
        "processes": [
            {
                "kind": status.kind,
                "name": status.name,
                "pid": status.pid,
                "nodes": [{"name": node.name, "pid": node.pid, "up": node.up} for node in status.nodes],
                "problems": list(verdict.problems),
                "notes": list(verdict.notes),
            }
            for status, verdict in verdicts
        ],
    }
