"""The pages of limits, tenants, and retention and repair."""

from __future__ import annotations

import re
import threading
from datetime import timedelta

from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat.core.records import Record
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened


def _row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def _notice(page: Page, text: str) -> Locator:
    return page.locator(".notices").get_by_text(text)


def _claim(dashboard: Dashboard, worker: str, lease: int, limit: int = 1) -> list[str]:
    store = dashboard.app.store
    claim = Claim(worker=worker, token=worker, limit=limit, now=store.now(), lease=lease, tasks=None)
    return [run.id for run in store.claim_runs(claim).runs]


def _stop(dashboard: Dashboard, run_id: str) -> None:
    """End a run that was asked to stop, as its worker would."""
    store = dashboard.app.store
    (run,) = store.find_runs(RunQuery(ids=(run_id,))).items
    assert store.settle_runs([attempts.cancelled(run, store.now(), "w")]) == [True]


# -- limits ------------------------------------------------------------------------------------------------


def test_set_a_limit_and_see_what_waits_for_it(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    begun, ends = threading.Semaphore(0), threading.Event()

    @app.task(name="charge")
    def charge(customer: str) -> None:
        begun.release()
        ends.wait()

    page.goto(dashboard.link("limits"))
    expect(page.get_by_text("evenbeat limits set --task TASK --concurrency 5")).to_be_visible()
    page.get_by_role("button", name="New limit …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("charge")
    expect(dialog.get_by_role("button", name="Set")).to_be_disabled()
    dialog.get_by_label("Key").fill("customer")
    dialog.get_by_label("At once").fill("1")
    assert_accessible(page)
    dialog.get_by_role("button", name="Set").click()
    row = _row(page, "task=charge key=customer")
    expect(row).to_contain_text("at most 1 run of charge at once, for each customer")
    assert [(each.task, each.key, each.concurrency) for each in app.limits.list()] == [
        ("charge", "customer", 1)
    ]

    runs = [app.enqueue("charge", {"customer": name}) for name in ("ana", "ana", "ana", "ben")]
    app.start()
    try:
        for _ in range(2):
            assert begun.acquire(timeout=60)
        expect(row.get_by_role("link", name="2 running under task=charge key=customer")).to_be_visible()
        expect(row.get_by_role("link", name="2 waiting under task=charge key=customer")).to_be_visible()
        expect(row).to_contain_text("ana: 1 running, 2 waiting")
        expect(row).to_contain_text("ben: 1 running, 0 waiting")
        assert_accessible(page)
        (waits, *_) = [run for run in runs if app.runs.get(run.id).state == "queued"]
        page.goto(dashboard.link("runs", "default", waits.id))
        expect(page.get_by_role("region", name="Why")).to_contain_text("limit")
        page.get_by_role("link", name="Show the limits and what waits for them").click()
        page.get_by_role("button", name="Remove task=charge key=customer").click()
        expect(dialog).to_contain_text("2 runs that wait for it may start at once.")
        dialog.get_by_role("button", name="Remove").click()
        expect(page.get_by_text("No limit: every due run starts")).to_be_visible()
        assert app.limits.list() == []
    finally:
        ends.set()


def test_what_the_server_refuses_is_shown_at_the_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422")
    complaints.allow("400")
    page.goto(dashboard.link("limits"))
    page.get_by_role("button", name="New limit …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Queue").fill("mail")
    for field, label, wrong, right in (
        ("rate", "Rate", "often", "100/m"),
        ("burst", "Burst", "0", "5"),
        ("concurrency", "At once", "-1", "3"),
    ):
        dialog.get_by_label(label).fill(wrong)
        dialog.get_by_role("button", name="Set").click()
        expect(dialog.get_by_role("alert")).to_have_count(1)
        expect(dialog.get_by_label(label)).to_have_attribute("aria-invalid", "true")
        expect(dialog.get_by_role("alert")).to_contain_text(re.compile(field, re.IGNORECASE))
        assert_accessible(page)
        dialog.get_by_label(label).fill(right)
    dialog.get_by_role("button", name="Set").click()
    expect(dialog).to_have_count(0)
    (made,) = dashboard.app.limits.list()
    assert (made.queue, made.rate, made.burst, made.concurrency) == ("mail", "100/m", 5, 3)


def test_another_rate_drops_the_burst_of_the_old_one(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.limits.set(queue="mail", rate="1000/s")
    assert dashboard.app.limits.get(queue="mail").burst == 50
    page.goto(dashboard.link("limits"))
    page.get_by_role("button", name="Change queue=mail").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Burst")).to_have_value("50")
    dialog.get_by_label("Rate").fill("1/h")
    expect(dialog.get_by_label("Burst")).to_have_value("")
    dialog.get_by_role("button", name="Save").click()
    expect(_row(page, "queue=mail")).to_contain_text("an hour")
    assert dashboard.app.limits.get(queue="mail").burst == 1


def test_a_rate_says_when_the_next_run_may_start(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.limits.set(task="send", rate="1/h")
    for _ in range(3):
        dashboard.app.enqueue("send")
    page.goto(dashboard.link("limits"))
    expect(_row(page, "task=send")).to_contain_text("1 more")
    assert len(_claim(dashboard, "w", 60_000, limit=3)) == 1
    expect(_row(page, "task=send")).to_contain_text(re.compile(r"the next in \d+ min"))
    page.get_by_role("link", name="2 waiting under task=send").click()
    expect(page).to_have_url(dashboard.link("runs", task="send", state="queued"))


def test_the_tenant_at_the_top_keeps_limits_of_all_tenants(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.limits.set(tenant="acme", concurrency=1)
    dashboard.app.limits.set(tenant="globex", concurrency=1)
    dashboard.app.limits.set(task="work", concurrency=1)
    page.goto(dashboard.link("limits", tenant="acme"))
    expect(_row(page, "tenant=acme")).to_be_visible()
    expect(_row(page, "task=work")).to_be_visible()
    expect(_row(page, "tenant=globex")).to_have_count(0)


# -- tenants -----------------------------------------------------------------------------------------------


def test_set_a_quota_and_purge_a_tenant(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    app.schedules.add("digest", "every 1h", "mail", tenant="acme")
    app.schedules.add("ours", "every 1h", "mail")
    running, *_ = [app.enqueue("mail", tenant="acme") for _ in range(3)]
    assert _claim(dashboard, "w", 3_600_000) == [running.id]
    page.goto(dashboard.link("tenants"))
    expect(_row(page, "acme")).to_contain_text("none")
    assert_accessible(page)
    _row(page, "acme").get_by_role("link", name="acme", exact=True).click()
    expect(page.get_by_role("heading", name="Tenant acme")).to_be_visible()
    page.get_by_role("button", name="Set a quota …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Schedules").fill("1")
    dialog.get_by_label("Queued runs").fill("1000")
    dialog.get_by_role("button", name="Set").click()
    quota = page.get_by_role("region", name="Quota")
    expect(quota).to_contain_text("1 of 1 schedules reached")
    expect(quota).to_contain_text("2 of 1,000 queued runs")
    made = app.tenants.get("acme").quota
    assert made is not None
    assert (made.schedules, made.queued_runs) == (1, 1000)
    assert_accessible(page)

    page.get_by_role("button", name="Purge …").click()
    planned = dialog.get_by_role("list", name="What is deleted")
    expect(planned).to_contain_text("1 schedule")
    expect(planned).to_contain_text("2 queued runs")
    expect(planned).to_contain_text("1 running run, asked to stop first")
    expect(dialog.get_by_role("list", name="What stays")).to_contain_text("audit entries")
    dialog.get_by_label("Type acme to confirm").fill("acm")
    expect(dialog.get_by_role("button", name="Purge", exact=True)).to_be_disabled()
    dialog.get_by_label("Type acme to confirm").fill("acme")
    assert_accessible(page)
    assert app.runs.get(running.id, tenant="acme").state == "running"
    dialog.get_by_role("button", name="Purge", exact=True).click()
    expect(dialog).to_contain_text("1 running: asked to stop, deleted when they have ended.")
    assert_accessible(page)
    # The run stops; the purge goes on by itself.
    assert app.runs.get(running.id, tenant="acme").cancel_requested
    _stop(dashboard, running.id)
    expect(_notice(page, "Purged acme: 1 schedule, 3 runs")).to_be_visible()
    expect(page).to_have_url(dashboard.link("tenants"))
    expect(page.get_by_role("link", name="acme", exact=True)).to_have_count(0)
    assert [each.name for each in app.tenants.list()] == ["default"]


def test_a_quota_is_set_for_a_tenant_that_has_nothing_and_removed(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("404")
    page.goto(dashboard.link("tenants"))
    expect(page.get_by_text("A tenant begins to exist")).to_be_visible()
    page.get_by_role("button", name="Set a quota …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tenant").fill("globex")
    dialog.get_by_label("Schedules").fill("0")
    dialog.get_by_role("button", name="Set").click()
    expect(_row(page, "globex")).to_contain_text("0 of 0 schedules reached")
    page.get_by_role("link", name="globex", exact=True).click()
    page.get_by_role("button", name="Remove …").click()
    expect(dialog).to_contain_text("The quota was at most 0 schedules.")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Nothing of this tenant is in the store")).to_be_visible()
    assert dashboard.app.tenants.list() == []


def test_a_quota_that_the_server_refuses_is_shown_at_the_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("400")
    complaints.allow("422")
    dashboard.app.schedules.add("digest", "every 1h", "mail", tenant="acme")
    page.goto(dashboard.link("tenants", "acme"))
    page.get_by_role("button", name="Set a quota …").click()
    dialog = page.get_by_role("dialog")
    for wrong in ("-1", str(2**63), "many"):
        dialog.get_by_label("Queued runs").fill(wrong)
        dialog.get_by_role("button", name="Set").click()
        expect(dialog.get_by_label("Queued runs")).to_have_attribute("aria-invalid", "true")
        dialog.get_by_label("Queued runs").fill("")
        dialog.get_by_label("Schedules").fill("5")
    assert dashboard.app.tenants.get("acme").quota is None


# -- retention and repair ----------------------------------------------------------------------------------


def test_add_a_retention_rule_change_it_and_remove_it(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422")
    complaints.allow("400")
    retention = dashboard.app.retention
    page.goto(dashboard.link("order"))
    section = page.get_by_role("region", name="Retention")
    expect(section).to_contain_text("evenbeat retention set --state failed --keep 30d")
    section.get_by_role("button", name="New rule …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("State of the runs").select_option("failed")
    dialog.get_by_label("Keep for").fill("1s")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.get_by_label("Keep for")).to_have_attribute("aria-invalid", "true")
    assert_accessible(page)
    dialog.get_by_label("Keep for").fill("30d")
    dialog.get_by_role("button", name="Set").click()
    expect(section.get_by_role("row").filter(has_text="failed")).to_contain_text("30 d")
    (rule,) = retention.list()
    assert (rule.tenant, rule.state, rule.keep, rule.most) == (None, "failed", timedelta(days=30), None)

    section.get_by_role("button", name="Change the rule for failed runs of all tenants").click()
    expect(dialog.get_by_label("Keep for")).to_have_value("30d")
    dialog.get_by_label("Keep at most").fill("1000")
    dialog.get_by_role("button", name="Save").click()
    expect(section.get_by_role("row").filter(has_text="failed")).to_contain_text("1,000")
    (rule,) = retention.list()
    assert (rule.keep, rule.most) == (timedelta(days=30), 1000)

    section.get_by_role("button", name="Remove the rule for failed runs of all tenants").click()
    expect(dialog).to_contain_text("A less specific rule")
    dialog.get_by_role("button", name="Remove").click()
    expect(section).to_contain_text("No rule: the setting")
    assert retention.list() == []


def test_retry_and_drop_quarantined_rows(dashboard: Dashboard, page: Page, complaints: Complaints) -> None:
    complaints.allow("404")
    app = dashboard.app
    again, gone = app.enqueue("work"), app.enqueue("work")
    for run in (again, gone):
        app.runs.cancel(run.id)
        app.store.put_record(Record(kind="quarantine", tenant="default", key=run.id, body="a bad row"))
    page.goto(dashboard.link("order"))
    section = page.get_by_role("region", name="Quarantine", exact=True)
    section.get_by_role("link", name=again.id).click()
    expect(page.get_by_role("heading", name=again.id)).to_be_visible()
    expect(page.get_by_role("region", name="Quarantine")).to_contain_text("a bad row")
    expect(page.get_by_role("region", name="What can be read")).to_contain_text("work")
    assert_accessible(page)
    page.get_by_role("button", name="Retry …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The run is queued again, with all its retries")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(_notice(page, "The run is queued again")).to_be_visible()
    assert app.runs.get(again.id).state == "queued"

    expect(section.get_by_role("link", name=again.id)).to_have_count(0)
    section.get_by_role("link", name=gone.id).click()
    page.get_by_role("button", name="Drop …").click()
    expect(dialog).to_contain_text("Only the note is deleted")
    dialog.get_by_role("button", name="Drop", exact=True).click()
    expect(section).to_contain_text("Nodes can process every schedule and every run.")
    assert app.quarantine.list() == []
    assert app.runs.get(gone.id).state == "cancelled"
    page.goto(dashboard.link("order", "default", gone.id))
    expect(page.get_by_text("is not in quarantine, or not any more")).to_be_visible()


def test_a_repair_shows_its_findings_before_it_mends_them(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    run_id = app.enqueue("work").id
    # The lease ended an hour ago, and no node is there that noticed.
    assert _claim(dashboard, "dead", -3_600_000) == [run_id]
    page.goto(dashboard.link("order"))
    page.get_by_role("button", name="Look for what is wrong …").click()
    dialog = page.get_by_role("dialog")
    finding = dialog.get_by_role("list", name="Findings of the repair").get_by_role("listitem")
    expect(finding).to_contain_text(f"Run {run_id} is running and has no live worker")
    expect(finding).to_contain_text("Repair queues it again, as a node would.")
    assert_accessible(page)
    assert app.runs.get(run_id).state == "running"
    dialog.get_by_role("button", name="Repair 1 finding").click()
    section = page.get_by_role("region", name="Repair", exact=True)
    expect(section).to_contain_text("Repaired 1 finding.")
    expect(section).to_contain_text("Outcome: mended.")
    assert app.runs.get(run_id).state == "queued"
    page.get_by_role("button", name="Look for what is wrong …").click()
    expect(dialog).to_contain_text("Nothing is wrong in the store.")
    expect(dialog.get_by_role("button", name="Repair", exact=True)).to_be_disabled()


# -- roles -------------------------------------------------------------------------------------------------


def test_viewers_see_no_buttons_and_a_tenant_sees_its_own(
    browser: Browser, guarded: Dashboard, complaints: Complaints
) -> None:
    complaints.allow("401")
    app = guarded.app
    app.schedules.add("digest", "every 1h", "mail", tenant="acme")
    app.schedules.add("ours", "every 1h", "mail")
    app.limits.set(tenant="acme", concurrency=1)
    app.limits.set(task="mail", concurrency=1)
    app.tenants.set_quota("acme", schedules=5)
    app.retention.set(state="failed", keep="30d")
    run = app.enqueue("mail", tenant="acme")
    app.store.put_record(Record(kind="quarantine", tenant="acme", key=run.id, body="a bad row"))
    views = (("limits",), ("tenants",), ("tenants", "acme"), ("order",), ("order", "acme", run.id))
    shown = {"viewer": 0, "admin": 0}
    for role in ("viewer", "admin"):
        with opened(browser, guarded, complaints) as context:
            page = context.new_page()
            _log_in(page, guarded, guarded.token("viewer" if role == "viewer" else "admin"))
            for view in views:
                _open(page, guarded, *view)
                shown[role] += page.locator("main button").count()
    assert shown["viewer"] == 0
    assert shown["admin"] >= len(views)

    with opened(browser, guarded, complaints) as context:
        page = context.new_page()
        _log_in(page, guarded, guarded.token("admin", "acme"))
        _open(page, guarded, "limits")
        expect(_row(page, "tenant=acme")).to_be_visible()
        expect(_row(page, "task=mail")).to_have_count(0)
        page.get_by_role("button", name="New limit …").click()
        expect(page.get_by_role("dialog").get_by_label("Task")).to_be_visible()
        expect(page.get_by_role("dialog").get_by_label("Tenant")).to_have_count(0)
        page.get_by_role("dialog").get_by_label("Task").fill("mail")
        page.get_by_role("dialog").get_by_label("At once").fill("2")
        page.get_by_role("dialog").get_by_role("button", name="Set").click()
        expect(_row(page, "task=mail tenant=acme")).to_be_visible()
        _open(page, guarded, "tenants")
        expect(_row(page, "acme")).to_be_visible()
        expect(_row(page, "default")).to_have_count(0)
        expect(page.locator("main button")).to_have_count(0)
        _open(page, guarded, "order")
        expect(page.get_by_role("link", name=run.id)).to_be_visible()
        for title in ("Retention", "Repair"):
            expect(page.get_by_role("region", name=title, exact=True)).to_have_count(0)


def _log_in(page: Page, guarded: Dashboard, secret: str) -> None:
    page.goto(guarded.link("now"))
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def _open(page: Page, guarded: Dashboard, *path: str) -> None:
    page.goto(guarded.link(*path))
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
