"""Sessions of browsers: who gets one, what it may do, and when it ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from http.cookies import SimpleCookie
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from evenbeat import Scheduler, every
from evenbeat.core.tokens import NewToken
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.web import WebApp, sessions, web_app
from evenbeat.web.access import BELIEVED, MOST_FAILURES, Gate, Principal
from evenbeat.web.endpoint import TABLE
from evenbeat.web.sessions import COOKIE, LASTS, MOST_OF_TOKEN, Sessions, session_cookie
from tests.web.site import API, assert_problem
from tests.web.test_access import url

SESSION = f"{API}/session"


def work() -> str:
    return "done"


class Seconds:
    """The clock of web processes."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Browser:
    """Keeps cookies, and sends the CSRF token of its page."""

    def __init__(
        self, web: Any, peer: str = "192.0.2.1", base: str = "http://localhost", prefix: str = ""
    ) -> None:
        self.client = TestClient(web, base_url=base, client=(peer, 50_000))
        self.prefix = prefix
        self.csrf: str | None = None

    def log_in(self, secret: str, **more: Any) -> httpx2.Response:
        answer = self.request("POST", SESSION, json={"token": secret}, **more)
        if answer.status_code == 201:
            self.csrf = answer.json()["csrf"]
        return answer

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {} if self.csrf is None else {"X-CSRF-Token": self.csrf}
        headers |= more.pop("headers", {})
        answer: httpx2.Response = self.client.request(method, self.prefix + path, headers=headers, **more)
        return answer

    def me(self, **more: Any) -> httpx2.Response:
        return self.request("GET", f"{API}/me", **more)

    @property
    def cookie(self) -> str:
        value: str = self.client.cookies[COOKIE]
        return value

    def with_cookie(self, value: str) -> Browser:
        self.client.cookies.clear()
        self.client.cookies.set(COOKIE, value, domain="localhost.local", path="/")
        return self


class Scene:
    """A store with a token, and web processes on it."""

    def __init__(self) -> None:
        self.store_clock = VirtualClock()
        self.clock = Seconds()
        self.store = MemoryStore(self.store_clock)
        self.app = Scheduler(self.store)
        self.app.task(work)
        self.webs: list[WebApp] = []

    def web(self, **settings: Any) -> WebApp:
        made = web_app(self.app, **settings)
        made.state.gate = Gate(self.app.tokens, made.state.settings, self.clock)
        made.state.sessions = Sessions(self.app, made.state.gate, self.clock)
        self.webs.append(made)
        return made

    def token(self, name: str = "ann", **options: Any) -> NewToken:
        return self.app.tokens.create(name, **{"role": "admin", **options})

    def pass_time(self, seconds: float) -> None:
        """Let the web processes forget what they believe; the store's clock goes on, too."""
        self.clock.now += seconds
        self.store_clock.advance(f"{int(seconds * 1000)}ms")

    def records(self) -> list[Any]:
        return self.store.find_records("session")


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    for web in made.webs:
        web.close()
    made.app.close()


def test_a_login_exchanges_a_token_for_a_session(scene: Scene) -> None:
    browser = Browser(scene.web())
    assert browser.me().status_code == 401
    made = scene.token("ann", role="operator", tenant="acme")
    answer = browser.log_in(f" {made.secret}\n")
    assert answer.status_code == 201
    body = answer.json()
    assert re.fullmatch(r"[0-9a-f]{64}", body.pop("csrf"))
    expected = {"name": "ann", "role": "operator", "tenant": "acme", "default_tenant": "acme"}
    assert body == expected | {"has_session": True}
    assert browser.me().json() == expected | {"has_session": True, "csrf": browser.csrf}
    assert answer.headers["cache-control"] == "no-store"


def test_a_session_may_do_what_its_token_may(scene: Scene) -> None:
    web = scene.web()
    viewer, other = Browser(web), Browser(web)
    viewer.log_in(scene.token(role="viewer").secret)
    other.log_in(scene.token(role="admin", tenant="acme").secret)
    assert_problem(viewer.request("POST", f"{API}/runs", json={"task": "work"}), 403, "role-too-low")
    assert_problem(other.request("GET", f"{API}/schedules?tenant=globex"), 403, "foreign-tenant", "tenant")
    assert_problem(other.request("GET", f"{API}/tokens"), 403, "foreign-tenant", "tenant")


