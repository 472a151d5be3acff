"""Hostile texts in every field that a user, a job or an administrator can set: each page and each dialog
shows them as texts, runs none of them, and keeps its width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from evenbeat.app.acting import acting_as
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord
from evenbeat.demo.shop_runs import Fate
from evenbeat.observe.run_progress import Reported, ReportedProgress
from evenbeat.stores.base import Claim
from tests.browser.dashboard import Complaints, Dashboard, opened
from tests.browser.fixed_past import NOW, FixedPast, ahead, hold_clock

SCRIPT = "<script>alert(1)</script>"
LINE = f'{SCRIPT} "><img src=x onerror=alert(1)> javascript:alert(1) {{{{7*7}}}} \u202edetrevni 🧨👩‍👧'
TOKEN = f'{SCRIPT} "><img src=x onerror=alert(1)> javascript:alert(1) {{{{7*7}}}} 🧨'
TEXT = f"{LINE}\nthe second line"
WORD = "w" * 5_000
TASK = f'{SCRIPT}"><img/src=x/onerror=alert(1)>javascript:alert(1){{{{7*7}}}}\u202e🧨{"w" * 80}'
NAME = "javascript:alert-1." + "w" * 109
LABEL = "w" * 128
FLOW = f"f{TASK}"
STEP = "javascript:alert-1." + "w" * 45
RUN_ID = f"{TASK}-{'w' * 150}".replace("/", "\\")
PAYLOAD = {TEXT: TEXT, "deep": {TEXT: [WORD, TEXT, {"javascript:": TEXT}]}, WORD: 1}
ERROR = f"{TEXT}: {WORD}\n\n  File {SCRIPT}, line 1, in {SCRIPT}\n    {WORD}"
# Addresses that would run a script.
DANGEROUS = """["href", "src", "action", "formaction"].flatMap((name) =>
    [...document.querySelectorAll(`[${name}]`)]
        .map((each) => each.getAttribute(name))
        .filter((address) => /^\\s*(javascript|data|vbscript):/i.test(address)))"""
# The page or the dialog, if it is wider than the screen, with the elements that make it so.
TOO_WIDE = """[document.documentElement, ...document.querySelectorAll("dialog[open]")]
    .filter((frame) => frame.scrollWidth > frame.clientWidth)
    .map((frame) => [...frame.querySelectorAll("*")]
        .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .slice(0, 12).map((each) => `${each.tagName}.${each.className}`)
        .concat(frame.tagName, frame.scrollWidth).join(" "))"""


def _fate(run: RunRecord, now: Instant) -> Fate:
    lines = (TEXT, WORD, f"\x1b[31m{SCRIPT}\x1b[0m")
    if now > NOW - 2 * 3_600_000:
        return Fate(1_800, "raised", error=ERROR, lines=lines)
    return Fate(400, result=PAYLOAD, lines=lines)


def _run_flow(past: FixedPast) -> None:
    """Run a flow with a hostile name: a step and a map fail with hostile errors."""
    task = past.app.tasks.get(TASK)
    assert task is not None

    @past.app.task
    def part(text: str) -> None: ...

    flow = past.app.new_flow(FLOW)
    first = flow.add_step(STEP, task)
    elements = flow.add_step("elements", part, map_over=[LINE, TEXT])
    flow.add_step("x" * 64, task, after=[first, elements])
    past.run_flow(flow, {STEP: ERROR, "elements": ERROR}, run_id="flow")


@pytest.fixture(scope="module")
def hostile() -> Iterator[Dashboard]:
    past = FixedPast("8h", _fate)
    app = past.app
    past.add_tasks(TASK)
    do = partial(past.do, actor=LINE)
    description = f"{TEXT} {'w' * 800}"
    add = partial(app.schedules.add, task=TASK, payload=PAYLOAD, description=description, tags=[NAME, LABEL])
    do("8h", action=partial(add, NAME, "5 * * * * tz=Europe/Berlin"))
    do("8h", action=partial(add, "paused", "0 * * * *", tenant=LABEL))
    days = ["2031-12-24..2031-12-31", "01-01"]
    do("7h 30m", action=partial(app.calendars.set, LABEL, days=days, weekly=["sun 01:00-02:00"]))
    long_names = ("x" * 127 + str(number) for number in range(7))
    for name in long_names:
        do("7h 20m", action=partial(app.schedules.add, name, f"0 5 * * sun skip={LABEL}", TASK))
    do("7h", action=partial(app.schedules.add, "missing", "0 * * * *", f"missing-{TASK}"[:200]))
    do("7h", action=partial(app.alerts.channels.add, NAME, "webhook", "http://127.0.0.1:9/"))
    do("6h", action=partial(app.alerts.rules.add, NAME, on=["failed"], to=[NAME]))
    do("6h", action=partial(app.alerts.rules.add, "muted", on=["failed"], to=[NAME], tag=NAME))
    do("5h", action=partial(app.alerts.rules.mute, "muted", until=ahead("1d")))
    window = partial(app.alerts.windows.add, NAME, starts=ahead("6h"), until=ahead("8h"), schedule=NAME)
    do("4h", action=partial(window, note=f"{TEXT} {'w' * 800}"))
    do("4h", action=partial(app.tokens.create, TOKEN, "viewer", tenant=LABEL))
    do("3h", action=partial(app.tokens.create, "w" * 100, "admin"))
    do("3h", action=partial(app.schedules.update, NAME, description=TEXT, payload={TEXT: WORD}))
    do("2h 30m", action=partial(app.schedules.pause, "paused", f"{TEXT} {WORD}", tenant=LABEL))
    do("2h", action=partial(app.enqueue, TASK, PAYLOAD, id=RUN_ID))
    past.go()
    _run_flow(past)
    app.enqueue(TASK, PAYLOAD, id="running")
    claim = Claim(worker=LINE, token="1", limit=1, now=NOW, lease=30_000, tasks=frozenset({TASK}))
    (run,) = past.store.claim_runs(claim).runs
    assert run.id == "running"
    progress = ReportedProgress(run).record(Reported(1, f"{TEXT} {WORD}", 2), NOW, 1)
    assert past.store.put_record(progress)
    app.enqueue(TASK, PAYLOAD, queue=LABEL)
    app.limits.set(task=TASK, key="customer", concurrency=1)
    app.templates.set(LABEL, trigger="0 3 * * *", description=TEXT, tags=[NAME])
    app.limits.set(queue=LABEL, tenant=LABEL, rate="1/h")
    app.enqueue(TASK, {"customer": f"{TEXT} {WORD}"})
    app.tenants.set_quota(LABEL, schedules=1)
    with acting_as(LINE, "api"):
        app.retention.set(tenant=LABEL, keep="30d")
    past.store.put_record(Record(kind="quarantine", tenant="default", key=RUN_ID, body=f"{TEXT} {WORD}"))
    past.add_node(LINE, host=f"{SCRIPT}{WORD}", queues=[LABEL, LINE])
    made = Dashboard(None, app)
    made.serve()
    yield made
    made.close()


class Look(NamedTuple):
    """A page to look at: its address, whether it shows hostile texts, and the buttons that open dialogs."""

    path: tuple[str, ...]
    query: dict[str, str] = {}  # noqa: RUF012  # read only
    shows: str = SCRIPT
    dialogs: tuple[str, ...] = ()


RUN = f"default/{NAME}/1/{NOW - 15 * 60_000}"
LOOKS = {
    "now": Look(("now",)),
    "schedules": Look(("schedules",), dialogs=("Pause …", "Resume …", "Run now …", "Change …", "Delete …")),
    "calendars": Look(("calendars",), shows=LABEL, dialogs=("New calendar …",)),
    "calendar": Look(("calendars", LABEL), shows=LABEL, dialogs=("Change …", "Delete …")),
    "schedule with a calendar": Look(("schedules", "default", "x" * 127 + "0"), shows=LABEL),
    "templates": Look(("templates",), dialogs=("New template …",)),
    "schedules of a search": Look(("schedules",), {"text": LINE, "task": TASK, "tag": NAME}, shows=""),
    "new schedule": Look(("schedules", "new"), shows=""),
    "edit": Look(("schedules", "default", NAME, "edit"), shows=NAME),
    "schedule": Look(
        ("schedules", "default", NAME), dialogs=("Run now", "Pause", "Move next tick", "Backfill", "Delete")
    ),
    "paused schedule": Look(("schedules", LABEL, "paused"), dialogs=("Resume",)),
    "runs": Look(("runs",), dialogs=("Retry all failed …", "Cancel all queued …")),
    "runs of a search": Look(("runs",), {"task": TASK, "worker": LINE}),
    "failures": Look(("runs", "failures"), dialogs=("Retry this group …",)),
    "failed run": Look(("runs", "default", RUN), dialogs=("Retry", "Retry with an edited payload …")),
    "run with an id": Look(("runs", "default", RUN_ID)),
    "running run": Look(("runs", "default", "running"), dialogs=("Cancel …",)),
    "flows": Look(("flows",), dialogs=(f"Start {FLOW} …",)),
    "flow": Look(("flows", FLOW), dialogs=(f"Start {FLOW} …",)),
    "flow run": Look(("runs", "default", "flow"), dialogs=("Resume …", f"Retry the step {STEP} …")),
    "steps of a flow run": Look(("runs", "default", "flow"), {"steps": "table"}),
    "timeline": Look(("timeline",), shows=NAME),
    "herd": Look(("timeline",), {"view": "herd"}, shows=NAME),
    "nodes": Look(("nodes",)),
    "queues": Look(("queues",), shows=LABEL),
    "limits": Look(
        ("limits",), dialogs=(f"Change task={TASK} key=customer", f"Remove task={TASK} key=customer")
    ),
    "tenants": Look(("tenants",), shows=LABEL),
    "tenant": Look(("tenants", LABEL), shows=LABEL, dialogs=("Change …", "Remove …", "Purge …")),
    "order": Look(
        ("order",),
        dialogs=(
            f"Change the rule for ended runs of {LABEL}",
            f"Remove the rule for ended runs of {LABEL}",
            "Look for what is wrong …",
        ),
    ),
    "quarantined run": Look(("order", "default", RUN_ID), dialogs=("Retry …", "Drop …")),
    "incidents": Look(("alerts",)),
    "rules": Look(
        ("alerts",),
        {"tab": "rules"},
        NAME,
        (f"Mute {NAME}", f"Edit {NAME}", f"Delete {NAME}", "Unmute muted"),
    ),
    "channels": Look(
        ("alerts",), {"tab": "channels"}, NAME, (f"Test {NAME}", f"Edit {NAME}", f"Delete {NAME}")
    ),
    "windows": Look(("alerts",), {"tab": "windows"}, SCRIPT, (f"Remove {NAME}",)),
    "deliveries": Look(("alerts",), {"tab": "log"}, NAME),
    "past incidents": Look(("alerts",), {"tab": "past"}, ""),
    "audit": Look(("audit",)),
    "tokens": Look(("tokens",), dialogs=(f"Revoke {TOKEN}",)),
    "not found": Look((LINE,)),
}


@pytest.fixture(scope="module")
def screen(browser: Browser, hostile: Dashboard) -> Iterator[tuple[Page, Complaints]]:
    complaints = Complaints()
    with opened(browser, hostile, complaints, width=375) as context:
        page = context.new_page()
        hold_clock(page)
        yield page, complaints


@pytest.fixture
def page(screen: tuple[Page, Complaints]) -> Iterator[Page]:
    """The one page of these tests, which may not complain in any of them."""
    found, complaints = screen
    complaints.found.clear()
    yield found
    assert complaints.unexpected == []


@pytest.mark.parametrize("name", LOOKS)
def test_hostile_texts_are_texts(hostile: Dashboard, page: Page, name: str) -> None:
    look = LOOKS[name]
    page.goto(hostile.link(*look.path, **look.query))
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    if look.shows:
        expect(page.locator("main")).to_contain_text(look.shows)
    if look.shows == SCRIPT:
        expect(page.locator("main")).to_contain_text("{{7*7}}")
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
    _check(page)
    if name == "edit":
        expect(page.get_by_label("Description")).to_have_value(TEXT)
    if name == "schedules":
        page.get_by_role("checkbox", name=f"Select {NAME}").check()
        page.get_by_role("checkbox", name="Select paused").check()
    for button in look.dialogs:
        page.locator("main").get_by_role("button", name=button, exact=True).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(dialog.locator(".loading")).to_have_count(0)
        _check(page)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_the_reason_of_a_cell(hostile: Dashboard, page: Page) -> None:
    page.goto(hostile.link("schedules", "default", NAME))
    page.locator(".heat").get_by_role("button", name=re.compile("1 failed")).first.click()
    expect(page.get_by_role("complementary", name="Why")).to_contain_text(SCRIPT)
    _check(page)


def test_the_palette_finds_hostile_names(hostile: Dashboard, page: Page) -> None:
    page.goto(hostile.link("now"))
    expect(page.locator("main h1").first).to_be_visible()
    page.keyboard.press("Control+k")
    field = page.get_by_role("dialog").get_by_role("combobox")
    field.fill(LINE)
    expect(page.get_by_role("dialog")).to_contain_text("Nothing found.")
    field.fill("javascript:alert-1")
    expect(page.get_by_role("option")).to_contain_text([NAME])
    _check(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)


def _check(page: Page) -> None:
    """Check that no text became an element or an address, and that nothing is wider than the screen."""
    assert page.evaluate("document.querySelectorAll('img, iframe, object, body script').length") == 0
    assert page.evaluate(DANGEROUS) == []
    assert page.evaluate(TOO_WIDE) == []
