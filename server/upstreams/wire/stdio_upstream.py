"""Upstreams over stdio: programs that the broker starts, so that nothing of what they start outlives us.

The end goes as the specification says: we close its input, and an upstream that has not ended a little later is asked
to, then killed. Whatever it started ends with it; if this server is killed, the broker sees to that.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from pydantic_core import to_json

from server.protocol.json_rpc import Message, fields_of, read_message
from server.transports.json_lines import (
    INBOX_MESSAGES,
    PIPE_BYTES,
    STDIO_BACKPRESSURE,
    USUAL_PIPE_BYTES,
    Backpressure,
    LineSplitter,
    OutgoingLines,
    enlarge,
)
from server.upstreams.wire.json_rpc_channel import MESSAGE_BYTES, Inbox, ProgramEnd, failure_for_ends, messages_in
from tools.machine.threads import THREADS
from tools.shell.process_spec import Process, ProcessSpec, ProcessStarter, ResourceLimits, StartFailedError
from tools.shell.program_output import plain_text

if sys.platform == "win32":
    raise ImportError("the SDK's transport serves on Windows")

logger = logging.getLogger(__name__)
# It tells people what they would see if they ran the upstream themselves, which no level of this server leaves out.
logger.setLevel(logging.INFO)

LOG_LINE_BYTES = 1 << 14  # of a longer line only the beginning is looked at for the log
LOG_LINE_CHARS = 2_000  # of a longer line only the beginning is shown in the log
LAST_LINES = 5  # of what a program wrote that are remembered, for anyone who asks why it ended
LOG_LINES_PER_SECOND = 200  # so many lines are shown, which is more than a traceback; the others are counted

FULL_LOG_PAUSE_SECONDS = 0.01
"""Between two pieces of what is not shown any more, so that a flood takes no more than some megabytes a second."""

TURN_SECONDS = 0.005
"""After a turn of the event loop that took longer, as very many short lines do, as long a pause is made."""

LARGE_READ_BYTES = 1 << 18  # read at once where much comes; where not, what a pipe holds at first
WAITING_BYTES = 4 << 20  # bytes of messages that wait for the session before reading pauses

FLUSH_SECONDS = 0.5
"""How long an upstream may take to read what was sent before its input ends (the SDK's number, like the next two)."""

ENDED_SECONDS = 0.2  # how long the exit status of a program that has closed its output is waited for
LEAVING_SECONDS = 2.0  # how long it may take to end after its input has
GRACE_SECONDS = 2.0  # how long it, and what it started, may take to end when asked to, before they are killed

_NOT_A_MESSAGE = "wrote what is not a JSON-RPC message on standard output: "


class StderrLog:
    """Writes lines of one upstream to our log, a limited number of them each second."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._log = logging.LoggerAdapter(logger, {"upstream": alias})
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self._begun = -1.0
        self._shown = 0
        self._left_out = 0

    @property
    def is_full(self) -> bool:
        return self._shown >= LOG_LINES_PER_SECOND and time.monotonic() < self._begun + 1

    def add(self, line: bytes, what: str = "") -> None:
        if self.is_full:
            self._left_out += 1
            return
        if time.monotonic() >= self._begun + 1:
            self.close()
            self._begun, self._shown = time.monotonic(), 0
        self._shown += 1
        text = plain_text(line[:LOG_LINE_BYTES])
        is_cut = len(text) > LOG_LINE_CHARS or len(line) > LOG_LINE_BYTES
        cut = f"{text[:LOG_LINE_CHARS]} [...]" if is_cut else text
        line_of_text = " ".join(cut.split("\n"))
        self.last.append(line_of_text)
        self._log.info("upstream %s: %s%s", self._alias, what, line_of_text)

    def close(self) -> None:
        if self._left_out:
            self._log.info("upstream %s: %d more lines are not shown", self._alias, self._left_out)
            self._left_out = 0


class PipeReader:
    """Reads lines from a non-blocking pipe, which it does not close, from now on until its end.

    Of a line longer than `line_bytes` only the ends are kept.
    """

    def __init__(self, descriptor: int, line_bytes: int) -> None:
        self.is_ended = False
        self.is_unwanted = False  # what is read is dropped
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
        """Read no more for this time; `None` until `resume`."""
        if self._is_reading:
            self._is_reading = False
            self.loop.remove_reader(self.descriptor)
        if seconds is not None:
            self.loop.call_later(seconds, self.resume)

    def on_readable(self) -> None:
        self.read()

    def read(self) -> bytes:
        """Read once; empty where there is nothing, or nothing more."""
        if self.is_ended:
            return b""
        try:
            data = os.read(self.descriptor, self.read_bytes)
        except (BlockingIOError, InterruptedError):
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
            self.take(b"\n")  # the last line may lack its end

    def take(self, data: bytes) -> None:
        if self.is_unwanted:
            return
        for line in self._splitter.feed(data):
            self.take_line(line)
        while self._splitter.oversized:
            self.take_oversized(self._splitter.oversized.pop(0))

    def take_line(self, line: bytes) -> None:
        raise NotImplementedError

    def take_oversized(self, ends: bytes) -> None:
        """Take in the two ends of a line that is too long."""
        self.take_line(ends)


class StderrReader(PipeReader):
    def __init__(self, descriptor: int, log: StderrLog) -> None:
        self._log = log
        super().__init__(descriptor, LOG_LINE_BYTES)

    def on_readable(self) -> None:
        """Read a piece, and pause where it would not be shown."""
        self.read()
        if self._log.is_full and not self.is_ended:
            self.pause(FULL_LOG_PAUSE_SECONDS)

    def take_line(self, line: bytes) -> None:
        self._log.add(line)


class StdoutReader(PipeReader):
    """Reads messages from the standard output of an upstream; what is not one goes to our log."""

    def __init__(self, descriptor: int, log: StderrLog) -> None:
        self.inbox = Inbox(on_empty=self.resume)
        self._log = log
        super().__init__(descriptor, MESSAGE_BYTES)

    def finish(self) -> None:
        """The upstream has ended, or reads no more: take what it has said, and no more than that."""
        for _ in range(PIPE_BYTES // USUAL_PIPE_BYTES):
            if not self.read():
                break
        if not self.is_ended:
            self.take(b"\n")
            self.discard()

    def discard(self) -> None:
        """Take no more messages, but go on reading: an upstream that cannot write does not come to its end."""
        self.is_unwanted = True
        self.inbox.close()
        self.resume()

    def end(self) -> None:
        """Read no more; the session learns it once it has taken what is waiting."""
        super().end()
        self.inbox.close()

    def on_readable(self) -> None:
        """Read a piece, unless others have to take something first."""
        if STDIO_BACKPRESSURE.is_full and not self.is_unwanted:
            self.pause()
            STDIO_BACKPRESSURE.when_free(self.resume)
            return
        began = self.loop.time()
        data = self.read()
        took = self.loop.time() - began
        if len(data) == self.read_bytes == USUAL_PIPE_BYTES:
            self.read_bytes = LARGE_READ_BYTES
            enlarge(self.descriptor)
        if not self.is_unwanted and (self.inbox.count >= INBOX_MESSAGES or self.inbox.size > WAITING_BYTES):
            self.pause()
        elif took > TURN_SECONDS and not self.is_ended:
            # Others have as much time as this took.
            self.pause(took)

    def take_line(self, line: bytes) -> None:
        """Take a message; a line with bytes that are not UTF-8 is taken without these."""
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
            self._log.add(line, _NOT_A_MESSAGE)
            return
        messages, is_valid = messages_in(line.decode("utf-8", "replace"), line)
        if not is_valid:
            self._log.add(line, _NOT_A_MESSAGE)
        for message in messages:
            self.inbox.put(message, len(line) // len(messages) if is_valid else 0)

    def take_oversized(self, ends: bytes) -> None:
        self._log.add(ends, f"wrote a line of more than {MESSAGE_BYTES} bytes, which was not taken: ")
        if (failure := failure_for_ends(ends)) is not None:
            self.inbox.put(failure)


class StdinWriter:
    """Writes messages to the standard input of an upstream. `on_lost` is called once if it reads no more."""

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
        """Send a message; waits before that while much more waits to be written already."""
        del headers  # a pipe has none
        if self._backpressure.is_full:
            await self._backpressure.wait()
        if not self._is_read:
            raise anyio.BrokenResourceError
        self._lines.put(to_json(fields_of(message), inf_nan_mode="null"))

    async def flush(self) -> None:
        await self._lines.wait_empty()

    def close(self) -> None:
        """Close the descriptor: the upstream's input ends."""
        self._stop()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        """Write what can be written at once: others want their turn of the event loop."""
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
        """Drop what waits, and let senders go."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._descriptor)
        self._is_read = False
        self._lines.close()


@dataclass(frozen=True, slots=True)
class UpstreamProgram:
    """The program of an upstream. Its command is a path, or looked up in the `PATH` of its environment."""

    command: str = field(repr=False)
    arguments: tuple[str, ...] = field(repr=False)
    folder: str | None
    environment: Mapping[str, str] = field(repr=False)

    def locate(self) -> tuple[str, str]:
        """The absolute paths of the program and of its folder, from which relative paths are read, or an `OSError`."""
        folder = os.path.abspath(self.folder or os.getcwd())
        if not os.path.isdir(folder):
            raise NotADirectoryError
        if os.path.dirname(self.command):
            return os.path.join(folder, self.command), folder
        entries = self.environment.get("PATH", os.defpath).split(os.pathsep)
        search_path = os.pathsep.join(os.path.join(folder, entry) for entry in entries)
        found = shutil.which(self.command, path=search_path)
        if found is None:
            raise PermissionError if shutil.which(self.command, os.F_OK, search_path) else FileNotFoundError
        return found, folder

    async def start(self, starter: ProcessStarter) -> tuple[Process, int]:
        """Start it; also what its standard input is written to, which the caller closes."""
        standard_input, writing = os.pipe()
        try:
            path, folder = await THREADS.run(self.locate)
            limits = ResourceLimits(core_bytes=None)
            argv = (path, *self.arguments)
            spec = ProcessSpec(
                argv, folder, self.environment, limits, descriptors={0: standard_input}, separates_errors=True
            )
            return await starter.start(spec), writing
        except StartFailedError as error:
            os.close(writing)
            raise OSError(error.number, "the upstream was not started") from None
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(standard_input)


@asynccontextmanager
async def stdio_streams(
    alias: str, program: UpstreamProgram, starter: ProcessStarter, on_end: Callable[[ProgramEnd], None] | None = None
) -> AsyncGenerator[tuple[Inbox, StdinWriter]]:
    """Start an upstream, or raise an `OSError`, and speak to it until the `with` ends: then nothing of it is left.

    How it ended is told by `on_end`.
    """
    process, writing = await program.start(starter)
    os.set_blocking(writing, False)
    log = StderrLog(alias)
    errors = StderrReader(process.errors, log)
    output = StdoutReader(process.output, log)
    writer = StdinWriter(writing, on_lost=output.finish)

    async def end_with_program() -> None:
        # The connection ends with the program, also where others hold its output open.
        await process.wait()
        output.finish()

    watch = asyncio.create_task(end_with_program(), name=f"end of upstream {alias}")
    try:
        yield output.inbox, writer
    finally:
        with anyio.CancelScope(shield=True):
            own_end = None
            if output.is_ended:
                with anyio.move_on_after(ENDED_SECONDS):
                    own_end = await process.wait()
            output.discard()
            with anyio.move_on_after(FLUSH_SECONDS):
                await writer.flush()
            writer.close()
            with anyio.move_on_after(LEAVING_SECONDS):
                await process.wait()
            await process.end(GRACE_SECONDS)
            watch.cancel()
            output.end()
            errors.read()  # what is there already
            errors.end()
            log.close()
            process.close()
            if on_end is not None:
                on_end(ProgramEnd(own_end, tuple(log.last)))
