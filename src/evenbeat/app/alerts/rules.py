"""``app.alerts.rules``: which conditions are announced, of which schedules, on which channels."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeAlias, TypedDict, Unpack

from msgspec.structs import replace

from evenbeat.app.alerts.named import Found, NamedRecords, owner_from
from evenbeat.app.session import AppSession
from evenbeat.core.alerts import AlertRule
from evenbeat.core.audits import AuditAction
from evenbeat.core.awaitable import twin
from evenbeat.core.instants import Instant, Moment, from_ms, read_moment
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.alert_definitions import check_end, read_rule
from evenbeat.rules.alert_records import StoredChannel, StoredRule
from evenbeat.tasks.options import refuse_unknown

# Inside the class, ``list`` is a method.
RuleList: TypeAlias = list[AlertRule]

FIELDS = ("on", "to", "schedule", "tag", "recovery")


class RuleChanges(TypedDict, total=False):
    """The fields of a rule that may change."""

    on: str | Iterable[str]
    to: str | Iterable[str]
    schedule: str | None
    tag: str | None
    recovery: bool


class AlertRules:
    """The alert rules of a scheduler; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own; ``all_tenants=True`` means rules that cover all tenants.
    Changes take ``if_revision``, the revision of the rule as the caller read it: ``AlertChanged`` if it has
    another one by now.
    """

    def __init__(
        self, session: AppSession, rules: NamedRecords[StoredRule], channels: NamedRecords[StoredChannel]
    ) -> None:
        self._session = session
        self._rules = rules
        self._channels = channels

    def add(
        self,
        name: str,
        *,
        on: str | Iterable[str],
        to: str | Iterable[str],
        schedule: str | None = None,
        tag: str | None = None,
        recovery: bool = True,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> AlertRule:
        """Create a rule; ``AlertExists`` if the name is taken.

        ``on`` are conditions (``failed``, ``failing:3``, ``late:10m``, …), ``to`` names of channels. Without
        ``schedule`` and ``tag``, the rule covers all schedules, and runs without a schedule. ``recovery``
        also announces the end of what was announced.
        """
        owner = owner_from(self._session, tenant, all_tenants)
        wanted = read_rule(
            on, to, schedule=schedule, tag=tag, recovery=recovery, for_all_tenants=owner is None
        )
        _check_channels(self._channels, owner, wanted)
        return self._view(self._rules.create(owner, name, wanted))

    def declare(
        self,
        name: str,
        *,
        on: str | Iterable[str],
        to: str | Iterable[str],
        schedule: str | None = None,
        tag: str | None = None,
        recovery: bool = True,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> AlertRule:
        """Create the rule, or update it to match. A mute stays; edits by hand do not."""
        owner = owner_from(self._session, tenant, all_tenants)
        wanted = read_rule(
            on, to, schedule=schedule, tag=tag, recovery=recovery, for_all_tenants=owner is None
        )
        return self._view(write_rule(self._rules, self._channels, owner, name, wanted))

    def get(self, name: str, *, tenant: str | None = None, all_tenants: bool = False) -> AlertRule:
        """Return the rule of that name; ``AlertNotFound`` if there is none."""
        return self._view(self._rules.get(owner_from(self._session, tenant, all_tenants), name))

    def list(self, *, tenant: str | None = None, all_tenants: bool = False) -> list[AlertRule]:
        """Return the rules of a tenant, by name; with ``all_tenants``, the rules of all owners: first those
        that cover all tenants, then by tenant and name."""
        owner = owner_from(self._session, tenant, all_tenants)
        return list(map(self._view, self._rules.everywhere() if owner is None else self._rules.of(owner)))

    def update(
        self,
        name: str,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
        **changed: Unpack[RuleChanges],
    ) -> AlertRule:
        """Change some fields of a rule; the others, and its mute, stay."""
        refuse_unknown(changed, FIELDS, "an alert rule")
        owner = owner_from(self._session, tenant, all_tenants)

        def decide(present: StoredRule) -> StoredRule:
            before = {field: getattr(present, field) for field in FIELDS}
            wanted = read_rule(**{**before, **changed}, for_all_tenants=owner is None)
            if "to" in changed:
                _check_channels(self._channels, owner, wanted)
            return _with_fields(present, wanted, present.managed_by)

        return self._view(self._rules.change(owner, name, "update", if_revision, decide))

    def delete(
        self,
        name: str,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
    ) -> None:
        """Delete a rule: its open incidents end without an announcement."""
        self._rules.delete(owner_from(self._session, tenant, all_tenants), name, if_revision)

    def mute(
        self,
        name: str,
        until: Moment,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
    ) -> AlertRule:
        """Announce nothing before ``until``. What is still wrong then is announced then."""
        now = self._session.store().now()
        end = read_moment(until, "until", now)
        check_end(end, now)
        return self._mute(name, end, owner_from(self._session, tenant, all_tenants), if_revision)

    def unmute(
        self,
        name: str,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
    ) -> AlertRule:
        """End the mute of a rule: what is wrong now is announced now."""
        return self._mute(name, None, owner_from(self._session, tenant, all_tenants), if_revision)

    def _mute(
        self, name: str, until: Instant | None, owner: str | None, if_revision: int | None
    ) -> AlertRule:
        action: AuditAction = "unmute" if until is None else "mute"
        return self._view(
            self._rules.change(
                owner, name, action, if_revision, lambda rule: replace(rule, muted_until=until)
            )
        )

    def _view(self, found: Found[StoredRule]) -> AlertRule:
        rule, now = found.body, self._session.store().now()
        is_muted = rule.muted_until is not None and rule.muted_until > now
        return AlertRule(
            name=found.name,
            tenant=found.owner,
            on=rule.on,
            to=rule.to,
            schedule=rule.schedule,
            tag=rule.tag,
            recovery=rule.recovery,
            muted_until=from_ms(rule.muted_until) if is_muted and rule.muted_until is not None else None,
            managed_by=rule.managed_by,
            revision=rule.revision,
        )

    aadd = twin(add)
    adeclare = twin(declare)
    aget = twin(get)
    alist = twin(list)
    aupdate = twin(update)
    adelete = twin(delete)
    amute = twin(mute)
    aunmute = twin(unmute)


def _with_fields(present: StoredRule, wanted: StoredRule, managed_by: str) -> StoredRule:
    return replace(present, **{field: getattr(wanted, field) for field in FIELDS}, managed_by=managed_by)


def write_rule(
    rules: NamedRecords[StoredRule],
    channels: NamedRecords[StoredChannel],
    owner: str | None,
    name: str,
    wanted: StoredRule,
) -> Found[StoredRule]:
    """Create the rule, or update it to match; a mute stays."""
    _check_channels(channels, owner, wanted)

    def merge(present: StoredRule | None) -> StoredRule:
        return wanted if present is None else _with_fields(present, wanted, wanted.managed_by)

    return rules.declare(owner, name, merge)


def _check_channels(channels: NamedRecords[StoredChannel], owner: str | None, rule: StoredRule) -> None:
    known = [each.name for each in channels.of(owner)]
    for name in rule.to:
        if name not in known:
            whose = "all tenants" if owner is None else f"tenant {shown(owner)}"
            raise InvalidValue(
                f"to {shown(name)} is not an alert channel of {whose}",
                field="to",
                value=name,
                hint=_suggestion(name, known, owner),
            )


def _suggestion(name: str, known: list[str], owner: str | None) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    if known:
        return f"there are {', '.join(known[:10])}"
    if owner is None:
        return "a rule of all tenants has channels of its own: add one with all_tenants=True"
    return "there are none yet: add one first"
