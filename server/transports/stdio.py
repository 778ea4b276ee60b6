"""MCP over standard input and output, on the event loop: no thread, no hop for each line.

The wire is moved to private descriptors; what remains at 0 is empty and what remains at 1 goes to standard error,
so that no stray output of ours or of a child can reach the protocol. At the end of input the answers that are owed
are still sent, as far as they come soon: the end may mean that somebody piped requests in, or that the client is going
and waits for us. Where standard input is neither a pipe, a socket nor a terminal, the SDK's transport serves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data, serve_one
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from server.json_rpc import Json, read_message, read_unreadable
from server.transports import lines
from server.transports.request_dispatcher import WireDispatcher

logger = logging.getLogger(__name__)

Params = Mapping[str, Any] | None
Incoming = DispatchContext[TransportContext]
MOST_EARLY = 8  # notifications before the first request that are kept for it (the SDK's number)


class _Client:
    """The client, whose first request says how it speaks."""

    def __init__(self, server: Server[Any], dispatcher: WireDispatcher, state: Any) -> None:
        self.connection = Connection.for_loop(dispatcher)
        self._server = server
        self._dispatcher = dispatcher
        self._state = state
        self._handshake = ServerRunner(
            server, self.connection, state, init_options=server.create_initialization_options()
        )
        self._notified_only = NotifyOnlyOutbound(dispatcher)
        self._is_modern: bool | None = None
        self._early: list[tuple[Incoming, str, Params]] = []

    async def on_request(self, incoming: Incoming, method: str, params: Params) -> Json:
        # Whether it says of itself that it is of the revision without a handshake.
        meta = None if method == "initialize" or params is None else params.get("_meta")
        has_envelope = meta is not None and isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
        if self._is_modern is None:
            self._is_modern = has_envelope
            self._dispatcher.may_ask = not self._is_modern
            early, self._early = self._early, []
            for notification in early:
                await self.on_notify(*notification)
        if self._is_modern:
            return await self._answer_modern(incoming, method, params)
        if has_envelope:
            message = "This connection was opened with the handshake, so requests of 2026-07-28 are not taken on it."
            raise MCPError(types.INVALID_REQUEST, message)
        return await self._handshake.on_request(incoming, method, params)

    async def _answer_modern(self, incoming: Incoming, method: str, params: Params) -> Json:
        if method == "initialize":
            message = "This connection speaks 2026-07-28, which has no initialize."
            asked = (params or {}).get("protocolVersion")
            data: Json = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
            if isinstance(asked, str):
                data["requested"] = asked
            raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, message, data)
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._notified_only
        )
        try:
            return await serve_one(
                self._server, incoming, method, params, connection=connection, lifespan_state=self._state
            )
        except (MCPError, ValidationError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to the wire
            told = modern_error_data(error)
            raise MCPError(told.code, told.message, told.data) from None

    async def on_notify(self, incoming: Incoming, method: str, params: Params) -> None:
        if self._is_modern is None:
            if len(self._early) < MOST_EARLY:
                self._early.append((incoming, method, params))
        elif self._is_modern:
            connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._notified_only)
            try:
                await ServerRunner(self._server, connection, self._state).on_notify(incoming, method, params)
            finally:
                await aclose_shielded(connection)
        else:
            await self._handshake.on_notify(incoming, method, params)


READ_BYTES = 256 * 1024  # what is read from the pipe at once; a pipe of Linux holds 64 kB, a socket more
DRAIN_SECONDS = 10.0  # how long, after the end of input, calls that were begun may still take to be answered
COMMAND_SECONDS = 1.0
"""The same for those that run a program: a command, an agent, a custom tool. It may take any time and change anything.
Clients that close our input wait two seconds for our end before they send SIGTERM (the official SDKs)."""
FLUSH_SECONDS = 30.0  # how long a slow reader may take for answers that are there


async def serve_stdio(server: Server[Any], max_message_bytes: int, runs_command: Callable[[str], bool]) -> None:
    """Serve the process's standard input and output until its end.

    A line that is longer than `max_message_bytes` is refused and dropped, never held in memory. `runs_command` tells
    of a tool, by its name, whether it runs programs.
    """
    if sys.platform == "win32" or not (_is_pollable(0) and _is_pollable(1)):
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
        return
    import fcntl  # noqa: PLC0415 - POSIX only, like the rest of this path

    # The wire leaves the standard descriptors; nothing but this transport can reach it then.
    sys.stdout.flush()
    reading = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    writing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    blocking = os.get_blocking(reading), os.get_blocking(writing)
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    wire = _Wire(reading, writing, max_message_bytes, runs_command)
    try:
        wire.resume_reading()
        async with server.lifespan(server) as state:
            client = _Client(server, wire.dispatcher, state)
            try:
                await wire.dispatcher.run(client.on_request, client.on_notify)
            finally:
                await aclose_shielded(client.connection)
        with anyio.move_on_after(FLUSH_SECONDS):
            await wire.outgoing.wait_empty()
    finally:
        wire.stop()
        # The descriptors may be shared with a shell that goes on after us.
        for descriptor, was_blocking in zip((reading, writing), blocking, strict=True):
            with suppress(OSError):
                os.set_blocking(descriptor, was_blocking)


def _is_pollable(descriptor: int) -> bool:
    """Whether the event loop can wait for it: a pipe, a socket or a terminal on a POSIX system."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class _Wire:
    """Moves lines between the descriptors and the dispatcher."""

    def __init__(self, reading: int, writing: int, max_message_bytes: int, runs_command: Callable[[str], bool]) -> None:
        self._runs_command = runs_command
        self._loop = asyncio.get_running_loop()
        self._reading = reading
        self._writing = writing
        self._splitter = lines.LineSplitter(max_message_bytes)
        self.outgoing = lines.OutgoingLines(self._schedule_write, lines.STDIO_BACKPRESSURE)
        self.dispatcher = WireDispatcher(self.outgoing, on_room=self.resume_reading)
        self._is_reading = False
        self._is_stopped = False
        self._is_write_scheduled = False
        self._is_blocked = False
        self._is_large = False
        self._end: asyncio.Task[None] | None = None

    def stop(self) -> None:
        self._is_stopped = True
        self._stop_reading()
        self._loop.remove_writer(self._writing)
        if self._end is not None:
            self._end.cancel()

    def resume_reading(self) -> None:
        """Read on, unless no more is taken in for now."""
        if not (self._is_reading or self._is_stopped or self.dispatcher.is_full) and self._end is None:
            self._is_reading = True
            self._loop.add_reader(self._reading, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._reading)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._reading, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._stop_reading()
            self._end = self._loop.create_task(self._finish(), name="end of standard input")
            return
        self._take(data)
        if self.dispatcher.is_full:
            self._stop_reading()

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            try:
                message = read_message(line, is_of_client=True)
            except ValueError:
                self._take_unreadable(line)
            else:
                self.dispatcher.receive(message, line)
        while self._splitter.oversized:
            self.dispatcher.refuse(
                lines.refusal_of_oversized(self._splitter.oversized.pop(0), self._splitter.max_bytes)
            )

    def _take_unreadable(self, line: bytes) -> None:
        refusal = lines.refusal_of_unreadable(line)
        if refusal is not None:
            self.dispatcher.refuse(refusal)
            return
        try:
            unreadable = read_unreadable(line)
        except ValueError:
            unreadable = None
        if unreadable is None:
            logger.warning("dropped a line that is not a JSON-RPC message")
        else:
            self.dispatcher.fail_question(unreadable.identity)

    async def _finish(self) -> None:
        """After the end of input."""
        self._take(b"\n")  # the last line may lack its end
        await self.dispatcher.finish(
            lambda tool: COMMAND_SECONDS if isinstance(tool, str) and self._runs_command(tool) else DRAIN_SECONDS,
            self._is_read,
        )

    def _is_read(self) -> bool:
        """Whether anybody still reads the answers."""
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._writing, 0)
        return not any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))

    def _schedule_write(self) -> None:
        if self._is_write_scheduled:
            return
        if not self.dispatcher.owed:  # what is sent now is all that will be for a while
            self._write()
            return
        # One write for all answers of this turn of the loop.
        self._is_write_scheduled = True
        self._loop.call_soon(self._write)

    def _write(self) -> None:
        if sys.platform == "win32":
            return  # the SDK's transport serves there
        self._is_write_scheduled = False
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._writing)
        try:
            while pieces := self.outgoing.next_pieces():
                self.outgoing.written(os.writev(self._writing, pieces))
            if self.dispatcher.waiting:
                self.dispatcher.go_on()
            if not self._is_reading:
                self.resume_reading()
        except (BlockingIOError, InterruptedError):
            self._is_write_scheduled = self._is_blocked = True
            if self.outgoing.size > lines.USUAL_PIPE_BYTES and not self._is_large:
                self._is_large = True
                lines.enlarge(self._writing)
            self._loop.add_writer(self._writing, self._write)
        except OSError:
            # Nobody reads any more: the client is gone.
            self.outgoing.close()
            self._is_stopped = True
            self._stop_reading()
            self.dispatcher.end()
