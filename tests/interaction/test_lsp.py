"""Language servers as a client sees them: honest and hostile ones, with and without the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from server.settings.workspace_trust import trust_folder
from tests.conformance.fetch import LANGUAGE_SERVERS
from tests.harness import HANDSHAKE, MODERN, PEERS, in_memory, server_arguments, text_of, write_config
from tests.processes import NoSandbox, pids_with_mark, until_no_process_has_mark
from tests.tables import each_of
from tests.unit.execution.shell import RecordingStarter
from tests.waiting import until
from tools.builtin import lsp
from tools.contract.command_views import NO_RESTRICTIONS
from tools.contract.tool_errors import ExecutionDeniedError
from tools.files.workspace import Workspace
from tools.lsp import code_locations
from tools.lsp.code_intelligence import CodeIntelligence, ServerStart
from tools.lsp.language_server_session import ConnectionEndedError, LanguageServerConnection, path_of
from tools.lsp.language_servers import LanguageServer, ServerPrograms, programs_in
from tools.permissions.permission_policy import ALL_RIGHTS
from tools.shell.private_folders import PrivateFolders

pytestmark = pytest.mark.anyio

SERVER = str(PEERS / "language_server.py")
ALLOWED = {"shell": {"sandbox": "off"}, "permissions": {"allow": ["lsp"]}}
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is not installed")
CODE = "one\n  \U0001d4b3wrong two\nthree"
AT = {"filePath": "a.fake", "line": 2, "character": 4}


def settings(behaviour: str = "honest", other_settings: Mapping[str, Any] = ALLOWED, **lsp: Any) -> dict[str, Any]:
    entry = {"command": sys.executable, "args": [SERVER, behaviour], "extensionToLanguage": {".fake": "fake"}}
    return {"lsp": {"servers": {"fake": entry}, **lsp}, **other_settings}


@asynccontextmanager
async def client_of(
    root: Path, config: Mapping[str, Any], revision: str = HANDSHAKE, **callbacks: Any
) -> AsyncGenerator[Client]:
    (root / "a.fake").write_text(CODE)
    async with in_memory(revision, root, write_config(root.parent, config), **callbacks) as client:
        with anyio.fail_after(100):
            yield client


async def ask(client: Client, operation: str, **arguments: Any) -> types.CallToolResult:
    return await client.call_tool("lsp", {"operation": operation, **arguments})


def code_of(result: types.CallToolResult) -> str:
    return (result.meta or {})["coretools-mcp/error"]["type"]


def location(uri: str, line: Any, character: Any) -> dict[str, Any]:
    start = {"line": line, "character": character}
    return {"uri": uri, "range": {"start": start, "end": start}}


def write_locations(root: Path, *locations: dict[str, Any]) -> None:
    (root / "places.json").write_text(json.dumps(locations))


@pytest.mark.requirement("lsp.answers")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_every_operation_reports_places_as_people_count_them(root: Path, revision: str) -> None:
    async with client_of(root, settings(), revision) as client:
        uri = (root / "a.fake").as_uri()
        write_locations(root, location(uri, 1, 9), location(uri, 1, 9))
        for operation in ("goToDefinition", "findReferences", "goToImplementation"):
            assert text_of(await ask(client, operation, **AT)) == "a.fake:2:9: \U0001d4b3wrong two"
        assert text_of(await ask(client, "documentSymbol", filePath="a.fake")).startswith("a.fake:1:1: function deep")
        assert text_of(await ask(client, "workspaceSymbol", query="N", limit=1)).startswith("a.fake:2:9: class Named")
        assert text_of(await ask(client, "diagnostics", filePath="a.fake")) == "a.fake:2:4: error: \U0001d4b3wrong two"
        assert "a.fake:2:4: error" in text_of(await ask(client, "workspaceDiagnostics"))
        hover = json.loads(text_of(await ask(client, "hover", **AT)))
    assert hover["opened"] == 1
    assert hover["changed"] == 0


@pytest.mark.requirement("lsp.answers")
async def test_the_first_list_of_all_errors_waits_until_the_server_knows_the_project(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lsp, "QUIET_SECONDS", 0.01)  # less time than the server needs for its first report
    async with client_of(root, settings("loads")) as client:
        assert "a.fake:2:4: error" in text_of(await ask(client, "workspaceDiagnostics", filePath="a.fake"))


@pytest.mark.requirement("lsp.answers")
async def test_a_question_about_the_workspace_goes_to_another_server_if_the_latest_has_no_file_open(root: Path) -> None:
    config = settings()
    fake = config["lsp"]["servers"]["fake"]
    config["lsp"]["servers"]["other"] = {**fake, "extensionToLanguage": {".other": "other"}}
    async with client_of(root, config) as client:
        (root / "b.other").write_text(CODE)
        for name in ("a.fake", "b.other"):
            await ask(client, "documentSymbol", filePath=name)
        (root / "b.other").unlink()
        await ask(client, "workspaceDiagnostics")  # closes the deleted file
        assert "a.fake:2:4: error" in text_of(await ask(client, "workspaceDiagnostics"))


@pytest.mark.requirement("lsp.answers")
async def test_a_question_about_the_workspace_needs_a_file_until_a_server_has_one_open(root: Path) -> None:
    async with client_of(root, settings("loads")) as client:
        write_locations(root, location((root / "a.fake").as_uri(), 1, 9))
        for operation in ("workspaceSymbol", "workspaceDiagnostics"):
            refusal = await ask(client, operation, query="N")
            assert code_of(refusal) == "no_language_server"
            assert "Give a file as filePath: the server for its language" in text_of(refusal)
        # The first answer waits until the server knows the project.
        for arguments in ({"filePath": "a.fake"}, {}):
            assert "class Named" in text_of(await ask(client, "workspaceSymbol", query="N", **arguments))


@pytest.mark.requirement("lsp.answers")
async def test_a_place_that_is_missing_or_not_there_is_refused_before_anything_is_asked(root: Path) -> None:
    async with client_of(root, settings()) as client:
        for operation, arguments in (
            ("hover", {"filePath": "a.fake"}),
            ("documentSymbol", {}),
            ("workspaceSymbol", {}),
            ("hover", {**AT, "line": 99}),
            ("hover", {**AT, "character": 99}),
        ):
            assert code_of(await ask(client, operation, **arguments)) == "invalid_tool_params"
        assert code_of(await ask(client, "documentSymbol", filePath="b.fake")) == "file_not_found"
        (root / "c.unknown").touch()
        assert code_of(await ask(client, "documentSymbol", filePath="c.unknown")) == "no_language_server"


@pytest.mark.requirement("lsp.answers")
async def test_a_missing_program_is_looked_for_where_the_settings_say(root: Path) -> None:
    config = settings()
    for name, command in (("path", "/nowhere/server"), ("name", "no-such-server")):
        config["lsp"]["servers"][name] = {"command": command, "extensionToLanguage": {f".{name}": name}}
        (root / f"a.{name}").touch()
    async with client_of(root, config) as client:
        answer = text_of(await ask(client, "documentSymbol", filePath="a.path"))
        assert "no language server for path: /nowhere/server cannot be run." in answer
        answer = text_of(await ask(client, "documentSymbol", filePath="a.name"))
        assert "no language server for name: the PATH outside the workspace has no no-such-server." in answer


@pytest.mark.requirement("lsp.answers")
async def test_an_answer_that_is_cut_says_how_to_get_at_the_rest(root: Path) -> None:
    async with client_of(root, settings()) as client:
        write_locations(root, *(location((root / "a.fake").as_uri(), line, 0) for line in range(1_001)))
        (root / "b.fake").write_text("wrong\n" * 101)
        for operation, arguments, last_line in (
            ("goToDefinition", AT, "Not shown: 901 more; raise limit."),
            ("goToDefinition", {**AT, "limit": 9_999}, "Not shown: 1 more; limit is at most 1000."),
            ("workspaceSymbol", {"query": "x", "limit": 1_000}, "Not shown: 1 more; ask about one file or a"),
            ("diagnostics", {"filePath": "b.fake", "limit": 200}, "Not shown: 1 more; fix these first."),
        ):
            assert text_of(await ask(client, operation, **arguments)).splitlines()[-1].startswith(last_line), operation


@pytest.mark.requirement("lsp.rules")
async def test_a_place_in_a_hidden_file_or_outside_the_workspace_is_reported_without_its_text(root: Path) -> None:
    config = settings(other_settings={**ALLOWED, "permissions": {"allow": ["lsp"], "deny": ["Read(secret.fake)"]}})
    for name in ("secret.fake", "ignored.fake", "sub/unknown.fake"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("SECRET wrong")
    (root / ".geminiignore").write_text("ignored.fake\n")
    (root / "sub" / ".geminiignore").write_bytes(b"\0")
    (root / "link.fake").symlink_to("/etc/hostname")
    uris = [(root / name).as_uri() for name in ("secret.fake", "ignored.fake", "link.fake", "sub/unknown.fake")]
    async with client_of(root, config) as client:
        write_locations(
            root, *(location(uri, 0, 0) for uri in (*uris, "file:///etc/passwd", "jdt://contents/x", "file://host/x"))
        )
        lines = text_of(await ask(client, "goToDefinition", **AT)).splitlines()
        symbols = text_of(await ask(client, "workspaceSymbol", query="x"))
        assert code_of(await ask(client, "documentSymbol", filePath="secret.fake")) == "execution_denied"
        assert code_of(await ask(client, "documentSymbol", filePath="ignored.fake")) == "path_ignored"
        hover = text_of(await ask(client, "hover", **AT))
    assert "hidden from agents by the" in lines[0]
    assert ".geminiignore" in lines[1]
    assert all("hidden from agents" in line for line in lines[3:] if not line.startswith("/etc"))
    assert lines[4].startswith("/etc/passwd:1")
    assert "SECRET" not in "".join((*lines, symbols))
    assert "root:" not in "".join(lines)
    assert [number for number, line in enumerate(symbols.splitlines()) if "class Named" in line] == [2, 4]
    assert "hidden from agents" in hover


@pytest.mark.requirement("lsp.rules")
@each_of(
    "uri, path",
    [
        *((f"{start}/a/b", "/a/b") for start in ("file://", "FILE://", "file:", "file://localhost", "file:///", "")),
        ("file:///%2Fa/./c/..%2fb", "/a/b"),
        *((uri, None) for uri in ("jdt://a/b", "file://host/a", "file:a", "a/b", "", "file:///a%00", "file://[/a", 7)),
        *((f"file://{path}", None) for path in ("/proc/1/root/a", "//proc/self/cwd/a", "/%2Fproc/1/a", "/a" * 10_000)),
    ],
)
def test_a_uri_means_a_path_however_it_is_spelled_and_none_that_leads_elsewhere(uri: Any, path: str | None) -> None:
    assert path_of(uri) == path


@pytest.mark.requirement("lsp.rules")
async def test_a_file_that_is_shown_for_one_call_is_closed_after_it(root: Path) -> None:
    async def accept(_context: Any, _params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once"})

    other_settings = {"shell": {"sandbox": "off"}, "permissions": {"allow": ["lsp"], "ask": ["Read(b.fake)"]}}
    (root / "b.fake").write_text("wrong")
    async with client_of(root, settings(other_settings=other_settings), elicitation_callback=accept) as client:
        write_locations(root, location((root / "a.fake").as_uri(), 0, 0))
        assert "b.fake:1:1: error" in text_of(await ask(client, "diagnostics", filePath="b.fake"))
        assert json.loads(text_of(await ask(client, "hover", **AT)))["closed"] == 1
        write_locations(root)
        assert "hidden from agents" in text_of(await ask(client, "hover", **AT))  # it may be about any file


@pytest.mark.requirement("lsp.rules")
async def test_a_server_starts_again_when_other_files_are_hidden_than_those_kept_from_it(root: Path) -> None:
    async with client_of(root, settings()) as client:
        write_locations(root, location((root / "a.fake").as_uri(), 0, 0))
        pids = [json.loads(text_of(await ask(client, "hover", **AT)))["pid"] for _ in range(2)]
        (root / ".geminiignore").write_text("b.fake\n")
        for name in ("b.fake", "c.fake"):
            (root / name).write_text("SECRET")
            (root / name).rename(root / "b.fake")
            pids += [json.loads(text_of(await ask(client, "hover", **AT)))["pid"]]
    assert len(pids) == 4
    assert len(set(pids)) == 3


@pytest.mark.requirement("lsp.hostile")
async def test_places_that_make_no_sense_do_no_harm(root: Path) -> None:
    async with client_of(root, settings()) as client:
        uri = (root / "a.fake").as_uri()
        positions = ((99, 0), (0, 99), (-1, 0), ("1", 0), (True, 0), (0, 1 << 40), (1.5, 0), (None, None))
        write_locations(
            root,
            *(location(uri, *position) for position in positions),
            location("file:///%00", 0, 0),
            {"uri": 7},
            location("", 0, 0),
        )
        lines = text_of(await ask(client, "goToDefinition", **AT)).splitlines()
    assert lines[:2] == ["a.fake:100 (no such line)", "a.fake:1:4: one"]
    assert len(lines) == 4


@pytest.mark.requirement("lsp.hostile")
@pytest.mark.parametrize("behaviour", ["hangs", "silent", "dies", "floods", "babbles", "boasts", "crumbles"])
async def test_a_misbehaving_server_fails_the_call_and_is_stopped(
    root: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.lsp.language_server_session.START_SECONDS", 0.5 if behaviour == "hangs" else 60.0)
    monkeypatch.setattr("tools.lsp.language_server_session.ANSWER_SECONDS", 0.5 if behaviour == "silent" else 60.0)
    mark, config = uuid4().hex, settings(behaviour)
    config["lsp"]["servers"]["fake"]["env"] = {"MARK": mark}
    async with client_of(root, config) as client:
        write_locations(root)
        result = None
        for _ in range(2):
            result = await ask(client, "goToDefinition", **AT)
            assert code_of(result) == "lsp_server_failed"
            assert "grep_search" in text_of(result)
        await until_no_process_has_mark(mark)
    assert result is not None
    assert ("I cannot go on" in text_of(result)) is (behaviour == "dies")
    assert ("hung and was stopped" in text_of(result)) is (behaviour in ("hangs", "silent"))


@pytest.mark.requirement("lsp.hostile")
async def test_calls_that_wait_for_one_start_share_its_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.lsp.language_server_session.START_SECONDS", 2.0)
    answers: list[str] = []
    async with client_of(root, settings("hangs")) as client:

        async def wait() -> None:
            answers.append(text_of(await ask(client, "goToDefinition", **AT)))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
    assert len(answers) == 3
    assert len(set(answers)) == 1
    assert (root / "starts").read_text() == "x"


@pytest.mark.requirement("lsp.hostile")
async def test_half_of_a_surrogate_pair_loses_only_that_character(root: Path) -> None:
    async with client_of(root, settings("cuts")) as client:
        assert text_of(await ask(client, "diagnostics", filePath="a.fake")) == "a.fake:2:4: error: cut ? \U0001f600"


@pytest.mark.requirement("lsp.hostile")
async def test_reports_and_documents_are_kept_in_bounded_memory_and_lists_are_made_in_threads(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.lsp.language_server_session.MAX_REPORT_BYTES", 600)
    monkeypatch.setattr("tools.lsp.language_server_session.MAX_OPEN_CHARS", len(CODE))
    threads: list[threading.Thread] = []

    def record_thread(find: Callable[..., Any], *arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return find(*arguments)

    for name in ("symbols_in", "places_in"):
        monkeypatch.setattr(code_locations, name, partial(record_thread, getattr(code_locations, name)))
    (root / "b.fake").write_text("wrong")
    async with client_of(root, settings()) as client:
        write_locations(root, location((root / "a.fake").as_uri(), 0, 0))
        for name in ("a.fake", "b.fake"):
            assert "error" in text_of(await ask(client, "diagnostics", filePath=name))
        lines = text_of(await ask(client, "workspaceDiagnostics")).splitlines()
        for operation, arguments in (
            ("goToDefinition", AT), ("documentSymbol", {"filePath": "a.fake"}), ("workspaceSymbol", {"query": "x"})
        ):  # fmt: skip
            assert not (await ask(client, operation, **arguments)).is_error
        assert json.loads(text_of(await ask(client, "hover", **AT)))["closed"] == 2
    assert lines[-1].endswith("has reported on: 1, and others whose reports are not kept.")
    assert len(lines) == 2
    assert len(threads) == 3
    assert threading.current_thread() not in threads


@pytest.mark.requirement("lsp.hostile")
async def test_values_of_odd_types_are_taken_for_the_usual_ones(root: Path) -> None:
    async with client_of(root, settings("odd")) as client:
        assert text_of(await ask(client, "diagnostics", filePath="a.fake")) == "a.fake:2:4: error: \U0001d4b3wrong two"


@pytest.mark.requirement("lsp.hostile")
async def test_a_message_that_cannot_be_handled_ends_the_connection_and_its_requests() -> None:
    def trip(*_: object) -> None:
        raise RuntimeError("nobody thought of this")

    connection = LanguageServerConnection(trip, trip, lambda: None)
    (output_reader, output_writer), (input_reader, input_writer) = os.pipe(), os.pipe()
    await connection.open(output_reader, input_writer)
    body = b'{"method": "x"}'
    os.write(output_writer, b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    with pytest.raises(ConnectionEndedError):
        await connection.request("y", {}, 60)
    assert connection.problem
    os.close(output_writer)
    os.close(input_reader)


@pytest.mark.requirement("lsp.hostile")
async def test_a_server_that_asks_for_edits_is_refused_and_that_is_reported(root: Path) -> None:
    async with client_of(root, settings("edits")) as client:
        write_locations(root)
        assert "tried to change files, which was refused" in text_of(await ask(client, "goToDefinition", **AT))
        assert json.loads(text_of(await ask(client, "hover", **AT)).splitlines()[0])["edit"] is False
    assert (root / "a.fake").read_text() == CODE


@needs_bubblewrap
@pytest.mark.requirement("lsp.confined")
async def test_in_the_sandbox_a_server_writes_only_in_its_cache_and_has_no_network_and_no_hidden_files(
    outer_root: Path,
) -> None:
    root = outer_root / "workspace"
    root.mkdir()
    (root / "hidden.fake").write_text("SECRET")
    other_settings = {"permissions": {"deny": ["Read(hidden.fake)"]}}
    async with client_of(root, settings("reaches", other_settings)) as client:
        facts = json.loads(text_of(await ask(client, "hover", **AT)))
    assert facts["cache"] == "written"
    assert "written" not in (facts["home"], facts["root"])
    assert facts["network"] not in ("reached", "tried")
    assert facts["hidden"] == "PermissionError"


@pytest.mark.requirement("lsp.consent")
async def test_without_a_sandbox_the_first_start_is_asked_about(root: Path) -> None:
    questions: list[str] = []

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once" if len(questions) > 1 else "deny"})

    async with client_of(
        root, settings(other_settings={"shell": {"sandbox": "off"}}), elicitation_callback=answer
    ) as client:
        write_locations(root)
        assert code_of(await ask(client, "goToDefinition", **AT)) == "execution_denied"
        for _ in range(2):
            assert not (await ask(client, "goToDefinition", **AT)).is_error
    assert len(questions) == 2
    assert "language_server.py" in questions[0]


@pytest.mark.requirement("lsp.consent")
async def test_without_a_sandbox_a_yes_counts_for_one_start_of_the_program_that_was_shown(
    root: Path, tmp_path: Path
) -> None:
    program, questions = tmp_path / "fake-ls", list[str]()

    def write_program(first_line: str) -> None:
        (tmp_path / "new").write_text(f'#!/bin/sh\n{first_line}\nexec "{sys.executable}" "{SERVER}" dies\n')
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").rename(program)

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        if len(questions) == 2:
            write_program(f"touch {tmp_path}/replaced")
        return types.ElicitResult(action="accept", content={"decision": "once"})

    write_program("")
    config = settings(other_settings={"shell": {"sandbox": "off"}})
    config["lsp"]["servers"]["fake"] |= {"command": str(program), "args": []}
    async with client_of(root, config, elicitation_callback=answer) as client:
        codes = [code_of(await ask(client, "hover", **AT)) for _ in range(2)]
        assert not (tmp_path / "replaced").exists()
        codes.append(code_of(await ask(client, "hover", **AT)))
    assert codes == ["lsp_server_failed", "execution_denied", "lsp_server_failed"]
    assert len(questions) == 3


@pytest.mark.requirement("lsp.consent")
async def test_nothing_that_needs_consent_is_started_without_it_whoever_calls(root: Path, tmp_path: Path) -> None:
    server = LanguageServer("fake", {".fake": "fake"}, ((sys.executable, SERVER),))
    (root / "a.fake").write_text(CODE)
    workspace, starter = Workspace([str(root)]), RecordingStarter()
    code = CodeIntelligence(
        ServerPrograms("", (server,)), starter, NoSandbox(), PrivateFolders(str(tmp_path)), dict, str(tmp_path),
        lambda _workspace, _rights: (NO_RESTRICTIONS, ""),
    )  # fmt: skip
    start = await code.session_or_start(workspace, ALL_RIGHTS, workspace.locate("a.fake"))
    assert isinstance(start, ServerStart)
    for state in ("", "to something else"):
        with pytest.raises(ExecutionDeniedError):
            await code.session(start, agreed_state=state, is_granted=False)
    assert not starter.specs


@pytest.mark.requirement("lsp.follows")
async def test_the_server_knows_what_is_written_and_new_errors_are_reported(root: Path) -> None:
    async with client_of(root, settings()) as client:
        write_locations(root)
        result = await client.call_tool("edit", {"file_path": "a.fake", "old_string": "one", "new_string": "wrong 1"})
        assert "New error" not in text_of(result)  # no server runs yet
        await ask(client, "goToDefinition", **AT)
        edit_result = await client.call_tool(
            "edit", {"file_path": "a.fake", "old_string": "three", "new_string": "3 wrong 3"}
        )
        content = "\n".join(f"wrong {number}" for number in range(9))
        write_result = await client.call_tool("write_file", {"file_path": "b.fake", "content": content})
        undo_result = await client.call_tool("undo_change", {})
        (root / "a.fake").write_text("wrong as others wrote it")
        diagnostics = text_of(await ask(client, "diagnostics", filePath="a.fake"))
    assert "3:3: error: 3 wrong 3" in text_of(edit_result)
    assert text_of(edit_result).count("error:") == 1
    assert [line for line in text_of(write_result).splitlines() if "error:" in line or "more" in line][
        -1
    ] == "and 5 more"
    assert text_of(write_result).count("error:") == 4
    assert not undo_result.is_error
    assert diagnostics == "a.fake:1:1: error: wrong as others wrote it"


@pytest.mark.requirement("lsp.follows")
@pytest.mark.parametrize("behaviour", ["mute", "honest"])
async def test_an_edit_succeeds_whatever_the_server_does_and_without_errors_where_they_are_not_wanted(
    root: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.lsp.code_intelligence.AFTER_EDIT_SECONDS", 0.2)
    async with client_of(root, settings(behaviour, afterEdit=behaviour == "mute")) as client:
        write_locations(root)
        await ask(client, "goToDefinition", **AT)
        result = await client.call_tool("edit", {"file_path": "a.fake", "old_string": "three", "new_string": "wrong"})
    assert not result.is_error
    assert "New error" not in text_of(result)
    assert (root / "a.fake").read_text().endswith("wrong")


@pytest.mark.requirement("lsp.ends")
async def test_a_server_that_nobody_asks_is_ended_and_starts_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(root, settings()) as client:
        write_locations(root)
        await ask(client, "hover", **AT)
        monkeypatch.setattr("tools.lsp.code_intelligence.IDLE_SECONDS", 0.0)
        await client.call_tool("edit", {"file_path": "a.fake", "old_string": "one", "new_string": "1"})
        monkeypatch.setattr("tools.lsp.code_intelligence.IDLE_SECONDS", 600.0)
        text = text_of(await ask(client, "hover", **AT))
    assert json.loads(text)["opened"] == 1, text
    assert json.loads(text)["changed"] == 0


@pytest.mark.requirement("lsp.ends")
async def test_a_server_is_told_to_exit_before_it_is_ended(root: Path) -> None:
    async with client_of(root, settings("records")) as client:
        await ask(client, "hover", **AT)
        assert not (root / "exited").exists()
    assert (root / "exited").read_text() == "without parameters"


@pytest.mark.requirement("lsp.ends")
@pytest.mark.parametrize("file", ["a.fake", "b.other"])
async def test_a_call_keeps_its_server_until_it_is_answered_whatever_others_ask(
    root: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.lsp.code_intelligence.MAX_RUNNING", 1)
    mark, config, answers = uuid4().hex, settings("waits"), list[str]()
    config["lsp"]["servers"]["fake"]["env"] = {"MARK": mark}
    config["lsp"]["servers"]["other"] = {
        "command": sys.executable, "args": [SERVER], "extensionToLanguage": {".other": "other"}
    }  # fmt: skip
    (root / "b.other").write_text("wrong")
    async with client_of(root, config) as client:

        async def wait() -> None:
            answers.append(text_of(await ask(client, "goToDefinition", **AT)))

        write_locations(root, location((root / "a.fake").as_uri(), 0, 0))
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await until((root / "waits").exists)
            if file == "a.fake":
                (root / ".geminiignore").write_text("b.other\n")  # makes the server start again
            assert "error" in text_of(await ask(client, "diagnostics", filePath=file))
            assert not answers
            (root / "waits").unlink()
        if file != "a.fake":
            await until_no_process_has_mark(mark)
    assert answers == ["a.fake:1:1: one"]


@pytest.mark.requirement("lsp.consent")
@pytest.mark.parametrize(
    ("rule", "is_allowed"), [("Read", False), ("Read(a.fake)", False), ("Read(**)", False), ("lsp", True), ("*", True)]
)
async def test_a_rule_for_reading_starts_no_program_unasked(root: Path, rule: str, is_allowed: bool) -> None:
    other_settings = {"shell": {"sandbox": "off"}, "permissions": {"allow": [rule]}}
    async with client_of(root, settings(other_settings=other_settings)) as client:
        write_locations(root)
        result = await ask(client, "goToDefinition", **AT)
    assert result.is_error is not is_allowed
    assert is_allowed or code_of(result) == "execution_denied"


@pytest.mark.requirement("lsp.consent")
async def test_a_server_from_outside_has_no_folder_of_the_workspace_on_its_path(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(tmp_path / "bin", "gopls")
    monkeypatch.setenv("PATH", os.pathsep.join((".", f"{root}/bin", f"{root}/link", str(tmp_path / "bin"), "/bin")))
    (root / "bin").mkdir()
    (root / "link").symlink_to("bin")
    (root / "b.go").touch()
    async with client_of(root, ALLOWED) as client:
        facts = json.loads(text_of(await ask(client, "hover", filePath="b.go", line=1, character=1)))
    assert facts["path"].split(os.pathsep) == [str(tmp_path / "bin"), str(tmp_path / "bin"), "/bin"]


def imitate(folder: Path, name: str) -> None:
    """Put a program with the name of a known language server into a folder. It runs the server for tests."""
    folder.mkdir(parents=True)
    (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}"\n')
    (folder / name).chmod(0o755)


@pytest.mark.requirement("lsp.consent")
async def test_a_server_of_the_workspace_is_started_once_the_folder_is_trusted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{root}/.venv/bin")
    imitate(root / ".venv" / "bin", "basedpyright-langserver")
    (root / "b.py").write_text("wrong")
    async with client_of(root, ALLOWED) as client:
        assert "lsp" not in {tool.name for tool in (await client.list_tools()).tools}
        assert code_of(await ask(client, "diagnostics", filePath="b.py")) == "no_language_server"
        store = str(tmp_path / "config" / "coretools-mcp" / "trusted.json")
        trust_folder(store, str(root), {})
        assert code_of(await ask(client, "diagnostics", filePath="b.py")) == "no_language_server"
        trust_folder(store, str(root), programs_in(str(root)))
        assert "b.py:1:1: error: wrong" in text_of(await ask(client, "diagnostics", filePath="b.py"))
    async with client_of(root, ALLOWED) as client:
        assert "lsp" in {tool.name for tool in (await client.list_tools()).tools}
        with (root / ".venv" / "bin" / "basedpyright-langserver").open("a") as program:
            program.write("# changed since")
        imitate(root / "node_modules" / ".bin", "pyright-langserver")
        assert code_of(await ask(client, "diagnostics", filePath="b.py")) == "no_language_server"


@pytest.mark.requirement("lsp.ends")
async def test_a_server_on_the_path_lists_the_tool_and_nothing_of_it_is_left_after_a_kill(
    root: Path, tmp_path: Path
) -> None:
    mark = uuid4().hex
    config = settings()
    config["lsp"]["servers"]["fake"]["env"] = {"MARK": mark}
    (root / "a.fake").write_text(CODE)
    command = [sys.executable, *server_arguments(root, write_config(tmp_path, config))]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        call = {"name": "lsp", "arguments": {"operation": "documentSymbol", "filePath": "a.fake"}}
        for message in (
            {"id": 0, "method": "initialize", "params": opening},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": call},
        ):
            await process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        output = b""
        with anyio.fail_after(100):
            while b"function deep" not in output:
                output += await process.stdout.receive()
        assert pids_with_mark(mark)
        process.kill()
        await process.wait()
    await until_no_process_has_mark(mark)


PYTHON = (
    "main.py",
    "from dep import helper\n\nVALUE: int = helper(1)\n",
    "dep.py",
    "def helper(a: int) -> int:\n    return a\n",
)
GO = (
    "main.go",
    "package main\n\nfunc main() { println(helper(1)) }\n",
    "dep.go",
    "package main\n\nfunc helper(a int) int { return a }\n",
)
C = (
    "main.c",
    '#include "dep.h"\n\nint main(void) { return helper(1); }\n',
    "dep.h",
    "static inline int helper(int a) { return a; }\n",
)
TYPESCRIPT = (
    "main.ts",
    'import { helper } from "./dep";\n\nexport const x: number = helper(1);\n',
    "dep.ts",
    "export function helper(a: number): number { return a }\n",
)
EXTRA_FILES = {
    "main.go": {"go.mod": "module example.com/x\n\ngo 1.18\n"},
    "main.c": {"compile_commands.json": '[{"directory": ".", "command": "cc -c main.c", "file": "main.c"}]'},
    "main.ts": {"tsconfig.json": "{}"},
}


@pytest.mark.long
@pytest.mark.requirement("lsp.answers")
@pytest.mark.parametrize(
    ("program", "files"),
    [
        ("basedpyright-langserver", PYTHON),
        ("gopls", GO),
        ("clangd", C),
        ("typescript-language-server", TYPESCRIPT),
    ],
)
async def test_real_servers_answer_and_report_the_errors_of_an_edit(
    outer_root: Path, program: str, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), str(LANGUAGE_SERVERS), os.environ["PATH"]))
    monkeypatch.setenv("PATH", path)
    if shutil.which(program) is None:
        pytest.skip(f"not run: {program} is not installed")
    root = outer_root / "workspace"
    root.mkdir()
    main, code, dependency, text = files
    for name, content in {main: code, dependency: text, **EXTRA_FILES.get(main, {})}.items():
        (root / name).write_text(content)
    position = {"filePath": main, "line": 3, "character": code.splitlines()[2].index("helper") + 1}
    async with client_of(root, {}) as client:
        definition = text_of(await ask(client, "goToDefinition", **position))
        assert dependency in definition or f"{main}:1" in definition
        assert "helper" in text_of(await ask(client, "hover", **position))
        assert main in text_of(await ask(client, "findReferences", **position))
        assert "helper" in text_of(await ask(client, "documentSymbol", filePath=dependency))
        assert "error" not in text_of(await ask(client, "diagnostics", filePath=main))
        await client.call_tool("edit", {"file_path": main, "old_string": "helper(1)", "new_string": "nobody"})
        assert "error" in text_of(await ask(client, "diagnostics", filePath=main))
