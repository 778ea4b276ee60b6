"""What may be opened: names, ports and addresses, judged before anything is sent to a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.addresses import Address, PrivateHosts, Resolver, is_closed_name, is_public
from tools.web.url import PORTS, Target

MAX_ADDRESSES = 4
"""Addresses of a host that are tried."""

_OPENING = "Private addresses are opened only where the operator's setting web.allowPrivateHosts names them."


@dataclass(frozen=True, slots=True)
class WebRules:
    """What may be opened, and how much of it is taken.

    Args:
        allow_private_hosts: Hosts, addresses and networks that may be opened although they are private; the forms are
            those of `PrivateHosts`.
        allowed_ports: Ports that may be connected to.
        max_bytes: Content of one answer, unpacked and raw (Gemini CLI's 10 MiB).
        max_ratio: How many times as large as what was sent the content may be, once it is larger than
            `free_bytes`; ordinary text is packed to a tenth, gzip's most is about a thousandth.
        free_bytes: Content below which the ratio does not count.
        max_redirects: Redirects that are followed.
        header_bytes: All headers of one answer together.
        connect_seconds: For each address that is tried, TLS included.
        total_seconds: From the look-up of the name to the last byte, redirects included.
    """

    allow_private_hosts: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = tuple(PORTS.values())
    max_bytes: int = 10 << 20
    max_ratio: int = 200
    free_bytes: int = 1 << 20
    max_redirects: int = 5
    header_bytes: int = 64 << 10
    connect_seconds: float = 8.0
    total_seconds: float = 30.0


class Guard:
    """Finds the addresses of a host, and lets through only what may be connected to.

    Args:
        rules: What may be opened.
        resolver: Finds addresses.
    """

    def __init__(self, rules: WebRules, resolver: Resolver) -> None:
        self._rules = rules
        self._resolver = resolver

    @cached_property
    def _private(self) -> PrivateHosts:
        return PrivateHosts(self._rules.allow_private_hosts)

    async def addresses(self, target: Target, *, is_trusted: bool) -> Sequence[str]:
        """The addresses to connect to, in the order in which they are tried.

        Args:
            target: Where a request goes.
            is_trusted: The operator's settings name it, so neither its port nor its addresses are judged.

        Raises:
            ToolError: `web_refused`: it may not be opened; `web_unreachable`: it has no address.
        """
        if not is_trusted:
            self.check(target)
        found = [target.address] if target.address is not None else await self._look_up(target)
        if not is_trusted and not self._private.opens_name(target.host, target.port):
            # One bad address among good ones is enough: whoever answers with both wants one of them to be taken.
            for address in found:
                self._check_address(target, address)
        return [str(address) for address in found[:MAX_ADDRESSES]]

    def check(self, target: Target) -> None:
        """Judge what can be judged without looking up the name.

        Raises:
            ToolError: `web_refused`.
        """
        if not self._private.opens_name(target.host, target.port):
            if is_closed_name(target.host):
                raise self._refused(target, f"'{target.host}' is a name of a private address")
            if target.address is not None:
                self._check_address(target, target.address)
        self._check_port(target)

    def _check_address(self, target: Target, address: Address) -> None:
        if not is_public(address) and not self._private.opens_address(address, target.port):
            raise self._refused(target, _why(target, address))

    def _is_open_port(self, target: Target) -> bool:
        return target.port in self._rules.allowed_ports or self._private.opens_port(target.host, target.port)

    def _check_port(self, target: Target) -> None:
        if self._is_open_port(target):
            return
        ports = ", ".join(map(str, self._rules.allowed_ports)) or "none"
        raise ToolError(
            ToolErrorType.WEB_REFUSED,
            f"{target.authority} was not opened: port {target.port} is not allowed (allowed: {ports}; the operator's "
            "setting web.allowedPorts adds others).",
        )

    def _refused(self, target: Target, why: str) -> ToolError:
        """Of a private address, with all that would have to be set to open it."""
        entry = f"{f'[{target.host}]' if ':' in target.host else target.host}:{target.port}"
        also = "" if self._is_open_port(target) else f" Its port is not allowed either; the entry '{entry}' opens both."
        return ToolError(ToolErrorType.WEB_REFUSED, f"{target.authority} was not opened: {why}. {_OPENING}{also}")

    async def _look_up(self, target: Target) -> list[Address]:
        try:
            texts = await self._resolver.resolve(target.host, target.port)
        except OSError:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"The address of {target.host} cannot be looked up: no name server answers. Perhaps this machine has "
                "no network.",
            ) from None
        if not texts:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"No address was found for the host {target.host}. Check the spelling of the URL; if it is right, this "
                "machine may have no network.",
            )
        return [ip_address(text) for text in texts]


def _why(target: Target, address: Address) -> str:
    if target.address is not None:
        return f"{address} is not a public address"
    return f"'{target.host}' leads to {address}, which is not a public address"
