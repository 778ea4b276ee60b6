"""The transports to an upstream: the stdio of a local program, or HTTP."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from server.protocol.json_rpc import Message, fields_of, of_sdk
from server.settings import UpstreamSettings
from server.settings.upstream_entries import ABOVE_VARIABLE, servers_above
from server.upstreams.wire.json_rpc_channel import Credentials, MessageReader, MessageWriter, ProgramEnd
from tools.machine.threads import THREADS

if TYPE_CHECKING:
    from tools.shell.process_spec import ProcessStarter  # imported with the first upstream

INHERITED = (
    "PATH", "HOME", "USER", "LANG", "SHELL", "TERM", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""The environment variables that an upstream's program inherits, in addition to `XDG_*` and those in `inheritEnv`."""

Streams = tuple[MessageReader, MessageWriter]


@dataclass(frozen=True, slots=True)
class Transport:
    """One transport. `open` takes a callback to call if the connection seems to be lost, and the workspace folders."""

    name: str
    open: Callable[[Callable[[], None], Sequence[str]], AbstractAsyncContextManager[Streams]]


def transports_to(
    alias: str,
    entry: UpstreamSettings,
    starter: ProcessStarter,
    on_end: Callable[[ProgramEnd], None] | None = None,
    login: Credentials | None = None,
    *,
    by_proxy: bool = True,
) -> list[Transport]:
    """Return the transports to try, in order: a plain `url` means Streamable HTTP first, then SSE.

    `on_end` is called after a program has ended. Requests to a remote server carry the token of `login`, and go through
    the environment's proxy if `by_proxy` is true.
    """
    if entry.transport == "stdio":
        cwd = os.path.expanduser(entry.cwd or "")

        def start(_: object, folders: Sequence[str]) -> AbstractAsyncContextManager[Streams]:
            # Skip the root of the file system, which a client may report as a folder.
            first = next((folder for folder in folders if folder != os.sep), "")
            return _program(alias, entry, starter, on_end, os.path.join(first, cwd) if first or cwd else None)

        return [Transport("stdio", start)]
    from server.upstreams.wire.http_upstream import CarefulTransport, sse_streams, streamable_streams  # noqa: PLC0415 - imported only for HTTP

    url, headers = entry.endpoint or "", entry.headers
    make_transport = partial(CarefulTransport, login=login, by_proxy=by_proxy)
    http = Transport("http", lambda on_doubt, _: streamable_streams(url, headers, make_transport(on_doubt)))
    sse = Transport("sse", lambda on_doubt, _: sse_streams(url, headers, make_transport(on_doubt)))
    return [transport for transport in (http, sse) if entry.transport in (transport.name, "detect", None)]


@asynccontextmanager
async def _program(
    alias: str,
    entry: UpstreamSettings,
    starter: ProcessStarter,
    on_end: Callable[[ProgramEnd], None] | None,
    folder: str | None,
) -> AsyncGenerator[Streams]:
    environment = {name: os.environ[name] for name in (*INHERITED, *entry.inherit_env) if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    environment[ABOVE_VARIABLE] = str(servers_above(os.environ) + 1)
    environment |= dict(entry.env)
    if sys.platform == "win32":
        from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - imported only on Windows

        # Windows has no broker, so the SDK starts the program.
        with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as working_folder:
            parameters = StdioServerParameters(
                command=entry.command or "",
                args=list(entry.args),
                env=environment,
                cwd=working_folder,
                encoding_error_handler="replace",
            )
            async with stdio_client(parameters, errlog=sys.stderr) as (read_stream, write_stream):
                yield _SdkReader(read_stream), _SdkWriter(write_stream)
        return
    from server.upstreams.wire.stdio_upstream import UpstreamProgram, stdio_streams  # noqa: PLC0415 - imported with the first upstream

    own_folder: PrivateFolders | None = None
    try:
        if folder is None:
            # Do not use this server's working folder: nobody chose it for the program, and it may be a home folder.
            from tools.shell.private_folders import PrivateFolders  # noqa: PLC0415 - needed only without a workspace

            own_folder = PrivateFolders()  # if this server is killed, the next server that starts removes the folder
            folder = await THREADS.run(partial(own_folder.make, "program"))
        program = UpstreamProgram(entry.command or "", tuple(entry.args), folder, environment)
        async with stdio_streams(alias, program, starter, on_end) as streams:
            yield streams
    finally:
        if own_folder is not None:
            with anyio.CancelScope(shield=True):
                await own_folder.aclose()


@dataclass(frozen=True, slots=True)
class _SdkReader:
    stream: Any

    async def listen(self, listener: Callable[[Message], None]) -> None:
        async for item in self.stream:
            if not isinstance(item, Exception):
                listener(of_sdk(item.message))


@dataclass(frozen=True, slots=True)
class _SdkWriter:
    stream: Any
    has_room = False  # the stream accepts one message at a time, so senders may have to wait
    takes_headers = False

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        del headers
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - imported only on Windows
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        await self.stream.send(SessionMessage(jsonrpc_message_adapter.validate_python(fields_of(message))))
