"""A client that can show URLs: its user logs in while a call waits."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import mcp_types as types
import pytest

from server.upstreams.relay.login_questions import MAX_ATTEMPTS
from tests.harness import MODERN, stdio_upstream, text_of
from tests.interaction.login.scene import ALIAS, ECHO, ERAS, HANDSHAKE, LOGIN, Person, Scene, visit
from tests.waiting import until

pytestmark = pytest.mark.anyio

PICTURE = f"{ALIAS}__picture"


@pytest.mark.requirement("login.question")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_person_logs_in_at_the_address_that_the_client_is_given(revision: str, scene: Scene) -> None:
    person = Person()
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        assert not (await scene.call(client, LOGIN)).is_error
        assert ECHO in await scene.tools(client)
        assert text_of(await scene.call(client)) == "hello"
    assert [urlsplit(url).netloc for url in person.urls] == [urlsplit(scene.server.base).netloc]
    assert scene.tabs == []
    assert scene.server.registrations == 1


@pytest.mark.requirement("login.question")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_person_who_declines_is_asked_again_by_the_next_call(revision: str, scene: Scene) -> None:
    person = Person("decline", visits=False)
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        refusal = await scene.call(client, LOGIN)
        assert refusal.is_error
        assert f"coretools-mcp login {ALIAS}" in text_of(refusal)
        assert scene.server.requests("/token") == 0
        person.action, person.visits = "accept", True
        assert not (await scene.call(client, LOGIN)).is_error
    assert len(person.urls) == 2
    assert scene.server.registrations == 1


@pytest.mark.requirement("login.question")
@pytest.mark.parametrize("revision", ERAS)
async def test_calls_at_the_same_time_share_one_login(revision: str, scene: Scene) -> None:
    person = Person()
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(scene.call, client, LOGIN)
        assert text_of(await scene.call(client)) == "hello"
    assert len({parse_qs(urlsplit(url).query)["state"][0] for url in person.urls}) == 1
    assert scene.server.registrations == scene.server.grants("authorization_code") == 1


@pytest.mark.requirement("login.faults")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_tells_why_there_is_no_login_and_the_next_one_asks(revision: str, scene: Scene) -> None:
    person = Person()
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        scene.server.switch(withoutPkce=True)
        assert "PKCE" in text_of(await scene.call(client, LOGIN))
        scene.server.switch(withoutPkce=False, html=["/token"])
        assert "not JSON" in text_of(await scene.call(client, LOGIN))
        scene.server.switch(html=[], denies=True)
        assert "refused it" in text_of(await scene.call(client, LOGIN))
        scene.server.switch(denies=False)
        assert not (await scene.call(client, LOGIN)).is_error
    assert len(person.urls) == 3
    assert scene.server.registrations == 1


@pytest.mark.requirement("login.scopes")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_person_who_declines_a_further_scope_keeps_the_login(revision: str, scene: Scene) -> None:
    await scene.log_in()
    person = Person("decline", visits=False)
    async with scene.serving(revision, person) as client:
        assert (await scene.call(client, PICTURE)).is_error
        scene.upstream.post("/refuse")  # so that the token must be renewed
        assert text_of(await scene.call(client)) == "hello"
        person.action, person.visits = "accept", True
        assert not (await scene.call(client, PICTURE)).is_error
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)


@pytest.mark.requirement("login.scopes")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_tool_that_needs_a_further_scope_asks_for_it_and_goes_on(revision: str, scene: Scene) -> None:
    await scene.log_in()
    person = Person()
    async with scene.serving(revision, person) as client:
        assert text_of(await scene.call(client)) == "hello"
        assert person.urls == []
        assert not (await scene.call(client, PICTURE)).is_error
        assert not (await scene.call(client, PICTURE)).is_error
        assert text_of(await scene.call(client)) == "hello"
    (url,) = person.urls
    assert {"tools", "pictures"} <= set(parse_qs(urlsplit(url).query)["scope"][0].split())


@pytest.mark.requirement("search.call")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_person_logs_in_for_calls_through_call_tool_too(revision: str, scene: Scene) -> None:
    scene.proxy["search"] = "on"
    person = Person()
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        assert not (await scene.call(client, "call_tool", name=LOGIN)).is_error
        assert await scene.tools(client) == set(), "the login tool is gone, and the other tools are found by search"
        assert text_of(await scene.call(client, "call_tool", name=ECHO, arguments={"text": "hello"})) == "hello"
        assert len(person.urls) == 1
        assert not (await scene.call(client, "call_tool", name=PICTURE, arguments={})).is_error
    assert len(person.urls) == 2
    assert "pictures" in parse_qs(urlsplit(person.urls[1]).query)["scope"][0].split()


@pytest.mark.requirement("login.scopes")
async def test_a_further_scope_is_granted_through_the_command_if_nobody_can_be_asked(scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        refusal = await scene.call(client, PICTURE)
        assert refusal.is_error
        assert f"coretools-mcp login {ALIAS}" in text_of(refusal)
        assert text_of(await scene.call(client)) == "hello"
        await scene.log_in()
        await until(lambda: scene.server.grants("authorization_code") == 2)
        assert not (await scene.call(client, PICTURE)).is_error


@pytest.mark.requirement("login.others")
async def test_other_servers_go_on_while_one_does_not_find_out_how_to_log_in(scene: Scene) -> None:
    scene.other_servers = {"honest": stdio_upstream(trust=True)}
    scene.server.switch(delays={"/.well-known/oauth-authorization-server": 600_000})
    person = Person()
    async with scene.serving(HANDSHAKE, person) as client, anyio.create_task_group() as tasks:
        assert {LOGIN, "honest__echo"} <= await scene.tools(client)
        tasks.start_soon(scene.call, client, LOGIN)
        await until(lambda: scene.server.requests("/.well-known/oauth-authorization-server"))
        assert text_of(await scene.call(client, "honest__echo")) == "hello"
        scene.server.switch(delays={})
    assert len(person.urls) == 1


@pytest.mark.requirement("login.scopes")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_further_scope_that_the_settings_do_not_name_asks_nobody_for_a_login_that_would_lack_it(
    revision: str, scene: Scene
) -> None:
    scene.entry["oauth"] = {"scopes": ["tools"]}
    await scene.log_in()
    person = Person()
    async with scene.serving(revision, person) as client:
        refusal = await scene.call(client, PICTURE)
        assert refusal.is_error
        assert f"mcpServers.{ALIAS}.oauth.scopes" in text_of(refusal)
        assert text_of(await scene.call(client)) == "hello"
    assert person.urls == []


@pytest.mark.requirement("login.question")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_whose_login_cannot_begin_says_why_and_the_next_login_can_begin(
    revision: str, scene: Scene
) -> None:
    scene.server.switch(html=["/reg"])
    person = Person()
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        failure = await scene.call(client, LOGIN)
        assert failure.is_error
        assert "did not register this program" in text_of(failure)
        assert person.urls == []
        scene.server.switch(html=[])
        assert not (await scene.call(client, LOGIN)).is_error


@pytest.mark.requirement("login.question")
async def test_declining_in_one_call_does_not_end_the_login_that_another_call_waits_for(scene: Scene) -> None:
    urls: list[str] = []
    results: list[types.CallToolResult] = []

    async def on_elicitation(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        urls.append(params.url)
        return types.ElicitResult(action="accept" if len(urls) == 1 else "decline")

    async with scene.serving(MODERN, elicitation_callback=on_elicitation) as client, anyio.create_task_group() as tasks:
        await scene.tools(client)

        async def agree() -> None:
            results.append(await scene.call(client, LOGIN))

        tasks.start_soon(agree)
        await until(lambda: len(urls) == 1)
        assert (await scene.call(client, LOGIN)).is_error
        assert urls[0] == urls[1]
        await visit(urls[0])
    assert [result.is_error for result in results] == [False]


@pytest.mark.requirement("login.question")
async def test_calls_that_share_a_login_count_as_one_open_login(scene: Scene) -> None:
    urls: list[str] = []
    results: list[types.CallToolResult] = []
    may_answer = anyio.Event()

    async def on_elicitation(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        urls.append(params.url)
        await may_answer.wait()
        return types.ElicitResult(action="accept")

    async with scene.serving(MODERN, elicitation_callback=on_elicitation) as client, anyio.create_task_group() as tasks:
        await scene.tools(client)

        async def call() -> None:
            results.append(await scene.call(client, LOGIN))

        for _ in range(MAX_ATTEMPTS + 1):
            tasks.start_soon(call)
        await until(lambda: len(urls) + len(results) == MAX_ATTEMPTS + 1)
        assert len(set(urls)) == 1
        await visit(urls[0])
        may_answer.set()
    assert [result.is_error for result in results] == [False] * (MAX_ATTEMPTS + 1)
