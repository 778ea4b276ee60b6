"""Search instead of lists: three tools stand for those of servers, and what holds for a tool holds through them."""

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
OURS = {"search_tools", "describe_tool", "call_tool"}
ON: Json = {"proxy": {"search": "on"}}
OFF: Json = {"proxy": {"search": "off"}}
AUTO: Json = {"proxy": {"search": "auto"}}
NUMBER = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "Which one"}, "why": {}},
    "required": ["id"],
}


def tool(name: str, description: str = "", **more: Any) -> Json:
    return {"name": name, "description": description, "inputSchema": NUMBER, **more}


REFUND = tool("refund_payment", "Give the money of a payment back.\nAll or a part of it.", title="Refund")
ISSUE = tool("createIssue", "Open a new issue in a repository.")
PAGE = tool("page_only", "Called by the page.", _meta={"ui": {"visibility": ["app"]}})
HINTED = tool("zap", "Does it.", _meta={"anthropic/searchHint": "thunderstorm forecast"})


def shop(*tools: Json, era: str = "handshake", **entry: Any) -> Json:
    """A server with tools of a shop, or with these."""
    listed = list(tools or (REFUND, ISSUE, PAGE, HINTED))
    return scripted_entry("shop", era, entry=entry, answers={"tools/list": {"tools": listed}})


async def found(client: WireClient, query: str, **more: Any) -> list[str]:
    result = await client.call("search_tools", {"query": query, **more})
    assert not result.get("isError"), result
    return [each["name"] for each in result["structuredContent"]["tools"]]


async def told_no(client: WireClient, tool: str, arguments: Json) -> str:
    """The sentence with which a call is refused, be that by an error of the protocol or as a failed result."""
    try:
        result = await client.call(tool, arguments)
    except AnswerError as refused:
        return f"{refused.error['code']}: {refused.error['message']}"
    assert result["isError"], result
    return result["content"][0]["text"]


