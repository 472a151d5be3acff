"""Fan out and join: a flow for each shop and, in it, a run for each page; one answer at the end.

python examples/flow_fan_out.py
"""

from __future__ import annotations

import threading
import time
from tempfile import TemporaryDirectory

from evenbeat import RunContext, Scheduler, Step

folder = TemporaryDirectory(prefix="evenbeat-fan-out-")
app = Scheduler(f"sqlite:///{folder.name}/evenbeat.db", thread_concurrency=8)
SHOPS = {"Lisbon": 12, "Osaka": 30, "Quito": 7, "Tromsø": 1, "Accra": 0}
lock = threading.Lock()
now_open = most_open = 0
joined: list[str] = []


@app.task
def pages(shop: str) -> list[tuple[str, int]]:
    """Return the pages of a shop: of Accra there are none, and its map ends at once."""
    return [(shop, number) for number in range(SHOPS[shop])]


@app.task
def price(page: tuple[str, int], discount: int = 0) -> int:
    global now_open, most_open
    with lock:
        now_open += 1
        most_open = max(most_open, now_open)
    time.sleep(0.01)  # stands for a request
    with lock:
        now_open -= 1
    shop, number = page
    return len(shop) * 100 + number - discount


@app.task
def cheapest(run: RunContext, shop: str, prices: list[int]) -> tuple[str, int, int | None]:
    joined.append(run.id)
    return shop, len(prices), min(prices, default=None)


@app.task
def compare(shops: list[tuple[str, int, int | None]]) -> str:
    for shop, count, lowest in shops:
        bar = "█" * count or "none"
        print(f"  {shop:<7} {'' if lowest is None else lowest:>4}  {bar}")
    best = min((each for each in shops if each[2] is not None), key=lambda each: each[2] or 0)
    return f"{best[0]} is the cheapest, at {best[2]}"


@app.flow
def one_shop(shop: str) -> Step:
    return cheapest.step(shop, price.map(pages.step(shop), discount=5))


@app.flow
def all_shops(shops: list[str]) -> Step:
    return compare.step(one_shop.map(shops))


def main() -> None:
    app.limits.set(task="price", concurrency=4)  # over all machines: not too many requests at once
    with app:
        began = time.monotonic()
        run = all_shops.enqueue(list(SHOPS))
        ended = app.runs.join(run.id, "30s")
        took = time.monotonic() - began
        shown = app.flows.show(run.id)
        steps = app.runs.count()["succeeded"]
    print(f"{ended.result}; {steps} runs in {took:.1f} s, at most {most_open} requests at once")
    assert ended.result == "Osaka is the cheapest, at 495"
    assert most_open <= 4
    assert shown.steps[0].elements == len(SHOPS)
    assert len(joined) == len(set(joined)) == len(SHOPS)
    folder.cleanup()


if __name__ == "__main__":
    main()
