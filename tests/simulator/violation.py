"""The errors that the simulator raises."""

from __future__ import annotations


class Violation(BaseException):
    """A guarantee was violated. ``about`` is the schedule or run concerned, if there is one.

    Not an ``Exception``: the product's loops catch those of a store, and try again in smaller parts.
    """

    def __init__(self, what: str, about: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.about = about


class SimulationFailed(AssertionError):
    """A seed violated a guarantee. The message contains the command to replay it."""

    def __init__(self, seed: int, what: str, lines: list[str], replay: str) -> None:
        shown = "\n".join(f"    {line}" for line in lines)
        super().__init__(f"seed {seed}: {what}\n\n{shown}\n\nreplay: {replay}")
        self.seed = seed
        self.what = what
        self.replay = replay
