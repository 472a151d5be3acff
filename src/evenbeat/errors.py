"""Every error that Evenbeat raises on purpose: one root class, and the facts as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_SHOWN = 80
# How much of a refused text an error keeps: more than any text that is accepted.
_KEPT = 1000


def shown(value: object) -> str:
    """Return ``value`` as error messages quote it: escaped, in double quotes if it is text, never long."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        # repr escapes control characters, so a hostile text cannot rewrite the reader's terminal.
        return '"' + repr(text)[1:-1].replace('"', '\\"') + '"'
    try:
        text = repr(value)
    except Exception:  # an int of more than 4300 digits can't be written; other types may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class EvenbeatError(Exception):
    """The root class: ``except EvenbeatError`` catches every error that Evenbeat raises on purpose."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # The constructors take facts and make the message; a copy or a pickle needs both.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[EvenbeatError], args: tuple[object, ...], facts: dict[str, object]) -> EvenbeatError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidValue(EvenbeatError, ValueError):
    """A value was refused.

    ``field`` is its name, ``problem`` says what is wrong, and ``hint`` what to do.
    """

    def __init__(self, problem: str, *, field: str, value: object, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.problem = problem
        self.field = field
        self.value = value[:_SHOWN] if isinstance(value, str) else value
        self.hint = hint


class UnknownZone(InvalidValue):
    """This machine has no time zone of that name.

    Another machine may have it: installations differ in their time-zone data.
    """


class InvalidTrigger(InvalidValue):
    """The text of a trigger was refused.

    ``text`` is the whole expression, ``field`` the part of it (``"minute"``), ``value`` the refused text of
    that part, ``position`` its index in ``text``, ``allowed`` the range that is accepted.
    """

    def __init__(
        self,
        text: str,
        problem: str,
        *,
        field: str,
        value: object,
        position: int = 0,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(f"{shown(text)}{problem}", field=field, value=value, hint=hint)
        # For output that shows the text next to the problem.
        self.problem = problem[2:] if problem.startswith(": ") else f"the expression{problem}"
        self._predicate = problem
        self.text = text[:_KEPT]
        self.position = position
        self.allowed = allowed

    def within(self, text: str, hint: str | None) -> InvalidTrigger:
        """Return the same error for a longer text that has the refused part at the same position."""
        return InvalidTrigger(
            text,
            self._predicate,
            field=self.field,
            value=self.value,
            position=self.position,
            allowed=self.allowed,
            hint=hint,
        )


class UnknownTriggerZone(InvalidTrigger, UnknownZone):
    """A trigger whose time zone this machine does not have."""


class AppImportError(EvenbeatError):
    """Importing a user's module raised an error; ``trace`` is the traceback as Python shows it."""

    def __init__(self, module: str, trace: str) -> None:
        super().__init__(f"{module} raised when it was imported\n\n{trace}")
        self.module = module
        self.trace = trace


class ScheduleExists(EvenbeatError):
    """``add`` was called with a name that is taken."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} exists already; "
            "declare() it to update it to match, or update() it"
        )
        self.tenant = tenant
        self.name = name


class ScheduleNotFound(EvenbeatError):
    """The tenant has no schedule of that name, or it was deleted."""

    def __init__(self, tenant: str, name: str, hint: str | None = None) -> None:
        problem = f"there is no schedule {shown(name)} of tenant {shown(tenant)}"
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.tenant = tenant
        self.name = name


class ScheduleChanged(EvenbeatError):
    """The schedule does not have the revision that the caller expected: another write came first.

    Nothing was done. ``expected`` is the caller's revision, ``found`` the present one.
    """

    def __init__(self, tenant: str, name: str, expected: int, found: int) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} has revision {found}, not {expected}: it was "
            "changed meanwhile; read it again"
        )
        self.tenant = tenant
        self.name = name
        self.expected = expected
        self.found = found


class DamagedSchedule(EvenbeatError):
    """The stored row of a schedule can't be read, so the call can't decide anything by it.

    ``damage`` says what is wrong with it.
    """

    def __init__(self, tenant: str, name: str, damage: str) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} can't be read: {damage}; "
            "declare or update it (what can't be read gets its default), or delete it"
        )
        self.tenant = tenant
        self.name = name
        self.damage = damage


class ScheduleTooNew(EvenbeatError):
    """A newer version of Evenbeat wrote the schedule, in a format that this one must not change."""

    def __init__(self, tenant: str, name: str, found: int, known: int) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} has format {found}, this version of Evenbeat "
            f"knows {known}; upgrade Evenbeat to change it"
        )
        self.tenant = tenant
        self.name = name
        self.found = found
        self.known = known


class StoreUnavailable(EvenbeatError):
    """The store did not answer. The call may or may not have taken effect: repeat it."""


class TooLarge(EvenbeatError):
    """The database refused the call because of its size, and wrote nothing. Repeat it in smaller parts."""


class SchemaTooNew(EvenbeatError):
    """A newer version of Evenbeat upgraded the database, and this version can't work with it."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database has schema {found}, this version of Evenbeat knows {known}; upgrade Evenbeat"
        )
        self.found = found
        self.known = known


