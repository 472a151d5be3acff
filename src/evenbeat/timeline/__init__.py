"""The timeline: what runs when, as sorted arrays of (tick, schedule) in memory.

Importing it imports numpy, so nothing that fires durable schedules imports it.
"""

from evenbeat.timeline.load import Expected, Load
from evenbeat.timeline.plan import Histogram, Plan
from evenbeat.timeline.snapshot import Snapshot
from evenbeat.timeline.timeline import RebuildPolicy, Timeline

__all__ = ["Expected", "Histogram", "Load", "Plan", "RebuildPolicy", "Snapshot", "Timeline"]
