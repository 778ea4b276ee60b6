"""Commands through a real server and a real sandbox: views, needs, the answer for the sandbox, loopback and `/tmp`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import forked
from tests.harness import HANDSHAKE, LAUNCHER, MODERN

pytestmark = pytest.mark.anyio


class Person:
    """Gives every question the same answer, and records the questions."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.action: Literal["accept", "decline"] = "accept"
        self.questions: list[types.ElicitRequestFormParams] = []

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params)
        content: dict[str, str | int | float | bool | list[str] | None] = {"decision": self.decision}
        return types.ElicitResult(action=self.action, content=content if self.action == "accept" else None)


@asynccontextmanager
async def sandbox_client(
    root: Path, person: Person, settings: Mapping[str, Any] | None = None, mode: str = HANDSHAKE, *others: Path
) -> AsyncGenerator[Client]:
    config = root.parent / "settings.json"
    config.write_text(json.dumps({"shell": {"sandbox": "auto"}, **(settings or {})}))
    arguments = ["-P", "-W", "error", str(LAUNCHER), "serve", "--workspace", str(root), "--config", str(config)]
    arguments += [f"--workspace={other}" for other in others]
    parameters = StdioServerParameters(command=sys.executable, args=forked(arguments))
    async with Client(parameters, mode=mode, cache=None, elicitation_callback=person) as client:
        yield client


async def run(client: Client, command: str, **arguments: Any) -> tuple[str, Mapping[str, Any]]:
    result = await client.call_tool("run_shell_command", {"command": command, **arguments})
    facts = (result.meta or {}).get("coretools-mcp/facts", {})
    if facts and facts["engine"] != "bubblewrap":
        pytest.skip("not run: bubblewrap does not run here")
    return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent)), facts


@pytest.mark.requirement("commands.views")
async def test_a_command_that_only_reads_runs_unasked_and_can_change_nothing(outer_root: Path) -> None:
    (outer_root / "a.txt").write_text("here\n")
    person = Person("deny")
    async with sandbox_client(outer_root, person) as client:
        text, facts = await run(client, "cat a.txt; awk 'BEGIN { system(\"echo x > a.txt; touch b\") }'")
        assert "here" in text
        assert 'needs: "write"' in text
        assert (facts["view"], facts["network"]) == ("reading", "session loopback")
    assert person.questions == []
    assert [path.name for path in outer_root.iterdir()] == ["a.txt"]
    assert (outer_root / "a.txt").read_text() == "here\n"


@pytest.mark.requirement("commands.needs")
async def test_what_a_command_needs_is_asked_about_and_granted(outer_root: Path) -> None:
    person = Person("once")
    async with sandbox_client(outer_root, person) as client:
        _, facts = await run(client, "ls", needs="write")
        assert facts["view"] == "working"
        _, facts = await run(client, "ls", needs="network")
        assert facts["network"] == "host"
    assert [
        ("no network" in question.message, "has network access" in question.message) for question in person.questions
    ] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.requirement("commands.answers")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_any_command_of_the_sandbox_is_asked_about_once(outer_root: Path, mode: str) -> None:
    person = Person("always_sandboxed")
    async with sandbox_client(outer_root, person, mode=mode) as client:
        for number in range(3):
            _, facts = await run(client, f"touch made-{number}")
            assert facts["view"] == "working"
        assert len(person.questions) == 1
        assert person.questions[0].message.count("touch made-0") == 1, "the command is shown once"
        person.decision = "deny"
        await run(client, "cp made-0 .mcp.json")
        assert len(person.questions) == 2
    assert sorted(path.name for path in outer_root.iterdir()) == [f"made-{number}" for number in range(3)]


@pytest.mark.requirement("commands.answers")
async def test_answers_and_settings_that_could_not_allow_a_network_command_are_not_suggested(outer_root: Path) -> None:
    person = Person("deny")
    async with sandbox_client(outer_root, person) as client:
        if not (await run(client, "true"))[1]:
            pytest.skip("not run: bubblewrap does not run here")
        await run(client, "git clone https://127.0.0.1:9/x")
        person.action = "decline"
        text, _ = await run(client, "git clone https://127.0.0.1:9/x")
    assert "sandbox" not in str(person.questions[0].requested_schema)
    assert "sandboxedCommands" not in text
    assert (
        'adding "Bash(git clone *)" to permissions.allow, or by starting the server with --approval-mode yolo' in text
    )


@pytest.mark.requirement("commands.rules")
async def test_no_program_reads_or_changes_what_is_denied(outer_root: Path) -> None:
    (outer_root / ".env").write_text("SESAME\n")
    (outer_root / "kept.txt").write_text("as it was\n")
    (outer_root / "Makefile").write_text(
        "all:\n\tcat .en*v; echo x > ke*.txt; ln .env two; cp -r . copy; cat two copy/.env\n"
    )
    rules = {"deny": ["Read(.env)", "Edit(kept.txt)"], "allow": ["Bash(make *)"]}
    async with sandbox_client(outer_root, Person("deny"), {"permissions": rules}) as client:
        text, facts = await run(client, "make -i")
        assert facts["view"] == "working"
        assert "SESAME" not in text
        assert "Permission denied" in text
    assert (outer_root / "kept.txt").read_text() == "as it was\n"


