"""Which URLs and addresses alerts may be sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.alerts.channels.addresses import BadAddress, is_public, read_host, read_target

NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104  # to refuse it, not to bind it
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata of Alibaba Cloud
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # Azure
    "169.254.0.1",
    "169.254.169.254",  # metadata of most clouds
    "169.254.170.2",  # credentials of containers on AWS
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",  # metadata of Oracle Cloud
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",  # IPv4-compatible, deprecated
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",  # IPv4-translated
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::10.0.0.1",  # NAT64 of a private network
    "100::1",  # discarded
    "2001::1",  # Teredo
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4 of 127.0.0.1
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of AWS
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "localhost",
    "",
]
PUBLIC = [
    "1.1.1.1",
    "93.184.215.14",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
]
PUBLIC += ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_on_the_internet_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_no_address_is_public_that_python_knows_to_be_something_else(ip: IPv4Address | IPv6Address) -> None:
    if is_public(str(ip)):
        inner = getattr(ip, "ipv4_mapped", None) or ip
        assert not (
            inner.is_private or inner.is_loopback or inner.is_link_local or inner.is_multicast
        ) or str(ip).startswith("64:ff9b::")
        assert not inner.is_unspecified


@given(st.ip_addresses(v=4))
def test_an_address_in_an_address_of_version_6_is_judged_by_itself(ip: IPv4Address) -> None:
    for prefix in (0xFFFF << 32, 0x64_FF9B << 96):
        assert is_public(str(IPv6Address(prefix | int(ip)))) == is_public(str(ip))


def test_the_parts_of_a_url_are_read() -> None:
    assert read_target("https://Hooks.Example.com.:8443/a/b?c=d#e") == (
        "https",
        "hooks.example.com",
        8443,
        "/a/b?c=d",
    )
    assert read_target("http://example.com").path == "/"
    assert read_target("http://example.com?x=1").path == "/?x=1"
    assert read_target("https://example.com:443/").authority == "example.com"
    assert read_target("http://example.com:443/").authority == "example.com:443"
    assert read_target("https://[2606:4700::1111]:8443/").authority == "[2606:4700::1111]:8443"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "https:///path",
        "https://",
        "https://user@example.com/",
        "https://user:word@example.com/",
        "https://good.example@evil.example/",
        "https://good.example\\@evil.example/",
        "https://good.example#@evil.example/",  # a host for us, and not the one after the @
        "https://example.com/a b",
        "https://example.com/\r\nX: y",
        "https://example.com/\x00",
        "https://example.com/\x7f",
        "https://example.com\t/",
        "https://ex\u2024ample.com/",
        "https://exämple.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://1.2.3.4.5/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://-example.com/",
        "https://example..com/",
        "https://" + "a" * 64 + ".com/",
        "https://" + "a." * 130 + "com/",
        "https://example.com/" + "a" * 2_000,
    ],
)
def test_a_url_with_a_trick_is_refused_or_read_as_it_stands(url: str) -> None:
    if url == "https://good.example#@evil.example/":
        assert read_target(url).host == "good.example"
        return
    with pytest.raises(BadAddress) as refused:
        read_target(url)
    assert len(url) < 3 or url not in str(refused.value)


@given(st.text())
def test_a_host_is_a_name_or_an_address_or_refused(text: str) -> None:
    try:
        host = read_host(text)
    except BadAddress:
        return
    assert host == host.lower()
    assert host.isascii()
    if ":" in host:
        ip_address(host)


@given(st.text(alphabet="https:/@#?.[]%\\\r\n a1", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        target = read_target(text)
    except BadAddress:
        return
    assert target.scheme in ("http", "https")
    assert target.host
    assert target.path.startswith("/")
