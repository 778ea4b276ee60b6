"""Upstreams over the older transport of HTTP: a stream for all that the server says, and a request for each message.

Not on the SDK's client, which ends silently with the first message that the server does not accept, and takes no
message of more than a megabyte.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin

from server.json_rpc import Failure, Message, Notification, Request, RequestId, fields_of, read_message
from server.upstreams.wire.http import CONNECT_SECONDS, CarefulTransport, Impression
from server.upstreams.wire.peer import Inbox, unusable
from server.upstreams.wire.sdk_streams import MESSAGE_BYTES, understood

logger = logging.getLogger(__name__)


class NoEndpointError(Exception):
    """The stream does not begin with an address of the same server for what is sent to it."""


@asynccontextmanager
async def sse_streams(url: str, headers: Mapping[str, str], on_doubt: Callable[[], None]) -> AsyncGenerator[Any]:
    """Speak the transport.

    Args:
        url: Where the stream is.
        headers: Sent with every request.
        on_doubt: Called when the session seems to be gone.

    Raises:
        NeedsAuthenticationError: It lets nobody in.
        UnreachableError: There is nobody.
    """
    impression = Impression(on_doubt)
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)  # a stream may be silent; a call has its own deadline
    transport = CarefulTransport(impression)
    inbox = Inbox(on_room=lambda: None)  # whoever listens takes each message at once
    try:
        async with (
            httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport) as client,
            sse_within_origin(client, url, max_event_size=MESSAGE_BYTES) as events,
            anyio.create_task_group() as tasks,
        ):
            events.response.raise_for_status()
            address = await tasks.start(_read, events, url, inbox)
            yield inbox, _Sender(client, address, inbox, tasks)
            tasks.cancel_scope.cancel()
    except Exception as error:  # noqa: BLE001 - whatever it is, it means that there is no connection
        raise impression.explained(error) from None


async def _read(
    events: httpx2.EventSource, url: str, inbox: Inbox, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Take in what the server says until it ends; its first word is where it wants to be answered."""
    is_told = False
    try:
        async for event in events:
            if event.event == "endpoint" and not is_told:
                address = urljoin(url, event.data)
                if urlsplit(address)[:2] != urlsplit(url)[:2]:
                    raise NoEndpointError
                is_told = True
                task_status.started(address)
            elif event.event == "message" and event.data:
                _take(event.data, inbox)
    except httpx2.SSEError as error:
        logger.info("an upstream does not send a stream of events (%s)", type(error).__name__)
    finally:
        inbox.close()
    if not is_told:
        raise NoEndpointError


def _take(data: str, inbox: Inbox) -> None:
    messages, is_understood = understood(data, data.encode("utf-8", "replace"))
    if not is_understood:
        logger.info("an upstream sent what is no JSON-RPC message")
    for message in messages:
        inbox.put(message)


@dataclass(slots=True)
class _Sender:
    """The session's write stream: each message is a request of its own.

    Args:
        client: Sends them.
        address: Where to.
        inbox: Gets errors in place of answers.
        tasks: Runs what has to be waited for.
    """

    client: httpx2.AsyncClient
    address: str
    inbox: Inbox
    tasks: TaskGroup
    has_room: bool = True
    takes_headers: bool = False
    _open: dict[RequestId, anyio.CancelScope] = field(default_factory=dict[RequestId, anyio.CancelScope])

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message. Some servers accept a request only with its answer, so that is not waited for."""
        del headers
        if isinstance(message, Request):
            self.tasks.start_soon(self._request, message)
            return
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            scope = self._open.get((message.params or {}).get("requestId", ""))
            if scope is not None:
                scope.cancel()
        await self._post(message)

    async def _request(self, message: Request) -> None:
        with anyio.CancelScope() as scope:
            self._open[message.id] = scope
            try:
                response = await self._post(message)
                if response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
                    self.inbox.put(_refusal(message.id, response))
            finally:
                del self._open[message.id]

    async def _post(self, message: Message) -> httpx2.Response:
        return await request_within_origin(self.client, "POST", self.address, json=fields_of(message))


def _refusal(identity: RequestId, response: httpx2.Response) -> Failure:
    """Why a request was not accepted: what the server says in JSON-RPC, else its status."""
    try:
        said = read_message(response.content)
    except ValueError:
        said = None
    if isinstance(said, Failure):
        return Failure(identity, said.error)
    return unusable(identity, f"it answered with HTTP status {response.status_code}")
