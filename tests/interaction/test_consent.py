"""An answer counts only for the action that was shown, once, in time, and with a valid decision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from server.questions.client_confirmer import QUESTION_KEY, _read_reply  # pyright: ignore[reportPrivateUsage] - pure
from server.store.replica import lone_replica
from server.store.sealing import SealedStates
from tests.harness import HANDSHAKE, MODERN, connected, write_config
from tests.interaction.relay.clients import Json, proxy_client

pytestmark = pytest.mark.anyio


async def unused_callback(_context: Any, _params: Any) -> types.ElicitResult:
    """Announces elicitation for clients that drive the rounds by hand."""
    raise AssertionError("the client drives the rounds by hand")


async def send_call(
    client: Client,
    arguments: Mapping[str, Any],
    answer: Mapping[str, Any] | None = None,
    state: str | None = None,
    tool: str = "edit",
) -> types.CallToolResult | types.InputRequiredResult:
    """Send one request of a call in the 2026-07-28 revision."""
    responses: Any = None if answer is None else {QUESTION_KEY: types.ElicitResult.model_validate(answer)}
    return await client.session.call_tool(
        tool, dict(arguments), input_responses=responses, request_state=state, allow_input_required=True
    )


ONCE: dict[str, Any] = {"action": "accept", "content": {"decision": "once"}}


@pytest.fixture
def target(root: Path) -> Path:
    path = root / "greeting.txt"
    path.write_text("hello world\n")
    return path


def edit_of(target: Path) -> dict[str, Any]:
    return {"file_path": str(target), "old_string": "world", "new_string": "there"}


@pytest.mark.requirement("consent.bound")
async def test_a_replayed_answer_asks_again(root: Path) -> None:
    arguments = {"command": "touch replayed.txt"}  # nothing but its single use can make the answer invalid
    async with connected("memory", MODERN, root, elicitation_callback=unused_callback) as client:
        question = await send_call(client, arguments, tool="run_shell_command")
        assert isinstance(question, types.InputRequiredResult)
        result = await send_call(client, arguments, ONCE, question.request_state, tool="run_shell_command")
        assert isinstance(result, types.CallToolResult)
        assert not result.is_error
        replay_result = await send_call(client, arguments, ONCE, question.request_state, tool="run_shell_command")
    assert isinstance(replay_result, types.InputRequiredResult)


@pytest.mark.requirement("consent.changed")
def test_a_reply_that_no_form_can_give_is_refused() -> None:
    fields = {"a": "x", "b": 1, "c": True, "d": None, "e": ["x"]}
    odd_fields: list[Any] = [{"a": {}}, {"a": [1]}, {"a": "x", "b": [[]]}, []]
    assert _read_reply({"action": "accept", "content": fields}) == ("accept", fields)
    assert _read_reply({"action": "decline"}) == ("decline", None)
    replies: list[Any] = [
        *({"action": "accept", "content": content} for content in odd_fields),
        {"action": "yes", "content": {}},
        {},
        None,
    ]
    for reply in replies:
        with pytest.raises(ValueError, match="form"):
            _read_reply(reply)


@pytest.mark.requirement("consent.bound")
@pytest.mark.parametrize("state", [None, "v1.forged", "nonsense"])
async def test_an_answer_without_a_sealed_state_asks_again(state: str | None, root: Path, target: Path) -> None:
    async with connected("memory", MODERN, root, elicitation_callback=unused_callback) as client:
        result = await send_call(client, edit_of(target), ONCE, state)
    assert isinstance(result, types.InputRequiredResult)
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.changed")
async def test_an_answer_for_other_arguments_asks_again(root: Path, target: Path) -> None:
    async with connected("memory", MODERN, root, elicitation_callback=unused_callback) as client:
        question = await send_call(client, edit_of(target))
        assert isinstance(question, types.InputRequiredResult)
        other_arguments = {**edit_of(target), "new_string": "somebody else"}
        result = await send_call(client, other_arguments, ONCE, question.request_state)
    assert isinstance(result, types.InputRequiredResult)
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.changed")
async def test_an_answer_for_a_file_that_changed_meanwhile_asks_again(root: Path, target: Path) -> None:
    async with connected("memory", MODERN, root, elicitation_callback=unused_callback) as client:
        question = await send_call(client, edit_of(target))
        assert isinstance(question, types.InputRequiredResult)
        target.write_text("goodbye world\n")
        result = await send_call(client, edit_of(target), ONCE, question.request_state)
    assert isinstance(result, types.InputRequiredResult)
    assert target.read_text() == "goodbye world\n"


@pytest.mark.requirement("consent.changed")
async def test_a_file_that_changes_while_the_live_question_is_open_is_not_written(root: Path, target: Path) -> None:
    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        target.write_text("goodbye world\n")
        return types.ElicitResult.model_validate(ONCE)

    async with connected("memory", HANDSHAKE, root, elicitation_callback=person) as client:
        result = await client.call_tool("edit", edit_of(target))
    assert result.is_error
    assert target.read_text() == "goodbye world\n"


@pytest.mark.requirement("consent.changed")
async def test_a_live_question_that_nobody_answers_ends_with_the_time_limit(
    root: Path, target: Path, tmp_path: Path
) -> None:
    async def wait_forever(_context: Any, _params: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    config = write_config(tmp_path, {"confirmation": {"timeout": 1000}})
    async with connected("memory", HANDSHAKE, root, config, elicitation_callback=wait_forever) as client:
        with anyio.fail_after(60):
            result = await client.call_tool("edit", edit_of(target))
    assert result.is_error
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.changed")
async def test_a_sealed_answer_counts_until_its_time_limit_and_not_longer() -> None:
    now = [1000.0]
    states = SealedStates("question", 300, lone_replica(), clock=lambda: now[0])
    first_state = states.seal("fingerprint", "client")
    second_state = states.seal("fingerprint", "client")
    now[0] += 299
    assert await states.open(first_state, "fingerprint", "client") is not None
    now[0] += 2
    assert await states.open(second_state, "fingerprint", "client") is None


@pytest.mark.requirement("consent.bound")
async def test_a_sealed_answer_counts_only_for_its_client_and_its_action() -> None:
    states = SealedStates("question", 300, lone_replica())
    state = states.seal("fingerprint", "client")
    assert await states.open(state, "fingerprint", "somebody else") is None
    assert await states.open(state, "another action", "client") is None
    assert await states.open(state, "fingerprint", "client") is not None
    assert await states.open(state, "fingerprint", "client") is None
    other_states = SealedStates("question", 300, lone_replica())
    assert await other_states.open(states.seal("fingerprint", "client"), "fingerprint", "client") is None


@pytest.mark.requirement("consent.changed")
@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"decision": "yes"},
        {"decision": ""},
        {"reason": "fine"},
        {"decision": "once", "content": 5},
        {"decision": "once", "content": ["x"]},
        {"decision": "once", "reason": 5},
        {"decision": "once", "content": "x" * 100_000},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_accepting_without_a_valid_decision_is_no_consent(
    mode: str, content: dict[str, Any] | None, root: Path, target: Path
) -> None:
    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=content)

    async with connected("memory", mode, root, elicitation_callback=person) as client:
        result = await client.call_tool("edit", edit_of(target))
    assert result.is_error
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.form")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_the_person_may_replace_the_text(mode: str, root: Path, target: Path) -> None:
    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        assert "content" in params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={"decision": "once", "content": "friends"})

    async with connected("memory", mode, root, elicitation_callback=person) as client:
        result = await client.call_tool("edit", edit_of(target))
    assert not result.is_error
    assert target.read_text() == "hello friends\n"
    assert any("friends" in block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.requirement("consent.form")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_optional_fields_that_are_null_or_empty_count_as_left_out(mode: str, root: Path, target: Path) -> None:
    for empty_value, new_text in ((None, "hello there\n"), ("", "hello world\n")):

        async def person(_context: Any, _params: Any, empty_value: str | None = empty_value) -> types.ElicitResult:
            return types.ElicitResult(
                action="accept", content={"decision": "once", "reason": empty_value, "content": empty_value}
            )

        async with connected("memory", mode, root, elicitation_callback=person) as client:
            old, new = ("world", "there") if empty_value is None else ("there", "world")
            result = await client.call_tool("edit", {"file_path": str(target), "old_string": old, "new_string": new})
        assert not result.is_error
        assert target.read_text() == new_text


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize(
    "answer", [{}, {"action": "perhaps"}, {"action": "accept", "content": {"decision": {}}}], ids=str
)
async def test_a_reply_that_does_not_answer_the_form_is_reported_as_such(
    answer: Json, root: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    settings = {"tools": {"builtIn": True}}
    async with proxy_client(
        tmp_path, {}, "handshake", settings=settings, answer=lambda _method, _params: answer
    ) as client:
        result = await client.call("edit", edit_of(target))
    assert result["isError"]
    assert "no valid decision" in result["content"][0]["text"]
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.refusal")
async def test_an_error_in_place_of_an_answer_is_not_reported_as_a_refusal(root: Path, target: Path) -> None:
    async def fail(_context: Any, _params: Any) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="there is\nno window")

    async with connected("memory", HANDSHAKE, root, elicitation_callback=fail) as client:
        result = await client.call_tool("edit", edit_of(target))
    assert result.is_error
    assert (result.meta or {})["coretools-mcp/error"]["type"] == "execution_denied"
    (text,) = (block.text for block in result.content if isinstance(block, types.TextContent))
    assert "The client answered the question with an error (-32603: there is" in text
    assert "nothing was done" in text
    assert not any(word in text for word in ("declined", "refused", "dismissed"))
    assert target.read_text() == "hello world\n"


@pytest.mark.requirement("consent.form")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_the_form_requires_a_decision_and_proposes_none(mode: str, root: Path, target: Path) -> None:
    schemas: list[dict[str, Any]] = []

    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        schemas.append(params.requested_schema)
        return types.ElicitResult(action="decline")

    async with connected("memory", mode, root, elicitation_callback=person) as client:
        await client.call_tool("edit", edit_of(target))
    schema = schemas[0]
    assert schema["required"] == ["decision"]
    assert "default" not in schema["properties"]["decision"]
    assert [schema["properties"][name]["default"] for name in ("reason", "content")] == ["", ""]
    assert [choice["const"] for choice in schema["properties"]["decision"]["oneOf"]] == ["once", "always", "deny"]


@pytest.mark.requirement("consent.form")
async def test_an_edit_that_cannot_succeed_asks_nobody(root: Path, target: Path) -> None:
    async with connected("memory", MODERN, root, elicitation_callback=unused_callback) as client:
        result = await send_call(client, {**edit_of(target), "old_string": "not there"})
    assert isinstance(result, types.CallToolResult)
    assert result.is_error
