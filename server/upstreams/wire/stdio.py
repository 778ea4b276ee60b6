"""Upstreams over stdio: programs that the broker starts, so that nothing of what they start outlives us.

The end goes as the specification says: we close its input, and an upstream that has not ended a little later is asked
to, then killed. Whatever it started ends with it; if this server is killed, the broker sees to that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from pydantic_core import to_json

from server.json_rpc import Message, fields_of, read_message
from server.transports.lines import PIPE_BYTES, STDIO_BACKPRESSURE, USUAL_PIPE_BYTES, LineSplitter, enlarge
from server.upstreams.wire.peer import Inbox
from server.upstreams.wire.sdk_streams import MESSAGE_BYTES, TOO_LARGE, answered_by_ends, understood
from tools.contract.threads import THREADS
from tools.shell.process import Process, ProcessSpec, ProcessStarter, ResourceLimits, StartFailedError
from tools.shell.terminal_text import plain_text

logger = logging.getLogger(__name__)
# It tells people what they would see if they ran the upstream themselves, which no level of ours leaves out.
logger.setLevel(logging.INFO)

READ_BYTES = 1 << 16
"""Read at once: what a pipe holds at first."""

LINE_BYTES = 1 << 14
"""Of a longer line only the beginning is looked at."""

LINE_CHARS = 2_000
"""Of a longer line only the beginning is shown."""

LINES_IN_A_ROW = 200
"""So many lines are shown of each second, which is more than a traceback; the others are counted."""

SECONDS = 1.0

PAUSE_SECONDS = 0.01
"""Between two pieces of what is not shown any more, so that a flood takes no more than some megabytes a second."""


class Remarks:
    """Writes lines about one upstream to our log, a limited number of them each second.

    Args:
        alias: Its name in our configuration.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._begun = -SECONDS
        self._shown = 0
        self._left_out = 0

    @property
    def is_full(self) -> bool:
        """Whether the next line would not be shown."""
        return self._shown >= LINES_IN_A_ROW and time.monotonic() < self._begun + SECONDS

    def add(self, line: bytes, what: str = "") -> None:
        """Write a line, or count it.

        Args:
            line: As the upstream wrote it.
            what: Stands before it.
        """
        if self.is_full:
            self._left_out += 1
            return
        if time.monotonic() >= self._begun + SECONDS:
            self.close()
            self._begun, self._shown = time.monotonic(), 0
        self._shown += 1
        text = plain_text(line[:LINE_BYTES])
        cut = f"{text[:LINE_CHARS]} [...]" if len(text) > LINE_CHARS or len(line) > LINE_BYTES else text
        logger.info("upstream %s: %s%s", self._alias, what, " ".join(cut.split("\n")))

    def close(self) -> None:
        """Say how many lines were left out since this was said last."""
        if self._left_out:
            logger.info("upstream %s: %d more lines are not shown", self._alias, self._left_out)
            self._left_out = 0


