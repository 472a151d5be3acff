"""The page of the dashboard: which files are served, with which headers, under which prefix."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from evenbeat import Scheduler
from tests.web.site import Site, assert_problem
from tests.web.test_access import status_of

INDEX = '<!doctype html><script type="module" src="assets/app-1a2b.js"></script>'
SCRIPT = "console.log('é')" * 100
SCRIPT_URL = "/assets/app-1a2b.js"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A built dashboard, and a file beside it that must stay secret."""
    made = tmp_path / "dashboard"
    (made / "assets" / "sub").mkdir(parents=True)
    (made / "assets" / "app-1a2b.js").write_text(SCRIPT)
    (made / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT.encode()))
    (made / "assets" / "app-3c4d.css").write_text("body { margin: 0 }")
    (made / "assets" / "icon-5e6f.svg").write_text("<svg/>")
    (made / "assets" / "sub" / "deep.js").write_text("secret")
    (made / "assets" / "data.bin").write_bytes(b"\x00")
    (made / "other.html").write_text("secret")
    (tmp_path / "secret.js").write_text("secret")
    (made / "index.html").write_text(INDEX)
    return made


@pytest.fixture
def built(app: Scheduler, folder: Path) -> Iterator[Site]:
    made = Site(app, dashboard=folder)
    yield made
    made.close()


