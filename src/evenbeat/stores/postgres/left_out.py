"""Reads without some runs: those that the database refuses to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenbeat.stores.postgres.session import Statement, Transaction
from evenbeat.stores.rows import Row

_QUEUED = "state = 'queued'"
_CONDITION = f"{_QUEUED} AND id <> ALL (CAST(%(without)s AS text[]))"


def without_runs(statement: Statement, ids: frozenset[str]) -> Statement:
    """Return a statement of a claim that does not find some queued runs. Only claims after a refusal use it:
    the statements of all others stay as they are."""
    text, values = statement
    if not ids or _QUEUED not in text or not isinstance(values, Mapping):
        return statement
    return text.replace(_QUEUED, _CONDITION), {**values, "without": sorted(ids)}


class TransactionWithout(Transaction):
    """A transaction whose statements do not find some queued runs."""

    _without: frozenset[str]

    @classmethod
    def around(cls, transaction: Transaction, ids: frozenset[str]) -> Transaction:
        """Return the transaction itself if there are no such runs."""
        if not ids:
            return transaction
        found = cls.__new__(cls)
        transaction.__dict__["_without"] = ids
        found.__dict__ = transaction.__dict__  # shared: whether it was begun and committed
        return found

    def together(self, name: str, statements: Sequence[Statement]) -> list[list[Row]]:
        changed = [without_runs(statement, self._without) for statement in statements]
        return super().together(name, changed)
