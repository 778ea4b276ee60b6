"""A rule that denies a whole server hides its prompts and resources, not only its tools."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from server.settings import load_settings
from tests.harness import write_config
from tests.in_process import in_process
from tests.interaction.relay.clients import (
    AnswerError,
    Json,
    WireClient,
    answer_with,
    app_of,
    client_on,
    listing_entry,
    named_resources,
    proxy_client,
    scripted_entry,
)
from tests.waiting import until
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import read_rules

pytestmark = pytest.mark.anyio

LISTS: Json = {
    "resources": named_resources("shut://a"),
    "resourceTemplates": named_resources("shut://in/{x}"),
    "prompts": [{"name": "greet"}],
}

REQUESTS: list[tuple[str, Json]] = [
    ("resources/read", {"uri": "shut://a"}),
    ("resources/read", {"uri": "shut+shut://a"}),
    ("resources/subscribe", {"uri": "shut://a"}),
    ("prompts/get", {"name": "shut__greet"}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "shut__greet"}, "argument": {}}),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "shut://in/{x}"}, "argument": {}}),
]

RULE = "permissions.deny rule mcp__shut"


async def all_names(client: WireClient) -> set[str]:
    kinds = ("prompts", "resources", "resourceTemplates")
    return {name for kind in kinds for name in await client.items_by_name(kind)}


async def error_of(client: WireClient, method: str, params: Json) -> str:
    try:
        await client.request(method, params)
    except AnswerError as error:
        return error.error["message"]
    return ""


@pytest.mark.requirement("permissions.deny-server")
async def test_a_denied_server_has_neither_prompts_nor_resources(tmp_path: Path) -> None:
    open_entry = listing_entry("open", resources=named_resources("shut://b"), prompts=[{"name": "greet"}])
    servers = {"shut": listing_entry("shut", **LISTS), "open": open_entry}
    settings = {"permissions": {"deny": ["mcp__shut"]}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        assert await all_names(client) == {"open__greet", "shut://b"}
        for method, params in REQUESTS:
            assert RULE in await error_of(client, method, params), params
        assert (await client.request("resources/read", {"uri": "shut://b"}))["contents"][0]["text"] == "from open"


@pytest.mark.requirement("permissions.deny-server")
async def test_a_denied_server_cannot_take_names_that_begin_with_the_alias_of_another(tmp_path: Path) -> None:
    name = "open+note://unlisted"
    servers = {
        "shut": listing_entry("shut", resources=named_resources(name)),
        "open": listing_entry("open", resources=named_resources("note://listed")),
    }
    settings = {"permissions": {"deny": ["mcp__shut"]}, "tools": {"builtIn": True}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        assert (await client.request("resources/read", {"uri": name}))["contents"][0]["text"] == "from open"


@pytest.mark.requirement("permissions.deny-server")
async def test_a_server_without_prefix_is_denied_by_its_alias_too(tmp_path: Path) -> None:
    servers = {"shut": listing_entry("shut", **LISTS, entry={"prefix": "none"}), "open": listing_entry("open")}
    async with proxy_client(
        tmp_path, servers, "handshake", settings={"permissions": {"deny": ["mcp__shut"]}}
    ) as client:
        assert not await all_names(client)
        assert RULE in await error_of(client, "prompts/get", {"name": "greet"})


@pytest.mark.requirement("permissions.deny-server")
async def test_a_server_that_is_denied_while_it_runs_disappears_and_comes_back(tmp_path: Path) -> None:
    settings: Json = {"tools": {"builtIn": False}, "mcpServers": {"shut": listing_entry("shut", **LISTS)}}
    app = app_of(config := write_config(tmp_path, settings))
    names = {"shut__greet", "shut://a", "shut://in/{x}"}
    async with (
        app.running(),
        client_on(in_process(app), "handshake") as client,
        anyio.create_task_group() as tasks,
    ):
        assert await all_names(client) == names
        for deny, expected_names in ((["mcp__shut"], set[str]()), ([], names)):
            write_config(tmp_path, {**settings, "permissions": {"deny": deny}})
            client.messages.clear()
            await app.live.apply(load_settings([str(config)], {}, {}), tasks)
            await client.wait_for_notifications("notifications/resources/list_changed")
            await client.wait_for_notifications("notifications/prompts/list_changed")
            assert await all_names(client) == expected_names


TALKING_SERVER = """
import json, pathlib, runpy, sys, threading, time
sign, sys.argv = pathlib.Path(sys.argv[1]), sys.argv[2:]

