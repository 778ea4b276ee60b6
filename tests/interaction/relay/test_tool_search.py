"""Search instead of lists: three tools replace those of servers, and rules for a tool apply to calls through them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from server.requests.tool_search import LARGE_CHARS
from tests.harness import write_config
from tests.in_process import in_process
from tests.interaction.relay.clients import (
    AnswerError,
    Json,
    WireClient,
    accept_forms,
    app_of,
    client_on,
    proxy_client,
    scripted_entry,
    text_or_json,
)
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.test_tool_list import tokens

pytestmark = pytest.mark.anyio

MAX_TOKENS = 1_500
SEARCH_TOOLS = {"search_tools", "describe_tool", "call_tool"}
ON: Json = {"proxy": {"search": "on"}}
OFF: Json = {"proxy": {"search": "off"}}
AUTO: Json = {"proxy": {"search": "auto"}}
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "Which one"}, "why": {}},
    "required": ["id"],
}


def tool(name: str, description: str = "", **fields: Any) -> Json:
    return {"name": name, "description": description, "inputSchema": SCHEMA, **fields}


REFUND = tool("refund_payment", "Give the money of a payment back.\nAll or a part of it.", title="Refund")
ISSUE = tool("createIssue", "Open a new issue in a repository.")
PAGE = tool("page_only", "Called by the page.", _meta={"ui": {"visibility": ["app"]}})
HINTED = tool("zap", "Does it.", _meta={"anthropic/searchHint": "thunderstorm forecast"})


def shop_entry(*tools: Json, era: str = "handshake", **entry: Any) -> Json:
    """Return a settings entry for a server with these tools, or by default with those of a shop."""
    listed_tools = list(tools or (REFUND, ISSUE, PAGE, HINTED))
    return scripted_entry("shop", era, entry=entry, answers={"tools/list": {"tools": listed_tools}})


async def search(client: WireClient, query: str, **options: Any) -> list[str]:
    result = await client.call("search_tools", {"query": query, **options})
    assert not result.get("isError"), result
    return [tool["name"] for tool in result["structuredContent"]["tools"]]


async def refusal_text(client: WireClient, tool: str, arguments: Json) -> str:
    """Return the text of a refused call, whether it is a protocol error or a failed result."""
    try:
        result = await client.call(tool, arguments)
    except AnswerError as error:
        return f"{error.error['code']}: {error.error['message']}"
    assert result["isError"], result
    return result["content"][0]["text"]


@pytest.mark.requirement("search.list")
@by_eras
async def test_the_list_has_three_tools_instead_of_those_of_servers_and_stays_the_same_after_a_search(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {
        "shop": shop_entry(era=upstream_era, description="Payments and refunds."),
        "desk": shop_entry(tool("ring"), tool("hang_up"), era=upstream_era, alwaysLoad=["ring"]),
        "post": shop_entry(tool("stamp"), era=upstream_era, alwaysLoad=True),
        "bank": shop_entry(tool("lend", _meta={"anthropic/alwaysLoad": True}), tool("owe"), era=upstream_era),
        "loud": shop_entry(tool("shout", _meta={"anthropic/alwaysLoad": True}), era=upstream_era, trust=False),
    }
    async with proxy_client(tmp_path, servers, client_era, settings={**ON, "tools": {"builtIn": True}}) as client:
        tools = await client.items_by_name("tools")
        upstream_names = {name for name in tools if "__" in name}
        assert upstream_names == {"shop__page_only", "desk__ring", "post__stamp", "bank__lend"}
        assert SEARCH_TOOLS | {"read_file"} < tools.keys()
        assert "shop (Payments and refunds.)" in tools["search_tools"]["description"]
        for name in SEARCH_TOOLS:
            assert tools[name]["title"]
            assert tools[name]["annotations"]["readOnlyHint"] is (name != "call_tool")
        assert tools["call_tool"]["annotations"] == {
            "readOnlyHint": False,
            "destructiveHint": True,
            "openWorldHint": True,
        }
        assert await search(client, "refund") == ["shop__refund_payment"]
        assert (await client.call_and_parse("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}}))[
            "server"
        ]
        assert await client.items_by_name("tools") == tools


@pytest.mark.requirement("search.list")
@by_era
async def test_without_search_the_three_names_are_unknown_and_a_server_may_use_them(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"shop": shop_entry()}, era, settings=OFF) as client:
        assert SEARCH_TOOLS.isdisjoint(await client.items_by_name("tools"))
        for name in SEARCH_TOOLS:
            assert "is not registered" in await refusal_text(client, name, {"query": "x"})
    servers = {"shop": shop_entry(tool("call_tool"), prefix="none")}
    async with proxy_client(tmp_path, servers, era, settings=OFF) as client:
        assert (await client.call_and_parse("call_tool", {"id": "1"}))["params"]["name"] == "call_tool"


@pytest.mark.requirement("search.names")
@by_era
async def test_the_three_names_are_reserved_where_tools_may_be_searched_for(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"shop": shop_entry(tool("call_tool"), tool("other"), prefix="none")}
    with caplog.at_level(logging.WARNING):
        async with proxy_client(tmp_path, servers, era, settings=AUTO) as client:
            assert set(await client.items_by_name("tools")) == {"other"}
            assert (await client.call_and_parse("shop__call_tool", {"id": "1"}))["params"]["name"] == "call_tool"
    assert (
        "'call_tool' of the server shop is not listed, because the name 'call_tool' belongs to this server"
        in caplog.text
    )


@pytest.mark.requirement("search.auto")
@by_era
async def test_auto_searches_in_large_lists_for_clients_that_do_not_defer_tools_themselves(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [tool(f"do_{number}", "x" * 900) for number in range(LARGE_CHARS // 1000 + 1)]
    config = write_config(tmp_path, {"tools": {"builtIn": False}, "mcpServers": {"shop": shop_entry(*tools)}})
    app = app_of(config)
    async with app.running(), client_on(in_process(app), era, name="other") as client:
        assert set(await client.items_by_name("tools")) == SEARCH_TOOLS
    for name in ("claude-code", "codex-mcp-client", "qwen-cli-mcp-client-x", "github-copilot-developer", "ECA"):
        app = app_of(config)
        async with app.running(), client_on(in_process(app), era, name=name) as client:
            assert len(await client.items_by_name("tools")) == len(tools), name
    async with proxy_client(tmp_path, {"shop": shop_entry(*tools[:10])}, era) as client:
        assert len(await client.items_by_name("tools")) == 10


@pytest.mark.requirement("search.size")
async def test_527_tools_of_70_servers_cost_no_more_than_1500_tokens(tmp_path: Path) -> None:
    text = "Does this, that and the other for everybody who asks for it. " * 9
    shop_tools = [tool(f"do_{number}", "x" * 400) for number in range(527)]
    shops = {f"shop{part}": shop_entry(*shop_tools[part::4], description=text) for part in range(4)}
    unreachable = {"httpUrl": "http://127.0.0.1:9/mcp", "description": text}
    servers = {**shops, **{f"server{number}": unreachable for number in range(66)}}
    async with proxy_client(
        tmp_path, servers, "modern", settings={"proxy": {"search": "on", "firstListWait": 60_000}}
    ) as client:
        tools = await client.items_by_name("tools")
        assert set(tools) == SEARCH_TOOLS
        for part in range(4):
            assert len(await search(client, f"select:{','.join(f'shop{part}__do_{n + part}' for n in (0, 4, 8))}")) == 3
        description = tools["search_tools"]["description"]
        assert "shop0 (Does this" in description
        assert "server65" in description
        assert tokens(list(tools.values())) <= MAX_TOKENS


@pytest.mark.requirement("search.found")
@by_era
async def test_tools_are_found_by_what_they_do_and_by_their_names_in_any_spelling(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"shop": shop_entry()}, era, settings=ON) as client:
        assert await search(client, "give the customer their money back") == ["shop__refund_payment"]
        assert await search(client, "file a ticket") == ["shop__createIssue"]
        assert await search(client, "thunderstorm forecast") == ["shop__zap"]
        for name in ("shop__createIssue", "createIssue", "create issue", "create-issue", "CREATE_ISSUE"):
            assert (await search(client, name))[0] == "shop__createIssue", name
        assert await search(client, "select:zap, shop__refund_payment,nothing") == ["shop__zap", "shop__refund_payment"]
        assert await search(client, "refund or issue +repository") == ["shop__createIssue"]
        result = await client.call("search_tools", {"query": "refund"})
        (line, hint) = text_or_json(result).splitlines()
        assert line == "shop__refund_payment: Give the money of a payment back. Arguments: id, why?."
        assert "describe_tool" in hint
        assert result["structuredContent"]["tools"] == [
            {
                "name": "shop__refund_payment",
                "title": "Refund",
                "description": "Give the money of a payment back.",
                "server": "shop",
            }
        ]


@pytest.mark.requirement("search.found")
@by_era
async def test_a_tool_is_described_as_it_would_be_listed(era: str, tmp_path: Path) -> None:
    servers = {"shop": shop_entry(trust=False)}
    async with proxy_client(tmp_path, servers, era, settings=OFF) as client:
        listed_tool = (await client.items_by_name("tools"))["shop__refund_payment"]
    async with proxy_client(tmp_path, servers, era, settings=ON) as client:
        for name in ("shop__refund_payment", "refund-payment"):
            result = await client.call("describe_tool", {"name": name})
            assert result["structuredContent"] == text_or_json(result) == listed_tool


@pytest.mark.requirement("search.found")
@by_era
async def test_search_results_show_invisible_characters_of_a_tool(era: str, tmp_path: Path) -> None:
    hiding_tool = tool("refund", "Refund it.\u200b", title="Refund\u200b")
    async with proxy_client(tmp_path, {"shop": shop_entry(hiding_tool)}, era, settings=ON) as client:
        result = await client.call("search_tools", {"query": "refund"})
        (match,) = result["structuredContent"]["tools"]
        assert (match["title"], match["description"]) == ("Refund<U+200B>", "Refund it.<U+200B>")
        assert "\u200b" not in text_or_json(result)


@pytest.mark.requirement("search.floor")
@by_era
async def test_where_nothing_matches_a_sentence_says_so_and_names_the_servers(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"shop": shop_entry(description="Payments.")}, era, settings=ON) as client:
        for query in ("tune a guitar", "DNA sequence alignment", "delete a repository", "+guitar refund"):
            result = await client.call("search_tools", {"query": query})
            assert text_or_json(result).startswith(f"No tool matches '{query}' well."), query
            assert "shop (Payments.)" in text_or_json(result)
            assert result["structuredContent"]["tools"] == []
            if query != "delete a repository":
                assert result["structuredContent"]["nearest"] == []
        partial_result = await client.call("search_tools", {"query": "refund parcel wholesaler"})
        assert partial_result["structuredContent"]["tools"] == []
        assert partial_result["structuredContent"]["nearest"][0]["name"] == "shop__refund_payment"
        assert "\nshop__refund_payment: " in text_or_json(partial_result)


@pytest.mark.requirement("search.floor")
@by_era
async def test_a_query_that_names_a_server_gets_its_state_or_its_tools(era: str, tmp_path: Path) -> None:
    lost = {"httpUrl": "http://127.0.0.1:9/mcp"}
    servers = {"Many": shop_entry(*(tool(f"do_{n}") for n in range(30))), "lost": lost, "dark": shop_entry()}
    settings = {**ON, "permissions": {"deny": ["dark__*", "Many__do_0"]}}
    async with proxy_client(tmp_path, servers, era, settings=settings) as client:
        text = text_or_json(await client.call("search_tools", {"query": "many"}))
        assert "The tools of Many (29): Many__do_1, " in text
        text = text_or_json(await client.call("search_tools", {"query": "lost"}))
        assert "The server lost is unavailable (state failed: " in text
        assert "dark" not in text_or_json(await client.call("search_tools", {"query": "dark"})).partition("\n")[2]


@pytest.mark.requirement("search.hidden")
@by_era
async def test_tools_that_rules_hide_or_only_apps_may_call_cannot_be_found_described_or_called(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"deny": ["shop__createIssue", "dark__*"]}}
    servers = {"shop": shop_entry(), "dark": shop_entry(tool("lamp"))}
    async with proxy_client(tmp_path, servers, era, settings=settings) as client:
        for name in ("shop__createIssue", "shop__page_only", "page_only", "dark__lamp", "shop__none"):
            assert await search(client, name) == []
            assert await search(client, f"select:{name}") == []
            # A direct call says that a rule forbids the tool, too.
            reason = f"'{name}' is not registered"
            if name == "shop__createIssue":
                reason = "shop__createIssue is turned off by the permissions.deny rule shop__createIssue"
                assert reason in await refusal_text(client, name, {"id": "1"})
            assert reason in await refusal_text(client, "describe_tool", {"name": name})
            assert reason in await refusal_text(client, "call_tool", {"name": name})
        assert "dark" not in (await client.items_by_name("tools"))["search_tools"]["description"]
        refusal = await refusal_text(client, "call_tool", {"name": "shop__refund_paiment"})
        assert "Did you mean shop__refund_payment" in refusal
        for name in ("shop__createIsue", "shop__page_onli", "dark__lampe"):
            for refusal in (
                await refusal_text(client, "call_tool", {"name": name}),
                await refusal_text(client, name, {}),
            ):
                assert f"'{name}' is not registered" in refusal
                assert not any(
                    hidden_name in refusal for hidden_name in ("createIssue", "page_only", "dark__lamp,", "dark__lamp?")
                )


@pytest.mark.requirement("search.refused")
@by_era
async def test_invalid_calls_of_the_three_tools_are_refused_in_a_sentence(era: str, tmp_path: Path) -> None:
    settings = {**ON, "tools": {"builtIn": True}}
    async with proxy_client(tmp_path, {"shop": shop_entry()}, era, settings=settings) as client:
        for name in ("read_file", "ReadFile", "run_shell_command", "call_tool", "search_tools"):
            assert "call it directly" in await refusal_text(client, "call_tool", {"name": name, "arguments": {}}), name
        assert (await client.call("call_tool", {}))["isError"]  # not a protocol error, which models may never see
        for arguments in ({}, {"name": 7}, {"name": ""}):
            assert "needs the name of a tool" in await refusal_text(client, "call_tool", arguments)
        for inner_arguments in ("[]", "no JSON", [1], 3, True):
            arguments = {"name": "shop__zap", "arguments": inner_arguments}
            assert "must be an object" in await refusal_text(client, "call_tool", arguments)
        for inner_arguments in ('{"a":"\\ud800"}', '{"a":NaN}', '{"a":1e999}', '{"a":' * 60 + "1" + "}" * 60):
            assert "cannot be sent" in await refusal_text(
                client, "call_tool", {"name": "shop__zap", "arguments": inner_arguments}
            )
        for unknown_parameter in ({"dry_run": True}, {"colour": "red"}):
            message = await refusal_text(client, "call_tool", {"name": "shop__zap", **unknown_parameter})
            assert f"Nothing was called: '{next(iter(unknown_parameter))}' is not a parameter of call_tool." in message
            assert "into 'arguments'" in message
        for query in ("", "  ", 5, None):
            assert "query must be a string" in await refusal_text(client, "search_tools", {"query": query})
        assert "1000000 characters" in await refusal_text(client, "search_tools", {"query": "x" * 1_000_000})
        assert "control characters" in await refusal_text(client, "search_tools", {"query": "a\x00\x1b[2J"})
        for limit in (-1, 21, "5", True, 1.5):
            assert "from 1 to 20" in await refusal_text(client, "search_tools", {"query": "x", "limit": limit})


@pytest.mark.requirement("search.call")
@by_eras
async def test_call_tool_sends_the_same_request_as_a_direct_call(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"shop": shop_entry(era=upstream_era)}, client_era, settings=ON) as client:
        meta = {"example.org/x": 1}
        argument_cases: list[Json] = [{"arguments": {"id": "1", "deep": [1]}}, {"arguments": {}}, {}]
        for argument_fields in argument_cases:
            direct_echo = text_or_json(
                await client.request("tools/call", {"name": "shop__zap", **argument_fields}, meta)
            )
            call_tool_params = {"name": "call_tool", "arguments": {"name": "shop__zap", **argument_fields}}
            call_tool_echo = text_or_json(await client.request("tools/call", call_tool_params, meta))
            for echo in (direct_echo, call_tool_echo):
                del echo["params"]["_meta"]["progressToken"]
            assert call_tool_echo == direct_echo


@pytest.mark.requirement("search.call")
@by_era
async def test_rules_and_questions_are_about_the_called_tool_and_an_answer_counts_only_for_its_own_call(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"ask": ["shop__refund_payment"]}}
    servers = {"shop": shop_entry(tool("zap"), tool("refund_payment"))}
    async with proxy_client(
        tmp_path, servers, era, settings=settings, answer=accept_forms({"decision": "once"})
    ) as client:
        await client.call_and_parse("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}})
        ((_, question_params),) = client.questions
        assert "Call refund_payment on the server shop (id)" in question_params["message"]
        assert "permissions.ask rule shop__refund_payment" in question_params["message"]
        assert "call_tool" not in question_params["message"]
        if client.is_modern:
            first = {"name": "call_tool", "arguments": {"name": "shop__refund_payment", "arguments": {"id": "1"}}}
            second = {"name": "call_tool", "arguments": {"name": "shop__refund_payment", "arguments": {"id": "2"}}}
            question = await client.request("tools/call", first)
            answers = await client.answers_to(question)
            next_result = await client.request("tools/call", {**second, **answers})
            assert next_result["resultType"] == "input_required"


@pytest.mark.requirement("search.call")
@by_era
async def test_a_clients_own_dialog_decides_no_more_through_call_tool_than_for_a_direct_call(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"ask": ["shop__refund_payment"]}}
    servers = {"shop": shop_entry(trust=False)}
    async with proxy_client(tmp_path, servers, era, settings=settings, capabilities={}) as client:
        for name, arguments in (
            ("shop__refund_payment", {"id": "1"}),
            ("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}}),
        ):
            assert "The user could not be asked" in await refusal_text(client, name, arguments)
        # For this tool, the client's own dialog is enough, whether it was about call_tool or about the tool.
        assert (await client.call_and_parse("call_tool", {"name": "shop__zap", "arguments": {"id": "1"}}))["params"]


@pytest.mark.requirement("search.call_text")
@by_era
async def test_call_tool_takes_arguments_as_json_text(era: str, tmp_path: Path) -> None:
    server = shop_entry({"name": "zap", "inputSchema": {"type": "object"}})
    async with proxy_client(tmp_path, {"shop": server}, era, settings=ON) as client:
        for text in ('{"id": 7, "note": "a"}', ' {"id": 7, "note": "a"}\n'):
            results = [
                await client.call("call_tool", {"name": "shop__zap", "arguments": arguments})
                for arguments in (text, {"id": 7, "note": "a"})
            ]
            received_arguments = [json.loads(result["content"][0]["text"])["params"]["arguments"] for result in results]
            assert received_arguments == [{"id": 7, "note": "a"}] * 2
