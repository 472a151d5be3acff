"""A schedule in the code only, on two nodes: each tick runs once, and the store has no row of the schedule.

python examples/code_only.py
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from pathlib import Path

from evenbeat import RunContext, Scheduler, every

TICKS = 3
seen: Counter[str] = Counter()
is_enough = threading.Event()


def make_app(url: str) -> Scheduler:
    app = Scheduler(url)

    @app.task(schedule=every("1s"), durable=False)
    def ping(run: RunContext) -> None:
        seen[str(run.tick)] += 1
        if len(seen) >= TICKS:
            is_enough.set()

    return app


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'evenbeat.db')}"
        nodes = [make_app(url), make_app(url)]
        for node in nodes:
            node.start()
        assert is_enough.wait(60)
        assert nodes[0].schedules.list() == []
        for node in nodes:
            node.stop()
            node.close()
    for tick, times in sorted(seen.items()):
        print(f"{tick}: {times} run")
    assert set(seen.values()) == {1}


if __name__ == "__main__":
    main()
