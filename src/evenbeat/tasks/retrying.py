"""``Retry``, which a task raises to run again later, and the errors after which a run is retried or fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from evenbeat.core.durations import Duration, read_duration
from evenbeat.errors import InvalidValue, shown

LONGEST_REASON = 500
"""So many characters are kept of the reason of a ``Retry``."""

ErrorClasses: TypeAlias = type[BaseException] | Iterable[type[BaseException]]


class Retry(Exception):
    """Raise it inside a task to run the task again after a time: ``raise Retry(after="30s")``.

    The attempt is recorded as handed back, with the reason. It is not a failure: it does not use up
    ``retries``, and statistics do not count it as an error. A task may do so for ever, unless the run has
    ``expires``. Of a long reason, the first 500 characters are kept.
    """

    def __init__(self, after: Duration, reason: str = "") -> None:
        ms = read_duration(after, "after")
        if ms < 1:
            raise InvalidValue(
                f"after {shown(after)} is less than 1ms",
                field="after",
                value=after,
                hint='say when to run again: Retry(after="30s")',
            )
        if not isinstance(reason, str):
            raise InvalidValue(f"reason {shown(reason)} is not a text", field="reason", value=reason)
        # Often the text of an error. Refusing it here would replace the Retry by a failure.
        reason = reason[:LONGEST_REASON].encode(errors="replace").decode()
        super().__init__(reason or "the task asked to run again")
        self.after = ms
        """Milliseconds until the next attempt."""
        self.reason = reason


class RetryRule(NamedTuple):
    """The errors after which a run is retried, or fails at once. Subclasses count."""

    retry_on: tuple[type[BaseException], ...] | None = None
    """None: every error that ``give_up_on`` does not name."""
    give_up_on: tuple[type[BaseException], ...] = ()

    def refusal(self, error: BaseException) -> str | None:
        """Return why a run that raised this error is not retried; None if it may be."""
        if isinstance(error, self.give_up_on):
            named = next(each for each in self.give_up_on if isinstance(error, each))
            return f"give_up_on names {named.__name__}"
        if self.retry_on is not None and not isinstance(error, self.retry_on):
            return f"retry_on names only {', '.join(each.__name__ for each in self.retry_on)}"
        return None


ALWAYS = RetryRule()
"""Every error may be retried."""


def read_retry_rule(retry_on: ErrorClasses | None, give_up_on: ErrorClasses | None) -> RetryRule:
    """Return the rule of a task's options; ``InvalidValue`` for what is not an exception class."""
    if retry_on is None and give_up_on is None:
        return ALWAYS
    return RetryRule(
        None if retry_on is None else _read_classes("retry_on", retry_on),
        () if give_up_on is None else _read_classes("give_up_on", give_up_on),
    )


def _read_classes(field: str, value: ErrorClasses) -> tuple[type[BaseException], ...]:
    hint = f"give exception classes: {field}=(ConnectionError, TimeoutError)"
    is_many = isinstance(value, Iterable) and not isinstance(value, str | type)
    found = tuple(value) if is_many and isinstance(value, Iterable) else (value,)
    for each in found:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidValue(
                f"{field} has {shown(each)}, which is not an exception class",
                field=field,
                value=each,
                hint=hint,
            )
    if not found:
        raise InvalidValue(
            f"{field} is empty",
            field=field,
            value=value,
            hint=f"leave it out, or {hint.removeprefix('give ')}",
        )
    return found  # type: ignore[return-value]  # checked above
