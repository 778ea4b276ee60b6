"""Undo as a client sees it: it survives kills of the server, needs consent like an edit, and hides its journal."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, MODERN, connected, write_config
from tests.interaction.test_lifecycle import INITIALIZE, INITIALIZED, Server, by_itself, call, running
from tests.interaction.test_own_files import Person, workspace_client
from tools.files.change.journal import FILE, Journal

pytestmark = pytest.mark.anyio

LIST_TOOL = "list_changes"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the servers of one test keep the journal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.resolve() / "state"))
    return tmp_path.resolve() / "state" / "coretools-mcp"


@asynccontextmanager
async def asking_client(root: Path, state: Path, person: Person, *options: str) -> AsyncGenerator[Client]:
    environ = {**os.environ, "XDG_STATE_HOME": str(state.parent)}
    async with workspace_client(root, person, *options, environ=environ) as client:
        yield client


async def text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return f"{'failed: ' if result.is_error else ''}{result.content[0].text}"  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportOptionalMemberAccess]


@pytest.mark.requirement("undo.change")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_two_edits_and_a_new_file_are_taken_back_after_a_restart(era: str, root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"approvalMode": "auto-edit"})
    path = root / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\n")
    path.chmod(0o604)
    async with connected("stdio", era, root, config) as client:
        await text(client, "edit", file_path="a.txt", old_string="one", new_string="1")
        await text(client, "edit", file_path="a.txt", old_string="two", new_string="2")
        await text(client, "write_file", file_path="new.txt", content="new\n")
    async with connected("stdio", era, root, config) as client:
        assert len((await text(client, LIST_TOOL)).splitlines()) == 4
        for _ in range(3):
            assert (await text(client, "undo_change")).startswith("Change ")
        assert "left to undo" in await text(client, "undo_change")
    assert path.read_bytes() == b"one\r\ntwo\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert os.listdir(root) == ["a.txt"]


def undo_over(server: Server) -> dict[str, Any]:
    server.send(call(2, "undo_change"))
    return server.answer()["result"]


@pytest.mark.requirement("undo.killed")
def test_after_a_kill_in_the_middle_the_file_and_the_journal_agree(root: Path, state: Path) -> None:
    path = root / "a.txt"
    path.write_text("0\n")
    for turn in range(1, 3):
        with running(root, None, "--approval-mode", "auto-edit", start=by_itself) as server:
            server.send(INITIALIZE, INITIALIZED, call(1, "read_file", file_path="a.txt"))
            server.answer()
            server.answer()
            edits = [call(1 + n, "write_file", file_path="a.txt", content=f"{turn}.{n}\n") for n in range(1, 30)]
            server.send(*edits)
            for _ in range(5 * turn):
                server.answer()
            os.kill(server.process.pid, signal.SIGKILL)
    with running(root, None, "--approval-mode", "auto-edit") as server:
        server.send(INITIALIZE, INITIALIZED)
        server.answer()
        while (result := undo_over(server)) and not result.get("isError"):
            pass
    assert "left to undo" in result["content"][0]["text"]
    assert path.read_text() == "0\n"


@pytest.mark.requirement("undo.store")
async def test_two_servers_write_into_one_journal_at_once(root: Path, state: Path) -> None:
    async def edit(name: str) -> None:
        async with asking_client(root, state, Person(), "--approval-mode", "auto-edit") as client:
            for number in range(25):
                assert "undone" not in await text(client, "write_file", file_path=name, content=f"{number}\n")

    async with anyio.create_task_group() as group:
        for name in ("a.txt", "b.txt", "c.txt"):
            group.start_soon(edit, name)
    journal = Journal(str(state), 1_000_000, 1, 1_000)
    changes = journal.changes(None, [str(root)], limit=1_000)
    journal.close()
    assert len(changes) == 75
    assert len({change.id for change in changes}) == 75


@pytest.mark.requirement("undo.asked")
async def test_an_undo_is_asked_about_with_the_reverse_diff_like_an_edit(root: Path, state: Path) -> None:
    (root / "a.txt").write_text("old\n")
    person = Person("once")
    async with asking_client(root, state, person) as client:
        await text(client, "write_file", file_path="a.txt", content="new\n")
        person.decision = "deny"
        assert (await text(client, "undo_change")).startswith("failed: The user refused")
        assert (root / "a.txt").read_text() == "new\n"
        assert "Undo change 1 of a.txt (write_file)" in person.questions[1]
        assert "-new\n+old\n" in person.questions[1]
        # "Always" for edits in the folder covers an undo too.
        person.decision = "always"
        await text(client, "write_file", file_path="b.txt", content="new\n")
        await text(client, "undo_change")
        assert len(person.questions) == 3
    assert not (root / "b.txt").exists()


@pytest.mark.requirement("undo.whose")
async def test_an_undo_says_if_another_session_made_the_change(root: Path, state: Path) -> None:
    person, mark = Person("once"), "was made by another session, at 20"
    async with asking_client(root, state, Person("once")) as other, asking_client(root, state, person) as client:
        await text(client, "write_file", file_path="own.txt", content="x\n")
        await text(other, "write_file", file_path="other.txt", content="x\n")
        listed: dict[str, Any] = (await client.call_tool(LIST_TOOL, {})).structured_content or {}
        assert [change["own"] for change in listed["changes"]] == [False, True]
        assert "other.txt (+1 -0, new, another session)" in await text(client, LIST_TOOL)
        assert f"Change 2 {mark}" in await text(client, "undo_change")
        assert mark not in await text(client, "undo_change")
    assert [mark in question for question in person.questions] == [False, True, False]
    assert not (root / "own.txt").exists()


@pytest.mark.requirement("undo.asked")
async def test_the_question_says_that_an_undo_removes_the_file(root: Path, state: Path) -> None:
    person = Person("once")
    async with asking_client(root, state, person) as client:
        await text(client, "write_file", file_path="a.txt", content="new\n")
        await text(client, "undo_change")
        assert "Undo change 1 of a.txt (write_file), and remove the file\n" in person.questions[1]
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("undo.asked")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--approval-mode", "plan"], "plan mode is on"),
        (["--config", "Edit(a.txt)"], "permissions.deny rule Edit(a.txt)"),
        (["--config", "Write"], "turned off by the permissions.deny rule Write"),
        (["--config", "undo_change"], "is turned off"),
    ],
    ids=str,
)
async def test_what_refuses_an_edit_of_a_file_refuses_to_undo_one(
    options: list[str], reason: str, root: Path, state: Path, tmp_path: Path
) -> None:
    async with asking_client(root, state, Person("once")) as client:
        await text(client, "write_file", file_path="a.txt", content="new\n")
    person = Person("once")
    if options[0] == "--config":
        options = ["--config", str(write_config(tmp_path, {"permissions": {"deny": [options[1]], "allow": ["*"]}}))]
    async with asking_client(root, state, person, *options) as client:
        refusal = await text(client, "undo_change")
        assert refusal.startswith("failed: The call is refused")
        assert reason in refusal
    assert person.questions == []
    assert (root / "a.txt").exists()


@pytest.mark.requirement("undo.asked")
async def test_an_answer_counts_for_the_file_as_it_was_shown_only(root: Path, state: Path) -> None:
    class Meddler(Person):
        async def __call__(self, context: Any, params: Any) -> Any:
            answer = await super().__call__(context, params)
            if len(self.questions) == 2:
                (root / "a.txt").write_text("theirs\n")
            return answer

    async with asking_client(root, state, Meddler("once")) as client:
        await text(client, "write_file", file_path="a.txt", content="new\n")
        assert "has changed since change 1" in await text(client, "undo_change")
    assert (root / "a.txt").read_text() == "theirs\n"


@pytest.mark.requirement("undo.private")
async def test_a_journal_in_the_workspace_is_neither_read_nor_found_nor_written_by_tools(root: Path) -> None:
    state = root / "state" / "coretools-mcp"
    (root / "secret").write_text("a very secret line\n")
    async with asking_client(root, state, Person("once"), "--approval-mode", "yolo") as client:
        await text(client, "write_file", file_path="secret", content="x\n")
        assert (state / FILE).exists()
        for tool, arguments in (
            ("read_file", {"absolute_path": str(state / FILE)}),
            ("write_file", {"file_path": str(state / FILE), "content": "x"}),
            ("list_directory", {"path": str(state)}),
            ("read_many_files", {"paths": [str(state / FILE)]}),
        ):
            output = await text(client, tool, **arguments)
            assert "very secret" not in output
            assert "belongs to this server" in output or "No matching files" in output or "No file" in output, output
        assert FILE not in await text(client, "glob", pattern="**/*", respect_git_ignore=False)
        assert "very secret" not in await text(client, "grep_search", pattern="secret line", no_ignore=True)
    person = Person("deny")
    async with asking_client(root, state, person, "--approval-mode", "yolo") as client:
        assert (await text(client, "run_shell_command", command=f"rm -rf {state}")).startswith(
            "failed: The user refused"
        )
    assert len(person.questions) == 1


@pytest.mark.requirement("undo.private")
async def test_no_command_in_the_sandbox_sees_the_journal(root: Path, state: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"shell": {"sandbox": "required"}})
    options = ("--approval-mode", "yolo", "--config", str(config))
    async with asking_client(root, state, Person("once"), *options) as client:
        output = await text(client, "run_shell_command", command=f"ls -A {state.parent}/*; echo ran")
        if "sandbox" in output and "ran" not in output:
            pytest.skip("not run: no sandbox works here")
        await text(client, "write_file", file_path="a.txt", content="x\n")
        assert (state / FILE).exists()
        output = await text(client, "run_shell_command", command=f"cat {state / FILE}; ls -A {state}; echo ran")
        assert "SQLite" not in output
        assert FILE not in output.replace(str(state / FILE), "")
        assert "ran" in output


@pytest.mark.requirement("undo.commands")
async def test_files_that_a_command_changed_are_named_apart_from_what_it_printed(
    root: Path, state: Path, tmp_path: Path
) -> None:
    (root / ".git").mkdir()
    (root / "a.txt").write_text("x\n")

    async def texts_of_command(client: Client, command: str, **options: Any) -> list[str]:
        result = await client.call_tool("run_shell_command", {"command": command, **options})
        return [block.text for block in result.content]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]

    start, end = (
        "Files that changed during this call, because of the command or another program: ",
        "changes by commands.",
    )
    async with asking_client(root, state, Person("once"), "--approval-mode", "yolo") as client:
        output, line = await texts_of_command(client, "echo more >> a.txt; touch b.txt; echo done")
        assert output.endswith("done")
        assert line == f"{start}changed a.txt; created b.txt. undo_change cannot undo {end}"
        assert len(await texts_of_command(client, "python3 -c 'print(1)'")) == 1
        assert len(await texts_of_command(client, "cat a.txt")) == 1
        (output,) = await texts_of_command(client, "rm b.txt; echo gone; while :; do :; done", timeout=2_000)
        assert f"gone\n{start}deleted b.txt." in output
    config = write_config(tmp_path, {"undo": {"enabled": False}})
    async with asking_client(root, state, Person("once"), "--approval-mode", "yolo", "--config", str(config)) as client:
        assert len(await texts_of_command(client, "touch c.txt")) == 1


@pytest.mark.requirement("undo.commands")
async def test_a_file_that_a_command_writes_only_by_a_redirection_is_named(root: Path, state: Path) -> None:
    (root / ".git").mkdir()
    async with asking_client(root, state, Person("once"), "--approval-mode", "auto-edit") as client:
        result = await client.call_tool("run_shell_command", {"command": "echo x > new.txt"})
        assert ": created new.txt. undo_change" in result.content[-1].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.requirement("undo.commands")
async def test_a_command_that_only_reads_is_not_watched_for_changes(root: Path, state: Path) -> None:
    (root / ".git").mkdir()
    os.mkfifo(root / "pipe")
    results: list[int] = []

    async def call(client: Client, command: str) -> None:
        results.append(len((await client.call_tool("run_shell_command", {"command": command})).content))

    def meddle() -> None:
        with (root / "pipe").open("w") as pipe:  # waits until the command opens it
            (root / f"new-{len(results)}").touch()
            pipe.write("x")

    async with asking_client(root, state, Person("once")) as client:
        for command in ("cat pipe", "cat pipe; touch mine"):
            async with anyio.create_task_group() as group:
                group.start_soon(call, client, command)
                await anyio.to_thread.run_sync(meddle, abandon_on_cancel=True)
    assert results == [1, 2]


@pytest.mark.requirement("undo.settings")
async def test_switched_off_undo_keeps_nothing_and_lists_no_tools(root: Path, state: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"undo": {"enabled": False}})
    async with asking_client(root, state, Person("once"), "--config", str(config)) as client:
        assert LIST_TOOL not in {tool.name for tool in (await client.list_tools()).tools}
        await text(client, "write_file", file_path="a.txt", content="x\n")
    assert not state.exists()
