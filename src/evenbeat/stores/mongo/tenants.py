"""Tenants: which there are, and the deletion of the rows of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenbeat.core.records import FINAL_STATES
from evenbeat.stores.base import TenantCounts
from evenbeat.stores.mongo.damaged_ids import after_name, among
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import records_between
from evenbeat.stores.mongo.schema import RECORDS, RUNS, SCHEDULES, SKIPPED, STATISTICS
from evenbeat.stores.mongo.session import Session
from evenbeat.stores.queue_counts import with_tenants

_FINAL = sorted(FINAL_STATES)


def count(session: Session, tenant: str | None) -> list[TenantCounts]:
    def number(state: str) -> Document:
        return {"$sum": {"$cond": [{"$eq": ["$state", state]}, 1, 0]}}

    where: Document = {"state": {"$ne": "deleted"}}
    if tenant is not None:
        where["tenant"] = tenant
    figures = {"schedules": {"$sum": 1}, "active": number("active"), "paused": number("paused")}
    pipeline = [{"$match": where}, {"$group": {"_id": "$tenant", **figures}}]
    counts = [
        TenantCounts(tenant=str(document["_id"]), **{name: int(document[name]) for name in figures})
        for document in session.aggregate("count schedules", SCHEDULES, pipeline)
        if isinstance(document["_id"], str)
    ]
    if tenant is not None and counts:
        return counts
    return with_tenants(counts, _tenants_of_ended(session, tenant))


def _tenants_of_ended(session: Session, tenant: str | None) -> Iterator[str]:
    """Yield the tenants that have ended runs. Reads one entry of the index for each."""
    bound: Document = {"$gte": ""} if tenant is None else {"$eq": tenant}
    while True:
        where = {"state": {"$in": _FINAL}, "tenant": bound}
        found = session.find(
            "find tenant", RUNS, where, fields={"tenant": 1, "_id": 0}, sort=[("tenant", 1)], limit=1
        )
        if not found:
            return
        yield found[0]["tenant"]
        if tenant is not None:
            return
        bound = after_name(found[0]["tenant"])


def purge(session: Session, tenant: str, kinds: Sequence[str], limit: int, patience: float) -> int:
    if limit <= 0:
        return 0
    # The ids of statistics begin with the tenant and a slash, which no name of a tenant contains.
    parts: list[tuple[str, Document]] = [
        (SKIPPED, {"tenant": tenant}),
        (STATISTICS, {"_id": {"$gte": f"{tenant}/", "$lt": f"{tenant}0"}}),
        *((RECORDS, {"_id": records_between(kind, tenant, "", None)}) for kind in kinds),
    ]
    gone = 0
    for collection, where in parts:
        if gone < limit:
            found = session.find(
                f"find {collection}", collection, where, fields={"_id": 1}, limit=limit - gone
            )
            if found:
                ids = among(document["_id"] for document in found)
                command = {"delete": collection, "deletes": [{"q": {"_id": ids}, "limit": 0}]}
                gone += int(session.write(f"delete {collection}", command, patience)["n"])
    return gone