def test_the_audit_names_the_token(scene: Scene) -> None:
    scene.app.schedules.add("report", every("1h"), "work")
    browser = Browser(scene.web())
    browser.log_in(scene.token("ann").secret)
    assert browser.request("POST", f"{API}/schedules/report/pause", json={}).status_code == 200
    entry = scene.app.audit.list(limit=1)[0]
    assert (entry.actor, entry.via, entry.action) == ("ann", "api", "pause")


def set_cookie(answer: httpx2.Response) -> Any:
    (header,) = answer.headers.get_list("set-cookie")
    return SimpleCookie(header)[COOKIE]


def test_the_cookie_is_for_this_site_and_not_for_scripts(scene: Scene) -> None:
    made = scene.token()
    cookie = set_cookie(Browser(scene.web()).log_in(made.secret))
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert (cookie["path"], cookie["domain"], cookie["secure"]) == ("/", "", "")
    assert int(cookie["max-age"]) == LASTS / 1000 == 12 * 3_600
    assert made.secret.split("_", 2)[2] not in cookie.value


@pytest.mark.parametrize(
    ("base", "peer", "forwarded", "is_secure"),
    [
        ("https://localhost", "192.0.2.1", None, True),
        ("http://localhost", "10.0.0.5", "https", True),
        ("http://localhost", "10.0.0.5", "HTTPS, http", True),
        ("http://localhost", "10.0.0.5", "http", False),
        ("http://localhost", "10.0.0.5", None, False),
        ("http://localhost", "192.0.2.1", "https", False),
    ],
)
def test_the_cookie_is_secure_over_https(
    scene: Scene, base: str, peer: str, forwarded: str | None, is_secure: bool
) -> None:
    """Only a named proxy may say what the browser speaks."""
    browser = Browser(scene.web(proxies=["10.0.0.0/8"]), peer, base)
    headers = {} if forwarded is None else {"X-Forwarded-Proto": forwarded}
    answer = browser.log_in(scene.token().secret, headers=headers)
    assert bool(set_cookie(answer)["secure"]) is is_secure
    logout = browser.request(
        "DELETE", SESSION, headers=headers | {"Cookie": f"{COOKIE}={set_cookie(answer).value}"}
    )
    assert bool(set_cookie(logout)["secure"]) is is_secure


def test_the_path_of_the_cookie_is_the_prefix_of_the_app(scene: Scene) -> None:
    web = scene.web()
    outer = Starlette(routes=[Mount("/jobs", app=web), Mount("/of/{team}/jobs", app=web)])
    browser = Browser(outer, prefix="/jobs")
    assert set_cookie(browser.log_in(scene.token().secret))["path"] == "/jobs/"
    assert browser.me().status_code == 200
    assert browser.client.get("/of/x/jobs/api/v1/me").status_code == 401, "another path, another cookie"
    gone = browser.request("DELETE", SESSION)
    assert (set_cookie(gone)["path"], set_cookie(gone)["max-age"]) == ("/jobs/", "0")
    assert COOKIE not in browser.client.cookies
    # A part of the prefix that the client chooses does not add attributes.
    odd = Browser(outer, prefix="/of/a;Domain=evil.example/jobs")
    header = odd.log_in(scene.token().secret).headers["set-cookie"]
    assert "Path=/of/a%3BDomain%3Devil.example/jobs/;" in header


def test_the_path_is_the_root_behind_a_proxy_that_strips_its_prefix(scene: Scene) -> None:
    """The server does not know the prefix, and browsers send the cookie only to paths below its path."""
    answer = Browser(scene.web()).log_in(scene.token().secret)
    assert set_cookie(answer)["path"] == "/"


