"""Health over HTTP: probes get one judgement, quickly, and can do nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from evenbeat import InvalidValue, Scheduler, StoreUnavailable
from evenbeat.cli.root import root
from evenbeat.observe import health_server, status_files
from evenbeat.observe.health import LATE, SILENT, Readiness, judge, readiness
from evenbeat.observe.health_server import LARGEST_REQUEST, HealthServer
from evenbeat.observe.status_files import LoopStatus, NodeStatus, ProcessStatus, StatusWriter
from evenbeat.stores.memory import MemoryStore
from evenbeat.supervision.node_process import Begin
from evenbeat.supervision.supervisor import Supervisor

NOW = 10_000.0
PATIENCE = 60.0
WORKING = NodeStatus("n", 7, (LoopStatus("ticker", NOW + 20), LoopStatus("worker", NOW)), last_message=NOW)


def status(*nodes: NodeStatus, loops: tuple[LoopStatus, ...] = (), now: float = NOW) -> ProcessStatus:
    return ProcessStatus("supervisor", "s", 6, "", now, SILENT, loops, nodes)


# -- the judgement -----------------------------------------------------------------------------------------


def test_a_process_with_a_node_whose_loops_step_is_ready() -> None:
    assert readiness(status(WORKING), NOW) == Readiness(True, ())


def test_a_process_is_not_ready_when_a_loop_is_late_as_health_says_it() -> None:
    late = WORKING._replace(loops=(LoopStatus("ticker", NOW - LATE - 1),))
    found = readiness(status(late), NOW)

    assert found.problems == judge(status(late), NOW).problems
    assert found == (False, ("process 7: the ticker has not stepped for 2 min",))


def test_a_process_that_does_not_reach_the_store_is_healthy_and_not_ready() -> None:
    failing = WORKING._replace(loops=(LoopStatus("ticker", NOW, NOW - 240, "no route to db.internal"),))
    found = readiness(status(failing), NOW)

    assert judge(status(failing), NOW).problems == ()
    assert found == (False, ("process 7: the ticker has failed for 4 min: the log says why",))


def test_a_supervisor_that_waits_for_the_store_is_not_ready() -> None:
    waiting = (LoopStatus("supervisor", NOW, NOW - 3, "no route to db.internal"),)
    found = readiness(status(loops=waiting), NOW)

    assert found.problems == ("the supervisor has failed for 3 s: the log says why", "no node is up")
    assert judge(status(loops=waiting), NOW) == (
        (),
        ("the supervisor has failed for 3 s and keeps trying: no route to db.internal",),
    )


def test_a_node_that_starts_counts_only_if_no_other_node_works() -> None:
    starting = NodeStatus("m", 8, up=False)
    busy = NodeStatus("b", 9, last_message=NOW - SILENT - 5, executing=True)

    assert readiness(status(WORKING, starting, busy), NOW).ok
    assert readiness(status(starting), NOW) == (False, ("process 8: it is starting",))
    assert readiness(status(busy), NOW) == (
        False,
        ("process 9: a job has kept the interpreter to itself for 1 min",),
    )


def test_the_writer_checks_for_pauses_also_where_it_can_write_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Probes come every half minute, which must not look like a pause: the writer's thread looks as well."""
    monkeypatch.setattr(status_files, "folders", tuple)
    monkeypatch.setattr(status_files, "EVERY", 0.01)
    looked = threading.Event()
    calls: list[int] = []

    def collect() -> tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]:
        calls.append(1)
        if len(calls) > 2:
            looked.set()
        return (), ()

    writer = StatusWriter("node", "n", SILENT, collect)
    writer.start()
    try:
        assert looked.wait(PATIENCE)
    finally:
        writer.stop()


# -- the server --------------------------------------------------------------------------------------------


class Probed:
    """A server with a status that the test sets."""

    def __init__(self) -> None:
        self.nodes: tuple[NodeStatus, ...] = ()
        self.server = HealthServer("127.0.0.1", 0, self.status)

    def status(self) -> ProcessStatus:
        return status(*self.nodes, now=time.monotonic())

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    def ask(self, method: str, path: str, body: bytes | None = None) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read_text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


def body(answer: HTTPResponse) -> dict[str, object]:
    found: dict[str, object] = json.loads(answer.read_text)  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def serving() -> Iterator[Probed]:
    made = Probed()
    made.server.start()
    yield made
    made.server.stop()


@pytest.fixture
def probed(serving: Probed) -> Probed:
    serving.nodes = ()
    return serving


def test_a_living_process_is_alive_whether_it_is_ready_or_not(probed: Probed) -> None:
    answer = probed.ask("GET", "/healthz")

    assert (answer.status, body(answer)) == (200, {"ok": True})
    assert answer.getheader("Content-Type") == "application/json"
    assert answer.getheader("Cache-Control") == "no-store"


def test_readiness_is_a_status_code_with_the_reasons(probed: Probed) -> None:
    answer = probed.ask("GET", "/readyz")
    assert (answer.status, body(answer)) == (503, {"ok": False, "problems": ["no node is up"]})

    probed.nodes = (NodeStatus("n", 7, (LoopStatus("ticker", time.monotonic() + 60),)),)
    answer = probed.ask("GET", "/readyz?from=kubelet")
    assert (answer.status, body(answer)) == (200, {"ok": True, "problems": []})


