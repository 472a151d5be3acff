"""A dashboard for a test: a scheduler on SQLite, its web server, and pages of a browser that look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from evenbeat import Scheduler
from evenbeat.core.tokens import Role
from evenbeat.web import WebApp, web_app
from evenbeat.web.serving import WebServer, listen

# Milliseconds. A guard against a test that hangs: beside other load, pages take ten times as long, and a view
# whose answer took long is asked for again after a minute.
PATIENCE = 100_000


class Dashboard:
    """A scheduler and its web server. ``app`` is the scheduler: tests register tasks and start it."""

    def __init__(self, folder: Path | None, app: Scheduler | None = None, **settings: Any) -> None:
        """``folder`` is for a new store; ``app`` is a scheduler with a store of its own."""
        self.app = Scheduler(f"sqlite:///{folder}/dashboard.db") if app is None else app
        self._settings = {"needs_token": False, **settings}
        self._port = 0
        self._server: WebServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def web(self) -> WebApp:
        return web_app(self.app, **self._settings)

    def serve(self) -> None:
        """Start the web server; after ``stop_serving`` on the same port as before."""
        bound = listen("127.0.0.1", self._port)
        self._port = bound.getsockname()[1]
        self._server = WebServer(self.web(), bound)
        self._server.start()

    def stop_serving(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def link(self, *path: str, **query: str) -> str:
        """Return the address of a view: ``link("schedules", "default", "mail", tz="utc")``."""
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"{self.url}/#/{'/'.join(quote(part, safe='') for part in path)}{'?' if asked else ''}{asked}"

    def token(self, role: Role, tenant: str | None = None) -> str:
        return self.app.tokens.create(f"{role} of {tenant or 'all'}", role, tenant=tenant).secret

    def close(self) -> None:
        self.stop_serving()
        if self.app.is_running:
            self.app.stop("2s")
        self.app.close()


class Complaints:
    """What a page must not do: errors in the console, dialogs, requests to other hosts, blocked content."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._allowed: list[str] = []

    def allow(self, part: str) -> None:
        """Expect complaints that contain a text: a refused login is an error in the console."""
        self._allowed.append(part)

    @property
    def unexpected(self) -> list[str]:
        return [each for each in self.found if not any(part in each for part in self._allowed)]

    def watch(self, page: Page, origin: str) -> None:
        def on_console(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.found.append(f"console {message.type}: {message.text} ({message.location.get('url')})")

        def on_dialog(dialog: Dialog) -> None:
            self.found.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        def on_request(request: Request) -> None:
            if not request.url.startswith((f"{origin}/", "data:")):
                self.found.append(f"request to another host: {request.url}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: self.found.append(f"error in the page: {error}"))
        page.on("dialog", on_dialog)
        page.on("request", on_request)


@contextmanager
def opened(
    browser: Browser,
    dashboard: Dashboard,
    complaints: Complaints,
    *,
    dark: bool = False,
    width: int = 1280,
    zone: str = "Europe/Berlin",
) -> Iterator[BrowserContext]:
    """Open a context of the browser, with its own cookies and storage. Its pages are watched."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        timezone_id=zone,
        locale="en-GB",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE)
    context.on("page", lambda page: complaints.watch(page, dashboard.url))
    try:
        yield context
    finally:
        context.close()


SERIOUS = ("serious", "critical")


def assert_accessible(page: Page) -> None:
    """Check that axe finds nothing serious on the page."""
    found = [each for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS]
    assert not found, "\n".join(
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found
    )
