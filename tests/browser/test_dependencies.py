"""Stories of dependencies: what a schedule waits for, what waits for it, and the field of the form."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from evenbeat import on_success_of
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, Store
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible
from tests.browser.test_schedule import open_schedule, section


def run_once(store: Store, token: str) -> None:
    """Execute all queued runs, as a worker would."""
    claim = Claim(worker="w", token=token, limit=10, now=store.now(), lease=30_000)
    for run in store.claim_runs(claim).runs:
        assert store.settle_runs([attempts.succeeded(run, None, store.now(), f"{token}-{run.id}")]) == [True]


def save(page: Page) -> None:
    page.get_by_role("button", name="Review and save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()


def test_a_success_starts_the_run_of_a_follower_and_both_pages_say_so(
    dashboard: Dashboard, page: Page
) -> None:
    schedules = dashboard.app.schedules
    schedules.add("load", "every 1h", "work")
    schedules.add("report", on_success_of("load"), "work")
    open_schedule(dashboard, page, "report")
    linked = section(page, "Dependencies")
    expect(linked).to_contain_text("Each success of this schedule starts a run")
    expect(linked).to_contain_text("load has never succeeded")
    expect(section(page, "Coming ticks")).to_contain_text("It has no ticks of its own")
    schedules.run_now("load", id="by-hand")
    store = dashboard.app.store
    run_once(store, "one")
    store.fire_due(store.now(), 10, plan)
    expect(linked).to_contain_text("load last succeeded:")
    linked.get_by_role("link", name="load").click()
    expect(section(page, "Dependencies")).to_contain_text("This schedule waits for it")
    section(page, "Dependencies").get_by_role("link", name="report").click()
    (run,) = dashboard.app.runs.list(schedule="report")
    page.goto(dashboard.link("runs", "default", run.id))
    cause = page.get_by_role("region", name="Run", exact=True)
    expect(cause).to_contain_text("the success of load, run by-hand")
    cause.get_by_role("link", name="by-hand").click()
    expect(page.locator(".whole-id")).to_have_text("by-hand")


def test_a_delete_names_the_schedules_that_wait(dashboard: Dashboard, page: Page) -> None:
    schedules = dashboard.app.schedules
    schedules.add("load", "every 1h", "work")
    schedules.add("mail", "every 1h", "work", after="load within 1h")
    schedules.add("report", on_success_of("load"), "work")
    page.goto(dashboard.link("schedules"))
    page.get_by_label("Select load").check()
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("mail, report wait for load, which does not succeed any more.")
    assert_accessible(page)
    dialog.get_by_role("button", name="Cancel").click()
    open_schedule(dashboard, page, "load")
    page.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("mail and report wait for it, and it does not succeed any more.")
    assert_accessible(page)
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted load.")).to_be_visible()
    assert [each.name for each in schedules.list()] == ["mail", "report"]


def test_a_dependency_is_set_in_the_form_and_a_wrong_one_is_refused_at_its_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422 (Unprocessable")
    schedules = dashboard.app.schedules
    schedules.add("load", "every 1h", "work")
    schedules.add("digest", "every 1h", "work")
    open_schedule(dashboard, page, "digest")
    expect(section(page, "Policies")).to_be_visible()
    expect(section(page, "Dependencies")).to_be_hidden()
    page.goto(dashboard.link("schedules", "default", "digest", "edit"))
    field = page.get_by_label("After", exact=True)
    field.fill("lod within 1h")
    save(page)
    expect(page.get_by_text("did you mean load?")).to_be_visible()
    field.fill("load within 1h wait 5m")
    save(page)
    expect(section(page, "Dependencies")).to_contain_text("load within 1h wait 5m")
    expect(section(page, "Policies")).to_contain_text(
        "A tick fires only after other schedules have succeeded"
    )
    assert schedules.get("digest").after == "load within 1h wait 5m"
    assert_accessible(page)
