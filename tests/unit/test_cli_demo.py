"""What ``evenbeat demo`` says about its dashboard before anything runs."""

from __future__ import annotations

import queue
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenbeat import Scheduler
from evenbeat.cli.commands import demo
from evenbeat.cli.failures import Failed


@contextmanager
def lines_of_the_dashboard(port: int | None = 0, *, page_follows: bool = False) -> Iterator[list[str]]:
    """Take a port as the command does; yield what it writes."""
    lines: list[str] = []
    server = demo._bound_web(
        Scheduler("memory://"), port, lambda text, _style: lines.append(text), page_follows=page_follows
    )
    if server is not None:
        server.start()
    try:
        yield lines
    finally:
        if server is not None:
            server.stop()


def test_it_says_that_the_page_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.web.page.BUILT", tmp_path)
    with lines_of_the_dashboard() as lines:
        assert lines[0].startswith("Dashboard: http://127.0.0.1:")
        assert lines[1:] == ["The page is not built: run make ui"]
    with lines_of_the_dashboard(page_follows=True) as lines:
        assert lines[1:] == ["The page is being built; this takes about 20 seconds."]
    (tmp_path / "index.html").write_text("<!DOCTYPE html>")
    with lines_of_the_dashboard() as lines:
        assert len(lines) == 1


def test_it_says_when_the_page_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.web.page.BUILT", tmp_path)
    lines: queue.Queue[str] = queue.Queue()
    wait = demo.PageWait("http://127.0.0.1:1", lambda text, _style: lines.put(text), every=0.001)
    try:
        (tmp_path / "index.html").write_text("<!DOCTYPE html>")
        assert lines.get(timeout=30) == "The page is ready: http://127.0.0.1:1/"
    finally:
        wait.stop()
    # A page that is there needs no line, and one that never comes does not keep the demo from stopping.
    demo.PageWait("http://127.0.0.1:1", lambda text, _style: lines.put(text), every=0.001).stop()
    (tmp_path / "index.html").unlink()
    demo.PageWait("http://127.0.0.1:1", lambda text, _style: lines.put(text), every=60).stop()
    assert lines.empty()


def test_it_says_how_to_get_a_dashboard_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "evenbeat.web", None)
    with lines_of_the_dashboard() as lines:
        (line,) = lines
    assert "is not installed (pip install 'evenbeat[web]')" in line


def test_it_takes_the_next_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        monkeypatch.setattr(demo, "_PORT", port)
        with lines_of_the_dashboard(port=None) as lines:
            taken = int(lines[0].rpartition(":")[2].strip("/"))
        assert port < taken < port + demo._MOST_PORTS
        monkeypatch.setattr(demo, "_MOST_PORTS", 1)
        with pytest.raises(Failed, match=f"can't listen on 127.0.0.1:{port}"), lines_of_the_dashboard(None):
            pass
