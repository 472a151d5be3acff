"""Moves queued runs to another task, in batches; a run that a worker claims meanwhile stays as it is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.app.audit import audited
from evenbeat.app.bulk import Answers, Progress, act_on_all
from evenbeat.app.definitions import task_warnings
from evenbeat.app.session import AppSession
from evenbeat.app.unique_runs import UniqueRuns, move_token
from evenbeat.core.checks import check_task
from evenbeat.core.moves import MoveResult, ScheduleOfTask
from evenbeat.core.records import RunRecord, Transition
from evenbeat.core.results import ChangedItem, ChangeWarning, Run
from evenbeat.errors import InvalidValue, RunRefused, shown
from evenbeat.observe.phrases import command_line, count
from evenbeat.rules import attempts, auditing
from evenbeat.stores.base import VALUES, RunQuery, ScheduleQuery
from evenbeat.stores.pages import every_schedule
from evenbeat.stores.refusals import in_parts
from evenbeat.tasks.task import Task

Pages: TypeAlias = Callable[[RunQuery, int], Iterator[tuple[Sequence[RunRecord], bool]]]
_PAGE = 500


class RunMoves:
    """One call of ``runs.move``."""

    def __init__(self, session: AppSession, task: Task[..., Any] | str, to: Task[..., Any] | str) -> None:
        self._session = session
        self._from = _name_of(task, "task")
        self._to = _name_of(to, "to")
        if self._from == self._to:
            raise InvalidValue(
                f"to {shown(self._to)} is the task that the runs have",
                field="to",
                value=self._to,
                hint="give the name of another task",
            )
        self._known = session.tasks.get(self._to)
        self._unfit: list[tuple[str, str]] = []

    def run(
        self,
        query: RunQuery,
        limit: int,
        pages: Pages,
        whole: Callable[[Sequence[RunRecord]], Sequence[Run]],
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> MoveResult:
        """Move the queued runs that match; with ``dry_run``, only count them."""
        # The payload, which may be large, is read only to compare it with a signature that is known here.
        left_out = tuple(name for name in VALUES if self._known is None or name != "payload")
        query = replace(query, task=self._from, states=("queued",), without=left_out)
        result = act_on_all(
            (self._checked(page) for page in pages(query, limit)),
            None if dry_run else self._move_page,
            lambda run: ChangedItem(tenant=run.tenant, id=run.id),
            whole,
            progress=progress,
        )
        return MoveResult(
            matched=result.matched,
            done=result.done,
            changed=result.changed,
            refused=result.refused,
            more=result.more,
            sample=result.sample,
            schedules=tuple(self._schedules(query.tenant)),
            warnings=(*task_warnings(self._session, self._to), *self._payload_warnings()),
        )

    def _checked(self, page: tuple[Sequence[RunRecord], bool]) -> tuple[Sequence[RunRecord], bool]:
        """Note the payloads that do not fit the new task."""
        if self._known is not None:
            for run in page[0]:
                try:
                    self._known.fits(run.payload)
                except (InvalidValue, msgspec.MsgspecError) as error:
                    self._unfit.append((run.id, str(error)))
        return page

    def _move_page(self, page: Sequence[RunRecord]) -> Answers:
        store = self._session.store()
        transitions = [self._transition(run) for run in page if run.unique_key is None]
        errors: dict[str, str] = {}

        def refuse(transition: Transition, error: Exception) -> bool:
            errors[transition.run] = str(error)
            return False

        parts = in_parts(store.settle_runs, transitions, refuse) if transitions else ()
        accepted = [answer for part in parts for answer in part]
        done = {each.run for each, is_done in zip(transitions, accepted, strict=True) if is_done}
        answers: Answers = []
        for run in page:
            why = None if run.id in done else errors.get(run.id) or self._move_alone(run)
            answers.append(why)
        if done or None in answers:
            store.hint()
        return answers

    def _move_alone(self, run: RunRecord) -> str | None:
        """Move a unique run, which needs the key of its new task first; return why it could not be moved."""
        if run.unique_key is None:
            return f"run {run.id} is not queued any more"
        store = self._session.store()
        try:
            UniqueRuns(store).take_for_move(run, self._to)
        except RunRefused as error:
            return str(error)
        is_moved = store.settle_runs([self._transition(run)])[0]
        return None if is_moved else f"run {run.id} is not queued any more"

    def _transition(self, run: RunRecord) -> Transition:
        transition = attempts.moved(run, self._to, move_token(run, self._to))
        assert transition is not None  # the search found queued runs of the old task
        change = auditing.run_change("move", run, {"task": run.task}, {"task": self._to})
        return replace(transition, records=audited(change, self._session.store().now()))

    def _schedules(self, tenant: str | None) -> Iterable[ScheduleOfTask]:
        query = ScheduleQuery(tenant=tenant, task=self._from, limit=_PAGE)
        for row in every_schedule(self._session.store(), query):
            words = f"schedules update {row.name} --task {shlex.quote(self._to)}"
            yield ScheduleOfTask(tenant=row.tenant, name=row.name, command=command_line(words, row.tenant))

    def _payload_warnings(self) -> Iterable[ChangeWarning]:
        if self._unfit:
            run, why = self._unfit[0]
            number = count(len(self._unfit), "payload does", "payloads do")
            yield ChangeWarning(
                problem=f"{number} not fit task {self._to}, the first one that of run {run}: {why}",
                hint="such runs fail, or wait for a node whose code fits; cancel them, or change the task",
            )


def _name_of(task: Task[..., Any] | str, field: str) -> str:
    name = task.name if isinstance(task, Task) else task
    check_task(name, field)
    return name
