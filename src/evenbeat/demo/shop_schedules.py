"""The schedules of the demo's history, as its people created them."""

from __future__ import annotations

from typing import Any, NamedTuple

from evenbeat.app.scheduler import Scheduler
from evenbeat.core.instants import Instant, write_instant

LARGE = 9_007_199_254_740_993
"""The first integer that a 64-bit float can't hold: 2^53 + 1."""
CLOCK_CHANGE = "count-stock"
"""The schedule whose local time comes twice, or not at all, when the clocks change."""
CLOSED = "shop-closed"
"""The calendar of the days on which nobody works."""
CLOSED_DAYS = ("01-01", "05-01", "12-24..12-26", "12-31")
DECORATED = ("purge_sessions", "check_links")
"""The tasks whose schedules the code declares."""
ZONE = "Europe/Berlin"
DEPLOYER = "deploy@ci.example"

_TABLES = (
    *("customers", "orders", "products", "invoices", "payments", "shipments", "returns", "suppliers"),
    *("stock", "prices", "carts", "reviews", "sessions", "audit", "mails", "coupons", "refunds", "taxes"),
    *("addresses", "employees", "contracts", "tickets", "campaigns", "segments", "visits", "searches"),
    *("wishlists", "warehouses", "routes", "carriers"),
)


class ShopSchedule(NamedTuple):
    """A schedule, and the person or program that created it."""

    name: str
    trigger: str
    task: str
    payload: dict[str, Any] | None = None
    tenant: str = "default"
    by: str = DEPLOYER
    options: dict[str, Any] = {}  # noqa: RUF012  # read only

    def add_to(self, app: Scheduler) -> None:
        app.schedules.add(
            self.name, self.trigger, self.task, self.payload, tenant=self.tenant, **self.options
        )


def _schedule(name: str, trigger: str, task: str, payload: Any = None, **more: Any) -> ShopSchedule:
    known = {key: more.pop(key) for key in ("tenant", "by") if key in more}
    return ShopSchedule(name, trigger, task, payload, **known, options=more)


def clock_change_schedule(zone: str) -> ShopSchedule:
    return _schedule(
        CLOCK_CHANGE,
        f"30 2 * * * tz={zone}",
        "stock.count",
        description="Counts the stock at half past two, local time.",
        tags=["warehouse"],
    )


def one_shot_schedule(at: Instant) -> ShopSchedule:
    return _schedule(
        "launch-letter",
        f"at {write_instant(at)}",
        "mail.digest",
        {"readers": "press"},
        queue="mail",
        by="ana@shop.example",
        tags=["mail"],
        description="The letter to the press, sent once.",
    )


SCHEDULES: tuple[ShopSchedule, ...] = (
    _schedule(
        "nightly-report",
        f"0 3 * * * tz={ZONE}",
        "reports/nightly",
        {"team": "sales"},
        description="The figures of the day before, for the stand-up at nine.",
        tags=["reports", "critical"],
    ),
    _schedule(
        "invoice-export",
        "5 * * * *",
        "invoices.export",
        description="Sends new invoices to the bank.",
        tags=["critical", "finance"],
        overlap="queue",
    ),
    _schedule(
        "crm-sync",
        "every 10m",
        "crm.sync",
        tags=["crm"],
        description="Copies new customers to the CRM, which often times out: its runs are retried.",
    ),
    *(
        _schedule(
            f"snapshot-{table}",
            "0 0 * * *",
            "backup.table",
            {"table": table},
            tags=["backup"],
            description=f"Dumps the table {table}.",
        )
        for table in _TABLES
    ),
    _schedule(
        "thumbnails",
        "*/15 * * * *",
        "images.thumbnails",
        overlap="skip",
        description="Skips a tick while the one before still runs.",
        tags=["media"],
    ),
    _schedule(
        "price-feed",
        f"*/10 8-18 * * mon-fri tz={ZONE}",
        "prices.refresh",
        priority="high",
        tags=["web"],
        by="ana@shop.example",
    ),
    _schedule(
        "stock-list",
        f"0 14 * * * tz={ZONE} only=business-days skip={CLOSED} move=next",
        "stock.count",
        by="ana@shop.example",
        tags=["warehouse"],
        description="Counts what the suppliers sent. On a day off it waits for the next one.",
    ),
    _schedule(
        "newsletter",
        f"0 10 * * * tz={ZONE}",
        "mail.digest",
        {"readers": "newsletter"},
        queue="mail",
        by="ana@shop.example",
        tags=["mail"],
        description="The daily letter to all customers.",
    ),
    _schedule(
        "transcode",
        "20 */3 * * *",
        "video.transcode",
        {"film": "autumn/teaser.mov"},
        max_concurrent=3,
        tags=["media"],
        by="ben@shop.example",
    ),
    _schedule(
        "digest",
        "0 * * * *",
        "mail.digest",
        {"readers": "acme"},
        queue="mail",
        tenant="acme",
        by="omar@acme.example",
        tags=["mail"],
    ),
    _schedule(
        "reminders",
        "*/20 * * * *",
        "mail.reminders",
        queue="mail",
        tenant="acme",
        by="omar@acme.example",
        tags=["mail"],
        spread="2m",
    ),
    _schedule(
        "charge-accounts",
        "30 4 * * * tz=America/New_York",
        "billing.charge",
        {"account": LARGE, "note": "an integer beyond 2^53 keeps every digit"},
        tenant="acme",
        by="omar@acme.example",
        tags=["finance"],
    ),
    _schedule(
        "survey",
        "0 */2 * * *",
        "mail.digest",
        {"readers": "survey"},
        queue="mail",
        tenant="acme",
        by="lin@acme.example",
        tags=["mail"],
    ),
)
OLD_IMPORT = _schedule("old-import", "0 */8 * * *", "stock.count", by="ben@shop.example", tags=["legacy"])
"""Deleted two days ago."""
