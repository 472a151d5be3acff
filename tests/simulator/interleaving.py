"""Interleaving: many strands, of which exactly one runs at a time; a seed decides which.

Each strand is a greenlet of the same thread. It yields only in ``switch`` and ``sleep``, so that a seed
replays exactly. A switch takes 0.2 us; between threads that waited for locks it took 21 us.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet

from evenbeat.core.instants import Instant
from evenbeat.testing.clock import VirtualClock


class Crash(BaseException):
    """The process of a strand dies here: no code of it continues, and no code catches this."""


class Stop(BaseException):
    """The simulation has ended: the strand unwinds."""


class Strand:
    """One program of the interleaving."""

    def __init__(self, name: str, program: Callable[[], None], asleep_until: Instant) -> None:
        self.name = name
        self.program = program
        self.asleep_until = asleep_until
        self.ending = False
        """Whether it crashed or was stopped: only its clean-up still runs, which never yields."""
        self.stack: greenlet


class Interleaving:
    """Runs strands in an order that follows from the random numbers alone."""

    def __init__(self, random: Random, clock: VirtualClock) -> None:
        self.random = random
        self.clock = clock
        self.strands: list[Strand] = []
        self.current: Strand | None = None
        self.steps = 0
        self.pace = 200
        """Each hand-over takes up to this much virtual time, in ms."""
        self.on_crash: Callable[[Strand], None] = lambda _: None
        self._main = getcurrent()
        self._following: Strand | None = None
        self._stopping = False
        self._until: Callable[[], bool] = lambda: True
        self._error: BaseException | None = None

    def spawn(self, name: str, program: Callable[[], None], delay: int = 0) -> Strand:
        strand = Strand(name, program, self.clock() + delay)
        # Its end continues ``run``, not the strand that spawned it.
        strand.stack = greenlet(lambda: self._body(strand), parent=self._main)
        self.strands.append(strand)
        return strand

    def run(self, until: Callable[[], bool]) -> None:
        """Let the strands run until the condition is true. Raises the exception of a strand."""
        if until() or not self.strands:
            return
        self._until = until
        self._following = self._pick()
        while (following := self._following) is not None:
            self._following = None
            following.stack.switch()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def switch(self) -> None:
        """Let another strand run."""
        strand = self.current
        assert strand is not None
        if strand.ending:
            return
        self.steps += 1
        if self._until():
            self._main.switch()
        else:
            following = self._pick()
            if following is strand:
                return
            following.stack.switch()
        self.current = strand
        if self._stopping:
            strand.ending = True
            raise Stop

    def sleep(self, duration: int) -> None:
        """Suspend the strand for that long."""
        strand = self.current
        assert strand is not None
        if not strand.ending:
            strand.asleep_until = self.clock() + duration
            self.switch()

    def close(self) -> None:
        """Unwind every strand, one after the other."""
        self._stopping = True
        for strand in self.strands:
            self.current = strand
            strand.stack.switch()
        self.strands.clear()

    def _pick(self) -> Strand:
        """Choose the next strand. Time passes; if all sleep, until the first wakes up."""
        random, clock = self.random, self.clock
        clock.now += int(random.random() * self.pace)
        now = clock.now
        awake = [strand for strand in self.strands if strand.asleep_until <= now]
        if awake:
            chosen = awake[int(random.random() * len(awake))]
        else:
            chosen = min(self.strands, key=lambda strand: strand.asleep_until)
            clock.now = chosen.asleep_until
        self.current = chosen
        return chosen

    def _body(self, strand: Strand) -> None:
        try:
            if not self._stopping:
                strand.program()
        except (Crash, Stop):
            pass
        except BaseException as error:
            self._error = error
        if self._stopping:
            return
        self.strands.remove(strand)
        if self._error is None:
            try:
                self.on_crash(strand)
            except BaseException as error:
                self._error = error
        if self._error is None and self.strands and not self._until():
            self._following = self._pick()
