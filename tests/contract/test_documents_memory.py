"""Documents in memory keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.documents import MemoryDocuments
from evenbeat.documents.base import Documents
from evenbeat.testing import DocumentsContract, DocumentsUnderTest, StoredDocument, VirtualClock


class MemoryRows(DocumentsUnderTest):
    def __init__(self, clock: VirtualClock) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self._plain = MemoryDocuments(self.documents, clock=clock)
        self._active = MemoryDocuments(self.documents, condition={"active": True}, clock=clock)
        self._active.lock = self._plain.lock

    def open_store(self, *, only_active: bool = False) -> Documents:
        return self._active if only_active else self._plain

    def add(self, key: str, sleep_until: Instant | None, **fields: Any) -> None:
        due = None if sleep_until is None else from_ms(sleep_until)
        if fields.get("repeat_until") is not None:
            fields["repeat_until"] = from_ms(fields["repeat_until"])
        self.documents[key] = {"sleep_until": due, "active": True, **fields}

    def row(self, key: str) -> StoredDocument | None:
        document = self.documents.get(key)
        if document is None:
            return None
        due = document["sleep_until"]
        return StoredDocument(None if due is None else to_ms(due), document.get("note"))

    def move(self, key: str, sleep_until: Instant | None) -> None:
        self.documents[key]["sleep_until"] = None if sleep_until is None else from_ms(sleep_until)

    def delete(self, key: str) -> None:
        del self.documents[key]


class TestMemory(DocumentsContract):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        yield MemoryRows(clock)
