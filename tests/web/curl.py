"""``curl`` for tests: the program where there is one, else the same few options in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

_STAND_IN = """
import sys, urllib.request, urllib.error
words, method, headers, data, url, status = sys.argv[1:], None, {}, None, "", False
while words:
    word = words.pop(0)
    if word == "-X": method = words.pop(0)
    elif word == "-H": name, _, value = words.pop(0).partition(": "); headers[name] = value
    elif word == "-d": data = words.pop(0).encode()
    elif word == "-w": words.pop(0); status = True
    elif not word.startswith("-"): url = word
request = urllib.request.Request(url, data, headers, method=method)
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
while part := answer.read1(65536):
    sys.stdout.buffer.write(part); sys.stdout.buffer.flush()
if status:
    sys.stdout.write(f"\\n{answer.status}")
"""


def _program() -> list[str]:
    found = shutil.which("curl")
    return [sys.executable, "-c", _STAND_IN] if found is None else [found]


class Answer(NamedTuple):
    """What curl printed: the body, and the status."""

    status: int
    body: Any
    text: str


class Curl:
    """Requests of one person, by their token."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._words = [*_program(), "-s", "-H", f"Authorization: Bearer {secret}"]

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        words = [*self._words, "-w", "\n%{http_code}", "-X", method]
        if body is not None:
            words += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        printed = subprocess.run(
            [*words, f"{self._url}/api/v1/{path}"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        text, _, status = printed.rpartition("\n")
        return Answer(int(status), json.loads(text) if text else None, text)

    def stream(self, path: str, into: Path) -> subprocess.Popen[bytes]:
        """Write a stream to a file, until the process is ended."""
        with into.open("wb") as file:
            return subprocess.Popen([*self._words, "-N", f"{self._url}/api/v1/{path}"], stdout=file)
