"""One upstream, kept by one owner task: connect with a deadline, list, watch, come back after a loss.

The task that enters a connection is the task that leaves it. Everybody else sends calls through it and gets,
while it is down, an answer at once that tells its state.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY
from pydantic import RootModel

from server.settings import UpstreamSettings
from server.upstreams.reach import Way, watched, ways_to
from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.result import ToolResult

if TYPE_CHECKING:
    from tools.execution.process import ProcessStarter

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
"""A lost or failed connection is tried again after these pauses, doubling from the first to the last."""

MAX_PAGES = 100
"""Pages of a tool list that are followed; an upstream whose cursor never ends cannot hold us."""

CONNECTION_CODES = frozenset({-32000, -32001})
"""The SDK's own codes for a closed connection and a timeout; they are never passed on as the upstream's."""


class RawResult(RootModel[dict[str, Any]]):
    """A result as it came, so that fields which the SDK's models do not know are kept."""


class UpstreamState(StrEnum):
    """Where an upstream stands, as people are told."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"


class Upstream:
    """One entry of `mcpServers`.

    Args:
        alias: Its name in our configuration, part of every published name.
        entry: How to reach it and what of it to publish.
        publish: Receives what it lists whenever that is known anew.
    """

    def __init__(
        self, alias: str, entry: UpstreamSettings, publish: Callable[[str, Iterable[Mapping[str, Any]]], None]
    ) -> None:
        self.alias = alias
        self.state = UpstreamState.WAITING
        self.problem = ""
        self.known = anyio.Event()
        """Set once it is clear whether this upstream can be reached."""
        self._entry = entry
        self._publish = publish
        self._session: ClientSession | None = None

    async def run(self, starter: ProcessStarter) -> None:
        """Own the connection until cancelled.

        Args:
            starter: Starts the upstream's program, where it has one.
        """
        pause = FIRST_RETRY_SECONDS
        ways = ways_to(self.alias, self._entry, starter)
        while True:
            for way in ways:
                was_connected = await self._connect(way, self._entry.connect_timeout / 1000 / len(ways))
                if was_connected:
                    ways, pause = [way], FIRST_RETRY_SECONDS
                    break
            self.known.set()
            await anyio.sleep(pause)
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    async def _connect(self, way: Way, patience: float) -> bool:
        """Hold one connection for as long as it lasts. True if it had been established."""
        self.state = UpstreamState.CONNECTING
        established = False
        deadline = anyio.current_time() + patience
        lost = anyio.Event()
        # Room for one: a burst of changes is one more listing.
        announce, changed = anyio.create_memory_object_stream[None](1)

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                with suppress(anyio.WouldBlock):
                    announce.send_nowait(None)

        mode = self._entry.protocol
        try:
            with announce, changed, anyio.CancelScope(deadline=deadline) as scope:
                client = Client(watched(way.reach, lost.set), mode=mode, cache=None, message_handler=on_message)
                async with client:
                    scope.deadline = math.inf
                    self._session = client.session
                    await self._list_tools(client.session)
                    established = True
                    self._set_connected(way)
                    await self._watch(client.session, lost, changed)
            self._set_failed("it closed the connection" if established else "it did not connect in time")
        except Exception as error:  # noqa: BLE001 - the task boundary: one bad upstream never takes others down
            self._set_failed(_reason(error))
        finally:
            self._session = None
        return established

    async def _watch(self, session: ClientSession, lost: anyio.Event, changed: MemoryObjectReceiveStream[None]) -> None:
        """Wait for the end of the connection; list anew whenever the upstream says that its tools changed."""

        async def list_again() -> None:
            async for _ in changed:
                await self._list_tools(session)

        async with anyio.create_task_group() as group:
            group.start_soon(list_again)
            await lost.wait()
            group.cancel_scope.cancel()

    def _set_connected(self, way: Way) -> None:
        self.state, self.problem = UpstreamState.CONNECTED, ""
        self.known.set()
        logger.info("upstream %s is connected over %s", self.alias, way.name)

    def _set_failed(self, reason: str) -> None:
        self.state, self.problem = UpstreamState.FAILED, reason
        logger.warning("upstream %s is not available: %s", self.alias, reason)

    async def _list_tools(self, session: ClientSession) -> None:
        listed: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
            page = (await session.send_request(request, RawResult, self._entry.list_timeout / 1000)).root
            listed.extend(tool for tool in page.get("tools", ()) if isinstance(tool.get("name"), str))
            following = page.get("nextCursor")
            if not following or following == cursor:
                break
            cursor = following
        self._publish(self.alias, listed)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Send a call of one of its tools, by its own name.

        Raises:
            ToolError: There is no connection, or what came back is no result.
        """
        session = self._session
        if session is None or not self.is_connected:
            raise self.unavailable()
        patience = self._entry.timeout / 1000
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
        with anyio.CancelScope(deadline=anyio.current_time() + patience) as scope:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                scope.deadline = anyio.current_time() + patience
                await context.progress(progress, total, message or "")

            try:
                raw = (await session.send_request(request, RawResult, progress_callback=on_progress)).root
            except MCPError as error:
                raise self._translated(error) from None
            except ValueError:
                raise ToolError(
                    ToolErrorType.MCP_TOOL_ERROR,
                    f"The server {self.alias} answered {name} with something that is no valid result. "
                    "Whether the call had an effect is not known.",
                ) from None
            return self._result(name, raw)
        raise ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The server {self.alias} sent neither a result nor progress for {name} within {patience:g} s; the call "
            "was cancelled. Whether it had an effect is not known.",
        )

    def _result(self, name: str, raw: dict[str, Any]) -> ToolResult:
        if raw.get("resultType") == "input_required":
            raise ToolError(
                ToolErrorType.MCP_TOOL_ERROR,
                f"The server {self.alias} wants to ask the user before {name} goes on, and its questions are not "
                "relayed. Nothing more was done.",
            )
        stamped: Mapping[str, Any] = raw.get("_meta") or {}
        meta = {key: value for key, value in stamped.items() if key != SERVER_INFO_META_KEY}
        result = {key: value for key, value in raw.items() if key not in ("_meta", "resultType")}
        return ToolResult(verbatim=result | ({"_meta": meta} if meta else {}))

    def _translated(self, error: MCPError) -> ToolError:
        if error.error.code in CONNECTION_CODES:
            return ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"The connection to the server {self.alias} was lost during the call. Whether the call had an effect "
                "is not known; the connection comes back by itself.",
            )
        return ToolError(
            ToolErrorType.MCP_TOOL_ERROR,
            f"The server {self.alias} answered with error {error.error.code}: {error.error.message}",
        )

    @property
    def is_connected(self) -> bool:
        """Whether calls can be sent now."""
        return self._session is not None and self.state is UpstreamState.CONNECTED

    def unavailable(self) -> ToolError:
        """What a call is told while there is no connection."""
        why = f": {self.problem}" if self.problem else ""
        return ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The server {self.alias} is not available now (state {self.state}{why}). The connection is tried again "
            "by itself; try the call later, or go on without it.",
        )


def _reason(error: BaseException) -> str:
    """Why a connection failed, in words of ours: texts of exceptions may hold addresses and secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case FileNotFoundError():
            return "its command was not found"
        case NotADirectoryError():
            return "its working folder was not found"
        case PermissionError():
            return "its command may not be executed"
        case MCPError() if error.error.code in CONNECTION_CODES:
            return "it ended or did not answer while connecting"
        case MCPError():
            return f"it answered with error {error.error.code}"
        case _:
            return f"the connection failed ({type(error).__name__})"
