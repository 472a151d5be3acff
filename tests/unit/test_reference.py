"""docs/reference.md and the code say the same: every public name, signature, option, event and error."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import evenbeat
from evenbeat import errors, record_errors
from evenbeat.app.alerts.alerts import Alerts
from evenbeat.app.alerts.channels import AlertChannels
from evenbeat.app.alerts.rules import AlertRules
from evenbeat.app.alerts.windows import MaintenanceWindows
from evenbeat.app.audit import Audit
from evenbeat.app.flows import Flows
from evenbeat.app.locks import Lock
from evenbeat.app.quarantine import Quarantine
from evenbeat.app.retention import Retention
from evenbeat.app.runs import Runs
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.app.tenants import Tenants
from evenbeat.app.tokens import Tokens
from evenbeat.config import read_settings
from evenbeat.core.records import RunRecord
from evenbeat.observe.events import EventKind
from tests.option_tables import page_with_tables

PAGE = (Path(__file__).parents[2] / "docs/reference.md").read_text("utf-8")
APP = evenbeat.Scheduler("memory://")
TASK = APP.task(name="noted")(lambda: None)
FLOW = APP.new_flow("described")

# The heading of a section -> the class it is about, and one of it: its own attributes may be listed, too.
CLASSES: dict[str, tuple[type, object]] = {
    "Scheduler": (evenbeat.Scheduler, APP),
    "app.schedules": (Schedules, APP.schedules),
    "app.runs": (Runs, APP.runs),
    "app.flows": (Flows, APP.flows),
    "app.audit": (Audit, APP.audit),
    "app.retention": (Retention, APP.retention),
    "app.quarantine": (Quarantine, APP.quarantine),
    "app.tenants": (Tenants, APP.tenants),
    "app.tokens": (Tokens, APP.tokens),
    "app.alerts": (Alerts, APP.alerts),
    "app.alerts.rules": (AlertRules, APP.alerts.rules),
    "app.alerts.channels": (AlertChannels, APP.alerts.channels),
    "app.alerts.windows": (MaintenanceWindows, APP.alerts.windows),
    "RunContext": (evenbeat.RunContext, evenbeat.RunContext(RunRecord(id="r", task="t"))),
    "Task": (evenbeat.Task, TASK),
    "Flow": (evenbeat.Flow, FLOW),
    "Lock": (Lock, APP.lock("noted")),
}
RECORDS: list[type[msgspec.Struct]] = [
    evenbeat.Schedule,
    evenbeat.Run,
    evenbeat.FlowPlace,
    evenbeat.FlowInfo,
    evenbeat.FlowStepInfo,
    evenbeat.FlowRun,
    evenbeat.FlowStepRun,
    evenbeat.RunAttempt,
    evenbeat.RunProgress,
    evenbeat.ChangeWarning,
    evenbeat.DeletedSchedule,
    evenbeat.ScheduleStats,
    evenbeat.SkippedTicks,
    evenbeat.Dependencies,
    evenbeat.Predecessor,
    evenbeat.ResumePreview,
    evenbeat.RecentRun,
    evenbeat.LogLine,
    evenbeat.RunWait,
    evenbeat.RunPage,
    evenbeat.Token,
    evenbeat.NewToken,
    evenbeat.RunLimit,
    evenbeat.LimitValue,
    evenbeat.BulkResult,
    evenbeat.ChangedItem,
    evenbeat.MoveResult,
    evenbeat.ScheduleOfTask,
    evenbeat.DeployPlan,
    evenbeat.PlanEntry,
    evenbeat.FieldChange,
    evenbeat.DeployResult,
    evenbeat.RefusedChange,
    evenbeat.RefusedItem,
    evenbeat.AuditEntry,
    evenbeat.AuditPage,
    evenbeat.AlertRule,
    evenbeat.AlertChannel,
    evenbeat.MaintenanceWindow,
    evenbeat.Incident,
    evenbeat.Delivery,
    evenbeat.QueueStats,
    evenbeat.FigureSeries,
    evenbeat.FigurePoint,
    evenbeat.Figures,
    evenbeat.Percentiles,
    evenbeat.NamedFigures,
    evenbeat.FailureReport,
    evenbeat.FailureGroup,
    evenbeat.NodeView,
    evenbeat.Quota,
    evenbeat.TenantDetails,
    evenbeat.TenantPurge,
    evenbeat.TenantView,
    evenbeat.Forecast,
    evenbeat.ForecastPeak,
    evenbeat.QuietWindow,
    evenbeat.SpreadProposal,
    evenbeat.TriggerExplanation,
    evenbeat.TriggerTick,
    evenbeat.TriggerClockChange,
    evenbeat.QuarantineNote,
    evenbeat.Attention,
    evenbeat.AttentionItem,
    evenbeat.Why,
    evenbeat.Fact,
    evenbeat.Account,
    evenbeat.HeatMap,
    evenbeat.HeatCell,
    evenbeat.ScheduleTimeline,
    evenbeat.TimelineLane,
    evenbeat.TimelineCell,
]


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"reference.md has no section {heading}"
    return found[1]


def rows(text: str, column: str | None = None) -> Iterator[list[str]]:
    """The cells of the tables in a text; only of those whose first column is called so."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]
        if column is None or lines[0][0].strip(" `") == column:
            yield from lines[2:]


