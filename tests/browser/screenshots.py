"""Writes the pictures of the dashboard that README and docs show: ``make screenshots``.

The demo's week of history is behind them, and its jobs run while the pictures are taken.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, expect

from evenbeat import Scheduler
from evenbeat.demo.history import write_history
from evenbeat.demo.shop import add_tasks
from tests.browser import chromium
from tests.browser.dashboard import Complaints, Dashboard, opened

PICTURES = Path(__file__).parents[2] / "docs" / "img"


class Picture(NamedTuple):
    name: str
    path: tuple[str, ...]
    query: dict[str, str] = {}  # noqa: RUF012  # read only
    height: int = 900
    width: int = 1280
    dark: bool = False
    prepare: Callable[[Page], None] | None = None


def _open_traceback(page: Page) -> None:
    page.get_by_text("Traceback of the newest").first.click()


def _failed_flow(app: Scheduler) -> str:
    """Run a flow in which a step fails, and return its id."""

    @app.task
    def read_orders(day: str) -> list[int]:
        time.sleep(0.2)
        return list(range(12))

    @app.task
    def price(order: int) -> int:
        time.sleep(0.02)
        return 100 * order

    @app.task
    def check_stock() -> None:
        time.sleep(0.4)

    @app.task
    def book(prices: list[int]) -> int:
        return sum(prices)

    @app.task
    def send_invoices(total: int) -> None:
        raise PermissionError("sftp.bank.example refused the key 'shop-2025': it expired")

    @app.task
    def tell_warehouse() -> None: ...

    @app.task
    def close_day() -> None: ...

    @app.task
    def call_for_help() -> None: ...

    @app.flow
    def end_of_day(day: str = "today") -> None:
        booked = book.step(price.map(read_orders.step(day=day)))
        sent = send_invoices.step(booked)
        told = tell_warehouse.step(after=[booked, check_stock.step()])
        close_day.step(after=[sent, told])
        call_for_help.step(after=[sent], run_if="any_failed")

    return app.runs.join(app.flows.run("end_of_day").id, "30s").id


def pictures(failed_run: str) -> list[Picture]:
    schedule = ("schedules", "default", "invoice-export")
    return [
        Picture("dashboard-now", ("now",)),
        Picture("dashboard-schedules", ("schedules",)),
        Picture("dashboard-schedule", schedule, height=1100),
        Picture("dashboard-run", ("runs", "default", failed_run), height=1000),
        Picture("dashboard-failures", ("runs", "failures"), height=720, prepare=_open_traceback),
        Picture("dashboard-timeline", ("timeline",), {"since": "12h", "until": "12h"}),
        Picture("dashboard-load", ("timeline",), {"view": "herd"}, height=1000),
        Picture("dashboard-alerts", ("alerts",), height=480),
        Picture("dashboard-calendars", ("calendars",), height=360),
        Picture("dashboard-dark", schedule, height=1100, dark=True),
        Picture("dashboard-phone", ("now",), width=390, height=844),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium.running() as browser:
        dashboard = Dashboard(Path(folder), allow_private_webhooks=["127.0.0.1"])
        write_history(dashboard.app.store)
        add_tasks(dashboard.app)
        dashboard.serve()
        dashboard.app.start(queues=("default", "mail", "reports"), allow_private_webhooks=("127.0.0.1",))
        try:
            (failed, *_) = dashboard.app.runs.list(schedule="invoice-export", state="failed", limit=1)
            for picture in pictures(failed.id):
                take(browser, dashboard, picture)
            # Last: its tasks are those of this file, and the other pictures show the shop.
            flow = ("runs", "default", _failed_flow(dashboard.app))
            take(browser, dashboard, Picture("dashboard-flow", flow, height=1000))
        finally:
            dashboard.close()


def take(browser: Browser, dashboard: Dashboard, picture: Picture) -> None:
    """Take one picture, once the page has loaded its data."""
    complaints = Complaints()
    with opened(browser, dashboard, complaints, dark=picture.dark, width=picture.width) as context:
        page = context.new_page()
        page.set_viewport_size({"width": picture.width, "height": picture.height})
        page.goto(dashboard.link(*picture.path, **picture.query))
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        if picture.prepare is not None:
            picture.prepare(page)
        with suppress(AssertionError):  # a page without a chart
            expect(page.locator(".chart canvas").first).to_be_visible(timeout=1_000)
        page.screenshot(path=PICTURES / f"{picture.name}.png")
    assert complaints.unexpected == [], complaints.unexpected
    print(f"docs/img/{picture.name}.png")  # noqa: T201  # a command that shows its progress


if __name__ == "__main__":
    main()
