"""A running server in a workspace whose trusted settings file is changed, over the real transport."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from server.settings.workspace_trust import digest, trust_file, trust_folder
from tests.fork_server import forked
from tests.harness import HANDSHAKE, server_arguments, stdio_upstream

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="it runs POSIX programs")]

OWN = ".coretools/settings.json"


async def call_text(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments)
    return bool(result.is_error), str(result.content)


async def until(client: Client, *, is_error: bool, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Call a tool until its result is an error, or, without `is_error`, until it is not."""
    while True:
        outcome = await call_text(client, tool, **arguments)
        if outcome[0] is is_error:
            return outcome
        await anyio.sleep(0.1)


@pytest.mark.requirement("settings.live.restrictions")
@pytest.mark.requirement("settings.live.agents")
async def test_one_space_added_to_a_trusted_file_stops_its_programs_and_lifts_no_restriction(
    root: Path, tmp_path: Path
) -> None:
    (root / "secret.txt").write_text("the secret\n")
    file = root / OWN
    file.parent.mkdir()
    content = {
        "permissions": {"deny": ["Read(secret.txt)"]},
        "agents": {"helper": {"command": "/bin/echo", "args": ["the agent ran"]}},
        "shell": {"env": {"BROUGHT": "by the workspace"}},
        "mcpServers": {"brought": stdio_upstream()},
    }
    file.write_text(json.dumps(content))
    home = tmp_path / "home"
    home.mkdir()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(root.resolve()), {OWN: digest(file.read_bytes())})
    (home / ".config/coretools-mcp/settings.json").write_text(json.dumps({"proxy": {"firstListWait": 30_000}}))
    arguments = server_arguments(root, None, "--approval-mode", "yolo")
    parameters = StdioServerParameters(command=sys.executable, args=forked(arguments), env=environ)
    with (tmp_path / "stderr").open("w") as stderr, anyio.fail_after(100):
        async with Client(stdio_client(parameters, errlog=stderr), mode=HANDSHAKE) as client:
            assert (await call_text(client, "task", prompt="x", subagent_type="helper"))[0] is False
            assert "by the workspace" in (await call_text(client, "run_shell_command", command="echo $BROUGHT"))[1]
            assert (await call_text(client, "brought__echo", text="hello"))[0] is False
            assert (await call_text(client, "read_file", absolute_path=str(root / "secret.txt")))[0] is True
            file.write_text(file.read_text() + " ")
            is_error, text = await until(client, is_error=True, tool="task", prompt="x", subagent_type="helper")
            assert is_error
            assert "the workspace settings that define this agent have changed" in text
            is_error, text = await call_text(client, "read_file", absolute_path=str(root / "secret.txt"))
            assert is_error
            assert "permissions.deny rule Read(secret.txt)" in text
            command = '[ -n "$BROUGHT" ] && exit 3; echo it is gone'
            assert "it is gone" in (await until(client, is_error=False, tool="run_shell_command", command=command))[1]
            names = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
            assert not any(name.startswith("brought__") for name in names)
    log = (tmp_path / "stderr").read_text()
    assert "the restrictions in the last trusted content of this file still apply" in log
    assert "workspace agents that are now refused: helper" in log
