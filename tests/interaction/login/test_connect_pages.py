"""People on other machines log in for themselves, at a page that our server serves at its public URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import mcp_types as types
import pytest
from starlette.applications import Starlette

from server.upstreams.login.connect_pages import ConnectPages
from server.upstreams.login.redirect_listener import Redirect
from server.upstreams.relay.login_questions import MAX_ATTEMPTS
from tests.harness import MODERN, text_of
from tests.interaction.login.pages import (
    TOKENS,
    LinkCollector,
    browser,
    follow_to_callback,
    http_server,
    link_from_call,
    log_in,
    press_button,
    record_call,
)
from tests.interaction.login.scene import ALIAS, ERAS, HANDSHAKE, Scene
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("login.connect")
@pytest.mark.parametrize("revision", ERAS)
async def test_each_of_two_people_logs_in_for_themselves_while_a_call_waits(
    revision: str, scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        for count, name in enumerate(TOKENS, 2):
            person, results, page = LinkCollector(), list[types.CallToolResult](), ""
            client = await our_server.client(name, revision, elicitation_callback=person.on_elicitation)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(record_call, scene, client, results)
                await until(lambda person=person: bool(person.links))
                (link,) = person.links
                assert link.startswith(f"{our_server.base}/connect/")
                assert "state=" not in link
                page = await log_in(link, our_server.base)
            assert "You are logged in" in page
            assert [text_of(result) for result in results] == ["hello"]
            assert scene.server.grants("authorization_code") == count  # one of them is the operator's
            assert text_of(await scene.call(client)) == "hello"
            assert len(person.links) == 1
    listing = (await scene.run("login", "--list", "--json")).stdout
    assert {name in listing for name in TOKENS} == {True}


@pytest.mark.requirement("login.connect")
@pytest.mark.parametrize("revision", ERAS)
async def test_another_session_gets_the_link_of_a_login_that_an_earlier_session_has_abandoned(
    revision: str, scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        gone, person = LinkCollector(), LinkCollector()
        first_client = await our_server.client("ada", revision, elicitation_callback=gone.on_elicitation)
        second_client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        results: list[types.CallToolResult] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, first_client, results)
            await until(lambda: bool(gone.links))
            for _ in range(2):
                tasks.start_soon(record_call, scene, second_client, results)
            await until(lambda: bool(person.links))
            assert "You are logged in" in await log_in(person.links[0], our_server.base)
        assert [text_of(result) for result in results] == ["hello"] * 3
        assert gone.links == person.links, "both calls of the second session share one question"


@pytest.mark.requirement("login.connect")
async def test_the_page_tells_whose_login_it_is_and_runs_no_script(scene: Scene, tmp_path: Path) -> None:
    async with http_server(scene, tmp_path) as our_server:
        person, response = LinkCollector(), httpx2.Response(500)
        client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, list[types.CallToolResult]())
            await until(lambda: bool(person.links))
            async with browser() as reader:
                response = await reader.get(person.links[0])
            await log_in(person.links[0], our_server.base)
        host = urlsplit(scene.server.base).netloc
        assert host in person.texts[0]
        assert {word in response.text for word in (ALIAS, host, "ada", urlsplit(our_server.base).netloc)} == {True}
        assert "<script" not in response.text
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "same-origin"
        policy = response.headers["Content-Security-Policy"]
        assert {part in policy for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")} == {
            True
        }
        assert re.search(r"(?i)httponly.*samesite=lax", response.headers["Set-Cookie"])


@pytest.mark.requirement("login.connect")
async def test_a_client_that_cannot_show_a_link_gets_it_in_the_error_and_the_next_call_has_the_login(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        for revision, name in zip(ERAS, TOKENS, strict=True):
            client = await our_server.client(name, revision)
            refusal = await scene.call(client)
            assert refusal.is_error
            match = re.search(rf"{re.escape(our_server.base)}/connect/\S+", text_of(refusal))
            assert match is not None
            assert match[0] in text_of(await scene.call(client))  # an open login keeps its link
            assert "You are logged in" in await log_in(match[0], our_server.base)
            assert text_of(await scene.call(client)) == "hello"


@pytest.mark.requirement("login.connect")
async def test_everybody_uses_a_login_that_the_entry_shares_and_nobody_is_asked(scene: Scene, tmp_path: Path) -> None:
    async with http_server(scene, tmp_path, shared=True) as our_server:
        person = LinkCollector()
        client = await our_server.client("bob", MODERN, elicitation_callback=person.on_elicitation)
        assert text_of(await scene.call(client)) == "hello"
        assert person.links == []


@pytest.mark.requirement("login.connect")
async def test_an_authorization_server_that_allows_https_redirects_only_to_web_applications_registers_us(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path, http={"publicUrl": "https://localhost:8443/team"}) as our_server:
        assert "https://localhost:8443/team/connect/" in text_of(
            await scene.call(await our_server.client("ada", HANDSHAKE))
        )


@pytest.mark.requirement("login.connect")
async def test_a_public_url_that_browsers_would_spell_differently_leads_to_the_login_too(
    scene: Scene, tmp_path: Path
) -> None:
    async with (
        http_server(scene, tmp_path, http={"publicUrl": "https://LocalHost:0443/"}) as our_server,
        browser() as ada,
    ):
        answer = text_of(await scene.call(await our_server.client("ada", HANDSHAKE)))
        match = re.search(r"https://localhost(/connect/\S+)", answer)
        assert match is not None, answer
        # In front of our server, a proxy would terminate TLS.
        cookie = (await ada.get(f"{our_server.base}{match[1]}")).headers["Set-Cookie"].partition(";")[0]
        assert cookie.startswith("__Host-")
        redirect = await ada.post(
            f"{our_server.base}{match[1]}", headers={"Origin": "https://localhost", "Cookie": cookie}
        )
        assert (await ada.get(redirect.headers["Location"])).status_code == 303  # the redirect URI is registered


@pytest.mark.requirement("login.connect-link")
async def test_a_link_is_for_one_browser_and_looking_at_it_does_nothing(scene: Scene, tmp_path: Path) -> None:
    async with http_server(scene, tmp_path) as our_server, browser() as ada, browser() as stranger:
        person, results, link = LinkCollector(), list[types.CallToolResult](), ""
        client = await our_server.client("ada", MODERN, elicitation_callback=person.on_elicitation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: bool(person.links))
            (link,) = person.links
            for visitor in (stranger, ada):
                assert (await visitor.get(link)).status_code == 200
            assert (await press_button(ada, link)).status_code == 303
            assert (await press_button(stranger, link)).status_code == (await stranger.get(link)).status_code == 403
            second_press = await press_button(ada, link)  # a double click
            assert (await ada.get(await follow_to_callback(ada, second_press, our_server.base))).status_code == 200
        assert [result.is_error for result in results] == [False]
        assert (await ada.get(link)).status_code == (await press_button(ada, link)).status_code == 404


@pytest.mark.requirement("login.connect-link")
async def test_a_form_of_another_page_or_from_a_browser_without_the_cookie_leads_nowhere(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server, browser() as ada, browser() as stranger:
        link = await link_from_call(scene, await our_server.client("ada", HANDSHAKE))
        assert (await ada.get(link)).status_code == 200
        for origin in ("https://evil.example", "null", f"{our_server.base}.evil.example"):
            assert (await press_button(ada, link, Origin=origin)).status_code == 403
        assert (await ada.post(link)).status_code == 403
        assert (await press_button(stranger, link)).status_code == 403
        assert (await press_button(ada, link)).status_code == 303
        assert (await ada.get(f"{link}x")).status_code == 404


@pytest.mark.requirement("login.connect-link")
async def test_an_answer_that_another_browser_brings_is_refused_and_the_login_stays_open(
    scene: Scene, tmp_path: Path
) -> None:
    """An attacker begins a login, and has another person finish it at the authorization server."""
    async with http_server(scene, tmp_path) as our_server, browser() as bob, browser() as ada, browser() as stranger:
        client = await our_server.client("bob", HANDSHAKE)
        link = await link_from_call(scene, client)
        await bob.get(link)
        redirect = await press_button(bob, link)
        callback = await follow_to_callback(
            ada, redirect, our_server.base
        )  # ada follows bob's redirect to the authorization server
        assert (await ada.get(callback)).status_code == 403
        assert (await stranger.get(callback)).status_code == 403
        ada_link = await link_from_call(scene, await our_server.client("ada", HANDSHAKE))
        await ada.get(ada_link)
        await press_button(ada, ada_link)  # now ada has a login cookie too, but a different one
        assert (await ada.get(callback)).status_code == 403
        query = parse_qs(urlsplit(callback).query)
        for parameters in ({}, {"code": "x"}, {"code": "x", "state": "y"}, {"error": "access_denied"}):
            assert (await bob.get(f"{our_server.base}/oauth/callback?{urlencode(parameters)}")).status_code == 400
        assert query["state"]
        assert scene.server.grants("authorization_code") == 1  # the operator's
        assert (await scene.call(client)).is_error
        assert (
            await bob.get(await follow_to_callback(bob, await press_button(bob, link), our_server.base))
        ).status_code == 200
        assert text_of(await scene.call(client)) == "hello"


@pytest.mark.requirement("login.connect-link")
async def test_the_page_and_the_call_report_an_error_of_the_authorization_server_and_the_next_call_asks_again(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        person, results, page = LinkCollector(), list[types.CallToolResult](), ""
        client = await our_server.client("ada", MODERN, elicitation_callback=person.on_elicitation)
        for denies in (True, False):
            scene.server.switch(denies=denies)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(record_call, scene, client, results)
                await until(lambda: len(person.links) > len(results))
                page = await log_in(person.links[-1], our_server.base)
            assert ("refused it" in page) is denies
        assert "refused it" in text_of(results[0])
        assert [result.is_error for result in results] == [True, False]
        async with browser() as late:
            assert (await late.get(person.links[0])).status_code == 404


@pytest.mark.requirement("login.connect-again")
async def test_a_person_who_has_lost_the_browser_gets_a_new_link_and_the_old_login_stops_working(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server, browser() as old_browser, browser() as new_browser:
        client = await our_server.client("ada", HANDSHAKE)
        link = await link_from_call(scene, client)
        await old_browser.get(link)
        old_callback = await follow_to_callback(old_browser, await press_button(old_browser, link), our_server.base)
        assert "repeat the call" in (await new_browser.get(link)).text
        new_link = await link_from_call(scene, client)
        assert new_link != link
        assert await link_from_call(scene, client) == new_link  # until somebody presses the button
        await new_browser.get(new_link)
        new_callback = await follow_to_callback(new_browser, await press_button(new_browser, new_link), our_server.base)
        assert (await old_browser.get(old_callback)).status_code == 403
        assert scene.server.grants("authorization_code") == 1  # the operator's
        assert "You are logged in" in (await new_browser.get(new_callback)).text
        assert text_of(await scene.call(client)) == "hello"
        for old_link in (link, new_link):
            assert (await new_browser.get(old_link)).status_code == 404


@pytest.mark.requirement("login.connect-again")
async def test_a_person_who_has_lost_the_browser_is_shown_a_new_link_while_the_first_call_waits(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server, browser() as old_browser:
        person, results = LinkCollector(), list[types.CallToolResult]()
        client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: bool(person.links))
            await old_browser.get(person.links[0])
            assert (await press_button(old_browser, person.links[0])).status_code == 303
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: len(person.links) == 2)
            assert person.links[0] != person.links[1]
            assert results == []
            assert "You are logged in" in await log_in(person.links[1], our_server.base)
        assert [text_of(result) for result in results] == ["hello"] * 2


@pytest.mark.requirement("login.connect-again")
async def test_a_client_that_cannot_be_asked_does_not_end_the_login_that_another_one_waits_for(
    scene: Scene, tmp_path: Path
) -> None:
    async def fail(context: Any, params: types.ElicitRequestParams) -> types.ErrorData:
        del context, params
        return types.ErrorData(code=-32603, message="there is no window")

    async with http_server(scene, tmp_path) as our_server, browser() as ada:
        person, results = LinkCollector(), list[types.CallToolResult]()
        client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        second_client = await our_server.client("ada", HANDSHAKE, elicitation_callback=fail)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: bool(person.links))
            await ada.get(person.links[0])
            callback = await follow_to_callback(ada, await press_button(ada, person.links[0]), our_server.base)
            assert "A person must log in" in text_of(await scene.call(second_client))
            assert results == []
            assert "You are logged in" in (await ada.get(callback)).text
        assert [text_of(result) for result in results] == ["hello"]


@pytest.mark.requirement("login.connect-again")
async def test_a_call_that_has_waited_long_enough_does_not_end_the_login_whose_link_another_client_has_just_got(
    scene: Scene, tmp_path: Path
) -> None:
    scene.confirmation = {"timeout": 3000}
    async with http_server(scene, tmp_path) as our_server:
        person, results, text = LinkCollector(), list[types.CallToolResult](), ""
        client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        silent_client = await our_server.client("ada", HANDSHAKE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: bool(person.links))
            text = text_of(await scene.call(silent_client))
        assert "nobody completed it" in text_of(results[0])
        match = re.search(rf"{re.escape(our_server.base)}/connect/\S+", text)
        assert match is not None
        assert "You are logged in" in await log_in(match[0], our_server.base)


@pytest.mark.requirement("login.connect-again")
async def test_after_a_call_is_cancelled_during_a_login_the_next_call_asks_with_the_same_link(
    scene: Scene, tmp_path: Path
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        person, results = LinkCollector(), list[types.CallToolResult]()
        client = await our_server.client("ada", HANDSHAKE, elicitation_callback=person.on_elicitation)
        for count in (1, 2, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(record_call, scene, client, results)
                await until(lambda count=count: len(person.links) == count)
                tasks.cancel_scope.cancel()
        assert results == []
        assert len(set(person.links)) == 1


@pytest.mark.long
@pytest.mark.requirement("login.connect-again")
async def test_logins_that_a_person_declines_leave_room_for_those_of_others(scene: Scene, tmp_path: Path) -> None:
    async with http_server(scene, tmp_path) as our_server:

        async def decline(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            del context, params
            return types.ElicitResult(action="decline")

        bob = await our_server.client("bob", MODERN, elicitation_callback=decline)
        for _ in range(MAX_ATTEMPTS + 1):
            assert "did not log in" in text_of(await scene.call(bob))
        person = LinkCollector()
        ada = await our_server.client("ada", MODERN, elicitation_callback=person.on_elicitation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, ada, list[types.CallToolResult]())
            await until(lambda: bool(person.links))
            tasks.cancel_scope.cancel()


@pytest.mark.requirement("login.connect-link")
async def test_the_page_of_a_shared_login_says_so_and_an_answer_before_the_button_is_refused() -> None:
    pages = ConnectPages("http://tools.example")
    redirect = Redirect("login", "https://as.example/authorize", ALIAS, "")
    asgi = httpx2.ASGITransport(app=Starlette(routes=pages.routes))
    async with (
        pages.expect(redirect, "secret") as address,
        httpx2.AsyncClient(transport=asgi, base_url="http://tools.example") as person,
    ):
        assert "everybody who can use coretools-mcp at tools.example" in (await person.get(address())).text
        early_response = await person.get("/oauth/callback?state=secret&code=x")
        assert (early_response.status_code, "the button on the login page" in early_response.text) == (403, True)
        assert (await press_button(person, address())).status_code == 303
        async with httpx2.AsyncClient(transport=asgi, base_url="http://tools.example") as stranger:
            other_response = await stranger.get("/oauth/callback?state=secret&code=x")
        assert (other_response.status_code, "in another browser" in other_response.text) == (403, True)
        assert not redirect.arrived.is_set()
