"""The reference: the SDK's low-level server with one tool over Streamable HTTP, as in its documentation.

uvicorn runs with the settings of our own server, and with its h11 protocol class, which ours is based on.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.servers.sdk_lowlevel import call_tool, list_tools
from server.transports.http_server import LAST_SECONDS, MAX_CONNECTIONS


async def serve() -> None:
    server = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)
    # As in our server: with an explicit protocol, asyncio sends small writes at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 0))
        listener.listen()
        config = uvicorn.Config(
            server.streamable_http_app(),
            http=H11Protocol,
            limit_concurrency=MAX_CONNECTIONS,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=LAST_SECONDS,
            ws="none",
        )
        sys.stderr.write(f"serving MCP at http://127.0.0.1:{listener.getsockname()[1]}, path /mcp\n")
        sys.stderr.flush()
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    anyio.run(serve)
