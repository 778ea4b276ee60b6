"""The file with a command's long output can be read by the client that ran the command, and by no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, connected, http_client, our_http_server, write_config

pytestmark = pytest.mark.anyio

COMMAND = {"command": "seq 1 100000"}


async def _accept(_context: Any, _params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": "once"})


def _link(result: types.CallToolResult) -> types.ResourceLink:
    (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
    return link


@pytest.mark.requirement("workspace.readable")
async def test_the_whole_output_is_read_by_name_and_never_written(root: Path) -> None:
    async with connected("stdio", HANDSHAKE, root, elicitation_callback=_accept) as client:
        link = _link(await client.call_tool("run_shell_command", COMMAND))
        path = link.uri.removeprefix("file://")
        page = await client.call_tool("read_file", {"file_path": path, "offset": 49_999, "limit": 1})
        assert "50000" in str(page.content)
        resource = await client.read_resource(link.uri)
        assert "100000" in str(resource.contents)
        matches = await client.call_tool("grep_search", {"pattern": "^77777$", "path": path})
        assert "77777" in str(matches.content)
        for tool, arguments in (
            ("write_file", {"file_path": path, "content": "x"}),
            ("write_file", {"file_path": f"{Path(path).parent}/new.txt", "content": "x"}),
            ("edit", {"file_path": path, "old_string": "77777", "new_string": "x"}),
        ):
            refusal = await client.call_tool(tool, arguments)
            assert refusal.is_error
            assert "path_not_in_workspace" in str(refusal.content)
        listing = await client.call_tool("glob", {"pattern": "**/*"})
        assert "output-" not in str(listing.content)


@pytest.mark.requirement("workspace.readable")
async def test_another_client_cannot_read_the_output(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with (
        our_http_server(root, config) as url,
        http_client(url, "http", HANDSHAKE, elicitation_callback=_accept) as client,
        http_client(url, "http", HANDSHAKE, elicitation_callback=_accept) as other_client,
    ):
        link = _link(await client.call_tool("run_shell_command", COMMAND))
        path = link.uri.removeprefix("file://")
        assert not (await client.call_tool("read_file", {"file_path": path})).is_error
        assert (await other_client.call_tool("read_file", {"file_path": path})).is_error


@pytest.mark.requirement("workspace.readable")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
@pytest.mark.parametrize("place", ["root", "outer_root"])
async def test_the_clients_own_commands_read_the_output_unasked_and_no_command_changes_it(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    workspace: Path = request.getfixturevalue(place)
    messages: list[str] = []

    async def accept(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        messages.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})

    config = write_config(tmp_path, {"permissions": {"sandboxedCommands": "allow"}})
    async with connected("stdio", HANDSHAKE, workspace, config, elicitation_callback=accept) as client:

        async def output(command: str) -> str:
            return str((await client.call_tool("run_shell_command", {"command": command})).content)

        path = _link(await client.call_tool("run_shell_command", COMMAND)).uri.removeprefix("file://")
        assert "Output:\\n19" in await output(f"grep -c 7777 {path}")  # in the reading view
        await output(f"cp {path} copy.txt; (echo; wc -l < {path}) >> copy.txt")  # in the working view
        assert (workspace / "copy.txt").read_text().endswith("100000\n\n100000\n")
        assert messages == []
        for command in (f"rm -f {path}", f'python3 -c \'open("{path}", "a")\' {path}', f"chmod 777 {path}"):
            assert "ead-only file system" in await output(command)
        assert Path(path).stat().st_size == len("".join(f"{number}\n" for number in range(1, 100_001)))


@pytest.mark.requirement("workspace.readable")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
async def test_a_command_of_another_client_never_sees_the_output(root: Path, tmp_path: Path) -> None:
    async with (
        our_http_server(root, write_config(tmp_path, {})) as url,
        http_client(url, "http", HANDSHAKE, elicitation_callback=_accept) as client,
        http_client(url, "http", HANDSHAKE, elicitation_callback=_accept) as other_client,
    ):
        paths = [
            _link(await each.call_tool("run_shell_command", COMMAND)).uri.removeprefix("file://")
            for each in (client, other_client)
        ]
        command = {"command": f"wc -l {paths[0]} {paths[1]}"}
        result = str((await other_client.call_tool("run_shell_command", command)).content)
        assert f"100000 {paths[1]}" in result
        assert f"{paths[0]}: No such file or directory" in result
