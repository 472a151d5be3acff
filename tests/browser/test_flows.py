"""The pages of flows: the list, one flow, and a run of one with its graph and buttons."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat import Scheduler
from evenbeat.core.results import Run
from evenbeat.stores.base import Claim
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

LIMIT = 30.0
"""Seconds that a task of these tests waits for the test at most."""


class Etl:
    """The flow nightly: extract, clean (a map), check beside them, load, publish. The test holds a step, and
    breaks another."""

    def __init__(self, app: Scheduler) -> None:
        self.app = app
        self.goes_on = threading.Event()
        self.is_down = threading.Event()
        self.is_down.set()
        self.extracted: list[str] = []

        @app.task
        def extract(day: str) -> list[int]:
            self.extracted.append(day)
            return [1, 2, 3, 4]

        @app.task
        def clean(part: int) -> int:
            if part == 3 and self.is_down.is_set():
                raise ValueError(f"row {part} has no price")
            return part * 10

        @app.task
        def check() -> None:
            assert self.goes_on.wait(LIMIT)

        @app.task
        def load(parts: list[int]) -> int:
            return sum(parts)

        @app.task
        def report() -> None: ...

        @app.flow
        def publish() -> None:
            report.step()

        @app.flow
        def nightly(day: str = "yesterday") -> object:
            loaded = load.step(clean.map(extract.step(day=day)), after=[check.step()])
            publish.step(after=[loaded])
            return loaded

    def failed(self) -> Run:
        """Return a run of the flow in which the map has failed."""
        self.goes_on.set()
        run = self.app.runs.join(self.app.flows.run("nightly").id, "30s")
        assert run.state == "failed"
        return run


@pytest.fixture
def etl(dashboard: Dashboard) -> Iterator[Etl]:
    made = Etl(dashboard.app)
    yield made
    made.goes_on.set()


def _box(page: Page, name: str) -> Locator:
    return page.get_by_role("listbox").get_by_role("option").filter(has=page.get_by_text(name, exact=True))


def _state(page: Page) -> Locator:
    """The state at the top of a run's page."""
    return page.get_by_role("region", name="Run", exact=True).locator(".state")


