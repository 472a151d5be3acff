"""The pages of runs: the list, the failures by error, and one run."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat import RunContext
from evenbeat.core.instants import to_ms
from evenbeat.core.results import Run
from evenbeat.observe.run_logs import refusal
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
LARGE = 12345678901234567890
HOPELESS = 18
LIMIT = 30.0
"""Seconds that a task of these tests waits for the test at most."""

_log = logging.getLogger("shop")


def _failed(dashboard: Dashboard, task: str, **payload: object) -> Run:
    """Enqueue a run that fails, and wait for it."""
    run = dashboard.app.runs.join(dashboard.app.enqueue(task, payload or None).id, "30s")
    assert run.state == "failed"
    return run


def _row(page: Page, run: Run) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=f"run {run.id}", exact=True))


def _state(page: Page) -> Locator:
    """The state at the top of a run's page."""
    return page.get_by_role("region", name="Run", exact=True).locator(".state")


def test_open_a_failing_run_read_the_traceback_retry_and_see_it_succeed(
    dashboard: Dashboard, page: Page
) -> None:
    is_down = threading.Event()
    is_down.set()

    @dashboard.app.task(name="bank.charge")
    def charge() -> str:
        if is_down.is_set():
            raise ConnectionError("the bank did not answer")
        return "charged"

    dashboard.app.start()
    failed = _failed(dashboard, "bank.charge")
    page.goto(dashboard.link("runs", state="failed"))
    _row(page, failed).get_by_role("link", name=f"run {failed.id}").click()
    expect(page.get_by_role("heading", name="Run of bank.charge")).to_be_visible()
    expect(page.get_by_label("Error", exact=True).last).to_contain_text("in charge")
    expect(page.get_by_label("Why")).to_contain_text("ConnectionError: the bank did not answer")
    expect(page.get_by_role("list", name="Attempts over time")).to_contain_text("token 1")
    is_down.clear()
    page.get_by_role("button", name="Retry", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Retry", exact=True).click()
    expect(_state(page)).to_have_text("succeeded")
    expect(page.get_by_label("Result").last).to_have_text('"charged"')
    expect(page.get_by_role("list", name="Attempts over time").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("region", name="Changes by hand", exact=True)).to_contain_text("retry")


@pytest.mark.parametrize("has_schedule", [True, False])
def test_a_payload_that_is_edited_keeps_every_digit(
    dashboard: Dashboard, page: Page, has_schedule: bool
) -> None:
    app = dashboard.app
    if has_schedule:
        app.schedules.add("books", "0 0 1 1 *", "book", payload={"number": LARGE, "rate": 1.0})
        run = app.schedules.run_now("books")
    else:
        run = app.enqueue("book", {"number": LARGE, "rate": 1.0}, retries=7, queue="slow")
    page.goto(dashboard.link("runs", "default", run.id))
    expect(page.get_by_label("Payload").last).to_have_text(f'{{\n  "number": {LARGE},\n  "rate": 1.0\n}}')
    page.get_by_role("button", name="Run with an edited payload").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This adds a new run")
    payload = dialog.get_by_label("Payload")
    expect(payload).to_have_value(f'{{\n  "number": {LARGE},\n  "rate": 1.0\n}}')
    payload.fill("[1]")
    expect(dialog.get_by_role("button", name="Add the run")).to_be_disabled()
    payload.fill(f'{{"number": {LARGE + 1}, "rate": 2.0}}')
    dialog.get_by_role("button", name="Add the run").click()
    expect(page.get_by_label("Payload").last).to_have_text(f'{{\n  "number": {LARGE + 1},\n  "rate": 2.0\n}}')
    made = app.runs.list()
    assert len(made) == 2
    assert made[0].payload == {"number": LARGE + 1, "rate": 2.0}
    assert isinstance(made[0].payload["rate"], float)
    assert (made[0].schedule, made[0].queue, made[0].retries) == (run.schedule, run.queue, run.retries)


def test_retry_a_group_of_failures(dashboard: Dashboard, page: Page) -> None:
    is_down = threading.Event()
    is_down.set()

    @dashboard.app.task
    def send(number: int) -> None:
        if is_down.is_set() or number == HOPELESS:
            raise TimeoutError(f"message {number} was not sent")

    @dashboard.app.task
    def other() -> None:
        raise ValueError("another error")

    dashboard.app.start()
    group = [_failed(dashboard, "send", number=number) for number in (17, HOPELESS, 19)]
    alone = _failed(dashboard, "other")
    is_down.clear()
    page.goto(dashboard.link("runs", "failures"))
    errors = page.get_by_role("list", name="Errors")
    sent = errors.get_by_role("listitem").filter(has_text="TimeoutError: message … was not sent")
    expect(sent).to_contain_text("3 runs")
    expect(sent).to_contain_text("newest: TimeoutError: message 19 was not sent")
    expect(page.get_by_text("All 4 failed runs since")).to_be_visible()
    sent.get_by_text("Traceback of the newest").click()
    expect(sent.get_by_label("Error of the newest run")).to_contain_text("message 19 was not sent")
    expect(sent.get_by_role("link", name=f"run {group[0].id}")).to_be_visible()
    sent.get_by_role("button", name="Retry this group").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_contain_text("failed as the newest did: TimeoutError")
    expect(dialog).to_contain_text("3 failed runs match.")
    expect(dialog.get_by_role("row")).to_have_count(1 + 3)
    dialog.get_by_role("button", name="Retry 3 runs").click()
    expect(dialog.get_by_role("status").first).to_contain_text("Retried 3 runs.")
    expect(dialog.get_by_text("3 retried: 2 succeeded, 1 failed again", exact=True)).to_be_visible()
    expect(dialog.get_by_role("row").filter(has_text="Retried: it succeeded")).to_have_count(2)
    expect(dialog.get_by_role("row").filter(has_text="Retried: it failed again")).to_have_count(1)
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    expect(sent).to_contain_text("1 run")
    states = [dashboard.app.runs.join(run.id, "30s").state for run in group]
    assert states == ["succeeded", "failed", "succeeded"]
    assert dashboard.app.runs.get(alone.id).state == "failed"


def test_a_group_may_have_runs_of_several_tenants(dashboard: Dashboard, page: Page) -> None:
    is_down = threading.Event()
    is_down.set()

    @dashboard.app.task
    def send() -> None:
        if is_down.is_set():
            raise TimeoutError("no answer")

    app = dashboard.app
    app.start()
    runs = [app.enqueue("send", tenant=tenant) for tenant in ("default", "acme")]
    for run in runs:
        assert app.runs.join(run.id, "30s", tenant=run.tenant).state == "failed"
    is_down.clear()
    page.goto(dashboard.link("runs", "failures"))
    page.get_by_text("Traceback of the newest").click()
    page.get_by_role("button", name="List the runs").click()
    for run in runs:
        link = page.get_by_role("link", name=f"run {run.id}")
        expect(link).to_have_attribute("href", f"#/runs/{run.tenant}/{run.id}")
    page.get_by_role("button", name="Retry this group").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Retry 2 runs").click()
    expect(dialog.get_by_role("status").first).to_contain_text("Retried 2 runs.")
    assert {app.runs.join(run.id, "30s", tenant=run.tenant).state for run in runs} == {"succeeded"}


def test_cancel_all_queued_runs_of_a_filter(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    wanted = [app.enqueue("import", queue="slow") for _ in range(3)]
    other = app.enqueue("import", queue="fast")
    page.goto(dashboard.link("runs", queue="slow"))
    expect(page.get_by_role("link", name=f"run {wanted[0].id}")).to_be_visible()
    page.get_by_role("button", name="Cancel all queued").click()
    dialog = page.get_by_role("dialog", name="Cancel queued runs of queue slow")
    expect(dialog).to_contain_text("3 queued runs match.")
    dialog.get_by_role("button", name="Cancel 3 runs").click()
    expect(dialog.get_by_role("status")).to_contain_text("Cancelled 3 runs.")
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    for run in wanted:
        expect(_row(page, run)).to_contain_text("cancelled")
    assert app.runs.get(other.id).state == "queued"


def test_the_log_of_a_running_run_grows_and_follows_its_end(dashboard: Dashboard, page: Page) -> None:
    goes_on, may_end = threading.Event(), threading.Event()

    @dashboard.app.task(name="export")
    def export() -> None:
        for number in range(100):
            _log.warning("row %d", number)
        goes_on.wait(LIMIT)
        _log.warning("the second part")
        may_end.wait(LIMIT)
        _log.warning("the end")

    dashboard.app.start()
    run = dashboard.app.enqueue("export")
    page.goto(dashboard.link("runs", "default", run.id))
    log = page.get_by_role("log")
    expect(log).to_contain_text("row 99")
    expect(log).to_contain_text("attempt 1")
    log.scroll_into_view_if_needed()
    expect(log.get_by_text("row 99")).to_be_in_viewport()
    expect(page.get_by_text("lease until")).to_be_visible()
    log.evaluate("frame => frame.scrollTo(0, 0)")
    follow = page.get_by_role("button", name="Follow the end")
    expect(follow).to_be_visible()
    goes_on.set()
    expect(follow).to_have_text("Follow the end: 1 new line")
    assert log.evaluate("frame => frame.scrollTop") == 0
    follow.click()
    expect(log.get_by_text("the second part")).to_be_in_viewport()
    may_end.set()
    expect(log.get_by_text("the end")).to_be_in_viewport()
    expect(_state(page)).to_have_text("succeeded")


def test_the_progress_of_a_running_run(dashboard: Dashboard, page: Page) -> None:
    goes_on, may_end = threading.Event(), threading.Event()

    @dashboard.app.task(name="export")
    def export(run: RunContext) -> None:
        run.progress(30, f"sending {HOSTILE}", total=120)
        goes_on.wait(LIMIT)
        run.progress(60, "almost there", total=120)
        may_end.wait(LIMIT)

    dashboard.app.start()
    run = dashboard.app.enqueue("export")
    page.goto(dashboard.link("runs", "default", run.id))
    progress = page.get_by_role("region", name="Progress", exact=True)
    expect(progress).to_contain_text("30 of 120, 25 %")
    expect(progress).to_contain_text(f"sending {HOSTILE}")
    goes_on.set()
    expect(progress).to_contain_text("60 of 120, 50 %")
    expect(page.get_by_role("progressbar")).to_have_js_property("value", 60)
    may_end.set()
    expect(_state(page)).to_have_text("succeeded")
    expect(progress).to_have_count(0)
    kept = page.get_by_role("region", name="Progress at the end", exact=True)
    expect(kept).to_contain_text("60 of 120, 50 %")
    expect(kept).to_contain_text("almost there")


def test_cancel_a_running_run(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task(name="wait")
    def wait(run: RunContext) -> None:
        stop = threading.Event()
        while not stop.wait(0.02):
            run.raise_if_cancelled()

    dashboard.app.start()
    run = dashboard.app.enqueue("wait")
    page.goto(dashboard.link("runs", "default", run.id))
    expect(_state(page)).to_have_text("running")
    page.get_by_role("button", name="Cancel …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The run is asked to stop.")
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(_state(page)).to_have_text("cancelled")
    expect(page.get_by_label("Why")).to_contain_text("cancelled")


def test_an_attempt_that_lost_its_lease_says_what_became_of_its_result(
    dashboard: Dashboard, page: Page
) -> None:
    store, run_id = dashboard.app.store, dashboard.app.enqueue("work").id
    for worker in ("frozen", "dead"):
        claim = Claim(worker=worker, token=worker, limit=1, now=store.now(), lease=1, tasks=None)
        (run,) = store.claim_runs(claim).runs
        ended = replace(attempts.crashed(run, store.now(), f"reaper of {worker}"), lease_ended=False)
        assert store.settle_runs([ended]) == [True]
        if worker == "frozen":
            store.append_log([refusal(run, to_ms(datetime(2026, 3, 1, 11, 3, 4, tzinfo=UTC)))])
    page.goto(dashboard.link("runs", "default", run_id))
    bars = page.get_by_role("list", name="Attempts over time").get_by_role("listitem")
    expect(bars.nth(0)).to_contain_text("token 1 on frozen")
    expect(bars.nth(0)).to_contain_text("attempt 1 lost its lease; its late result was refused at 12:03:04")
    expect(bars.nth(1)).to_contain_text("attempt 2 lost its lease: its worker stopped heartbeating")
    page.get_by_text("Attempts as a table").click()
    table = page.get_by_role("region", name="Attempts", exact=True).last
    expect(table).to_contain_text("2026-03-01 12:03:04 +01:00 Europe/Berlin")


def test_new_runs_are_counted_and_rows_stay_where_they_are(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    old = [app.enqueue("work") for _ in range(3)]
    page.goto(dashboard.link("runs"))
    rows = page.get_by_role("table", name="Runs, the newest first").get_by_role("row")
    expect(rows).to_have_count(1 + 3)
    expect(page.locator(".stream.live")).to_be_visible()
    new = [app.enqueue("work") for _ in range(2)]
    fresh = page.get_by_role("button", name="2 new")
    expect(fresh).to_be_visible()
    # A row that is shown changes in its place. Runs of one millisecond are in the order of their ids.
    shown = [run for run in app.runs.list() if run.id in {each.id for each in old}]
    app.runs.cancel(shown[1].id)
    expect(rows.nth(2)).to_contain_text("cancelled")
    expect(rows.nth(2).get_by_role("link", name=f"run {shown[1].id}")).to_be_visible()
    expect(rows).to_have_count(1 + 3)
    fresh.click()
    expect(rows).to_have_count(1 + 5)
    for place, run in enumerate(app.runs.list(), 1):
        expect(rows.nth(place).get_by_role("link", name=f"run {run.id}")).to_be_visible()
    assert {run.id for run in new} == {run.id for run in app.runs.list(limit=2)}
    expect(fresh).to_have_count(0)


def test_times_obey_the_zone_of_the_schedule(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("report", "0 9 * * * tz=Asia/Tokyo", "work")
    run = dashboard.app.schedules.run_now("report")
    facts = page.get_by_role("region", name="Facts", exact=True)
    page.goto(dashboard.link("runs", "default", run.id))
    expect(facts).to_contain_text("Europe/Berlin")
    page.goto(dashboard.link("runs", "default", run.id, tz="schedule"))
    expect(facts).to_contain_text("+09:00 Asia/Tokyo")


def test_times_in_the_sentence_obey_the_chosen_zone(dashboard: Dashboard, page: Page) -> None:
    run = dashboard.app.enqueue("work", delay="1h")
    page.goto(dashboard.link("runs", "default", run.id))
    sentence = page.get_by_label("Why").locator(".why-sentence")
    expect(sentence).to_contain_text(re.compile(r"\+0[12]:00"))  # Berlin, the zone of the browser
    page.goto(dashboard.link("runs", "default", run.id, tz="utc"))
    expect(sentence).to_contain_text("UTC")


def test_the_filter_is_in_the_address(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    kept, other = app.enqueue("mail"), app.enqueue("report")
    page.goto(dashboard.link("runs"))
    expect(_row(page, other)).to_be_visible()
    page.get_by_label("Task").fill("mail")
    expect(_row(page, other)).to_have_count(0)
    expect(_row(page, kept)).to_be_visible()
    page.get_by_label("State").select_option("queued")
    expect(page).to_have_url(dashboard.link("runs", task="mail", state="queued"))
    page.reload()
    expect(page.get_by_label("Task")).to_have_value("mail")
    expect(_row(page, kept)).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    expect(_row(page, other)).to_be_visible()


def test_older_runs_come_by_pages(dashboard: Dashboard, page: Page) -> None:
    for _ in range(60):
        dashboard.app.enqueue("work")
    page.goto(dashboard.link("runs"))
    rows = page.get_by_role("table", name="Runs, the newest first").get_by_role("row")
    expect(rows).to_have_count(1 + 50)
    page.get_by_role("button", name="Show older runs").click()
    expect(rows).to_have_count(1 + 60)
    expect(page.get_by_role("button", name="Show older runs")).to_have_count(0)
    # Rows below the newest page are kept current, too.
    dashboard.app.runs.cancel_all(ids=[run.id for run in dashboard.app.runs.list(limit=60)[-3:]])
    for place in (58, 59, 60):
        expect(rows.nth(place)).to_contain_text("cancelled")


def test_hostile_texts_are_texts(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task(name="hostile")
    def hostile(text: str) -> None:
        _log.warning("log %s", text)
        raise ValueError(text)

    dashboard.app.start()
    run = _failed(dashboard, "hostile", text=HOSTILE)
    page.goto(dashboard.link("runs", "default", run.id))
    expect(page.get_by_role("log")).to_contain_text(f"log {HOSTILE}")
    expect(page.get_by_label("Error", exact=True).last).to_contain_text(f"ValueError: {HOSTILE}")
    expect(page.get_by_label("Payload").last).to_contain_text("<script>alert(1)</script>")
    page.goto(dashboard.link("runs", "failures"))
    expect(page.get_by_role("heading", name="<script>")).to_be_visible()
    page.get_by_role("button", name="Retry this group").click()
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    page.goto(dashboard.link("runs", task=HOSTILE.replace(" ", "/")))
    expect(page.get_by_text("No run matches this filter.")).to_be_visible()
    page.goto(dashboard.link("runs", "default", run.id))
    page.get_by_role("button", name="Retry with an edited payload").click()
    expect(page.get_by_role("dialog").get_by_label("Payload")).to_have_value(
        '{\n  "text": ' + '"<script>alert(1)</script>\\"><img src=x onerror=alert(1)>"' + "\n}"
    )


def test_a_run_that_is_not_there(dashboard: Dashboard, page: Page, complaints: Complaints) -> None:
    complaints.allow("404")
    page.goto(dashboard.link("runs", "default", "gone"))
    expect(page.get_by_role("heading", name="Run not found")).to_be_visible()
    expect(page.get_by_text("It may have been purged")).to_be_visible()


def test_an_address_may_leave_out_the_tenant_of_a_run(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    app = dashboard.app
    app.start()
    app.schedules.add("digest", "every 1s", "mail.digest", tenant="acme")
    enqueued = app.enqueue("welcome.mail")
    page.goto(dashboard.link("runs", enqueued.id))
    expect(page.get_by_role("heading", name="Run of welcome.mail")).to_be_visible()
    expect(page).to_have_url(dashboard.link("runs", "default", enqueued.id))
    page.goto(dashboard.link("runs", tenant="acme"))
    expect(page.get_by_role("row").filter(has_text="mail.digest").first).to_be_visible()
    # The id of a tick begins with its tenant. Its slashes may be there as they are.
    tick = app.runs.list(tenant="acme")[-1]
    assert tick.id.startswith("acme/digest/")
    page.goto(f"{dashboard.url}/#/runs/{tick.id}")
    expect(page.get_by_role("heading", name="Run of mail.digest")).to_be_visible()
    expect(page).to_have_url(dashboard.link("runs", "acme", tick.id))
    # Other ids may be those of any tenant.
    complaints.allow("404")
    of_acme = app.enqueue("hello", tenant="acme")
    page.goto(dashboard.link("runs", of_acme.id))
    expect(page.get_by_role("heading", name="Run of hello")).to_be_visible()
    page.goto(dashboard.link("runs", "gone"))
    expect(page.get_by_text("The tenants default, acme have no run")).to_be_visible()


def test_a_retry_by_hand_explains_the_numbers_of_attempts(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task
    def work() -> None:
        raise ValueError("no")

    dashboard.app.start()
    run = _failed(dashboard, "work")
    dashboard.app.runs.retry(run.id)
    assert dashboard.app.runs.join(run.id, "30s").attempt == 3
    page.goto(dashboard.link("runs", "default", run.id))
    section = page.get_by_role("region", name="Attempts", exact=True)
    expect(section).to_contain_text("retried by hand once, 1 failure since the retry by hand")
    expect(section.get_by_role("list", name="Attempts over time")).to_contain_text(
        "Number 2 is that of a retry by hand."
    )
    expect(page.get_by_role("region", name="Facts")).to_contain_text("Late by, first attempt")
    expect(section.get_by_text("fencing token")).to_be_hidden()
    section.get_by_text("What is the token?").click()
    expect(section.get_by_text("fencing token")).to_be_visible()
    section.get_by_role("link", name="retried by hand once").click()
    expect(page.get_by_role("row").filter(has_text=run.id)).to_contain_text("retry")


def test_a_viewer_sees_no_buttons_that_change_runs(
    guarded: Dashboard, browser: Browser, complaints: Complaints
) -> None:
    complaints.allow("401")
    run = guarded.app.enqueue("work", {"password": "secret"})
    with opened(browser, guarded, complaints) as context:
        page = context.new_page()
        page.goto(guarded.link("runs", "default", run.id))
        page.get_by_label("Token").fill(guarded.token("viewer"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_label("Payload").last).to_contain_text("password")
        expect(page.get_by_label("Payload").last).not_to_contain_text("secret")
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        expect(page.get_by_role("button", name="edited payload")).to_have_count(0)
        page.goto(guarded.link("runs"))
        expect(page.get_by_role("link", name=f"run {run.id}")).to_be_visible()
        expect(page.get_by_role("button", name="Retry all")).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel all")).to_have_count(0)


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 375)])
def test_axe_finds_nothing_serious(
    dashboard: Dashboard, browser: Browser, complaints: Complaints, dark: bool, width: int
) -> None:
    @dashboard.app.task(name="fails")
    def fails() -> None:
        _log.warning("a line")
        raise ValueError("no")

    dashboard.app.start()
    run = _failed(dashboard, "fails")

    def on_list(page: Page) -> None:
        expect(_row(page, run)).to_be_visible()

    def on_failures(page: Page) -> None:
        page.get_by_text("Traceback of the newest").click()

    def on_run(page: Page) -> None:
        page.get_by_text("Attempts as a table").click()
        expect(page.get_by_role("log")).to_contain_text("a line")

    views: list[tuple[tuple[str, ...], Callable[[Page], None]]] = [
        (("runs",), on_list),
        (("runs", "failures"), on_failures),
        (("runs", "default", run.id), on_run),
    ]
    with opened(browser, dashboard, complaints, dark=dark, width=width) as context:
        page = context.new_page()
        for path, settle in views:
            page.goto(dashboard.link(*path))
            settle(page)
            assert_accessible(page)
            # Nothing is wider than the screen.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Retry with an edited payload").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert_accessible(page)
