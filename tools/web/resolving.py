"""From a host name to its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tools.contract.threads import THREADS


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
