"""Documents in memory: what only they can run into."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from evenbeat import InvalidValue
from evenbeat.documents import Change, Lock, MemoryDocuments
from evenbeat.instants import from_ms
from evenbeat.testing.clock import VirtualClock


def test_a_document_that_can_not_be_copied_stands_in_nobodys_way() -> None:
    clock = VirtualClock()
    rows: dict[str, dict[str, Any]] = {
        "a": {"schedule": {"next": from_ms(clock.now - 1)}, "guard": threading.Lock()},
        "b": {"schedule": {"next": from_ms(clock.now)}},
    }
    documents = MemoryDocuments(rows, sleep_until="schedule.next", clock=clock)
    found = documents.lock_next(1000, 5).found
    assert [(one.id, one.sleep_until) for one in found] == [("a", clock.now - 1), ("b", clock.now)]
    assert found[0].data["guard"] is rows["a"]["guard"]


def test_a_change_with_a_field_that_can_not_be_is_not_written_at_all() -> None:
    clock = VirtualClock()
    rows: dict[str, dict[str, Any]] = {"a": {"sleep_until": from_ms(clock.now)}}
    documents = MemoryDocuments(rows, clock=clock)
    (found,) = documents.lock_next(1000, 1).found
    lock = Lock("a", (found.locked_until,))
    with pytest.raises(InvalidValue, match="field"):
        documents.update([Change(lock, None, {"fine": 1, "not..fine": 2})])
    assert rows == {"a": {"sleep_until": from_ms(found.locked_until)}}
    assert documents.update([Change(lock, None, {"fine": 1})]) == [True]


def test_a_condition_that_raises_leaves_out_that_document_alone(caplog: pytest.LogCaptureFixture) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows: dict[str, dict[str, Any]] = {
        "odd": {"sleep_until": now},
        "rich": {"sleep_until": now, "total": 200},
    }
    documents = MemoryDocuments(rows, condition=lambda order: order["total"] > 100)
    assert [found.id for found in documents.lock_next(1000, 5).found] == ["rich"]
    assert "the condition raised, the document is left out: KeyError('total')" in caplog.text
