"""The dashboard by keyboard alone: the order of Tab, a focus that is seen, dialogs that give it back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.dashboard import Dashboard

MOST_STEPS = 80
FOCUSED = """(() => {
    const each = document.activeElement;
    const style = getComputedStyle(each);
    return {
        name: each.getAttribute("aria-label") ?? each.labels?.[0]?.textContent ?? each.textContent ?? "",
        isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    };
})()"""


def _walk(page: Page, last: str) -> list[str]:
    """Press Tab until an element has the focus, and return the names on the way. Each focus must be seen."""
    names: list[str] = []
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        assert focused["isSeen"], focused
        names.append(focused["name"].strip())
        if names[-1] == last:
            return names
    raise AssertionError(f"Tab does not reach {last}: {names}")


def test_tab_reaches_everything_in_reading_order(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail-digest", "every 1h", "work")
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("link", name="mail-digest")).to_be_visible()
    names = _walk(page, "mail-digest")
    wanted = ["Skip to the content", "Evenbeat", "Now", "Schedules", "More", "Find a page or a schedule"]
    wanted += ["Time zone", "+ New schedule", "Search", "Schedules", "Select all of this page", "mail-digest"]
    assert [name for name in names if name in wanted] == wanted
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="mail-digest", exact=True)).to_be_visible()
    expect(page.locator("main")).to_be_focused()


def test_the_first_link_skips_the_navigation(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("searchbox").first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="New schedule")).to_be_focused()


def test_a_dialog_keeps_the_focus_and_gives_it_back(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail-digest", "every 1h", "work")
    page.goto(dashboard.link("schedules", "default", "mail-digest"))
    button = page.locator(".page-head").get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    focused = "document.activeElement"
    inside = f"document.querySelector('dialog').contains({focused}) || {focused} === document.body"
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_nothing_moves_where_motion_is_not_wanted(dashboard: Dashboard, page: Page) -> None:
    """The page has no motion of its own; the rule holds for what is added later. The tests' contexts ask for
    reduced motion. Even the shortest transition shows old colours until the next frame, so there is none."""
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("searchbox").first).to_be_visible()
    page.evaluate("document.body.style.transition = 'opacity 1s'")
    fade = """(() => {
        const style = getComputedStyle(document.body);
        document.body.style.opacity = style.opacity === "1" ? "0.5" : "1";
        return style.opacity;
    })()"""
    assert page.evaluate(fade) == "0.5"
    assert page.evaluate(fade) == "1"
    page.emulate_media(reduced_motion="no-preference")
    assert float(page.evaluate(fade)) > 0.5
