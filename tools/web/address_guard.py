"""What may be opened: names, ports and addresses, judged before anything is sent to a host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.threads import THREADS
from tools.web.url import PORTS, Address, Target

# IANA's special addresses, multicast and reserved ones; what `ipaddress` knows depends on its version. One looks
# public: 168.63.129.16 is how each machine in Azure talks to its host.
_V4_CLOSED = tuple(
    IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    )
)
_V6_GLOBAL = IPv6Network("2000::/3")  # all that is assigned as global unicast; everything else is closed
# Protocols (Teredo among them) and documentation
_V6_CLOSED = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)
_V4_MASK = 0xFFFF_FFFF
# Names of this machine, and of the services that tell a machine in a cloud its secrets. They are never looked up.
_CLOSED_NAMES = frozenset({"localhost", "metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, and every IPv4 address embedded in it does too."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _V4_CLOSED)
    bits = int(address)
    if address in _NAT64:
        return is_public(IPv4Address(bits & _V4_MASK))
    if address not in _V6_GLOBAL or any(address in network for network in _V6_CLOSED):
        return False
    if address in _6TO4 and not is_public(IPv4Address(bits >> 80 & _V4_MASK)):
        return False
    return bits >> 32 & _V4_MASK not in _ISATAP or is_public(IPv4Address(bits & _V4_MASK))


def is_closed_name(host: str) -> bool:
    """Whether a name is refused without looking it up."""
    return host in _CLOSED_NAMES or host.endswith(".localhost")


class PrivateHosts:
    """The private hosts that the operator has opened (`web.allowPrivateHosts`).

    An entry is a host name (`intranet.example`, `*.intranet.example` for all below it), an address or a network
    (`10.1.2.3`, `10.1.0.0/16`, `fd00::/8`). A host or an address may carry a port (`localhost:3000`, `[::1]:3000`),
    and is then open at that port only, which need not be one of `web.allowedPorts`.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: list[tuple[str, int | None]] = []
        self._networks: list[tuple[IPv4Network | IPv6Network, int | None]] = []
        for entry in entries:
            text = entry.strip().lower()
            try:
                self._networks.append((ip_network(text, strict=False), None))
                continue
            except ValueError:
                host, colon, digits = text.rpartition(":")
            has_port = bool(colon) and digits.isascii() and digits.isdigit()
            host, port = ((host if has_port else text).strip("[]"), int(digits) if has_port else None)
            try:
                self._networks.append((ip_network(host), port))
            except ValueError:
                self._names.append((host.rstrip("."), port))

    def opens_name(self, host: str, port: int) -> bool:
        """Whether a host is open by its name, wherever that leads."""
        return any(_matches(pattern, host) and open_port in (None, port) for pattern, open_port in self._names)

    def opens_address(self, address: Address, port: int) -> bool:
        return any(address in network and open_port in (None, port) for network, open_port in self._networks)

    def opens_port(self, host: str, port: int) -> bool:
        """Whether an entry names this very port of a host; the addresses of a name are judged all the same."""
        if any(_matches(pattern, host) and open_port == port for pattern, open_port in self._names):
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network and open_port == port for network, open_port in self._networks)


def _matches(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


# Finds all addresses of a host and a port, in the order in which they should be tried; none if it has no address.
# Raises an `OSError` where no name server could be asked.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Ask the operating system, in a thread that is abandoned on cancellation."""

    def look_up() -> list[str]:
        import socket  # noqa: PLC0415 - for the first call

        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
                return []
            raise
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    return await THREADS.run(look_up)


@dataclass(frozen=True, slots=True)
class WebRules:
    """What may be opened, and how much of it is read."""

    # Hosts, addresses and networks that may be opened although they are private; the forms are those of `PrivateHosts`
    allow_private_hosts: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = tuple(PORTS.values())  # ports that may be connected to
    max_bytes: int = 10 << 20  # content of one answer, unpacked and raw (Gemini CLI's 10 MiB)
    # How many times larger than its packed form the content may be, once it is larger than `free_bytes`; ordinary text
    # is packed to a tenth, gzip's limit is about a thousandth
    max_ratio: int = 200
    free_bytes: int = 1 << 20  # content below which the ratio does not count
    max_redirects: int = 5  # redirects that are followed
    header_bytes: int = 64 << 10  # all headers of one answer together
    connect_seconds: float = 8.0  # for each address that is tried, TLS included
    total_seconds: float = 30.0  # from the look-up of the name to the last byte, redirects included


class AddressGuard:
    """Finds the addresses of a host, and lets through only what may be connected to."""

    def __init__(self, rules: WebRules, resolver: Resolver) -> None:
        self._allowed_ports = rules.allowed_ports
        self._private = PrivateHosts(rules.allow_private_hosts)
        self._resolver = resolver

    def check(self, target: Target) -> None:
        """Judge what can be judged without looking up the name: a `ToolError` is `web_refused`."""
        if not self._private.opens_name(target.host, target.port):
            if is_closed_name(target.host):
                raise self._private_address(target, f"'{target.host}' is a name of a private address")
            if target.address is not None:
                self._check_address(target, target.address)
        if not self._opens_port(target):
            ports = ", ".join(map(str, self._allowed_ports)) or "none"
            raise ToolError(
                ToolErrorType.WEB_REFUSED,
                f"{target.authority} was not opened: port {target.port} is not allowed (allowed: {ports}; the "
                "operator's setting web.allowedPorts adds others).",
            )

    async def addresses(self, target: Target) -> Sequence[Address]:
        """The addresses that may be connected to, in the order in which they should be tried.

        Raises:
            ToolError: `web_refused`: it may not be opened; `web_unreachable`: it has no address.
        """
        self.check(target)
        found = await self.look_up(target)
        if not self._private.opens_name(target.host, target.port):
            # One bad address among good ones is enough: whoever answers with both wants one of them to be used.
            for address in found:
                self._check_address(target, address)
        return found

    async def look_up(self, target: Target) -> Sequence[Address]:
        """All addresses of a host, without judging them; a `ToolError` that it has none is `web_unreachable`."""
        if target.address is not None:
            return [target.address]
        try:
            found = await self._resolver(target.host, target.port)
        except OSError:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"The address of {target.host} cannot be looked up: no name server answers. Perhaps this machine has "
                "no network.",
            ) from None
        if not found:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"No address was found for the host {target.host}. Check the spelling of the URL; if it is right, this "
                "machine may have no network.",
            )
        return [ip_address(text) for text in found]

    def _opens_port(self, target: Target) -> bool:
        return target.port in self._allowed_ports or self._private.opens_port(target.host, target.port)

    def _check_address(self, target: Target, address: Address) -> None:
        if not is_public(address) and not self._private.opens_address(address, target.port):
            which = f"{address} is" if target.address is not None else f"'{target.host}' leads to {address}, which is"
            raise self._private_address(target, f"{which} not a public address")

    def _private_address(self, target: Target, why: str) -> ToolError:
        """The refusal of a private address, with every setting that would have to change to open it."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        both = f" Its port is not allowed either; the entry '{host}:{target.port}' opens both."
        return ToolError(
            ToolErrorType.WEB_REFUSED,
            f"{target.authority} was not opened: {why}. Private addresses are opened only where the operator's setting "
            f"web.allowPrivateHosts names them.{'' if self._opens_port(target) else both}",
        )
