"""Log in by a token: sessions in the browser, their end, and what viewers and tenants see."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from evenbeat.core.tokens import Role
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

REFUSED = "the server responded with a status of 401"
"""How Chromium reports a refused request. A page without a session begins with one."""

ACTIONS = re.compile(
    r"^(Pause|Resume|Run|Retry|Cancel|Delete|Edit|Move|New|Create|Mute|Unmute|Test|End|Remove|Revoke"
    r"|Check the store|Repair|Spread|Reset|Save|Back to|Set|Change|Purge|Drop|Look for|Apply|Move the runs)\b"
)
"""The first words on buttons and links that change something, or lead to a form that does."""


@pytest.fixture
def page(browser: Browser, guarded: Dashboard, complaints: Complaints) -> Iterator[Page]:
    complaints.allow(REFUSED)
    with opened(browser, guarded, complaints) as context:
        yield context.new_page()


def log_in(page: Page, guarded: Dashboard, secret: str, *path: str) -> None:
    page.goto(guarded.link(*(path or ("now",))))
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def _expect_logged_out(page: Page, reason: str) -> None:
    expect(page.get_by_role("heading", name="Log in to Evenbeat")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text(reason)


def test_log_in_with_a_token_and_out_again(guarded: Dashboard, page: Page) -> None:
    log_in(page, guarded, guarded.token("admin"))
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    _expect_logged_out(page, "You are logged out.")
    page.reload()
    expect(page.get_by_role("heading", name="Log in to Evenbeat")).to_be_visible()


def test_the_cookie_is_out_of_reach_of_scripts(guarded: Dashboard, page: Page) -> None:
    secret = guarded.token("admin")
    log_in(page, guarded, secret)
    (cookie,) = page.context.cookies()
    assert cookie["name"] == "evenbeat_session"
    assert cookie["httpOnly"] is True
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert secret not in stored + cookie["value"]
    page.get_by_role("button", name="Log out").click()
    _expect_logged_out(page, "You are logged out.")
    assert page.context.cookies() == []


def test_a_wrong_token_is_refused_with_a_reason(guarded: Dashboard, page: Page) -> None:
    page.goto(guarded.link("now"))
    page.get_by_label("Token").fill("evb_0123456789ab_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong, expired or revoked")
    assert page.context.cookies() == []
    assert_accessible(page)


def test_log_in_by_keyboard_alone(guarded: Dashboard, page: Page) -> None:
    secret = guarded.token("viewer")
    page.goto(guarded.link("schedules"))
    expect(page.get_by_label("Token")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(secret)
    page.keyboard.press("Enter")
    # The page that was asked for.
    expect(page.get_by_role("heading", name="Schedules", exact=True)).to_be_visible()


def test_a_revoked_token_ends_the_open_page(guarded: Dashboard, page: Page) -> None:
    made = guarded.app.tokens.create("for a while", "operator")
    log_in(page, guarded, made.secret)
    guarded.app.tokens.revoke(made.token.id)
    _expect_logged_out(page, "The session has ended. Log in again.")


def test_a_token_that_expires_ends_the_open_page_and_opens_no_other(guarded: Dashboard, page: Page) -> None:
    made = guarded.app.tokens.create("for a day", "operator", expires="1d")
    log_in(page, guarded, made.secret)
    store = guarded.app.store
    record = store.get_record("token", "default", made.token.id)
    assert record is not None
    assert store.put_record(replace(record, expires=store.now() - 1), record.version)
    _expect_logged_out(page, "The session has ended. Log in again.")
    page.get_by_label("Token").fill(made.secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong, expired or revoked")


def test_changes_have_the_csrf_token_and_are_refused_without(guarded: Dashboard, page: Page) -> None:
    guarded.app.schedules.add("mail", "every 1h", "work")
    log_in(page, guarded, guarded.token("operator"), "schedules", "default", "mail")
    page.get_by_role("button", name="Run now").first.click()
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    assert sent.value.headers["x-csrf-token"]
    expect(page.get_by_text("Added one run of mail.").first).to_be_visible()
    assert len(guarded.app.runs.list(schedule="mail")) == 1
    # The cookie alone changes nothing.
    url = f"{guarded.url}/api/v1/schedules/mail/run"
    refused = page.context.request.post(url, headers={"Origin": guarded.url}, data={})
    assert refused.status == 403
    assert len(guarded.app.runs.list(schedule="mail")) == 1


def test_a_page_follows_a_login_in_another_tab(
    guarded: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("the server responded with a status of 403")
    guarded.app.schedules.add("mail", "every 1h", "work")
    log_in(page, guarded, guarded.token("operator"), "schedules", "default", "mail")
    page.get_by_role("button", name="Run now").first.click()
    page.context.request.post(
        f"{guarded.url}/api/v1/session",
        headers={"Origin": guarded.url},
        data={"token": guarded.app.tokens.create("ann", "operator").secret},
    )
    button = page.get_by_role("dialog").get_by_role("button", name="Run now")
    button.click()
    expect(page.get_by_text("another tab of this browser has logged in again")).to_be_visible()
    assert not guarded.app.runs.list(schedule="mail")
    button.click()
    expect(page.get_by_text("Added one run of mail.").first).to_be_visible()


def test_a_request_that_a_login_in_another_tab_overtakes_is_sent_again(
    guarded: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("the server responded with a status of 401")
    guarded.app.schedules.add("mail", "every 1h", "work")
    log_in(page, guarded, guarded.token("operator"))
    over = {"type": "urn:evenbeat:problem:unauthorized", "detail": "the session is over", "status": 401}
    page.route("**/api/v1/schedules/mail?*", lambda route: route.fulfill(status=401, json=over), times=1)
    with page.expect_response(lambda answer: answer.status == 401):
        page.goto(guarded.link("schedules", "default", "mail"))
    expect(page.get_by_role("heading", name="mail", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


VIEWS: list[tuple[tuple[str, ...], dict[str, str], bool]] = [
    (("now",), {}, False),
    (("schedules",), {}, True),
    (("schedules", "default", "mail"), {}, True),
    (("runs",), {}, True),
    (("timeline",), {}, False),
    (("nodes",), {}, True),
    (("queues",), {}, False),
    (("alerts",), {}, False),
    (("alerts",), {"tab": "rules"}, True),
    (("alerts",), {"tab": "channels"}, True),
    (("alerts",), {"tab": "windows"}, True),
    (("alerts",), {"tab": "log"}, False),
    (("templates",), {}, True),
    (("limits",), {}, True),
    (("tenants",), {}, True),
    (("tenants", "default"), {}, True),
    (("order",), {}, True),
    (("audit",), {}, False),
]
"""Addresses, and whether an admin finds buttons there."""


def _filled(guarded: Dashboard) -> None:
    app = guarded.app
    app.schedules.add("mail", "every 1h", "work")
    app.alerts.channels.add("ops", "webhook", "https://hooks.example.com/x")
    app.alerts.rules.add("failures", on="failed", to="ops")
    app.alerts.windows.add("disks", until="2h")


def _actions(page: Page) -> list[str]:
    found = page.locator("main").locator("button, a.button")
    return [text for text in found.all_inner_texts() if ACTIONS.match(text.strip())]


def _open(page: Page, guarded: Dashboard, path: tuple[str, ...], query: dict[str, str]) -> None:
    # A load of its own: nothing of the view before is on the page.
    page.goto("about:blank")
    page.goto(guarded.link(*path, **query))
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_a_viewer_sees_no_buttons_on_any_page_and_an_admin_does(
    guarded: Dashboard, page: Page, role: Role
) -> None:
    _filled(guarded)
    log_in(page, guarded, guarded.token(role))
    for path, query, has_buttons in VIEWS:
        _open(page, guarded, path, query)
        if role == "viewer":
            assert _actions(page) == [], (path, query)
        elif has_buttons:
            assert _actions(page), (path, query)


def test_the_bar_takes_one_row_on_a_screen_of_1280_pixels(guarded: Dashboard, page: Page) -> None:
    for tenant in ("acme-incorporated", "default"):
        guarded.app.schedules.add("report", "every 1h", "work", tenant=tenant)
    secret = guarded.app.tokens.create("somebody with a long name", role="admin").secret
    page.set_viewport_size({"width": 1280, "height": 800})
    log_in(page, guarded, secret)
    expect(page.get_by_label("Tenant")).to_be_visible()
    expect(page.locator(".stream.live")).to_be_visible()
    middles = page.evaluate("""[".brand", ".bar nav", ".bar-tools"].map((name) => {
        const box = document.querySelector(name).getBoundingClientRect()
        return box.top + box.height / 2
    })""")
    assert max(middles) - min(middles) < 2
    for part in (".bar nav", ".bar-tools"):
        assert page.locator(part).evaluate("part => part.offsetHeight") < 40, part


def test_a_viewer_does_not_get_to_the_tokens(guarded: Dashboard, page: Page) -> None:
    log_in(page, guarded, guarded.token("viewer"))
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Nodes")).to_be_visible()
    pages.get_by_role("button", name="More").click()
    expect(pages.get_by_role("link", name="Audit")).to_be_visible()
    expect(pages.get_by_role("link", name="Tokens")).to_have_count(0)
    page.goto(guarded.link("tokens"))
    expect(page.get_by_text("This page needs a token with the role admin")).to_be_visible()


def test_a_token_of_a_tenant_sees_this_tenant_and_no_pages_about_the_store(
    guarded: Dashboard, page: Page
) -> None:
    guarded.app.schedules.add("ours", "every 1h", "work", tenant="acme")
    guarded.app.schedules.add("theirs", "every 1h", "work")
    log_in(page, guarded, guarded.token("admin", "acme"), "schedules")
    expect(page.get_by_role("link", name="ours", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="theirs", exact=True)).to_have_count(0)
    expect(page.get_by_label("Tenant")).to_have_count(0)
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("button", name="More").click()
    expect(pages.get_by_role("link", name="Audit")).to_be_visible()
    for title in ("Nodes", "Queues", "Tokens"):
        expect(pages.get_by_role("link", name=title)).to_have_count(0)
    for name in ("nodes", "queues", "tokens"):
        page.goto(guarded.link(name))
        expect(page.get_by_text("for all tenants. Log in with such a token")).to_be_visible()
    for path, query, _ in VIEWS:
        if path[0] not in ("nodes", "queues") and len(path) == 1:
            _open(page, guarded, path, query)
            expect(page.locator("main .problem")).to_have_count(0)
            expect(page.get_by_text("theirs")).to_have_count(0)
