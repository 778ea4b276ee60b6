"""Upstreams over stdio: programs that the broker starts, so that none of their processes outlive this server.

Shutdown follows the specification: this server closes the upstream's input, then asks it to exit, then kills it.
Everything that the upstream started is killed too. If this server is killed, the broker stops these processes.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shutil
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from pydantic_core import to_json

from server.protocol.json_rpc import Message, fields_of, read_message
from server.transports.json_lines import (
    INBOX_MESSAGES,
    NO_MEMORY_PAUSE_SECONDS,
    PIPE_BYTES,
    STDIO_BACKPRESSURE,
    USUAL_PIPE_BYTES,
    Backpressure,
    LineSplitter,
    OutgoingLines,
    enlarge,
)
from server.upstreams.wire.json_rpc_channel import MESSAGE_BYTES, Inbox, ProgramEnd, failure_for_ends, messages_in
from server.upstreams.wire.rate_window import RateWindow
from tools.machine.threads import THREADS
from tools.shell.process_spec import Process, ProcessSpec, ProcessStarter, ResourceLimits, StartFailedError
from tools.shell.program_output import plain_text

if sys.platform == "win32":
    raise ImportError("Windows uses the SDK's transport")

logger = logging.getLogger(__name__)
# At any log level, show the lines that people would see if they ran the upstream themselves.
logger.setLevel(logging.INFO)

LOG_LINE_BYTES = 1 << 14  # maximum number of bytes of a line that are examined for the log
LOG_LINE_CHARS = 2_000  # maximum length of a line in the log
LAST_LINES = 5  # lines of a program's output kept to explain its exit
LOG_LINES_PER_SECOND = 200  # lines shown per second, enough for a traceback; further lines are only counted

# Pause between two chunks that are not shown, which limits a flood to a few megabytes per second
FULL_LOG_PAUSE_SECONDS = 0.01
# If handling one read takes longer, as with very many short lines, reading pauses for as long as the handling took
TURN_SECONDS = 0.005
# Bytes per read, once one read has returned the initial maximum, `USUAL_PIPE_BYTES`
LARGE_READ_BYTES = 1 << 18
WAITING_BYTES = 4 << 20  # bytes of queued messages before reading pauses

# How long to wait for an upstream to read what was sent, before closing its input. This value, `LEAVING_SECONDS` and
# `GRACE_SECONDS` are the same as in the SDK.
FLUSH_SECONDS = 0.5
ENDED_SECONDS = 0.2  # how long to wait for the exit status of a program that has closed its output or input
LEAVING_SECONDS = 2.0  # time limit for an upstream to exit after its input is closed
GRACE_SECONDS = 2.0  # time limit for an upstream and its children to exit after SIGTERM, before they are killed

_NOT_A_MESSAGE = "wrote something other than a JSON-RPC message to standard output: "


class StderrLog:
    """Writes an upstream's lines to the log, with a limit on the number of lines per second."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._log = logging.LoggerAdapter(logger, {"upstream": alias})
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.window = RateWindow(LOG_LINES_PER_SECOND, self._log_hidden)

    def add(self, line: bytes, prefix: str = "") -> None:
        if not self.window.admits():
            return
        text = plain_text(line[:LOG_LINE_BYTES])
        is_cut = len(text) > LOG_LINE_CHARS or len(line) > LOG_LINE_BYTES
        visible_text = (f"{text[:LOG_LINE_CHARS]} [...]" if is_cut else text).replace("\n", " ")
        self.last.append(visible_text)
        self._log.info("upstream %s: %s%s", self._alias, prefix, visible_text)

    def _log_hidden(self, count: int) -> None:
        self._log.info("upstream %s: %d further line(s) not shown", self._alias, count)


