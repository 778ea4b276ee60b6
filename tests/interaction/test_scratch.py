"""The client's own `/tmp`, which its commands and the file tools share."""

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

OTHER_TEXT = "reference to the workspace"


class Person:
    """Answers every question with yes, and records the questions."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool successfully, and return all that the client gets, which never shows the folder's real path."""
    result = await client.call_tool(tool, arguments)
    text = f"{result.content} {json.dumps(result.structured_content)}"
    assert not result.is_error, text
    assert PREFIX not in text
    return text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    text = str(result.content)
    assert result.is_error, text
    assert PREFIX not in text
    return text


@pytest.mark.requirement("scratch.names")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
async def test_commands_and_file_tools_read_each_others_files(outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    config = write_config(tmp_path, {"permissions": {"allow": ["Bash", "Edit(//tmp/**)"]}, "media": "resource_link"})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        assert "is empty" in await call(client, "list_directory", path="/tmp")
        await call(client, "run_shell_command", command="echo from-command > /tmp/test-out.txt")
        assert "from-command" in await call(client, "read_file", file_path="/tmp/test-out.txt")
        await call(client, "write_file", file_path="/tmp/in.txt", content="from-tool\n")
        assert "from-tool" in await call(client, "run_shell_command", command="cat /tmp/in.txt")
        await call(client, "edit", file_path="/tmp/test-out.txt", old_string="from-command", new_string="edited")
        await call(client, "write_file", file_path="/tmp/sub/x.txt", content="deep\n")
        output = await call(client, "run_shell_command", command="pwd; cat ../test-out.txt x.txt", directory="/tmp/sub")
        assert "/tmp/sub" in output
        assert "edited" in output
        assert "deep" in output
        assert person.questions == []
        await call(
            client, "run_shell_command", command="ln -s /tmp/test-out.txt /tmp/link; ln -s /etc/passwd /tmp/secret"
        )
        assert "edited" in await call(client, "read_file", file_path="/tmp/link")
        assert "path_not_in_workspace" in await refusal(client, "read_file", file_path="/tmp/secret")
        assert "path_not_in_workspace" in await refusal(client, "write_file", file_path="/tmp/secret", content="x")
        assert "does not exist" in await refusal(client, "run_shell_command", command="pwd", directory="/tmp/none")
        await call(client, "run_shell_command", command=r"printf '\211PNG\r\n\032\n\0\0\0\r' > /tmp/image.png")
        assert "file:///tmp/image.png" in await call(client, "read_file", file_path="/tmp/image.png")
        long_result = await client.call_tool("run_shell_command", {"command": "seq 1 100000"})
        (link,) = [block for block in long_result.content if isinstance(block, types.ResourceLink)]
        assert "50000" in str(await client.call_tool("read_file", {"file_path": link.uri[7:], "offset": 49_999}))
        await call(client, "run_shell_command", command="sleep 600", directory="/tmp/sub", is_background=True)
        assert "/tmp/sub" in await call(client, "list_background_jobs")
    assert not Path("/tmp/test-out.txt").exists()
    assert list(outer_root.iterdir()) == []


@pytest.mark.requirement("scratch.names")
@pytest.mark.requirement("scratch.consent")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_every_file_tool_takes_names_in_tmp_unasked(era: str, outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    (outer_root / "own.txt").write_text(f"{OTHER_TEXT}\n")
    audit = tmp_path / "audit.log"
    config = write_config(tmp_path, {"log": {"audit": str(audit)}})
    async with connected("stdio", era, outer_root, config, elicitation_callback=person) as client:
        text = await call(client, "write_file", file_path="/tmp/a.txt", content="alpha reference\n")
        assert "Created the new file /tmp/a.txt" in text
        assert "undo" not in text.lower()
        await call(client, "write_file", file_path="/tmp/sub/b.txt", content="beta reference\n")
        await call(client, "write_file", file_path="/tmp/.gitignore", content="*.txt\n")
        text = await call(client, "edit", file_path="//tmp/a.txt", old_string="alpha", new_string="gamma")
        assert "Edited /tmp/a.txt" in text
        assert "gamma" in await call(client, "read_file", absolute_path="/tmp/../tmp/a.txt")
        assert "own.txt" not in await call(client, "list_directory", path="/tmp")
        text = await call(client, "list_directory", path="/tmp")
        assert "Listed 3 items in /tmp" in text
        matches = await call(client, "grep_search", pattern="reference", path="/tmp")
        assert "within /tmp" in matches
        assert "a.txt" in matches
        assert "sub/b.txt" in matches
        assert OTHER_TEXT not in matches
        assert "gamma" in await call(client, "grep_search", pattern="reference", path="/tmp/a.txt")
        for arguments in ({"pattern": "/tmp/**/*.txt"}, {"pattern": "**/*.txt", "path": "/tmp"}):
            assert "/tmp/sub/b.txt" in await call(client, "glob", **arguments)
        for paths in (["/tmp/a.txt", "/tmp/sub/b.txt"], ["/tmp/**/*.txt"], ["/tmp"]):
            contents = await call(client, "read_many_files", paths=paths)
            assert "--- /tmp/a.txt ---" in contents
            assert "--- /tmp/sub/b.txt ---" in contents
            assert OTHER_TEXT not in contents
        assert "gamma" in str(await client.read_resource("file:///tmp/a.txt"))
        # Without a path, the tools find nothing in /tmp.
        for tool, arguments in (
            ("grep_search", {"pattern": "reference"}),
            ("glob", {"pattern": "**/*.txt"}),
            ("read_many_files", {"paths": ["**/*.txt"]}),
            ("list_directory", {"path": "."}),
        ):
            text = await call(client, tool, **arguments)
            assert "own.txt" in text
            assert "b.txt" not in text
        assert "does not exist" in await refusal(client, "read_file", file_path="/tmp/none.txt")
        assert "does not exist" in await refusal(client, "list_directory", path="/tmp/none")
        assert "does not exist" in await refusal(client, "grep_search", pattern="x", path="/tmp/none")
        assert "does not exist" in await refusal(client, "edit", file_path="/tmp/none", old_string="x", new_string="y")
        assert "/tmp/none.txt: does not exist" in await call(client, "read_many_files", paths=["/tmp/none.txt"])
        assert "not found" in await refusal(client, "edit", file_path="/tmp/a.txt", old_string="zeta", new_string="y")
        await call(client, "write_file", file_path="own.txt", content="asked")
        assert "a.txt" not in await call(client, "list_changes")
    (question,) = person.questions
    assert "own.txt" in question
    entries = audit.read_text()
    assert "/tmp/a.txt" in entries
    assert PREFIX not in entries


@pytest.mark.requirement("scratch.consent")
async def test_rules_hold_for_names_in_tmp_and_auto_run_files_are_asked_about(outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    rules = {
        "deny": ["Read(//tmp/secret)", "Edit(//tmp/kept/**)"],
        "ask": ["Edit(//tmp/asked.txt)"],
    }
    config = write_config(tmp_path, {"permissions": rules})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        await call(client, "write_file", file_path="/tmp/open.txt", content="reference\n")
        await call(client, "write_file", file_path="/tmp/secret", content="reference\n")
        for spelling in ("/tmp/secret", "//tmp/./secret", "/tmp/../tmp/secret"):
            assert "Read(//tmp/secret)" in await refusal(client, "read_file", file_path=spelling)
        assert "Read(//tmp/secret)" in await refusal(client, "grep_search", pattern="reference", path="/tmp/secret")
        for tool, arguments in (
            ("grep_search", {"pattern": "reference", "path": "/tmp"}),
            ("glob", {"pattern": "*", "path": "/tmp"}),
            ("list_directory", {"path": "/tmp"}),
            ("read_many_files", {"paths": ["/tmp"]}),
        ):
            text = await call(client, tool, **arguments)
            assert "open.txt" in text
            assert "secret" not in text
        assert "Edit(//tmp/kept/**)" in await refusal(client, "write_file", file_path="/tmp/kept/a", content="x")
        assert person.questions == []
        await call(client, "write_file", file_path="/tmp/asked.txt", content="x")
        await call(client, "write_file", file_path="/tmp/.vscode/tasks.json", content="{}")
        await call(client, "write_file", file_path="/tmp/.git/hooks/post-checkout", content="x")
    names = ["/tmp/asked.txt", "/tmp/.vscode/tasks.json", "/tmp/.git/hooks/post-checkout"]
    assert len(person.questions) == len(names)
    for name, question in zip(names, person.questions, strict=True):
        assert name in question
        assert PREFIX not in question


@pytest.mark.requirement("scratch.owner")
async def test_each_client_has_its_own_tmp_and_one_without_a_session_has_none(outer_root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with our_http_server(outer_root, config) as url:
        async with (
            http_client(url, "http", HANDSHAKE) as first,
            http_client(url, "http", HANDSHAKE) as second,
        ):
            await call(first, "write_file", file_path="/tmp/a.txt", content="of one")
            assert "does not exist" in await refusal(second, "read_file", file_path="/tmp/a.txt")
            assert "is empty" in await call(second, "list_directory", path="/tmp")
            assert "of one" in await call(first, "read_file", file_path="/tmp/a.txt")
        async with http_client(url, "http", MODERN) as anonymous_client:
            text = await refusal(anonymous_client, "read_file", file_path="/tmp/a.txt")
            assert "path_not_in_workspace" in text
            assert "This client has no session" in text


@pytest.mark.requirement("scratch.owner")
@pytest.mark.requirement("scratch.consent")
async def test_plan_mode_has_its_own_tmp_which_is_gone_with_the_plan(outer_root: Path, tmp_path: Path) -> None:
    person = Person()
    config = write_config(tmp_path, {"approvalMode": "plan"})
    async with connected("stdio", HANDSHAKE, outer_root, config, elicitation_callback=person) as client:
        await call(client, "write_file", file_path="/tmp/notes.txt", content="draft")
        await call(client, "edit", file_path="/tmp/notes.txt", old_string="draft", new_string="final")
        assert "final" in await call(client, "read_file", file_path="/tmp/notes.txt")
        assert "plan mode is on" in await refusal(client, "write_file", file_path="a.txt", content="x")
        assert person.questions == []
        assert "Plan mode's own /tmp is gone." in await call(client, "exit_plan_mode", plan="1. Write.")
        assert "does not exist" in await refusal(client, "read_file", file_path="/tmp/notes.txt")
        assert "is empty" in await call(client, "list_directory", path="/tmp")
        await call(client, "write_file", file_path="/tmp/notes.txt", content="of afterwards")
    assert len(person.questions) == 1
    assert list(outer_root.iterdir()) == []


@pytest.mark.requirement("scratch.absent")
@pytest.mark.parametrize(
    ("settings", "place", "reason"),
    [
        ({}, "below", "This workspace is in /tmp"),
        ({"shell": {"sandbox": "off"}}, "elsewhere", ""),
        # Even if bubblewrap works, commands do not run in it if the workspace contains the system.
        ({}, "/var/lib", "There is no private /tmp, because commands do not run in bubblewrap: the workspace root"),
    ],
)
async def test_where_there_is_no_tmp_a_name_in_it_is_refused_with_the_reason(
    settings: Mapping[str, Any], place: str, reason: str, outer_root: Path, root: Path, tmp_path: Path
) -> None:
    folder = {"below": root, "elsewhere": outer_root}.get(place, Path(place))
    if place == "below" and not root.is_relative_to("/tmp"):
        pytest.skip("not run: the files of tests are not in /tmp")
    async with connected("stdio", HANDSHAKE, folder, write_config(tmp_path, settings)) as client:
        for tool, arguments in (
            ("read_file", {"file_path": "/tmp/test-a.txt"}),
            ("write_file", {"file_path": "/tmp/test-a.txt", "content": "x"}),
            ("list_directory", {"path": "/tmp"}),
            ("run_shell_command", {"command": "pwd", "directory": "/tmp"}),
        ):
            text = await refusal(client, tool, **arguments)
            assert "path_not_in_workspace" in text
            assert reason in text
    assert not Path("/tmp/test-a.txt").exists()
