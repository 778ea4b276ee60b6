"""An upstream server for tests, made with the SDK: a few honest tools over stdio, Streamable HTTP or SSE.

python upstream.py                   over stdio
python upstream.py http|sse          over HTTP on a free port of the loopback address, printed on standard error
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.routing import Mount, Route

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peers.plain_upstream import OWN_ERROR, PIXEL, TOOLS


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult.model_validate({"tools": TOOLS})


def result(**fields: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate(fields)


def text(value: str, **fields: Any) -> types.CallToolResult:
    return result(content=[{"type": "text", "text": value}], **fields)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    match params.name:
        case "echo":
            return text(str(arguments.get("text")))
        case "fail":
            return text("it went wrong", isError=True)
        case "protocol_error":
            raise types_error()
        case "picture":
            return result(content=[{"type": "image", "data": PIXEL, "mimeType": "image/png"}])
        case "structured":
            return text("{}", structuredContent={"answer": 42}, _meta={"example.org/kept": "yes"})
        case "steps":
            for step in range(1, 4):
                await ctx.session.report_progress(step, 3, f"step {step}")
            return text("done")
        case "wait":
            await anyio.sleep_forever()
        case "environment":
            return text("\n".join(sorted(os.environ)))
        case "die":
            os._exit(3)
        case _:
            return text(f"called {params.name}")
    raise AssertionError


def types_error() -> Exception:
    from mcp.shared.exceptions import MCPError

    return MCPError(**OWN_ERROR)


def build() -> Server[Any]:
    return Server("test-upstream", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    server = build()
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def http_app() -> Starlette:
    return build().streamable_http_app()


def sse_app() -> Starlette:
    server = build()
    transport = SseServerTransport("/messages/")

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        async with transport.connect_sse(scope, receive, send) as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await endpoint(scope, receive, send)

    routes = [
        Route("/sse", endpoint=Endpoint(), methods=["GET"]),
        Mount("/messages", app=transport.handle_post_message),
    ]
    return Starlette(routes=routes)


def serve_http(app: Starlette) -> None:
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    sys.stderr.write(f"port {listener.getsockname()[1]}\n")
    sys.stderr.flush()
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["http"]:
            serve_http(http_app())
        case ["sse"]:
            serve_http(sse_app())
        case _:
            anyio.run(serve_stdio)
