"""Enqueue within your own transaction: the order and its job are both there, or neither.

python examples/transactions.py
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from evenbeat import Scheduler


def buy(shop: sqlite3.Connection, app: Scheduler, order: int, item: str) -> None:
    with shop:  # one transaction: committed at the end, rolled back by an error
        shop.execute("INSERT INTO orders VALUES (?, ?)", (order, item))
        app.enqueue("send_invoice", {"order": order}, id=f"invoice-{order}", within=shop)
        if item == "unicorn":
            raise LookupError("sold out")


def main(path: Path) -> None:
    app = Scheduler(f"sqlite:///{path}")

    @app.task
    def send_invoice(order: int) -> str:
        return f"invoice for order {order}"

    with closing(sqlite3.connect(path)) as shop, app:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        buy(shop, app, 1, "tea")
        try:
            buy(shop, app, 2, "unicorn")
        except LookupError as error:
            print(f"order 2: {error}")
        assert app.runs.join("invoice-1", "30s").result == "invoice for order 1"
        orders = [order for (order,) in shop.execute("SELECT id FROM orders")]
        runs = [run.id for run in app.runs.list()]
    print(f"orders {orders}, runs {runs}")
    assert (orders, runs) == ([1], ["invoice-1"])


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder) / "shop.db")
