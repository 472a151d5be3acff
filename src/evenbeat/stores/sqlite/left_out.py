"""Reads without some runs: those that the database refuses to start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenbeat.stores.rows import Row
from evenbeat.stores.sqlite.session import Session

_QUEUED = "state = 'queued'"


class SessionWithout(Session):
    """A session whose queries do not find some queued runs. Only claims use it, after a refusal: the
    statements of all others stay as they are."""

    def __init__(self, session: Session, ids: frozenset[str]) -> None:
        self.__dict__.update(session.__dict__)
        # As literals: the statements number their parameters by position.
        texts = ", ".join(
            "'" + run_id.replace("'", "''") + "'" for run_id in sorted(ids) if "\0" not in run_id
        )
        self._condition = f"{_QUEUED} AND id NOT IN ({texts})"

    def rows(self, name: str, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return super().rows(name, sql.replace(_QUEUED, self._condition), values)
