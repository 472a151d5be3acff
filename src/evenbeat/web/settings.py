"""Settings of the web app: who may reach it, and under which names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from evenbeat.app.metrics import MOST_SCHEDULES
from evenbeat.core.options import SETTINGS
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.settings import NodeOptions, read_node_settings

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may reach the web app."""

    needs_token: bool = True
    """Whether every request needs a token. Without tokens everybody who can reach the port is an admin: only
    for a server that is bound to a loopback address."""
    hosts: tuple[str, ...] = ()
    """The accepted values of the Host header, besides loopback names: ``jobs.example.com``, with the port
    unless it is the scheme's own."""
    proxies: tuple[Network, ...] = ()
    """Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed. Others are answered as if they had
    sent none."""
    open_metrics: bool = False
    """Whether ``GET /metrics`` needs no token."""
    metrics_schedules: int = MOST_SCHEDULES
    """How many schedules have metrics of their own; with more schedules, none has."""
    alert_options: NodeOptions = {}
    """Options of the process that sends alerts, which override those of the scheduler."""

    def accepts_host(self, host: str) -> bool:
        """Return whether the whole value of a Host header is an accepted one."""
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(":") if _has_port(host) else (host, "", "")
        return name in LOOPBACK_NAMES and (not port or port.isdigit())


def _has_port(host: str) -> bool:
    return ":" in host and not host.endswith("]")


def read_settings(
    *,
    needs_token: bool = True,
    hosts: Iterable[str] = (),
    proxies: Iterable[str] = (),
    open_metrics: bool = False,
    metrics_schedules: int = MOST_SCHEDULES,
    public_url: str | None = None,
    allow_private_webhooks: Iterable[str] | None = None,
) -> WebSettings:
    """Return the settings from texts that a user gave."""
    names = tuple(name.strip().lower() for name in hosts)
    for name in names:
        if not name or "/" in name or "*" in name or " " in name:
            raise InvalidValue(
                f"host {shown(name)} is not the name of a host",
                field="hosts",
                value=name,
                hint="write it as browsers send it, with its port: jobs.example.com or 10.0.0.5:8787",
            )
    alerts: NodeOptions = {}
    if public_url is not None:
        alerts["public_url"] = public_url
    if allow_private_webhooks is not None:
        alerts["allow_private_webhooks"] = tuple(allow_private_webhooks)
    read_node_settings(alerts)
    return WebSettings(
        needs_token=needs_token,
        hosts=names,
        proxies=tuple(map(_network, proxies)),
        open_metrics=open_metrics,
        metrics_schedules=SETTINGS["metrics_schedules"].read(metrics_schedules),
        alert_options=alerts,
    )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        raise InvalidValue(
            f"proxy {shown(text)} is not an address or network",
            field="proxies",
            value=text,
            hint="write 10.0.0.5 or 10.0.0.0/24",
        ) from None


def is_loopback(host: str) -> bool:
    """Return whether a bind address is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
