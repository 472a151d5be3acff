"""``GET /metrics``: who may read it, in which format, and that every process gives the same answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenbeat import Scheduler, every
from evenbeat.errors import InvalidValue
from evenbeat.observe.metrics import METRICS
from evenbeat.stores.base import ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.web.limits import REQUESTS_OF_TOKEN
from tests.faults.fleet import wait_until
from tests.lengths import LONG
from tests.prometheus import Scrape
from tests.web.site import Site, assert_problem
from tests.web.test_story import place


def families(scope: str | None = None) -> set[str]:
    return {name.removesuffix("_total") for name, each in METRICS.items() if scope in (None, each.scope)}


def test_a_viewer_reads_all_metrics(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    response = site.request("GET", "/metrics", role="viewer")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.headers["cache-control"] == "no-store"
    found = Scrape(response.text)
    assert set(found.families) == families()
    assert found.value("scheduler_next_run_timestamp", schedule_id="nightly") > 0
    assert response.text == site.app.metrics()


def test_it_is_not_below_the_api(site: Site) -> None:
    assert_problem(site.request("GET", "/api/v1/metrics"), 404, "no-such-path")
    assert_problem(site.request("POST", "/metrics"), 405, "method-not-allowed")
    assert_problem(site.request("GET", "/metrics?x=1"), 400, "invalid-value", "x")
    assert site.request("HEAD", "/metrics").status_code == 200


def test_a_token_of_one_tenant_sees_that_tenant_alone(site: Site) -> None:
    for tenant in ("acme", "globex"):
        site.app.schedules.add(f"nightly-of-{tenant}", every("1h"), "work", tenant=tenant)
    response = site.request("GET", "/metrics", role="viewer", tenant="acme")
    assert response.status_code == 200
    assert "globex" not in response.text
    assert "nightly-of-acme" in response.text
    assert set(Scrape(response.text).families) == families("tenant")


def test_a_client_may_ask_for_openmetrics(site: Site) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
    response = site.request("GET", "/metrics", headers=accept)
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert response.text.endswith("# EOF\n")


@contextmanager
def opened(app: Scheduler, **settings: object) -> Iterator[Site]:
    made = Site(app, **settings)
    try:
        yield made
    finally:
        made.close()


def test_without_a_token_only_where_the_settings_open_it(app: Scheduler) -> None:
    with opened(app) as closed:
        assert closed.request("GET", "/metrics", role=None).status_code == 401
    with opened(app, open_metrics=True) as site:
        site.app.schedules.add("nightly", every("1h"), "work", tenant="acme")
        response = site.request("GET", "/metrics", role=None)
        assert response.status_code == 200
        assert "nightly" in response.text
        # Nothing else is open, no other site reads it, and a wrong token is still wrong.
        for method, path in (("POST", "/metrics"), ("GET", "/metrics/"), ("GET", "/api/v1/nodes")):
            assert site.request(method, path, role=None).status_code == 401, path
        assert site.request("GET", "/metrics", role=None, headers={"Host": "evil.example"}).status_code == 421
        origin = {"Origin": "http://evil.example"}
        assert site.request("GET", "/metrics", role=None, headers=origin).status_code == 403
        assert site.request("GET", "/metrics", secret="evb_1_x").status_code == 401
        # A token of one tenant still sees that one.
        assert "nightly" not in site.request("GET", "/metrics", tenant="globex").text


def test_senders_without_a_token_share_the_limit_of_one(app: Scheduler) -> None:
    from evenbeat.web.access import ANYBODY

    with opened(app, open_metrics=True) as site:
        limit = site.web.state.requests
        taken = [limit.counted(ANYBODY) for _ in range(REQUESTS_OF_TOKEN)]
        for each in taken:
            each.__enter__()
        assert_problem(site.request("GET", "/metrics", role=None), 429, "too-many-requests")
        assert site.request("GET", "/metrics").status_code == 200
        for each in taken:
            each.__exit__(None, None, None)


def test_a_server_without_tokens_on_loopback_answers_everybody(app: Scheduler) -> None:
    with opened(app, needs_token=False) as site:
        assert site.request("GET", "/metrics", role=None).status_code == 200


def test_the_bound_of_schedules_is_a_setting(app: Scheduler) -> None:
    for name in ("a", "b", "c"):
        app.schedules.add(name, every("1h"), "work")
    for bound, labelled in ((2, False), (3, True)):
        web = Site(app, needs_token=False, metrics_schedules=bound)
        found = Scrape(web.request("GET", "/metrics", role=None).text)
        assert bool(found.samples.get("scheduler_next_run_timestamp")) is labelled
        web.web.close()
    with pytest.raises(InvalidValue, match="metrics_schedules"):
        Site(Scheduler(MemoryStore()), metrics_schedules=-1)
    app.close()


# -- processes -----------------------------------------------------------------------------------------------

APP = """
import os
from evenbeat import Scheduler

