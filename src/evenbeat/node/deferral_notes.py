"""Notes that say why a schedule does not fire now: ``why``, attention, ``doctor`` and alerts read them."""

from __future__ import annotations

from contextlib import suppress

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.errors import RowRefused, StoreUnavailable
from evenbeat.rules.firing import DEFERRED
from evenbeat.rules.refusals import NOTE
from evenbeat.stores.base import Store


def write_note(store: Store, key: tuple[str, str], reason: str, now: Instant) -> None:
    """Write the note of a schedule. It expires unless it is written again."""
    with suppress(StoreUnavailable, RowRefused):
        present = store.get_record(NOTE, *key)
        tenant, name = key
        note = Record(
            kind=NOTE,
            tenant=tenant,
            key=name,
            body=reason,
            version=1 if present is None else present.version + 1,
            expires=now + 2 * DEFERRED,
        )
        # If two nodes write their notes at once, either note is good.
        store.put_record(note, None if present is None else present.version)


def delete_note(store: Store, key: tuple[str, str]) -> None:
    """Delete the note of a schedule that fires again."""
    with suppress(StoreUnavailable, RowRefused):
        present = store.get_record(NOTE, *key)
        if present is not None:
            store.delete_record(NOTE, *key, present.version)
