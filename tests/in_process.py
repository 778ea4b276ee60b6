"""Connects a client of the SDK to the whole server in the same process, without a transport between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from server.app import App
from server.protocol.json_rpc import RequestId, read_message
from server.protocol.request_table import RequestTable
from server.transports.dispatcher import Conversation, Dispatcher
from server.transports.json_lines import Backpressure


class _Outgoing:
    """Passes the server's messages to a client, which reads them at once."""

    size = 0

    def __init__(self) -> None:
        self.backpressure = Backpressure()
        self.streams = anyio.create_memory_object_stream[SessionMessage | Exception](10_000)

    def put(self, line: bytes) -> None:
        if not line:
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client is gone
            self.streams[0].send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    put_answer = put

    def leave_unanswered(self, identity: RequestId) -> None:
        del identity


@asynccontextmanager
async def in_process(target: App | RequestTable) -> AsyncGenerator[TransportStreams]:
    """Return a client's streams to a running application, or to a request table alone."""
    outgoing = _Outgoing()
    client_writer, client_reader = anyio.create_memory_object_stream[SessionMessage](0)
    dispatcher = Dispatcher(outgoing, on_resume=lambda: None, is_bounded=False)
    conversation = Conversation(target.table if isinstance(target, App) else target, dispatcher)

    async def receive() -> None:
        async for item in client_reader:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            dispatcher.receive(read_message(line, is_of_client=True), line)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatcher.run, conversation.on_request, conversation.on_notify)
            tasks.start_soon(receive)
            try:
                yield outgoing.streams[1], client_writer
            finally:
                tasks.cancel_scope.cancel()
    finally:
        for stream in (client_writer, client_reader, *outgoing.streams):
            stream.close()
        conversation.connection.close()
