"""The lines of JSON-RPC that go to an upstream's standard input and come from its standard output.

All of it happens on the event loop: no thread, no task, no hop for each line. Whatever waits is bounded: where we do
not take what the upstream says it is not read, and where it does not read whoever sends waits.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

import anyio
from pydantic_core import to_json

from server.json_rpc import Message, fields_of, read_message
from server.transports.lines import PIPE_BYTES, USUAL_PIPE_BYTES, LineSplitter, enlarge
from server.transports.room import ROOM
from server.upstreams.inbox import Inbox
from server.upstreams.standard_error import Remarks
from server.upstreams.unreadable import MESSAGE_BYTES, TOO_LARGE, answered_by_ends, understood

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
        if ROOM.is_full and not self._is_unwanted:
            self._stop()
            ROOM.when_free(self._resume)
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