def codes(text: str, column: str | None = None) -> list[str]:
    """What stands in backticks in the first cells."""
    return [code for row in rows(text, column) for code in re.findall(r"`([^`]+)`", row[0])]


def public(kind: type) -> set[str]:
    """Its names, without the async twins, which the page speaks of once, and what is for ourselves."""
    names = {name for name in dir(kind) if not name.startswith("_")}
    ours = {
        name
        for name in names
        if re.search(r"\bFor (workers|``evenbeat\.testing``)", inspect.getdoc(getattr(kind, name)) or "")
    }
    return {name for name in names - ours if not (name[0] == "a" and name[1:] in names)}


def signature(function: Callable[..., Any]) -> str:
    """As the page writes it: without self and types."""
    bare = inspect.signature(function)
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in bare.parameters.values()
        if parameter.name != "self"
    ]
    return str(bare.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def written(kind: type, name: str) -> str:
    """A member as the page writes it."""
    member = inspect.getattr_static(kind, name)
    return name + signature(member) if inspect.isfunction(member) else name


def test_every_public_name_of_the_package_is_listed_and_no_other() -> None:
    assert sorted(codes(section("Names"))) == sorted(evenbeat.__all__)


@pytest.mark.parametrize("heading", CLASSES)
def test_members_are_listed_as_they_are(heading: str) -> None:
    kind, one = CLASSES[heading]
    listed = codes(section(heading))
    # What a flow inherits is listed with tasks.
    own = public(kind) - (public(evenbeat.Task) if kind is evenbeat.Flow else set())
    missing = {written(kind, name) for name in own} - set(listed)
    assert not missing, f"reference.md lacks, or has otherwise, under {heading}: {sorted(missing)}"
    unknown = {name for name in listed if not hasattr(one, name.partition("(")[0])}
    assert not unknown


def test_the_methods_with_an_async_twin_are_named() -> None:
    listed = re.findall(r"twin: ([\w, \n]+)\.|of a lock: ([\w, ]+)\.", PAGE)
    of_scheduler, of_lock = (set(re.split(r",\s+", first or second)) for first, second in listed)
    assert of_scheduler == twins(evenbeat.Scheduler)
    assert of_lock == twins(Lock)
    assert twins(evenbeat.Task) == {"enqueue"}
    services = (Schedules, Runs, Flows, Audit, Tenants, Tokens, AlertRules, AlertChannels, MaintenanceWindows)
    for kind in services:
        assert twins(kind) == public(kind), kind
    assert public(Alerts) - twins(Alerts) == {"declare_channel", "declare_rule", "declare_config"}


def twins(kind: type) -> set[str]:
    """The methods that have an async twin."""
    return {name for name in dir(kind) if not name.startswith("_") and hasattr(kind, f"a{name}")}


def test_triggers_are_listed_as_they_are() -> None:
    names = ("cron", "every", "at", "on_success_of", "parse_trigger")
    makers = [name + signature(getattr(evenbeat, name)) for name in names]
    assert codes(section("Triggers"), "function") == makers
    wanted = {written(evenbeat.Trigger, name) for name in public(evenbeat.Trigger)}
    assert set(codes(section("Triggers"), "method")) == wanted


@pytest.mark.parametrize("record", RECORDS)
def test_fields_of_records_are_listed(record: type[msgspec.Struct]) -> None:
    listed = codes(section("What you get back"), record.__name__)
    assert sorted(listed) == sorted(public(record))


def test_the_tables_of_options_are_made_from_their_descriptions() -> None:
    assert page_with_tables(PAGE) == PAGE, "write them anew: python -m tests.option_tables"


def test_events_are_listed_with_their_fields() -> None:
    assert sorted(codes(section("Events"), "event")) == sorted(get_args(EventKind))
    assert sorted(codes(section("Events"), "event field")) == sorted(evenbeat.Event.__struct_fields__)


def test_errors_are_listed() -> None:
    real = {
        name
        for name, kind in (vars(errors) | vars(record_errors)).items()
        if isinstance(kind, type) and issubclass(kind, errors.EvenbeatError)
    }
    assert set(codes(section("Errors"))) == real


def test_settings_are_listed(tmp_path: Path) -> None:
    assert set(codes(section("Settings"))) == set(read_settings({}, environment={}, folder=tmp_path))


def test_links_inside_the_documents_lead_somewhere() -> None:
    root = Path(__file__).parents[2]
    for document in [root / "README.md", *(root / "docs").rglob("*.md")]:
        text = document.read_text("utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = (document.parent / path).resolve() if path else document
            assert file.exists(), f"{document.name} links to {target}"
            if anchor:
                assert anchor in anchors(file.read_text("utf-8")), f"{document.name} links to {target}"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
