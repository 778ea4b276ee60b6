"""Parses a URL once, and checks its host name, port and addresses before any contact with the host.

The connection goes to exactly the host that was checked. URL parsers differ in how they treat backslashes, white space,
user names and unusual numbers, and each difference could bypass a guard. Therefore ambiguous URLs are refused here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, urljoin

from tools.contract.display import ascii_host
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.text.file_names import brief, one_line

Address = IPv4Address | IPv6Address

MAX_URL_CHARS = 8_000  # many servers reject longer URLs; RFC 9110 recommends support for 8,000
PORTS = {"http": 80, "https": 443}  # the supported schemes and their default ports
MAX_HOST_CHARS = 253
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?#]*))?(?P<rest>[^#]*)(?:#.*)?")
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")  # no leading zeros, which some parsers read as octal
_LAST_PORT = 65_535
_UNQUOTED = "%!$&'()*+,;=:@/?-._~[]"  # characters of a path and query that are left unencoded


class UrlError(Exception):
    """A string is not a URL that this server can open. The error's message is the reason, as a clause."""


@dataclass(frozen=True, slots=True)
class UrlTarget:
    scheme: str  # `http` or `https`
    host: str  # an ASCII name in lower case without a final dot, or an address without brackets
    port: int  # given in the URL, or implied by the scheme
    path: str  # path and query, as sent to the server

    @property
    def address(self) -> Address | None:
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine's own loopback interface by its name or address."""
        address = self.address
        return f".{self.host}".endswith(".localhost") or (address is not None and address.is_loopback)

    @property
    def authority(self) -> str:
        """Host and port as in a URL, but without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def joined(self, reference: str) -> UrlTarget:
        """Resolve a reference relative to this URL. Raises a `UrlError` if the result cannot be opened."""
        try:
            return parse_url(urljoin(self.url, reference))
        except ValueError:
            raise UrlError("it is not a URL") from None


def parse_url(text: str) -> UrlTarget:
    """Parse a URL. Raises a `UrlError` if it is invalid or ambiguous."""
    if len(text) > MAX_URL_CHARS:
        raise UrlError(f"it has {len(text):,} characters, more than the limit of {MAX_URL_CHARS:,}")
    ambiguous = _AMBIGUOUS.search(text)
    if ambiguous is not None:
        escaped = ambiguous[0].encode("unicode_escape").decode() if ambiguous[0] != "\\" else "\\"
        raise UrlError(f"it contains the character '{escaped}', which must be percent-encoded")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise UrlError("it does not begin with http:// or https://")
    scheme, authority = parts["scheme"].lower(), parts["authority"]
    if scheme not in PORTS:
        raise UrlError(f"its scheme is '{brief(scheme)}', but only http and https are supported")
    if not authority:
        raise UrlError("it has no host")
    if "@" in authority:
        raise UrlError("it contains a user name or a password, which are never sent")
    if authority.startswith("["):
        address_text, bracket, port_text = authority[1:].partition("]")
        if not bracket or (port_text and not port_text.startswith(":")):
            raise UrlError("its host begins with '[' but is not an IPv6 address in brackets")
        try:
            address = IPv6Address(address_text)
        except AddressValueError:
            raise UrlError(f"'{brief(address_text)}' is not an IPv6 address") from None
        if address.scope_id is not None:
            raise UrlError("its address names a network interface")
        host = str(address)
    else:
        raw_host, colon, port_text = authority.partition(":")
        port_text = colon + port_text
        try:
            host = ascii_host(raw_host).lower().removesuffix(".")
        except UnicodeError:
            raise UrlError(f"'{brief(one_line(raw_host))}' is not a host name") from None
        labels = host.split(".")
        if _NUMBER.fullmatch(labels[-1]):
            try:
                # Only four decimal numbers, because parsers disagree about `127.1`, `0x7f.1` and `2130706433`
                host = str(IPv4Address(host))
            except AddressValueError:
                raise UrlError(
                    f"its host '{brief(host)}' ends with a number but is not an address in the usual form 1.2.3.4"
                ) from None
        elif len(host) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
            raise UrlError(f"'{brief(one_line(raw_host))}' is not a host name")
    port = PORTS[scheme]
    if port_text:
        digits = port_text[1:]
        if not _PORT.fullmatch(digits) or int(digits) > _LAST_PORT:
            raise UrlError(f"its port '{brief(digits)}' is not a number from 1 to {_LAST_PORT}")
        port = int(digits)
    path = quote(parts["rest"], safe=_UNQUOTED)
    return UrlTarget(scheme, host, port, path if path.startswith("/") else f"/{path}")


# IANA's special-purpose, multicast and reserved addresses. They are listed here, because the list in `ipaddress`
# depends on the version of Python. 168.63.129.16 is not one of them, but is not a public server either: in Azure, each
# virtual machine reaches its host at this address.
_V4_CLOSED = tuple(
    IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    )
)
_V6_GLOBAL = IPv6Network("2000::/3")  # all assigned global unicast addresses; others are refused, except NAT64
# Addresses for protocols (including Teredo) and for documentation
_V6_CLOSED = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)
_V4_MASK = 0xFFFF_FFFF
# Names of this machine, and of metadata services that hold the secrets of cloud machines. They are looked
# up only if the operator allows them by name.
_CLOSED_NAMES = frozenset({"localhost", "metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


def is_public(address: Address) -> bool:
    """Return True if an address and every IPv4 address embedded in it are on the public internet."""
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
    return host in _CLOSED_NAMES or host.endswith(".localhost")


class PrivateHosts:
    """The private hosts that the operator allows (`web.allowPrivateHosts`).

    An entry is a host name (`intranet.example`, or `*.intranet.example` for all subdomains), an address or a
    network (`10.1.2.3`, `10.1.0.0/16`, `fd00::/8`). A host or address may have a port (`localhost:3000`, `[::1]:3000`).
    Such an entry allows only that port, which need not be in `web.allowedPorts`.
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
                start = "*." if host.startswith("*.") else ""
                with suppress(UnicodeError):  # a name that has no ASCII form matches no host
                    host = start + ascii_host(host.removeprefix(start))
                self._names.append((host.rstrip("."), port))

    def opens_name(self, host: str, port: int) -> bool:
        """Return True if a host is allowed by name, regardless of its address."""
        return any(_matches(pattern, host) and open_port in (None, port) for pattern, open_port in self._names)

    def opens_address(self, address: Address, port: int) -> bool:
        return any(address in network and open_port in (None, port) for network, open_port in self._networks)

    def opens_port(self, target: UrlTarget) -> bool:
        """Return True if an entry names exactly this port of a host. The host's addresses are still checked."""
        host, address, port = target.host, target.address, target.port
        return any(_matches(pattern, host) and open_port == port for pattern, open_port in self._names) or (
            address is not None
            and any(address in network and open_port == port for network, open_port in self._networks)
        )


