"""A task that fails is retried with growing waits, as one run with several attempts.

python examples/retries.py
"""

from __future__ import annotations

from evenbeat import Retry, RunContext, Scheduler

app = Scheduler("memory://")


@app.task(retries=3, backoff="20ms", max_backoff="1s")
def fetch(run: RunContext, url: str) -> str:
    if run.failures < 2:
        raise ConnectionError(f"{url} did not answer")
    return "200"


@app.task(retries=1, backoff="10ms")
def import_orders() -> None:
    raise LookupError("no orders")


@app.task(retries=5, backoff="10ms", retry_on=ConnectionError)
def charge(order: int) -> None:
    raise ValueError(f"there is no order {order}")


@app.task
def fetch_report(run: RunContext) -> str:
    if run.attempt < 3:
        raise Retry(after="10ms", reason="the report is not ready")
    return "report"


def main() -> None:
    with app:
        run = app.runs.join(fetch.enqueue("https://example.org").id, "30s")
        for attempt in run.attempts:
            print(f"attempt {attempt.number}: {attempt.outcome}  {attempt.error or ''}")
        assert (run.state, run.result, run.attempt, run.failures) == ("succeeded", "200", 3, 2)

        # The retries are used up: the run has failed, and says why.
        failed = app.runs.join(import_orders.enqueue().id, "30s")
        assert (failed.state, failed.attempt) == ("failed", 2)
        assert failed.error is not None
        assert failed.error.startswith("LookupError: no orders")

        again = app.runs.retry(failed.id)  # by hand, with all its retries
        assert again.id == failed.id
        assert app.runs.join(again.id, "30s").state == "failed"

        # An error that no retry can mend fails the run at once.
        wrong = app.runs.join(charge.enqueue(-1).id, "30s")
        assert (wrong.state, wrong.failures) == ("failed", 1)
        assert wrong.error is not None
        assert wrong.error.endswith("not retried: retry_on names only ConnectionError")

        # It is too early: run again, without a failure.
        report = app.runs.join(fetch_report.enqueue().id, "30s")
        assert (report.result, report.attempt, report.failures) == ("report", 3, 0)
        print(report.attempts[0].error)


if __name__ == "__main__":
    main()
