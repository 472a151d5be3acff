"""Operate schedules over HTTP: find out what failed and why, retry it, pause. Needs the extra `web`.

python examples/rest_api.py
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from evenbeat import Scheduler


def ask(url: str, secret: str, method: str = "GET", body: object = None) -> Any:
    """Return the answer to a request."""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, headers, method=method), timeout=60) as answer:  # noqa: S310  # our own server
        return json.load(answer)


def operate(app: Scheduler, api: str, provider: Path) -> None:
    viewer = app.tokens.create("screen", "viewer").secret
    operator = app.tokens.create("ann", "operator").secret

    (failed,) = ask(f"{api}/runs?state=failed&since=1h", viewer)["items"]
    run = f"{api}/runs/{failed['id']}"
    print(ask(f"{run}/why", viewer)["sentence"])

    try:
        ask(f"{run}/retry", viewer, "POST")
    except HTTPError as error:
        print(f"a viewer gets {error.code}: {json.load(error)['detail']}")

    provider.touch()
    ask(f"{run}/retry", operator, "POST")
    app.runs.join(failed["id"], timeout="60s")
    done = ask(run, viewer)
    assert (done["state"], done["result"]) == ("succeeded", "charged")
    print(f"an operator may retry: {done['state']}, {done['result']}")

    pause = {"note": "the provider moves", "until": "2h"}
    paused = ask(f"{api}/schedules/billing/pause", operator, "POST", pause)
    print(f"{paused['name']} is {paused['state']} by {paused['paused_by']}: {paused['pause_note']}")

    entries = ask(f"{api}/audit?actor=ann", viewer)["items"]
    assert [entry["action"] for entry in entries] == ["pause", "retry"]
    print("the audit:", ", ".join(f"{entry['actor']} {entry['action']}" for entry in entries))


def main(folder: Path) -> None:
    provider = folder / "provider-is-up"
    app = Scheduler(f"sqlite:///{folder / 'evenbeat.db'}")

    @app.task(schedule="0 3 * * *", name="billing")
    def charge() -> str:
        if not provider.exists():
            raise ConnectionError("the provider is down")
        return "charged"

    logging.getLogger("evenbeat").setLevel(logging.CRITICAL)  # the failure is part of the example
    app.start()
    app.runs.join(app.schedules.run_now("billing").id, timeout="60s")
    # Port 0 stands for any free one. The server says its address when it listens.
    command = [sys.executable, "-m", "evenbeat", "web", "--store", app.url, "--web-port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        announced = next(line for line in server.stderr or () if "its API at" in line)
        operate(app, re.findall(r"http://\S+/api/v1", announced)[0], provider)
    finally:
        server.terminate()
        server.communicate()
        app.stop()
        app.close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder))
