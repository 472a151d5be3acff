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
    """The store has no schedule of that name, or it was deleted.

    ``is_row`` says that only a row is missing: a schedule that is in the code only has none.
    """

    def __init__(self, tenant: str, name: str, hint: str | None = None, *, is_row: bool = False) -> None:
        what = "row of schedule" if is_row else "schedule"
        problem = f"there is no {what} {shown(name)} of tenant {shown(tenant)}"
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.tenant = tenant
        self.name = name
        self.hint = hint


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


class RowRefused(InvalidValue):
    """The database refuses a row because of its values: by a constraint, a trigger or a validator. Nothing of
    the call was written.

    ``reason`` is the message of the database.
    """

    def __init__(self, reason: str, words: str = "the database refused a row") -> None:
        super().__init__(f"{words}: {reason}", field="row", value=None)
        self.reason = reason


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