def test_start_a_flow_watch_it_fail_and_resume_it(dashboard: Dashboard, page: Page, etl: Etl) -> None:
    dashboard.app.start()
    page.goto(dashboard.link("flows"))
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="nightly", exact=True))
    expect(row).to_contain_text("no runs yet")
    assert_accessible(page)
    row.get_by_role("button", name="Start nightly").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Arguments").fill('{"day": "monday"}')
    assert_accessible(page)
    dialog.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("heading", name="Run of nightly")).to_be_visible()
    # Live: nothing is loaded again by hand.
    expect(_box(page, "extract")).to_contain_text("succeeded")
    expect(_box(page, "check")).to_contain_text("running")
    expect(_box(page, "clean")).to_contain_text("4/4, 1 failed")
    expect(_box(page, "load")).to_contain_text("waiting")
    panel = page.get_by_role("region", name="Step clean")
    expect(panel).to_contain_text("1 of 4 elements failed (first: 2).")
    expect(panel.get_by_label("Error of clean")).to_contain_text("row 3 has no price")
    expect(panel.get_by_role("link", name="element 2")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    assert_accessible(page)
    etl.goes_on.set()
    expect(_state(page)).to_have_text("failed")
    expect(_box(page, "check")).to_contain_text("succeeded")
    expect(_box(page, "load")).to_contain_text("not run")
    assert_accessible(page)
    etl.is_down.clear()
    page.get_by_role("button", name="Resume").click()
    expect(dialog).to_contain_text("3 steps run again")
    expect(dialog).to_contain_text("2 steps that succeeded stay as they are")
    dialog.get_by_role("button", name="Resume", exact=True).click()
    expect(_state(page)).to_have_text("succeeded")
    expect(_box(page, "clean")).to_contain_text("4/4")
    expect(_box(page, "publish")).to_contain_text("succeeded")
    expect(page.get_by_label("Result").last).to_have_text("100")
    assert etl.extracted == ["monday"]
    expect(page.get_by_role("region", name="Changes by hand", exact=True)).to_contain_text("retry")
    # A step leads to its run, a flow within the flow to its own graph, and both back.
    _box(page, "publish").click()
    page.get_by_role("link", name="Open the flow of this step").click()
    expect(_box(page, "report")).to_contain_text("succeeded")
    _box(page, "report").click()
    page.get_by_role("link", name="Open its run").click()
    expect(page.get_by_role("heading", name="Run of report")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    page.get_by_role("link", name="its flow").click()
    expect(page.get_by_role("heading", name="Run of publish")).to_be_visible()
    page.get_by_role("link", name="another flow").click()
    expect(page.get_by_role("heading", name="Run of nightly")).to_be_visible()
    expect(page.get_by_role("region", name="Step publish")).to_be_visible()


def test_a_step_that_starts_elsewhere_is_seen_although_its_flow_does_not_change(
    dashboard: Dashboard, page: Page
) -> None:
    app = dashboard.app

    @app.task(queue="slow")
    def work() -> None: ...

    @app.flow
    def alone() -> None:
        work.step()

    app.start(queues=["default"])
    run = app.flows.run("alone")
    page.goto(dashboard.link("runs", "default", run.id))
    expect(_box(page, "work")).to_contain_text("queued")
    expect(page.locator(".stream.live")).to_be_visible()
    # The first message of the stream says "many", and everything is loaded again.
    page.wait_for_timeout(3_000)
    claim = Claim(worker="far", token="1", limit=1, now=app.store.now(), lease=60_000, queues=("slow",))
    assert len(app.store.claim_runs(claim).runs) == 1
    expect(_box(page, "work")).to_contain_text("running")


def test_retry_a_step_and_cancel_the_flow(dashboard: Dashboard, page: Page, etl: Etl) -> None:
    app = dashboard.app
    etl.is_down.clear()
    etl.goes_on.set()
    app.start()
    run = app.runs.join(app.flows.run("nightly").id, "30s")
    assert run.state == "succeeded"
    etl.goes_on.clear()
    page.goto(dashboard.link("runs", "default", run.id, step="check"))
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.get_by_role("region", name="Step check").get_by_role("button", name="Retry the step check").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The step runs again, and then 2 steps after it: load, publish.")
    assert_accessible(page)
    dialog.get_by_role("button", name="Retry the step").click()
    expect(_box(page, "check")).to_contain_text("running")
    expect(_box(page, "load")).to_contain_text("waiting")
    expect(_box(page, "extract")).to_contain_text("succeeded")
    # It has not ended, so it can't be retried.
    expect(page.get_by_role("button", name="Retry the step check")).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the flow").click()
    expect(page.locator(".notices")).to_contain_text("were asked to stop")
    etl.goes_on.set()
    expect(_state(page)).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert etl.extracted == ["yesterday"]


def test_the_graph_is_used_by_keyboard(dashboard: Dashboard, page: Page, etl: Etl) -> None:
    dashboard.app.start()
    run = etl.failed()
    page.goto(dashboard.link("runs", "default", run.id))
    expect(_box(page, "clean")).to_have_attribute("aria-selected", "true")
    # One stop of the Tab key for the whole graph: the chosen step.
    page.get_by_role("button", name="Table", exact=True).focus()
    page.keyboard.press("Tab")
    expect(_box(page, "clean")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(_box(page, "load")).to_be_focused()
    expect(page.get_by_role("region", name="Step load")).to_contain_text("Clean failed.")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    expect(_box(page, "extract")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Open its run")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Retry the step extract")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("The step runs again")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Retry the step extract")).to_be_focused()


def test_the_steps_are_a_table_too(dashboard: Dashboard, page: Page, etl: Etl) -> None:
    dashboard.app.start()
    run = etl.failed()
    page.goto(dashboard.link("runs", "default", run.id))
    page.get_by_role("button", name="Table", exact=True).click()
    table = page.get_by_role("table", name="Steps of nightly")
    expect(table.get_by_role("row")).to_have_count(6)
    clean = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="clean"))
    expect(clean).to_contain_text("4 of 4 ended, 1 failed")
    expect(clean).to_contain_text("ValueError: row 3 has no price")
    expect(clean.get_by_role("button", name="Retry the step clean")).to_be_visible()
    assert_accessible(page)
    page.reload()
    expect(table).to_be_visible()


def test_many_steps_scroll_and_more_are_a_table(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app

    @app.task
    def work() -> None: ...

    def chain(length: int) -> None:
        last = work.step(step_name="s0")
        for number in range(1, length):
            last = work.step(step_name=f"s{number}", after=[last])

    @app.flow
    def long() -> None:
        chain(300)

    @app.flow
    def longer() -> None:
        chain(301)

    page.goto(dashboard.link("flows", "long", step="s299"))
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(300)
    # The chosen step is in view, in the frame of the graph; the page itself is not wider than the screen.
    expect(_box(page, "s299")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(dashboard.link("flows", "longer"))
    expect(page.get_by_text("301 steps are too many for a picture.")).to_be_visible()
    expect(page.get_by_role("table", name="Steps of longer").get_by_role("row")).to_have_count(302)


def test_the_graph_fits_a_phone_in_the_dark(
    browser: Browser, dashboard: Dashboard, complaints: Complaints, etl: Etl
) -> None:
    dashboard.app.start()
    run = etl.failed()
    with opened(browser, dashboard, complaints, dark=True, width=390) as context:
        page = context.new_page()
        for path in (("runs", "default", run.id), ("flows",), ("flows", "nightly")):
            page.goto(dashboard.link(*path))
            expect(page.locator("main h1").first).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert_accessible(page)
        # From the top to the bottom: a successor is below.
        first, second = (_box(page, name).bounding_box() for name in ("extract", "clean"))
        assert first is not None
        assert second is not None
        assert second["y"] > first["y"]


def test_a_viewer_sees_the_graph_and_no_buttons(
    browser: Browser, guarded: Dashboard, complaints: Complaints
) -> None:
    etl = Etl(guarded.app)
    guarded.app.start()
    run = etl.failed()
    with opened(browser, guarded, complaints) as context:
        page = context.new_page()
        complaints.allow("401")
        page.goto(guarded.link("runs", "default", run.id))
        page.get_by_label("Token").fill(guarded.token("viewer"))
        page.get_by_role("button", name="Log in").click()
        expect(_box(page, "clean")).to_contain_text("failed")
        for name in ("Resume", "Retry", "Cancel"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.get_by_role("button", name="Table", exact=True).click()
        expect(page.get_by_role("columnheader", name="State")).to_be_visible()
        expect(page.get_by_role("columnheader", name="Actions")).to_have_count(0)
        for path in (("flows",), ("flows", "nightly")):
            page.goto(guarded.link(*path))
            expect(page.locator("main h1").first).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)
            expect(page.get_by_role("button", name="Start")).to_have_count(0)


def test_a_server_without_an_app_says_so(
    browser: Browser, dashboard: Dashboard, complaints: Complaints, page: Page, etl: Etl
) -> None:
    dashboard.app.start()
    run = etl.failed()
    bare = Dashboard(None, Scheduler(dashboard.app.store))
    bare.serve()
    try:
        with opened(browser, bare, complaints) as context:
            alone = context.new_page()
            alone.goto(bare.link("flows"))
            expect(alone.locator("main")).to_contain_text("This server has no app, so it knows no flows")
            # Its runs have their graphs.
            alone.goto(bare.link("runs", "default", run.id))
            expect(_box(alone, "clean")).to_contain_text("failed")
            complaints.allow("404")
            alone.goto(bare.link("flows", "nightly"))
            expect(alone.get_by_role("alert")).to_contain_text("this server knows no flow")
            expect(alone.get_by_role("table")).to_contain_text("failed")
    finally:
        bare.stop_serving()