def test_head_is_get_without_the_body(probed: Probed) -> None:
    answer = probed.ask("HEAD", "/readyz")

    assert answer.status == 503
    assert int(answer.getheader("Content-Length") or 0) > 0
    assert answer.read_text == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/", "/healthz/", "/healthz/x", "/HEALTHZ", "//healthz", "/metrics"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_other_path_is_not_found(probed: Probed, method: str, path: str) -> None:
    assert probed.ask(method, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_another_method_is_refused_with_the_ones_that_are_allowed(
    probed: Probed, method: str, path: str
) -> None:
    answer = probed.ask(method, path, b"x" * 1000 if method == "POST" else None)

    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/healthz", "/nothing"])
def test_no_answer_names_the_program_or_its_version(probed: Probed, path: str) -> None:
    answer = probed.ask("GET", path)

    assert answer.getheader("Server") is None
    assert "python" not in str(answer.headers).lower()


def test_a_request_that_can_not_be_read_is_refused_without_a_page(probed: Probed) -> None:
    with probed.connect() as connection:
        connection.sendall(b"<script> x y z\r\n\r\n")
        text = _all(connection)

    assert text.startswith(b"HTTP/1.0 400 ")
    assert b"application/json" in text
    assert b"<html" not in text


def test_a_request_that_is_too_large_is_refused(probed: Probed) -> None:
    with probed.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * LARGEST_REQUEST * 2)
        assert _all(connection).startswith(b"HTTP/1.0 431 ")


def test_a_request_that_does_not_arrive_in_time_is_dropped(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "LONGEST_REQUEST", 0.05)
    with probed.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        assert _all(connection) == b""


def test_a_request_that_arrives_byte_by_byte_is_dropped_at_the_same_time(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time; the request as a whole does not."""
    monkeypatch.setattr(health_server, "LONGEST_REQUEST", 0.1)
    with probed.connect() as connection:
        sent = 0
        with suppress(ConnectionError):
            while sent <= LARGEST_REQUEST:
                connection.sendall(b"G")
                sent += 1
                time.sleep(0.001)
        assert sent <= LARGEST_REQUEST
        assert _all(connection) == b""


def test_more_connections_than_are_served_at_once_are_closed(probed: Probed) -> None:
    held = [probed.connect() for _ in range(health_server._MOST_AT_ONCE)]
    try:
        with probed.connect() as one_more:
            assert _all(one_more) == b""
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            assert probed.ask("GET", "/healthz").status == 200
            break
        except OSError:  # the threads of the closed connections have not ended yet
            time.sleep(0.01)
    else:
        pytest.fail("the server does not answer any more")


def test_a_port_that_is_taken_is_refused_by_name(probed: Probed) -> None:
    with pytest.raises(InvalidValue, match=r"health_port \d+ can't be opened on 127\.0\.0\.1") as caught:
        HealthServer("127.0.0.1", probed.port, probed.status).start()
    assert (caught.value.field, caught.value.value) == ("health_port", probed.port)


def test_a_host_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"can't be opened on not\.a\.host\.invalid"):
        HealthServer("not.a.host.invalid", 0, Probed().status).start()


def test_a_stopped_server_has_closed_its_port() -> None:
    made = Probed()
    made.server.start()
    port = made.port
    made.server.stop()
    made.server.stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def test_an_ipv6_address_is_written_as_urls_have_it() -> None:
    try:
        made = HealthServer("::1", 0, Probed().status)
        made.start()
    except InvalidValue:
        return  # this machine has no IPv6
    try:
        assert made.url.startswith("http://[::1]:")
    finally:
        made.stop()


def _all(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(4096):
            found += part
    except ConnectionResetError:
        pass
    return found


# -- evenbeat run ------------------------------------------------------------------------------------------


class Away(MemoryStore):
    def open(self) -> None:
        raise StoreUnavailable("no route to db.internal")


def test_a_supervisor_is_alive_and_not_ready_while_it_waits_for_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Scheduler(Away())
    waiting = Supervisor(app, Begin(app="app.py"), wait_for_store=60_000, health_address=("127.0.0.1", 0))
    found: list[object] = []

    def pause(_: float) -> None:
        assert waiting._health_server is not None
        try:
            with urlopen(f"{waiting._health_server.url}/healthz", timeout=PATIENCE) as answer:  # noqa: S310  # our own
                found.append(answer.status)
            found.append(readiness(waiting._status_writer.status(), time.monotonic()).problems)
        finally:
            waiting._signals += 1

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(waiting, "_pause", pause)

    assert waiting.run() == 0
    assert found == [200, ("the supervisor has failed for 0 s: the log says why", "no node is up")]


def test_run_serves_health_on_a_free_port_that_it_logs(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from evenbeat import Scheduler\napp = Scheduler('sqlite:///jobs.db')\n@app.task\ndef work(): ...\n"
    )
    command = [
        sys.executable,
        "-m",
        "evenbeat",
        "run",
        "app.py",
        "--health-port",
        "0",
        "--log-format",
        "json",
    ]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr)
            url = next(line["url"] for line in lines if line["msg"] == "health is served")
            assert url.startswith("http://127.0.0.1:")
            next(line for line in lines if line["msg"] == "a process is up")
            _await_ready(f"{url}/readyz")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
    assert process.returncode == 0


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  # our own
                assert json.load(answer) == {"ok": True, "problems": []}
                return
        except OSError:  # also HTTPError: not ready yet
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_can_not_be_one_is_refused(port: str) -> None:
    done = CliRunner().invoke(root, ["run", "app.py", "--health-port", port], prog_name="evenbeat")

    assert done.exit_code == 2
    assert "health" in done.output
