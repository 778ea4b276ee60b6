"""The client's own `/tmp`: what a command leaves there file tools read, and the other way round."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, MODERN, connected, http_client, our_http_server, write_config
from tools.shell.private_folders import PREFIX

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="not run: commands have a /tmp of their own on Linux only"),
]

OTHER = "reference to the workspace"


class Person:
    """Answers every question with a yes, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})


async def told(client: Client, tool: str, **arguments: Any) -> str:
    """All that the client is told about a call that does not fail; it never says where the folder really lies."""
    result = await client.call_tool(tool, arguments)
    text = f"{result.content} {json.dumps(result.structured_content)}"
    assert not result.is_error, text
    assert PREFIX not in text
    return text


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    text = str(result.content)
    assert result.is_error, text
    assert PREFIX not in text
    return text


@pytest.mark.requirement("scratch.names")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
async def test_what_a_command_leaves_is_read_and_what_is_written_a_command_reads(
    outer_root: Path, tmp_path: Path
) -> None:
    person = Person()
    config = write_config(tmp_path, {"permissions": {"allow": ["Bash", "Edit(//tmp/**)"]}, "media": "resource_link"})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        assert "is empty" in await told(client, "list_directory", path="/tmp")
        await told(client, "run_shell_command", command="echo from-command > /tmp/out.txt")
        assert "from-command" in await told(client, "read_file", file_path="/tmp/out.txt")
        await told(client, "write_file", file_path="/tmp/in.txt", content="from-tool\n")
        assert "from-tool" in await told(client, "run_shell_command", command="cat /tmp/in.txt")
        await told(client, "edit", file_path="/tmp/out.txt", old_string="from-command", new_string="edited")
        await told(client, "write_file", file_path="/tmp/sub/x.txt", content="deep\n")
        listed = await told(client, "run_shell_command", command="pwd; cat ../out.txt x.txt", directory="/tmp/sub")
        assert "/tmp/sub" in listed
        assert "edited" in listed
        assert "deep" in listed
        assert person.asked == []
        await told(client, "run_shell_command", command="ln -s /tmp/out.txt /tmp/link; ln -s /etc/passwd /tmp/secret")
        assert "edited" in await told(client, "read_file", file_path="/tmp/link")
        assert "path_not_in_workspace" in await refused(client, "read_file", file_path="/tmp/secret")
        assert "path_not_in_workspace" in await refused(client, "write_file", file_path="/tmp/secret", content="x")
        assert "does not exist" in await refused(client, "run_shell_command", command="pwd", directory="/tmp/none")
        await told(client, "run_shell_command", command=r"printf '\211PNG\r\n\032\n\0\0\0\r' > /tmp/image.png")
        assert "file:///tmp/image.png" in await told(client, "read_file", file_path="/tmp/image.png")
        long = await client.call_tool("run_shell_command", {"command": "seq 1 100000"})
        (link,) = [block for block in long.content if isinstance(block, types.ResourceLink)]
        assert "50000" in str(await client.call_tool("read_file", {"file_path": link.uri[7:], "offset": 49_999}))
        await told(client, "run_shell_command", command="sleep 600", directory="/tmp/sub", is_background=True)
        assert "/tmp/sub" in await told(client, "list_background_jobs")
    assert not Path("/tmp/out.txt").exists()
    assert list(outer_root.iterdir()) == []


