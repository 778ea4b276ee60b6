"""From a host name to its addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

from tools.contract.threads import THREADS

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_V4_CLOSED = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)
"""IANA's special addresses, multicast and what is reserved; what `ipaddress` knows depends on its version. One looks
public: by 168.63.129.16 each machine in Azure talks to its host."""

_V6_GLOBAL = IPv6Network("2000::/3")
"""All that is assigned as global unicast; everything else is closed."""

_V6_CLOSED = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols, Teredo among them
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_SIX_TO_FOUR_SHIFT = 80
_ISATAP = (0x00005EFE, 0x02005EFE)
_V4_MASK = 0xFFFF_FFFF
_CLOSED_NAMES = frozenset({"localhost", "metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
"""Names of this machine and of what tells a machine in a cloud its secrets; nobody is asked for their address."""


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, and every address that it carries does too."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _V4_CLOSED)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & _V4_MASK))
    if address not in _V6_GLOBAL or any(address in network for network in _V6_CLOSED):
        return False
    return all(is_public(carried) for carried in _carried(address))


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that a global IPv6 address leads on to."""
    bits = int(address)
    if address in _SIX_TO_FOUR:
        yield IPv4Address(bits >> _SIX_TO_FOUR_SHIFT & _V4_MASK)
    if bits >> 32 & _V4_MASK in _ISATAP:
        yield IPv4Address(bits & _V4_MASK)


def is_closed_name(host: str) -> bool:
    """Whether a name is refused before anybody is asked for its address."""
    return host in _CLOSED_NAMES or host.endswith(".localhost")


@dataclass(frozen=True, slots=True)
class _Named:
    """A host by name: exactly, or with `*.` all below it."""

    pattern: str
    port: int | None

    def fits(self, host: str, port: int) -> bool:
        is_host = host.endswith(self.pattern[1:]) if self.pattern.startswith("*.") else host == self.pattern
        return is_host and self.port in (None, port)


@dataclass(frozen=True, slots=True)
class _Network:
    """Addresses, whatever name leads to them."""

    network: Network
    port: int | None

    def fits(self, address: Address, port: int) -> bool:
        return address.version == self.network.version and address in self.network and self.port in (None, port)


class PrivateHosts:
    """The private hosts that an operator has opened (`web.allowPrivateHosts`).

    An entry is a host name (`intranet.example`, `*.intranet.example` for all below it), an address or a network
    (`10.1.2.3`, `10.1.0.0/16`, `fd00::/8`). A host or an address may carry a port (`localhost:3000`, `[::1]:3000`),
    and is then open at that port only, which need not be one of `web.allowedPorts`.

    Args:
        entries: As written.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        read = [_entry(entry.strip().lower()) for entry in entries]
        self._names = tuple(entry for entry in read if isinstance(entry, _Named))
        self._networks = tuple(entry for entry in read if isinstance(entry, _Network))

    def opens_name(self, host: str, port: int) -> bool:
        """Whether a host is open by its name, wherever that leads."""
        return any(entry.fits(host, port) for entry in self._names)

    def opens_address(self, address: Address, port: int) -> bool:
        """Whether an address is open."""
        return any(entry.fits(address, port) for entry in self._networks)

    def opens_port(self, host: str, port: int) -> bool:
        """Whether an entry names this very port for a host; what its name leads to is checked all the same."""
        named = any(entry.port == port and entry.fits(host, port) for entry in self._names)
        try:
            address = ip_address(host)
        except ValueError:
            return named
        return any(entry.port == port and entry.fits(address, port) for entry in self._networks)


def _entry(text: str) -> _Named | _Network:
    try:
        return _Network(ip_network(text, strict=False), None)
    except ValueError:
        host, port = _split_port(text)
    try:
        return _Network(ip_network(host), port)
    except ValueError:
        return _Named(host.rstrip("."), port)


def _split_port(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit():
        return host.strip("[]"), int(port)
    return text.strip("[]"), None


class Resolver(Protocol):
    """Finds the addresses of a host."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a host, those that should be tried first first; none if it has no address.

        Raises:
            OSError: Nobody could be asked.
        """
        ...


class SystemResolver:
    """Asks the operating system, in a thread that is abandoned on cancellation."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """All addresses, in the order that the system prefers."""
        return await THREADS.run(lambda: _addresses(host, port))


def _addresses(host: str, port: int) -> list[str]:
    import socket  # noqa: PLC0415 - for the first call

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return list(dict.fromkeys(str(place[0]) for *_, place in found))
