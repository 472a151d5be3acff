"""The API keeps to its own description: generated requests, good and bad, against a real server.

schemathesis makes the requests from the OpenAPI document, with a fixed seed. No answer may be a 5xx, differ
from its schema, accept what the schema forbids, or refuse with 400 what it allows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from evenbeat import Scheduler, every
from evenbeat.web import web_app
from evenbeat.web.endpoint import TABLE
from evenbeat.web.openapi import document
from evenbeat.web.serving import WebServer, listen
from tests.lengths import LONG
from tests.web.test_story import place

# 422: the request fits the schema, and its values make no sense, such as a trigger that can't be read.
# 412: an If-Match that is not the schedule's ETag.
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 412, 422]
ignored_auth.enabled = false
"""


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the URL of a server with some schedules and runs, and an admin's token."""
    with place(kind, folder) as store:
        app = Scheduler(store)

        @app.task
        def work(team: str = "ops") -> str:
            return team

        @app.flow(name="0")
        def chain(team: str = "ops") -> None:
            work.step(team=team)

        with closing(app):
            for name in ("0", "a", "nightly"):
                for tenant in ("default", "0"):
                    app.schedules.add(name, every("1h"), "work", tenant=tenant, run_now=True, tags=["0"])
                    # The variable is not set: nothing is sent.
                    app.alerts.channels.add(name, "webhook", "env:EVENBEAT_SECRET_NOT_SET", tenant=tenant)
                    app.alerts.rules.add(name, on="failing:3", to=name, tenant=tenant)
            made = WebServer(web_app(app), listen("127.0.0.1", 0))
            made.start()
            try:
                yield made.url, app.tokens.create("schemathesis", "admin").secret
            finally:
                made.stop()


@pytest.mark.parametrize(
    ("kind", "phases", "examples"),
    [
        pytest.param("sqlite", "fuzzing", 2, id="few-sqlite"),
        pytest.param("sqlite", "coverage,fuzzing", 5, id="sqlite", marks=LONG),
        pytest.param("postgres", "fuzzing", 5, id="postgres", marks=LONG),
    ],
)
def test_generated_requests_find_no_server_error_and_no_violation(
    tmp_path: Path, kind: str, phases: str, examples: int
) -> None:
    with serving(kind, tmp_path) as (url, secret):
        check(tmp_path, url, secret, phases, examples)


def check(tmp_path: Path, url: str, secret: str, phases: str, examples: int) -> None:
    (tmp_path / "openapi.json").write_bytes(msgspec.json.encode(document()))
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    words = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file=schemathesis.toml",
        "run",
        "openapi.json",
        f"--url={url}",
        f"--header=Authorization: Bearer {secret}",
        "--exclude-path=/api/v1/events",  # a stream, which does not end by itself
        "--exclude-operation-id=revoke_token",  # it would revoke its own
        "--exclude-operation-id=log_in",  # after 20 wrong tokens, the server refuses the address
        f"--phases={phases}",
        f"--max-examples={examples}",
        "--seed=1",
        "--generation-database=none",
        "--no-color",
        "--continue-on-failure",
    ]
    printed = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True
    )
    assert printed.returncode == 0, printed.stdout[-6000:] + printed.stderr[-2000:]
    tested = sum(1 for each in TABLE if each.handler.__name__ not in ("events", "revoke_token", "log_in"))
    assert f"Tested: {tested}" in printed.stdout, printed.stdout[-3000:]