@pytest.mark.requirement("scratch.names")
@pytest.mark.requirement("scratch.consent")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_every_file_tool_takes_its_names_unasked(era: str, outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    (outer_root / "own.txt").write_text(f"{OTHER}\n")
    audit = tmp_path / "audit.log"
    config = write_config(tmp_path, {"log": {"audit": str(audit)}})
    async with connected("stdio", era, outer_root, config, elicitation_callback=person) as client:
        written = await told(client, "write_file", file_path="/tmp/a.txt", content="alpha reference\n")
        assert "Created the new file /tmp/a.txt" in written
        assert "undo" not in written.lower()
        await told(client, "write_file", file_path="/tmp/sub/b.txt", content="beta reference\n")
        await told(client, "write_file", file_path="/tmp/.gitignore", content="*.txt\n")
        edited = await told(client, "edit", file_path="//tmp/a.txt", old_string="alpha", new_string="gamma")
        assert "Edited /tmp/a.txt" in edited
        assert "gamma" in await told(client, "read_file", absolute_path="/tmp/../tmp/a.txt")
        assert "own.txt" not in await told(client, "list_directory", path="/tmp")
        listed = await told(client, "list_directory", path="/tmp")
        assert "Listed 3 items in /tmp" in listed
        found = await told(client, "grep_search", pattern="reference", path="/tmp")
        assert "within /tmp" in found
        assert "a.txt" in found
        assert "sub/b.txt" in found
        assert OTHER not in found
        assert "gamma" in await told(client, "grep_search", pattern="reference", path="/tmp/a.txt")
        for arguments in ({"pattern": "/tmp/**/*.txt"}, {"pattern": "**/*.txt", "path": "/tmp"}):
            assert "/tmp/sub/b.txt" in await told(client, "glob", **arguments)
        for paths in (["/tmp/a.txt", "/tmp/sub/b.txt"], ["/tmp/**/*.txt"], ["/tmp"]):
            many = await told(client, "read_many_files", paths=paths)
            assert "--- /tmp/a.txt ---" in many
            assert "--- /tmp/sub/b.txt ---" in many
            assert OTHER not in many
        assert "gamma" in str(await client.read_resource("file:///tmp/a.txt"))
        # Without a path nothing of it is found.
        for tool, arguments in (
            ("grep_search", {"pattern": "reference"}),
            ("glob", {"pattern": "**/*.txt"}),
            ("read_many_files", {"paths": ["**/*.txt"]}),
            ("list_directory", {"path": "."}),
        ):
            everything = await told(client, tool, **arguments)
            assert "own.txt" in everything
            assert "b.txt" not in everything
        assert "does not exist" in await refused(client, "read_file", file_path="/tmp/none.txt")
        assert "does not exist" in await refused(client, "list_directory", path="/tmp/none")
        assert "does not exist" in await refused(client, "grep_search", pattern="x", path="/tmp/none")
        assert "does not exist" in await refused(client, "edit", file_path="/tmp/none", old_string="x", new_string="y")
        assert "/tmp/none.txt: does not exist" in await told(client, "read_many_files", paths=["/tmp/none.txt"])
        assert "not found" in await refused(client, "edit", file_path="/tmp/a.txt", old_string="zeta", new_string="y")
        await told(client, "write_file", file_path="own.txt", content="asked")
        assert "a.txt" not in await told(client, "list_changes")
    (question,) = person.asked
    assert "own.txt" in question
    entries = audit.read_text()
    assert "/tmp/a.txt" in entries
    assert PREFIX not in entries


@pytest.mark.requirement("scratch.consent")
async def test_rules_hold_by_name_and_what_programs_obey_is_asked_about(outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    rules = {
        "deny": ["Read(//tmp/secret)", "Edit(//tmp/kept/**)"],
        "ask": ["Edit(//tmp/asked.txt)"],
    }
    config = write_config(tmp_path, {"permissions": rules})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        await told(client, "write_file", file_path="/tmp/open.txt", content="reference\n")
        await told(client, "write_file", file_path="/tmp/secret", content="reference\n")
        for spelled in ("/tmp/secret", "//tmp/./secret", "/tmp/../tmp/secret"):
            assert "Read(//tmp/secret)" in await refused(client, "read_file", file_path=spelled)
        assert "Read(//tmp/secret)" in await refused(client, "grep_search", pattern="reference", path="/tmp/secret")
        for tool, arguments in (
            ("grep_search", {"pattern": "reference", "path": "/tmp"}),
            ("glob", {"pattern": "*", "path": "/tmp"}),
            ("list_directory", {"path": "/tmp"}),
            ("read_many_files", {"paths": ["/tmp"]}),
        ):
            found = await told(client, tool, **arguments)
            assert "open.txt" in found
            assert "secret" not in found
        assert "Edit(//tmp/kept/**)" in await refused(client, "write_file", file_path="/tmp/kept/a", content="x")
        assert person.asked == []
        await told(client, "write_file", file_path="/tmp/asked.txt", content="x")
        await told(client, "write_file", file_path="/tmp/.vscode/tasks.json", content="{}")
        await told(client, "write_file", file_path="/tmp/.git/hooks/post-checkout", content="x")
    asked = ["/tmp/asked.txt", "/tmp/.vscode/tasks.json", "/tmp/.git/hooks/post-checkout"]
    assert len(person.asked) == len(asked)
    for name, question in zip(asked, person.asked, strict=True):
        assert name in question
        assert PREFIX not in question


@pytest.mark.requirement("scratch.owner")
async def test_each_client_has_its_own_and_one_without_a_session_has_none(outer_root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with our_http_server(outer_root, config) as url:
        async with http_client(url, "http", HANDSHAKE) as one, http_client(url, "http", HANDSHAKE) as other:
            await told(one, "write_file", file_path="/tmp/a.txt", content="of one")
            assert "does not exist" in await refused(other, "read_file", file_path="/tmp/a.txt")
            assert "is empty" in await told(other, "list_directory", path="/tmp")
            assert "of one" in await told(one, "read_file", file_path="/tmp/a.txt")
        async with http_client(url, "http", MODERN) as nobody:
            said = await refused(nobody, "read_file", file_path="/tmp/a.txt")
            assert "path_not_in_workspace" in said
            assert "This client has no session" in said


@pytest.mark.requirement("scratch.owner")
@pytest.mark.requirement("scratch.consent")
async def test_plan_mode_has_its_own_which_is_gone_with_the_plan(outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    config = write_config(tmp_path, {"approvalMode": "plan"})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        await told(client, "write_file", file_path="/tmp/notes.txt", content="draft")
        await told(client, "edit", file_path="/tmp/notes.txt", old_string="draft", new_string="final")
        assert "final" in await told(client, "read_file", file_path="/tmp/notes.txt")
        assert "plan mode is on" in await refused(client, "write_file", file_path="a.txt", content="x")
        assert person.asked == []
        assert "Plan mode's own /tmp is gone." in await told(client, "exit_plan_mode", plan="1. Write.")
        assert "does not exist" in await refused(client, "read_file", file_path="/tmp/notes.txt")
        assert "is empty" in await told(client, "list_directory", path="/tmp")
        await told(client, "write_file", file_path="/tmp/notes.txt", content="of afterwards")
    assert len(person.asked) == 1
    assert list(outer_root.iterdir()) == []


@pytest.mark.requirement("scratch.absent")
@pytest.mark.parametrize(
    ("settings", "is_below", "why"),
    [({}, True, "This workspace is in /tmp"), ({"shell": {"sandbox": "off"}}, False, "")],
)
async def test_where_there_is_none_a_name_is_refused_with_the_reason(
    settings: Mapping[str, Any], is_below: bool, why: str, outer_root: Path, root: Path, tmp_path: Path
) -> None:
    folder = root if is_below else outer_root
    if is_below and not root.is_relative_to("/tmp"):
        pytest.skip("not run: files of tests lie elsewhere")
    async with connected("stdio", HANDSHAKE, folder, write_config(tmp_path, settings)) as client:
        for tool, arguments in (
            ("read_file", {"file_path": "/tmp/a.txt"}),
            ("write_file", {"file_path": "/tmp/a.txt", "content": "x"}),
            ("list_directory", {"path": "/tmp"}),
            ("run_shell_command", {"command": "pwd", "directory": "/tmp"}),
        ):
            said = await refused(client, tool, **arguments)
            assert "path_not_in_workspace" in said
            assert why in said
    assert not Path("/tmp/a.txt").exists()
