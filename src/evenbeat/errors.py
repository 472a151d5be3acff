"""Every error Evenbeat raises on purpose: one root, and the facts as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_SHOWN = 80
# What an error keeps of a refused text: all of any that could have been accepted.
_KEPT = 1000


def shown(value: object) -> str:
    """``value`` as an error message quotes it: escaped, in double quotes if it is text, and never long."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        # repr escapes control characters, so a hostile text cannot rewrite the reader's terminal.
        return '"' + repr(text)[1:-1].replace('"', '\\"') + '"'
    try:
        text = repr(value)
    except Exception:  # an int of more than 4300 digits refuses to be written; others may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class EvenbeatError(Exception):
    """The root: ``except EvenbeatError`` catches whatever Evenbeat reports."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # Arguments of errors are facts, not messages; a copy, or a pool of processes, needs both.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[EvenbeatError], args: tuple[object, ...], facts: dict[str, object]) -> EvenbeatError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidValue(EvenbeatError, ValueError):
    """A value was refused.

    ``field`` names it, ``value`` is it, ``problem`` says what is wrong and ``hint`` what to do.
    """

    def __init__(self, problem: str, *, field: str, value: object, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.problem = problem
        self.field = field
        self.value = value[:_SHOWN] if isinstance(value, str) else value
        self.hint = hint


class UnknownZone(InvalidValue):
    """This machine has no time zone of that name.

    Another machine may have it: time-zone data differ from one installation to the next.
    """


class InvalidTrigger(InvalidValue):
    """The text of a trigger was refused.

    ``text`` is the whole expression, ``field`` the part of it (``"minute"``), ``value`` what stood
    there, ``position`` its index in the text, ``allowed`` the range that would have been accepted.
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
        # For who shows the text beside it.
        self.problem = problem[2:] if problem.startswith(": ") else f"the expression{problem}"
        self._predicate = problem
        self.text = text[:_KEPT]
        self.position = position
        self.allowed = allowed

    def within(self, text: str, hint: str | None) -> InvalidTrigger:
        """The same of a longer text, in which what was refused stands at the same position."""
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
    """A user's module raised when it was imported; ``trace`` is its traceback, as Python shows it."""

    def __init__(self, module: str, trace: str) -> None:
        super().__init__(f"{module} raised when it was imported\n\n{trace}")
        self.module = module
        self.trace = trace


class ScheduleExists(EvenbeatError):
    """``add`` of a name that is taken."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} exists already; "
            "declare it to have it so whatever is there, or change it"
        )
        self.tenant = tenant
        self.name = name


class ScheduleNotFound(EvenbeatError):
    """There is no schedule of that name, or not any more."""

    def __init__(self, tenant: str, name: str, hint: str | None = None) -> None:
        said = f"there is no schedule {shown(name)} of tenant {shown(tenant)}"
        super().__init__(said if hint is None else f"{said}; {hint}")
        self.tenant = tenant
        self.name = name


class DamagedSchedule(EvenbeatError):
    """The stored row of a schedule can't be read, so what was asked for can't be decided.

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
    """The store did not answer, or could not. Whether the call took effect is not known: repeat it."""


class TooLarge(EvenbeatError):
    """The database refused the size of a call: nothing was written. Repeat it in smaller parts."""


class SchemaTooNew(EvenbeatError):
    """The database was upgraded by a newer version of Evenbeat, which this one can't work with."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database has schema {found}, this version of Evenbeat knows {known}; upgrade Evenbeat"
        )
        self.found = found
        self.known = known


class RunNotFound(EvenbeatError):
    """There is no run of that id: it never was, or its history was purged."""

    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {shown(run)}; it never was, or its history was purged")
        self.run = run


class RunExists(EvenbeatError):
    """The ``id`` that was given for a run is that of another one: of another task, schedule or tenant.

    ``run`` is the id. Ids are shared by all tasks and tenants of a store.
    """

    def __init__(self, run: str, whose: str) -> None:
        super().__init__(
            f"id {shown(run)} is taken by a run of {whose}, so nothing was added for it; "
            "all tasks and tenants share ids: put what tells them apart into the id"
        )
        self.run = run
        self.whose = whose


class RunRefused(EvenbeatError):
    """A wish about a run or a schedule that its state or its policies don't allow now."""

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


class LockHeld(EvenbeatError):
    """Somebody else holds the named lock: ``holder``, since ``created_at``, with their ``description``.

    Where the lock was let go of before it could be looked at, the holder is ``somebody``.
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
    """The lock of a document ended, or others changed its ``sleep_until``, while it was processed: its end is
    not written. ``document`` is its id."""

    def __init__(self, document: object) -> None:
        super().__init__(
            f"document {shown(document)} is not locked by us any more; its result is not written, "
            "and it may be processed again"
        )
        self.document = document


class ScheduleConflict(EvenbeatError):
    """Others changed the schedule each time between reading and writing it; nothing was done: try again."""

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(
            f"schedule {shown(name)} of tenant {shown(tenant)} kept changing under this write; try again"
        )
        self.tenant = tenant
        self.name = name
