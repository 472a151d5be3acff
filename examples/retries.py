"""A task that fails is retried with growing waits, as one run with several attempts.

python examples/retries.py
"""

from __future__ import annotations

from evenbeat import RunContext, Scheduler

app = Scheduler("memory://")


@app.task(retries=3, backoff="20ms", max_backoff="1s")
def fetch(run: RunContext, url: str) -> str:
    if run.failures < 2:
        raise ConnectionError(f"{url} did not answer")
    return "200"


@app.task(retries=1, backoff="10ms")
def import_orders() -> None:
    raise LookupError("no orders")


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


if __name__ == "__main__":
    main()
