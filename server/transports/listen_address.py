"""What the HTTP transports listen on: the address and the certificate, bound before anything else starts."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from server.transports.bearer_tokens import MAKE_ONE, VARIABLE, Tokens

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How to listen."""

    host: str  # a name or an address of this machine
    port: int  # the port, 0 for any free one
    allowed_hosts: Sequence[str]  # host header values accepted beside the loopback ones
    allowed_origins: Sequence[str]  # origin header values accepted beside the loopback ones
    max_body_bytes: int  # a larger request body is answered with 413
    session_idle_seconds: float  # a session without requests is forgotten after this
    tokens: Tokens  # who is let in; empty lets everybody in who can reach a loopback address
    certificate: str | None = None  # a file with the certificate for TLS, and those above it; `None` for plain HTTP
    private_key: str | None = None  # the file with its key; `None` where that stands in the same file
    with_streamable: bool = True  # serve `/mcp` too, not only SSE

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK_HOSTS

    @property
    def origin(self) -> str:
        """The address as the beginning of a URL, without the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}"


def open_socket(options: HttpOptions) -> socket.socket:
    """Bind before anything else starts, so that a port in use, or a missing token, is told by a `ListenError`."""
    if not (options.is_loopback or options.tokens):
        raise ListenError(
            f"--host '{options.host}' is refused: other machines could reach it, and there is no token, so anybody "
            f"could run tools here. Set the variable {VARIABLE} to a token ({MAKE_ONE}) or "
            "name tokens in http.tokens, better with --tls-cert and --tls-key too; or use 127.0.0.1."
        )
    if options.certificate is None and options.private_key is not None:
        raise ListenError("--tls-key is given without --tls-cert: name the certificate too.")
    if options.certificate is not None:
        for path in filter(None, (options.certificate, options.private_key)):
            if not os.path.isfile(path):
                raise ListenError(f"There is no file '{path}' (--tls-cert, --tls-key). Name PEM files that exist.")
        import ssl  # noqa: PLC0415 - only with a certificate

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # A key behind a password would be asked for at the terminal, in the middle of a start.
            context.load_cert_chain(options.certificate, options.private_key, lambda: b"")
        except (OSError, ValueError):
            raise ListenError(
                f"The certificate '{options.certificate}' cannot be used with its key: they must be PEM files that "
                "belong together, and the key must have no password."
            ) from None
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named asyncio sends small writes at once; else an answer waits 40 ms for the other system.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
