"""The address that HTTP transports listen on: bound before anything else starts, loopback only."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How to listen.

    Args:
        host: A loopback name or address.
        port: The port, 0 for any free one.
        allowed_hosts: Host header values accepted beside the loopback ones.
        allowed_origins: Origin header values accepted beside the loopback ones.
        max_body_bytes: A larger request body is answered with 413.
        session_idle_seconds: A session without requests is forgotten after this.
        with_streamable: Serve `/mcp` too, not only SSE.
    """

    host: str
    port: int
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    max_body_bytes: int
    session_idle_seconds: float
    with_streamable: bool = True


def open_socket(options: HttpOptions) -> socket.socket:
    """Bind before anything else starts, so that a port in use is told in a sentence.

    Raises:
        ListenError: The address is not a loopback one, is in use, or cannot be bound.
    """
    if options.host not in LOOPBACK_HOSTS:
        raise ListenError(
            f"--host '{options.host}' is refused: there is no authentication, so only loopback addresses are served. "
            "Use 127.0.0.1 and reach it through a tunnel or a proxy that authenticates."
        )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        # From here on connections wait in the queue, so the address can be announced.
        listener.listen()
    except OSError as error:
        listener.close()
        why = "the port is in use" if error.errno == errno.EADDRINUSE else f"the system refused ({error.errno})"
        raise ListenError(
            f"Cannot listen on {options.host}:{options.port}: {why}. Choose another one with --port, or 0 for any."
        ) from None
    return listener
