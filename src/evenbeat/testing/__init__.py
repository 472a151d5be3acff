"""For tests: a virtual clock, the contract of stores, a simulator of many nodes."""

from evenbeat.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
