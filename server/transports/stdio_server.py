"""MCP over stdio on the event loop, or in threads if the loop cannot poll a descriptor.

The protocol moves to private descriptors. Descriptor 0 reads the null device, and descriptor 1 goes to standard error,
so that stray output from this process or a child cannot disturb the protocol. After the end of input, pending responses
are still sent if they are ready soon. The end of input may mean that somebody piped requests in, or that the client is
shutting down and waits for this process to exit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

import anyio

from server.protocol.json_rpc import BatchError, error_of, read_of_client, read_unreadable
from server.protocol.request_table import RequestTable
from server.transports import json_lines
from server.transports.dispatcher import Conversation, Dispatcher
from tools.machine.threads import THREADS

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024  # size of one read; a Linux pipe holds 64 kB, a socket more
DRAIN_SECONDS = 10.0  # limit for pending calls after end of input
COMMAND_SECONDS = 1.0
"""The limit for calls that run a program (a command, an agent, a custom tool), which may run indefinitely. The official
SDKs close the input and wait two seconds before they send SIGTERM.
"""
FLUSH_SECONDS = 30.0  # how long a slow reader may take to read pending responses


async def serve_stdio(table: RequestTable, max_message_bytes: int, runs_command: Callable[[str], bool]) -> None:
    """Serve the process's standard input and output until the end of input.

    A line longer than `max_message_bytes` is refused without being kept in memory. `runs_command` returns whether the
    tool with this name runs programs.
    """
    # Move the protocol from the standard descriptors to private ones, which only this transport can use.
    sys.stdout.flush()
    input_descriptor, output_descriptor = _duplicate(0), _duplicate(1)
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    os.close(null_device)
    os.dup2(2, 1)
    wire_class = _Wire if _is_pollable(input_descriptor) and _is_pollable(output_descriptor) else _BlockingWire
    wire = wire_class(input_descriptor, output_descriptor, max_message_bytes, runs_command)
    try:
        wire.resume_reading()
        conversation = Conversation(table, wire.dispatcher)
        try:
            await wire.dispatcher.run(conversation.on_request, conversation.on_notify)
        finally:
            conversation.connection.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await wire.outgoing.empty.wait()
    finally:
        wire.stop()


def _duplicate(descriptor: int) -> int:
    """Duplicate a descriptor to a number above the standard ones. Child processes do not inherit it."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - loaded only on Windows

        copy = os.dup(descriptor)
        msvcrt.setmode(copy, os.O_BINARY)  # otherwise line endings would be translated
        return copy
    import fcntl  # noqa: PLC0415 - loaded only on POSIX

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def _is_pollable(descriptor: int) -> bool:
    """Return whether the event loop can poll a descriptor: a pipe, socket or terminal on POSIX."""
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class _Wire:
    """Moves lines between the descriptors and the dispatcher."""

    def __init__(
        self, input_descriptor: int, output_descriptor: int, max_message_bytes: int, runs_command: Callable[[str], bool]
    ) -> None:
        self._runs_command = runs_command
        self._loop = asyncio.get_running_loop()
        self._input = input_descriptor
        self._output = output_descriptor
        self._splitter = json_lines.LineSplitter(max_message_bytes)
        self.outgoing = json_lines.OutgoingLines(self._schedule_write, json_lines.STDIO_BACKPRESSURE)
        self.dispatcher = Dispatcher(self.outgoing, on_resume=self.resume_reading)
        self._is_reading = False
        self._is_stopped = False
        self._is_write_scheduled = False
        self._is_blocked = False
        self._is_large = False
        self._finish_task: asyncio.Task[None] | None = None
        self._was_blocking = self._set_nonblocking()

    def _set_nonblocking(self) -> tuple[bool, ...]:
        if sys.platform == "win32":
            return ()  # Windows uses `_BlockingWire`
        was_blocking = os.get_blocking(self._input), os.get_blocking(self._output)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        return was_blocking

    def stop(self) -> None:
        self._is_stopped = True
        self._stop_reading()
        self._loop.remove_writer(self._output)
        if self._finish_task is not None:
            self._finish_task.cancel()
        if sys.platform == "win32":
            return
        # Restore the mode, because the descriptors may be shared with a shell that outlives this process.
        for descriptor, was_blocking in zip((self._input, self._output), self._was_blocking, strict=True):
            with suppress(OSError):
                os.set_blocking(descriptor, was_blocking)

    def resume_reading(self) -> None:
        if not (self._is_reading or self._is_stopped or self.dispatcher.is_full) and self._finish_task is None:
            self._is_reading = True
            self._start_reading()

    def _start_reading(self) -> None:
        self._loop.add_reader(self._input, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._input)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._input, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except MemoryError:
            self._stop_reading()
            self._loop.call_later(json_lines.NO_MEMORY_PAUSE_SECONDS, self.resume_reading)
            return
        except OSError:
            data = b""
        self._on_data(data)

    def _on_data(self, data: bytes) -> None:
        """Process input. Empty `data` means the end of input."""
        for line in self._splitter.feed(data or b"\n"):  # the last line may lack a line ending
            try:
                message = read_of_client(line, takes_batches=self.dispatcher.takes_batches)
            except BatchError as error:
                self.dispatcher.refuse(error_of(None, str(error)))
            except ValueError:
                self._handle_unreadable(line)
            else:
                self.dispatcher.receive(message, line)
        while self._splitter.oversized:
            ends = self._splitter.oversized.pop(0)
            self.dispatcher.refuse(json_lines.refusal_of_oversized(ends, self._splitter.max_bytes))
        if not data:
            self._finish_task = self._loop.create_task(
                self.dispatcher.finish(self._seconds_for, self._is_read), name="end of standard input"
            )
        if not data or self.dispatcher.is_full:
            self._stop_reading()

    def _handle_unreadable(self, line: bytes) -> None:
        refusal = json_lines.refusal_of_unreadable(line)
        if refusal is not None:
            self.dispatcher.refuse(refusal)
            return
        unreadable = None
        with suppress(ValueError):
            unreadable = read_unreadable(line)
        if unreadable is None:
            logger.warning("dropped a line that is not a JSON-RPC message")
        else:
            self.dispatcher.fail_question(unreadable.identity)

    def _seconds_for(self, tool: object) -> float:
        """Return how long a tool call may still take after the end of input."""
        return COMMAND_SECONDS if isinstance(tool, str) and self._runs_command(tool) else DRAIN_SECONDS

    def _is_read(self) -> bool:
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._output, 0)
        return not any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))

    def _schedule_write(self) -> None:
        if self._is_write_scheduled:
            return
        if not self.dispatcher.unanswered:  # no other response will be sent soon, so write now
            self._write()
            return
        self._is_write_scheduled = True  # use one write for all responses of this loop iteration
        self._loop.call_soon(self._write)

    def _write(self) -> None:
        if sys.platform == "win32":
            return
        self._is_write_scheduled = False
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._output)
        try:
            while pieces := self.outgoing.next_pieces():
                self.outgoing.written(os.writev(self._output, pieces))
            if self.dispatcher.waiting:
                self.dispatcher.start_waiting()
            if not self._is_reading:
                self.resume_reading()
        except (BlockingIOError, InterruptedError):
            self._is_write_scheduled = self._is_blocked = True
            if self.outgoing.size > json_lines.USUAL_PIPE_BYTES and not self._is_large:
                self._is_large = True
                json_lines.enlarge(self._output)
            self._loop.add_writer(self._output, self._write)
        except OSError:  # the client is gone
            self.outgoing.close()
            self._is_stopped = True
            self._stop_reading()
            self.dispatcher.end()


