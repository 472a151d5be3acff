"""For tests: an app in virtual time, a virtual clock, the contract of stores, a simulator of many nodes."""

from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.virtual import TravelTooLong, VirtualScheduler, virtual

__all__ = ["TravelTooLong", "VirtualClock", "VirtualScheduler", "virtual"]