class PipeReader:
    """Reads a non-blocking pipe into the log, but does not close it. Keeps both ends of lines over `line_bytes`."""

    def __init__(self, descriptor: int, log: StderrLog, line_bytes: int = LOG_LINE_BYTES) -> None:
        self.log = log
        self.is_ended = False
        self.is_unwanted = False  # whether data is read and dropped
        self.descriptor = descriptor
        self.read_bytes = USUAL_PIPE_BYTES
        self.loop = asyncio.get_running_loop()
        self._splitter = LineSplitter(line_bytes)
        self._is_reading = False
        self.resume()

    def resume(self) -> None:
        if not (self._is_reading or self.is_ended):
            self._is_reading = True
            self.loop.add_reader(self.descriptor, self.on_readable)

    def pause(self, seconds: float | None = None) -> None:
        """Pause reading for `seconds`; if `seconds` is `None`, until `resume` is called."""
        if self._is_reading:
            self._is_reading = False
            self.loop.remove_reader(self.descriptor)
        if seconds is not None:
            self.loop.call_later(seconds, self.resume)

    def on_readable(self) -> None:
        self.read()
        if self.log.window.is_full and not self.is_ended:
            self.pause(FULL_LOG_PAUSE_SECONDS)

    def read(self) -> bytes:
        """Read once, and return the data; empty if there is no data yet, or at the end."""
        if self.is_ended:
            return b""
        try:
            data = os.read(self.descriptor, self.read_bytes)
        except (BlockingIOError, InterruptedError):
            return b""
        except MemoryError:
            self.pause(NO_MEMORY_PAUSE_SECONDS)
            return b""
        except OSError:
            data = b""
        if data:
            self.take(data)
        else:
            self.end()
        return data

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.pause()
            self.take(b"\n")  # the last line may lack a line ending

    def take(self, data: bytes) -> None:
        if self.is_unwanted:
            return
        for line in self._splitter.feed(data):
            self.take_line(line)
        while self._splitter.oversized:
            self.take_oversized(self._splitter.oversized.pop(0))

    def take_line(self, line: bytes) -> None:
        self.log.add(line)

    def take_oversized(self, ends: bytes) -> None:
        """Handle the beginning and the end of an oversized line."""
        self.take_line(ends)