def test_the_store_has_only_a_hash(scene: Scene) -> None:
    browser = Browser(scene.web())
    made = scene.token()
    browser.log_in(made.secret)
    browser.me()
    (record,) = scene.records()
    parts = [browser.cookie.partition(".")[2], made.secret.split("_", 2)[2], browser.csrf]
    for part in parts:
        assert part is not None
        assert len(part) > 30
        assert part not in repr(record)
    # The store's key is not a cookie.
    for forged in (record.key, f"{made.token.id}.{record.key.partition('.')[2]}"):
        assert Browser(scene.web()).with_cookie(forged).me().status_code == 401


def test_nothing_secret_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    browser = Browser(scene.web())
    made = scene.token()
    browser.log_in(made.secret + "x")
    browser.log_in(made.secret)
    browser.me()
    for secret in (made.secret.split("_", 2)[2], browser.cookie.partition(".")[2], browser.csrf or ""):
        assert secret not in caplog.text


def forgeries(cookie: str) -> Iterator[str]:
    token, _, secret = cookie.partition(".")
    last = "A" if secret[-1] != "A" else "B"
    yield f"{token}.{secret[:-1]}{last}"
    yield f"{'0' * 12}.{secret}"
    yield f"{token}.{'A' * 43}"
    yield f"{token}.{secret[:-1]}"
    yield f"{token}.{secret}x"
    yield f"{token}{secret}"
    yield token
    yield ""
    yield f"{token}.{secret[:-1]}é"
    yield '"' + cookie
    yield "x" * 20_000


def test_forged_cookies_are_refused(scene: Scene) -> None:
    web = scene.web()
    browser = Browser(web)
    browser.log_in(scene.token().secret)
    forged = list(forgeries(browser.cookie))
    for value in forged:
        header = {b"Cookie": f"{COOKIE}={value}".encode()}
        answer = Browser(web).client.get(f"{API}/me", headers=header)
        assert answer.status_code == 401, value
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert browser.me().status_code == 200
    # Another token's id with the secret of this session.
    other = scene.token("bob").token.id
    assert Browser(web).with_cookie(f"{other}.{browser.cookie.partition('.')[2]}").me().status_code == 401


def test_many_wrong_cookies_count_as_wrong_tokens_do(scene: Scene) -> None:
    web = scene.web()
    for at in range(MOST_FAILURES):
        answer = Browser(web).with_cookie(f"{at:012x}.{'A' * 43}").me()
        assert_problem(answer, 401, "unauthorized", "Cookie")
    refused = Browser(web).with_cookie(f"{99:012x}.{'A' * 43}").me()
    assert_problem(refused, 429, "too-many-failures")
    assert Browser(web, "192.0.2.9").with_cookie(f"{99:012x}.{'A' * 43}").me().status_code == 401


def test_a_page_left_open_does_not_lock_its_address_out(scene: Scene) -> None:
    browser = Browser(scene.web())
    made = scene.token()
    browser.log_in(made.secret)
    scene.pass_time(12 * 3_600 + 1)
    for _ in range(3 * MOST_FAILURES):
        assert_problem(browser.me(), 401, "unauthorized", "Cookie")
        scene.pass_time(1)
    assert browser.log_in(made.secret).status_code == 201
    assert browser.me().status_code == 200


def test_a_cookie_in_another_form_is_not_asked_for_in_the_store(scene: Scene) -> None:
    assert session_cookie([f"a=b; {COOKIE}=x; c=d"]) is None
    assert session_cookie([]) is None
    good = "0" * 12 + "." + "A" * 43
    for header in (f"{COOKIE}={good}", f"a=b;{COOKIE}={good} ; c=d", f"{COOKIE}=x; {COOKIE}={good}"):
        assert session_cookie([header]) == good
    assert session_cookie(["a=b", f"{COOKIE}={good}"]) == good, "HTTP/2 may split the header"
    assert session_cookie([f"x{COOKIE}={good}; {COOKIE}x={good}"]) is None
    # Browsers send the cookie with the longest path first.
    assert session_cookie([f"{COOKIE}={good}; {COOKIE}={'1' * 12}.{'B' * 43}"]) == good


