"""Takes the body of an answer: unpacked, and no more of it than is allowed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import httpx

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.decoding import DamagedBodyError, UnknownEncodingError, Unpacker
from tools.web.guard import WebRules
from tools.web.metered import TooManyBytesError
from tools.web.target import Target

if TYPE_CHECKING:
    from tools.contract.context import Progress

PROGRESS_BYTES = 1 << 18
"""Content after which progress is told again."""


TURN_BYTES = 1 << 16
"""Work after which others have their turn."""

PIECE_WORK = 128
"""What a piece costs beside its bytes, in bytes: it may be empty, or one of very many."""


class Cut(StrEnum):
    """Why a body is not there as a whole; each ends a sentence about the page."""

    SIZE = "it is larger than what is taken of one page"
    RATIO = "it unpacks to far more than a page that is meant to be read"
    TIME = "it came too slowly"
    BROKEN = "it is damaged, or the connection ended before all of it had come"


class Body:
    """The content of one answer, as far as it has come.

    Args:
        answer: Whose.
        target: Where it comes from, for sentences.
        rules: How much of it is taken.

    Raises:
        ToolError: `web_fetch_processing_error`: it is packed in a way that nobody asked for.
    """

    def __init__(self, answer: httpx.Response, target: Target, rules: WebRules) -> None:
        self.content = bytearray()
        self.cut: Cut | None = None
        self._answer = answer
        self._target = target
        self._rules = rules
        self._raw = 0
        self._told = 0
        self._work = 0
        try:
            self._unpacker = Unpacker(answer.headers.get("content-encoding", ""))
        except UnknownEncodingError:
            raise self._unreadable("in an encoding that was not asked for") from None

    async def take(self, deadline: float, progress: Progress | None) -> None:
        """Take it until its end, a limit, or the deadline.

        Args:
            deadline: On the event loop's clock.
            progress: Told now and then.

        Raises:
            ToolError: `web_fetch_processing_error`: it cannot be unpacked.
        """
        self.cut = Cut.TIME
        with anyio.CancelScope(deadline=deadline):
            self.cut = await self._take(progress)

    async def _take(self, progress: Progress | None) -> Cut | None:
        try:
            async for raw in self._answer.aiter_raw():
                self._raw += len(raw)
                self._work += len(raw)
                for piece in self._unpacker.unpack(raw):
                    self.content += piece
                    cut = self._limit()
                    if cut is not None:
                        return cut
                    # A small piece can unpack to much, or to nothing with much work.
                    self._work += len(piece) + PIECE_WORK
                    if self._work >= TURN_BYTES:
                        self._work = 0
                        await anyio.lowlevel.checkpoint()
                if progress is not None and len(self.content) - self._told >= PROGRESS_BYTES:
                    await self._tell(progress)
        except TooManyBytesError:
            return Cut.SIZE
        except httpx.HTTPError:
            return Cut.BROKEN
        except DamagedBodyError:
            if not self.content:
                raise self._unreadable("damaged: it cannot be unpacked") from None
            return Cut.BROKEN
        return None if self._unpacker.is_complete else Cut.BROKEN

    def _limit(self) -> Cut | None:
        size, most = len(self.content), self._rules.max_bytes
        if size > most or self._raw > most:
            del self.content[most:]
            return Cut.SIZE
        return Cut.RATIO if size > max(self._rules.free_bytes, self._unpacker.taken * self._rules.max_ratio) else None

    async def _tell(self, progress: Progress) -> None:
        self._told = len(self.content)
        await progress(self._told, None, f"{self._told:,} bytes from {self._target.authority}")

    def _unreadable(self, how: str) -> ToolError:
        return ToolError(
            ToolErrorType.WEB_FETCH_PROCESSING_ERROR,
            f"{self._target.authority} sent its answer {how}. Try again, or use another source.",
        )
