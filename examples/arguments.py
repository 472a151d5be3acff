"""Typed arguments and results: stored as JSON, given back by the function's annotations.

python examples/arguments.py
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from evenbeat import InvalidValue, Scheduler

app = Scheduler("memory://")


@dataclass
class Receipt:
    order: UUID
    total: Decimal


@app.task
def pay(order: UUID, amount: Decimal, at: datetime) -> Receipt:
    assert isinstance(amount, Decimal)
    assert isinstance(at, datetime)
    return Receipt(order, amount)


def main() -> None:
    order = UUID(int=7)
    with app:
        run = pay.enqueue(order, Decimal("9.90"), at=datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
        run = app.runs.join(run.id, "30s")
    assert run.result == Receipt(order, Decimal("9.90"))
    assert run.payload["amount"] == "9.90"  # in the store: JSON
    print(run.result)

    try:
        app.enqueue(pay, {"order": str(order), "amount": "much", "at": "2026-03-01T09:30:00Z"})
    except InvalidValue as error:
        print(error)
    else:
        raise AssertionError("an amount that is not a number was accepted")


if __name__ == "__main__":
    main()
