"""The accessibility tree of each page, as text in git: what a screen reader finds, in its order.

The store's past, the clock of the store and the clock of the browser are fixed. After a change of a page,
``EVENBEAT_WRITE_TREES=1 pytest tests/browser/test_trees.py`` writes the files anew: read the difference.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat import acting_as
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord
from evenbeat.demo.shop_runs import Fate
from evenbeat.web.endpoints import doctor
from tests.browser.dashboard import PATIENCE, Complaints, Dashboard, opened
from tests.browser.fixed_past import NOW, FixedPast, ahead, hold_clock

TREES = Path(__file__).parent / "trees"
WRITES = bool(os.environ.get("EVENBEAT_WRITE_TREES"))
QUIET = 3
"""How many times in a row the tree must be the same before it is written."""
STEP = 400
"""Milliseconds between two looks at a page."""
MOST = {"row": 3, "listitem": 6, "option": 6, "cell": 12, "columnheader": 12}
"""Of more neighbours of the same role than this, the first two and the last one are written."""

ERROR = """\
PermissionError: the bank refused the key 'shop-2025'

  File "/srv/shop/invoices.py", line 31, in export
    raise PermissionError(f"the bank refused the key {key!r}")"""

PAGES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "now": (("now",), {}),
    "schedules": (("schedules",), {}),
    "schedule-new": (("schedules", "new"), {}),
    "schedule-edit": (("schedules", "default", "invoices", "edit"), {}),
    "schedule": (("schedules", "default", "invoices"), {}),
    "schedule-calendars": (("schedules", "default", "stock"), {}),
    "schedule-paused": (("schedules", "acme", "digest"), {"tz": "utc"}),
    "runs": (("runs",), {}),
    "failures": (("runs", "failures"), {}),
    "run": (("runs", "default", "FAILED"), {}),
    "timeline": (("timeline",), {}),
    "herd": (("timeline",), {"view": "herd"}),
    "nodes": (("nodes",), {}),
    "queues": (("queues",), {}),
    "backfills": (("backfills",), {}),
    "templates": (("templates",), {}),
    "template": (("templates", "nightly"), {}),
    "limits": (("limits",), {}),
    "plan": (("plan",), {}),
    "calendars": (("calendars",), {}),
    "calendar": (("calendars", "closed"), {}),
    "tenants": (("tenants",), {}),
    "tenant": (("tenants", "acme"), {}),
    "order": (("order",), {}),
    "order-quarantined": (("order", "default", "import"), {}),
    "alerts-open": (("alerts",), {}),
    "alerts-rules": (("alerts",), {"tab": "rules"}),
    "alerts-channels": (("alerts",), {"tab": "channels"}),
    "alerts-windows": (("alerts",), {"tab": "windows"}),
    "alerts-log": (("alerts",), {"tab": "log"}),
    "alerts-past": (("alerts",), {"tab": "past"}),
    "audit": (("audit",), {}),
    "tokens": (("tokens",), {}),
    "not-found": (("nowhere",), {}),
}

PAGES_OF_FLOWS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "flows": (("flows",), {}),
    "flow": (("flows", "nightly"), {}),
    "flow-run": (("runs", "default", "FLOW"), {}),
    "flow-run-table": (("runs", "default", "FLOW"), {"steps": "table"}),
}


def _fate(run: RunRecord, now: Instant) -> Fate:
    lines = ("connecting to the bank",)
    if run.task == "export" and now > NOW - 2 * 3_600_000:
        return Fate(1_800, "raised", error=ERROR, lines=lines)
    return Fate(400, result={"sent": 31}, lines=lines)


def _written() -> FixedPast:
    """A small shop: a job that has begun to fail, a pause, two tenants, alerts."""
    past = FixedPast("8h", _fate)
    app, do = past.app, past.do
    past.add_tasks("export", "mail", "count")
    ana, ben = "ana@shop.example", "ben@shop.example"
    add = app.schedules.add
    do(
        "8h",
        ana,
        partial(
            add,
            "invoices",
            "5 * * * * tz=Europe/Berlin",
            "export",
            payload={"bank": "north"},
            description="Sends new invoices to the bank.",
            tags=["critical", "finance"],
        ),
    )
    do("7h 59m", ben, partial(add, "digest", "0 */2 * * *", "mail", tenant="acme", tags=["mail"]))
    do("7h 58m", ben, partial(add, "import", "0 12 * * *", "csv.import", queue="slow"))
    do("7h 57m", ana, partial(app.templates.set, "nightly", trigger="0 3 * * *", retries=3))
    closed = partial(app.calendars.set, "closed", days=["12-24..12-26", "2031-01-01"])
    do("7h 56m", ana, closed)
    do("7h 55m", ana, partial(add, "stock", "0 14 * * * skip=closed,weekends move=next", "count"))
    do("7h", ana, partial(app.alerts.channels.add, "on-call", "webhook", "http://127.0.0.1:9/alerts"))
    do("6h 59m", ana, partial(app.alerts.rules.add, "failing", on=["failed"], to=["on-call"], tag="critical"))
    do("6h", ana, partial(app.alerts.rules.add, "missed", on=["missed"], to=["on-call"]))
    do("5h", ana, partial(app.alerts.rules.mute, "missed", until=ahead("12h")))
    do("4h", ana, lambda: app.tokens.verify(app.tokens.create("grafana", "viewer").secret))
    do("3h 59m", ana, partial(app.tokens.create, "deploy", "admin", expires="365d"))
    window = partial(
        app.alerts.windows.add, "upgrade", starts=ahead("6h"), until=ahead("8h"), note="new disks"
    )
    do("3h", ben, window)
    do("2h 30m", ben, partial(app.schedules.pause, "digest", "the questions change", tenant="acme"))
    do("2h 20m", ana, partial(app.limits.set, task="csv.import", concurrency=1))
    do("2h 19m", ana, partial(app.limits.set, queue="slow", key="path", rate="10/h"))
    do("2h 10m", ana, partial(app.tenants.set_quota, "acme", schedules=1, queued_runs=500))
    do("2h 5m", ben, partial(app.retention.set, state="failed", keep="30d"))
    do("2h", ana, partial(app.enqueue, "count", {"shelf": 7}))
    past.go()
    app.enqueue("csv.import", {"path": "new.csv"}, queue="slow")
    with acting_as(ben):
        # The schedule is paused: the backfill waits, and adds no run.
        app.schedules.backfill("digest", "2d", "1d", tenant="acme", id="questions")
    past.store.put_record(Record(kind="deferred", key="import", body="tz Europe/Kyiv is not known"))
    past.add_node("ber-1:4117")
    return past


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Dashboard, str]]:
    """The dashboard of the shop, and the id of its last failed run."""
    past = _written()
    made = Dashboard(None, past.app)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "wall_clock", past.store.now)
        made.serve()
        (failed, *_) = past.app.runs.list(state="failed", limit=1)
        yield made, failed.id
        made.close()


def _with_flow() -> tuple[FixedPast, str]:
    """A flow with a run in which the bank refused a step, and the id of this run."""
    past = FixedPast("1h", _fate)
    app = past.app

    @app.task
    def read_orders(day: str) -> None: ...

    @app.task
    def price(order: int) -> None: ...

    @app.task
    def book(prices: list[int]) -> None: ...

    @app.task
    def thank() -> None: ...

    @app.task
    def page() -> None: ...

    @app.flow
    def nightly(day: str = "yesterday") -> None:
        booked = book.step(price.map(read_orders.step(day=day)))
        thank.step(after=[booked])
        page.step(after=[booked], run_if="any_failed")

    return past, past.run_flow(nightly, {"book": ERROR}, result="[1, 2, 3]")


@pytest.fixture(scope="module")
def with_flow() -> Iterator[tuple[Dashboard, str]]:
    """A dashboard with a flow, and the id of its run."""
    past, run = _with_flow()
    made = Dashboard(None, past.app)
    made.serve()
    yield made, run
    made.close()


@pytest.mark.parametrize("name", PAGES_OF_FLOWS)
def test_the_tree_of_a_page_about_flows(
    browser: Browser, with_flow: tuple[Dashboard, str], complaints: Complaints, name: str
) -> None:
    dashboard, run = with_flow
    path, query = PAGES_OF_FLOWS[name]
    with opened(browser, dashboard, complaints) as context:
        page = context.new_page()
        hold_clock(page)
        page.goto(dashboard.link(*(run if part == "FLOW" else part for part in path), **query))
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        _compare(page.locator("main"), name)


@pytest.fixture(scope="module")
def screen(browser: Browser, shop: tuple[Dashboard, str]) -> Iterator[Page]:
    complaints = Complaints()
    with opened(browser, shop[0], complaints) as context:
        page = context.new_page()
        hold_clock(page)
        yield page
    assert complaints.unexpected == []


@pytest.mark.parametrize("name", PAGES)
def test_the_tree_of_a_page(shop: tuple[Dashboard, str], screen: Page, name: str) -> None:
    dashboard, failed = shop
    path, query = PAGES[name]
    screen.goto(dashboard.link(*(failed if part == "FAILED" else part for part in path), **query))
    expect(screen.locator("main h1").first).to_be_visible()
    expect(screen.locator(".loading")).to_have_count(0)
    _compare(screen.locator("main"), name)


def test_the_tree_of_the_banner(shop: tuple[Dashboard, str], screen: Page) -> None:
    screen.goto(shop[0].link("now"))
    expect(screen.locator(".stream.live .age")).to_be_visible()
    _compare(screen.get_by_role("banner").first, "banner")


def test_the_tree_of_the_log_in(browser: Browser, guarded: Dashboard, complaints: Complaints) -> None:
    complaints.allow("401")
    with opened(browser, guarded, complaints) as context:
        page = context.new_page()
        page.goto(guarded.link("now"))
        expect(page.get_by_label("Token")).to_be_visible()
        _compare(page.locator("main"), "log-in")


def _compare(part: Locator, name: str) -> None:
    """Compare the tree of a part of a page with its file, once it is the same, or write it."""
    file = TREES / f"{name}.yml"
    if WRITES:
        file.write_text(_quiet_tree(part))
        return
    wanted = file.read_text()
    found = ""
    for _ in range(PATIENCE // STEP):
        found = _tree(part)
        if found == wanted:
            return
        part.page.wait_for_timeout(STEP)
    before, after = wanted.splitlines(), found.splitlines()
    lines = difflib.unified_diff(before, after, f"trees/{name}.yml", "page", lineterm="")
    pytest.fail("\n".join(lines), pytrace=False)


def _quiet_tree(part: Locator) -> str:
    """Return the tree when it has not changed for a while."""
    last, same = "", 0
    end = time.monotonic() + PATIENCE / 1000
    while same < QUIET and time.monotonic() < end:
        found = _tree(part)
        same = same + 1 if found == last else 0
        last = found
        part.page.wait_for_timeout(STEP)
    return last


def _tree(part: Locator) -> str:
    return "\n".join(_shortened(_normal(part.aria_snapshot()).splitlines())) + "\n"


def _normal(tree: str) -> str:
    """Replace what is random: ids of runs without a tick, of tokens, of deliveries, and the number of a fire.
    Drop the names of rows, which repeat their cells."""
    tree = re.sub(r"\b[0-9a-f]{32}\b", "RUN-ID", tree)
    tree = re.sub(r"…[0-9a-f]{13}\b", "…RUN-ID", tree)
    tree = re.sub(r'(term: fire_seq\n.*\n.*code: )"\d+"', r'\1"NUMBER"', tree)
    return re.sub(r"^( *)- (?:'row .*'|row \".*\"):$", r"\1- row:", tree, flags=re.MULTILINE)


def _shortened(lines: list[str]) -> Iterator[str]:
    """Leave out the middle of a long row of neighbours of the same role, as of the cells of a heat map."""
    for role, alike in itertools.groupby(_blocks(lines), key=lambda block: block[0]):
        blocks = [block for _, block in alike]
        is_long = len(blocks) > MOST.get(role, len(blocks))
        for number, (head, *body) in enumerate(blocks):
            if not is_long or number < 2 or number == len(blocks) - 1:
                yield head
                yield from _shortened(body)
            elif number == 2:
                yield f"{' ' * _depth(head)}# {len(blocks) - 3} more: {role}"


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return the nodes of the top of a tree: the role of each, and its lines."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        if blocks and _depth(line) > _depth(blocks[0][1][0]):
            blocks[-1][1].append(line)
        else:
            blocks.append((re.split(r"[ :\"]", line.strip(" '-"), maxsplit=1)[0], [line]))
    return blocks


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