class StdoutReader(PipeReader):
    """Reads messages from an upstream's standard output; anything else goes to the log."""

    def __init__(self, descriptor: int, log: StderrLog) -> None:
        self.inbox = Inbox(on_empty=self.resume)
        super().__init__(descriptor, log, MESSAGE_BYTES)

    def finish(self) -> None:
        """Read what the upstream has already sent, after it has exited or closed its input."""
        for _ in range(PIPE_BYTES // USUAL_PIPE_BYTES):
            if not self.read():
                break
        if not self.is_ended:
            self.take(b"\n")
            self.discard()

    def discard(self) -> None:
        """Drop further messages, but continue reading, because an upstream that cannot write does not exit."""
        self.is_unwanted = True
        self.inbox.close()
        self.resume()

    def end(self) -> None:
        """Stop reading; the session is notified after it has processed the queued messages."""
        super().end()
        self.inbox.close()

    def on_readable(self) -> None:
        """Read a chunk, unless queued messages must be processed first."""
        if STDIO_BACKPRESSURE.is_full and not self.is_unwanted:
            self.pause()
            STDIO_BACKPRESSURE.when_free(self.resume)
            return
        began = self.loop.time()
        data = self.read()
        elapsed = self.loop.time() - began
        if len(data) == self.read_bytes == USUAL_PIPE_BYTES:
            self.read_bytes = LARGE_READ_BYTES
            enlarge(self.descriptor)
        if not self.is_unwanted and (self.inbox.count >= INBOX_MESSAGES or self.inbox.size > WAITING_BYTES):
            self.pause()
        elif elapsed > TURN_SECONDS and not self.is_ended:
            # Give other tasks as much time as this iteration took.
            self.pause(elapsed)

    def take_line(self, line: bytes) -> None:
        """Handle a message; invalid UTF-8 in it is replaced."""
        line = line.removeprefix(codecs.BOM_UTF8)
        beginning = line.lstrip()[:1]
        if beginning == b"{":
            try:
                message = read_message(line)
            except ValueError:
                pass
            else:
                self.inbox.put(message, len(line))
                return
        elif beginning != b"[":
            self.log.add(line, _NOT_A_MESSAGE)
            return
        messages, is_valid = messages_in(line.decode("utf-8", "replace"), line)
        if not is_valid:
            self.log.add(line, _NOT_A_MESSAGE)
        for message in messages:
            self.inbox.put(message, len(line) // len(messages) if is_valid else 0)

    def take_oversized(self, ends: bytes) -> None:
        self.log.add(ends, f"wrote a line of more than {MESSAGE_BYTES} bytes, which was rejected: ")
        if (failure := failure_for_ends(ends)) is not None:
            self.inbox.put(failure)


class StdinWriter:
    """Writes messages to an upstream's standard input. `on_lost` is called when the upstream has closed its input."""

    takes_headers = False

    def __init__(self, descriptor: int, on_lost: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._backpressure = Backpressure()
        self._lines = OutgoingLines(self._write, self._backpressure)
        self._is_waiting = False
        self._is_read = True

    @property
    def has_room(self) -> bool:
        return not self._backpressure.is_full

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Wait until the queue of unwritten data is short enough, then send a message."""
        del headers  # a pipe has no headers
        if self._backpressure.is_full:
            await self._backpressure.wait()
        if not self._is_read:
            raise anyio.BrokenResourceError
        self._lines.put(to_json(fields_of(message), inf_nan_mode="null"))

    async def flush(self) -> None:
        await self._lines.empty.wait()

    def close(self) -> None:
        """Close the descriptor, so that the upstream reaches the end of its input."""
        self._stop()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        """Write as much of the next pieces as the pipe accepts; the rest is written when the pipe has room."""
        try:
            self._lines.written(os.writev(self._descriptor, self._lines.next_pieces()))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._stop()
            self._on_lost()
            return
        if self._lines.size and not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._descriptor, self._write)
        elif self._is_waiting and not self._lines.size:
            self._is_waiting = False
            self._loop.remove_writer(self._descriptor)

    def _stop(self) -> None:
        """Drop the queue, and release the waiting senders."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._descriptor)
        self._is_read = False
        self._lines.close()


@dataclass(frozen=True, slots=True)
class UpstreamProgram:
    """An upstream's program. The command is a path, or is looked up in the `PATH` of `environment`."""

    command: str = field(repr=False)
    arguments: tuple[str, ...] = field(repr=False)
    folder: str
    environment: Mapping[str, str] = field(repr=False)

    def locate(self) -> tuple[str, str]:
        """Return the absolute paths of the program and its working folder.

        Raises an `OSError` if the folder does not exist, or if `PATH` has no program with this name.

        A relative command, and relative entries of `PATH`, are resolved against the working folder.
        """
        folder = os.path.abspath(self.folder)
        if not os.path.isdir(folder):
            raise NotADirectoryError
        if os.path.dirname(self.command):
            return os.path.join(folder, self.command), folder
        entries = self.environment.get("PATH", os.defpath).split(os.pathsep)
        search_path = os.pathsep.join(os.path.join(folder, entry) for entry in entries)
        path = shutil.which(self.command, path=search_path)
        if path is None:
            raise PermissionError if shutil.which(self.command, os.F_OK, search_path) else FileNotFoundError
        return path, folder

    async def start(self, starter: ProcessStarter) -> tuple[Process, int]:
        """Start the program. Also returns the descriptor for its standard input, which the caller must close."""
        standard_input, input_descriptor = os.pipe()
        try:
            path, folder = await THREADS.run(self.locate)
            spec = ProcessSpec(
                (path, *self.arguments),
                folder,
                self.environment,
                ResourceLimits(core_bytes=None),
                descriptors={0: standard_input},
                separates_errors=True,
            )
            return await starter.start(spec), input_descriptor
        except BaseException as error:
            os.close(input_descriptor)
            if isinstance(error, StartFailedError):
                raise OSError(error.number, "the upstream was not started") from None
            raise
        finally:
            os.close(standard_input)


@asynccontextmanager
async def stdio_streams(
    alias: str, program: UpstreamProgram, starter: ProcessStarter, on_end: Callable[[ProgramEnd], None] | None = None
) -> AsyncGenerator[tuple[Inbox, StdinWriter]]:
    """Start an upstream, and stay connected to it until the context exits. No process is left behind.

    `on_end` is called after the program has ended. Raises an `OSError` if the program cannot be started.
    """
    process, input_descriptor = await program.start(starter)
    os.set_blocking(input_descriptor, False)
    log = StderrLog(alias)
    errors = PipeReader(process.errors, log)
    output = StdoutReader(process.output, log)
    writer = StdinWriter(input_descriptor, on_lost=output.finish)

    async def end_with_program() -> None:
        # The connection is closed when the program exits, even if other processes hold its output open.
        await process.wait()
        output.finish()

    watch = asyncio.create_task(end_with_program(), name=f"end of upstream {alias}")
    try:
        yield output.inbox, writer
    finally:
        with anyio.CancelScope(shield=True):
            exit_status = None
            if output.is_ended or output.is_unwanted:  # the program exited, or closed its output or input
                with anyio.move_on_after(ENDED_SECONDS):
                    exit_status = await process.wait()
            output.discard()
            with anyio.move_on_after(FLUSH_SECONDS):
                await writer.flush()
            writer.close()
            with anyio.move_on_after(LEAVING_SECONDS):
                await process.wait()
            await process.end(GRACE_SECONDS)
            watch.cancel()
            output.end()
            errors.read()  # read what has already arrived
            errors.end()
            log.window.close()
            process.close()
            if on_end is not None:
                on_end(ProgramEnd(exit_status, tuple(log.last)))
