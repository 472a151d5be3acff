"""Schedules in the code only, on the dashboard: the pages that name them, and what becomes of them without a
node."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from evenbeat import every
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened


def test_a_schedule_in_the_code_only_is_named_where_users_look_for_it(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    app = dashboard.app
    app.task(name="ping", schedule=every("1h"), durable=False)(lambda: None)
    app.task(name="mail", schedule=every("1h"))(lambda: None)
    app.start()
    page.goto(dashboard.link("nodes"))
    cell = page.get_by_role("row").filter(has_text="alive").get_by_text("yes, 1 schedule in the code only")
    cell.click()
    expect(page.get_by_role("link", name="ping", exact=True).first).to_be_visible()

    page.goto(dashboard.link("schedules"))
    section = page.get_by_role("region", name="In the code only")
    expect(section).to_contain_text("1 schedule")
    expect(page.get_by_role("table", name="Schedules")).to_contain_text("mail")
    expect(page.get_by_role("table", name="Schedules")).not_to_contain_text("ping")
    assert_accessible(page)

    complaints.allow("404")
    section.get_by_role("link", name="ping").click()
    expect(page.get_by_role("heading", name="This schedule is in the code only")).to_be_visible()
    about = page.get_by_role("region", name="Not found")
    expect(about).to_contain_text("nodes plan it in memory")
    expect(about.get_by_role("link", name="Its runs")).to_be_visible()
    assert_accessible(page)


def test_without_a_node_nobody_knows_whether_a_schedule_is_in_the_code(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("404")
    page.goto(dashboard.link("schedules", "default", "ping"))
    about = page.get_by_role("region", name="Not found")
    expect(about).to_contain_text("it may be in the code of nodes only, and no node is alive now")
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("heading", name="Schedules", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="In the code only")).to_have_count(0)


def test_a_user_of_one_tenant_is_not_told_about_nodes(
    guarded: Dashboard, browser: Browser, complaints: Complaints
) -> None:
    app = guarded.app
    app.task(name="ping", schedule=every("1h"), durable=False)(lambda: None)
    app.start()
    secret = guarded.token("viewer", tenant="default")
    with opened(browser, guarded, complaints) as context:
        complaints.allow("401")
        page = context.new_page()
        page.goto(guarded.link("schedules"))
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Schedules", exact=True)).to_be_visible()
        expect(page.get_by_role("region", name="In the code only")).to_have_count(0)
