"""The example configuration starts a server that lists the tools of both its upstreams."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.fork_server import forked
from tests.harness import HANDSHAKE, PEERS, ROOT, connected, listening

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("settings.example")
async def test_a_server_starts_from_the_example_and_lists_both_upstreams(root: Path, tmp_path: Path) -> None:
    text = (ROOT / "mcp.json.example").read_text()
    peer = str(PEERS / "upstream.py")
    async with listening([sys.executable, *forked([peer, "http"])], r"port (\d+)") as port:
        # The programs that the example names need a network. These test servers do not.
        replacements = {
            '"command": "npx"': f'"command": {json.dumps(sys.executable)}',
            '["-y", "@modelcontextprotocol/server-everything"]': json.dumps(forked([peer])),
            "http://127.0.0.1:3001/mcp": f"http://127.0.0.1:{port}/mcp",
            '"firstListWait": 3000': '"firstListWait": 30000',
        }
        for original, replacement in replacements.items():
            assert original in text
            text = text.replace(original, replacement)
        config = tmp_path / "mcp.json"
        config.write_text(text)
        async with connected("stdio", HANDSHAKE, root, config) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"everything__echo", "remote__echo"} <= names
