"""What a client gets before its first call: a short tool list, titles for people, and general instructions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from server.app import App
from server.requests.tool_requests import MAX_SHOWN_ROOTS
from server.requests.wire_results import tool_to_wire
from server.settings import load_settings
from tests.e2e.test_live_settings import rewrite, until_listed
from tests.harness import HANDSHAKE, MODERN, connected, in_memory, write_config
from tests.interaction.test_lifecycle import INITIALIZED, call, running
from tests.interaction.test_revisions import initialize
from tests.peers.search_server import SEARXNG_PATH, search_server
from tools.builtin.all_tools import builtin_tools
from tools.permissions.tool_names import PROFILES

pytestmark = pytest.mark.anyio

MAX_TOKENS = 4_000  # the reference server for files takes 3,240 with its 14 tools
MAX_TOKENS_WITH_FORMS = 4_600
MAX_TOKENS_OF_LSP = 350
CORE = {
    *("list_directory", "read_file", "write_file", "edit", "notebook_edit", "list_changes", "undo_change", "glob"),
    *("grep_search", "read_many_files"),
    *("run_shell_command", "list_background_jobs", "read_background_output", "stop_background_job"),
}
SEARXNG = {"web": {"search": {"searxng": {"url": "https://search.example/search"}}}}


def wire_tools(root: Path, *options: str) -> list[dict[str, Any]]:
    """Return the tools that a client without elicitation gets over the wire."""
    with running(root, None, *options) as server:
        server.send(initialize(HANDSHAKE))
        server.answer()
        server.send(INITIALIZED, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        return cast("list[dict[str, Any]]", server.answer()["result"]["tools"])


def tokens(tools: list[dict[str, Any]]) -> float:
    """Estimate what a list costs a model, at the usual four characters per token."""
    return len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False)) / 4


def schemas_in(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas inside it."""
    yield schema
    for inner in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from schemas_in(inner)


@pytest.mark.requirement("lists.size")
def test_the_list_costs_a_model_little_more_than_that_of_a_server_for_files_alone(root: Path) -> None:
    tools = wire_tools(root)
    costs = {tool["name"]: tokens([tool]) for tool in tools}
    assert costs.pop("lsp", 0) <= MAX_TOKENS_OF_LSP  # listed only if there is a language server
    assert costs.keys() == CORE | {"web_fetch", "save_memory", "todo_write"}
    assert tokens([tool for tool in tools if tool["name"] != "lsp"]) <= MAX_TOKENS, costs


@pytest.mark.requirement("lists.size")
def test_every_built_in_tool_but_those_that_the_operator_sets_up_fits_into_one_list() -> None:
    left_out_tools = {"web_search", "exit_plan_mode"}
    tools = [tool_to_wire(tool) for tool in builtin_tools() if tool.name not in left_out_tools]
    assert tokens(tools) <= MAX_TOKENS_WITH_FORMS
    with_forms = {"ask_user_question", "enter_plan_mode"}
    assert tokens([tool for tool in tools if tool["name"] not in with_forms]) <= MAX_TOKENS


@pytest.mark.requirement("lists.size")
def test_the_list_holds_nothing_that_only_validation_needs(root: Path) -> None:
    for tool in wire_tools(root):
        assert tool.keys() == {"name", "title", "description", "inputSchema", "annotations"}
        for schema in schemas_in(tool["inputSchema"]):
            keys = {"type", "properties", "required", "description", "items", "enum", "default"}
            assert schema.keys() - keys == ({"additionalProperties"} if schema["type"] == "object" else set())
            assert schema.get("additionalProperties") in (None, False)
            assert schema.get("default", True), tool["name"]


@pytest.mark.requirement("lists.size")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list_directory", "ls folder directory"),
        ("read_file", "cat head tail view open pdf image"),
        ("write_file", "create overwrite save"),
        ("edit", "replace sed insert delete"),
        ("notebook_edit", "jupyter notebook cell insert delete"),
        ("skill", "skill"),
        ("list_changes", "history"),
        ("undo_change", "revert restore"),
        ("glob", "find fd ls"),
        ("grep_search", "grep rg ripgrep search regular"),
        ("run_shell_command", "bash shell terminal git build test"),
        ("list_background_jobs", "ps jobs"),
        ("stop_background_job", "kill"),
        ("web_fetch", "curl url get html"),
        ("web_search", "google search"),
        ("save_memory", "remember fact"),
        ("todo_write", "plan checklist"),
    ],
)
def test_descriptions_have_the_words_by_which_models_look_for_tools(name: str, words: str) -> None:
    (tool,) = [tool for tool in builtin_tools() if tool.name == name]
    assert [word for word in words.split() if word not in tool.description.lower()] == []


@pytest.mark.requirement("lists.titles")
def test_every_tool_has_a_title_for_people_and_its_other_names_are_still_taken(root: Path) -> None:
    (root / "a.txt").write_text("x\n")
    titles = {tool["name"]: tool["title"] for tool in wire_tools(root)}
    assert [titles[name] for name in ("read_file", "edit", "run_shell_command")] == [
        "Read file",
        "Edit file",
        "Run command",
    ]
    tools = builtin_tools()
    assert len({tool.title for tool in tools}) == len(tools)
    for tool in tools:
        assert tool.title[0].isupper()
        assert tool.title[1:] == tool.title[1:].lower()
    with running(root) as server:
        server.send(initialize(HANDSHAKE))
        server.answer()
        server.send(INITIALIZED, call(1, "ReadFile", file_path="a.txt"))
        assert server.answer()["result"]["content"][0]["text"] == "x\n"


