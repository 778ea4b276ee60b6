"""Which addresses belong to the public internet, and how settings allow others."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import each_of
from tools.web.address_guard import PrivateHosts, UrlTarget, is_closed_name, is_public

PRIVATE = (  # noqa: SIM905 - as a list it would be fifty lines
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 "
    "172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 "
    "198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 "
    "::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::7f00:1 "
    "100::1 2001::1 2001:0:7f00:1::1 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2606:4700::5efe:127.0.0.1 "
    "2606:4700::200:5efe:10.0.0.1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%lo fec0::1 "
    "ff02::1"
).split()
PUBLIC = (  # noqa: SIM905 - as a list it would be fifteen lines
    "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.167.1.1 198.17.0.1 "
    "223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:800::200e 64:ff9b::808:808 2002:808:808::1"
).split()


@pytest.mark.requirement("web.addresses")
@each_of("text", PRIVATE)
def test_an_address_outside_the_public_internet_is_closed(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.requirement("web.addresses")
@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_open(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.requirement("web.addresses")
@examples(100)
@given(st.ip_addresses(v=4))
def test_nothing_that_python_calls_private_is_open(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast or address.is_loopback:
        assert not is_public(address)


@pytest.mark.requirement("web.addresses")
@examples(100)
@given(st.ip_addresses(v=4), st.sampled_from(["mapped", "nat64", "6to4", "isatap"]))
def test_an_address_is_open_only_if_the_address_embedded_in_it_is(inner: IPv4Address, carrier_kind: str) -> None:
    bits = int(inner)
    carrier = {
        "mapped": 0xFFFF << 32 | bits,
        "nat64": 0x64FF9B << 96 | bits,
        "6to4": 0x2002 << 112 | bits << 80 | 1,
        "isatap": 0x26064700 << 96 | 0x5EFE << 32 | bits,
    }[carrier_kind]
    if not is_public(inner):
        assert not is_public(IPv6Address(carrier))


@pytest.mark.requirement("web.addresses")
@examples(100)
@given(st.ip_addresses(v=6))
def test_no_unassigned_address_is_open(address: IPv6Address) -> None:
    if is_public(address):
        assert int(address) >> 125 == 1 or int(address) >> 32 == 0x64FF9B << 64


@pytest.mark.requirement("web.addresses")
@pytest.mark.parametrize(
    ("host", "is_closed"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("metadata.google.internal", True),
        ("localhost.example", False),
        ("notlocalhost", False),
        ("example.org", False),
    ],
)
def test_local_and_metadata_host_names_are_closed(host: str, is_closed: bool) -> None:
    assert is_closed_name(host) is is_closed


@pytest.mark.requirement("web.private")
@pytest.mark.parametrize(
    ("entry", "host", "port", "is_open"),
    [
        ("intranet.example", "intranet.example", 80, True),
        ("Intranet.Example.", "intranet.example", 80, True),
        ("intranet.example", "a.intranet.example", 80, False),
        ("*.intranet.example", "a.intranet.example", 80, True),
        ("*.intranet.example", "intranet.example", 80, False),
        ("*.intranet.example", "evilintranet.example", 80, False),
        ("localhost:3000", "localhost", 3000, True),
        ("localhost:3000", "localhost", 3001, False),
        ("Bücher.example:3000", "xn--bcher-kva.example", 3000, True),
        ("*.bücher.example", "a.xn--bcher-kva.example", 80, True),
        ("*.bücher.example", "xn--bcher-kva.example", 80, False),
        ("\u2015.example", "xn--bcher-kva.example", 80, False),
    ],
)
def test_a_private_host_is_opened_by_name(entry: str, host: str, port: int, is_open: bool) -> None:
    assert PrivateHosts([entry]).opens_name(host, port) is is_open


@pytest.mark.requirement("web.private")
@pytest.mark.parametrize(
    ("entry", "address", "port", "is_open"),
    [
        ("10.1.2.3", "10.1.2.3", 80, True),
        ("10.1.2.3", "10.1.2.4", 80, False),
        ("10.1.0.0/16", "10.1.255.1", 80, True),
        ("10.1.2.3/16", "10.1.255.1", 80, True),
        ("10.1.0.0/16", "10.2.0.1", 80, False),
        ("fd00::/8", "fd12::1", 80, True),
        ("::1", "::1", 80, True),
        ("[::1]:3000", "::1", 3000, True),
        ("[::1]:3000", "::1", 80, False),
        ("127.0.0.1:3000", "127.0.0.1", 3000, True),
        ("127.0.0.1", "::ffff:127.0.0.1", 80, False),
        ("intranet.example", "10.1.2.3", 80, False),
    ],
)
def test_private_addresses_are_opened_by_address_and_network(
    entry: str, address: str, port: int, is_open: bool
) -> None:
    assert PrivateHosts([entry]).opens_address(ip_address(address), port) is is_open


@pytest.mark.requirement("web.private")
def test_an_entry_with_a_port_opens_that_port() -> None:
    hosts = PrivateHosts(["localhost:3000", "127.0.0.1:4000", "other"])
    assert hosts.opens_port(UrlTarget("http", "localhost", 3000, "/"))
    assert hosts.opens_port(UrlTarget("http", "127.0.0.1", 4000, "/"))
    assert not hosts.opens_port(UrlTarget("http", "localhost", 4000, "/"))
    assert not hosts.opens_port(UrlTarget("http", "other", 3000, "/"))
