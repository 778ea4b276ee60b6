"""People on other machines: each logs in for themselves, at a page that is served where they reach us."""

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

from server.upstreams.login.callback import Redirect
from server.upstreams.login.connect_pages import ConnectPages
from server.upstreams.relay.login_questions import MAX_ATTEMPTS
from tests.harness import MODERN, text_of
from tests.interaction.login.pages import TOKENS, Shown, browser, called, go_on, log_in, served, to_the_end, told
from tests.interaction.login.scene import ALIAS, ERAS, HANDSHAKE, Scene
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("login.connect")
@pytest.mark.parametrize("revision", ERAS)
async def test_each_of_two_people_logs_in_for_themselves_while_a_call_waits(
    revision: str, scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours:
        for count, name in enumerate(TOKENS, 2):
            person, results, page = Shown(), list[types.CallToolResult](), ""
            client = await ours.client(name, revision, elicitation_callback=person.look)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(called, scene, client, results)
                await until(lambda person=person: bool(person.links))
                (link,) = person.links
                assert link.startswith(f"{ours.base}/connect/")
                assert "state=" not in link
                page = await log_in(link, ours.base)
            assert "You are logged in" in page
            assert [text_of(each) for each in results] == ["hello"]
            assert scene.server.grants("authorization_code") == count  # one is that of the operator
            assert text_of(await scene.call(client)) == "hello"
            assert len(person.links) == 1
    listed = (await scene.run("login", "--list", "--json")).stdout
    assert {name in listed for name in TOKENS} == {True}


@pytest.mark.requirement("login.connect")
async def test_the_page_tells_whose_login_it_is_and_runs_no_script(scene: Scene, tmp_path: Path) -> None:
    async with served(scene, tmp_path) as ours:
        person, response = Shown(), httpx2.Response(500)
        client = await ours.client("ada", HANDSHAKE, elicitation_callback=person.look)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, scene, client, list[types.CallToolResult]())
            await until(lambda: bool(person.links))
            async with browser() as reader:
                response = await reader.get(person.links[0])
            await log_in(person.links[0], ours.base)
        host = urlsplit(scene.server.base).netloc
        assert host in person.texts[0]
        assert {word in response.text for word in (ALIAS, host, "ada", urlsplit(ours.base).netloc)} == {True}
        assert "<script" not in response.text
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "same-origin"
        policy = response.headers["Content-Security-Policy"]
        assert {part in policy for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")} == {
            True
        }
        assert re.search(r"(?i)httponly.*samesite=lax", response.headers["Set-Cookie"])


@pytest.mark.requirement("login.connect")
async def test_a_client_that_cannot_show_an_address_is_told_it_and_the_next_call_has_the_login(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours:
        for revision, name in zip(ERAS, TOKENS, strict=True):
            client = await ours.client(name, revision)
            refused = await scene.call(client)
            assert refused.is_error
            found = re.search(rf"{re.escape(ours.base)}/connect/\S+", text_of(refused))
            assert found is not None
            assert found[0] in text_of(await scene.call(client))  # as long as it is open it is the same one
            assert "You are logged in" in await log_in(found[0], ours.base)
            assert text_of(await scene.call(client)) == "hello"


@pytest.mark.requirement("login.connect")
async def test_a_login_that_the_entry_shares_is_used_by_all_and_asked_of_nobody(scene: Scene, tmp_path: Path) -> None:
    async with served(scene, tmp_path, shared=True) as ours:
        person = Shown()
        client = await ours.client("bob", MODERN, elicitation_callback=person.look)
        assert text_of(await scene.call(client)) == "hello"
        assert person.links == []


@pytest.mark.requirement("login.connect")
async def test_an_authorization_server_that_lets_programs_of_the_web_alone_lead_to_an_https_address_knows_us(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path, http={"publicUrl": "https://localhost:8443/team"}) as ours:
        assert "https://localhost:8443/team/connect/" in text_of(await scene.call(await ours.client("ada", HANDSHAKE)))


@pytest.mark.requirement("login.connect")
async def test_an_address_that_is_written_otherwise_than_browsers_say_it_leads_to_the_login_as_well(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path, http={"publicUrl": "https://LocalHost:0443/"}) as ours, browser() as ada:
        answer = text_of(await scene.call(await ours.client("ada", HANDSHAKE)))
        found = re.search(r"https://localhost(/connect/\S+)", answer)
        assert found is not None, answer
        # What stands before us ends TLS.
        cookie = (await ada.get(f"{ours.base}{found[1]}")).headers["Set-Cookie"].partition(";")[0]
        assert cookie.startswith("__Host-")
        sent = await ada.post(f"{ours.base}{found[1]}", headers={"Origin": "https://localhost", "Cookie": cookie})
        assert (await ada.get(sent.headers["Location"])).status_code == 303  # it knows that address of ours


@pytest.mark.requirement("login.connect-link")
async def test_a_link_is_for_one_browser_and_looking_at_it_does_nothing(scene: Scene, tmp_path: Path) -> None:
    async with served(scene, tmp_path) as ours, browser() as ada, browser() as other:
        person, results, link = Shown(), list[types.CallToolResult](), ""
        client = await ours.client("ada", MODERN, elicitation_callback=person.look)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, scene, client, results)
            await until(lambda: bool(person.links))
            (link,) = person.links
            for each in (other, ada):
                assert (await each.get(link)).status_code == 200
            assert (await go_on(ada, link)).status_code == 303
            assert (await go_on(other, link)).status_code == (await other.get(link)).status_code == 403
            again = await go_on(ada, link)  # a button that is pressed twice
            assert (await ada.get(await to_the_end(ada, again, ours.base))).status_code == 200
        assert [each.is_error for each in results] == [False]
        assert (await ada.get(link)).status_code == (await go_on(ada, link)).status_code == 404


