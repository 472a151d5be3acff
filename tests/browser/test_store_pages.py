"""The pages about the store: nodes, queues, alerts, audit and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat import acting_as
from evenbeat.core.records import Record
from evenbeat.demo.history import write_history
from evenbeat.stores.base import Claim
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened
from tests.unit.receivers import receiver

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


def _row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def _notice(page: Page, text: str) -> Locator:
    return page.locator(".notices").get_by_text(text)


# -- nodes -------------------------------------------------------------------------------------------------


def test_without_a_node_the_page_shows_the_command_that_starts_one(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("nodes"))
    expect(page.get_by_text("No node is alive")).to_be_visible()
    expect(page.get_by_text("evenbeat run app.py")).to_be_visible()


def test_a_node_appears_with_its_tasks_slots_and_queues(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.task(name="mail.send")(lambda: None)
    dashboard.app.task(name="mail.digest", queue="mail")(lambda: None)
    page.goto(dashboard.link("nodes"))
    expect(page.get_by_text("No node is alive")).to_be_visible()
    dashboard.app.start()
    row = _row(page, "alive")
    expect(row).to_be_visible()
    (node,) = dashboard.app.nodes()
    expect(row).to_contain_text(node.name)
    expect(row).to_contain_text(f"pid {node.pid}")
    expect(row).to_contain_text(f"0 of {sum(node.slots.values())}: ")
    expect(row.get_by_role("link", name="default", exact=True)).to_be_visible()
    row.get_by_text("2 tasks").click()
    expect(row.get_by_role("listitem")).to_have_text(["mail.digest thread", "mail.send thread"])
    assert_accessible(page)


def test_a_task_that_no_node_has_is_named_with_its_schedule(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("legacy-import", "every 1h", "legacy.import")
    dashboard.app.schedules.run_now("legacy-import")
    dashboard.app.start()
    page.goto(dashboard.link("nodes"))
    section = page.get_by_role("region", name="Tasks without a node")
    expect(section).to_contain_text("legacy.import")
    section.get_by_role("link", name="Open the schedule").click()
    expect(page.get_by_role("heading", name="legacy-import")).to_be_visible()


def test_the_store_is_checked_and_repaired_after_a_question(dashboard: Dashboard, page: Page) -> None:
    store, run_id = dashboard.app.store, dashboard.app.enqueue("work").id
    # The lease ended an hour ago, and no node is there that noticed.
    claim = Claim(worker="dead", token="dead", limit=1, now=store.now(), lease=-3_600_000, tasks=None)
    assert [run.id for run in store.claim_runs(claim).runs] == [run_id]
    page.goto(dashboard.link("nodes"))
    page.get_by_role("button", name="Check the store").click()
    findings = page.get_by_role("list", name="Findings").get_by_role("listitem")
    leases = findings.filter(has_text="leases")
    expect(leases).to_contain_text("To do:")
    expect(leases.get_by_role("link", name="Show the running runs")).to_be_visible()
    expect(leases).to_contain_text(run_id)
    page.get_by_role("button", name="Repair what is safe").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Run {run_id} is running and has no live worker")
    expect(dialog).to_contain_text("Repair queues it again, as a node would.")
    assert_accessible(page)
    assert dashboard.app.runs.get(run_id).state == "running"
    dialog.get_by_role("button", name="Repair 1 finding").click()
    expect(page.get_by_text("Outcome: mended.")).to_be_visible()
    expect(leases).to_contain_text("every running run has a live worker")
    assert dashboard.app.runs.get(run_id).state == "queued"
    page.get_by_role("link", name="Show the entries of the audit").click()
    expect(_row(page, run_id)).to_contain_text("repair")


def test_what_nodes_cannot_process_is_shown_live_with_its_reason(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("nodes"))
    section = page.get_by_role("region", name="Quarantine", exact=True)
    expect(section).to_contain_text("Nodes can process every schedule and every run.")
    # As nodes write them.
    store = dashboard.app.store
    store.put_record(Record(kind="deferred", key="beat", body=f"tz Europe/Kyiv is not known {HOSTILE}"))
    store.put_record(Record(kind="quarantine", tenant="acme", key="acme/x/1/1", body="bad row"))
    deferred = section.get_by_role("row").filter(has_text="Europe/Kyiv")
    expect(deferred).to_contain_text(f"tz Europe/Kyiv is not known {HOSTILE}")
    expect(deferred).to_contain_text("deferred")
    expect(deferred.get_by_role("link", name="beat", exact=True)).to_be_visible()
    expect(section.get_by_role("row").filter(has_text="acme/x/1/1")).to_contain_text("quarantined")
    assert_accessible(page)


# -- queues ------------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_takes_from_is_a_warning(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.task(name="work")(lambda: None)
    dashboard.app.start()
    run = dashboard.app.enqueue("work", queue="forgotten")
    page.goto(dashboard.link("queues"))
    row = _row(page, "forgotten")
    expect(row).to_contain_text("no node takes from this queue")
    expect(row).to_contain_text("stands still")
    expect(_row(page, "nothing waits")).to_be_visible()
    (node,) = dashboard.app.nodes()
    expect(_row(page, "nothing waits")).to_contain_text(node.name)
    assert_accessible(page)
    row.get_by_role("link", name="forgotten", exact=True).click()
    expect(page).to_have_url(dashboard.link("runs", queue="forgotten"))
    expect(page.get_by_role("link", name=f"run {run.id}", exact=True)).to_be_visible()


# -- alerts ------------------------------------------------------------------------------------------------


@pytest.fixture
def alerting(tmp_path: Path) -> Iterator[Dashboard]:
    """A dashboard whose server may send to this machine."""
    made = Dashboard(tmp_path, allow_private_webhooks=["127.0.0.1"])
    made.serve()
    yield made
    made.close()


@pytest.fixture
def alert_page(browser: Browser, alerting: Dashboard, complaints: Complaints) -> Iterator[Page]:
    with opened(browser, alerting, complaints) as context:
        yield context.new_page()


def test_create_a_channel_and_test_it(alerting: Dashboard, alert_page: Page) -> None:
    page = alert_page
    with receiver() as receiving:
        page.goto(alerting.link("alerts", tab="channels"))
        page.get_by_role("button", name="New channel").click()
        page.get_by_label("Name").fill("ops")
        page.get_by_label("URL").fill(f"{receiving.url}/secret-path")
        page.get_by_label("Key of the signature").fill("a key of 16 or more")
        assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        row = _row(page, "ops")
        expect(row).to_contain_text(receiving.url)
        expect(page.get_by_text("secret-path")).to_have_count(0)
        page.get_by_role("button", name="Test ops").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"{receiving.url} has taken the message.")
        assert [request.path for request in receiving.requests] == ["/secret-path"]
        dialog.get_by_role("button", name="Close").last.click()
        expect(row).to_contain_text("sent")
    page.get_by_role("link", name="Delivery log").click()
    expect(page).to_have_url(alerting.link("alerts", tab="log"))
    expect(_row(page, "Test of channel")).to_contain_text("sent")


def test_a_test_that_fails_says_why(alerting: Dashboard, alert_page: Page) -> None:
    page = alert_page
    with receiver(404) as receiving:
        alerting.app.alerts.channels.add("ops", "webhook", receiving.url)
        page.goto(alerting.link("alerts", tab="channels"))
        page.get_by_role("button", name="Test ops").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("refused the message; it is not sent again")
        expect(dialog).to_contain_text("given up")
        expect(dialog).to_contain_text("404")
        expect(_row(page, "ops")).to_contain_text("nothing sent lately")
        dialog.get_by_role("button", name="Close").last.click()
        expect(_row(page, "ops")).to_contain_text("given up")
        expect(_row(page, "ops")).to_contain_text("No message has arrived lately.")
        assert_accessible(page)
        _row(page, "ops").get_by_role("link", name="Show the log").click()
        expect(_row(page, "Test of channel")).to_contain_text("404")


def test_create_a_rule_mute_it_and_delete_it(dashboard: Dashboard, page: Page) -> None:
    alerts = dashboard.app.alerts
    alerts.channels.add("ops", "webhook", "https://hooks.example.com/x")
    page.goto(dashboard.link("alerts", tab="rules"))
    page.get_by_role("button", name="New rule").click()
    page.get_by_label("Name").fill("billing")
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("How many").fill("5")
    page.get_by_label("Covers").select_option("tag")
    page.get_by_label("Tag").fill("billing")
    page.get_by_label("ops").check()
    assert_accessible(page)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(_row(page, "billing")).to_contain_text("a run failed, 5 runs failed in a row")
    made = alerts.rules.get("billing")
    assert (made.on, made.to, made.tag, made.recovery) == (("failed", "failing:5"), ("ops",), "billing", True)

    page.get_by_role("button", name="Mute billing", exact=True).click()
    page.get_by_label("The mute ends").select_option("4h")
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(_row(page, "billing")).to_contain_text("muted until")
    muted_until = alerts.rules.get("billing").muted_until
    assert muted_until is not None
    assert abs(muted_until - datetime.now(UTC) - timedelta(hours=4)) < timedelta(minutes=5)

    page.get_by_role("button", name="Unmute billing").click()
    page.get_by_role("dialog").get_by_role("button", name="Unmute").click()
    expect(_row(page, "billing")).to_contain_text("active")

    page.get_by_role("button", name="Edit billing").click()
    page.get_by_role("button", name="Remove condition 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(_row(page, "billing")).not_to_contain_text("a run failed")
    assert alerts.rules.get("billing").on == ("failing:5",)

    page.get_by_role("button", name="Delete billing").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its open incidents end without an announcement.")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No rule: nobody is told")).to_be_visible()
    assert alerts.rules.list() == []


def test_a_rule_of_all_tenants_offers_their_conditions_and_channels(dashboard: Dashboard, page: Page) -> None:
    alerts = dashboard.app.alerts
    alerts.channels.add("ops", "webhook", "https://hooks.example.com/x")
    alerts.channels.add("pager", "webhook", "https://hooks.example.com/y", all_tenants=True)
    page.goto(dashboard.link("alerts", tab="rules"))
    page.get_by_role("button", name="New rule").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("ops")).to_be_visible()
    expect(dialog.locator("option[value=node_lost]")).to_have_count(0)
    dialog.get_by_label("Name").fill("machines")
    dialog.get_by_label("For").select_option(label="all tenants")
    dialog.get_by_label("Condition 1").select_option("node_lost")
    expect(dialog.get_by_label("ops")).to_have_count(0)
    dialog.get_by_label("pager").check()
    dialog.get_by_role("button", name="Create").click()
    expect(_row(page, "machines")).to_contain_text("all tenants")
    (made,) = alerts.rules.list(all_tenants=True)
    assert (made.tenant, made.on, made.to) == (None, ("node_lost",), ("pager",))
    page.get_by_role("button", name="Mute machines").click()
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(_row(page, "machines")).to_contain_text("muted until")


def test_a_rule_of_the_code_says_so_and_that_edits_are_undone(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.alerts.declare_channel("ops", "webhook", "https://hooks.example.com/x")
    dashboard.app.alerts.declare_rule("failures", on="failed", to="ops")
    dashboard.app.start()
    page.goto(dashboard.link("alerts", tab="rules"))
    expect(_row(page, "failures")).to_contain_text("declared in code")
    page.get_by_role("button", name="Edit failures").click()
    expect(page.get_by_role("dialog")).to_contain_text("undoes changes made here")


def test_an_open_incident_links_to_the_schedule_and_the_run(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task(name="bank.charge")
    def charge() -> None:
        raise ConnectionError(f"the bank is away {HOSTILE}")

    dashboard.app.alerts.declare_channel("ops", "webhook", "https://127.0.0.1:9/x")
    dashboard.app.alerts.declare_rule("failures", on="failed", to="ops")
    dashboard.app.schedules.add("charge", "every 1h", "bank.charge")
    page.goto(dashboard.link("alerts"))
    expect(page.get_by_text("No alert rule finds anything wrong.")).to_be_visible()
    dashboard.app.start()
    run = dashboard.app.schedules.run_now("charge")
    row = _row(page, "charge")
    expect(row).to_contain_text(f"ConnectionError: the bank is away {HOSTILE}")
    expect(row).to_contain_text("failures: a run failed")
    # The channel's address is refused: nobody has been told.
    expect(row).to_contain_text("not delivered")
    assert_accessible(page)
    link = row.get_by_role("link", name="First failed run")
    href = link.get_attribute("href")
    assert href is not None
    assert f"{dashboard.url}/{href}" == dashboard.link("runs", "default", run.id)
    row.get_by_role("link", name="charge", exact=True).click()
    expect(page).to_have_url(dashboard.link("schedules", "default", "charge"))


def test_add_a_maintenance_window_and_end_it(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("alerts", tab="windows"))
    page.get_by_role("button", name="New window").click()
    page.get_by_label("Name").fill("new-disks")
    page.get_by_label("Until", exact=True).select_option("4h")
    page.get_by_label("Note").fill(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    row = _row(page, "new-disks")
    expect(row).to_contain_text("mutes now")
    expect(row).to_contain_text(HOSTILE)
    (made,) = dashboard.app.alerts.windows.list()
    assert made.note == HOSTILE
    assert abs(made.ends_at - made.starts_at - timedelta(hours=4)) < timedelta(minutes=1)
    page.get_by_role("button", name="End new-disks").click()
    page.get_by_role("dialog").get_by_role("button", name="End").click()
    expect(page.get_by_text("No maintenance window is open or planned.")).to_be_visible()
    assert dashboard.app.alerts.windows.list() == []


def test_every_view_of_alerts_is_accessible_and_fits_a_phone(
    browser: Browser, dashboard: Dashboard, complaints: Complaints
) -> None:
    write_history(dashboard.app.store)
    titles = {
        "open": "Open incidents",
        "rules": "Rules",
        "channels": "Channels",
        "windows": "Maintenance windows",
        "log": "Delivery log",
        "past": "Incidents that are over",
    }
    for width in (1280, 375):
        with opened(browser, dashboard, complaints, width=width, dark=width == 375) as context:
            page = context.new_page()
            for tab, title in titles.items():
                page.goto(dashboard.link("alerts", tab=tab))
                section = page.get_by_role("region", name=title, exact=True).first
                expect(section.get_by_role("row").nth(1)).to_be_visible()
                assert_accessible(page)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# -- audit -------------------------------------------------------------------------------------------------


def test_the_audit_shows_who_changed_what_and_its_filter_is_in_the_address(
    dashboard: Dashboard, page: Page
) -> None:
    app = dashboard.app
    with acting_as("ana"):
        app.schedules.add("billing", "every 1h", "work")
    with acting_as(f"ben {HOSTILE}"):
        app.schedules.update("billing", retries=3)
        app.schedules.pause("billing", HOSTILE)
    page.goto(dashboard.link("audit"))
    rows = page.get_by_role("row").filter(has_text="schedule billing")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("retries: before: 0 → after: 3")
    expect(rows.nth(0)).to_contain_text(HOSTILE)
    # The new schedule has more fields than the row shows at first.
    expect(rows.nth(2).get_by_text("next run:")).to_be_hidden()
    rows.nth(2).locator("summary").click()
    expect(rows.nth(2).get_by_text("next run:")).to_be_visible()
    assert_accessible(page)
    page.get_by_label("Action").select_option("pause")
    expect(page).to_have_url(dashboard.link("audit", action="pause"))
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Clear the filter").click()
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="ana", exact=True).click()
    expect(page).to_have_url(dashboard.link("audit", actor="ana"))
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="billing", exact=True).click()
    expect(page.get_by_role("heading", name="billing")).to_be_visible()


def test_the_audit_is_read_page_by_page(dashboard: Dashboard, page: Page) -> None:
    for number in range(60):
        dashboard.app.schedules.add(f"job-{number:02}", "every 1h", "work")
    page.goto(dashboard.link("audit"))
    rows = page.get_by_role("row").filter(has_text="job-")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Show older entries").click()
    expect(rows).to_have_count(60)
    expect(page.get_by_role("button", name="Show older entries")).to_have_count(0)


def test_a_search_that_finds_nothing_at_first_goes_on(dashboard: Dashboard, page: Page) -> None:
    entry = {
        "id": "f" * 32,
        "at": "2026-03-02T02:00:00Z",
        "actor": "ana",
        "via": "api",
        "action": "pause",
        "tenant": "default",
        "kind": "schedule",
        "subject": "rare",
        "before": {},
        "after": {},
    }
    # A store with so many entries that one request does not search all of them.
    page.route(
        "**/api/v1/audit?*cursor=*", lambda route: route.fulfill(json={"items": [entry], "cursor": None})
    )
    page.route(
        re.compile(r"/api/v1/audit\?(?!.*cursor=)"),
        lambda route: route.fulfill(json={"items": [], "cursor": "far"}),
    )
    page.goto(dashboard.link("audit", actor="ana"))
    expect(page.get_by_text("Nothing found yet among the newest entries.")).to_be_visible()
    page.get_by_role("button", name="Search on").click()
    expect(page.get_by_role("row").filter(has_text="rare")).to_be_visible()
    expect(page.get_by_role("button", name="Search on")).to_have_count(0)


# -- tokens ------------------------------------------------------------------------------------------------


def test_create_a_token_see_its_secret_once_and_revoke_it(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("tokens"))
    expect(page.get_by_text("No token yet.")).to_be_visible()
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill(HOSTILE)
    page.get_by_label("Role").select_option("operator")
    page.get_by_label("Tenant").fill("acme")
    page.get_by_label("Expires").select_option("other")
    page.get_by_label("After").fill("12h")
    assert_accessible(page)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    made = page.get_by_role("region", name="The new token")
    expect(made).to_contain_text("nobody can read it again")
    secret = made.locator("code").inner_text()
    token = dashboard.app.tokens.verify(secret)
    assert token is not None
    assert (token.name, token.role, token.tenant) == (HOSTILE, "operator", "acme")
    assert token.expires_at is not None
    assert abs(token.expires_at - token.created_at - timedelta(hours=12)) < timedelta(minutes=1)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    made.get_by_role("button", name="Copy", exact=True).click()
    expect(made.get_by_role("button", name="Copied", exact=True)).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == secret
    page.reload()
    expect(_row(page, HOSTILE)).to_contain_text("operator")
    expect(page.get_by_text(secret)).to_have_count(0)

    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("dialog")).to_contain_text("operator of tenant acme")
    expect(page.get_by_role("dialog")).to_contain_text("It was last used")
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("No token yet.")).to_be_visible()
    assert dashboard.app.tokens.verify(secret) is None
    dashboard.app.tokens.create("idle", "viewer")
    page.reload()
    page.get_by_role("button", name="Revoke idle").click()
    expect(page.get_by_role("dialog")).to_contain_text("It was never used.")


def test_a_name_that_the_server_refuses_is_said_in_the_dialog(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("the server responded with a status of 400")
    complaints.allow("the server responded with a status of 422")
    page.goto(dashboard.link("tokens"))
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("x" * 1000)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("name")
    assert dashboard.app.tokens.list() == []
