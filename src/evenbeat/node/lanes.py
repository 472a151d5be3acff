"""Lanes: one executor each, with its tasks, its slots and the attempts that it has."""

from __future__ import annotations

from evenbeat.executors.base import Attempt, Executor

# A lane claims as many runs ahead of their start as it ends in this many seconds, at its present rate: a
# claim costs a commit, and a worker that claims ten short runs at a time does little else.
AHEAD = 0.05
MOST_AHEAD = 500
# A run that was claimed ahead and has not begun after this many seconds is handed back: another worker may be
# free for it.
LONGEST_WAIT = 1.0


class Lane:
    """One executor: the tasks that it executes, how many at once, and the attempts that it has."""

    def __init__(self, executor: Executor, slots: int) -> None:
        self.executor = executor
        self.tasks: frozenset[str] = frozenset()
        self.slots = slots
        self.claim_token: str | None = None
        """The token of a claim that the store has not answered yet."""
        self.claim_sent = 0.0
        """When that claim was first sent, by the worker's clock."""
        self.turn = ""
        """The tenant that this lane served last."""
        self.attempts: dict[tuple[str, int, str | None], Attempt] = {}
        """Attempts that occupy a slot or wait for one."""
        self._finished = 0
        self._since = 0.0
        self._rate = 0.0

    def remove(self, attempt: Attempt) -> None:
        """Free the place of an attempt that needs its slot no longer. Safe to repeat."""
        if self.attempts.pop(attempt.identity, None) is not None:
            self._finished += 1

    def room(self, now: float) -> int:
        """Return how many runs to claim now; ``now`` is in seconds of a clock that is never set."""
        elapsed = now - self._since
        # The rate is measured over at least a few steps; a quiet moment forgets the rate of a burst.
        if elapsed >= 0.02:
            self._rate = self._finished / elapsed
            self._finished, self._since = 0, now
        capacity = self.slots + min(MOST_AHEAD, int(self._rate * AHEAD))
        free = capacity - len(self.attempts)
        # With all slots in use, wait until half of the capacity is free: otherwise each run that ends would
        # cost a claim of its own.
        return free if len(self.attempts) < self.slots or free * 2 >= capacity else 0
