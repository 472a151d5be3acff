"""Plan and apply: what the code and the files declare, compared with the store, and written in one step.

``apply`` decides anew by the rows that it reads, and compares each change with the plan that the user saw: a
change of another version, or of another declaration, is refused. So a plan holds no state that could be
stale, and repeating ``apply`` after a death finds what is left to do.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, get_args

from msgspec.structs import replace

from evenbeat.app.code_only import coming_in_memory
from evenbeat.app.declared_schedules import DeclaredSchedules, Wanted, in_levels
from evenbeat.app.definitions import unknown_task
from evenbeat.app.dependencies import delete_warnings, link_together, refused_dependencies
from evenbeat.app.deploy_entries import entry_of
from evenbeat.app.rows import ScheduleRows, audited_write
from evenbeat.core.audits import AuditAction
from evenbeat.core.deploys import DONE_BY_APPLY, DeployPlan, DeployResult, PlanEntry, RefusedChange
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.core.results import ChangeWarning
from evenbeat.errors import EvenbeatError, InvalidTrigger, InvalidValue, StoreUnavailable
from evenbeat.rules import auditing, deploying
from evenbeat.rules.deploying import Decision
from evenbeat.rules.firing import Active
from evenbeat.rules.overdue import is_long
from evenbeat.rules.ownership import source_of
from evenbeat.schedule_files import ScheduleFile
from evenbeat.stores.base import ScheduleQuery, Write, Written
from evenbeat.stores.pages import every_schedule
from evenbeat.stores.refusals import in_parts

ONE_STEP = 1_000
"""So many schedules are written in one atomic step; more of them in several."""
_PAGE = 500
# A write loses only while another one wins: losing so often in a row means a fault.
_TRIES = 50
_CHANGED = "the schedule, or its declaration, has changed since the plan"


class Scope(NamedTuple):
    """The schedules and sources that a deploy compares."""

    wanted: dict[tuple[str, str], Wanted]
    code_only: dict[tuple[str, str], ScheduleRecord]
    """Schedules that are in the code only: they have no row."""
    owners: frozenset[str]
    """Who declared the schedules that may be orphans."""
    tenant: str | None
    """Only schedules of this tenant; None: of all."""
    prune: bool
    adopt: bool


class Step(NamedTuple):
    """A schedule, and what to do about it."""

    wanted: Wanted | None
    row: ScheduleRecord | None
    decision: Decision
    token: str

    @property
    def key(self) -> tuple[str, str]:
        found = self.row if self.wanted is None else self.wanted.record
        assert found is not None
        return found.key


class Deployments:
    """Plans and applies deploys of one scheduler."""

    def __init__(self, rows: ScheduleRows, declared: DeclaredSchedules) -> None:
        self._rows = rows
        self._declared = declared

    def scope(
        self,
        file: ScheduleFile | None,
        source: str | None,
        *,
        with_code: bool,
        tenant: str | None,
        prune: bool,
        adopt: bool,
    ) -> Scope:
        """Return what a deploy is about; a file overrides the code where both declare a name."""
        declared = self._declared
        found: list[Wanted] = []
        without_row: list[ScheduleRecord] = []
        owners: set[str] = set()
        if with_code and declared.has_code:
            found += [*declared.from_tasks(), *declared.from_calls()]
            without_row += declared.code_only()
            owners.add(declared.owner_of_code)
        used = declared.file if file is None and with_code else file
        if used is not None:
            found += declared.from_file(used, source)
            owners.add(declared.owner_of_file(used, source))
        if prune:
            _check_labels(owners)
        wanted = {each.record.key: each for each in found if tenant in (None, each.record.tenant)}
        code_only = {
            each.key: each for each in without_row if tenant in (None, each.tenant) and each.key not in wanted
        }
        return Scope(wanted, code_only, frozenset(owners), tenant, prune, adopt)

    def plan(self, scope: Scope) -> DeployPlan:
        """Return what ``apply`` would change now."""
        now = self._rows.session.store().now()
        steps = self._steps(scope, now)
        entries = [self._entry(step, now) for step in steps]
        shown = sorted((e for e in entries if e.action != "unchanged"), key=lambda e: (e.tenant, e.name))
        return DeployPlan(
            entries=tuple(shown),
            unchanged=len(entries) - len(shown),
            at=from_ms(now),
            warnings=(*self._warnings(scope, shown), *self._delete_warnings(steps)),
        )

    def apply(self, scope: Scope, allowed: frozenset[str] | None) -> DeployResult:
        """Make the changes; with the tokens of a plan, only those that it has."""
        now = self._rows.session.store().now()
        done: list[Step] = []
        refused: list[RefusedChange] = []
        left: list[PlanEntry] = []
        to_do: list[Step] = []
        unchanged = 0
        for step in self._steps(scope, now):
            if step.decision.action == "unchanged":
                unchanged += 1
            elif step.decision.action == "refused":
                refused.append(self._refused(step, step.decision.why, now))
            elif step.decision.action not in DONE_BY_APPLY:
                left.append(self._entry(step, now))
            elif allowed is not None and step.token not in allowed:
                refused.append(self._refused(step, _CHANGED, now))
            else:
                to_do.append(step)
        # A schedule that waits for others is written after them.
        for level in in_levels(to_do, _written_row):
            for start in range(0, len(level), ONE_STEP):
                written, kept = self._write(level[start : start + ONE_STEP], scope)
                done += written
                refused += kept
        removed = [step for step in done if step.decision.action == "remove"]
        return DeployResult(
            warnings=self._delete_warnings(removed),
            done=tuple(sorted((self._entry(step, now) for step in done), key=lambda e: (e.tenant, e.name))),
            refused=tuple(refused),
            left=tuple(left),
            unchanged=unchanged,
        )

    # -- deciding ------------------------------------------------------------------------------------------

    def _steps(self, scope: Scope, now: Instant) -> list[Step]:
        """Decide about each schedule that is declared, or was."""
        declared = frozenset((*scope.wanted, *scope.code_only))
        rows = self._read(declared)
        steps = [self._declared_step(each, rows.get(key), scope, now) for key, each in scope.wanted.items()]
        for key, record in scope.code_only.items():
            row = rows.get(key)
            if row is not None and row.state != "deleted":
                steps.append(_step_without_row(row, record, now))
        if scope.owners:
            query = ScheduleQuery(tenant=scope.tenant, limit=_PAGE)
            for row in every_schedule(self._rows.session.store(), query):
                if deploying.is_orphan(row, scope.owners, declared):
                    steps.append(self._orphan_step(row, scope, now))
        return self._with_refused(steps)

    def _with_refused(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps; those refused whose schedules would wait for themselves, or for none."""
        writes = [
            (step.wanted.record, step.row)
            for step in steps
            if step.wanted is not None and step.decision.action in DONE_BY_APPLY
        ]
        removed = [step.key for step in steps if step.decision.action == "remove"]
        refused = refused_dependencies(self._rows.session.store(), writes, removed)
        return [
            step._replace(decision=Decision("refused", why=str(refused[step.key])))
            if step.key in refused
            else step
            for step in steps
        ]

    def _read(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ScheduleRecord]:
        chosen = list(keys)
        found: dict[tuple[str, str], ScheduleRecord] = {}
        for start in range(0, len(chosen), _PAGE):
            part = tuple(chosen[start : start + _PAGE])
            query = ScheduleQuery(keys=part, states=get_args(ScheduleState), limit=len(part))
            found |= {row.key: row for row in self._rows.session.store().find_schedules(query).items}
        return found

    def _declared_step(self, wanted: Wanted, row: ScheduleRecord | None, scope: Scope, now: Instant) -> Step:
        try:
            wanted = wanted._replace(record=self._rows.with_calendars(wanted.record))
        except InvalidTrigger as error:
            raise wanted.refusal(error) from None
        start = wanted.start
        if start is None and (row is None or row.state == "deleted"):
            start = coming_in_memory(self._rows.session.store(), wanted.record, row, now)
        decision = deploying.decide((wanted.record, start), row, now, self._active, adopt=scope.adopt)
        return Step(wanted, row, decision, deploying.token_of(decision.action, wanted.record, row))

    def _active(self, row: ScheduleRecord) -> tuple[Active, ...]:
        return self._rows.active(row)

    def _orphan_step(self, row: ScheduleRecord, scope: Scope, now: Instant) -> Step:
        decision = deploying.remove(row, now) if scope.prune else Decision("orphan")
        return Step(None, row, decision, deploying.token_of(decision.action, None, row))

    def _decided_again(
        self, step: Step, current: ScheduleRecord | None, scope: Scope, now: Instant
    ) -> Step | None:
        """Decide about a schedule anew; None if nothing is left to do about it."""
        if step.wanted is not None:
            again = self._declared_step(step.wanted, current, scope, now)
            return None if again.decision.action == "unchanged" else again
        if current is None or current.state == "deleted":
            return None
        if current.key in scope.code_only:
            return _step_without_row(current, scope.code_only[current.key], now)
        if not deploying.is_orphan(current, scope.owners, frozenset()):
            return None
        return self._orphan_step(current, scope, now)

    # -- writing -------------------------------------------------------------------------------------------

    def _write(self, steps: Sequence[Step], scope: Scope) -> tuple[list[Step], list[RefusedChange]]:
        """Write the changes in one step. A schedule that fired meanwhile is tried again; one that somebody
        changed is refused."""
        store = self._rows.session.store()
        done: list[Step] = []
        refused: list[RefusedChange] = []
        left = [*steps]
        errors: dict[tuple[str, str], str] = {}

        def refuse(write: Write, error: Exception) -> Written:
            errors[write.planned.schedule.key] = str(error)
            return Written(False, None)

        for _ in range(_TRIES):
            now = store.now()
            together, alone = self._prepared(left, now, refused)
            for step in alone:
                self._write_alone(step, scope, done, refused)
            if not together:
                return done, refused
            together = self._linked(together, refused)
            parts = in_parts(store.put_schedules, [write for _, write in together], refuse)
            answers = [answer for part in parts for answer in part]
            left = []
            for (step, _), written in zip(together, answers, strict=True):
                if step.key in errors:
                    refused.append(self._refused(step, errors[step.key], now))
                    continue
                if written.accepted:
                    self._rows.after_write(step.row, _written_row(step))
                    done.append(step)
                    continue
                again = self._decided_again(step, written.current, scope, store.now())
                if again is not None and again.token == step.token:
                    left.append(again)  # it has only fired
                else:
                    refused.append(self._refused(step, _CHANGED, now, again))
            if len(left) < len(together):
                store.hint()
        refused += [self._refused(step, "other writes were faster, again and again", now) for step in left]
        return done, refused

    def _linked(
        self, writes: Sequence[tuple[Step, Write]], refused: list[RefusedChange]
    ) -> list[tuple[Step, Write]]:
        """Return the writes, after the schedules that they wait for know of it."""
        done = link_together(
            self._rows.session, [(write.planned.schedule, step.row) for step, write in writes]
        )
        now = self._rows.session.store().now()
        refused += [
            self._refused(step, str(done.refused[step.key]), now)
            for step, _ in writes
            if step.key in done.refused
        ]
        return [
            (step, write._replace(record=done.records.get(step.key)))
            for step, write in writes
            if step.key not in done.refused
        ]

    def _prepared(
        self, steps: Iterable[Step], now: Instant, refused: list[RefusedChange]
    ) -> tuple[list[tuple[Step, Write]], list[Step]]:
        """Return the writes, and the steps that are too long to be written with others."""
        together: list[tuple[Step, Write]] = []
        alone: list[Step] = []
        new: Counter[str] = Counter()
        for step in steps:
            planned = step.decision.planned
            assert planned is not None
            if step.decision.action == "add":
                new[step.key[0]] += 1
                try:
                    self._rows.quotas.admit_schedule(step.key[0], new[step.key[0]])
                except StoreUnavailable:
                    raise
                except EvenbeatError as error:
                    refused.append(self._refused(step, str(error), now))
                    continue
                # See FirstWrite: two callers who create the same schedule would write the same row.
                marked = planned.schedule.fire_seq + secrets.randbits(31)
                planned = planned._replace(schedule=replace(planned.schedule, fire_seq=marked))
            if is_long(planned):
                alone.append(step)
                continue
            describe = partial(auditing.schedule_change, _action(step))
            write = audited_write(self._rows.session.store(), step.row, planned, now, describe)
            if write.planned.unfinished:
                alone.append(step)
            else:
                together.append((step, write))
        return together, alone

    def _write_alone(self, step: Step, scope: Scope, done: list[Step], refused: list[RefusedChange]) -> None:
        """Change a schedule with a long backlog, in parts."""
        assert step.row is not None
        is_begun = False
        try:
            for attempt in self._rows.tries(*step.key, _action(step), if_revision=step.row.revision):
                again = self._decided_again(step, attempt.row, scope, attempt.now)
                if again is None or (not is_begun and again.token != step.token):
                    refused.append(self._refused(step, _CHANGED, attempt.now, again))
                    return
                if attempt.write(again.decision.planned):
                    break
                is_begun = not attempt.is_lost or is_begun
        except StoreUnavailable:
            raise
        except EvenbeatError as error:
            refused.append(self._refused(step, str(error), self._rows.session.store().now()))
            return
        done.append(step)

    # -- reporting -----------------------------------------------------------------------------------------

    def _entry(self, step: Step, now: Instant) -> PlanEntry:
        return entry_of(step.wanted, step.row, step.decision, step.token, now)

    def _refused(self, step: Step, why: str, now: Instant, again: Step | None = None) -> RefusedChange:
        entry = self._entry(step if again is None else again, now)
        tenant, name = step.key
        return RefusedChange(tenant=tenant, name=name, why=why, entry=entry)

    def _warnings(self, scope: Scope, entries: Sequence[PlanEntry]) -> Iterable[ChangeWarning]:
        """Yield the tasks of added and changed schedules that nothing has."""
        names: dict[str, list[str]] = {}
        for entry in entries:
            if entry.action in ("add", "change"):
                task = scope.wanted[entry.tenant, entry.name].record.task
                names.setdefault(task, []).append(entry.name)
        for task, schedules in sorted(names.items()):
            found = unknown_task(self._rows.session, task)
            if found is not None:
                lack, hint = found
                problem = f"{lack}, of {', '.join(schedules)}: its runs wait until a node has it"
                yield ChangeWarning(problem=problem, hint=hint)

    def _delete_warnings(self, steps: Sequence[Step]) -> tuple[ChangeWarning, ...]:
        """Return which schedules wait for those that are removed, after the deploy."""
        removed = [step.row for step in steps if step.row is not None and step.decision.action == "remove"]
        written = {
            step.key: step.wanted.record
            for step in steps
            if step.wanted is not None and step.decision.action in DONE_BY_APPLY
        }
        return delete_warnings(self._rows.session.store(), removed, written)


def _step_without_row(row: ScheduleRecord, wanted: ScheduleRecord, now: Instant) -> Step:
    """Return what to do about the row of a schedule that is in the code only."""
    decision = deploying.remove_row(row, wanted.managed_by, now)
    return Step(None, row, decision, deploying.token_of(decision.action, None, row))


def _written_row(step: Step) -> ScheduleRecord:
    planned = step.decision.planned
    assert planned is not None
    return planned.schedule


def _action(step: Step) -> AuditAction:
    return "delete" if step.decision.action == "remove" else "declare"


def _check_labels(owners: Iterable[str]) -> None:
    """Refuse to prune for a source without a label: another app on the same database may have none, too."""
    for each in sorted(owners):
        if not source_of(each):
            in_file = 'source = "shop" in the file, or source="shop"'
            where = "Scheduler(source=…)" if each == "code" else in_file
            raise InvalidValue(
                f"prune needs a label of the {each} that declares schedules: without one, schedules of "
                "other apps on this database would be removed",
                field="source",
                value=None,
                hint=f"give it one by {where}",
            )
