"""``app.schedules``: create, read, change, pause, move, run and delete schedules."""

from __future__ import annotations

from evenbeat.app.schedules.backfilling import BackfillCalls
from evenbeat.app.schedules.bulk import BulkCalls
from evenbeat.app.schedules.defining import DefinitionCalls
from evenbeat.app.schedules.history import HistoryCalls
from evenbeat.app.schedules.operating import OperationCalls
from evenbeat.app.schedules.reading import ReadingCalls


class Schedules(DefinitionCalls, OperationCalls, BackfillCalls, BulkCalls, ReadingCalls, HistoryCalls):
    """The schedules of a scheduler. Each call is one atomic step; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own. Changes take ``if_revision``, the revision of the schedule as
    the caller read it: ``ScheduleChanged`` if it has another one by now.
    """
