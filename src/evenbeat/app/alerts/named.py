"""Alert rules, channels and windows as records: by owner and name, changed by compare-and-set, audited."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from evenbeat.app.audit import write_audited
from evenbeat.app.session import AppSession
from evenbeat.core.alerts import MOST_RULES
from evenbeat.core.audits import AuditAction
from evenbeat.core.checks import check_name
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.record_errors import AlertChanged, AlertExists, AlertNotFound
from evenbeat.rules.alert_definitions import hidden
from evenbeat.rules.alert_records import (
    StoredChannel,
    StoredRule,
    StoredWindow,
    owner_of,
    read_body,
    read_scoped_key,
    scoped_key,
)
from evenbeat.rules.auditing import Change

B = TypeVar("B", StoredRule, StoredChannel, StoredWindow)
# How often a change is tried while others change the same record.
_TRIES = 20


class Found(NamedTuple, Generic[B]):
    """A rule, channel or window."""

    owner: str | None
    """None: all tenants."""
    name: str
    body: B
    record: Record


class NamedRecords(Generic[B]):
    """The rules, the channels or the windows of a store. Each change has an entry in the audit.

    A record that can't be read counts as missing; creating or deleting its name replaces it.
    """

    def __init__(
        self, session: AppSession, kind: str, body: type[B], facts: Callable[[B], dict[str, Any]]
    ) -> None:
        self._session = session
        self._kind = kind
        self._body: type[B] = body
        self._facts: Callable[[B], dict[str, Any]] = facts

    @property
    def word(self) -> str:
        """``rule``, ``channel`` or ``window``."""
        return self._kind.removeprefix("alert_")

    def of(self, owner: str | None) -> list[Found[B]]:
        """Return those of one owner, by name."""
        prefix = scoped_key(owner, "")
        records = self._session.store().find_records(
            self._kind, owner_of(owner), start=prefix, end=prefix[:-1] + "0"
        )
        return list(self._read(records))

    def everywhere(self) -> list[Found[B]]:
        """Return those of all owners: first those of all tenants, then by tenant and name."""
        found = self._read(self._session.store().find_records(self._kind))
        return sorted(found, key=lambda each: (each.owner is not None, each.owner or "", each.name))

    def get(self, owner: str | None, name: str) -> Found[B]:
        """Return one; ``AlertNotFound``, with the nearest name, if there is none."""
        record = self._record(owner, name)
        found = None if record is None else next(self._read([record]), None)
        if found is None:
            raise AlertNotFound(self.word, owner, name, self._nearest(owner, name))
        return found

    def create(self, owner: str | None, name: str, body: B, expires: Instant | None = None) -> Found[B]:
        """Write a new one; ``AlertExists`` if the name is taken."""
        check_name(name, "name")
        if len(self.of(owner)) >= MOST_RULES:
            raise InvalidValue(
                f"name {shown(name)} would be {self.word} {MOST_RULES + 1:,}",
                field="name",
                value=name,
                hint=f"at most {MOST_RULES:,}: delete those that nobody needs",
            )
        present = self._record(owner, name)
        if present is not None and next(self._read([present]), None) is not None:
            raise AlertExists(self.word, owner, name)
        if not self._put(owner, name, body, present, "add", ({}, self._facts(body)), expires):
            raise AlertExists(self.word, owner, name)
        return self.get(owner, name)

    def declare(self, owner: str | None, name: str, merge: Callable[[B | None], B]) -> Found[B]:
        """Create it, or change it to what ``merge`` makes of it. A declaration that changes nothing leaves no
        entry in the audit."""
        check_name(name, "name")
        for _ in range(_TRIES):
            present = self._record(owner, name)
            found = None if present is None else next(self._read([present]), None)
            wanted = merge(None if found is None else found.body)
            if found is not None and wanted == found.body:
                return found
            before = {} if found is None else self._facts(found.body)
            if self._put(owner, name, wanted, present, "declare", (before, self._facts(wanted))):
                return self.get(owner, name)
        raise self._kept_changing(name)

    def change(
        self,
        owner: str | None,
        name: str,
        action: AuditAction,
        if_revision: int | None,
        decide: Callable[[B], B],
    ) -> Found[B]:
        """Apply ``decide``; a change that changes nothing is not written."""
        for _ in range(_TRIES):
            found = self.get(owner, name)
            self._check_revision(found, if_revision)
            wanted = decide(found.body)
            if wanted == found.body:
                return found
            facts = self._facts(found.body), self._facts(wanted)
            if self._put(owner, name, wanted, found.record, action, facts):
                return self.get(owner, name)
        raise self._kept_changing(name)

    def delete(self, owner: str | None, name: str, if_revision: int | None) -> None:
        store = self._session.store()
        for _ in range(_TRIES):
            record = self._record(owner, name)
            if record is None:
                raise AlertNotFound(self.word, owner, name, self._nearest(owner, name))
            found = next(self._read([record]), None)
            if found is not None:
                self._check_revision(found, if_revision)
            change = self._change(owner, name, "delete", {} if found is None else self._facts(found.body), {})
            if self._write(
                change, partial(store.delete_record, record.kind, record.tenant, record.key, record.version)
            ):
                return
        raise self._kept_changing(name)

    def note(self, owner: str | None, name: str, action: AuditAction) -> None:
        """Write an entry in the audit about something that changes no field."""
        self._write(self._change(owner, name, action, {}, {}), lambda: True)

    def _record(self, owner: str | None, name: str) -> Record | None:
        return self._session.store().get_record(self._kind, owner_of(owner), scoped_key(owner, name))

    def _read(self, records: list[Record]) -> Iterator[Found[B]]:
        for record in records:
            body = read_body(record, self._body)
            if body is not None:
                yield Found(*read_scoped_key(record), body, record)

    def _nearest(self, owner: str | None, name: str) -> str | None:
        near = get_close_matches(name, [each.name for each in self.of(owner)], n=1, cutoff=0.6)
        return f"did you mean {near[0]}?" if near else None

    def _kept_changing(self, name: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"alert {self.word} {shown(name)} kept changing while it was written; try again"
        )

    def _check_revision(self, found: Found[B], if_revision: int | None) -> None:
        present = getattr(found.body, "revision", 1)
        if if_revision is not None and present != if_revision:
            raise AlertChanged(self.word, found.owner, found.name, if_revision, present)

    def _put(
        self,
        owner: str | None,
        name: str,
        body: B,
        present: Record | None,
        action: AuditAction,
        facts: tuple[dict[str, Any], dict[str, Any]],
        expires: Instant | None = None,
    ) -> bool:
        store = self._session.store()
        record = Record(
            kind=self._kind,
            tenant=owner_of(owner),
            key=scoped_key(owner, name),
            body=encode(_revised(body, present, store.now())),
            version=secrets.randbits(53),
            expires=expires,
        )
        expect = None if present is None else present.version
        return self._write(
            self._change(owner, name, action, *facts), lambda: store.put_record(record, expect)
        )

    def _change(
        self, owner: str | None, name: str, action: AuditAction, before: dict[str, Any], after: dict[str, Any]
    ) -> Change:
        if before and after:
            differs = [field for field, value in after.items() if value != before[field]]
            before = {field: before[field] for field in differs}
            after = {field: after[field] for field in differs}
        else:
            before, after = _given(before), _given(after)
        before, after = hidden(before), hidden(after)
        if owner is None:
            # The record is with the default tenant, whose business it is not.
            (before if action == "delete" else after)["all_tenants"] = True
        return Change(self._kind, name, owner_of(owner), action, before, after)

    def _write(self, change: Change, write: Callable[[], bool]) -> bool:
        """Write the entry of the audit, and then the change. If another change came first, remove the entry.

        If the process dies in between, an entry names a change that did not take effect: better than a change
        of which nobody knows the origin.
        """
        return write_audited(self._session.store(), change, write)


def owner_from(session: AppSession, tenant: str | None, all_tenants: bool) -> str | None:
    """Return the owner that a call names; None: all tenants."""
    if all_tenants and tenant is not None:
        raise InvalidValue(
            f"tenant {shown(tenant)} and all_tenants are both given",
            field="tenant",
            value=tenant,
            hint="leave one of them out",
        )
    return None if all_tenants else session.tenant_of(tenant)


def _given(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _revised(body: B, present: Record | None, now: Instant) -> B:
    """Return the body as it is written: with the next revision and its times, where it has these."""
    if isinstance(body, StoredWindow):
        return body
    if present is None or not body.created_at:
        return replace(body, revision=1, created_at=now, updated_at=now)
    return replace(body, revision=body.revision + 1, updated_at=now)