CHANGES = [
    pytest.param(each, id=f"{each.method} {each.path}")
    for each in TABLE
    if each.method != "GET" and not each.is_public
]


@pytest.mark.parametrize("endpoint", CHANGES)
def test_every_change_needs_the_csrf_token(scene: Scene, endpoint: Any) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token().secret)
    right = browser.csrf
    assert right is not None
    other = Browser(scene.webs[0])
    other.log_in(scene.token().secret)
    wrong = [None, "", right[:-1], right + "x", right.upper(), other.csrf, "é"]
    assert other.csrf != right
    for sent in wrong:
        headers = {} if sent is None else {b"X-CSRF-Token": sent.encode()}
        answer = browser.client.request(endpoint.method, url(endpoint), headers=headers, json={})
        assert_problem(answer, 403, "wrong-csrf-token", "X-CSRF-Token")
    answer = browser.request(endpoint.method, url(endpoint), json={})
    assert "wrong-csrf-token" not in answer.text
    assert answer.status_code not in (401, 403)


def test_reading_needs_no_csrf_token_and_other_methods_do(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token().secret)
    for method in ("GET", "HEAD"):
        assert browser.client.request(method, f"{API}/me").status_code == 200
    for method in ("PUT", "OPTIONS", "TRACE", "get"):
        answer = browser.client.request(method, f"{API}/me")
        if method != "get":  # the client writes methods in capitals
            assert_problem(answer, 403, "wrong-csrf-token", "X-CSRF-Token")
    assert_problem(browser.client.post(f"{API}/nothing"), 403, "wrong-csrf-token", "X-CSRF-Token")


def test_a_request_of_another_site_is_refused_though_it_has_cookie_and_csrf_token(scene: Scene) -> None:
    web = scene.web()
    browser = Browser(web)
    secret = scene.token().secret
    browser.log_in(secret)
    for origin in ("https://evil.example", "null", "http://localhost:9999"):
        headers = {"Origin": origin}
        answers = [
            browser.me(headers=headers),
            browser.request("DELETE", SESSION, headers=headers),
            # A login under somebody else's name would make its victim act for them.
            Browser(web).log_in(secret, headers=headers),
        ]
        for answer in answers:
            assert_problem(answer, 403, "foreign-origin", "Origin")
            assert "set-cookie" not in answer.headers
    assert browser.me(headers={"Origin": "http://localhost"}).status_code == 200


def test_the_authorization_header_comes_before_the_cookie(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token("ann").secret)
    robot = {"Authorization": f"Bearer {scene.token('robot').secret}"}
    me = browser.client.get(f"{API}/me", headers=robot).json()
    assert (me["name"], me["has_session"], me["csrf"]) == ("robot", False, None)
    # Such a request needs no CSRF token: no browser adds the header by itself.
    made = browser.client.post(f"{API}/runs", headers=robot, json={"task": "work"})
    assert made.status_code == 201
    for wrong in ("Bearer evb_0_x", "Bearer", "bearer "):
        answer = browser.client.get(f"{API}/me", headers={"Authorization": wrong})
        assert_problem(answer, 401, "unauthorized", "Authorization")


def test_the_password_of_a_proxy_does_not_hide_the_cookie(scene: Scene) -> None:
    """nginx passes on the Authorization header of its own auth_basic."""
    browser = Browser(scene.web())
    basic = {"Authorization": "Basic YW5uOnB3"}
    assert_problem(browser.me(headers=basic), 401, "unauthorized", "Authorization")
    assert browser.log_in(scene.token().secret, headers=basic).status_code == 201
    assert browser.me(headers=basic).status_code == 200
    answer = browser.client.post(f"{API}/runs", headers=basic, json={"task": "work"})
    assert_problem(answer, 403, "wrong-csrf-token", "X-CSRF-Token")


