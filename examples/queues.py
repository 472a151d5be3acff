"""Queues and priorities: which node executes a run, and which run goes first.

python examples/queues.py
"""

from __future__ import annotations

from evenbeat import Scheduler

app = Scheduler("memory://")
order: list[str] = []


@app.task(queue="mail")
def send(text: str) -> None:
    order.append(text)


@app.task
def report() -> None: ...


def main() -> None:
    calls = {"newsletter": "low", "receipt": "normal", "password reset": "high"}
    mails = [app.enqueue(send.bind(text), priority=priority) for text, priority in calls.items()]
    waiting = report.enqueue()

    for queue in app.queues():
        print(f"{queue.name}: {queue.due} due")

    app.start(queues=["mail"], thread_concurrency=1)  # a node for mail alone, one at a time
    for mail in mails:
        app.runs.join(mail.id, "30s")
    why = app.runs.why_waiting(waiting.id)
    app.stop()

    print(" → ".join(order))
    assert order == ["password reset", "receipt", "newsletter"]
    assert app.runs.get(waiting.id).state == "queued"
    assert why is not None
    assert why.reason == "no_queue"  # a live node has the task, and none takes from its queue
    app.close()


if __name__ == "__main__":
    main()
