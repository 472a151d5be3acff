"""The page stays current: one stream for all tabs, a server that restarts, a tab that is hidden."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.dashboard import Complaints, Dashboard


def _streams(page: Page) -> list[str]:
    """Collect the streams that a page opens."""
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url) if "/events" in request.url else None)
    return opened


def test_two_tabs_share_one_stream_and_both_are_live(dashboard: Dashboard, context: BrowserContext) -> None:
    first, second = context.new_page(), context.new_page()
    of_first, of_second = _streams(first), _streams(second)
    first.goto(dashboard.link("schedules"))
    expect(first.locator(".stream.live")).to_be_visible()
    second.goto(dashboard.link("schedules"))
    expect(second.locator(".stream.live")).to_be_visible()
    dashboard.app.schedules.add("report", "every 1h", "work")
    for page in (first, second):
        expect(page.get_by_role("link", name="report", exact=True)).to_be_visible()
    assert (len(of_first), len(of_second)) == (1, 0)


def test_the_other_tab_takes_the_stream_over(dashboard: Dashboard, context: BrowserContext) -> None:
    first, second = context.new_page(), context.new_page()
    of_second = _streams(second)
    first.goto(dashboard.link("schedules"))
    expect(first.locator(".stream.live")).to_be_visible()
    second.goto(dashboard.link("schedules"))
    expect(second.locator(".stream.live")).to_be_visible()
    with second.expect_request("**/events*"):
        first.close()
    dashboard.app.schedules.add("report", "every 1h", "work")
    expect(second.get_by_role("link", name="report", exact=True)).to_be_visible()
    assert len(of_second) == 1


def test_a_server_that_restarts_is_found_again(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("ERR_CONNECTION_REFUSED")
    complaints.allow("ERR_INCOMPLETE_CHUNKED_ENCODING")
    page.goto(dashboard.link("schedules"))
    # The code of the page is there: it is loaded on demand.
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".stream.live")).to_be_visible()
    dashboard.stop_serving()
    expect(page.locator(".stream.reconnecting")).to_be_visible()
    expect(page.locator(".stream")).to_contain_text("reconnecting")
    dashboard.app.schedules.add("meanwhile", "every 1h", "work")
    dashboard.serve()
    expect(page.locator(".stream.live")).to_be_visible()
    expect(page.get_by_role("link", name="meanwhile", exact=True)).to_be_visible()


def test_a_stream_that_is_refused_falls_back_to_polling(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    """Takes ten seconds of real time: the timer of the page."""
    complaints.allow("503")
    page.route("**/events*", lambda route: route.fulfill(status=503))
    page.goto(dashboard.link("schedules"))
    expect(page.locator(".stream.reconnecting")).to_be_visible()
    dashboard.app.schedules.add("polled", "every 1h", "work")
    expect(page.get_by_role("link", name="polled", exact=True)).to_be_visible()


def test_a_hidden_tab_stops_and_catches_up(dashboard: Dashboard, page: Page) -> None:
    page.clock.install()
    page.goto(dashboard.link("schedules"))
    expect(page.locator(".stream.live")).to_be_visible()
    _hide(page, True)
    page.clock.run_for(6_000)
    expect(page.locator(".stream.paused")).to_be_attached()
    dashboard.app.schedules.add("unseen", "every 1h", "work")
    _hide(page, False)
    page.clock.run_for(2_000)
    expect(page.locator(".stream.live")).to_be_visible()
    page.clock.run_for(2_000)
    expect(page.get_by_role("link", name="unseen", exact=True)).to_be_visible()


def test_a_tab_that_was_hidden_for_a_moment_misses_nothing(
    dashboard: Dashboard, context: BrowserContext
) -> None:
    """The tab that does not have the stream listens to the other one meanwhile."""
    first, second = context.new_page(), context.new_page()
    first.goto(dashboard.link("schedules"))
    expect(first.locator(".stream.live")).to_be_visible()
    second.clock.install()
    second.goto(dashboard.link("schedules"))
    expect(second.locator(".stream.live")).to_be_visible()
    second.clock.run_for(2_000)
    second.wait_for_load_state("networkidle")
    _hide(second, True)
    dashboard.app.schedules.add("glimpse", "every 1h", "work")
    expect(first.get_by_role("link", name="glimpse", exact=True)).to_be_visible()
    _hide(second, False)
    second.clock.run_for(2_000)
    expect(second.get_by_role("link", name="glimpse", exact=True)).to_be_visible()


def test_an_answer_that_is_cut_short_is_an_error_and_asked_for_again(
    dashboard: Dashboard, page: Page
) -> None:
    """Takes five seconds of real time: the timer of the page."""
    dashboard.app.schedules.add("report", "every 1h", "work")
    page.route(
        "**/api/v1/schedules?*",
        lambda route: route.fulfill(status=200, content_type="application/json", body='{"items": ['),
        times=1,
    )
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("The answer of the server is incomplete")).to_be_visible()
    expect(page.get_by_role("link", name="report", exact=True)).to_be_visible()


def test_a_clock_that_is_set_back_does_not_stop_the_page(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("report", "every 1h", "work")
    page.goto(dashboard.link("schedules"))
    expect(page.locator(".stream.live")).to_be_visible()
    expect(page.get_by_role("row", name="report")).to_contain_text("active")
    page.evaluate("() => { const read = Date.now; Date.now = () => read() - 3 * 3600 * 1000; }")
    dashboard.app.schedules.pause("report")
    expect(page.get_by_role("row", name="report")).to_contain_text("paused")


def test_an_answer_that_takes_long_is_asked_for_less_often(dashboard: Dashboard, page: Page) -> None:
    """A forecast of 100,000 schedules takes a server seconds: changes must not keep it busy."""
    dashboard.app.schedules.add("report", "every 1h", "work")
    asked: list[Route] = []
    page.route("**/api/v1/schedules?*", lambda route: asked.append(route))
    page.clock.install()
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("Loading")).to_be_visible()
    _wait_for(page, lambda: len(asked) == 1)
    page.clock.run_for(4_000)
    asked[0].continue_()
    row = page.get_by_role("row", name="report")
    expect(row).to_contain_text("active")
    expect(page.locator(".stream.live")).to_be_visible()
    # This tab hears of changes from the first one, which has the stream.
    other = page.context.new_page()
    other.goto(dashboard.link("schedules"))
    expect(other.locator(".stream.live")).to_be_visible()
    dashboard.app.schedules.pause("report")
    expect(other.get_by_role("row", name="report")).to_contain_text("paused")
    page.clock.run_for(10_000)
    page.evaluate("() => fetch('healthz')")
    expect(row).to_contain_text("active")
    assert len(asked) == 1
    page.clock.run_for(10_000)
    _wait_for(page, lambda: len(asked) == 2)
    asked[1].continue_()
    expect(row).to_contain_text("paused")


def _wait_for(page: Page, is_true: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_true():
            return
        # Another answer of the server: until then, the browser has told us about its requests.
        page.evaluate("() => fetch('healthz')")
    raise AssertionError("it did not come")


def _hide(page: Page, is_hidden: bool) -> None:
    page.evaluate(
        """(isHidden) => {
            Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )
