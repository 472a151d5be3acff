"""Addresses of receivers: reads URLs strictly, and tells public addresses of the internet from all others.

Users of the API name these URLs. Without the checks, a node would send requests for them to services that
only the node can reach: its own host, the private network, the metadata service of a cloud.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

LONGEST_URL = 2_000

# Not by the properties of the ipaddress module: what is_private and is_global answer differs between
# versions of Python, and is_global is true for multicast.
_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared address space; the metadata service of Alibaba Cloud
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's platform service, which is not on the internet
            "169.254.0.0/16",  # link-local; the metadata services of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; a metadata service of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
# IANA assigns public addresses of version 6 from this block alone.
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an address of version 4 inside, and no longer in use
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")

# The characters of a URL. Others serve attacks, such as a line break that adds a header.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%{}-]+")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class BadAddress(ValueError):
    """A URL was refused. The message never quotes it, since any part of it may be a secret."""


class Target(NamedTuple):
    """Where a request goes."""

    scheme: str
    host: str
    """In lower case, without the brackets of IPv6 and without a dot at the end."""
    port: int
    path: str
    """With the query."""

    @property
    def authority(self) -> str:
        """The host and, unless it is the default one, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


_PORTS = {"http": 80, "https": 443}


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL that has only characters of URLs; raise ``BadAddress`` for any other text."""
    if not 0 < len(url) <= LONGEST_URL:
        raise BadAddress(f"it is not a URL of 1 to {LONGEST_URL:,} characters")
    # urlsplit drops line breaks and tabs without a word.
    if not _URL.fullmatch(url):
        raise BadAddress("it has a space, a control character or another character that URLs must escape")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadAddress("its host or port is not valid") from None
    if port == 0:
        raise BadAddress("its host or port is not valid")
    return parts


def read_target(url: str) -> Target:
    """Return where an ``http`` or ``https`` URL leads; raise ``BadAddress`` for any other text."""
    parts = split_url(url)
    if parts.scheme not in _PORTS:
        raise BadAddress("it does not begin with https:// or http://")
    if "@" in parts.netloc:
        raise BadAddress("it has a user or a password before the host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, read_host(parts.hostname or ""), parts.port or _PORTS[parts.scheme], path)


def read_host(text: str) -> str:
    """Return a name or address in its usual form; raise ``BadAddress`` if it is neither."""
    host = text.lower().removesuffix(".")
    if ":" in host:
        try:
            address = IPv6Address(host)
        except ValueError:
            raise BadAddress("its host or port is not valid") from None
        if address.scope_id is not None:
            raise BadAddress("its host names a network interface")
        return str(address)
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise BadAddress("its host or port is not valid")
    if _NUMBER.fullmatch(labels[-1]):
        # "127.1" and "0x7f000001" are addresses for some resolvers, and names for others.
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise BadAddress("its host is a number, but not an IPv4 address of four numbers") from None
    return host


def is_public(address: str) -> bool:
    """Return whether an address belongs to the internet: neither to this host nor to a private network.

    An address of version 6 that stands for one of version 4 (IPv4-mapped, NAT64) is as public as that one.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = IPv4Address(int(ip) & 0xFFFF_FFFF)
        else:
            return ip in _PUBLIC_6 and not any(ip in network for network in _NOT_PUBLIC_6)
    return not any(ip in network for network in _NOT_PUBLIC_4)