class RunNotFound(EvenbeatError):
    """The tenant has no run with that id: it never existed, or its history was purged."""

    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {shown(run)}; it never existed, or its history was purged")
        self.run = run


class RunExists(EvenbeatError):
    """The ``id`` that was given for a run belongs to a run of another task, schedule or tenant.

    ``run`` is the id. All tasks and tenants of a store share ids.
    """

    def __init__(self, run: str, whose: str) -> None:
        super().__init__(
            f"id {shown(run)} is taken by a run of {whose}, so nothing was added for it; "
            "all tasks and tenants share ids: put the task or tenant into the id"
        )
        self.run = run
        self.whose = whose


class RunRefused(EvenbeatError):
    """The state or the policies of a run or a schedule do not allow the call now."""

    def __init__(self, problem: str, *, subject: str) -> None:
        super().__init__(problem)
        self.subject = subject


class RunCancelled(EvenbeatError):
    """Raised inside a task by ``run.raise_if_cancelled()``: the run was asked to stop, or its lease is lost.

    ``reason`` is ``cancelled``, ``timeout``, ``lost`` (the lease ended, another worker may have the run) or
    ``stopping`` (the worker stops and hands the run back).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the run was asked to stop: {reason}")
        self.reason = reason


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


class BackfillNotFound(EvenbeatError):
    """The ``tenant`` has no ``backfill`` with that id, or none any more: it is kept for 90 days."""

    def __init__(self, tenant: str, backfill: str) -> None:
        super().__init__(
            f"there is no backfill {shown(backfill)} of {_owner(tenant)}; "
            "app.backfills.list() and evenbeat backfills list show those that there are"
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


class LockHeld(EvenbeatError):
    """Another holder has the named lock: ``holder``, since ``created_at``, with a ``description``.

    If the lock was released before the holder could be read, ``holder`` is ``somebody``.
    """

    def __init__(
        self,
        tenant: str,
        name: str,
        holder: str = "somebody",
        description: str = "",
        created_at: datetime | None = None,
    ) -> None:
        since = "" if created_at is None else f" since {created_at.isoformat(timespec='seconds')}"
        what = f": {shown(description)}" if description else ""
        super().__init__(
            f"lock {shown(name)} of tenant {shown(tenant)} is held by {shown(holder)[1:-1]}{since}{what}"
        )
        self.tenant = tenant
        self.name = name
        self.holder = holder
        self.description = description
        self.created_at = created_at


class LockLost(EvenbeatError):
    """The named lock expired, or was deleted by hand, while its holder relied on it: others may have it."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(
            f"lock {shown(name)} of tenant {shown(tenant)} was lost while it was held: another holder may "
            "have done the same work; check it, and use a longer ttl"
        )
        self.tenant = tenant
        self.name = name


class DocumentLockLost(EvenbeatError):
    """The lock of a document expired, or its owner changed ``sleep_until``, while a handler processed it.

    The result of the handler is not written. ``document`` is the id.
    """

    def __init__(self, document: object) -> None:
        super().__init__(
            f"document {shown(document)} is not locked by us any more; its result is not written, "
            "and it may be processed again"
        )
        self.document = document


class ScheduleConflict(EvenbeatError):
    """Other writes changed the schedule each time between the read and the write. Nothing was done: retry."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} kept changing while it was written; try again"
        )
        self.tenant = tenant
        self.name = name