class _BlockingWire(_Wire):
    """A wire that uses threads, because the event loop cannot poll a file or, on Windows, any standard descriptor."""

    _read_task: asyncio.Task[None] | None = None
    _write_task: asyncio.Task[None] | None = None

    def _set_nonblocking(self) -> tuple[bool, ...]:
        return ()

    def stop(self) -> None:
        self._is_stopped = True
        for task in (self._finish_task, self._read_task, self._write_task):
            if task is not None:
                task.cancel()

    def _start_reading(self) -> None:
        self._read_task = self._loop.create_task(self._read())

    def _stop_reading(self) -> None:
        self._is_reading = False

    async def _read(self) -> None:
        while self._is_reading:
            try:
                data = await THREADS.run(lambda: os.read(self._input, READ_BYTES))
            except OSError:
                data = b""
            self._on_data(data)

    def _schedule_write(self) -> None:
        if not self._is_write_scheduled:
            self._is_write_scheduled = True
            self._write_task = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while pieces := self.outgoing.next_pieces():
                data = bytes(pieces[0])
                self.outgoing.written(await THREADS.run(lambda data=data: os.write(self._output, data)))
                self.dispatcher.start_waiting()
                self.resume_reading()
        except OSError:
            self.outgoing.close()
            self._is_stopped = True
            self.dispatcher.end()
        finally:
            self._is_write_scheduled = False
