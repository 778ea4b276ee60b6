"""MCP Apps of several servers: each opens, and what its page calls is what its own server has."""

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


def shown(name: str, uri: str = APP, **ui: Any) -> Json:
    """A tool that is shown by an app, which it names under both keys."""
    return tool(name, **{"ui": {"resourceUri": uri, **ui}, "ui/resourceUri": uri, "example.org/x": 1})


def app_server(name: str, era: str, *tools: Json, lists: bool = True, **more: Any) -> Json:
    """A server with one app, which it lists or not."""
    contents = {"uri": APP, "mimeType": "text/html;profile=mcp-app", "text": name, "_meta": {"ui": UI}}
    resource = {"uri": APP, "name": "app", "mimeType": "text/html;profile=mcp-app", "_meta": {"ui": UI}}
    answers = {
        "tools/list": {"tools": list(tools)},
        "resources/list": {"resources": [resource] if lists else []},
        "resources/read": {APP: {"contents": [contents]}},
    }
    return scripted_entry(name, era, answers=answers, **more)


async def opened(client: WireClient, tool: str) -> Json:
    """What is read of the app of a tool."""
    meta = (await client.items_by_name("tools"))[tool]["_meta"]
    assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"]
    (contents,) = (await client.request("resources/read", {"uri": meta["ui"]["resourceUri"]}))["contents"]
    assert contents["uri"] == meta["ui"]["resourceUri"]
    return contents


async def called(client: WireClient, name: str) -> tuple[str, str]:
    """Whose tool a call reaches, and what it is called there."""
    told = await client.call_and_parse(name, {})
    return told["server"], told["params"]["name"]


async def refusal(client: WireClient, name: str) -> str:
    with pytest.raises(AnswerError) as refused:
        await client.call(name, {})
    assert refused.value.error["code"] == -32602
    return refused.value.error["message"]


