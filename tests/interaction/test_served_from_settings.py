"""Tools that depend on settings, over a real client: web pages, web searches and agents, each after consent."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from tests.harness import HANDSHAKE, MODERN, in_memory, text_of, write_config
from tests.peers.search_server import SEARXNG_PATH, search_server
from tests.peers.web_server import answer, web_server
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

ERAS = [HANDSHAKE, MODERN]


class Person:
    """Gives every question the same decision, and records the questions."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.questions: list[str] = []

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        self.questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": self.decision})


@asynccontextmanager
async def client_of(mode: str, root: Path, tmp_path: Path, person: Person, **settings: Any) -> AsyncGenerator[Client]:
    config = write_config(tmp_path, settings)
    with anyio.fail_after(CEILING):
        async with in_memory(mode, root, config, elicitation_callback=person) as client:
            yield client


@pytest.mark.requirement("web.fetch.consent")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("decision", ["once", "deny"])
async def test_a_page_is_fetched_after_consent_and_not_without(
    mode: str, decision: str, root: Path, tmp_path: Path
) -> None:
    person = Person(decision)
    async with web_server({"/": answer("<h1>Tabs</h1><p>are wide.</p>")}) as site:
        web = {"allowPrivateHosts": ["127.0.0.1"], "allowedPorts": [site.port]}
        url = f"http://127.0.0.1:{site.port}/"
        async with client_of(mode, root, tmp_path, person, web=web) as client:
            result = await client.call_tool("web_fetch", {"url": url})
    assert len(person.questions) == 1
    assert url in person.questions[0]
    assert bool(result.is_error) is (decision == "deny")
    assert site.connections == (1 if decision == "once" else 0)
    assert ("# Tabs" in text_of(result)) is (decision == "once")


@pytest.mark.requirement("web.fetch.consent")
async def test_a_private_page_that_no_setting_opens_is_refused_without_a_question(root: Path, tmp_path: Path) -> None:
    person = Person("once")
    async with web_server({"/": answer("<p>inside")}) as site:
        web = {"allowedPorts": [site.port]}
        async with client_of(HANDSHAKE, root, tmp_path, person, web=web) as client:
            result = await client.call_tool("web_fetch", {"url": f"http://127.0.0.1:{site.port}/"})
    assert result.is_error
    assert "web.allowPrivateHosts" in text_of(result)
    assert (person.questions, site.connections) == ([], 0)


@pytest.mark.requirement("web_search.consent")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("decision", ["once", "deny"])
async def test_the_web_is_searched_after_consent_and_not_without(
    mode: str, decision: str, root: Path, tmp_path: Path
) -> None:
    person = Person(decision)
    async with search_server() as provider:
        web = {"search": {"searxng": {"url": provider.url(SEARXNG_PATH)}}}
        async with client_of(mode, root, tmp_path, person, web=web) as client:
            result = await client.call_tool("web_search", {"query": "tabs or spaces"})
        queries = [request.query.get("q") for request in provider.received]
    assert len(person.questions) == 1
    assert "tabs or spaces" in person.questions[0]
    assert queries == (["tabs or spaces"] if decision == "once" else [])
    assert bool(result.is_error) is (decision == "deny")
    assert ("Page 1" in text_of(result)) is (decision == "once")


@pytest.mark.requirement("task.consent")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("decision", ["once", "deny"])
async def test_a_task_is_handed_to_an_agent_after_consent_and_not_without(
    mode: str, decision: str, root: Path, tmp_path: Path
) -> None:
    person, mark = Person(decision), root / "was-run"
    code = f"import sys; open({str(mark)!r}, 'w').close(); print('did:', sys.stdin.read())"
    agents = {"worker": {"command": sys.executable, "args": ["-c", code], "description": "Works."}}
    async with client_of(mode, root, tmp_path, person, agents=agents) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("task", {"description": "Look", "prompt": "Look around."})
    assert "Works." in (tools["task"].description or "")
    assert len(person.questions) == 1
    assert "Look around." in person.questions[0]
    assert mark.exists() is (decision == "once")
    assert bool(result.is_error) is (decision == "deny")
    assert ("did: Look around." in text_of(result)) is (decision == "once")


@pytest.mark.requirement("task.consent")
async def test_without_an_agent_there_is_no_task_tool_and_the_error_names_the_setting(
    root: Path, tmp_path: Path
) -> None:
    async with client_of(HANDSHAKE, root, tmp_path, Person("once")) as client:
        assert "task" not in {tool.name for tool in (await client.list_tools()).tools}
        with pytest.raises(MCPError, match="agents setting"):
            await client.call_tool("task", {"prompt": "Look around."})
