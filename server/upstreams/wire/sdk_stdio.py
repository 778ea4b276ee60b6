"""Upstreams over stdio without a broker (Windows): the SDK starts the programs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from server.protocol.json_rpc import Message, fields_of, of_sdk


@dataclass(frozen=True, slots=True)
class SdkReader:
    stream: Any

    async def listen(self, listener: Callable[[Message], None]) -> None:
        async for item in self.stream:
            if isinstance(item, SessionMessage):
                listener(of_sdk(item.message))


@dataclass(frozen=True, slots=True)
class SdkWriter:
    stream: Any
    has_room: bool = False  # the stream accepts one message at a time, so senders may have to wait
    takes_headers: bool = False

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        del headers
        await self.stream.send(SessionMessage(jsonrpc_message_adapter.validate_python(fields_of(message))))


@asynccontextmanager
async def sdk_streams(
    command: str, arguments: list[str], environment: dict[str, str], folder: str | None
) -> AsyncGenerator[tuple[SdkReader, SdkWriter]]:
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        parameters = StdioServerParameters(
            command=command, args=arguments, env=environment, cwd=place, encoding_error_handler="replace"
        )
        async with stdio_client(parameters, errlog=sys.stderr) as (reading, writing):
            yield SdkReader(reading), SdkWriter(writing)
