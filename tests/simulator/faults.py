"""The faults of a simulation: how often, and how badly. The seed decides."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SKEW = 300_000
"""Node clocks are wrong by up to this much, in ms."""


class Faults(NamedTuple):
    """Probabilities at each yield point, and the clocks of nodes."""

    crash: float = 0.0
    pause: float = 0.0
    lost: float = 0.0
    """The request before a command, or the reply after it."""
    jump: float = 0.0
    """The node's clock jumps."""
    longest_pause: int = 0
    skew: int = 0

    def offset(self, random: Random) -> int:
        """Return by how much a node's clock is wrong; half of them are right."""
        return random.randint(-self.skew, self.skew) if self.skew and random.random() < 0.5 else 0


CALM = Faults()


def draw_long_pauses(random: Random) -> Faults:
    """Choose faults of nodes that are stopped for longer than runs are kept. Their clocks are right."""
    return Faults(
        crash=random.choice((0.0, 0.002, 0.01)),
        pause=random.choice((0.02, 0.05)),
        lost=random.choice((0.0, 0.02)),
        longest_pause=random.choice((600_000, 3_000_000, 10_800_000)),
    )


def draw_faults(random: Random) -> Faults:
    """Choose the faults of a seed: some seeds have one kind of fault often, some have all kinds."""

    def rate(often: float) -> float:
        return random.choice((0.0, 0.25, 1.0)) * often

    return Faults(
        crash=rate(0.02),
        pause=rate(0.03),
        lost=rate(0.10),
        jump=rate(0.01),
        longest_pause=random.choice((5_000, 20_000, 60_000)),
        skew=random.choice((0, 2_000, SKEW)),
    )
