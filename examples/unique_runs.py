"""The same work is enqueued only once at a time: a second call answers the active run.

python examples/unique_runs.py
"""

from __future__ import annotations

from evenbeat import RunRefused, Scheduler

app = Scheduler("memory://")


@app.task(unique="payload")
def export(customer: int) -> str:
    return f"customer {customer}"


def main() -> None:
    first = export.enqueue(42)
    assert export.enqueue(42).id == first.id  # it waits: nothing is added
    assert export.enqueue(43).id != first.id
    with app:
        assert app.runs.join(first.id, "30s").result == "customer 42"

    again = export.enqueue(42)  # the key is free: a new run
    print(f"{first.id} has ended, {again.id} is {again.state}")
    assert again.id != first.id

    # A key of your own, for calls with different payloads.
    one = app.enqueue(export.bind(1), unique="nightly")
    assert app.enqueue(export.bind(2), unique="nightly").id == one.id

    # A retry takes the key, too.
    app.runs.cancel(one.id)
    two = app.enqueue(export.bind(2), unique="nightly")
    try:
        app.runs.retry(one.id)
    except RunRefused as error:
        print(error)
    assert app.runs.get(one.id).state == "cancelled"
    assert app.runs.get(two.id).state == "queued"


if __name__ == "__main__":
    main()
