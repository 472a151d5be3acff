"""Errors about what a store keeps beside schedules and runs: tokens, limits, calendars, backfills, templates,
alerts."""

from __future__ import annotations

from evenbeat.errors import EvenbeatError, shown


class TokenNotFound(EvenbeatError):
    """There is no token with that id: it never existed, has expired or was revoked."""

    def __init__(self, token: str) -> None:
        super().__init__(f"there is no token {shown(token)}; it never existed, has expired or was revoked")
        self.token = token


class LimitNotFound(EvenbeatError):
    """There is no limit of these names. ``limit`` is its name, like ``task=charge key=customer``."""

    def __init__(self, limit: str, hint: str | None = None) -> None:
        super().__init__(f"there is no limit {shown(limit)}" + ("" if hint is None else f"; {hint}"))
        self.limit = limit
        self.hint = hint


class CalendarNotFound(EvenbeatError):
    """There is no calendar of this ``name`` and ``tenant``."""

    def __init__(self, tenant: str, name: str, hint: str | None = None) -> None:
        super().__init__(f"there is no calendar {shown(name)}" + ("" if hint is None else f"; {hint}"))
        self.tenant = tenant
        self.name = name
        self.hint = hint


class CalendarInUse(EvenbeatError):
    """The calendar ``name`` can't be deleted: ``schedules`` and ``templates`` use it."""

    def __init__(self, name: str, schedules: tuple[str, ...], templates: tuple[str, ...] = ()) -> None:
        users = [*schedules, *(f"the template {each}" for each in templates)]
        some = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
        those = "it" if len(users) == 1 else "them"
        super().__init__(f"calendar {shown(name)} is used by {some}; give {those} another trigger first")
        self.name = name
        self.schedules = schedules
        self.templates = templates


class BackfillNotFound(EvenbeatError):
    """The ``tenant`` has no ``backfill`` with that id, or none any more: it is kept for 90 days."""

    def __init__(self, tenant: str, backfill: str) -> None:
        super().__init__(
            f"there is no backfill {shown(backfill)} of {_owner(tenant)}; app.backfills.list() returns those "
            "that there are"
        )
        self.tenant = tenant
        self.backfill = backfill


class BackfillExists(EvenbeatError):
    """The id is that of another ``backfill``: of another ``schedule``, range, payload or trigger."""

    def __init__(self, tenant: str, backfill: str, schedule: str | None) -> None:
        of = "" if schedule is None else f" of schedule {shown(schedule)}"
        super().__init__(
            f"backfill {shown(backfill)}{of} exists, and is about other ticks or another payload; "
            "give another id, or none"
        )
        self.tenant = tenant
        self.backfill = backfill
        self.schedule = schedule


class RetentionRuleNotFound(EvenbeatError):
    """There is no retention rule for exactly that ``tenant`` and ``state``; None means all of them."""

    def __init__(self, tenant: str | None, state: str | None) -> None:
        runs = "ended runs" if state is None else f"{state} runs"
        super().__init__(f"there is no retention rule for {runs} of {_owner(tenant)}")
        self.tenant = tenant
        self.state = state


class QuarantineNotFound(EvenbeatError):
    """No schedule of that name, and no run with that id, is in quarantine."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(f"nothing of tenant {shown(tenant)} named {shown(name)} is in quarantine")
        self.tenant = tenant
        self.name = name


class QuarantineRefused(EvenbeatError):
    """A quarantined schedule or run can't be retried or dropped now; ``problem`` says why."""

    def __init__(self, tenant: str, name: str, problem: str, hint: str) -> None:
        super().__init__(f"{shown(name)} of tenant {shown(tenant)} stays in quarantine: {problem}; {hint}")
        self.tenant = tenant
        self.name = name
        self.problem = problem


class TenantNotFound(EvenbeatError):
    """Nothing of that tenant is in the store: no schedule, no run and no quota."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"there is no tenant {shown(tenant)}: it has no schedules, no runs and no quota")
        self.tenant = tenant


class QuotaNotFound(EvenbeatError):
    """The tenant has no quota."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"tenant {shown(tenant)} has no quota")
        self.tenant = tenant


