"""The redirect address on this machine for an authorization server (RFC 8252, 7.3).

The address has a fixed port, because some authorization servers compare it with the registered address. Only the
process that logs in listens on the port: the system gives the port to no other process, and frees it if that process is
killed. Other processes ask the listening process which logins are open, and wait for the tokens from those logins.
"""

from __future__ import annotations

import asyncio
import errno
import html
import json
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

import anyio

from server.protocol.json_rpc import as_list, as_mapping

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"  # not `localhost`, which some systems resolve to another address first (RFC 8252, 8.3)
CALLBACK = "/callback"
OPEN_LOGINS = "/coretools-mcp-logins"  # where other processes learn which logins are open
REQUEST_BYTES = 1 << 16  # maximum size of one request with its headers; an authorization code takes a few hundred bytes
REQUEST_SECONDS = 10.0  # time limit for receiving a request, because browsers open connections that they never use
PAGE_SECONDS = 40.0  # how long a browser waits for the login to finish, which takes two requests
MAX_PARAMETERS = 50
MAX_CONNECTIONS = 32

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Connection": "close",
}
NOT_OPEN = "This page does not belong to an open login: the login was completed or has timed out."


class PortTakenError(Exception):
    """Another process has the port, or this user may not listen on it.

    `logins` are the logins that are open in the other process; `None` if it does not tell which are open.
    """

    def __init__(self, logins: frozenset[str] | None) -> None:
        super().__init__("the callback port is in use")
        self.logins = logins


@dataclass(eq=False, slots=True)
class Redirect:
    """The redirect that a login is waiting for."""

    login: str  # identifies the login to other processes
    url: str  # the address of the authorization server
    alias: str
    principal: str  # empty if all clients share the login
    readable_name: str = ""  # the display name of the principal
    # The redirect's parameters, including the code
    parameters: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    page: str = "The login is not finished."  # the text that the browser finally shows
    is_over: anyio.Event = field(default_factory=anyio.Event)
    is_shown: anyio.Event = field(default_factory=anyio.Event)  # set once the page has been sent

    async def take(self, parameters: dict[str, str]) -> str:
        """Accept the redirect, and return the text for the browser once the login is over."""
        self.parameters = parameters
        self.arrived.set()
        with anyio.move_on_after(PAGE_SECONDS):
            await self.is_over.wait()
        return self.page


class CallbackListener:
    """Receives redirects and assigns them to logins by their secret `state`. A process has one listener per port."""

    _open: ClassVar[dict[int, CallbackListener]] = {}

    state_prefix = ""  # a prefix of `state` is only needed for the pages of replicas

    def __init__(self, port: int) -> None:
        self.uri = f"http://{HOST}:{port}{CALLBACK}"
        self._port = port
        self._users = 0
        self._redirects: dict[str, Redirect] = {}
        self._connections = 0
        self._server: asyncio.Server | None = None

    @classmethod
    @asynccontextmanager
    async def at(cls, port: int) -> AsyncGenerator[CallbackListener]:
        """Listen on a port, which all logins of this process share.

        Raises a `PortTakenError` if another process has the port, or this user may not listen on it.
        """
        listening_socket: socket.socket | None = None
        listener = cls._open.get(port)
        if listener is None:
            try:
                listening_socket = _listening_socket(port)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                raise PortTakenError(await _logins_at(port)) from None
            listener = cls._open[port] = cls(port)  # before any other task runs, so that other logins share it
        listener._users += 1
        try:
            if listening_socket is not None:
                with anyio.CancelScope(shield=True):  # otherwise a started server might never be closed
                    listener._server = await asyncio.start_server(
                        listener._answer, sock=listening_socket, limit=REQUEST_BYTES
                    )
            yield listener
        finally:
            listener._users -= 1
            if not listener._users:
                del cls._open[port]
                if listener._server is not None:
                    listener._server.close()

    @asynccontextmanager
    async def expect(self, redirect: Redirect, state: str) -> AsyncGenerator[Callable[[], str]]:
        """Accept one redirect, by its secret `state`. Yields a function that returns the address that starts the login.

        When the context exits, a browser that has been redirected receives a page with the text in `redirect.page`.
        """
        self._redirects[state] = redirect
        try:
            yield lambda: redirect.url
        finally:
            self._redirects.pop(state, None)
            redirect.is_over.set()
            if redirect.arrived.is_set():
                with anyio.move_on_after(1, shield=True):  # let the page be sent before the port closes
                    await redirect.is_shown.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            with anyio.move_on_after(REQUEST_SECONDS + PAGE_SECONDS):
                status, kind, text, redirect = await self._answer_to(reader)
                body = text.encode()
                fields = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **HEADERS}
                head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
                await writer.drain()
                if redirect is not None:
                    redirect.is_shown.set()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            logger.info("a connection to the callback port failed")
        finally:
            self._connections -= 1
            writer.close()

    async def _answer_to(self, reader: asyncio.StreamReader) -> tuple[str, str, str, Redirect | None]:
        """Return the status, content type and text of a response, and the redirect that was received, if any."""
        if self._connections > MAX_CONNECTIONS:
            return "503 Service Unavailable", "text/plain", "Too many connections.", None
        with anyio.fail_after(REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, *_ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        parts = urlsplit(target)
        if method != "GET":
            return "405 Method Not Allowed", "text/plain", "Only GET is supported.", None
        # Checking `Host` prevents DNS rebinding: a rebound request contains the website's host name, not this address.
        if parts.path == OPEN_LOGINS and f"\r\nhost: {HOST}:{self._port}\r\n".encode() in head.lower():
            logins = sorted(redirect.login for redirect in self._redirects.values())
            return "200 OK", "application/json", json.dumps({"coretoolsLogins": logins}), None
        if parts.path != CALLBACK:
            return "404 Not Found", "text/plain", "There is nothing at this address.", None
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
        redirect = self._redirects.pop(parameters.get("state", ""), None)
        if redirect is None:
            return "400 Bad Request", "text/html", page(NOT_OPEN), None
        return "200 OK", "text/html", page(await redirect.take(parameters)), redirect


def _listening_socket(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # keeps other processes off the port
        else:
            # Without this option, closed connections would block the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def _logins_at(port: int) -> frozenset[str] | None:
    """Return the open logins of the process that listens on a port; `None` if it does not return them."""
    with suppress(OSError, ValueError, RecursionError), anyio.fail_after(2):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(f"GET {OPEN_LOGINS} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
            reply = await reader.read(REQUEST_BYTES)
        finally:
            writer.close()
        logins = as_mapping(json.loads(reply.partition(b"\r\n\r\n")[2])).get("coretoolsLogins")
        return frozenset(map(str, as_list(logins))) if isinstance(logins, list) else None
    return None


def page(text: str, form: str = "") -> str:
    """Return an HTML page with `text`, which is escaped, and `form`, which is already HTML."""
    style = (
        ":root{color-scheme:light dark}"
        "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:min(4rem,8vw) auto;padding:0 1rem;"
        "overflow-wrap:anywhere}"
        "dt{font-weight:bold}dd{margin:0 0 .75rem}"
        "button{font:inherit;font-weight:bold;padding:.6rem 1.2rem;overflow-wrap:anywhere}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>coretools-mcp</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style>'
        f"<main><h1>coretools-mcp</h1><p>{html.escape(text)}</p>{form}</main></html>"
    )
