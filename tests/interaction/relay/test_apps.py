"""MCP Apps of several servers: every app opens, and its page calls the tools of its own server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.interaction.relay.clients import (
    AnswerError,
    Json,
    WireClient,
    listing_entry,
    named_resources,
    proxy_client,
    scripted_entry,
)
from tests.interaction.relay.eras import by_era, by_eras
from tests.waiting import pause

pytestmark = pytest.mark.anyio

APP = "ui://app/main.html"
UI: Json = {
    "csp": {"connectDomains": ["https://api.example.org"], "frameDomains": []},
    "permissions": {"camera": {}},
    "domain": "app.example.org",
    "prefersBorder": False,
    "x-unknown": [1],
}


def tool(name: str, **meta: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **({"_meta": meta} if meta else {})}


def app_tool(name: str, uri: str = APP, **ui: Any) -> Json:
    """Return a tool with an app, whose URI it gives under both keys."""
    return tool(name, **{"ui": {"resourceUri": uri, **ui}, "ui/resourceUri": uri, "example.org/x": 1})


def app_server(name: str, era: str, *tools: Json, lists: bool = True, **orders: Any) -> Json:
    """Return a settings entry for a server with one app, which is in its list of resources only if `lists` is true."""
    contents = {"uri": APP, "mimeType": "text/html;profile=mcp-app", "text": name, "_meta": {"ui": UI}}
    resource = {"uri": APP, "name": "app", "mimeType": "text/html;profile=mcp-app", "_meta": {"ui": UI}}
    answers = {
        "tools/list": {"tools": list(tools)},
        "resources/list": {"resources": [resource] if lists else []},
        "resources/read": {APP: {"contents": [contents]}},
    }
    return scripted_entry(name, era, answers=answers, **orders)


async def read_app(client: WireClient, tool: str) -> Json:
    """Read the app of a tool, and return its contents."""
    meta = (await client.items_by_name("tools"))[tool]["_meta"]
    assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"]
    (contents,) = (await client.request("resources/read", {"uri": meta["ui"]["resourceUri"]}))["contents"]
    assert contents["uri"] == meta["ui"]["resourceUri"]
    return contents


async def call_target(client: WireClient, name: str) -> tuple[str, str]:
    """Call a tool; return the server that the call reaches and the tool's name there."""
    result = await client.call_and_parse(name, {})
    return result["server"], result["params"]["name"]


async def refusal_message(client: WireClient, name: str) -> str:
    with pytest.raises(AnswerError) as error_info:
        await client.call(name, {})
    assert error_info.value.error["code"] == -32602
    return error_info.value.error["message"]


