"""Adding runs inside a user's transaction, over the user's own connection."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.encoding import json_runs
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.postgres.runs import first_of_each
from evenbeat.stores.within import Statement, Steps, StepsFor, check_dialect

_UNDEFINED_TABLE = "42P01"


def adding(
    location: Location, runs: Sequence[RunRecord], before: Instant | None = None, clock: Instant | None = None
) -> StepsFor[frozenset[str] | None]:
    """Add the runs, and a hint that the commit sends. Returns the ids of the runs that are new; None if the
    statement began at ``before`` or later, by the server's clock or by ``clock``, and added nothing."""

    def steps_for(dialect: str) -> Steps[frozenset[str] | None]:
        check_dialect(dialect, "postgresql")
        return steps()

    def steps() -> Steps[frozenset[str] | None]:
        value = json_runs(list(first_of_each(runs).values()))
        text = sql.INSERTION if before is None else sql.insertion_before(before, clock)
        rows = yield Statement(location.own(text), value)
        ids = frozenset(row[0] for row in rows)
        return None if None in ids else ids

    return steps_for


def lacks_tables(error: Exception) -> bool:
    """Whether an error of a user's driver, or its cause, says that the table does not exist."""
    wrapped = (error, getattr(error, "orig", None), error.__cause__)
    return any(getattr(one, "sqlstate", None) == _UNDEFINED_TABLE for one in wrapped)
