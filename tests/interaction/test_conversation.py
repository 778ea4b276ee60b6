"""What any client does with a server, over every transport and in every protocol revision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from tests.harness import MODERN, ROUTES, Route, text_of
from tests.interaction.serving import FORM_ROUTES, Connect, by_route
from tests.processes import until_ended
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

UNASKED = {"shell": {"sandbox": "off"}, "confirmation": {"whenUnavailable": "client"}}
"""Settings with which any command runs unasked, for a client of any revision that announces no elicitation."""

LINGERING_COMMAND = "echo $$ > began.new; mv began.new began; sleep 600; touch done"
AT = types.PromptReference(name="at")


class Person:
    """Answers each question with the next of the given answers, and records the questions."""

    def __init__(self, answers: Sequence[types.ElicitResult]) -> None:
        self._answers = list(answers)
        self.questions: list[str] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        self.questions.append(params.message)
        return self._answers.pop(0)


def decision_answer(decision: str) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": decision})


async def introduction_of(client: Client) -> tuple[types.ServerCapabilities, str | None]:
    """Return the server's capabilities and instructions, from the handshake or from `server/discover`."""
    if client.session.initialize_result is not None:
        return client.session.initialize_result.capabilities, client.session.initialize_result.instructions
    discovery = types.DiscoverResult.model_validate(await client.session.send_discover(MODERN))
    return discovery.capabilities, discovery.instructions


@pytest.mark.requirement("mission.transports")
@by_route(ROUTES)
async def test_a_client_gets_capabilities_lists_tools_and_calls_them(
    connect: Connect, route: Route, place: Path
) -> None:
    (place / "notes.txt").write_text("the notes\n")
    async with connect() as client:
        capabilities, instructions = await introduction_of(client)
        assert capabilities.tools == types.ToolsCapability(list_changed=True)
        assert "run_shell_command" in (instructions or "")
        assert len([tool for tool in (await client.list_tools()).tools if tool.name != "lsp"]) == 17
        result = await client.call_tool("read_file", {"absolute_path": str(place / "notes.txt")})
        assert (result.is_error or False, text_of(result)) == (False, "the notes\n")
        error_result = await client.call_tool("read_file", {"absolute_path": str(place / "none.txt")})
        assert error_result.is_error
        assert "[file_not_found]" in text_of(error_result)
        if not route.is_modern:
            await client.session.send_request(types.PingRequest(), types.EmptyResult)


