"""``evenbeat flows show``: a flow, or a run of one, as text, Mermaid or SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.flow_drawing import FlowDrawing
from evenbeat.cli.flow_input import app_here, complete_flow, flow_of, flow_options, neither_flow_nor_run
from evenbeat.cli.flow_runs import follow, given_place, report
from evenbeat.cli.layout import listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import opened
from evenbeat.core.flows import FlowInfo, FlowRun
from evenbeat.core.json_form import json_form
from evenbeat.errors import RunNotFound
from evenbeat.observe.flow_mermaid import mermaid
from evenbeat.observe.flow_svg import svg

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@click.argument("name", metavar="NAME|ID", shell_complete=complete_flow)
@click.option("--mermaid", "picture", flag_value="mermaid", help="Print a Mermaid flowchart.")
@click.option("--svg", "picture", flag_value="svg", help="Print an SVG picture.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --mermaid or --svg: write to this file.",
)
@wait_option
@flow_options
@json_option
def command(
    name: str,
    picture: Literal["mermaid", "svg"] | None,
    output: Path | None,
    wait: bool,
    app_name: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> ExitCode | None:
    """Draw a flow, or a run of one with the state of each step.

    NAME is a flow that the app registers; it is drawn without a store. ID is the id of a run; it is drawn
    with the graph that the run was started with. A name overrides an id.

    A step is a line, and the lanes on its left come from the steps that it waits for. A lane without data
    that others imply is left out.

    With --wait, the exit code is 1 unless the run has succeeded.
    """
    if output is not None and picture is None:
        raise click.UsageError("-o goes with --mermaid or --svg")
    if picture is not None and as_json:
        raise click.UsageError(f"--{picture} and --json are two answers; give one")
    app = app_here(app_name)
    if app is not None and app.tasks.get(name) is not None:
        if wait:
            raise click.UsageError("--wait goes with the id of a run")
        flow = flow_of(app, name)
        if picture is not None:
            _draw(picture, flow, None, output)
        else:
            answer({"flow": json_form(flow)}, lambda: _flow_report(flow), as_json=as_json)
        return None
    run, local = _found(app, name, app_name, store, tenant, wait=wait)
    if picture is None:
        answer(
            {"run": json_form(run)}, lambda: report(run, local, given_place(app_name, store)), as_json=as_json
        )
    elif run.graph is None:
        raise Failed(f"run {run.id} has not begun, and the graph of {run.flow} is not known here", _NAME_APP)
    else:
        _draw(picture, run.graph, run if run.steps else None, output)
    return ExitCode.FAILED if wait and run.state != "succeeded" else None


_NAME_APP = "name the app that registers it with --app"


def _found(
    app: Scheduler | None,
    run_id: str,
    app_name: str | None,
    store: str | None,
    tenant: str | None,
    *,
    wait: bool,
) -> tuple[FlowRun, LocalTime]:
    try:
        with opened(store, tenant, tasks=True, app_name=app_name) as scheduler:
            run = scheduler.flows.show(run_id)
            if wait:
                run = follow(scheduler, run)
            return run, LocalTime.at(scheduler.store.now())
    except Failed as error:
        is_elsewhere = "--tenant" in (error.hint or "") and isinstance(error.__cause__, RunNotFound)
        is_unknown = isinstance(error.__cause__, RunNotFound) or app is not None
        if is_elsewhere or not is_unknown:
            raise
        raise neither_flow_nor_run(app, run_id) from error


def _draw(
    picture: Literal["mermaid", "svg"], flow: FlowInfo, run: FlowRun | None, output: Path | None
) -> None:
    text = svg(flow, run) if picture == "svg" else mermaid(flow, run)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{output} can't be written: {error.strerror}") from error
    click.echo(f"wrote {output}")


def _flow_report(flow: FlowInfo) -> Iterator[RenderableType]:
    yield styled((flow.name, "bold"))
    yield ""
    rows: list[tuple[str, RenderableType]] = [("steps", f"{len(flow.steps):,}")]
    if flow.result is not None:
        rows.append(("result", f"that of {flow.result}"))
    rows.append(("version", flow.version))
    yield listed(rows)
    yield ""
    yield FlowDrawing(flow)