class QuotaExceeded(EvenbeatError):
    """The tenant has as many schedules or queued runs as its quota allows. Nothing was added.

    ``what`` is ``schedules`` or ``queued_runs``, ``quota`` the number that is allowed, ``used`` how many
    there are, and ``wanted`` how many more the call asked for.
    """

    def __init__(self, tenant: str, what: str, quota: int, used: int, wanted: int = 1) -> None:
        words = what.replace("_", " ")
        self.hint = (
            "delete some of its schedules, or raise the quota"
            if what == "schedules"
            else "try again when some have run, cancel some, or raise the quota"
        )
        super().__init__(
            f"tenant {shown(tenant)} has {used:,} {words}, and its quota is {quota:,}: "
            f"{wanted:,} more {'is' if wanted == 1 else 'are'} too many; {self.hint}"
        )
        self.tenant = tenant
        self.what = what
        self.quota = quota
        self.used = used
        self.wanted = wanted


class AlertNotFound(EvenbeatError):
    """There is no alert rule, channel, window or delivery of that name or id.

    ``kind`` is ``rule``, ``channel``, ``window`` or ``delivery``; a ``tenant`` of None means all tenants.
    """

    def __init__(self, kind: str, tenant: str | None, name: str, hint: str | None = None) -> None:
        problem = f"there is no alert {kind} {shown(name)} of {_owner(tenant)}"
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.kind = kind
        self.tenant = tenant
        self.name = name


class AlertExists(EvenbeatError):
    """``add`` was called with the name of an alert rule, channel or window that exists already."""

    def __init__(self, kind: str, tenant: str | None, name: str) -> None:
        super().__init__(
            f"alert {kind} {shown(name)} of {_owner(tenant)} exists already; choose another name, or "
            + ("delete it first" if kind == "window" else "update it")
        )
        self.kind = kind
        self.tenant = tenant
        self.name = name


class AlertChanged(EvenbeatError):
    """The alert rule or channel does not have the revision that the caller expected. Nothing was done.

    ``expected`` is the caller's revision, ``found`` the present one.
    """

    def __init__(self, kind: str, tenant: str | None, name: str, expected: int, found: int) -> None:
        super().__init__(
            f"alert {kind} {shown(name)} of {_owner(tenant)} has revision {found}, not {expected}: it was "
            "changed meanwhile; read it again"
        )
        self.kind = kind
        self.tenant = tenant
        self.name = name
        self.expected = expected
        self.found = found


class ChannelInUse(EvenbeatError):
    """The alert channel can't be deleted: ``rules`` announce on it."""

    def __init__(self, tenant: str | None, name: str, rules: list[str]) -> None:
        named = ", ".join(rules[:5]) + (f" and {len(rules) - 5} more" if len(rules) > 5 else "")
        super().__init__(
            f"alert channel {shown(name)} of {_owner(tenant)} is used by the rules {named}; "
            "update or delete these first"
        )
        self.tenant = tenant
        self.name = name
        self.rules = rules


class TemplateNotFound(EvenbeatError):
    """There is no template of that name: neither of the tenant nor built in."""

    def __init__(self, tenant: str, name: str, hint: str | None = None) -> None:
        words = f"there is no template {shown(name)} of tenant {shown(tenant)}"
        super().__init__(words + ("" if hint is None else f"; {hint}"))
        self.tenant = tenant
        self.name = name
        self.hint = hint


class TemplateInUse(EvenbeatError):
    """The template can't be deleted: ``schedules`` inherit from it."""

    def __init__(self, tenant: str, name: str, schedules: list[str]) -> None:
        named = ", ".join(schedules[:5])
        named += f" and {len(schedules) - 5:,} more" if len(schedules) > 5 else ""
        super().__init__(
            f"template {shown(name)} of tenant {shown(tenant)} is used by {named}; give these schedules "
            "another template, or none, first"
        )
        self.tenant = tenant
        self.name = name
        self.schedules = schedules


def _owner(tenant: str | None) -> str:
    return "all tenants" if tenant is None else f"tenant {shown(tenant)}"
