"""``Change``: what the web process says about a change in the store. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Subject: TypeAlias = Literal["schedule", "run", "node", "quarantine", "store"]
ChangeKind: TypeAlias = Literal[
    "created",
    "updated",
    "deleted",  # a schedule; of runs, "updated" stands for a cancel request or the end of a step
    "queued",
    "started",
    "succeeded",
    "failed",
    "cancelled",  # a run
    "joined",
    "left",  # a node
    "added",
    "removed",  # a note that a row can't be read
    "unavailable",
    "back",  # the store
    "many",  # more subjects of this kind, and of the tenant if it has one, than are named
]


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a subject. It has no content: the API answers what the subject is like now."""

    subject: Subject
    kind: ChangeKind
    tenant: str | None = None
    """The owner; None if the subject does not belong to a tenant."""
    id: str | None = None
    """The name of a schedule or node, the id of a run, the key of a quarantine note."""
    schedule: str | None = None
    """Of a run: its schedule."""
    flow: str | None = None
    """Of a step of a flow: the id of the flow's run."""

    @property
    def identity(self) -> tuple[str, str | None, str | None]:
        """The subject that changed: of two changes with the same identity, the later one counts."""
        return (self.subject, self.tenant, self.id)

    def is_visible_to(self, tenant: str | None) -> bool:
        """Return whether a client of a tenant may see the change; None stands for a client of all tenants.

        Everybody sees that the store is unavailable.
        """
        return tenant is None or self.tenant == tenant or self.subject == "store"


def coalesced(changes: list[Change]) -> list[Change]:
    """Return the last change of each subject, in the order of these."""
    latest: dict[tuple[str, str | None, str | None], Change] = {}
    for change in changes:
        latest.pop(change.identity, None)
        latest[change.identity] = change
    return list(latest.values())
