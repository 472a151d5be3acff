"""deploy/: every metric and label that the alert rules and the dashboard name is exported, and documented."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from evenbeat.cli.root import root
from evenbeat.observe.metrics import METRICS, Metric

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "evenbeat.json"
MONITORING = (ROOT / "docs" / "howto" / "monitoring.md").read_text()

KEYWORDS = {"by", "on", "unless", "without", "and", "or", "ignoring", "le"}
AGGREGATES = {"by", "on", "without", "ignoring"}
_TOKEN = re.compile(
    r'(?P<text>"[^"]*")|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_]\w*)|(?P<number>[\d.]+)|(?P<sign>[=!<>~]+|\S)'
)


class Selected(NamedTuple):
    """A metric that an expression names, with the labels of its braces."""

    name: str
    labels: tuple[str, ...]


def parse(expression: str) -> tuple[list[Selected], set[str]]:
    """Return the metrics of an expression, and the labels by which it groups."""
    tokens = [(str(found.lastgroup), found[0]) for found in _TOKEN.finditer(expression)]
    metrics: list[Selected] = []
    groups: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        follows = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind == "name" and text in AGGREGATES:
            assert follows == "(", expression
            end = next(place for place in range(at, len(tokens)) if tokens[place][1] == ")")
            groups |= {word for kind, word in tokens[at + 2 : end] if kind == "name"}
            at = end
        elif kind == "name" and text not in KEYWORDS and follows not in ("(", "by", "without"):
            labels: tuple[str, ...] = ()
            if follows == "{":
                end = next(place for place in range(at, len(tokens)) if tokens[place][1] == "}")
                labels = tuple(word for kind, word in tokens[at + 2 : end] if kind == "name")
                at = end
            metrics.append(Selected(text, labels))
        at += 1
    return metrics, groups


def metric_of(sample: str) -> tuple[Metric, set[str]]:
    """Return the metric of a sample, and the labels that the sample may have."""
    for name, metric in METRICS.items():
        if metric.kind == "histogram" and sample in (f"{name}_bucket", f"{name}_sum", f"{name}_count"):
            return metric, {*metric.labels, *(("le",) if sample.endswith("_bucket") else ())}
        if metric.kind != "histogram" and sample == name:
            return metric, set(metric.labels)
    raise AssertionError(f"{sample} is not exported")


def check(expression: str) -> set[str]:
    """Check that all is exported; return the labels of its metrics."""
    metrics, groups = parse(expression)
    assert metrics, expression
    known: set[str] = set()
    for selected in metrics:
        _, labels = metric_of(selected.name)
        assert set(selected.labels) <= labels, (selected, labels)
        known |= labels
    assert groups <= known, (expression, groups)
    return groups or known


def rules() -> Iterator[Any]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


RULE_PARAMETERS = [pytest.param(rule, id=rule["alert"]) for rule in rules()]
PANEL_PARAMETERS = [pytest.param(panel, id=panel["title"]) for panel in panels()]


def test_expressions_are_read_as_prometheus_does() -> None:
    metrics, groups = parse(
        'histogram_quantile(0.9, sum by (le, task) (rate(a_b_bucket{task=~"x", y!="{z}"}[5m]))) > 1 and c > 0'
    )
    assert metrics == [Selected("a_b_bucket", ("task", "y")), Selected("c", ())]
    assert groups == {"le", "task"}
    for wrong in ("evenbeat_run_total", 'evenbeat_nodes{kind="x"}', "sum by (queue) (evenbeat_nodes)"):
        with pytest.raises(AssertionError):
            check(wrong)


@pytest.mark.parametrize("rule", RULE_PARAMETERS)
def test_a_rule_names_what_is_exported(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Evenbeat")
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    labels = check(rule["expr"])
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert {"summary", "description"} == rule["annotations"].keys()


@pytest.mark.parametrize("rule", RULE_PARAMETERS)
def test_the_commands_that_a_rule_recommends_exist(rule: dict[str, Any]) -> None:
    for text in rule["annotations"].values():
        for command in re.findall(r"'evenbeat ([^']+)'", text):
            _check_command(shlex.split(command))


def _check_command(words: list[str]) -> None:
    found: click.Command = root
    context = click.Context(root)
    while isinstance(found, click.Group):
        command = found.get_command(context, words.pop(0))
        assert command is not None
        found = command
    flags = {flag for parameter in found.params for flag in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= flags


def test_rates_are_over_five_minutes_or_more() -> None:
    """Nodes write once a minute: over a shorter time, a rate would jump."""
    lengths = {"5m", "10m", "15m", "1h", "1d"}
    for text in (RULES.read_text(), DASHBOARD.read_text()):
        found = set(re.findall(r"\[(\d+\w|\$\w+)\]", text))
        assert found
        assert found <= lengths


@pytest.mark.parametrize("panel", PANEL_PARAMETERS)
def test_a_panel_names_what_is_exported(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        labels = check(target["expr"])
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
        assert target["datasource"]["uid"] == "${datasource}"


def test_panels_have_their_places_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_variable_of_tenants_is_read_from_a_metric() -> None:
    variables = {each["name"]: each for each in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["tenant"]["query"]["query"])
    assert found is not None
    assert found[2] in metric_of(found[1])[1]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        metric_of(selected.name)[0].name
        for panel in panels()
        for target in panel["targets"]
        for selected in parse(target["expr"])[0]
    }
    left_out = {
        "scheduler_last_run_timestamp",  # of a schedule: 'evenbeat schedules show' says more
        "evenbeat_attempts_total",  # runs by status say more
    }
    assert METRICS.keys() - shown == left_out


def test_the_page_describes_every_metric_as_the_code_does() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", MONITORING, re.MULTILINE)
    described = {name: (kind, re.findall(r"`(\w+)`", labels), words) for name, kind, labels, words in rows}
    assert described == {
        name: (metric.kind, list(metric.labels), metric.help) for name, metric in METRICS.items()
    }


def test_the_page_shows_every_panel_and_every_rule() -> None:
    picture = MONITORING[MONITORING.index("## The dashboard") :]
    assert [panel["title"] for panel in panels() if panel["title"] not in picture] == []
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in MONITORING] == []