@pytest.mark.requirement("login.connect-link")
async def test_a_form_of_another_page_or_from_a_browser_without_the_cookie_leads_nowhere(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours, browser() as ada, browser() as other:
        link = await told(scene, await ours.client("ada", HANDSHAKE))
        assert (await ada.get(link)).status_code == 200
        for origin in ("https://evil.example", "null", f"{ours.base}.evil.example"):
            assert (await go_on(ada, link, Origin=origin)).status_code == 403
        assert (await ada.post(link)).status_code == 403
        assert (await go_on(other, link)).status_code == 403
        assert (await go_on(ada, link)).status_code == 303
        assert (await ada.get(f"{link}x")).status_code == 404


@pytest.mark.requirement("login.connect-link")
async def test_an_answer_that_another_browser_brings_is_refused_and_the_login_stays_open(
    scene: Scene, tmp_path: Path
) -> None:
    """Somebody begins a login of their own, and has another person finish it at the authorization server."""
    async with served(scene, tmp_path) as ours, browser() as bob, browser() as ada, browser() as stranger:
        client = await ours.client("bob", HANDSHAKE)
        link = await told(scene, client)
        await bob.get(link)
        sent_on = await go_on(bob, link)
        answer = await to_the_end(ada, sent_on, ours.base)  # she follows the address of the authorization server
        assert (await ada.get(answer)).status_code == 403
        assert (await stranger.get(answer)).status_code == 403
        others = await told(scene, await ours.client("ada", HANDSHAKE))
        await ada.get(others)
        await go_on(ada, others)  # in a login of her own she has a cookie, which is not his
        assert (await ada.get(answer)).status_code == 403
        query = parse_qs(urlsplit(answer).query)
        for said in ({}, {"code": "x"}, {"code": "x", "state": "y"}, {"error": "access_denied"}):
            assert (await bob.get(f"{ours.base}/oauth/callback?{urlencode(said)}")).status_code == 400
        assert query["state"]
        assert scene.server.grants("authorization_code") == 1  # that of the operator
        assert (await scene.call(client)).is_error
        assert (await bob.get(await to_the_end(bob, await go_on(bob, link), ours.base))).status_code == 200
        assert text_of(await scene.call(client)) == "hello"


@pytest.mark.requirement("login.connect-link")
async def test_an_error_of_the_authorization_server_is_told_by_the_page_and_the_call_and_the_next_call_asks_again(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours:
        person, results, page = Shown(), list[types.CallToolResult](), ""
        client = await ours.client("ada", MODERN, elicitation_callback=person.look)
        for denies in (True, False):
            scene.server.switch(denies=denies)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(called, scene, client, results)
                await until(lambda: len(person.links) > len(results))
                page = await log_in(person.links[-1], ours.base)
            assert ("refused it" in page) is denies
        assert "refused it" in text_of(results[0])
        assert [each.is_error for each in results] == [True, False]
        async with browser() as late:
            assert (await late.get(person.links[0])).status_code == 404


@pytest.mark.requirement("login.connect-again")
async def test_who_has_lost_the_browser_gets_another_link_and_the_lost_one_counts_no_more(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours, browser() as lost, browser() as found:
        client = await ours.client("ada", HANDSHAKE)
        link = await told(scene, client)
        await lost.get(link)
        answer = await to_the_end(lost, await go_on(lost, link), ours.base)
        assert "repeat the call" in (await found.get(link)).text
        fresh = await told(scene, client)
        assert fresh != link
        assert await told(scene, client) == fresh  # as long as nobody has gone on there
        await found.get(fresh)
        last = await to_the_end(found, await go_on(found, fresh), ours.base)
        assert (await lost.get(answer)).status_code == 403
        assert scene.server.grants("authorization_code") == 1  # that of the operator
        assert "You are logged in" in (await found.get(last)).text
        assert text_of(await scene.call(client)) == "hello"
        for each in (link, fresh):
            assert (await found.get(each)).status_code == 404


@pytest.mark.requirement("login.connect-again")
async def test_who_has_lost_the_browser_is_shown_another_link_while_the_first_call_waits(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours, browser() as lost:
        person, results = Shown(), list[types.CallToolResult]()
        client = await ours.client("ada", HANDSHAKE, elicitation_callback=person.look)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, scene, client, results)
            await until(lambda: bool(person.links))
            await lost.get(person.links[0])
            assert (await go_on(lost, person.links[0])).status_code == 303
            tasks.start_soon(called, scene, client, results)
            await until(lambda: len(person.links) == 2)
            assert person.links[0] != person.links[1]
            assert results == []
            assert "You are logged in" in await log_in(person.links[1], ours.base)
        assert [text_of(each) for each in results] == ["hello"] * 2


@pytest.mark.requirement("login.connect-again")
async def test_a_client_that_cannot_be_asked_does_not_end_the_login_that_another_one_waits_for(
    scene: Scene, tmp_path: Path
) -> None:
    async def fail(context: Any, params: types.ElicitRequestParams) -> types.ErrorData:
        del context, params
        return types.ErrorData(code=-32603, message="there is no window")

    async with served(scene, tmp_path) as ours, browser() as ada:
        person, results = Shown(), list[types.CallToolResult]()
        client = await ours.client("ada", HANDSHAKE, elicitation_callback=person.look)
        other = await ours.client("ada", HANDSHAKE, elicitation_callback=fail)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, scene, client, results)
            await until(lambda: bool(person.links))
            await ada.get(person.links[0])
            answer = await to_the_end(ada, await go_on(ada, person.links[0]), ours.base)
            assert "A person must log in" in text_of(await scene.call(other))
            assert results == []
            assert "You are logged in" in (await ada.get(answer)).text
        assert [text_of(each) for each in results] == ["hello"]


@pytest.mark.requirement("login.connect-again")
async def test_a_call_that_was_given_up_while_the_login_was_open_leaves_the_next_one_its_question(
    scene: Scene, tmp_path: Path
) -> None:
    async with served(scene, tmp_path) as ours:
        person, results = Shown(), list[types.CallToolResult]()
        client = await ours.client("ada", HANDSHAKE, elicitation_callback=person.look)
        for count in (1, 2, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(called, scene, client, results)
                await until(lambda count=count: len(person.links) == count)
                tasks.cancel_scope.cancel()
        assert results == []
        assert len(set(person.links)) == 1


@pytest.mark.long
@pytest.mark.requirement("login.connect-again")
async def test_who_declines_many_logins_takes_no_place_from_others(scene: Scene, tmp_path: Path) -> None:
    async with served(scene, tmp_path) as ours:

        async def decline(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            del context, params
            return types.ElicitResult(action="decline")

        bob = await ours.client("bob", MODERN, elicitation_callback=decline)
        for _ in range(MAX_ATTEMPTS + 1):
            assert "did not log in" in text_of(await scene.call(bob))
        person = Shown()
        ada = await ours.client("ada", MODERN, elicitation_callback=person.look)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, scene, ada, list[types.CallToolResult]())
            await until(lambda: bool(person.links))
            tasks.cancel_scope.cancel()


@pytest.mark.requirement("login.connect-link")
async def test_where_all_share_a_login_the_page_says_so_and_an_answer_before_the_button_is_sent_back_to_it() -> None:
    pages = ConnectPages("http://tools.example")
    redirect = Redirect("login", "https://as.example/authorize", ALIAS, "")
    asgi = httpx2.ASGITransport(app=Starlette(routes=pages.routes))
    async with (
        pages.expect(redirect, "secret") as address,
        httpx2.AsyncClient(transport=asgi, base_url="http://tools.example") as person,
    ):
        assert "everybody who can use coretools-mcp at tools.example" in (await person.get(address())).text
        early = await person.get("/oauth/callback?state=secret&code=x")
        assert (early.status_code, "the button on the login page" in early.text) == (403, True)
        assert (await go_on(person, address())).status_code == 303
        async with httpx2.AsyncClient(transport=asgi, base_url="http://tools.example") as other:
            elsewhere = await other.get("/oauth/callback?state=secret&code=x")
        assert (elsewhere.status_code, "in another browser" in elsewhere.text) == (403, True)
        assert not redirect.arrived.is_set()