app = Scheduler(os.environ["STORE"])

@app.task
def works() -> None: ...

@app.task
def breaks() -> None:
    raise ValueError("broken")
"""


class Fleet:
    """Processes that work on one store."""

    def __init__(self, folder: Path, store: str) -> None:
        (folder / "app.py").write_text(APP)
        self._folder = folder
        self._environment = os.environ | {"STORE": store, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.app = Scheduler(store)

    def start(self, *words: str, until: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start a command; return the process and its log when that has a text."""
        path = self._folder / f"log-{len(self._processes)}"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "evenbeat", *words],
                cwd=self._folder,
                env=self._environment,
                stderr=log,
                stdout=log,
            )
        self._processes.append(process)
        wait_until(lambda: until in path.read_text(), lambda: f"{words}: {path.read_text()}", 90)
        return process, path.read_text()

    def work(self, rounds: int) -> None:
        """Have three processes under one supervisor execute runs of two tenants, and stop."""
        process, _ = self.start(
            "run", "app.py", "--processes", "3", "--thread-concurrency", "2", until="started"
        )
        runs = []
        for _ in range(rounds):
            for tenant in ("default", "acme"):
                for name in ("good", "bad"):
                    runs.append((self.app.schedules.run_now(name, tenant=tenant).id, tenant))
                runs.append((self.app.enqueue("works", tenant=tenant).id, tenant))
        for run, tenant in runs:
            self.app.runs.join(run, "90s", tenant=tenant)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            process.wait(60)
        self.app.close()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=LONG) for kind in ("sqlite", "postgres")])
def test_three_processes_give_the_same_answer_and_their_counters_equal_the_stores(
    tmp_path: Path, kind: str
) -> None:
    with place(kind, tmp_path) as store:
        fleet = Fleet(tmp_path, store)
        try:
            for tenant in ("default", "acme"):
                fleet.app.schedules.add("good", every("30d"), "works", tenant=tenant)
                fleet.app.schedules.add("bad", every("30d"), "breaks", tenant=tenant)
            secret = fleet.app.tokens.create("prometheus", "viewer").secret
            urls = []
            for more in ((), (), ("--web-metrics", "open", "--metrics-schedules", "4")):
                _, log = fleet.start("web", "app.py", "--web-port", "0", *more, until="its API at")
                found = re.search(r"(http://\S+)/api/v1", log)
                assert found is not None
                urls.append(found[1])
            earlier = scrape(urls[0], secret)
            # Each round has other processes.
            for rounds in (4, 2):
                fleet.work(rounds)
                texts = [scrape(urls[0], secret), scrape(urls[1], secret), scrape(urls[2], None)]
                assert texts[0].samples == texts[1].samples == texts[2].samples
                assert texts[0].is_at_least(earlier)
                earlier = texts[0]
                check(fleet.app, earlier)
            assert earlier.total("scheduler_runs_total", status="failed") == 2 * (4 + 2)
        finally:
            fleet.close()


def scrape(url: str, secret: str | None) -> Scrape:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)  # noqa: S310  # our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  # likewise
        return Scrape(answer.read().decode())


def check(app: Scheduler, found: Scrape) -> None:
    for tenant in ("default", "acme"):
        counted = app.store.count_runs(tenant)
        for status in ("succeeded", "failed"):
            assert found.total("evenbeat_runs_total", tenant=tenant, status=status) == counted.get(status, 0)
        keys = [row.key for row in app.store.find_schedules(ScheduleQuery(tenant=tenant)).items]
        for figures in app.store.statistics(keys):
            of = {"tenant": tenant, "schedule_id": figures.schedule}
            assert found.value("scheduler_runs_total", **of, status="succeeded") == figures.success_count
            assert found.value("scheduler_runs_total", **of, status="failed") == figures.failure_count