class ErrorReader:
    """Reads the standard error of an upstream, from now on until its end.

    Args:
        descriptor: Non-blocking; it is not closed here.
        remarks: Gets the lines.
    """

    def __init__(self, descriptor: int, remarks: Remarks) -> None:
        self._descriptor = descriptor
        self._remarks = remarks
        self._splitter = LineSplitter(LINE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._is_ended = False
        self._loop.add_reader(descriptor, self._on_readable)

    def stop(self) -> None:
        """Read no more than what is there already."""
        if not self._is_ended and self._read_piece():
            self._end()
        if self._pause is not None:
            self._pause.cancel()

    def _on_readable(self) -> None:
        if self._read_piece() and self._remarks.is_full:
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._descriptor, self._on_readable)

    def _read_piece(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        self._take(data)
        return True

    def _end(self) -> None:
        self._is_ended = True
        self._loop.remove_reader(self._descriptor)
        self._take(b"\n")  # the last line may lack its end

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            self._remarks.add(line)
        for ends in self._splitter.take_oversized():
            self._remarks.add(ends)


if sys.platform == "win32":
    raise ImportError("the SDK's transport serves on Windows")

TURN_SECONDS = 0.005
"""After a turn of the event loop that took longer, as very many short lines do, as long a pause is made."""

LARGE_READ_BYTES = 1 << 18
"""Read at once where much comes; where not, what a pipe holds at first."""

WAITING_BYTES = 4 << 20
"""Bytes of messages that wait for the session before reading pauses."""

UNSENT_BYTES = 4 << 20
"""Bytes that wait for an upstream before senders have to wait."""

_NO_MESSAGE = "wrote what is no JSON-RPC message on standard output: "


class Incoming:
    """Reads messages from an upstream's standard output.

    Args:
        descriptor: Non-blocking; it is not closed here.
        remarks: Gets what is no message.
    """

    def __init__(self, descriptor: int, remarks: Remarks) -> None:
        self.inbox = Inbox(on_room=self._on_room)
        self._descriptor = descriptor
        self._remarks = remarks
        self._splitter = LineSplitter(MESSAGE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._is_reading = False
        self._is_ended = False
        self._is_unwanted = False
        self._read_bytes = USUAL_PIPE_BYTES
        self._resume()

    def finish(self) -> None:
        """The upstream has ended, or reads no more: take what it has said, and no more than that."""
        for _ in range(PIPE_BYTES // USUAL_PIPE_BYTES):
            if not self._read_piece():
                break
        if not self._is_ended:
            self._take_rest()
            self.discard()

    def discard(self) -> None:
        """Take no more messages, but go on reading: an upstream that cannot write does not come to its end."""
        self._is_unwanted = True
        self.inbox.close()
        self._resume()

    def end(self) -> None:
        """Read no more; the session learns it once it has taken what is waiting."""
        if not self._is_ended:
            self._is_ended = True
            self._stop()
            self._take_rest()
            self.inbox.close()

    def _resume(self) -> None:
        if not (self._is_reading or self._is_ended):
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _stop(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _on_room(self) -> None:
        self._waiting = 0
        self._resume()

    def _on_readable(self) -> None:
        if STDIO_BACKPRESSURE.is_full and not self._is_unwanted:
            self._stop()
            STDIO_BACKPRESSURE.when_free(self._resume)
            return
        began = self._loop.time()
        self._read_piece()
        took = self._loop.time() - began
        if self._is_full():
            self._stop()
        elif took > TURN_SECONDS and not self._is_ended:
            # Others have as much time as this took.
            self._stop()
            self._loop.call_later(took, self._resume)

    def _is_full(self) -> bool:
        """Whether the session has to take something first; it says when it has."""
        return not self._is_unwanted and (self.inbox.is_full or self._waiting > WAITING_BYTES)

    def _read_piece(self) -> bool:
        """Read once; whether there may be more."""
        if self._is_ended:
            return False
        try:
            data = os.read(self._descriptor, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.end()
            return False
        if len(data) == self._read_bytes == USUAL_PIPE_BYTES:
            self._read_bytes = LARGE_READ_BYTES
            enlarge(self._descriptor)
        if not self._is_unwanted:
            self._take(data)
        return True

    def _take_rest(self) -> None:
        """The last line may lack its end."""
        if not self._is_unwanted:
            self._take(b"\n")

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            if line.lstrip()[:1] != b"{":
                self._take_unreadable(line)
                continue
            try:
                message = read_message(line)
            except ValueError:
                self._take_unreadable(line)
            else:
                self._put(message, len(line))
        for ends in self._splitter.take_oversized():
            self._take_oversized(ends)

    def _put(self, message: Message, size: int) -> None:
        self._waiting += size
        self.inbox.put(message)

    def _take_unreadable(self, line: bytes) -> None:
        """A line that is no message, or several. One with bytes that are no UTF-8 is taken without these."""
        if line.lstrip()[:1] not in (b"{", b"["):
            self._remarks.add(line, _NO_MESSAGE)
            return
        messages, is_understood = understood(line.decode("utf-8", "replace"), line)
        if not is_understood:
            self._remarks.add(line, _NO_MESSAGE)
        for message in messages:
            self._put(message, len(line) // len(messages) if is_understood else 0)

    def _take_oversized(self, ends: bytes) -> None:
        self._remarks.add(ends, f"wrote a line of more than {MESSAGE_BYTES} bytes, which was not taken: ")
        if (failed := answered_by_ends(ends, TOO_LARGE)) is not None:
            self._put(failed, 0)


class Outgoing:
    """Writes messages to an upstream's standard input.

    Args:
        descriptor: Non-blocking; `close` closes it.
        on_lost: Called once if the upstream reads no more.
    """

    takes_headers = False

    def __init__(self, descriptor: int, on_lost: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._pending = bytearray()
        self._written = asyncio.Event()
        self._is_waiting = False
        self._takes_more = True

    @property
    def has_room(self) -> bool:
        """Whether a message is taken at once."""
        return len(self._pending) <= UNSENT_BYTES

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message; waits before that while much more waits to be written already.

        Raises:
            anyio.BrokenResourceError: The upstream reads no more.
            ValueError: The message cannot be encoded.
        """
        del headers  # a pipe has none
        while not self.has_room:
            await self._progress()
        if not self._takes_more:
            raise anyio.BrokenResourceError
        self._pending += to_json(fields_of(message), inf_nan_mode="null") + b"\n"
        if not self._is_waiting:
            self._write()

    async def flush(self) -> None:
        """Wait until nothing waits to be written any more, or nobody reads it."""
        while self._pending:
            await self._progress()

    def close(self) -> None:
        """Close the descriptor: the upstream's input ends."""
        self._give_up()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _progress(self) -> None:
        self._written.clear()
        await self._written.wait()

    def _write(self) -> None:
        """Write a piece. One at a time: others want their turn of the event loop."""
        try:
            del self._pending[: os.write(self._descriptor, self._pending)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._give_up()
            self._on_lost()
            return
        self._wait(bool(self._pending))
        self._written.set()

    def _wait(self, is_waiting: bool) -> None:
        if is_waiting and not self._is_waiting:
            self._loop.add_writer(self._descriptor, self._write)
        elif self._is_waiting and not is_waiting:
            self._loop.remove_writer(self._descriptor)
        self._is_waiting = is_waiting

    def _give_up(self) -> None:
        """Drop what waits, and let senders go."""
        self._wait(False)
        self._takes_more = False
        self._pending.clear()
        self._written.set()


if sys.platform == "win32":
    raise ImportError("the SDK's transport serves on Windows")


FLUSH_SECONDS = 0.5
"""How long an upstream may take to read what was sent before its input ends (the SDK's number, like the next two)."""

LEAVING_SECONDS = 2.0
"""How long it may take to end after its input has."""

GRACE_SECONDS = 2.0
"""How long it, and what it started, may take to end when asked to, before they are killed."""

Streams = tuple[Inbox, Outgoing]


@dataclass(frozen=True, slots=True)
class UpstreamProgram:
    """The program of an upstream, as its entry names it.

    Args:
        command: A name that is looked up in the `PATH` of its environment, or a path.
        arguments: Its arguments; no shell reads them.
        folder: The folder it starts in; `None` is ours.
        environment: All of its environment.
    """

    command: str = field(repr=False)
    arguments: tuple[str, ...] = field(repr=False)
    folder: str | None
    environment: Mapping[str, str] = field(repr=False)


@asynccontextmanager
async def stdio_streams(alias: str, program: UpstreamProgram, starter: ProcessStarter) -> AsyncGenerator[Streams]:
    """Start an upstream and speak to it, until the `with` ends: then nothing of it is left.

    Args:
        alias: Its name in our configuration.
        program: What is started.
        starter: Starts it.

    Raises:
        OSError: It cannot be started.
    """
    reading, writing = os.pipe()
    try:
        process = await _started(program, reading, starter)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    os.set_blocking(writing, False)
    remarks = Remarks(alias)
    errors = ErrorReader(process.errors, remarks)
    incoming = Incoming(process.output, remarks)
    outgoing = Outgoing(writing, on_lost=incoming.finish)
    watch = asyncio.create_task(_watch(process, incoming), name=f"end of upstream {alias}")
    try:
        yield incoming.inbox, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            incoming.discard()
            with anyio.move_on_after(FLUSH_SECONDS):
                await outgoing.flush()
            outgoing.close()
            with anyio.move_on_after(LEAVING_SECONDS):
                await process.wait()
            await process.end(GRACE_SECONDS)
            watch.cancel()
            incoming.end()
            errors.stop()
            remarks.close()
            process.close()


async def _watch(process: Process, incoming: Incoming) -> None:
    """The connection ends with the program, also where others hold its output open."""
    await process.wait()
    incoming.finish()


async def _started(program: UpstreamProgram, standard_input: int, starter: ProcessStarter) -> Process:
    path, folder = await THREADS.run(lambda: _located(program))
    spec = ProcessSpec(
        (path, *program.arguments),
        folder,
        program.environment,
        ResourceLimits(core_bytes=None),
        descriptors={0: standard_input},
        separates_errors=True,
    )
    try:
        return await starter.start(spec)
    except StartFailedError as error:
        raise OSError(error.number, "the upstream was not started") from None


def _located(program: UpstreamProgram) -> tuple[str, str]:
    """The absolute paths of the program and of the folder it starts in, from which relative paths are read.

    Raises:
        OSError: One of them is not there.
    """
    folder = os.path.abspath(program.folder or os.getcwd())
    if not os.path.isdir(folder):
        raise NotADirectoryError
    if os.path.dirname(program.command):
        return os.path.join(folder, program.command), folder
    places = program.environment.get("PATH", os.defpath).split(os.pathsep)
    search_path = os.pathsep.join(os.path.join(folder, place) for place in places)
    found = shutil.which(program.command, path=search_path)
    if found is None:
        raise PermissionError if shutil.which(program.command, os.F_OK, search_path) else FileNotFoundError
    return found, folder
