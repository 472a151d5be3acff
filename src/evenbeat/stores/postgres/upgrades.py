"""The version of the schema in a database, and its upgrade."""

from __future__ import annotations

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.stores.postgres import schema
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.postgres.session import Session, Statement, Transaction


def version(session: Session | Transaction, location: Location) -> int:
    """Read the version of the tables; 0 if there are none. One cheap query."""
    ((there,),) = session.rows("select schema version", schema.FIND_META, {"schema": location.schema})
    if not there:
        return 0
    found = session.rows("select schema version", schema.GET_VERSION)
    try:
        return int(found[0][0]) if found else 0
    except ValueError:
        raise StoreUnavailable(f"{location.shown}: schema version {found[0][0]!r} is not a number") from None


def upgrade(transaction: Transaction, location: Location) -> None:
    """Upgrade the tables in one transaction. Nodes that upgrade at the same time wait for each other."""
    transaction.rows("lock schema", schema.LOCK, {"schema": location.schema})
    # Another node may have upgraded them meanwhile.
    found = check(version(transaction, location))
    if found == schema.KNOWN:
        return
    statements: list[Statement] = [(text, ()) for text in schema.migrations_from(found)]
    if not transaction.rows("select schema", schema.FIND_SCHEMA, {"schema": location.schema}):
        statements.insert(0, (schema.CREATE_SCHEMA, ()))
    transaction.commit("upgrade schema", statements)


def check(found: int) -> int:
    if found > schema.KNOWN:
        raise SchemaTooNew(found, schema.KNOWN)
    return found
