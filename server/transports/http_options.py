"""How the HTTP transports listen: the address, which is bound before anything else starts, and TLS."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.settings.server_models import HttpSettings
from server.transports.configured_secrets import MAKE_ONE, VARIABLE, Tokens

if TYPE_CHECKING:
    from server.transports.issuer import Issuer

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class ListenError(Exception):
    """The server cannot listen on the address; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    http: HttpSettings
    max_body_bytes: int  # a larger request body gets the response 413
    tokens: Tokens  # accepted tokens; if there are no tokens and no issuer, every client on this machine is accepted
    with_streamable: bool = True  # whether to serve `/mcp` in addition to SSE
    issuer: Issuer | None = None  # checks the access tokens of an authorization server, which are also accepted

    @property
    def needs_token(self) -> bool:
        return bool(self.tokens) or self.issuer is not None

    @property
    def host_in_urls(self) -> str:
        return f"[{self.http.host}]" if ":" in self.http.host else self.http.host


def open_socket(options: HttpOptions) -> socket.socket:
    """Bind the socket before anything else starts, so that problems are reported early.

    Raises:
        ListenError: The port or the certificate cannot be used, or the address needs a token and there is none.
    """
    http = options.http
    if not (http.is_loopback or options.needs_token):
        raise ListenError(
            f"--host '{http.host}' is refused: other machines could reach it, and without a token anybody could run "
            f"tools here. Set {VARIABLE} to a token ({MAKE_ONE}), or configure http.tokens or "
            "http.oauth, preferably with --tls-cert and --tls-key too; or use 127.0.0.1."
        )
    if http.tls_cert is None and http.tls_key is not None:
        raise ListenError("--tls-key needs --tls-cert: name the certificate too.")
    if http.tls_cert is not None:
        for path in filter(None, (http.tls_cert, http.tls_key)):
            if not os.path.isfile(path):
                raise ListenError(f"There is no file '{path}' (--tls-cert, --tls-key). Name PEM files that exist.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An empty password avoids a prompt in the terminal during startup.
            context.load_cert_chain(http.tls_cert, http.tls_key, lambda: b"")
        except (OSError, ValueError):
            raise ListenError(
                f"The certificate '{http.tls_cert}' cannot be used with its key: they must be PEM files that "
                "belong together, and the key must have no password."
            ) from None
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    # With an explicit protocol, asyncio sets TCP_NODELAY; otherwise a response waits 40 ms for the other side.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows, with this option another program could listen on the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((http.host, http.port))
        # From now on, connections are queued, so the address can be announced.
        listener.listen()
    except (OSError, TypeError) as error:
        listener.close()
        # Python raises a `TypeError` for a host name that cannot be encoded.
        if isinstance(error, TypeError | socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            reason = "this machine has no such address. Name one of its addresses with --host, such as 127.0.0.1"
        else:
            reason = "the port is in use" if error.errno == errno.EADDRINUSE else f"the system refused ({error.errno})"
            reason += ". Choose another port with --port, or 0 for any free one"
        raise ListenError(f"Cannot listen on {options.host_in_urls}:{http.port}: {reason}.") from None
    return listener