def test_wrong_tokens_at_login_are_counted_by_address(scene: Scene) -> None:
    web = scene.web()
    right = scene.token().secret
    for at in range(MOST_FAILURES):
        answer = Browser(web).log_in(f"evb_{at}_x")
        assert_problem(answer, 401, "unauthorized", "token")
        assert "set-cookie" not in answer.headers
    # The right token has to wait, too: else a guess would tell whether it is right.
    refused = Browser(web).log_in(right)
    assert_problem(refused, 429, "too-many-failures")
    assert int(refused.headers["retry-after"]) > 0
    assert scene.records() == []
    assert Browser(web, "192.0.2.9").log_in(right).status_code == 201
    # Tokens in headers count with those of logins.
    headers = {"Authorization": f"Bearer {right}"}
    assert Browser(web).client.get(f"{API}/me", headers=headers).status_code == 429
    scene.pass_time(61)
    assert Browser(web).log_in(right).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"token": ""},
        {"token": 5},
        {"token": None},
        {"token": "x", "role": "admin"},
        [],
        {"token": "x" * 1_001},
    ],
)
def test_a_login_without_a_token_is_not_a_wrong_token(scene: Scene, body: Any) -> None:
    browser = Browser(scene.web())
    for _ in range(MOST_FAILURES + 1):
        answer = browser.client.post(SESSION, json=body)
        assert answer.status_code == 400
    assert browser.log_in(scene.token().secret).status_code == 201


def test_a_login_takes_little_from_strangers(scene: Scene) -> None:
    answer = Browser(scene.web()).client.post(
        SESSION, content=b" " * 20_000, headers={"Content-Type": "application/json"}
    )
    assert_problem(answer, 413, "body-too-large")
    form = Browser(scene.webs[0]).client.post(SESSION, data={"token": scene.token().secret})
    assert form.status_code in (400, 415), "a form of another site can send no JSON"


def test_a_logout_ends_the_session_on_every_web_process(scene: Scene) -> None:
    first = Browser(scene.web())
    first.log_in(scene.token().secret)
    second = Browser(scene.web()).with_cookie(first.cookie)
    stolen = Browser(scene.webs[0]).with_cookie(first.cookie)
    assert second.me().json()["csrf"] == first.csrf, "a session works on every web process"
    answer = first.request("DELETE", SESSION)
    assert (answer.status_code, answer.content) == (204, b"")
    assert set_cookie(answer)["max-age"] == "0"
    assert scene.records() == []
    assert first.me().status_code == 401, "the browser has no cookie any more"
    assert stolen.me().status_code == 401, "at once, where the logout came"
    assert BELIEVED < 5
    scene.clock.now += BELIEVED + 0.01
    assert second.me().status_code == 401


def test_a_login_ends_the_session_that_the_browser_had(scene: Scene) -> None:
    web = scene.web()
    browser, other = Browser(web), Browser(web)
    browser.log_in(scene.token("ann").secret)
    other.log_in(scene.token("bob").secret)
    old = Browser(web).with_cookie(browser.cookie)
    assert old.me().status_code == 200
    assert browser.log_in("evb_1_wrong").status_code == 401
    assert old.me().status_code == 200, "a wrong token begins no session"
    assert browser.log_in(scene.token("ann again").secret).status_code == 201
    assert browser.me().json()["name"] == "ann again"
    assert old.me().status_code == 401
    assert other.me().status_code == 200
    assert len(scene.records()) == 2
    # A cookie whose session is over changes nothing.
    assert old.log_in(scene.token("carl").secret).status_code == 201
    assert browser.me().status_code == 200


def test_a_logout_needs_a_session_of_its_own(scene: Scene) -> None:
    web = scene.web()
    first, second = Browser(web), Browser(web)
    made = scene.token()
    first.log_in(made.secret)
    second.log_in(made.secret)
    assert len(scene.records()) == 2
    assert second.request("DELETE", SESSION).status_code == 204
    assert first.me().status_code == 200
    assert_problem(Browser(web).request("DELETE", SESSION), 401, "unauthorized", "Authorization")
    bearer = {"Authorization": f"Bearer {made.secret}"}
    assert Browser(web).client.delete(SESSION, headers=bearer).status_code == 204
    assert (first.me().status_code, len(scene.records())) == (200, 1)


