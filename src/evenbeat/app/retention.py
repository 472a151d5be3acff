"""``app.retention``: how long, and how many, ended runs are kept."""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from evenbeat.app.acting import current_actor
from evenbeat.app.audit import write_audited
from evenbeat.app.session import AppSession
from evenbeat.core.audits import AuditAction
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label, check_one_of, check_whole
from evenbeat.core.durations import Duration, read_duration, write_duration
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.core.retention import (
    ENDED_STATES,
    MOST_KEPT,
    MOST_RULES,
    SHORTEST_KEEP,
    EndedState,
    RetentionRule,
)
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.record_errors import RetentionRuleNotFound
from evenbeat.rules import auditing
from evenbeat.rules import retention as rules

# Inside the class, ``list`` is a method.
RuleList: TypeAlias = list[RetentionRule]
# How often a change is tried while others change the same rule.
_TRIES = 20


class Retention:
    """The retention rules of a store; the ``a…`` twins are awaited. Nodes read them once a minute.

    For the age of a run, the most specific rule counts: tenant and state, then tenant, then state, then the
    rule for all runs, then the node's setting ``retention``.
    """

    def __init__(self, session: AppSession) -> None:
        self._session = session

    def set(
        self,
        *,
        state: EndedState | None = None,
        tenant: str | None = None,
        keep: Duration | None = None,
        most: int | None = None,
    ) -> RetentionRule:
        """Create the rule for a tenant and state, or replace it. Without ``tenant`` it is about all tenants,
        without ``state`` about all ended runs.

        ``keep``: delete runs that ended longer ago. ``most``: keep only so many runs, those that ended last;
        without a tenant, the runs of all tenants are counted together.
        """
        self._check(state, tenant)
        if keep is None and most is None:
            raise InvalidValue(
                "keep and most are both missing",
                field="keep",
                value=None,
                hint='give keep="7d", most=10_000 or both; to end a rule, remove it',
            )
        age = None if keep is None else read_duration(keep, "keep")
        if age is not None and age < SHORTEST_KEEP:
            raise InvalidValue(
                f"keep {shown(keep)} is shorter than {write_duration(SHORTEST_KEEP)}",
                field="keep",
                value=keep,
                hint="nodes look for old runs once a minute",
            )
        if most is not None:
            check_whole("most", most, 1, MOST_KEPT)
        owner, key = rules.record_place(tenant, state)
        store = self._session.store()
        for _ in range(_TRIES):
            present = store.get_record(rules.KIND, owner, key)
            if present is None:
                self._check_room(tenant)
            now = store.now()
            stored = rules.StoredRule(keep=age, most=most, updated_at=now, updated_by=current_actor().name)
            record = Record(
                kind=rules.KIND, tenant=owner, key=key, body=encode(stored), version=secrets.randbits(53)
            )
            before, after = _facts(present), _facts(record)
            change = self._change("set", tenant, state, before, after)
            expect = None if present is None else present.version
            if write_audited(store, change, partial(store.put_record, record, expect)):
                return _view(record)
        raise StoreUnavailable("the retention rule kept changing while it was written; try again")

    def list(self) -> RuleList:
        """Return the rules: first those of all tenants, then by tenant and state."""
        records = self._session.store().find_records(rules.KIND)
        found = [_view(record) for record in records if rules.read_rule(record) is not None]
        return sorted(found, key=lambda rule: (rule.tenant or "", rule.state or ""))

    def remove(self, *, state: EndedState | None = None, tenant: str | None = None) -> None:
        """Delete the rule for exactly this tenant and state; ``RetentionRuleNotFound`` if there is none."""
        self._check(state, tenant)
        owner, key = rules.record_place(tenant, state)
        store = self._session.store()
        for _ in range(_TRIES):
            record = store.get_record(rules.KIND, owner, key)
            if record is None:
                raise RetentionRuleNotFound(tenant, state)
            change = self._change("remove", tenant, state, _facts(record), {})
            if write_audited(
                store, change, partial(store.delete_record, rules.KIND, owner, key, record.version)
            ):
                return
        raise StoreUnavailable("the retention rule kept changing while it was deleted; try again")

    def _check(self, state: EndedState | None, tenant: str | None) -> None:
        if state is not None:
            check_one_of("state", state, ENDED_STATES)
        if tenant is not None:
            check_label(tenant, "tenant")

    def _check_room(self, tenant: str | None) -> None:
        if len(self._session.store().find_records(rules.KIND, limit=MOST_RULES)) >= MOST_RULES:
            raise InvalidValue(
                f"tenant {shown(tenant)} would have retention rule {MOST_RULES + 1:,} of the store",
                field="tenant",
                value=tenant,
                hint=f"at most {MOST_RULES:,}: remove rules that nobody needs, or set one for all tenants",
            )

    def _change(
        self,
        action: AuditAction,
        tenant: str | None,
        state: EndedState | None,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> auditing.Change:
        owner, key = rules.record_place(tenant, state)
        # A rule for all tenants is recorded with the default tenant, where the store keeps it.
        return auditing.Change("retention", key, owner, action, before, after)

    aset = twin(set)
    alist = twin(list)
    aremove = twin(remove)


def _facts(record: Record | None) -> dict[str, Any]:
    found = None if record is None else rules.read_rule(record)
    if found is None:
        return {}
    rule = found[0]
    facts: dict[str, Any] = {"all_tenants": True} if rule.tenant is None else {"tenant": rule.tenant}
    if rule.keep is not None:
        facts["keep"] = write_duration(rule.keep)
    if rule.most is not None:
        facts["most"] = rule.most
    return facts


def _view(record: Record) -> RetentionRule:
    found = rules.read_rule(record)
    assert found is not None
    rule, stored = found
    return RetentionRule(
        tenant=rule.tenant,
        state=rule.state,
        keep=None if rule.keep is None else timedelta(milliseconds=rule.keep),
        most=rule.most,
        words=rules.words(rule),
        updated_at=from_ms(stored.updated_at),
        updated_by=stored.updated_by,
    )
