"""The calls of a scheduler about deploys: declare schedules, plan what a deploy changes, and apply it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Unpack

from evenbeat.app.declared_schedules import read_file, read_mapping
from evenbeat.app.deploying import Scope
from evenbeat.app.scheduler_parts import SchedulerParts
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label
from evenbeat.core.deploys import DeployPlan, DeployResult
from evenbeat.core.options import NODE
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.settings import ScheduleMode
from evenbeat.schedule_files import ScheduleFile
from evenbeat.tasks.options import NewScheduleOptions
from evenbeat.tasks.task import Call, Task
from evenbeat.triggers import Trigger


class DeployCalls(SchedulerParts):
    """Declares schedules, and compares what is declared with what the store has."""

    def declare(
        self,
        name: str,
        trigger: Trigger | str | None = None,
        task: Task[..., Any] | Call | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        **options: Unpack[NewScheduleOptions],
    ) -> None:
        """Declare a schedule in code: a node creates it, or updates it to match, when it starts.

        The values are checked now, and the store is not opened: call it where tasks are defined. ``plan`` and
        ``apply`` know it, as they know the schedules of decorated tasks; ``schedules.declare`` writes at once
        and is not known to them.
        """
        self._declared.keep(name, trigger, task, payload, tenant, options)
        if self.node is not None:
            self._declarations.declare_all((), self.node.settings)

    def declare_file(self, file: str | os.PathLike[str] | ScheduleFile) -> None:
        """Declare the schedules of a TOML file: nodes, ``plan`` and ``apply`` read them from now on.

        ``evenbeat run``, ``dev`` and ``web`` do so with the file that the settings name. ``InvalidValue``
        names the place in the file.
        """
        found = read_file(file)
        self._declared.check_file(found)
        self._declared.file = found

    def declare_mode(self, mode: ScheduleMode) -> None:
        """Plan and apply as nodes with this ``schedule_mode`` do, instead of the scheduler's own.

        ``evenbeat plan``, ``apply`` and ``web`` do so with the mode that a variable or a file sets.
        """
        self._declared.mode = NODE["schedule_mode"].read(mode)

    def plan(
        self,
        *,
        file: str | os.PathLike[str] | ScheduleFile | None = None,
        schedules: Mapping[str, Mapping[str, Any]] | None = None,
        source: str | None = None,
        prune: bool = False,
        adopt: bool = False,
        tenant: str | None = None,
    ) -> DeployPlan:
        """Return what a deploy would change: the schedules that the code and ``file`` declare, compared with
        the stored ones.

        ``file`` replaces the file of ``declare_file``. With ``schedules``, only these count: options as in a
        file, by name. ``source`` is the label of the file, or of ``schedules``. ``prune`` removes schedules
        that the same source declared once and does not declare any more, never others. ``adopt`` takes over
        schedules that were made by hand or by another source. ``tenant``: only its schedules.
        """
        return self._deployments.plan(self._scope(file, schedules, source, prune, adopt, tenant))

    def apply(
        self,
        plan: DeployPlan | Collection[str] | None = None,
        *,
        file: str | os.PathLike[str] | ScheduleFile | None = None,
        schedules: Mapping[str, Mapping[str, Any]] | None = None,
        source: str | None = None,
        prune: bool = False,
        adopt: bool = False,
        tenant: str | None = None,
    ) -> DeployResult:
        """Make the changes that ``plan`` returns with the same arguments, in one atomic step.

        With a ``plan``, or the tokens of its entries, a schedule that has changed since, or whose declaration
        has, is refused; the result has what would be to do about it now. More than 1,000 changes take several
        steps, each with whole schedules. Repeating it changes nothing.
        """
        scope = self._scope(file, schedules, source, prune, adopt, tenant)
        return self._deployments.apply(scope, _tokens(plan))

    def _scope(
        self,
        file: str | os.PathLike[str] | ScheduleFile | None,
        schedules: Mapping[str, Mapping[str, Any]] | None,
        source: str | None,
        prune: bool,
        adopt: bool,
        tenant: str | None,
    ) -> Scope:
        if file is not None and schedules is not None:
            raise InvalidValue(
                "file and schedules are both given",
                field="schedules",
                value=schedules,
                hint="give one of them",
            )
        for label, value in (("source", source), ("tenant", tenant)):
            if value is not None:
                check_label(value, label)
        found = None if file is None else read_file(file)
        if schedules is not None:
            found = read_mapping(schedules, tenant)
        return self._deployments.scope(
            found, source, with_code=schedules is None, tenant=tenant, prune=prune, adopt=adopt
        )

    aplan = twin(plan)
    aapply = twin(apply)


def _tokens(plan: DeployPlan | Collection[str] | None) -> frozenset[str] | None:
    """Return the tokens of the changes that a plan allows; None for all."""
    if plan is None:
        return None
    if isinstance(plan, DeployPlan):
        return frozenset(entry.token for entry in plan.to_do)
    tokens: Any = plan
    is_list = isinstance(tokens, Collection) and not isinstance(tokens, str)
    if not is_list or not all(isinstance(token, str) for token in tokens):
        raise InvalidValue(
            f"plan {shown(plan)} is not a plan",
            field="plan",
            value=plan,
            hint="give what plan() returns, or a list of the tokens of its entries",
        )
    return frozenset(tokens)