@pytest.mark.requirement("loopback.shared")
async def test_a_server_that_one_command_starts_answers_the_next_one(outer_root: Path) -> None:
    (outer_root / "page.txt").write_text("served\n")
    person = Person("once")
    async with sandbox_client(outer_root, person) as client:
        await run(client, "python3 -m http.server 8123", is_background=True)
        text = ""
        facts: Mapping[str, Any] = {}
        for _ in range(100):
            text, facts = await run(client, "curl -s --max-time 5 http://localhost:8123/page.txt")
            if "served" in text:
                break
        assert "served" in text
        assert facts["view"] == "reading"
    assert len(person.questions) == 1
    assert "Later commands can use" in person.questions[0].message


@pytest.mark.requirement("scratch.work")
async def test_what_a_command_that_changes_files_leaves_in_its_temporary_folder_can_be_read(outer_root: Path) -> None:
    async with sandbox_client(outer_root, Person("once")) as client:
        await run(client, "echo said > $TMPDIR/x.log; echo $TMPDIR", needs="write")
        text, _ = await run(client, "tail -1 /var/tmp/x.log")
        assert "read_file" in text
        result = await client.call_tool("read_file", {"file_path": "/var/tmp/x.log"})
        assert [part.text for part in result.content if isinstance(part, types.TextContent)] == ["said\n"]
        assert (await client.call_tool("write_file", {"file_path": "/var/tmp/x.log", "content": ""})).is_error
        assert "said" in (await run(client, "tail -1 /var/tmp/x.log", needs="write"))[0]


@pytest.mark.requirement("hidden.written")
async def test_a_write_of_a_hidden_file_says_which_jobs_may_read_it(outer_root: Path) -> None:
    person = Person("once")
    rules = {"deny": ["Read(.env)"]}
    async with sandbox_client(outer_root, person, {"permissions": rules}) as client:
        await run(client, "echo")  # skips the test if there is no sandbox
        for name, is_reported in (("a.txt", False), (".env", True)):
            result = await client.call_tool("write_file", {"file_path": name, "content": "before"})
            assert "background job" not in str(result.content)
            start_text, _ = await run(client, "sleep 1000", is_background=True)
            job = start_text.split()[2]
            result = await client.call_tool("write_file", {"file_path": name, "content": "after"})
            assert (job in str(result.content), job in person.questions[-1].message) == (is_reported, is_reported)
            await client.call_tool("stop_background_job", {"job_id": job})


@pytest.mark.requirement("workspace.gone")
async def test_a_workspace_folder_that_was_renamed_is_named_and_nothing_is_asked(root: Path) -> None:
    (root / "a.txt").write_text("a")
    person = Person("once")
    async with sandbox_client(root, person) as client:
        root.rename(root.with_name("renamed"))
        for tool, arguments in (
            ("read_file", {"file_path": "a.txt"}),
            ("list_directory", {"path": "."}),
            ("glob", {"pattern": "*"}),
            ("grep_search", {"pattern": "a"}),
            ("write_file", {"file_path": "b.txt", "content": "b"}),
            ("run_shell_command", {"command": "ls"}),
            ("run_shell_command", {"command": "npm test"}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert f"The workspace folder '{root}' no longer exists" in str(result.content)
    assert person.questions == []
    assert not root.exists()


@pytest.mark.requirement("workspace.gone")
async def test_one_of_several_workspace_folders_that_was_renamed_is_named_where_it_is_needed(outer_root: Path) -> None:
    gone, kept = outer_root / "gone", outer_root / "kept"
    for folder in (gone, kept):
        folder.mkdir()
    (kept / "a.txt").write_text("a")
    async with sandbox_client(gone, Person("once"), None, HANDSHAKE, kept) as client:
        gone.rename(gone.with_name("renamed"))
        for tool, arguments, is_named in (
            ("list_directory", {"path": str(gone)}, True),
            ("list_directory", {"path": str(gone / "sub")}, True),
            ("glob", {"pattern": "*"}, True),
            ("grep_search", {"pattern": "a"}, True),
            ("glob", {"pattern": "*", "path": str(kept)}, False),
            ("read_file", {"file_path": str(kept / "absent.txt")}, False),
        ):
            result = await client.call_tool(tool, arguments)
            assert (f"The workspace folder '{gone}' no longer exists" in str(result.content)) is is_named, tool


@pytest.mark.requirement("sandbox.git")
async def test_a_hook_from_a_clients_own_tmp_that_a_push_runs_can_write_no_hooks(outer_root: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.invalid")
    for arguments in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        await anyio.run_process([*git, *arguments], cwd=outer_root)
    new_hook = outer_root / ".git/hooks/pre-commit"
    async with sandbox_client(outer_root, Person("once")) as client:
        hook = "/tmp/own.git/hooks/post-receive"
        await run(client, f"git init -q --bare /tmp/own.git; echo 'echo x > {new_hook}' > {hook}; chmod +x {hook}")
        text, _ = await run(client, "git push /tmp/own.git HEAD:refs/heads/x")
    assert "[new branch]" in text
    assert "Read-only file system" in text
    assert "Git can change such files" not in text
    assert not new_hook.exists()