def test_a_session_survives_a_restart_of_the_server(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token().secret)
    scene.webs[0].close()
    again = Browser(scene.web()).with_cookie(browser.cookie)
    again.csrf = browser.csrf
    assert again.request("POST", f"{API}/runs", json={"task": "work"}).status_code == 201


def test_a_session_ends_with_its_token(scene: Scene) -> None:
    web = scene.web()
    made = scene.token()
    browser, other = Browser(web), Browser(web)
    browser.log_in(made.secret)
    other.log_in(scene.token("bob").secret)
    assert browser.me().status_code == 200
    scene.app.tokens.revoke(made.token.id)
    scene.clock.now += BELIEVED - 0.01
    assert browser.me().status_code == 200, "believed without asking the store"
    scene.clock.now += 0.02
    assert_problem(browser.me(), 401, "unauthorized", "Cookie")
    assert other.me().status_code == 200


def test_a_session_ends_when_its_token_expires(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token(expires="1h").secret)
    scene.pass_time(3_599)
    assert browser.me().status_code == 200
    scene.pass_time(BELIEVED + 0.01)
    assert browser.me().status_code == 401


def test_a_session_ends_after_12_hours_however_busy_it_is(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token().secret)
    cookie = browser.cookie
    for _ in range(11):
        scene.pass_time(3_600)
        assert browser.with_cookie(cookie).me().status_code == 200
    scene.pass_time(3_599)
    assert browser.with_cookie(cookie).me().status_code == 200
    scene.pass_time(BELIEVED + 0.01)
    assert browser.with_cookie(cookie).me().status_code == 401
    assert scene.records() == []
    # A purge, which nodes do, leaves nothing behind.
    assert ("session", "default") in {(kind, tenant) for kind, tenant, _ in scene.store._records._records}
    scene.pass_time(1)
    while scene.store.purge(scene.store_clock.now, 100).deleted:
        pass
    assert "session" not in {kind for kind, _, _ in scene.store._records._records}


def test_a_token_has_a_bounded_number_of_sessions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_OF_TOKEN == 100
    monkeypatch.setattr(sessions, "MOST_OF_TOKEN", 3)
    web = scene.web()
    # Sessions of other tokens, before and after it in the store.
    before, made, after = sorted((scene.token() for _ in range(3)), key=lambda each: each.token.id)
    browsers = [Browser(web) for _ in range(5)]
    others = [Browser(web), Browser(web)]
    for other, token in zip(others, (before, after), strict=True):
        other.log_in(token.secret)
    for browser in browsers:
        browser.log_in(made.secret)
        scene.pass_time(60)
    assert len(scene.records()) == 3 + 2
    assert [browser.me().status_code for browser in browsers] == [401, 401, 200, 200, 200]
    assert [other.me().status_code for other in others] == [200, 200]


def test_memory_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_REMEMBERED", 3)
    web = scene.web()
    made = scene.token()
    for at in range(8):
        browser = Browser(web, f"192.0.2.{at}")
        browser.log_in(made.secret)
        assert browser.me().status_code == 200
        assert Browser(web, f"192.0.2.{at}").with_cookie(f"{at:012x}.{'A' * 43}").me().status_code == 401
    kept = web.state.sessions
    assert 0 < len(kept._believed) <= 3
    assert 0 < len(kept._refused) <= 3