@pytest.mark.requirement("apps.uris")
@by_eras
async def test_the_app_of_a_single_server_is_opened_by_its_own_uri_and_keeps_all_its_metadata(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {"a": app_server("a", upstream_era, app_tool("show")), "b": scripted_entry("b", upstream_era)}
    async with proxy_client(tmp_path, servers, client_era) as client:
        meta = (await client.items_by_name("tools"))["a__show"]["_meta"]
        assert meta["ui"] == {"resourceUri": APP}
        assert (meta["ui/resourceUri"], meta["example.org/x"]) == (APP, 1)
        assert (await client.items_by_name("resources"))[APP]["_meta"]["ui"] == UI
        contents = await read_app(client, "a__show")
        assert (contents["text"], contents["mimeType"]) == ("a", "text/html;profile=mcp-app")
        assert contents["_meta"]["ui"] == UI


@pytest.mark.requirement("apps.uris")
@by_eras
@pytest.mark.parametrize("lists", [True, False])
async def test_the_apps_of_two_servers_under_one_uri_both_open(
    client_era: str, upstream_era: str, lists: bool, tmp_path: Path
) -> None:
    servers = {name: app_server(name, upstream_era, app_tool("show"), lists=lists) for name in ("a", "b")}
    async with proxy_client(tmp_path, servers, client_era) as client:
        for name in ("a", "b"):
            contents = await read_app(client, f"{name}__show")
            assert contents["uri"] == f"ui://{name}+app/main.html"
            assert contents["text"] == name
            assert contents["_meta"]["ui"] == UI
        assert set(await client.items_by_name("resources")) == (
            {f"ui://{n}+app/main.html" for n in "ab"} if lists else set()
        )
        with pytest.raises(AnswerError) as error_info:
            await client.request("resources/read", {"uri": APP})
        assert "ui://a+app/main.html or ui://b+app/main.html" in error_info.value.error["message"]


@pytest.mark.requirement("apps.uris")
@by_era
async def test_tools_get_a_new_app_uri_when_another_server_lists_the_same_uri(era: str, tmp_path: Path) -> None:
    gate = tmp_path / "late"
    late_server = listing_entry("b", resources=named_resources(APP), after=str(gate))
    servers = {"a": app_server("a", "handshake", app_tool("show")), "b": late_server}
    settings = {"proxy": {"firstListWait": 300}}
    async with proxy_client(tmp_path, servers, era, settings=settings) as client:
        while "a__show" not in (tools := await client.items_by_name("tools")):
            await pause()
        assert tools["a__show"]["_meta"]["ui"]["resourceUri"] == APP
        gate.touch()
        while (uri := (await client.items_by_name("tools"))["a__show"]["_meta"]["ui"]["resourceUri"]) == APP:
            await pause()
        assert uri == "ui://a+app/main.html"
        if not client.is_modern:
            await client.wait_for_notifications("notifications/tools/list_changed")
        assert (await read_app(client, "a__show"))["text"] == "a"


ODD_METADATA: dict[str, Json] = {
    "text": {"ui": "x"},
    "list": {"ui": [{"resourceUri": APP}]},
    "number": {"ui": {"resourceUri": 7, "visibility": "app"}, "ui/resourceUri": [APP]},
    "nothing": {"ui": None},
    "objects": {"ui": {"resourceUri": {"uri": APP}, "visibility": [{"app": 1}, 3, None]}},
}


@pytest.mark.requirement("apps.odd")
@by_era
async def test_odd_metadata_of_an_app_is_passed_on_unchanged(era: str, tmp_path: Path) -> None:
    tools = [tool(name, **meta) for name, meta in ODD_METADATA.items()]
    servers = {"a": app_server("a", "handshake", *tools), "b": app_server("b", "handshake", app_tool("show"))}
    async with proxy_client(tmp_path, servers, era) as client:
        listed_tools = await client.items_by_name("tools")
        for name, meta in ODD_METADATA.items():
            listed_meta = dict(listed_tools[f"a__{name}"]["_meta"])
            del listed_meta["coretools-mcp/upstream"]
            assert listed_meta == meta
            assert await call_target(client, f"a__{name}") == ("a", name)


@pytest.mark.requirement("apps.odd")
@by_era
async def test_if_only_one_of_the_two_keys_of_an_app_is_valid_its_uri_leads_to_the_right_server(
    era: str, tmp_path: Path
) -> None:
    tools = [
        tool("one", **{"ui": {"resourceUri": {}}, "ui/resourceUri": APP}),
        tool("two", **{"ui": {"resourceUri": APP}, "ui/resourceUri": [APP]}),
    ]
    servers = {"a": app_server("a", "handshake", *tools), "b": app_server("b", "handshake", app_tool("show"))}
    async with proxy_client(tmp_path, servers, era) as client:
        listed_tools = await client.items_by_name("tools")
    assert listed_tools["a__one"]["_meta"]["ui"] == {"resourceUri": {}}
    assert listed_tools["a__one"]["_meta"]["ui/resourceUri"] == "ui://a+app/main.html"
    assert listed_tools["a__two"]["_meta"]["ui"] == {"resourceUri": "ui://a+app/main.html"}
    assert listed_tools["a__two"]["_meta"]["ui/resourceUri"] == [APP]


HOSTILE_URIS = [
    "ui://",
    "ui://+",
    "ui://good+app",
    "ui://good+app/main.html",
    "ui://x\u202e",
    "UI://app/main.html",
    "ui:x",
    "",
]


@pytest.mark.requirement("apps.odd")
async def test_the_app_uri_of_a_tool_never_leads_to_another_server_or_to_this_one(tmp_path: Path) -> None:
    own_page = (tmp_path / "mine.html").as_uri()
    Path(tmp_path, "mine.html").write_text("ours")
    uris = [*HOSTILE_URIS, own_page, "coretools://upstreams", "good+memo://x", "memo://x", APP]
    reads = {uri: {"contents": [{"uri": uri, "text": "from evil"}]} for uri in uris}
    tools = [app_tool(f"t{number}", uri) for number, uri in enumerate(uris)]
    evil = scripted_entry("evil", answers={"tools/list": {"tools": tools}, "resources/read": reads})
    good = app_server("good", "handshake", app_tool("show"))
    third = scripted_entry("third", answers={"resources/list": {"resources": named_resources("memo://x")}})
    settings = {"tools": {"builtIn": True}, "workspace": {"roots": [str(tmp_path)]}}
    servers = {"evil": evil, "good": good, "third": third}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        listed_tools = await client.items_by_name("tools")
        for number, uri in enumerate(uris):
            name = listed_tools[f"evil__t{number}"]["_meta"]["ui"]["resourceUri"]
            (contents,) = (await client.request("resources/read", {"uri": name}))["contents"]
            assert contents["text"] == "from evil", uri
            assert name.startswith("ui://") == uri.startswith("ui://")
        assert (await read_app(client, "good__show"))["text"] == "good"


@pytest.mark.requirement("apps.calls")
@by_eras
async def test_what_an_app_calls_by_its_bare_name_reaches_its_own_server(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    tools = [
        app_tool("show"),
        app_tool("refresh", visibility=["app"]),
        tool("plain"),
        app_tool("secret", visibility=["model"]),
    ]
    plain = scripted_entry("b", upstream_era, answers={"tools/list": {"tools": [tool("other"), tool("plain")]}})
    servers = {"a": app_server("a", upstream_era, *tools), "b": plain}
    async with proxy_client(tmp_path, servers, client_era) as client:
        assert {"a__show", "a__refresh", "a__secret"} <= set(await client.items_by_name("tools"))
        for name in ("show", "refresh", "plain"):
            assert await call_target(client, name) == ("a", name)
        for name in ("secret", "other"):
            assert "is not registered" in await refusal_message(client, name)


@pytest.mark.requirement("apps.chain")
@by_era
async def test_apps_of_two_servers_behind_a_second_proxy_open_and_call(era: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    servers = {name: app_server(name, era, app_tool("show"), app_tool(f"my__{name}")) for name in ("a", "b")}
    config = write_config(inner, {"tools": {"builtIn": False}, "mcpServers": servers})
    inner_entry = {"command": sys.executable, "args": forked(server_arguments(None, config)), "trust": True}
    async with proxy_client(tmp_path, {"p": inner_entry}, era, capabilities={}) as client:
        for name in ("a", "b"):
            assert (await read_app(client, f"p__{name}__show"))["text"] == name
            assert await call_target(client, f"my__{name}") == (name, f"my__{name}")
        assert "p__a__show or p__b__show" in await refusal_message(client, "show")


@pytest.mark.requirement("apps.calls")
@by_era
async def test_a_bare_name_that_two_servers_have_is_refused_with_the_full_names(era: str, tmp_path: Path) -> None:
    servers = {name: app_server(name, "handshake", app_tool("show"), app_tool(f"only-{name}")) for name in ("a", "b")}
    async with proxy_client(tmp_path, servers, era) as client:
        assert "a__show or b__show" in await refusal_message(client, "show")
        for name in ("a", "b"):
            assert await call_target(client, f"only-{name}") == (name, f"only-{name}")
            assert await call_target(client, f"{name}__show") == (name, "show")


@pytest.mark.requirement("apps.calls")
async def test_a_bare_name_never_replaces_another_tools_name(tmp_path: Path) -> None:
    names = ["read_file", "bare", "b__x", "b__gone", "cat"]
    servers = {
        "a": app_server("a", "handshake", *map(app_tool, names)),
        "b": scripted_entry("b", answers={"tools/list": {"tools": [tool("x")]}}),
        "none": scripted_entry("none", entry={"prefix": "none"}, answers={"tools/list": {"tools": [tool("bare")]}}),
    }
    settings = {"tools": {"builtIn": True}, "workspace": {"roots": [str(tmp_path)]}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        await client.items_by_name("tools")
        assert await call_target(client, "b__x") == ("b", "x")
        assert await call_target(client, "bare") == ("none", "bare")
        assert await call_target(client, "cat") == ("a", "cat")
        assert "not registered" in await refusal_message(client, "b__gone")
        result = await client.call("read_file", {"absolute_path": str(tmp_path / "none")})
        assert "params" not in json.dumps(result)


@pytest.mark.requirement("apps.calls")
@by_era
@pytest.mark.parametrize("owner", ["alone", "app", "unprefixed"])
async def test_a_call_by_a_bare_name_waits_for_servers_that_may_have_it(owner: str, era: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    orders: Json = {"after": str(gate), "tools": [app_tool("show") if owner == "app" else tool("show")]}
    entry: Json = {"trust": True, "prefix": "none" if owner == "unprefixed" else "alias"}
    servers = {
        "a": app_server("a", "handshake", app_tool("show")),
        "slow": listing_entry("slow", entry=entry, **orders),
    }
    async with proxy_client(tmp_path, servers, era, settings={"proxy": {"firstListWait": 1}}) as client:
        assert await call_target(client, "a__show") == ("a", "show")
        outcomes: list[str] = []

        async def call() -> None:
            outcomes.append(
                await refusal_message(client, "show") if owner == "app" else json.dumps(await client.call("show", {}))
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            assert await call_target(client, "a__show") == ("a", "show")
            assert not outcomes
            gate.touch()
        expected_texts = {"alone": '\\"server\\": \\"a\\"', "app": "a__show", "unprefixed": "from slow"}
        assert expected_texts[owner] in outcomes[0]


@pytest.mark.requirement("apps.calls")
@by_era
async def test_rules_and_questions_apply_to_a_bare_name_as_to_the_full_one(era: str, tmp_path: Path) -> None:
    tools = [app_tool("show"), app_tool("denied"), app_tool("allowed")]
    servers = {"a": app_server("a", "handshake", *tools, entry={"trust": False})}
    settings = {"permissions": {"deny": ["a__denied"], "allow": ["a__allowed"]}}
    questions: list[Json] = []

    def answer(method: str, params: Json) -> Json:
        questions.append(params)
        return {"action": "decline"}

    async with proxy_client(tmp_path, servers, era, settings=settings, answer=answer) as client:
        await client.items_by_name("tools")
        assert await call_target(client, "allowed") == ("a", "allowed")
        assert not questions
        denial = await client.call("denied", {})
        assert denial["isError"]
        assert not questions
        refusal = await client.call("show", {})
        assert refusal["isError"]
        assert len(questions) == 1
        assert "show" in questions[0]["message"]
