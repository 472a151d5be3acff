"""A nightly pipeline as a flow: a step fails, the flow says so, and resume goes on from there.

python examples/flow_etl.py
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from evenbeat import FlowRun, Scheduler, Step

folder = TemporaryDirectory(prefix="evenbeat-etl-")
place = Path(folder.name)
app = Scheduler(f"sqlite:///{place}/evenbeat.db", thread_concurrency=4)
warehouse_is_open = False
calls: list[str] = []

DAY = {
    "orders": [["ann", 120], ["bob", 80], ["", -1]],
    "returns": [["ann", -20], ["bob", -80]],
    "gifts": [["cem", 50], ["dan", 25], ["", 0]],
}


@app.task
def extract(day: str) -> list[str]:
    """Write one file for each source; return their names, not their contents."""
    calls.append("extract")
    for source, rows in DAY.items():
        (place / f"{day}-{source}.json").write_text(json.dumps(rows))
    return [f"{day}-{source}.json" for source in DAY]


@app.task
def clean(file: str) -> dict[str, int]:
    calls.append("clean")
    rows = json.loads((place / file).read_text())
    good = [row for row in rows if row[0]]
    (place / f"clean-{file}").write_text(json.dumps(good))
    return {"kept": len(good), "dropped": len(rows) - len(good), "cents": sum(row[1] for row in good)}


@app.task
def check_budget() -> str:
    calls.append("check_budget")
    return "within budget"


@app.task
def summarise(parts: list[dict[str, int]]) -> dict[str, int]:
    calls.append("summarise")
    return {key: sum(part[key] for part in parts) for key in ("kept", "dropped", "cents")}


@app.task(retries=1, backoff="100ms")
def load(total: dict[str, int]) -> str:
    calls.append("load")
    if not warehouse_is_open:
        raise ConnectionError("the warehouse does not answer")
    return f"loaded {total['kept']} rows worth {total['cents']}, dropped {total['dropped']}"


@app.task
def notify(failed: bool) -> None:
    calls.append("notify")
    print("  mail to the team:", "the nightly load failed" if failed else "the nightly load is done")


@app.flow(schedule="0 3 * * *", timeout="2h")
def nightly(day: str = "yesterday") -> Step:
    parts = clean.map(extract.step(day))
    total = summarise.step(parts)
    loaded = load.step(total, after=[check_budget.step()])
    notify.step(failed=False, after=[loaded], step_name="say_done")
    notify.step(failed=True, after=[loaded], step_name="say_failed", run_if="any_failed")
    return loaded


MARKS = {"succeeded": "●", "failed": "✗", "not_run": "○", "not_needed": "·"}


def show(flow: FlowRun) -> None:
    print(f"{flow.flow} {flow.state}" + (f": {flow.error}" if flow.error else f": {flow.result}"))
    for step in flow.steps:
        words = f"  {MARKS[step.state]} {step.name:<13} {step.state:<11}"
        words += f" {step.elements} elements" if step.elements is not None else ""
        words += f" {step.reason}" if step.reason else ""
        words += f" round {step.round}" if step.round > 1 else ""
        print(words.rstrip())


def main() -> None:
    global warehouse_is_open
    logging.getLogger("evenbeat").setLevel(logging.CRITICAL)  # the failure is expected here
    with app:
        run = nightly.enqueue(day="monday")
        app.runs.join(run.id, "20s")
        failed = app.flows.show(run.id)
        show(failed)
        assert failed.error == "step load failed: ConnectionError: the warehouse does not answer"
        assert calls.count("clean") == 3
        assert calls.count("load") == 2  # with its retry

        print("\nthe warehouse is back, so the flow is resumed:")
        warehouse_is_open = True
        calls.clear()
        app.flows.resume(run.id)
        app.runs.join(run.id, "20s")
        ended = app.flows.show(run.id)
        show(ended)
    assert ended.result == "loaded 6 rows worth 175, dropped 2"
    assert sorted(calls) == ["load", "notify"]  # what had succeeded was kept
    folder.cleanup()


if __name__ == "__main__":
    main()