@pytest.mark.requirement("search.list")
@by_eras
async def test_the_list_has_three_tools_in_place_of_those_of_servers_and_stays_the_same_whatever_is_found(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {
        "shop": shop(era=upstream_era, description="Payments and refunds."),
        "desk": shop(tool("ring"), tool("hang_up"), era=upstream_era, alwaysLoad=["ring"]),
        "post": shop(tool("stamp"), era=upstream_era, alwaysLoad=True),
        "bank": shop(tool("lend", _meta={"anthropic/alwaysLoad": True}), tool("owe"), era=upstream_era),
        "loud": shop(tool("shout", _meta={"anthropic/alwaysLoad": True}), era=upstream_era, trust=False),
    }
    async with proxy_client(tmp_path, servers, client_era, settings={**ON, "tools": {"builtIn": True}}) as client:
        before = await client.items_by_name("tools")
        upstreams = {name for name in before if "__" in name}
        assert upstreams == {"shop__page_only", "desk__ring", "post__stamp", "bank__lend"}
        assert OURS | {"read_file"} < before.keys()
        assert "shop (Payments and refunds.)" in before["search_tools"]["description"]
        for name in OURS:
            assert before[name]["title"]
            assert before[name]["annotations"]["readOnlyHint"] is (name != "call_tool")
        assert before["call_tool"]["annotations"] == {
            "readOnlyHint": False,
            "destructiveHint": True,
            "openWorldHint": True,
        }
        assert await found(client, "refund") == ["shop__refund_payment"]
        assert (await client.call_and_parse("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}}))[
            "server"
        ]
        assert await client.items_by_name("tools") == before


@pytest.mark.requirement("search.list")
@by_era
async def test_without_search_the_three_names_are_unknown_and_may_be_those_of_a_server(
    era: str, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"shop": shop()}, era, settings=OFF) as client:
        assert OURS.isdisjoint(await client.items_by_name("tools"))
        for name in OURS:
            assert "is not registered" in await told_no(client, name, {"query": "x"})
    servers = {"shop": shop(tool("call_tool"), prefix="none")}
    async with proxy_client(tmp_path, servers, era, settings=OFF) as client:
        assert (await client.call_and_parse("call_tool", {"id": "1"}))["params"]["name"] == "call_tool"


@pytest.mark.requirement("search.names")
@by_era
async def test_the_three_names_are_ours_where_tools_may_be_searched_for(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"shop": shop(tool("call_tool"), tool("other"), prefix="none")}
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
async def test_auto_searches_in_large_lists_for_clients_that_keep_no_tools_back_themselves(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [tool(f"do_{number}", "x" * 900) for number in range(LARGE_CHARS // 1000 + 1)]
    config = write_config(tmp_path, {"tools": {"builtIn": False}, "mcpServers": {"shop": shop(*many)}})
    app = app_of(config)
    async with app.running(), client_on(in_process(app), era, name="other") as client:
        assert set(await client.items_by_name("tools")) == OURS
    for name in ("claude-code", "codex-mcp-client", "qwen-cli-mcp-client-x", "github-copilot-developer", "ECA"):
        app = app_of(config)
        async with app.running(), client_on(in_process(app), era, name=name) as client:
            assert len(await client.items_by_name("tools")) == len(many), name
    async with proxy_client(tmp_path, {"shop": shop(*many[:10])}, era) as client:
        assert len(await client.items_by_name("tools")) == 10


@pytest.mark.requirement("search.size")
async def test_527_tools_of_70_servers_cost_no_more_than_1500_tokens(tmp_path: Path) -> None:
    about = "Does this, that and the other for everybody who asks for it. " * 9
    many = [tool(f"do_{number}", "x" * 400) for number in range(527)]
    shops = {f"shop{part}": shop(*many[part::4], description=about) for part in range(4)}
    nowhere = {"httpUrl": "http://127.0.0.1:9/mcp", "description": about}
    servers = {**shops, **{f"server{number}": nowhere for number in range(66)}}
    async with proxy_client(
        tmp_path, servers, "modern", settings={"proxy": {"search": "on", "firstListWait": 60_000}}
    ) as client:
        tools = await client.items_by_name("tools")
        assert set(tools) == OURS
        for part in range(4):
            assert len(await found(client, f"select:{','.join(f'shop{part}__do_{n + part}' for n in (0, 4, 8))}")) == 3
        described = tools["search_tools"]["description"]
        assert "shop0 (Does this" in described
        assert "server65" in described
        assert tokens(list(tools.values())) <= MAX_TOKENS


@pytest.mark.requirement("search.found")
@by_era
async def test_tools_are_found_by_what_they_do_and_by_their_names_in_any_spelling(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"shop": shop()}, era, settings=ON) as client:
        assert await found(client, "give the customer their money back") == ["shop__refund_payment"]
        assert await found(client, "file a ticket") == ["shop__createIssue"]
        assert await found(client, "thunderstorm forecast") == ["shop__zap"]
        for name in ("shop__createIssue", "createIssue", "create issue", "create-issue", "CREATE_ISSUE"):
            assert (await found(client, name))[0] == "shop__createIssue", name
        assert await found(client, "select:zap, shop__refund_payment,nothing") == ["shop__zap", "shop__refund_payment"]
        assert await found(client, "refund or issue +repository") == ["shop__createIssue"]
        result = await client.call("search_tools", {"query": "refund"})
        (line, more) = text_or_json(result).splitlines()
        assert line == "shop__refund_payment: Give the money of a payment back. Arguments: id, why?."
        assert "describe_tool" in more
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
    servers = {"shop": shop(trust=False)}
    async with proxy_client(tmp_path, servers, era, settings=OFF) as client:
        listed = (await client.items_by_name("tools"))["shop__refund_payment"]
    async with proxy_client(tmp_path, servers, era, settings=ON) as client:
        for name in ("shop__refund_payment", "refund-payment"):
            result = await client.call("describe_tool", {"name": name})
            assert result["structuredContent"] == text_or_json(result) == listed


@pytest.mark.requirement("search.found")
@by_era
async def test_nothing_hides_in_what_is_told_of_a_tool_that_is_found(era: str, tmp_path: Path) -> None:
    hiding = tool("refund", "Refund it.\u200b", title="Refund\u200b")
    async with proxy_client(tmp_path, {"shop": shop(hiding)}, era, settings=ON) as client:
        result = await client.call("search_tools", {"query": "refund"})
        (about,) = result["structuredContent"]["tools"]
        assert (about["title"], about["description"]) == ("Refund<U+200B>", "Refund it.<U+200B>")
        assert "\u200b" not in text_or_json(result)


@pytest.mark.requirement("search.floor")
@by_era
async def test_where_nothing_fits_a_sentence_says_so_and_names_the_servers(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"shop": shop(description="Payments.")}, era, settings=ON) as client:
        for query in ("tune a guitar", "DNA sequence alignment", "delete a repository", "+guitar refund"):
            result = await client.call("search_tools", {"query": query})
            assert text_or_json(result).startswith(f"No tool matches '{query}' well."), query
            assert "shop (Payments.)" in text_or_json(result)
            assert result["structuredContent"]["tools"] == []
            if query != "delete a repository":
                assert result["structuredContent"]["nearest"] == []
        near = await client.call("search_tools", {"query": "refund parcel wholesaler"})
        assert near["structuredContent"]["tools"] == []
        assert near["structuredContent"]["nearest"][0]["name"] == "shop__refund_payment"
        assert "\nshop__refund_payment: " in text_or_json(near)


@pytest.mark.requirement("search.hidden")
@by_era
async def test_what_rules_hide_and_what_only_apps_call_is_neither_found_nor_described_nor_called(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"deny": ["shop__createIssue", "dark__*"]}}
    servers = {"shop": shop(), "dark": shop(tool("lamp"))}
    async with proxy_client(tmp_path, servers, era, settings=settings) as client:
        for name in ("shop__createIssue", "shop__page_only", "page_only", "dark__lamp", "shop__none"):
            assert await found(client, name) == []
            assert await found(client, f"select:{name}") == []
            assert f"'{name}' is not registered" in await told_no(client, "describe_tool", {"name": name})
            assert f"'{name}' is not registered" in await told_no(client, "call_tool", {"name": name})
        assert "dark" not in (await client.items_by_name("tools"))["search_tools"]["description"]
        refusal = await told_no(client, "call_tool", {"name": "shop__refund_paiment"})
        assert "Did you mean shop__refund_payment" in refusal
        for name in ("shop__createIsue", "shop__page_onli", "dark__lampe"):
            for refusal in (await told_no(client, "call_tool", {"name": name}), await told_no(client, name, {})):
                assert f"'{name}' is not registered" in refusal
                assert not any(
                    hidden in refusal for hidden in ("createIssue", "page_only", "dark__lamp,", "dark__lamp?")
                )


@pytest.mark.requirement("search.refused")
@by_era
async def test_what_is_no_call_of_a_tool_of_a_server_is_refused_in_a_sentence(era: str, tmp_path: Path) -> None:
    settings = {**ON, "tools": {"builtIn": True}}
    async with proxy_client(tmp_path, {"shop": shop()}, era, settings=settings) as client:
        for name in ("read_file", "ReadFile", "run_shell_command", "call_tool", "search_tools"):
            assert "call it directly" in await told_no(client, "call_tool", {"name": name, "arguments": {}}), name
        for arguments in ({}, {"name": 7}, {"name": ""}):
            assert "needs the name of a tool" in await told_no(client, "call_tool", arguments)
        for inner in ("[]", "no JSON", [1], 3, True):
            arguments = {"name": "shop__zap", "arguments": inner}
            assert "must be an object" in await told_no(client, "call_tool", arguments)
        for inner in ('{"a":"\\ud800"}', '{"a":NaN}', '{"a":1e999}', '{"a":' * 60 + "1" + "}" * 60):
            assert "cannot be sent" in await told_no(client, "call_tool", {"name": "shop__zap", "arguments": inner})
        for unknown in ({"dry_run": True}, {"colour": "red"}):
            said = await told_no(client, "call_tool", {"name": "shop__zap", **unknown})
            assert f"Nothing was called: '{next(iter(unknown))}' is not a parameter of call_tool." in said
            assert "into 'arguments'" in said
        for query in ("", "  ", 5, None):
            assert "query must be a string" in await told_no(client, "search_tools", {"query": query})
        assert "1000000 characters" in await told_no(client, "search_tools", {"query": "x" * 1_000_000})
        assert "control characters" in await told_no(client, "search_tools", {"query": "a\x00\x1b[2J"})
        for limit in (-1, 21, "5", True, 1.5):
            assert "from 1 to 20" in await told_no(client, "search_tools", {"query": "x", "limit": limit})


@pytest.mark.requirement("search.call")
@by_eras
async def test_call_tool_sends_what_a_call_of_the_tool_itself_would_send(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"shop": shop(era=upstream_era)}, client_era, settings=ON) as client:
        meta = {"example.org/x": 1}
        givens: list[Json] = [{"arguments": {"id": "1", "deep": [1]}}, {"arguments": {}}, {}]
        for given in givens:
            direct = text_or_json(await client.request("tools/call", {"name": "shop__zap", **given}, meta))
            wrapped = {"name": "call_tool", "arguments": {"name": "shop__zap", **given}}
            through = text_or_json(await client.request("tools/call", wrapped, meta))
            for told in (direct, through):
                del told["params"]["_meta"]["progressToken"]
            assert through == direct