@pytest.mark.requirement("protocol.unknown_tool")
async def test_an_unknown_tool_is_a_protocol_error_that_proposes_the_nearest(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as error_info:
            await client.call_tool("read_fil", {})
    assert error_info.value.error.code == types.INVALID_PARAMS
    assert "read_file" in error_info.value.error.message
    assert 1 <= len(error_info.value.error.data["nearest"]) <= 3


@pytest.mark.requirement("protocol.wrong_types")
async def test_wrong_arguments_give_a_result_that_names_them(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("read_file", {"absolute_path": ["x"], "nonsense": 1})
    assert result.is_error
    assert "[invalid_tool_params]" in text_of(result)
    assert "absolute_path" in text_of(result)
    assert "nonsense" in text_of(result)
    assert (result.meta or {})["coretools-mcp/error"]["type"] == "invalid_tool_params"
    assert result.structured_content is None


@pytest.mark.requirement("protocol.progress")
async def test_progress_arrives_while_a_call_is_at_work(connect: Connect, place: Path) -> None:
    """The command waits for a file that the client creates when it gets progress."""
    messages: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        messages.append(message)
        if "a line" in (message or ""):
            (place / "heard").touch()

    command = "echo a line; while [ ! -e heard ]; do sleep 0.05; done; echo over"
    with anyio.fail_after(CEILING):
        async with connect(UNASKED) as client:
            arguments = {"command": command, "directory": str(place)}
            result = await client.call_tool("run_shell_command", arguments, progress_callback=on_progress)
    assert "over" in text_of(result)
    assert command[:20] in (messages[0] or "")


@pytest.mark.requirement("cancellation")
@pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only")
async def test_the_command_of_a_cancelled_call_is_ended(connect: Connect, place: Path) -> None:
    with anyio.fail_after(CEILING):
        async with connect(UNASKED) as client:
            arguments = {"command": LINGERING_COMMAND, "directory": str(place), "timeout": 600_000}
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "run_shell_command", arguments)
                while not (place / "began").exists():  # noqa: ASYNC110 - a new file sends no event
                    await anyio.sleep(0.01)
                calls.cancel_scope.cancel()
            await until_ended([int((place / "began").read_text())])
            assert not (place / "done").exists()
            assert not (await client.call_tool("list_directory", {"path": str(place)})).is_error


@pytest.mark.requirement("mission.confirmation")
@by_route(ROUTES)
async def test_a_change_happens_with_consent_and_without_it_does_not(
    connect: Connect, route: Route, place: Path
) -> None:
    target = place / "greeting.txt"
    target.write_text("hello world\n")
    edit = {"file_path": str(target), "old_string": "world", "new_string": "there"}
    refusals = [decision_answer("deny"), types.ElicitResult(action="decline"), types.ElicitResult(action="cancel")]
    person = Person([*refusals, decision_answer("once")])
    async with connect({"confirmation": {"whenUnavailable": "deny"}}, elicitation_callback=person) as client:
        for _ in refusals:
            refusal = await client.call_tool("edit", edit)
            assert "[execution_denied]" in text_of(refusal)
            assert target.read_text() == "hello world\n"
        result = await client.call_tool("edit", edit)
    if not route.has_forms:
        assert "confirmation.whenUnavailable" in text_of(result)
        assert (len(person.questions), target.read_text()) == (0, "hello world\n")
        return
    assert not result.is_error
    assert target.read_text() == "hello there\n"
    assert len(person.questions) == 4
    assert "-hello world\n+hello there" in person.questions[0].replace("\r", "")


@pytest.mark.requirement("mission.confirmation")
@pytest.mark.parametrize("setting", ["client", "deny", None])
async def test_without_elicitation_the_setting_decides_and_its_default_is_by_transport(
    setting: str | None, connect: Connect, route: Route, place: Path
) -> None:
    is_error = (setting or ("deny" if route.is_network else "client")) == "deny"
    async with connect({"confirmation": {"whenUnavailable": setting}} if setting else {}) as client:
        result = await client.call_tool("write_file", {"file_path": str(place / "a.txt"), "content": "new\n"})
    assert bool(result.is_error) is is_error
    assert (place / "a.txt").exists() is not is_error
    if is_error:
        assert "[execution_denied]" in text_of(result)
        assert "confirmation.whenUnavailable" in text_of(result)


@pytest.mark.requirement("at.prompt")
@pytest.mark.requirement("resources.template")
async def test_prompt_resource_and_completion_work(connect: Connect, place: Path) -> None:
    file = place / "README.md"
    file.write_text("# Title\n")
    async with connect() as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "at"
        assert [(argument.name, argument.required) for argument in prompt.arguments or ()] == [("paths", True)]
        (message,) = (await client.get_prompt("at", {"paths": f"@{file}"})).messages
        assert isinstance(message.content, types.TextContent)
        assert f"--- {file} ---\n\n# Title\n" in message.content.text
        completion_result = await client.complete(AT, {"name": "paths", "value": f"@{place}/REA"})
        assert completion_result.completion.values == [f"@{file}"]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "file:///{+path}"
        (contents,) = (await client.read_resource(file.as_uri())).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text == "# Title\n"
        with pytest.raises(MCPError):
            await client.read_resource((place / "none.md").as_uri())
        with pytest.raises(MCPError):
            await client.get_prompt("at", {"paths": str(place / "none.md")})


@pytest.mark.requirement("ask_user.eras")
@by_route(FORM_ROUTES)
async def test_the_model_asks_the_person_something(connect: Connect) -> None:
    questions = {"questions": [{"question": "What name?", "header": "Name", "type": "text"}]}
    person = Person([types.ElicitResult(action="accept", content={"question_1": "acme"})])
    async with connect(elicitation_callback=person) as client:
        result = await client.call_tool("ask_user_question", questions)
    assert (result.structured_content or {})["answers"] == {"Name": ["acme"]}
    assert len(person.questions) == 1
