"""The commands in docs/howto/operating-over-http.md: the API takes each of them."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from evenbeat import every
from tests.web.site import Site

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "operating-over-http.md"


def test_the_commands_of_the_guide_fit_the_api(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    text = GUIDE.read_text("utf-8").replace("\\\n", " ")
    commands = [shlex.split(line) for line in re.findall(r"^\$ (curl .*)$", text, re.MULTILINE)]
    assert len(commands) > 12
    for words in commands:
        flags = list(pairwise(words))
        (path,) = (word.removeprefix("$API/") for word in words if word.startswith("$API/"))
        if path == "events":  # it has no end
            continue
        given = dict(flags)
        headers = dict(value.split(": ") for flag, value in flags if flag == "-H" and value != "$AUTH")
        answer = site.request(
            given.get("-X", "GET"), path, headers=headers, content=given.get("-d", "").encode()
        )
        problem = answer.json().get("type", "")
        if path == "runs?state=broken":  # the guide shows its refusal
            assert answer.text in text
        else:
            assert answer.status_code not in (400, 405, 415, 422), (words, answer.text)
        assert not problem.endswith("no-such-path"), words


def test_the_api_is_mounted_beside_django_as_the_guide_does_it() -> None:
    (code,) = re.findall(
        r"```python\n(.*?with_jobs.*?)```", GUIDE.read_text("utf-8").partition("asgi.py")[2], re.DOTALL
    )
    made: dict[str, Any] = {}
    exec(code, made)  # noqa: S102 - the guide's own code
    with TestClient(made["with_jobs"](Starlette()), base_url="http://localhost") as client:
        assert client.get("/jobs/healthz").json() == {"ok": True}
        refused = client.get("/jobs/api/v1/schedules")
        assert (refused.status_code, refused.json()["title"]) == (401, "Unauthorized")
        assert client.get("/healthz").text == "Not Found"  # the answer of the other app
    made["jobs"].close()
