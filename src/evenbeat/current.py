"""What a task sees of the run it executes: a parameter annotated ``Run`` gets it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from evenbeat import model
from evenbeat.errors import RunCancelled
from evenbeat.instants import from_ms


class Run:
    """The run that a task executes, as the task sees it.

    A function that has a parameter with this annotation gets it; where types are checked, as the first
    one: ``def digest(run: Run, team: str)``.
    """

    __slots__ = ("_asked", "_held", "_log", "_record")

    def __init__(
        self,
        record: model.Run,
        *,
        held: Callable[[], bool | None] = lambda: True,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._record = record
        self._held = held
        self._log = log
        self._asked: str | None = None

    @property
    def id(self) -> str:
        """The same for all attempts, and never used again: the idempotency key."""
        return self._record.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._record.task

    @property
    def tenant(self) -> str:
        """Whose run it is."""
        return self._record.tenant

    @property
    def schedule(self) -> str | None:
        """The name of its schedule; None if it was enqueued by hand."""
        return self._record.schedule

    @property
    def tick(self) -> datetime | None:
        """The tick that this run is of: its nominal instant, however late it starts."""
        return None if self._record.tick is None else from_ms(self._record.tick)

    @property
    def scheduled_at(self) -> datetime:
        """When it was to start: its tick with its share of the spread, else the time it was enqueued for.

        The same for every attempt.
        """
        return from_ms(self._record.scheduled_at)

    @property
    def cause(self) -> model.Cause:
        """What made it: a tick, a trigger by hand, a backfill, or enqueueing."""
        return self._record.cause

    @property
    def coalesced(self) -> int:
        """How many missed ticks it stands for besides its own."""
        return self._record.coalesced

    @property
    def attempt(self) -> int:
        """Grows with each try: pass it on to what must refuse latecomers (the fencing token)."""
        return self._record.attempt

    token = attempt

    @property
    def failures(self) -> int:
        """How many attempts have failed before."""
        return self._record.failures

    @property
    def priority(self) -> int:
        """0 to 9: higher first."""
        return self._record.priority

    @property
    def queue(self) -> str:
        """The queue that it waited in."""
        return self._record.queue

    @property
    def payload(self) -> Any:
        """The named arguments as they were stored: JSON, not converted by the function's annotations."""
        return model.from_json(self._record.payload)

    @property
    def stored_payload(self) -> str:
        """For workers: the same as JSON text."""
        return self._record.payload

    @property
    def cancel_requested(self) -> bool:
        """Whether it should end soon: it was cancelled, timed out, lost, or the worker stops."""
        return self._asked is not None

    def check(self) -> None:
        """Raise ``RunCancelled`` if this run should end. Call it between the steps of long work.

        A store that doesn't answer is not a reason to end: the run goes on until another worker is known to
        have it.
        """
        if self._asked is None and self._held() is False:
            self.ask_to_end("lost")
        if self._asked is not None:
            raise RunCancelled(self._asked)

    def still_mine(self) -> bool:
        """Whether the lease is held, so that nobody else executes this run.

        Ask before an effect that must not happen twice. Where the lease was not renewed in time, the store is
        asked; False if it doesn't answer.
        """
        return self.is_held() is True

    def is_held(self) -> bool | None:
        """For workers: as ``still_mine``, and None where nobody can say."""
        return False if self._asked == "lost" else self._held()

    def log(self, text: str) -> None:
        """Add a line to the log that is kept with the run. Log records of ``logging`` are kept as well."""
        self._log(text)

    def ask_to_end(self, reason: str) -> None:
        """For workers: the first reason counts, except that a lost lease outweighs any other."""
        if self._asked is None or reason == "lost":
            self._asked = reason

    @property
    def asked(self) -> str | None:
        """The reason for which it was asked to end."""
        return self._asked

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.task}, attempt {self.attempt}>"