def test_the_page_needs_no_token_and_is_checked_again_each_time(built: Site) -> None:
    page = built.request("GET", "/", role=None)
    assert (page.status_code, page.text) == (200, INDEX)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    for tag in (page.headers["etag"], f"W/{page.headers['etag']}", f'"x", {page.headers["etag"]}', "*"):
        same = built.request("GET", "/", role=None, headers={"If-None-Match": tag})
        assert (same.status_code, same.content) == (304, b""), tag
        assert same.headers["etag"] == page.headers["etag"]
        assert same.headers["content-security-policy"] == CSP
    assert built.request("GET", "/", role=None, headers={"If-None-Match": '"x"'}).text == INDEX


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("app-1a2b.js", "text/javascript; charset=utf-8"),
        ("app-3c4d.css", "text/css; charset=utf-8"),
        ("icon-5e6f.svg", "image/svg+xml"),
        ("data.bin", "application/octet-stream"),
    ],
)
def test_assets_are_kept_for_a_year(built: Site, folder: Path, name: str, media_type: str) -> None:
    found = built.request("GET", f"/assets/{name}", role=None)
    assert (found.status_code, found.content) == (200, (folder / "assets" / name).read_bytes())
    assert found.headers["content-type"] == media_type
    assert found.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_every_answer_has_the_headers_that_protect_the_page(built: Site, folder: Path) -> None:
    answers = [built.request("GET", path, role=None) for path in ("/", SCRIPT_URL)]
    (folder / "index.html").unlink()
    answers.append(built.request("GET", "/", role=None))
    for answer in answers:
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "camera=()" in answer.headers["permissions-policy"]
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "is_gzipped"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("identity", False),
        ("", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("gzipped", False),
    ],
)
def test_a_file_that_the_build_has_compressed_is_sent_so(
    built: Site, accepted: str, is_gzipped: bool
) -> None:
    found = built.request("GET", SCRIPT_URL, role=None, headers={"Accept-Encoding": accepted})
    assert found.text == SCRIPT  # the client decodes it
    assert found.headers.get("content-encoding") == ("gzip" if is_gzipped else None)
    assert (int(found.headers["content-length"]) < len(SCRIPT)) is is_gzipped
    assert found.headers["vary"] == "Accept-Encoding"
    plain = built.request("GET", "/assets/app-3c4d.css", role=None, headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in plain.headers
    assert plain.text == "body { margin: 0 }"


def test_each_encoding_of_the_page_has_its_own_etag(built: Site, folder: Path) -> None:
    (folder / "index.html.gz").write_bytes(gzip.compress(INDEX.encode()))
    tags = set()
    for accepted in ("gzip", "identity"):
        page = built.request("GET", "/", role=None, headers={"Accept-Encoding": accepted})
        assert page.text == INDEX
        tags.add(page.headers["etag"])
    assert len(tags) == 2


@pytest.mark.parametrize("name", ["assets", "index.html"])
def test_a_file_or_folder_in_the_place_of_the_other_is_not_a_build(
    app: Scheduler, name: str, folder: Path
) -> None:
    moved = (folder / name).rename(folder / "moved")
    (folder / name).touch() if moved.is_dir() else (folder / name).mkdir()
    site = Site(app, dashboard=folder)
    page = site.request("GET", "/", role=None)
    assert (page.status_code, "make ui" in page.text) == (200, True)
    assert site.request("GET", SCRIPT_URL).status_code == 404
    (folder / name).unlink() if moved.is_dir() else (folder / name).rmdir()
    moved.rename(folder / name)
    assert site.request("GET", "/", role=None).text == INDEX
    site.close()


def test_head_has_the_headers_of_get(built: Site) -> None:
    for path in ("/", SCRIPT_URL):
        get, head = (built.request(method, path, role=None) for method in ("GET", "HEAD"))
        assert head.status_code == 200
        assert head.headers == get.headers


@pytest.mark.parametrize(
    "path",
    [
        "/assets/%2e%2e/other.html",
        "/assets/..%2fother.html",
        "/assets/..%2f..%2fsecret.js",
        "/assets/%2e%2e%5cother.html",
        "/assets/sub",
        "/assets/sub/deep.js",
        "/assets/sub%2fdeep.js",
        "/assets/",
        "/assets",
        "/assets/.",
        "/assets/APP-1A2B.JS",
        "/assets/app-1a2b.js%00",
        "/assets/app-1a2b.js%0a",
        "/assets/app-1a2b.js/",
        "/assets/app-1a2b.js.gz",
        "/assets//app-1a2b.js",
        "/index.html",
        "/other.html",
        "/secret.js",
    ],
)
def test_only_files_of_the_listing_are_served(built: Site, path: str) -> None:
    found = built.request("GET", path, role=None)
    assert_problem(found, 401, "unauthorized", "Authorization")
    assert_problem(built.request("GET", path), 404, "no-such-path")


@pytest.mark.parametrize(
    "path", ["/assets/..", "/assets/../other.html", "/assets/../../secret.js", "/assets/app-1a2b.js\n"]
)
def test_paths_that_clients_tidy_up_need_a_token_as_they_are(built: Site, path: str) -> None:
    assert asyncio.run(status_of(built, path, b"localhost")) == 401


def test_a_name_with_a_folder_in_it_is_not_opened(built: Site, tmp_path: Path) -> None:
    """An absolute path would replace the folder, if it were joined to it."""
    path = f"/assets/{tmp_path / 'secret.js'}".replace("/", "%2f").replace("%2fassets%2f", "/assets/")
    assert built.request("GET", path).status_code == 404


def test_other_methods_need_a_token_and_find_nothing(built: Site) -> None:
    for path in ("/", SCRIPT_URL):
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert_problem(built.request(method, path, role=None), 401, "unauthorized", "Authorization")
            assert_problem(built.request(method, path), 404, "no-such-path")


def test_the_page_answers_to_its_own_hosts_and_pages_alone(built: Site) -> None:
    for path in ("/", SCRIPT_URL):
        rebound = built.request("GET", path, role=None, headers={"Host": "evil.example"})
        assert_problem(rebound, 421, "foreign-host", "Host")
        framed = built.request("GET", path, role=None, headers={"Origin": "http://evil.example"})
        assert_problem(framed, 403, "foreign-origin", "Origin")
        own = built.request("GET", path, role=None, headers={"Origin": "http://localhost"})
        assert own.status_code == 200


def test_without_built_files_the_page_says_how_to_build_them(app: Scheduler, tmp_path: Path) -> None:
    site = Site(app, dashboard=tmp_path / "nothing")
    page = site.request("GET", "/", role=None)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "make ui" in page.text
    assert "api/v1" in page.text
    assert "style" not in page.text
    assert "<script" not in page.text
    # A page without an icon makes browsers ask for /favicon.ico, which does not exist.
    assert 'rel="icon" href="data:image/svg+xml,' in page.text
    assert site.get("me")["role"] == "admin"
    site.close()


def test_a_build_shows_without_a_restart(app: Scheduler, folder: Path) -> None:
    (folder / "index.html").rename(folder / "later.html")
    site = Site(app, dashboard=folder)
    assert "make ui" in site.request("GET", "/", role=None).text
    assert site.request("GET", SCRIPT_URL, role=None).status_code == 401
    (folder / "later.html").rename(folder / "index.html")
    # The asset first: a page that another server has sent may ask for it.
    assert site.request("GET", SCRIPT_URL, role=None).text == SCRIPT
    assert site.request("GET", "/", role=None).text == INDEX
    (folder / "assets" / "app-1a2b.js").rename(folder / "assets" / "app-9999.js")
    (folder / "index.html").write_text(INDEX.replace("1a2b", "9999"))
    os.utime(folder / "index.html", ns=(1, 1))
    assert "app-9999.js" in site.request("GET", "/", role=None).text
    assert site.request("GET", "/assets/app-9999.js", role=None).text == SCRIPT
    assert site.request("GET", SCRIPT_URL, role=None).status_code == 401
    site.close()


def test_a_build_that_is_under_way_is_not_a_server_error(app: Scheduler, folder: Path) -> None:
    (folder / "assets").rename(folder / "before")
    site = Site(app, dashboard=folder)
    assert "make ui" in site.request("GET", "/", role=None).text
    (folder / "before").rename(folder / "assets")
    assert site.request("GET", "/", role=None).text == INDEX
    site.close()


class PassedOn:
    """Passes requests below a prefix on to an app, as Django's asgi.py or a proxy does."""

    def __init__(self, app: ASGIApp, prefix: str, *, strips: bool) -> None:
        self._app = app
        self._prefix = prefix
        self._strips = strips

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(self._prefix)
        if self._strips:
            path = scope["path"].removeprefix(self._prefix)
            scope = {**scope, "path": path, "raw_path": path.encode()}
        else:
            scope = {**scope, "root_path": self._prefix}
        await self._app(scope, receive, send)


def mounted(site: Site) -> ASGIApp:
    return Starlette(routes=[Mount("/jobs", app=site.web)])


def below_django(site: Site) -> ASGIApp:
    return PassedOn(site.web, "/jobs", strips=False)


def behind_proxy(site: Site) -> ASGIApp:
    return PassedOn(site.web, "/jobs", strips=True)


@pytest.mark.parametrize("outer", [mounted, below_django, behind_proxy])
def test_the_page_works_under_a_prefix(built: Site, outer: Any) -> None:
    client = TestClient(outer(built), base_url="http://localhost")
    page = client.get("/jobs/")
    assert (page.status_code, page.text) == (200, INDEX)
    # All URLs of the page are relative.
    script = urlsplit(urljoin("http://localhost/jobs/", "assets/app-1a2b.js")).path
    assert client.get(script).text == SCRIPT
    assert client.get("/jobs/api/v1/me").status_code == 401
    headers = {"Authorization": f"Bearer {built.token()}"}
    assert client.get("/jobs/api/v1/me", headers=headers).status_code == 200


@pytest.mark.parametrize("outer", [mounted, below_django])
def test_the_prefix_without_a_slash_redirects(built: Site, outer: Any) -> None:
    client = TestClient(outer(built), base_url="http://localhost", follow_redirects=False)
    for method in ("GET", "HEAD"):
        found = client.request(method, "/jobs")
        assert found.status_code == 307
        assert urljoin("http://localhost/jobs", found.headers["location"]) == "http://localhost/jobs/"


def test_the_redirect_is_ours_alone_and_checks_the_host(built: Site) -> None:
    client = TestClient(below_django(built), base_url="http://localhost", follow_redirects=False)
    assert client.get("/jobs").headers["location"] == "./jobs/"
    rebound = client.get("/jobs", headers={"Host": "evil.example"})
    assert_problem(rebound, 421, "foreign-host", "Host")
    assert_problem(client.post("/jobs"), 401, "unauthorized", "Authorization")
    odd = TestClient(PassedOn(built.web, "/a/b;c: d", strips=False), base_url="http://localhost")
    assert odd.get("/a/b;c: d", follow_redirects=False).headers["location"] == "./b%3Bc%3A%20d/"