@pytest.mark.requirement("apps.uris")
@by_eras
async def test_the_app_of_one_server_is_opened_by_its_own_uri_and_keeps_all_that_is_said_of_it(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {"a": app_server("a", upstream_era, shown("show")), "b": scripted_entry("b", upstream_era)}
    async with proxy_client(tmp_path, servers, client_era) as client:
        listed = (await client.items_by_name("tools"))["a__show"]["_meta"]
        assert listed["ui"] == {"resourceUri": APP}
        assert (listed["ui/resourceUri"], listed["example.org/x"]) == (APP, 1)
        assert (await client.items_by_name("resources"))[APP]["_meta"]["ui"] == UI
        contents = await opened(client, "a__show")
        assert (contents["text"], contents["mimeType"]) == ("a", "text/html;profile=mcp-app")
        assert contents["_meta"]["ui"] == UI


@pytest.mark.requirement("apps.uris")
@by_eras
@pytest.mark.parametrize("lists", [True, False])
async def test_the_apps_of_two_servers_under_one_uri_both_open(
    client_era: str, upstream_era: str, lists: bool, tmp_path: Path
) -> None:
    servers = {name: app_server(name, upstream_era, shown("show"), lists=lists) for name in ("a", "b")}
    async with proxy_client(tmp_path, servers, client_era) as client:
        for name in ("a", "b"):
            contents = await opened(client, f"{name}__show")
            assert contents["uri"] == f"ui://{name}+app/main.html"
            assert contents["text"] == name
            assert contents["_meta"]["ui"] == UI
        assert set(await client.items_by_name("resources")) == (
            {f"ui://{n}+app/main.html" for n in "ab"} if lists else set()
        )
        with pytest.raises(AnswerError) as refused:
            await client.request("resources/read", {"uri": APP})
        assert "ui://a+app/main.html or ui://b+app/main.html" in refused.value.error["message"]


@pytest.mark.requirement("apps.uris")
@by_era
async def test_tools_are_listed_anew_when_another_server_gets_the_uri_of_their_app(era: str, tmp_path: Path) -> None:
    late = tmp_path / "late"
    other = listing_entry("b", resources=named_resources(APP), after=str(late))
    servers = {"a": app_server("a", "handshake", shown("show")), "b": other}
    settings = {"proxy": {"firstListWait": 300}}
    async with proxy_client(tmp_path, servers, era, settings=settings) as client:
        while "a__show" not in (listed := await client.items_by_name("tools")):
            await pause()
        assert listed["a__show"]["_meta"]["ui"]["resourceUri"] == APP
        late.touch()
        while (uri := (await client.items_by_name("tools"))["a__show"]["_meta"]["ui"]["resourceUri"]) == APP:
            await pause()
        assert uri == "ui://a+app/main.html"
        if not client.is_modern:
            await client.wait_for_notifications("notifications/tools/list_changed")
        assert (await opened(client, "a__show"))["text"] == "a"


ODD: dict[str, Json] = {
    "text": {"ui": "x"},
    "list": {"ui": [{"resourceUri": APP}]},
    "number": {"ui": {"resourceUri": 7, "visibility": "app"}, "ui/resourceUri": [APP]},
    "nothing": {"ui": None},
    "objects": {"ui": {"resourceUri": {"uri": APP}, "visibility": [{"app": 1}, 3, None]}},
}


@pytest.mark.requirement("apps.odd")
@by_era
async def test_what_is_odd_about_an_app_passes_as_it_is(era: str, tmp_path: Path) -> None:
    tools = [tool(name, **meta) for name, meta in ODD.items()]
    servers = {"a": app_server("a", "handshake", *tools), "b": app_server("b", "handshake", shown("show"))}
    async with proxy_client(tmp_path, servers, era) as client:
        listed = await client.items_by_name("tools")
        for name, meta in ODD.items():
            told = dict(listed[f"a__{name}"]["_meta"])
            del told["coretools-mcp/upstream"]
            assert told == meta
            assert await called(client, f"a__{name}") == ("a", name)


@pytest.mark.requirement("apps.odd")
@by_era
async def test_of_a_link_that_is_half_odd_the_good_half_leads_to_its_server(era: str, tmp_path: Path) -> None:
    tools = [
        tool("one", **{"ui": {"resourceUri": {}}, "ui/resourceUri": APP}),
        tool("two", **{"ui": {"resourceUri": APP}, "ui/resourceUri": [APP]}),
    ]
    servers = {"a": app_server("a", "handshake", *tools), "b": app_server("b", "handshake", shown("show"))}
    async with proxy_client(tmp_path, servers, era) as client:
        listed = await client.items_by_name("tools")
    assert listed["a__one"]["_meta"]["ui"] == {"resourceUri": {}}
    assert listed["a__one"]["_meta"]["ui/resourceUri"] == "ui://a+app/main.html"
    assert listed["a__two"]["_meta"]["ui"] == {"resourceUri": "ui://a+app/main.html"}
    assert listed["a__two"]["_meta"]["ui/resourceUri"] == [APP]


HOSTILE = [
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
async def test_no_server_is_shown_by_what_another_one_or_we_have(tmp_path: Path) -> None:
    mine = (tmp_path / "mine.html").as_uri()
    Path(tmp_path, "mine.html").write_text("ours")
    uris = [*HOSTILE, mine, "coretools://upstreams", "good+memo://x", "memo://x", APP]
    reads = {uri: {"contents": [{"uri": uri, "text": "from evil"}]} for uri in uris}
    tools = [shown(f"t{number}", uri) for number, uri in enumerate(uris)]
    evil = scripted_entry("evil", answers={"tools/list": {"tools": tools}, "resources/read": reads})
    good = app_server("good", "handshake", shown("show"))
    good_too = scripted_entry("third", answers={"resources/list": {"resources": named_resources("memo://x")}})
    settings = {"tools": {"builtIn": True}, "workspace": {"roots": [str(tmp_path)]}}
    servers = {"evil": evil, "good": good, "third": good_too}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        listed = await client.items_by_name("tools")
        for number, uri in enumerate(uris):
            name = listed[f"evil__t{number}"]["_meta"]["ui"]["resourceUri"]
            (contents,) = (await client.request("resources/read", {"uri": name}))["contents"]
            assert contents["text"] == "from evil", uri
            assert name.startswith("ui://") == uri.startswith("ui://")
        assert (await opened(client, "good__show"))["text"] == "good"


@pytest.mark.requirement("apps.calls")
@by_eras
async def test_what_an_app_calls_by_its_bare_name_reaches_its_own_server(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    tools = [shown("show"), shown("refresh", visibility=["app"]), tool("plain"), shown("secret", visibility=["model"])]
    plain = scripted_entry("b", upstream_era, answers={"tools/list": {"tools": [tool("other"), tool("plain")]}})
    servers = {"a": app_server("a", upstream_era, *tools), "b": plain}
    async with proxy_client(tmp_path, servers, client_era) as client:
        assert {"a__show", "a__refresh", "a__secret"} <= set(await client.items_by_name("tools"))
        for name in ("show", "refresh", "plain"):
            assert await called(client, name) == ("a", name)
        for name in ("secret", "other"):
            assert "is not registered" in await refusal(client, name)


@pytest.mark.requirement("apps.chain")
@by_era
async def test_apps_of_two_servers_behind_another_one_like_this_open_and_call(era: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    servers = {name: app_server(name, era, shown("show"), shown(f"my__{name}")) for name in ("a", "b")}
    config = write_config(inner, {"tools": {"builtIn": False}, "mcpServers": servers})
    between = {"command": sys.executable, "args": forked(server_arguments(None, config)), "trust": True}
    async with proxy_client(tmp_path, {"p": between}, era, capabilities={}) as client:
        for name in ("a", "b"):
            assert (await opened(client, f"p__{name}__show"))["text"] == name
            assert await called(client, f"my__{name}") == (name, f"my__{name}")
        assert "p__a__show or p__b__show" in await refusal(client, "show")


@pytest.mark.requirement("apps.calls")
@by_era
async def test_a_bare_name_that_two_servers_have_is_refused_with_the_full_names(era: str, tmp_path: Path) -> None:
    servers = {name: app_server(name, "handshake", shown("show"), shown(f"only-{name}")) for name in ("a", "b")}
    async with proxy_client(tmp_path, servers, era) as client:
        assert "a__show or b__show" in await refusal(client, "show")
        for name in ("a", "b"):
            assert await called(client, f"only-{name}") == (name, f"only-{name}")
            assert await called(client, f"{name}__show") == (name, "show")


@pytest.mark.requirement("apps.calls")
async def test_a_bare_name_takes_nobodys_name(tmp_path: Path) -> None:
    names = ["read_file", "bare", "b__x", "b__gone", "cat"]
    servers = {
        "a": app_server("a", "handshake", *map(shown, names)),
        "b": scripted_entry("b", answers={"tools/list": {"tools": [tool("x")]}}),
        "none": scripted_entry("none", entry={"prefix": "none"}, answers={"tools/list": {"tools": [tool("bare")]}}),
    }
    settings = {"tools": {"builtIn": True}, "workspace": {"roots": [str(tmp_path)]}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        await client.items_by_name("tools")
        assert await called(client, "b__x") == ("b", "x")
        assert await called(client, "bare") == ("none", "bare")
        assert await called(client, "cat") == ("a", "cat")
        assert "not registered" in await refusal(client, "b__gone")
        read = await client.call("read_file", {"absolute_path": str(tmp_path / "none")})
        assert "params" not in json.dumps(read)


@pytest.mark.requirement("apps.calls")
@by_era
@pytest.mark.parametrize("owner", ["alone", "app", "unprefixed"])
async def test_a_bare_name_waits_for_servers_whose_it_may_be(owner: str, era: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow: Json = {"after": str(gate), "tools": [shown("show") if owner == "app" else tool("show")]}
    entry: Json = {"trust": True, "prefix": "none" if owner == "unprefixed" else "alias"}
    servers = {"a": app_server("a", "handshake", shown("show")), "slow": listing_entry("slow", entry=entry, **slow)}
    async with proxy_client(tmp_path, servers, era, settings={"proxy": {"firstListWait": 1}}) as client:
        assert await called(client, "a__show") == ("a", "show")
        told: list[str] = []

        async def call() -> None:
            told.append(await refusal(client, "show") if owner == "app" else json.dumps(await client.call("show", {})))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            assert await called(client, "a__show") == ("a", "show")
            assert not told
            gate.touch()
        expected = {"alone": '\\"server\\": \\"a\\"', "app": "a__show", "unprefixed": "from slow"}
        assert expected[owner] in told[0]


@pytest.mark.requirement("apps.calls")
@by_era
async def test_rules_and_questions_hold_for_a_bare_name_as_for_the_full_one(era: str, tmp_path: Path) -> None:
    tools = [shown("show"), shown("denied"), shown("allowed")]
    servers = {"a": app_server("a", "handshake", *tools, entry={"trust": False})}
    settings = {"permissions": {"deny": ["a__denied"], "allow": ["a__allowed"]}}
    answers: list[Json] = []

    def answer(method: str, params: Json) -> Json:
        answers.append(params)
        return {"action": "decline"}

    async with proxy_client(tmp_path, servers, era, settings=settings, answer=answer) as client:
        await client.items_by_name("tools")
        assert await called(client, "allowed") == ("a", "allowed")
        assert not answers
        denied = await client.call("denied", {})
        assert denied["isError"]
        assert not answers
        declined = await client.call("show", {})
        assert declined["isError"]
        assert len(answers) == 1
        assert "show" in answers[0]["message"]
