"""A FastMCP server as in its documentation. FastMCP is installed separately with the peers, so nothing checks this.

python fastmcp_server.py PORT [UPSTREAMS]     over HTTP, or over stdio if the port is 0

With a file of upstreams, it is a proxy with one mount per upstream. A single proxy would start them for each call.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server import create_proxy

server = FastMCP("peer")


def hello(name: str) -> str:
    """Say hello."""
    del name
    return "hello"


if __name__ == "__main__":
    if sys.argv[2:]:
        for alias, entry in json.loads(Path(sys.argv[2]).read_text())["mcpServers"].items():
            config = {key: entry[key] for key in ("command", "args")}
            server.mount(create_proxy({"mcpServers": {alias: config}}), namespace=alias)
    else:
        server.tool(hello)
    port = int(sys.argv[1])
    if port:
        server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="ERROR")
    else:
        server.run(show_banner=False, log_level="ERROR")
