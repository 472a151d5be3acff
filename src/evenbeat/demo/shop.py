"""The tasks of a small shop: the schedules in the demo's history run them, also live.

``add_tasks`` registers them.
"""

from __future__ import annotations

import logging
import time

from evenbeat.app.scheduler import Scheduler
from evenbeat.tasks.context import RunContext
from evenbeat.triggers import cron, every

_log = logging.getLogger("shop")


def add_tasks(app: Scheduler) -> None:
    """Register the tasks of the shop with an app. Two of them have schedules of their own."""
    app.task(name="reports/nightly", queue="reports")(make_report)
    app.task(name="invoices.export", queue="reports")(export_invoices)
    app.task(name="crm.sync", retries=3, backoff="30s")(sync_crm)
    app.task(name="backup.table")(back_up)
    app.task(name="stock.count")(count_stock)
    app.task(name="mail.digest", queue="mail")(send_digest)
    app.task(name="mail.reminders", queue="mail", retries=1)(send_reminders)
    app.task(name="billing.charge")(charge)
    app.task(name="images.thumbnails")(make_thumbnails)
    app.task(name="video.transcode")(transcode)
    app.task(name="prices.refresh", retries=2, backoff="10s")(refresh_prices)
    app.task(name="welcome.mail", queue="mail")(welcome)
    app.task(
        schedule=cron("*/30 * * * *"), description="Deletes sessions that have expired.", tags=["cleanup"]
    )(purge_sessions)
    app.task(
        schedule=every("15m"), catch_up="skip", grace="1m", description="Looks for dead links.", tags=["web"]
    )(check_links)


def make_report(run: RunContext, team: str = "sales") -> dict[str, object]:
    run.log(f"collecting the figures of team {team}")
    time.sleep(1)
    return {"team": team, "pages": 12}


def export_invoices(run: RunContext) -> None:
    run.log("connecting to sftp.bank.example")
    time.sleep(0.3)
    raise PermissionError("sftp.bank.example refused the key 'shop-2025': it expired")


def sync_crm(run: RunContext) -> dict[str, int]:
    if run.failures == 0 and run.scheduled_at.minute % 20 == 0:
        raise TimeoutError("crm.example did not answer within 10 s")
    time.sleep(0.2)
    return {"changed": 17}


def back_up(run: RunContext, table: str) -> str:
    run.log(f"dumping {table}")
    time.sleep(0.5)
    return f"{table}.dump.zst"


def count_stock() -> int:
    time.sleep(0.3)
    return 48_211


def send_digest(run: RunContext, readers: str = "customers") -> int:
    run.log(f"to {readers}: 214 letters")
    time.sleep(0.4)
    return 214


def send_reminders() -> int:
    time.sleep(0.2)
    return 9


def charge(run: RunContext, account: int, note: str = "") -> dict[str, int]:
    run.log(note)
    return {"account": account, "total_cents": account * 11}


def make_thumbnails(run: RunContext) -> int:
    for number in range(1, 4):
        run.log(f"image {number} of 3")
        time.sleep(0.3)
    return 3


def transcode(run: RunContext, film: str = "intro.mov") -> str:
    _log.info("transcoding %s", film)
    for _ in range(20):
        run.raise_if_cancelled()
        time.sleep(0.2)
    return film.replace(".mov", ".mp4")


def refresh_prices() -> int:
    time.sleep(0.1)
    return 1_204


def welcome(name: str) -> str:
    return f"welcome, {name}"


def purge_sessions() -> int:
    time.sleep(0.1)
    return 132


def check_links() -> str:
    time.sleep(0.3)
    return "no dead link"
