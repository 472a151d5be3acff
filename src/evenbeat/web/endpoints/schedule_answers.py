"""Schedules in answers: with their statistics, their last runs and their revision."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from evenbeat.core.results import Schedule, ScheduleStats
from evenbeat.web import shapes
from evenbeat.web.endpoint import Call, Reply

Payload = dict[str, Any] | None


def schedule_bodies(
    call: Call[Any, Any], found: Iterable[tuple[Schedule, ScheduleStats]], recent: int = 0
) -> list[msgspec.Raw]:
    rows = list(found)
    runs: list[Any] = [None] * len(rows)
    if recent:
        runs = call.app.schedules.recent([schedule for schedule, _ in rows], recent)
    return [
        shapes.schedule_body(call.principal, schedule, stats, each)
        for (schedule, stats), each in zip(rows, runs, strict=True)
    ]


def one_schedule(call: Call[Any, Any], schedule: Schedule, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    (body,) = schedule_bodies(call, [(schedule, stats) for stats in call.app.schedules.stats([schedule])])
    return reply_of(schedule, body, status)


def reply_of(schedule: Schedule, body: msgspec.Raw, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(body, status, {"ETag": f'"{schedule.revision}"'})
