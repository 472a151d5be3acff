"""Reads without some runs: those that the database refuses to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.session import Session


class SessionWithout(Session):
    """A session whose searches do not find some queued runs. Only claims use it, after a refusal: the
    commands of all others stay as they are."""

    _without: list[str]

    @classmethod
    def around(cls, session: Session, ids: frozenset[str]) -> Session:
        """Return the session itself if there are no such runs."""
        if not ids:
            return session
        found = cls.__new__(cls)
        found.__dict__.update(session.__dict__, _without=sorted(ids))
        return found

    def find(self, name: str, collection: str, where: Mapping[str, Any], **options: Any) -> list[Document]:
        return super().find(name, collection, self._changed(where), **options)

    def aggregate(
        self,
        name: str,
        collection: str,
        pipeline: Sequence[Mapping[str, Any]],
        hint: str | None = None,
        quiet: bool = False,
        are_inside: bool = False,
    ) -> list[Document]:
        return super().aggregate(name, collection, self._changed(pipeline), hint, quiet, are_inside)

    def _changed(self, value: Any) -> Any:
        """Return a search in which each condition on queued runs leaves these out."""
        if isinstance(value, list | tuple):
            return [self._changed(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        changed = {name: self._changed(each) for name, each in value.items()}
        if value.get("state") == "queued" and "_id" not in value:
            changed["_id"] = {"$nin": self._without}
        return changed
