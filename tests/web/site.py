"""A web app in this process, and requests to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
from starlette.testclient import TestClient

from evenbeat import Scheduler
from evenbeat.core.tokens import Role
from evenbeat.web import WebApp
from evenbeat.web.page import BUILT
from evenbeat.web.settings import read_settings

API = "/api/v1"


class Site:
    """The API of a scheduler, with a token for each role and tenant that a test asks for."""

    def __init__(self, app: Scheduler, **settings: Any) -> None:
        """``dashboard`` is a folder of built files that replaces that of the package."""
        self.app = app
        dashboard: Path = settings.pop("dashboard", BUILT)
        self.web = WebApp(app, read_settings(**settings), dashboard)
        self._tokens: dict[tuple[str, str | None], str] = {}
        self._clients: dict[str, TestClient] = {}

    def token(self, role: Role = "admin", tenant: str | None = None) -> str:
        key = (role, tenant)
        if key not in self._tokens:
            self._tokens[key] = self.app.tokens.create(f"{role} of {tenant}", role, tenant=tenant).secret
        return self._tokens[key]

    def request(
        self,
        method: str,
        path: str,
        *,
        role: Role | None = "admin",
        tenant: str | None = None,
        secret: str | None = None,
        peer: str = "192.0.2.1",
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """Send a request, with the token of a role; ``role=None`` sends none."""
        sent = list(headers.items()) if isinstance(headers, dict) else list(headers or ())
        if secret is not None:
            sent.append(("Authorization", f"Bearer {secret}"))
        elif role is not None:
            sent.append(("Authorization", f"Bearer {self.token(role, tenant)}"))
        if peer not in self._clients:
            self._clients[peer] = TestClient(self.web, base_url="http://localhost", client=(peer, 50_000))
        url = path if path.startswith("/") else f"{API}/{path}"
        response: httpx2.Response = self._clients[peer].request(method, url, headers=sent, **more)
        return response

    def get(self, path: str, **more: Any) -> Any:
        """Return the body of a GET that must succeed."""
        response = self.request("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        """Return the body of a POST that must succeed."""
        response = self.request("POST", path, json=body, **more)
        assert response.status_code == status, response.text
        return response.json()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self.web.close()
        self.app.close()


def assert_problem(
    response: httpx2.Response, status: int, kind: str, field: str | None = None
) -> dict[str, Any]:
    """Check that an answer is a problem of this kind, and return it."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["status"]) == (status, status), problem
    assert problem["type"] == f"urn:evenbeat:problem:{kind}", problem
    assert problem.get("field") == field, problem
    assert problem["detail"]
    return problem
