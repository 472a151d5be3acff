"""APScheduler 3 on each of its job stores: the peer that stores schedules in the same databases as Evenbeat.

It gets its best case: an executor that only counts, so that only turning due schedules into jobs is
measured, and one process, since two of them on one store would each run every job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

# A database of the server that no other suite uses: it is emptied.
_REDIS_DATABASE = 9


class Counting(BaseExecutor):  # type: ignore[misc]  # the peer comes without types
    def _do_submit_job(self, job: Any, run_times: Any) -> None:
        self._run_job_success(job.id, [])


@contextmanager
def job_store(url: str) -> Iterator[Any]:
    """Make an empty job store, in memory or at the URL of SQLite, PostgreSQL, Valkey or MongoDB."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        yield MemoryJobStore()
    elif parts.scheme == "redis":
        from apscheduler.jobstores.redis import RedisJobStore

        store = RedisJobStore(db=_REDIS_DATABASE, host=parts.hostname, port=parts.port)
        store.redis.flushdb()
        yield store
        store.redis.flushdb()
    elif parts.scheme == "mongodb":
        from apscheduler.jobstores.mongodb import MongoDBJobStore
        from pymongo import MongoClient

        with MongoClient[dict[str, object]](url) as client:
            yield MongoDBJobStore(database=parts.path[1:], client=client)
    else:
        store = SQLAlchemyJobStore(url.replace("postgresql://", "postgresql+psycopg://", 1))
        yield store
        store.engine.dispose()


@contextmanager
def scheduler(store: Any, jobs: int) -> Iterator[Any]:
    """Yield a scheduler that is not started, with jobs that are all due."""
    made = BackgroundScheduler(
        jobstores={"default": store},
        executors={"default": Counting()},
        timezone=UTC,
        job_defaults={"misfire_grace_time": None, "coalesce": True},
    )
    made.start(paused=True)
    trigger = CronTrigger.from_crontab("0 * * * *", timezone=UTC)
    for at in range(jobs):
        made.add_job("time:time", trigger, id=str(at), next_run_time=datetime.now(UTC))
    yield made
    # Its thread reads the store once more after closing it, and logs the error.
    logging.getLogger("apscheduler.scheduler").setLevel(logging.CRITICAL)
    made.shutdown(wait=False)


def fire(url: str, jobs: int) -> float:
    """Return how many due jobs it fires per second, in one pass over all of them."""
    with job_store(url) as store, scheduler(store, jobs) as made:
        made.state = 1  # running, without its thread: the pass below is the only one
        begin = time.perf_counter()
        made._process_jobs()
        return jobs / (time.perf_counter() - begin)
