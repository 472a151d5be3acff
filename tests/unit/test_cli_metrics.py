"""``evenbeat metrics``: the text that Prometheus reads, on the command line."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler, every
from tests.prometheus import Scrape
from tests.unit.cli_store import app, clock, failed, printed
from tests.unit.test_metrics import without_prometheus

__all__ = ["app", "clock"]


def test_the_command_prints_what_the_app_returns(app: Scheduler) -> None:
    app.schedules.add("nightly", every("1h"), "work", tenant="acme")
    assert printed("metrics") == app.metrics()
    assert printed("metrics", "--tenant", "acme") == app.metrics(tenant="acme")
    assert "nightly" in printed("metrics")
    # It is about the whole store, whatever the tenant of this shell is.
    assert "nightly" not in printed("metrics", "--tenant", "globex")


def test_the_bound_of_schedules_is_a_flag_and_a_setting(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("nightly", every("1h"), "work")
    assert "nightly" not in printed("metrics", "--metrics-schedules", "0")
    monkeypatch.setenv("EVENBEAT_METRICS_SCHEDULES", "0")
    assert Scrape(printed("metrics")).labels("scheduler_next_run_timestamp") == set()
    assert "nightly" in printed("metrics", "--metrics-schedules", "1")
    assert "--metrics-schedules -1 is not" in failed("metrics", "--metrics-schedules", "-1", code=2)


@pytest.mark.usefixtures("app")
def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_prometheus(monkeypatch):
        text = failed("metrics")
    assert "metrics need prometheus_client, which is not installed" in text
    assert "pip install 'evenbeat[metrics]'" in text


@pytest.mark.usefixtures("app")
def test_a_tenant_that_no_store_can_have_is_refused() -> None:
    assert "tenant" in failed("metrics", "--tenant", "a b", code=2)