def talk():
    while True:
        while not sign.exists():
            time.sleep(0.01)
        sign.unlink()
        question = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "x"}}
        for message in (log, {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question}):
            sys.stdout.write(json.dumps(message) + chr(10))
        sys.stdout.flush()

threading.Thread(target=talk, daemon=True).start()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the program in its second argument; for each file at its first one, sends a log message and a question."""


@pytest.mark.requirement("permissions.deny-server")
@pytest.mark.parametrize("in_call", [False, True])
async def test_no_question_or_log_message_of_a_server_reaches_its_client_after_the_server_is_denied(
    tmp_path: Path, *, in_call: bool
) -> None:
    sign, tale = tmp_path / "sign", tmp_path / "tale"
    tools = {"tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}}
    entry = scripted_entry("shut", tale=str(tale), answers=tools, silent=["tools/call"])
    entry["args"] = ["-S", "-c", TALKING_SERVER, str(sign), *entry["args"][1:]]
    settings: Json = {"tools": {"builtIn": False}, "mcpServers": {"shut": entry}}
    app, answer = app_of(config := write_config(tmp_path, settings)), answer_with(elicitation={"action": "decline"})

    async def talk() -> None:
        """Have the server send its messages, and wait for the answer to its question."""
        count = tale.read_text().split("\n").count("")
        sign.touch()
        await until(lambda: tale.read_text().split("\n").count("") > count)

    async with (
        app.running(),
        client_on(in_process(app), "handshake", answer=answer) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.items_by_name("tools")
        if in_call:
            tasks.start_soon(client.call, "shut__go")
            await until(lambda: "tools/call" in tale.read_text())
        await talk()
        await client.wait_for_notifications("notifications/message")
        assert len(client.questions) == 1
        write_config(tmp_path, {**settings, "permissions": {"deny": ["mcp__shut"]}})
        await app.live.apply(load_settings([str(config)], {}, {}), tasks)
        await talk()
        await client.request("ping", {})  # what was sent before has arrived by then
        assert len(client.questions) == 1
        assert len([method for method, _ in client.messages if method == "notifications/message"]) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("relay.features")
async def test_items_of_a_removed_server_are_no_longer_listed(tmp_path: Path) -> None:
    settings: Json = {"tools": {"builtIn": False}, "mcpServers": {"gone": listing_entry("gone", **LISTS)}}
    app = app_of(config := write_config(tmp_path, settings))
    async with (
        app.running(),
        client_on(in_process(app), "handshake") as client,
        anyio.create_task_group() as tasks,
    ):
        assert await all_names(client)
        write_config(tmp_path, {**settings, "mcpServers": {"other": listing_entry("other")}})
        await app.live.apply(load_settings([str(config)], {}, {}), tasks)
        await client.wait_for_notifications("notifications/resources/list_changed")
        assert not await all_names(client)
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("permissions.deny-server")
@pytest.mark.parametrize(
    ("rule", "denies_server"),
    [
        ("mcp__shut", True),
        ("mcp__shut__*", True),
        ("shut__*", True),
        ("mcp_shut_*", True),
        ("*", True),
        ("mcp__shut__tool", False),
        ("shut__t*", False),
        ("mcp__shutter", False),
        ("Bash(git *)", False),
    ],
)
def test_a_rule_denies_a_server_if_it_names_all_its_tools(rule: str, *, denies_server: bool) -> None:
    policy = PermissionPolicy(read_rules({"permissions.deny": [rule]}, str, "/home/me")[0])
    reason = policy.why_server_not_offered("shut")
    assert reason == (f"The server shut is turned off by the permissions.deny rule {rule}." if denies_server else "")