@pytest.mark.requirement("lists.profile")
def test_the_core_profile_has_files_search_and_commands_and_says_why_others_are_not_there(root: Path) -> None:
    assert PROFILES["core"] == CORE
    assert {tool["name"] for tool in wire_tools(root, "--profile", "core")} == CORE
    with running(root, None, "--profile", "core") as server:
        server.send(initialize(HANDSHAKE))
        assert "web" not in server.answer()["result"]["instructions"]
        server.send(INITIALIZED, call(1, "todo_write", todos=[]), call(2, "list_directory", path="."))
        answers = {answer["id"]: answer["result"] for answer in (server.answer(), server.answer())}
    assert answers[1]["isError"]
    assert "is turned off" in answers[1]["content"][0]["text"]
    assert "tools.profile" in answers[1]["content"][0]["text"]
    assert not answers[2].get("isError")


@pytest.mark.requirement("lists.profile")
async def test_a_changed_profile_counts_at_once(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"tools": {"profile": "core"}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == CORE
        rewrite(config, {})
        await until_listed(client, {"todo_write"}, set())
        assert not (await client.call_tool("todo_write", {"todos": []})).is_error


@pytest.mark.requirement("lists.web_search")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_web_search_is_listed_if_a_provider_is_set_up_and_else_says_what_is_missing(
    era: str, root: Path, tmp_path: Path
) -> None:
    async with in_memory(era, root, write_config(tmp_path, {"approvalMode": "auto-edit"})) as client:
        assert "web_search" not in {tool.name for tool in (await client.list_tools()).tools}
        for name in ("web_search", "google_web_search"):
            result = await client.call_tool(name, {"query": "words"})
            assert result.is_error
            assert "web.search.tavily.apiKey" in str(result.content)
    async with in_memory(era, root, write_config(tmp_path, SEARXNG)) as client:
        assert "web_search" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.requirement("lists.web_search")
async def test_the_list_follows_the_providers_of_a_running_server(root: Path, tmp_path: Path) -> None:
    mode = {"approvalMode": "auto-edit"}
    config = write_config(tmp_path, mode)
    async with search_server() as provider, connected("stdio", HANDSHAKE, root, config) as client:
        await until_listed(client, {"web_fetch"}, {"web_search"})
        rewrite(config, {**mode, "web": {"search": {"searxng": {"url": provider.url(SEARXNG_PATH)}}}})
        await until_listed(client, {"web_search"}, set())
        result = await client.call_tool("web_search", {"query": "tabs"})
        assert "Page 1" in str(result.content)
        rewrite(config, mode)
        await until_listed(client, {"web_fetch"}, {"web_search"})
        error_result = await client.call_tool("web_search", {"query": "tabs"})
        assert "no provider is set up" in str(error_result.content)


@pytest.mark.requirement("lists.instructions")
@pytest.mark.parametrize(
    ("settings", "phrases", "absent_phrases"),
    [
        ({}, ["Approval mode default", "folders that the client opens", "web_fetch"], ["web_search"]),
        (SEARXNG, ["web_search and web_fetch"], []),
        (
            {"tools": {"include": ["read_file", "edit"]}},
            ["read_file reads, edit changes."],
            ["run_shell_command", "save_memory", "web_fetch", "glob", "confined"],
        ),
        ({"permissions": {"deny": ["web_fetch"]}}, ["save_memory keeps"], ["web_fetch"]),
        ({"approvalMode": "plan"}, ["Approval mode plan: only reading"], []),
        ({"approvalMode": "auto-edit"}, ["Approval mode auto-edit"], ["Approval mode default"]),
        ({"shell": {"sandbox": "required"}}, ["Commands run confined"], ["If commands run confined"]),
        ({"shell": {"sandbox": "off"}}, [], ["confined"]),
        ({"workspace": {"roots": ["/a", "/b"]}}, ["The workspace: /a, /b."], ["folders that the client opens"]),
        ({"workspace": {"roots": ["/a"], "clientRoots": "intersect"}}, ["limited to what the client opens"], []),
        (
            {"workspace": {"roots": [f"/{number}" for number in range(MAX_SHOWN_ROOTS + 2)]}},
            [f"/{MAX_SHOWN_ROOTS - 1} and 2 more"],
            [f"/{MAX_SHOWN_ROOTS},"],
        ),
    ],
    ids=str,
)
def test_the_instructions_say_once_what_holds_for_all_tools(
    settings: dict[str, Any], phrases: list[str], absent_phrases: list[str]
) -> None:
    text = App(load_settings([], settings, {}), "stdio").table.instructions or ""
    assert [phrase for phrase in phrases if phrase not in text] == []
    assert [phrase for phrase in absent_phrases if phrase in text] == []
    assert len(text) <= 1_000
    for tool in builtin_tools():
        assert "confined" not in tool.description


@pytest.mark.requirement("lists.instructions")
async def test_the_instructions_follow_the_settings_and_reach_the_client(root: Path, tmp_path: Path) -> None:
    async with in_memory(HANDSHAKE, root, write_config(tmp_path, {})) as client:
        assert f"The workspace: {root}." in (client.instructions or "")
    app = App(load_settings([], {}, {}), "stdio")
    async with app.running():
        assert "web_search" not in (app.table.instructions or "")
        report = load_settings([], SEARXNG, {})
        async with anyio.create_task_group() as tasks:
            await app.live.apply(report, tasks)
        assert "web_search" in (app.table.instructions or "")
