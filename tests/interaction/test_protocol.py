"""What clients see of the protocol: lists, annotations, errors, progress, roots, cancellation, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from server.app import App
from server.settings import load_settings
from tests.harness import HANDSHAKE, HANDSHAKES, TRANSPORTS, connected, own_state, stdio_upstream, text_of, write_config
from tests.in_process import in_process
from tests.interaction.serving import CHEAP_ROUTES, HANDSHAKE_ROUTES, Connect, by_route

pytestmark = pytest.mark.anyio

DEMO = {"mcpServers": {"demo": stdio_upstream(trust=True)}}


@pytest.mark.requirement("contract.declared")
async def test_annotations_are_exact(connect: Connect) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    expected_hints = {
        "list_directory": (True, None, None, False),
        "read_file": (True, None, None, False),
        "write_file": (False, True, True, False),
        "edit": (False, True, None, False),
        "notebook_edit": (False, True, None, False),
        "glob": (True, None, None, False),
        "grep_search": (True, None, None, False),
        "read_many_files": (True, None, None, False),
        "run_shell_command": (False, True, None, True),
        "list_background_jobs": (True, None, None, False),
        "read_background_output": (True, None, None, False),
        "stop_background_job": (False, True, True, False),
        "web_fetch": (False, False, True, True),
        "save_memory": (False, False, True, False),
        "todo_write": (False, False, True, False),
        "list_changes": (True, None, None, False),
        "undo_change": (False, True, None, False),
    }
    all_hints: dict[str, Any] = {}
    tools.pop("lsp", None)  # listed only if there is a language server
    for name, tool in tools.items():
        hints = tool.annotations
        assert hints is not None
        assert tool.title
        assert hints.title is None, "the title is sent only once"
        all_hints[name] = (
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )
    assert all_hints == expected_hints


@pytest.mark.requirement("protocol.unknown_tool")
async def test_legacy_names_are_called_but_not_listed(connect: Connect, place: Path) -> None:
    (place / "a.txt").write_text("needle\n")
    async with connect() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert not names & {"replace", "search_file_content"}
        result = await client.call_tool("search_file_content", {"pattern": "needle", "path": str(place)})
    assert "a.txt" in text_of(result)


@pytest.mark.requirement("protocol.progress")
async def test_the_first_progress_message_says_what_the_call_does(connect: Connect, place: Path) -> None:
    messages: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)
        (place / "heard").touch()

    command = "while [ ! -e heard ]; do sleep 0.05; done"
    with anyio.fail_after(50):
        async with connect({"approvalMode": "yolo"}) as client:
            arguments = {"command": command, "directory": str(place)}
            await client.call_tool("run_shell_command", arguments, progress_callback=on_progress)
    assert command[:20] in (messages[0] or "")


@pytest.mark.requirement("upstream.results")
async def test_progress_of_an_upstream_reaches_the_client_in_order(connect: Connect) -> None:
    messages: list[str | None] = []
    has_heard = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)
        if message == "step 3":
            has_heard.set()

    with anyio.fail_after(50):
        async with connect(DEMO) as client:
            for _ in range(5):
                messages.clear()
                await client.call_tool("demo__steps", {}, progress_callback=on_progress)
                # The progress callback may run after the answer has arrived.
                await has_heard.wait()
                has_heard = anyio.Event()
                assert messages == ["step 1", "step 2", "step 3"]


@pytest.mark.requirement("upstream.results")
async def test_results_of_an_upstream_arrive_as_they_were_sent(connect: Connect) -> None:
    async with connect(DEMO) as client:
        structured_result = await client.call_tool("demo__structured", {})
        assert structured_result.structured_content == {"answer": 42}
        assert (structured_result.meta or {})["example.org/kept"] == "yes"
        picture = await client.call_tool("demo__picture", {})
        assert isinstance(picture.content[0], types.ImageContent)
        error_result = await client.call_tool("demo__fail", {})
        assert error_result.is_error
        assert text_of(error_result) == "it went wrong"
        with pytest.raises(MCPError) as error:
            await client.call_tool("demo__protocol_error", {})
        assert (error.value.error.code, error.value.error.message) == (-32050, "the upstream's own error")


@pytest.mark.requirement("proxy.names")
async def test_odd_names_of_an_upstream_are_published_in_the_allowed_set_and_can_be_called(connect: Connect) -> None:
    async with connect(DEMO) as client:
        names = [tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("demo__odd")]
        assert len(names) == 1
        assert all(char.isalnum() or char in "_.-" for char in names[0])
        assert text_of(await client.call_tool(names[0], {})) == "called odd name!"


@pytest.mark.requirement("consent.upstream")
@by_route(route for route in CHEAP_ROUTES if route.has_forms)
async def test_an_untrusted_upstream_is_published_cautiously_and_asks_with_its_arguments(connect: Connect) -> None:
    questions: list[str] = []

    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "deny", "reason": "not today"})

    async with connect({"mcpServers": {"demo": stdio_upstream()}}, elicitation_callback=person) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = tools["demo__echo"].annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (False, True, True)
        result = await client.call_tool("demo__echo", {"text": "secret plan\u202e"})
    assert result.is_error
    assert "not today" in text_of(result)
    assert "secret plan<U+202E>" in questions[0]


@pytest.mark.requirement("upstream.environment")
async def test_an_upstream_gets_only_the_usual_variables_and_its_own(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "s")
    monkeypatch.setenv("WANTED", "w")
    entry = stdio_upstream(trust=True, env={"OWN": "1"}, inheritEnv=["WANTED"])
    config = write_config(tmp_path, {"mcpServers": {"demo": entry}})
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state())
    app = App(report, "stdio")
    async with app.running(), Client(in_process(app), mode=HANDSHAKE) as client:
        names = text_of(await client.call_tool("demo__environment", {})).split()
    assert {"OWN", "WANTED", "PATH"} <= set(names)
    assert "A_SECRET_OF_OURS" not in names


@pytest.mark.requirement("upstream.isolated")
async def test_an_upstream_that_dies_in_mid_call_fails_that_call_and_comes_back(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        result = await client.call_tool("demo__die", {})
        assert result.is_error
        assert "[upstream_unavailable]" in text_of(result)
        with anyio.fail_after(60):
            while (await client.call_tool("demo__echo", {"text": "back"})).is_error:
                await anyio.lowlevel.checkpoint()


@pytest.mark.requirement("upstream.first_list")
async def test_tools_of_a_late_upstream_are_announced(root: Path, tmp_path: Path) -> None:
    list_change = anyio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            list_change.set()

    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}, "proxy": {"firstListWait": 0}})
    async with connected("stdio", HANDSHAKE, root, config, message_handler=on_message) as client:
        await client.list_tools()  # only clients that have a list are told about its changes
        with anyio.fail_after(60):
            await list_change.wait()
        assert "demo__echo" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.requirement("roots.client")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("revision", [HANDSHAKES[0], HANDSHAKE])
async def test_without_operator_folders_the_clients_roots_are_the_workspace(
    transport: str, revision: str, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.txt").write_text(f"in {folder.name}\n")

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(inside.as_uri()))])

    async with connected(transport, revision, None, list_roots_callback=roots) as client:
        inside_result = await client.call_tool("read_file", {"absolute_path": str(inside / "a.txt")})
        assert text_of(inside_result).startswith("in inside")
        outside_result = await client.call_tool("read_file", {"absolute_path": str(outside / "a.txt")})
    assert "[path_not_in_workspace]" in text_of(outside_result)


@pytest.mark.requirement("roots.operator")
@by_route(HANDSHAKE_ROUTES)
async def test_the_clients_roots_never_replace_the_operators(connect: Connect, place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("x\n")
    (place / "b.txt").write_text("in the workspace\n")

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(elsewhere.as_uri()))])

    async with connect(list_roots_callback=roots) as client:
        outside_result = await client.call_tool("read_file", {"absolute_path": str(elsewhere / "a.txt")})
        inside_result = await client.call_tool("read_file", {"absolute_path": str(place / "b.txt")})
    assert "[path_not_in_workspace]" in text_of(outside_result)
    assert text_of(inside_result).startswith("in the workspace")


@pytest.mark.requirement("roots.operator")
async def test_intersect_narrows_the_operators_folders_to_the_clients_roots(root: Path, tmp_path: Path) -> None:
    part = root / "part"
    part.mkdir()
    (part / "a.txt").write_text("part\n")
    (root / "b.txt").write_text("whole\n")

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(part.as_uri()))])

    config = write_config(tmp_path, {"workspace": {"clientRoots": "intersect"}})
    async with connected("http", HANDSHAKE, root, config, list_roots_callback=roots) as client:
        inside_result = await client.call_tool("read_file", {"absolute_path": str(part / "a.txt")})
        outside_result = await client.call_tool("read_file", {"absolute_path": str(root / "b.txt")})
    assert text_of(inside_result).startswith("part")
    assert "[path_not_in_workspace]" in text_of(outside_result)


@pytest.mark.requirement("modes")
@pytest.mark.parametrize(("mode", "is_error"), [("plan", True), ("default", True), ("auto-edit", False)])
async def test_the_approval_mode_decides_where_nobody_is_asked(
    mode: str, is_error: bool, connect: Connect, place: Path
) -> None:
    path = place / "a.txt"
    async with connect({"approvalMode": mode, "confirmation": {"whenUnavailable": "deny"}}) as client:
        result = await client.call_tool("write_file", {"file_path": str(path), "content": "x"})
    assert bool(result.is_error) is is_error
    assert path.exists() is not is_error


@pytest.mark.requirement("cancellation")
async def test_a_cancelled_call_ends_and_the_connection_goes_on(connect: Connect) -> None:
    async with connect(DEMO) as client:
        await client.call_tool("demo__echo", {"text": "up"})
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("demo__wait", {})
        assert scope.cancelled_caught
        assert text_of(await client.call_tool("demo__echo", {"text": "alive"})) == "alive"
