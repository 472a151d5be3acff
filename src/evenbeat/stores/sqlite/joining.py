"""Adding runs inside a user's transaction, over the user's own connection, and creating the tables for them.

A file has one writer at a time: once the user's transaction has written, no other connection can create the
tables before that transaction ends. So the user's connection creates them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue, SchemaTooNew
from evenbeat.stores.rows import RUN, readable_runs, run_row
from evenbeat.stores.sqlite import schema
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.json_values import json_list, json_text
from evenbeat.stores.within import Statement, Steps, StepsFor, check_dialect

_EVERY_COLUMN = tuple(f"wanted.value ->> {place}" for place in range(len(RUN)))
_INSERT = f"{sql.insert_runs(_EVERY_COLUMN, '{}').strip()} RETURNING id"
_SELECT = f"""
SELECT {", ".join(RUN)} FROM evenbeat_runs WHERE id IN (SELECT value FROM json_each({{}}))
""".strip()
# Changes nothing, and takes the write lock.
_LOCK = "UPDATE evenbeat_runs SET id = id WHERE FALSE"


def adding(
    path: str, runs: Sequence[RunRecord], is_late: Callable[[], bool] | None = None
) -> StepsFor[list[RunRecord]]:
    """Add the runs to the file at ``path``. Returns each run as the transaction sees it; if ``is_late``, adds
    and returns nothing."""

    def steps_for(dialect: str) -> Steps[list[RunRecord]]:
        check_dialect(dialect, "sqlite")
        return steps()

    def steps() -> Steps[list[RunRecord]]:
        yield from _check_file(path)
        yield from _make_tables()
        if is_late is not None:
            if is_late():
                return []  # without the write lock, so that the caller can write the records of other runs
            # With the write lock, no purge comes between the look at the clock and the commit.
            yield Statement(_LOCK)
            if is_late():
                return []
        rows = yield Statement(_INSERT, json_text([run_row(run) for run in runs]))
        new = {row[0] for row in rows}
        old = [run.id for run in runs if run.id not in new]
        found = (yield Statement(_SELECT, json_list(old))) if old else []
        known = {run.id: run for run in readable_runs(found)}
        return [known.get(run.id, run) for run in runs]

    return steps_for


def _check_file(path: str) -> Steps[None]:
    """Refuse a connection to another file: no node would find the runs there."""
    rows = yield Statement("PRAGMA database_list")
    file = next((row[2] for row in rows if row[1] == "main"), "")
    if file and os.path.realpath(file) == path:
        return
    raise InvalidValue(
        f"within is a connection to {file or 'a database in memory'}, and the store is {path}",
        field="within",
        value=file or ":memory:",
        hint="give a connection to that file; in tests, put the app into virtual time, where any database "
        "will do: evenbeat.testing.virtual(app)",
    )


def _make_tables() -> Steps[None]:
    """Create or upgrade the tables in one step: outside of a transaction, a savepoint starts one."""
    if (yield from _version()) == schema.KNOWN:
        return
    yield Statement("SAVEPOINT evenbeat_tables")
    yield Statement(schema.META)
    # From here on this connection holds the write lock. Another process may have upgraded the file before.
    for number, statements in schema.migrations_from((yield from _version())):
        for statement in statements:
            yield Statement(statement)
        yield Statement(schema.SET_VERSION.replace("?", "{}"), str(number))
    yield Statement("RELEASE evenbeat_tables")


def _version() -> Steps[int]:
    if not (yield Statement(schema.FIND_META)):
        return 0
    rows = yield Statement(schema.GET_VERSION)
    version = int(rows[0][0]) if rows else 0
    if version > schema.KNOWN:
        raise SchemaTooNew(version, schema.KNOWN)
    return version