@pytest.mark.requirement("search.call")
@by_era
async def test_a_rule_and_a_question_are_about_the_tool_and_an_answer_for_one_counts_for_no_other(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"ask": ["shop__refund_payment"]}}
    servers = {"shop": shop(tool("zap"), tool("refund_payment"))}
    async with proxy_client(
        tmp_path, servers, era, settings=settings, answer=accept_forms({"decision": "once"})
    ) as client:
        await client.call_and_parse("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}})
        ((_, asked),) = client.questions
        assert "Call refund_payment on the server shop (id)" in asked["message"]
        assert "permissions.ask rule shop__refund_payment" in asked["message"]
        assert "call_tool" not in asked["message"]
        if client.is_modern:
            first = {"name": "call_tool", "arguments": {"name": "shop__refund_payment", "arguments": {"id": "1"}}}
            other = {"name": "call_tool", "arguments": {"name": "shop__refund_payment", "arguments": {"id": "2"}}}
            question = await client.request("tools/call", first)
            answers = await client.answers_to(question)
            again = await client.request("tools/call", {**other, **answers})
            assert again["resultType"] == "input_required"


@pytest.mark.requirement("search.call")
@by_era
async def test_what_a_clients_own_dialog_does_not_decide_for_a_tool_it_does_not_decide_through_call_tool(
    era: str, tmp_path: Path
) -> None:
    settings = {**ON, "permissions": {"ask": ["shop__refund_payment"]}}
    servers = {"shop": shop(trust=False)}
    async with proxy_client(tmp_path, servers, era, settings=settings, capabilities={}) as client:
        for name, arguments in (
            ("shop__refund_payment", {"id": "1"}),
            ("call_tool", {"name": "shop__refund_payment", "arguments": {"id": "1"}}),
        ):
            assert "The user could not be asked" in await told_no(client, name, arguments)
        # This one it decides: it has asked its person about call_tool, as it would have about the tool.
        assert (await client.call_and_parse("call_tool", {"name": "shop__zap"}))["params"]["name"] == "zap"


@pytest.mark.requirement("search.call_text")
@by_era
async def test_call_tool_takes_arguments_as_json_text(era: str, tmp_path: Path) -> None:
    server = shop({"name": "zap", "inputSchema": {"type": "object"}})
    async with proxy_client(tmp_path, {"shop": server}, era, settings=ON) as client:
        for text in ('{"id": 7, "note": "a"}', ' {"id": 7, "note": "a"}\n'):
            sent = [
                await client.call("call_tool", {"name": "shop__zap", "arguments": arguments})
                for arguments in (text, {"id": 7, "note": "a"})
            ]
            read = [json.loads(each["content"][0]["text"])["params"]["arguments"] for each in sent]
            assert read == [{"id": 7, "note": "a"}] * 2
