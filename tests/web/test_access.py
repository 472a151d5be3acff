"""Who may reach the API: tokens, roles, tenants, hosts, origins and addresses.

Tests that are named for an incident remember one of another product.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from evenbeat import Scheduler, every
from evenbeat.app.tokens import Tokens
from evenbeat.core.tokens import ROLES, Token, allows
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.web import access
from evenbeat.web.access import BELIEVED, FAILURE_WINDOW, MOST_FAILURES, Gate
from evenbeat.web.endpoint import TABLE, Endpoint
from evenbeat.web.problems import Refused
from evenbeat.web.serving import CannotListen, check_bind, listen
from evenbeat.web.settings import WebSettings, read_settings
from tests.web.site import API, Site, assert_problem

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "LOG")


def url(endpoint: Endpoint) -> str:
    return endpoint.url.replace("{name}", "report").replace("{id}", "some-run").replace("{flow}", "nightly")


ROUTES = [pytest.param(each, id=f"{each.method} {each.path}") for each in TABLE]
PATHS = sorted({url(each) for each in TABLE})
# The login and the page of the dashboard; test_sessions.py and test_page.py test what they give away.
OPEN = {("POST", f"{API}/session"), ("GET", "/"), ("HEAD", "/")}


@pytest.mark.parametrize("path", [*PATHS, f"{API}/nothing", "/", "/elsewhere", "/assets/nothing.js"])
def test_every_method_of_every_path_needs_a_token_ray_cve_2023_48022(site: Site, path: str) -> None:
    for method in METHODS:
        if (method, path) in OPEN:
            continue
        response = site.request(method, path, role=None)
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"].startswith("Bearer")
        if method != "HEAD":
            assert_problem(response, 401, "unauthorized", "Authorization")


@pytest.mark.parametrize("path", [*PATHS, "/", "/assets/nothing.js"])
def test_every_method_of_every_path_refuses_foreign_hosts_and_origins_ray_cve_2026_27482(
    site: Site, path: str
) -> None:
    for method in METHODS:
        response = site.request(method, path, headers={"Host": "evil.example"})
        assert response.status_code == 421, (method, path)
        response = site.request(method, path, headers={"Origin": "http://evil.example"})
        assert response.status_code == 403, (method, path)


def test_foreign_hosts_and_origins_are_compared_as_whole_texts(site: Site) -> None:
    for host in ("localhost.evil.example", "evil.example:80", "127.0.0.1.nip.io", ""):
        assert site.request("GET", "me", headers={"Host": host}).status_code == 421, host
    for origin in (
        "null",
        "http://localhost.evil.example",
        "http://localhost:80",
        "file://localhost",
        "http://localhost/",
    ):
        assert site.request("GET", "me", headers={"Origin": origin}).status_code == 403, origin


def test_schedules_named_like_open_paths_are_closed_prefect_cve_2026_3514(site: Site) -> None:
    for name in ("healthz", "readyz", "openapi.json"):
        site.app.schedules.add(name, every("1h"), "work")
        for path in (f"schedules/{name}", f"schedules/{name}/stats", f"runs/{name}"):
            assert site.request("GET", path, role=None).status_code == 401
    assert site.request("GET", "/healthz", role=None).status_code == 200
    for path in ("/healthz/", "/healthz/x", "/x/healthz", "/api/v1/healthz", "/HEALTHZ"):
        assert site.request("GET", path, role=None).status_code == 401, path


@pytest.mark.parametrize(
    "path",
    [
        "//healthz",
        "//",
        "/\n",
        "/healthz\n",
        "/readyz\n",
        "/x\ny",
        "/api/v1/runs/x\ny",
        "*",
        "http://localhost/healthz",
    ],
)
def test_targets_that_are_not_plain_paths_need_a_token(site: Site, path: str) -> None:
    assert asyncio.run(status_of(site, path, b"localhost")) == 401
    assert asyncio.run(status_of(site, path, b"evil.example")) == 421


async def status_of(site: Site, path: str, host: bytes) -> int:
    """Return the answer to a request that clients refuse to send."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host)],
        "client": ("192.0.2.1", 1),
    }
    await site.web(scope, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize("endpoint", ROUTES)
def test_each_role_may_do_what_the_route_says_oban_web_2_12_5(site: Site, endpoint: Endpoint) -> None:
    for role in ROLES:
        if endpoint.path == "/events" and allows(role, endpoint.role):
            continue  # a stream, which does not end by itself
        response = site.request(
            endpoint.method, url(endpoint), role=role, json={} if endpoint.method != "GET" else None
        )
        is_refused = response.status_code == 403 and "role-too-low" in response.text
        assert is_refused is not allows(role, endpoint.role), (role, response.text)


@pytest.mark.parametrize("endpoint", ROUTES)
def test_a_token_of_one_tenant_reaches_no_other(site: Site, endpoint: Endpoint) -> None:
    if endpoint.scope == "own":
        return
    asked: list[dict[str, str]] = [{}]
    if endpoint.scope == "tenant":
        asked = [{"tenant": "globex"}, {"tenant": "default"}]
        if "all_tenants" in endpoint.query.__struct_fields__:
            asked.append({"all_tenants": "true"})
    for params in asked:
        response = site.request(endpoint.method, url(endpoint), tenant="acme", params=params)
        assert_problem(response, 403, "foreign-tenant", "tenant")


def test_a_token_may_name_its_own_tenant_and_one_without_a_tenant_any(site: Site) -> None:
    site.app.schedules.add("report", every("1h"), "work", tenant="acme")
    for own in ("acme", None):
        page = site.get("schedules", tenant=own, params={"tenant": "acme"})
        assert [found["name"] for found in page["items"]] == ["report"]


def test_an_endpoint_must_say_who_may_call_it() -> None:
    from evenbeat.web.endpoint import endpoint

    declare: Any = endpoint
    with pytest.raises(TypeError, match="role"):
        declare("GET", "/open", scope="tenant", answer=None)
    with pytest.raises(TypeError, match="scope"):
        declare("GET", "/open", role="viewer", answer=None)


def test_every_number_that_a_client_sends_is_bounded_sidekiq_cve_2022_23837() -> None:
    from evenbeat.web.openapi import document

    def numbers(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(schema, dict):
            if schema.get("type") in ("integer", "number"):
                yield where, schema
            for key, value in schema.items():
                yield from numbers(value, f"{where}.{key}")
        elif isinstance(schema, list):
            for value in schema:
                yield from numbers(value, where)

    made = document()
    sent: list[tuple[str, Any]] = []
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            sent += [(f"{method} {path}", each["schema"]) for each in operation["parameters"]]
            if "requestBody" in operation:
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                sent.append((f"{method} {path}", made["components"]["schemas"][reference.rpartition("/")[2]]))
    found = [each for where, schema in sent for each in numbers(schema, where)]
    assert len(found) > 20
    for where, schema in found:
        assert {"minimum", "maximum"} <= schema.keys(), where


def test_sort_and_filter_keys_are_enumerations_shellhub_cve_2026_44425(site: Site) -> None:
    for params in ({"sort": "payload"}, {"sort": "name; drop table"}, {"state": "any"}, {"limit": "501"}):
        (name,) = params
        assert_problem(site.request("GET", "schedules", params=params), 400, "invalid-value", name)
    assert_problem(
        site.request("GET", "schedules", params={"order_by": "x"}), 400, "invalid-value", "order_by"
    )


def test_a_forwarded_address_does_not_evade_the_limit_of_failures_cve_2025_59152(site: Site) -> None:
    for at in range(MOST_FAILURES):
        forwarded = {"X-Forwarded-For": f"198.51.100.{at}"}
        assert site.request("GET", "me", secret=f"evb_{at}_x", headers=forwarded).status_code == 401
    response = site.request("GET", "me", secret="evb_1_x", headers={"X-Forwarded-For": "203.0.113.7"})
    assert_problem(response, 429, "too-many-failures")
    assert int(response.headers["retry-after"]) > 0
    # Also the right token has to wait; another address has not.
    assert site.request("GET", "me").status_code == 429
    assert site.request("GET", "me", peer="192.0.2.2").status_code == 200


def test_the_address_comes_from_named_proxies_alone(app: Scheduler) -> None:
    gate = Gate(app.tokens, read_settings(proxies=["10.0.0.0/8"]))
    assert gate.address("192.0.2.1", "198.51.100.1") == "192.0.2.1"
    assert gate.address("10.1.2.3", "198.51.100.1") == "198.51.100.1"
    assert gate.address("10.1.2.3", "203.0.113.1, 198.51.100.1, 10.9.9.9") == "198.51.100.1"
    assert gate.address("10.1.2.3", None) == "10.1.2.3"
    # A household of IPv6 counts as one.
    assert gate.address("2001:db8:1:2::1", None) == gate.address("2001:db8:1:2:ffff::9", None)
    assert gate.address("2001:db8:1:3::1", None) != gate.address("2001:db8:1:2::1", None)


def test_a_peer_without_an_address_counts_by_its_text(app: Scheduler) -> None:
    """A server on a Unix socket has such peers; a proxy may report anything."""
    gate = Gate(app.tokens, read_settings(proxies=["10.0.0.0/8"]))
    assert gate.address("unix:", "198.51.100.1") == "unix:"
    assert gate.address("10.1.2.3", "unknown, " + "x" * 100) == "x" * 64
    with pytest.raises(Refused):
        gate.check_origin(None, None)


def test_ipv4_addresses_in_the_form_of_ipv6_are_distinguished(app: Scheduler) -> None:
    gate = Gate(app.tokens, read_settings(proxies=["10.0.0.0/8"]))
    assert gate.address("::ffff:192.0.2.1", None) == "192.0.2.1"
    assert gate.address("::ffff:10.1.2.3", "198.51.100.1") == "198.51.100.1"


def test_the_port_of_a_forwarded_address_does_not_evade_the_limit(app: Scheduler) -> None:
    gate = Gate(app.tokens, read_settings(proxies=["10.0.0.0/8"]))
    for port in (1, 65_535):
        assert gate.address("10.0.0.1", f"198.51.100.1:{port}") == "198.51.100.1"
        assert gate.address("10.0.0.1", f"[2001:db8::1]:{port}") == "2001:db8::/64"
    assert gate.address("10.0.0.1", "198.51.100.1:1, 10.9.9.9:2") == "198.51.100.1"
    assert gate.address("10.0.0.1", "[2001:db8::1]") == gate.address("2001:db8::1", None)


def test_a_header_that_the_proxy_adds_counts_not_the_one_of_the_client(app: Scheduler) -> None:
    site = Site(app, proxies=["192.0.2.1"])
    for at in range(MOST_FAILURES + 1):
        response = site.request(
            "GET",
            "me",
            secret=f"evb_{at}_x",
            headers=[("X-Forwarded-For", f"203.0.113.{at}"), ("X-Forwarded-For", "198.51.100.1")],
        )
    assert_problem(response, 429, "too-many-failures")
    site.close()


def test_a_revoked_token_is_refused_within_five_seconds(app: Scheduler) -> None:
    assert BELIEVED < 5
    made = app.tokens.create("ann", "operator", tenant="acme")
    clock = [0.0]
    gate = Gate(app.tokens, WebSettings(), lambda: clock[0])
    header = f"Bearer {made.secret}"
    assert gate.recognise(header, "a") is None, "only the store knows"
    assert gate.authenticate(header, "a").name == "ann"
    app.tokens.revoke(made.token.id)
    clock[0] = BELIEVED - 0.01
    known = gate.recognise(header, "a")
    assert known is not None
    assert (known.name, known.role, known.tenant) == ("ann", "operator", "acme")
    clock[0] = BELIEVED + 0.01
    assert gate.recognise(header, "a") is None
    with pytest.raises(Refused, match="wrong, expired or revoked"):
        gate.authenticate(header, "a")


def refused_token(gate: Gate, address: str) -> None:
    assert gate.recognise("Bearer evb_1_x", address) is None
    with pytest.raises(Refused, match="wrong, expired or revoked"):
        gate.authenticate("Bearer evb_1_x", address)


def test_wrong_tokens_of_an_address_are_counted_for_a_minute(app: Scheduler) -> None:
    clock = [1000.0]
    gate = Gate(app.tokens, WebSettings(), lambda: clock[0])
    for _ in range(MOST_FAILURES):
        refused_token(gate, "a")
    for passed, wait in ((0.0, "61"), (59.5, "1")):
        clock[0] = 1000.0 + passed
        with pytest.raises(Refused, match=f"{MOST_FAILURES} wrong tokens") as refused:
            gate.recognise("Bearer evb_1_x", "a")
        assert refused.value.problem.status == 429
        assert refused.value.headers == {"Retry-After": wait}
    refused_token(gate, "b")
    # The next minute begins with its first failure.
    clock[0] = 1060.0
    for _ in range(MOST_FAILURES):
        refused_token(gate, "a")
    with pytest.raises(Refused, match=f"{MOST_FAILURES} wrong tokens"):
        gate.recognise("Bearer evb_1_x", "a")


def test_wrong_tokens_that_come_at_once_are_counted_before_they_are_checked(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(app.tokens, WebSettings(), lambda: 0.0)
    secret = app.tokens.create("ann").secret
    checked: list[str] = []

    def verify(tokens: Tokens, sent: str) -> Token | None:
        """Check a token; before the answer, the next request comes."""
        checked.append(sent)
        if len(checked) <= MOST_FAILURES:
            with pytest.raises(Refused):
                gate.check_login("evb_1_x", "a")
        return original(tokens, sent)

    original = Tokens.verify
    monkeypatch.setattr(Tokens, "verify", verify)
    gate.check_login(secret, "a")
    assert len(checked) == MOST_FAILURES
    assert gate._failures == {"a": (MOST_FAILURES - 1, 0.0)}, "the right one was given back"
    assert gate.check_login(secret, "a").name == "ann"
    refused_token(gate, "a")
    with pytest.raises(Refused, match=f"{MOST_FAILURES} wrong tokens"):
        gate.check_login(secret, "a")


def test_a_right_token_and_an_outage_leave_no_trace(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    gate = Gate(app.tokens, WebSettings(), lambda: clock[0])
    secret = app.tokens.create("ann").secret
    for _ in range(2 * MOST_FAILURES):
        gate.check_login(secret, "a")
        gate.authenticate(f"Bearer {secret}", "a")
    assert gate._failures == {}

    def verify(tokens: Tokens, sent: str) -> None:
        if sent == secret:
            clock[0] += FAILURE_WINDOW
            refused_token(gate, "a")
            raise StoreUnavailable("down")

    monkeypatch.setattr(Tokens, "verify", verify)
    with pytest.raises(StoreUnavailable):
        gate.check_login(secret, "a")
    assert gate._failures == {"a": (1, FAILURE_WINDOW)}, "the one of the next minute stays"


def test_a_token_that_no_text_can_be_is_wrong(app: Scheduler) -> None:
    gate = Gate(app.tokens, WebSettings())
    assert gate.recognise("Bearer \ud800", "a") is None
    with pytest.raises(Refused, match="wrong, expired or revoked"):
        gate.authenticate("Bearer evb_1_\ud800", "a")


def test_a_gate_remembers_a_bounded_number_of_addresses_and_tokens(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_REMEMBERED", 3)
    gate = Gate(app.tokens, WebSettings(), lambda: 0.0)
    for name in "abcc":
        refused_token(gate, name)
    assert {name: count for name, (count, _) in gate._failures.items()} == {"a": 1, "b": 1, "c": 2}
    refused_token(gate, "d")
    assert list(gate._failures) == ["d"]
    believed = []
    for name in "abcd":
        gate.authenticate(f"Bearer {app.tokens.create(name).secret}", "e")
        believed.append([token.name for token, _ in gate._believed.values()])
    assert believed == [["a"], ["a", "b"], ["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic evb_1_x", "evb_1_x"])
def test_a_request_without_a_token_is_not_a_wrong_token(app: Scheduler, header: str | None) -> None:
    gate = Gate(app.tokens, WebSettings(), lambda: 0.0)
    for ask in (gate.recognise, gate.authenticate):
        with pytest.raises(Refused) as refused:
            ask(header, "a")
        assert refused.value.problem.status == 401
    assert gate._failures == {}


def test_a_long_request_ends_with_its_token(app: Scheduler) -> None:
    made = app.tokens.create("ann")
    gate = Gate(app.tokens, WebSettings())
    ann = gate.authenticate(f"bearer  {made.secret} ", "a")
    assert ann.token == made.token.id
    assert gate.is_valid(ann)
    app.tokens.revoke(made.token.id)
    assert not gate.is_valid(ann)
    assert gate.is_valid(access.LOCAL)


def test_without_tokens_only_a_loopback_address_may_be_bound() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        check_bind(host, WebSettings(needs_token=False))
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com", ""):  # noqa: S104  # refused here
        with pytest.raises(InvalidValue, match="reachable from other machines"):
            check_bind(host, WebSettings(needs_token=False))
        check_bind(host, WebSettings())


def test_without_tokens_a_local_peer_with_a_foreign_host_is_refused(app: Scheduler) -> None:
    site = Site(app, needs_token=False)
    assert site.get("me", role=None, peer="127.0.0.1")["role"] == "admin"
    rebound = site.request("GET", "me", role=None, peer="127.0.0.1", headers={"Host": "evil.example"})
    assert_problem(rebound, 421, "foreign-host", "Host")
    site.close()


def test_accepted_hosts_are_compared_as_whole_texts(app: Scheduler) -> None:
    site = Site(app, hosts=["Jobs.example.com", "jobs.example.com:8443"])
    for host in (
        "jobs.example.com",
        "JOBS.example.com",
        "jobs.example.com:8443",
        "localhost:123",
        "[::1]:80",
    ):
        assert site.request("GET", "me", headers={"Host": host}).status_code == 200, host
    for host in ("jobs.example.com:80", "x.jobs.example.com", "jobs.example.com.evil", "localhost:x", "[::1"):
        assert site.request("GET", "me", headers={"Host": host}).status_code == 421, host
    same = {"Host": "jobs.example.com", "Origin": "https://jobs.example.com"}
    assert site.request("GET", "me", headers=same).status_code == 200
    site.close()
    for wrong in ("*.example.com", "http://jobs.example.com", ""):
        with pytest.raises(InvalidValue, match="is not the name of a host"):
            read_settings(hosts=[wrong])


def test_no_token_is_taken_from_a_url(site: Site) -> None:
    secret = site.token()
    for name in ("token", "access_token", "authorization"):
        response = site.request("GET", "me", role=None, params={name: secret})
        assert response.status_code == 401


def test_no_secret_is_logged_or_stored(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = site.token("operator")
    site.get("me", role="operator")
    site.request("GET", "me", secret=secret + "x")
    part = secret.split("_", 2)[2]
    assert part not in caplog.text
    assert not [record for record in site.app.store.find_records("token") if part in record.body]


def test_a_token_is_bound_to_its_role_tenant_and_end(app: Scheduler) -> None:
    made = app.tokens.create("ci", "operator", tenant="acme", expires="1h")
    assert re.fullmatch(r"evb_[0-9a-f]{12}_[\w-]{43}", made.secret)
    verified = app.tokens.verify(made.secret)
    assert verified is not None
    assert (verified.name, verified.role, verified.tenant) == ("ci", "operator", "acme")
    assert verified.expires_at == made.token.expires_at
    for wrong in (
        "",
        "evb",
        "evb__",
        made.secret[:-1],
        made.secret + "x",
        made.secret.replace("evb", "x"),
        "evb_a_\ud800",
    ):
        assert app.tokens.verify(wrong) is None


def test_an_address_in_use_is_named_once() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(CannotListen) as refused:
            listen("127.0.0.1", port)
    assert str(refused.value) == f"can't listen on 127.0.0.1:{port}: Address already in use"


@pytest.mark.parametrize("name", ["a\nb", "ann\x1b[31m", "\x00", "a\u202eb", "a\x85b", "a\tb", "a\u2028b"])
def test_the_name_of_a_token_is_one_line_of_visible_characters(site: Site, name: str) -> None:
    with pytest.raises(InvalidValue, match="visible characters") as refused:
        site.app.tokens.create(name)
    assert (refused.value.field, refused.value.value) == ("name", name)
    response = site.request("POST", "tokens", json={"name": name})
    assert response.status_code in (400, 422)
    assert response.json()["field"] == "name"
    assert site.app.tokens.create("Ann Müller (ops) 🚀").token.name