def _matches(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


# Returns all addresses of a host for a port, in the order in which to try them; empty if there are none. Raises an
# `OSError` if no name server can be reached.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Look up a host with the operating system's resolver, in a thread that is abandoned on cancellation."""
    try:
        entries = await THREADS.run(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


@dataclass(frozen=True, slots=True)
class WebRules:
    """Rules for the URLs that may be opened, and limits on what is read."""

    # Allowed private hosts, addresses and networks, in the forms that `PrivateHosts` accepts
    allow_private_hosts: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = tuple(PORTS.values())  # ports that may be opened
    max_bytes: int = 10 << 20  # limit for a response's content, compressed and decompressed (10 MiB as in Gemini CLI)
    # The highest compression ratio allowed for content larger than `free_bytes`. The ratio is about 10 for ordinary
    # text, and at most about 1,000 for gzip
    max_ratio: int = 200
    free_bytes: int = 1 << 20  # content up to this size may have any compression ratio
    max_redirects: int = 5  # maximum number of redirects to follow
    header_bytes: int = 64 << 10  # maximum total size of a response's headers
    connect_seconds: float = 8.0  # time limit for connecting to one address, including TLS
    total_seconds: float = 30.0  # time limit from the name lookup to the last byte, including redirects


class AddressGuard:
    """Looks up the addresses of hosts, and refuses hosts, ports and addresses that are not allowed."""

    def __init__(self, rules: WebRules, resolver: Resolver) -> None:
        self._allowed_ports = rules.allowed_ports
        self._private = PrivateHosts(rules.allow_private_hosts)
        self._resolver = resolver

    def check(self, target: UrlTarget) -> None:
        """Check a URL, without looking up its host name. Raises a `ToolError` (`web_refused`) if it is not allowed."""
        if not self._private.opens_name(target.host, target.port):
            if is_closed_name(target.host):
                raise self._private_address(target, f"'{target.host}' is the name of a private address")
            if target.address is not None:
                self._check_address(target, target.address)
        if not self._opens_port(target):
            ports = ", ".join(map(str, self._allowed_ports)) or "none"
            raise ToolError(
                ToolErrorType.WEB_REFUSED,
                f"{target.authority} was not opened: port {target.port} is not allowed. Allowed ports: {ports}. The "
                "operator can add others with the setting web.allowedPorts.",
            )

    async def addresses(self, target: UrlTarget) -> Sequence[Address]:
        """Return the addresses to connect to, in the order in which to try them.

        Raises a `ToolError`: `web_refused` if the URL may not be opened; `web_unreachable` if no address is found.
        """
        self.check(target)
        addresses = await self.look_up(target)
        if not self._private.opens_name(target.host, target.port):
            # One forbidden address is enough, because the owner of the name may have added allowed ones as a disguise.
            for address in addresses:
                self._check_address(target, address)
        return addresses

    async def look_up(self, target: UrlTarget) -> Sequence[Address]:
        """Return all addresses of a host, unchecked. Raises a `ToolError` (`web_unreachable`) if it has none."""
        if target.address is not None:
            return [target.address]
        try:
            address_texts = await self._resolver(target.host, target.port)
        except OSError:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"The address of {target.host} could not be looked up: no name server gave a usable answer. This "
                "machine may have no network connection.",
            ) from None
        if not address_texts:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"The host {target.host} has no address. Check the spelling of the URL; if it is right, this machine "
                "may have no network connection.",
            )
        return [ip_address(text) for text in address_texts]

    def _opens_port(self, target: UrlTarget) -> bool:
        return target.port in self._allowed_ports or self._private.opens_port(target)

    def _check_address(self, target: UrlTarget, address: Address) -> None:
        if not is_public(address) and not self._private.opens_address(address, target.port):
            is_address = target.address is not None
            subject = f"{address} is" if is_address else f"'{target.host}' has the address {address}, which is"
            raise self._private_address(target, f"{subject} not a public address")

    def _private_address(self, target: UrlTarget, reason: str) -> ToolError:
        """Return the error for a private address. The error names each setting that would have to change."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        port_note = (
            f" The port is not allowed either; adding the entry '{host}:{target.port}' allows both the address and the "
            "port."
        )
        command_hint = (
            f" To reach a server on this machine, use a command (curl {target.authority}). This is the only way to "
            "reach a server that was started by a command without network access."
            if target.is_local
            else ""
        )
        return ToolError(
            ToolErrorType.WEB_REFUSED,
            f"{target.authority} was not opened: {reason}. Private addresses can be opened only if the operator's "
            f"setting web.allowPrivateHosts lists them.{'' if self._opens_port(target) else port_note}{command_hint}",
        )
