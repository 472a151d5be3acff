"""Documents in memory: cases that other stores do not have."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, date, datetime
from typing import Any

import pytest

from evenbeat import InvalidValue
from evenbeat.core.instants import from_ms
from evenbeat.documents import Change, DocumentLock, MemoryDocuments
from evenbeat.testing.clock import VirtualClock


def test_a_document_that_can_not_be_copied_blocks_no_other() -> None:
    clock = VirtualClock()
    rows: dict[str, dict[str, Any]] = {
        "a": {"schedule": {"next": from_ms(clock.now - 1)}, "guard": threading.Lock()},
        "b": {"schedule": {"next": from_ms(clock.now)}},
    }
    documents = MemoryDocuments(rows, sleep_until="schedule.next", clock=clock)
    found = documents.lock_next(1000, 5).found
    assert [(one.id, one.sleep_until) for one in found] == [("a", clock.now - 1), ("b", clock.now)]
    assert found[0].data["guard"] is rows["a"]["guard"]


def test_a_change_with_an_invalid_field_is_not_written_at_all() -> None:
    clock = VirtualClock()
    rows: dict[str, dict[str, Any]] = {"a": {"sleep_until": from_ms(clock.now)}}
    documents = MemoryDocuments(rows, clock=clock)
    (found,) = documents.lock_next(1000, 1).found
    lock = DocumentLock("a", (found.locked_until,))
    with pytest.raises(InvalidValue, match="field"):
        documents.update([Change(lock, None, {"fine": 1, "not..fine": 2})])
    assert rows == {"a": {"sleep_until": from_ms(found.locked_until)}}
    assert documents.update([Change(lock, None, {"fine": 1})]) == [True]


def test_a_condition_that_raises_leaves_out_only_that_document(caplog: pytest.LogCaptureFixture) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows: dict[str, dict[str, Any]] = {
        "odd": {"sleep_until": now},
        "rich": {"sleep_until": now, "total": 200},
    }
    documents = MemoryDocuments(rows, condition=lambda order: order["total"] > 100)
    assert [found.id for found in documents.lock_next(1000, 5).found] == ["rich"]
    assert "the condition raised an error for a document, which is left out: KeyError('total')" in caplog.text


@pytest.mark.parametrize("documents", [[], [{"sleep_until": None}], (), None, "a"])
def test_documents_that_are_not_a_dict_are_refused(documents: Any) -> None:
    with pytest.raises(
        InvalidValue, match=r"is not a dict of documents by their keys; .*enumerate"
    ) as caught:
        MemoryDocuments(documents)
    assert caught.value.field == "documents"


@pytest.mark.parametrize(("sleep_until", "interval"), [("a", "a"), ("a.b", "a"), ("a", "a.b")])
def test_the_same_field_for_two_options_is_refused(sleep_until: str, interval: str) -> None:
    with pytest.raises(InvalidValue, match="interval"):
        MemoryDocuments({}, sleep_until=sleep_until, interval=interval)
    MemoryDocuments({}, sleep_until="a.b", interval="a.bc")


@pytest.mark.parametrize("value", ["2026-03-01T09:00:00", 1_772_356_200, date(2026, 3, 1)])
def test_an_invalid_time_is_logged_once(value: object, caplog: pytest.LogCaptureFixture) -> None:
    rows = {key: {"sleep_until": value} for key in "ab"} | {"c": {"sleep_until": ""}}
    documents = MemoryDocuments(rows)
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        assert documents.lock_next(1000, 5) == documents.lock_next(1000, 5) == ([], None)
    (message,) = caplog.messages
    assert message.startswith('document "a" is never due: its sleep_until is ')
    assert message.endswith(f"; store a datetime, not a {type(value).__name__}")
