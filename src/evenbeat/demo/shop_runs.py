"""How the runs of the demo's history ended: durations, results, errors and logs.

Each attempt has a random generator of its own, seeded by the run: the same tick always ends in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import to_json
from evenbeat.core.records import RunRecord
from evenbeat.demo.shop_schedules import LARGE

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
SEED = "evenbeat"


class Fate(NamedTuple):
    """How an attempt ends."""

    took: int
    """Milliseconds."""
    kind: Literal["returned", "raised", "lost"] = "returned"
    """``lost``: its worker loses the lease."""
    result: object = None
    error: str | None = None
    lines: tuple[str, ...] = ()
    """Of the log, evenly spread over the attempt."""


class Start(NamedTuple):
    """The start of an attempt."""

    run: RunRecord
    now: Instant
    ago: int
    """How long before the end of the history, in ms."""
    chance: Random

    def shaped(self, typical: float) -> int:
        """Return a duration in ms: longer in the afternoon than at night, and never the same twice."""
        hour = self.now % DAY / HOUR
        of_day = 1 + 0.6 * math.sin((hour - 8) / 24 * 2 * math.pi)
        return max(1, round(typical * of_day * self.chance.lognormvariate(0, 0.3)))


class ShopRuns:
    """Decides the fate of each attempt, by the run and by how long before ``end`` it starts."""

    def __init__(self, end: Instant) -> None:
        self._end = end
        self._is_worker_lost = False

    def fate(self, run: RunRecord, now: Instant) -> Fate:
        ago = self._end - now
        if run.schedule == "invoice-export" and ago <= 3 * DAY and not self._is_worker_lost:
            self._is_worker_lost = True
            return Fate(70 * SECOND, "lost", result={"sent": 31}, lines=("connecting to sftp.bank.example",))
        chance = Random(f"{SEED}/{run.id}/{run.attempt}")  # noqa: S311  # not a secret
        return _BY_TASK.get(run.task, _quick)(Start(run, now, ago, chance))


def _quick(start: Start) -> Fate:
    return Fate(start.shaped(400), result=start.chance.randrange(50, 5_000))


def _report(start: Start) -> Fate:
    took = start.shaped(140 * SECOND)
    opening = ("collecting the figures of team sales", "query 1 of 3: orders", "query 2 of 3: returns")
    # A retry by hand comes after the repair.
    if 3 * DAY - 12 * HOUR < start.ago < 6.5 * DAY and start.run.attempt == 1:
        return Fate(took // 3, "raised", error=_REPORT_ERROR, lines=opening)
    return Fate(
        took, result={"team": "sales", "pages": start.chance.randrange(9, 16)}, lines=(*opening, "done ✅")
    )


def _export(start: Start) -> Fate:
    lines = ("connecting to sftp.bank.example",)
    if start.ago < 3 * HOUR:  # the last three
        return Fate(start.shaped(1_800), "raised", error=_EXPORT_ERROR, lines=lines)
    sent = start.chance.randrange(0, 60)
    return Fate(start.shaped(9_000), result={"sent": sent}, lines=(*lines, f"sent {sent} invoices"))


def _sync(start: Start) -> Fate:
    if start.chance.random() < (0.22 if start.run.failures == 0 else 0.12):
        error = start.chance.choice(_SYNC_ERRORS)
        return Fate(start.shaped(10_200), "raised", error=error)
    return Fate(start.shaped(2_400), result={"changed": start.chance.randrange(80)})


def _backup(start: Start) -> Fate:
    took = round(start.chance.uniform(15, 95) * SECOND)
    size = start.chance.randrange(4_000, 900_000)
    lines = ("dumping", f"{size:,} rows", "uploaded to s3://shop-backup/…")
    return Fate(took, result={"rows": size, "bytes": size * 211}, lines=lines)


def _thumbnails(start: Start) -> Fate:
    is_slow = start.chance.random() < 0.06
    took = start.shaped(22 * MINUTE if is_slow else 50 * SECOND)
    number = start.chance.randrange(20, 400)
    return Fate(took, result=number, lines=(f"{number} images to make", "…", "all made"))


def _transcode(start: Start) -> Fate:
    took = round(start.chance.uniform(18, 50) * MINUTE)
    lines = tuple(f"{share} % of autumn/teaser.mov" for share in range(10, 101, 10))
    return Fate(took, result="autumn/teaser.mp4", lines=lines)


def _mail(start: Start) -> Fate:
    readers = start.chance.randrange(150, 260)
    if start.chance.random() < 0.03:
        return Fate(start.shaped(5_000), "raised", error=_MAIL_ERROR)
    return Fate(start.shaped(6_000), result=readers, lines=(f"{readers} readers", "handed to smtp"))


def _charge(start: Start) -> Fate:
    total = start.chance.randrange(4_000, 90_000)
    return Fate(start.shaped(700), result={"account": LARGE, "total_cents": total})


def as_result(fate: Fate) -> str:
    """Return the result as JSON text."""
    return to_json(fate.result)


_BY_TASK: dict[str, Callable[[Start], Fate]] = {
    "reports/nightly": _report,
    "invoices.export": _export,
    "crm.sync": _sync,
    "backup.table": _backup,
    "images.thumbnails": _thumbnails,
    "video.transcode": _transcode,
    "mail.digest": _mail,
    "billing.charge": _charge,
}

_REPORT_ERROR = """\
KeyError: 'net_revenue'

  File "/srv/shop/reports/nightly.py", line 48, in make_report
    rows = [figures(day, team) for day in days]
  File "/srv/shop/reports/figures.py", line 112, in figures
    return Figures(total=row["net_revenue"], returns=row["returned"])"""
_EXPORT_ERROR = """\
PermissionError: sftp.bank.example refused the key 'shop-2025': it expired

  File "/srv/shop/invoices/export.py", line 31, in export_invoices
    with connect("sftp.bank.example", key=settings.bank_key) as bank:
  File "/srv/shop/invoices/sftp.py", line 77, in connect
    raise PermissionError(f"{host} refused the key {key.name!r}: {answer}")"""
_TIMEOUT = """\
TimeoutError: crm.example did not answer within 10 s

  File "/srv/shop/crm/client.py", line 64, in call
    raise TimeoutError(f"{self.host} did not answer within {patience} s")"""
_RESET = """\
ConnectionResetError: crm.example closed the connection

  File "/srv/shop/crm/client.py", line 58, in call
    answer = self.session.post(path, json=body)"""
_SYNC_ERRORS = (_TIMEOUT, _RESET)
_MAIL_ERROR = """\
SMTPServerDisconnected: please run connect() first

  File "/srv/shop/mail/digest.py", line 22, in send_digest
    server.send_message(letter)"""
