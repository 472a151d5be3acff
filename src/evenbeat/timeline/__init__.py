"""The timeline: what runs when, as sorted arrays of (tick, schedule) in memory.

Importing it imports numpy, so nothing that fires durable schedules imports it.
"""

from evenbeat.timeline.plan import Histogram, Plan
from evenbeat.timeline.snapshot import Snapshot
from evenbeat.timeline.timeline import RebuildPolicy, Timeline

__all__ = ["Histogram", "Plan", "RebuildPolicy", "Snapshot", "Timeline"]
