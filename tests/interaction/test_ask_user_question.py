"""Questions from the model to the user, as a client sees them in both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from server.app import App
from server.questions.client_confirmer import QUESTION_KEY
from server.settings import load_settings
from tests.harness import HANDSHAKE, MODERN, own_state, write_config
from tests.in_process import in_process
from tests.interaction.raw_clients import connect_http, http_server, initialized_client

pytestmark = pytest.mark.anyio

both_eras = pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])

TOOL = "ask_user_question"

QUESTIONS = {
    "questions": [
        {
            "question": "Which library?",
            "header": "Library",
            "options": [{"label": "httpx", "description": "async too"}, {"label": "requests"}],
        },
        {
            "question": "Which checks?",
            "header": "Checks",
            "multiSelect": True,
            "options": [{"label": "a"}, {"label": "b"}],
        },
        {"question": "What name?", "header": "Name", "type": "text"},
        {"question": "Go on?", "header": "Go on", "type": "yesno"},
    ]
}

ANSWER: Mapping[str, Any] = {
    "question_1": "Other",
    "question_1_text": "aiohttp",
    "question_2": ["a", "b"],
    "question_3": "acme",
    "question_4": "Yes",
}


class Person:
    """Answers every form in the same way, and records the questions."""

    def __init__(self, action: Any = "accept", content: Mapping[str, Any] | None = None) -> None:
        self.questions: list[types.ElicitRequestFormParams] = []
        self._result = types.ElicitResult(action=action, content=dict(content) if content is not None else None)

    async def __call__(self, _context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        self.questions.append(params)
        return self._result


@asynccontextmanager
async def in_process_client(
    mode: str, root: Path, folder: Path, settings: Mapping[str, Any] | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """Yield a client of a server in this process."""
    config = write_config(folder, settings or {})
    app = App(load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state()), "stdio")
    async with app.running(), Client(in_process(app), mode=mode, cache=None, **callbacks) as client:
        yield client


@pytest.mark.requirement("ask_user.eras")
@both_eras
async def test_the_user_answers_in_one_form_in_both_eras(mode: str, root: Path, tmp_path: Path) -> None:
    person = Person(content=ANSWER)
    async with in_process_client(mode, root, tmp_path, elicitation_callback=person) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert not result.is_error
    assert result.structured_content == {
        "outcome": "answered",
        "answers": {"Library": ["aiohttp"], "Checks": ["a", "b"], "Name": ["acme"], "Go on": ["Yes"]},
    }
    (question,) = person.questions
    assert question.message.startswith("Ask the user: Library, Checks, Name, Go on\n\nThe model asks you.")
    assert "Asked because" not in question.message
    assert question.requested_schema["required"] == ["question_1", "question_2", "question_3", "question_4"]
    assert "decision" not in question.requested_schema["properties"]


@pytest.mark.requirement("ask_user.eras")
@both_eras
@pytest.mark.parametrize(("action", "outcome"), [("decline", "declined"), ("cancel", "dismissed")])
async def test_the_result_says_that_the_user_declined_or_dismissed_the_form(
    mode: str, action: str, outcome: str, root: Path, tmp_path: Path
) -> None:
    person = Person(action)
    async with in_process_client(mode, root, tmp_path, elicitation_callback=person) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert not result.is_error
    assert result.structured_content == {"outcome": outcome, "answers": {}}
    assert len(person.questions) == 1


@pytest.mark.requirement("ask_user.eras")
@both_eras
@pytest.mark.parametrize("content", [None, {}, {"decision": "once"}, {**ANSWER, "question_4": "Perhaps"}], ids=str)
async def test_a_form_without_an_answer_is_reported_to_the_model(
    mode: str, content: Mapping[str, Any] | None, root: Path, tmp_path: Path
) -> None:
    async with in_process_client(mode, root, tmp_path, elicitation_callback=Person(content=content)) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert result.is_error
    assert "came back without any answer" in str(result.content)


@pytest.mark.requirement("ask_user.always_asked")
@both_eras
async def test_a_server_that_allows_everything_still_asks(mode: str, root: Path, tmp_path: Path) -> None:
    person = Person(content=ANSWER)
    settings = {"permissions": {"allow": ["*"]}}
    async with in_process_client(mode, root, tmp_path, settings, elicitation_callback=person) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert not result.is_error
    assert len(person.questions) == 1


@pytest.mark.requirement("ask_user.unavailable")
@both_eras
async def test_a_client_without_forms_is_told_to_ask_in_its_reply(mode: str, root: Path, tmp_path: Path) -> None:
    async with in_process_client(mode, root, tmp_path) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert result.is_error
    assert "Ask the questions in your reply" in str(result.content)


@pytest.mark.requirement("ask_user.unavailable")
@both_eras
async def test_where_forms_have_no_fields_nobody_is_asked(mode: str, root: Path, tmp_path: Path) -> None:
    person = Person(content=ANSWER)
    settings = {"confirmation": {"style": "simple"}}
    async with in_process_client(mode, root, tmp_path, settings, elicitation_callback=person) as client:
        result = await client.call_tool(TOOL, QUESTIONS)
    assert result.is_error
    assert "confirmation.style" in str(result.content)
    assert not person.questions


@pytest.mark.requirement("ask_user.answer")
async def test_a_form_that_nobody_answers_in_time_is_no_failure(root: Path, tmp_path: Path) -> None:
    async def wait_forever(_context: Any, _params: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError("nobody comes back")

    settings = {"confirmation": {"timeout": 100}}
    async with in_process_client(HANDSHAKE, root, tmp_path, settings, elicitation_callback=wait_forever) as client:
        with anyio.fail_after(30):
            result = await client.call_tool(TOOL, QUESTIONS)
    assert not result.is_error
    assert result.structured_content == {"outcome": "timed_out", "answers": {}}


@pytest.mark.requirement("ask_user.eras")
async def test_an_answer_counts_once_and_only_for_the_questions_that_were_shown(root: Path, tmp_path: Path) -> None:
    async with in_process_client(MODERN, root, tmp_path, elicitation_callback=Person()) as client:
        other_questions = {"questions": QUESTIONS["questions"][2:]}

        async def call(arguments: dict[str, Any], state: str | None = None) -> Any:
            answer = types.ElicitResult(action="accept", content=dict(ANSWER))
            responses: Any = {QUESTION_KEY: answer} if state is not None else None
            return await client.session.call_tool(
                TOOL, arguments, input_responses=responses, request_state=state, allow_input_required=True
            )

        first_result = await call(QUESTIONS)
        assert isinstance(first_result, types.InputRequiredResult)
        assert isinstance(await call(other_questions, first_result.request_state), types.InputRequiredResult)
        assert isinstance(await call(QUESTIONS, "forged"), types.InputRequiredResult)
        answered_result = await call(QUESTIONS, first_result.request_state)
        assert answered_result.structured_content["outcome"] == "answered"
        assert isinstance(await call(QUESTIONS, first_result.request_state), types.InputRequiredResult)


@pytest.mark.requirement("ask_user.always_asked")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(
    ("capabilities", "is_listed"),
    [
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({}, False),
    ],
    ids=str,
)
def test_the_tool_is_listed_for_clients_that_can_show_a_form(
    capabilities: dict[str, Any], is_listed: bool, transport: str, revision: str, url: str
) -> None:
    with initialized_client(connect_http(url, transport), revision, capabilities=capabilities) as client:
        assert (TOOL in [tool["name"] for tool in client.tools()]) is is_listed


@pytest.mark.requirement("ask_user.eras")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_the_form_of_each_revision_is_answered_over_the_wire(transport: str, revision: str, url: str) -> None:
    answer = dict(ANSWER)
    if revision == "2025-06-18":
        del answer["question_2"]
        answer |= {"question_2_option_1": True, "question_2_option_2": False}
    with initialized_client(connect_http(url, transport), revision) as client:
        call = client.call(TOOL, QUESTIONS)
        call.answer(call.next_question(), {"action": "accept", "content": answer})
        result = call.next_result()
    assert result.code is None
    assert "Library: aiohttp\n" in result.text
    assert "Checks: a" in result.text


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("asking").resolve()
    (folder / "workspace").mkdir()
    with http_server(folder / "workspace", write_config(folder, {})) as address:
        yield address