def test_a_session_is_believed_without_asking_the_store(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = scene.web()
    browser = Browser(web)
    browser.log_in(scene.token().secret)
    browser.me()
    asked: list[str] = []
    real = scene.store.get_record

    def get_record(kind: str, tenant: str, key: str) -> Any:
        asked.append(kind)
        return real(kind, tenant, key)

    monkeypatch.setattr(scene.store, "get_record", get_record)
    for _ in range(3):
        assert browser.me().status_code == 200
    assert asked == []
    scene.clock.now += BELIEVED + 0.01
    assert browser.me().status_code == 200
    assert asked[:2] == ["session", "token"]


def test_the_use_of_a_session_is_a_use_of_its_token(scene: Scene) -> None:
    browser = Browser(scene.web())
    browser.log_in(scene.token().secret)
    scene.pass_time(3_600)
    assert browser.me().status_code == 200
    (token,) = scene.app.tokens.list()
    assert token.last_used_at is not None
    assert token.last_used_at.timestamp() * 1000 == scene.store_clock.now


def test_an_outage_of_the_store_does_not_end_a_session(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(scene.web())
    made = scene.token()
    browser.log_in(made.secret)

    def down(*_: Any) -> Any:
        raise StoreUnavailable("db7 is down")

    scene.clock.now += 60
    with monkeypatch.context() as patched:
        patched.setattr(scene.store, "get_record", down)
        for answer in (browser.me(), Browser(scene.webs[0]).log_in(made.secret)):
            assert answer.status_code == 503
            assert "db7" not in answer.text
    assert browser.me().status_code == 200


def test_without_tokens_there_is_nothing_to_log_in_to(scene: Scene) -> None:
    browser = Browser(scene.web(needs_token=False))
    me = browser.me().json()
    assert (me["name"], me["csrf"], me["has_session"]) == ("local", None, False)
    answer = browser.log_in(scene.token().secret)
    assert_problem(answer, 409, "no-login-needed")
    assert scene.records() == []
    # A cookie of another server on this host changes nothing, nor does it need a CSRF token.
    browser.with_cookie(f"{'0' * 12}.{'A' * 43}")
    assert browser.me().json() == me
    assert browser.client.post(f"{API}/runs", json={"task": "work"}).status_code == 201


def logged_out(scene: Scene, browser: Browser, _: NewToken) -> None:
    browser.request("DELETE", SESSION)


def revoked(scene: Scene, _: Browser, made: NewToken) -> None:
    scene.app.tokens.revoke(made.token.id)


def expired(scene: Scene, _browser: Browser, _token: NewToken) -> None:
    scene.pass_time(12 * 3_600 + 1)


@pytest.mark.parametrize("end", [logged_out, revoked, expired])
def test_event_streams_end_with_the_session(
    scene: Scene, end: Callable[[Scene, Browser, NewToken], None]
) -> None:
    """Also those on another web process than that of the logout."""
    browser = Browser(scene.web())
    made, other = scene.token(), scene.token("bob")
    browser.log_in(made.secret)
    bob = Browser(scene.webs[0])
    bob.log_in(other.secret)

    async def story() -> None:
        web = scene.web()
        ended = await Stream.opened(web, browser.cookie)
        stays = None if end is expired else await Stream.opened(web, bob.cookie)
        await web.state.hub.end_forbidden()
        assert not ended.task.done()
        await asyncio.to_thread(end, scene, browser, made)
        await web.state.hub.end_forbidden()
        await asyncio.wait_for(ended.task, 30)
        if stays is not None:
            assert web.state.hub.clients == 1
            web.end_streams()
            await asyncio.wait_for(stays.task, 30)

    asyncio.run(story())


class Stream:
    """An event stream that a browser has open."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    @classmethod
    async def opened(cls, web: WebApp, cookie: str) -> Stream:
        began = asyncio.Event()

        async def receive() -> Any:
            return await asyncio.Event().wait()  # the browser stays, and sends no body

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            elif message.get("body"):
                began.set()

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{API}/events",
            "raw_path": f"{API}/events".encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"cookie", f"{COOKIE}={cookie}".encode())],
            "client": ("192.0.2.1", 1),
        }
        task = asyncio.create_task(web(scope, receive, send))
        await asyncio.wait_for(began.wait(), 30)
        return cls(task)


def test_a_session_shares_the_limits_of_its_token(scene: Scene) -> None:
    web = scene.web()
    made = scene.token()
    browser = Browser(web)
    browser.log_in(made.secret)
    principal = Principal("ann", "admin", None, token=made.token.id)
    taken = [web.state.requests.counted(principal) for _ in range(20)]
    for each in taken:
        each.__enter__()
    assert_problem(browser.me(), 429, "too-many-requests")
    # Logins have limits of their own, by address.
    assert Browser(web).log_in(made.secret).status_code == 201
    for each in taken:
        each.__exit__(None, None, None)
    assert browser.me().status_code == 200
