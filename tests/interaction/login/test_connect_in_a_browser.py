"""The login pages in a real browser: what a person can see and do there."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest
from axe_playwright_python.async_playwright import Axe
from axe_playwright_python.base import AxeResults
from playwright.async_api import Browser, Page, expect

from tests.chromium import chromium_browser
from tests.harness import text_of
from tests.interaction.login.pages import LinkCollector, http_server, link_from_call, record_call
from tests.interaction.login.scene import ALIAS, ERAS, HANDSHAKE, Scene
from tests.interaction.network.test_access_tokens import RESOURCE, sign_token
from tests.scripted_issuer import scripted_issuer
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "java_script_enabled": False}
ENDS = "**/oauth/callback?*"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The usual backend, but with module scope, so that all tests share the event loop of the browser."""
    return "asyncio"


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncGenerator[Browser]:
    """The browser of this module."""
    del anyio_backend
    async with chromium_browser() as browser:
        yield browser


@pytest.fixture
async def browser(chromium: Browser) -> AsyncGenerator[Browser]:
    """The browser of this module without any window; the windows of the test are closed after it."""
    yield chromium
    for context in chromium.contexts:
        await context.close()


async def page_of(browser: Browser, link: str, **options: Any) -> Page:
    """Open a link in a new window with its own cookies."""
    page = await (await browser.new_context(**options)).new_page()
    await page.goto(link)
    return page


async def width_of(page: Page) -> int:
    """The width of the page's content, in CSS pixels."""
    return int(await page.evaluate("document.documentElement.scrollWidth"))


@pytest.mark.long
@pytest.mark.requirement("login.connect")
@pytest.mark.parametrize("revision", ERAS)
async def test_on_a_phone_without_script_a_person_logs_in_by_one_button_and_the_call_goes_on(
    revision: str, scene: Scene, tmp_path: Path, browser: Browser
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        person, results = LinkCollector(), list[types.CallToolResult]()
        page = await page_of(browser, f"{our_server.base}/healthz", **PHONE)
        client = await our_server.client("ada", revision, elicitation_callback=person.on_elicitation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record_call, scene, client, results)
            await until(lambda: bool(person.links))
            await page.goto(person.links[0])
            await page.get_by_role("button").dblclick()
            # The second click cancels the first navigation, which `wait_for_url` would report as a failure.
            await expect(page.locator("body")).to_contain_text("You are logged in", timeout=CEILING * 1_000)
            await expect(page).to_have_url(re.compile(r"/oauth/callback\?"))
        assert [text_of(result) for result in results] == ["hello"]
        for navigate in (page.reload, page.go_back):
            await navigate()
            assert "it was completed" in await page.inner_text("body")


@pytest.mark.requirement("login.connect-eyes")
async def test_the_page_is_readable_on_a_phone_in_the_dark_and_by_a_screen_reader(
    scene: Scene, tmp_path: Path, browser: Browser
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        link = await link_from_call(scene, await our_server.client("ada", HANDSHAKE))
        for address in (link, f"{link}x"):
            colors: list[str] = []
            for scheme in ("light", "dark"):
                page = await page_of(browser, address, color_scheme=scheme, **(PHONE | {"java_script_enabled": True}))
                axe_results: AxeResults = await Axe().run(page)  # pyright: ignore[reportUnknownMemberType] - it has no types
                assert axe_results.violations_count == 0, axe_results.generate_report()
                assert await width_of(page) == 360
                colors.append(await page.evaluate("getComputedStyle(document.body).color"))
            assert colors[0] != colors[1]
        page = await page_of(browser, link)
        assert await page.get_by_role("button").inner_text() == f"Log in at {urlsplit(scene.server.base).netloc}"
        definitions = dict(
            zip(
                await page.get_by_role("term").all_inner_texts(),
                await page.get_by_role("definition").all_inner_texts(),
                strict=True,
            )
        )
        assert definitions == {
            "Server": ALIAS,
            "You log in at": urlsplit(scene.server.base).netloc,
            "Your account is then used for the calls of": "ada",
            "These calls go through": f"coretools-mcp at {urlsplit(our_server.base).netloc}",
        }


@pytest.mark.requirement("login.connect-eyes")
async def test_the_page_names_a_user_of_an_issuer_by_a_familiar_claim_and_by_the_subject(
    scene: Scene, tmp_path: Path, browser: Browser
) -> None:
    subject = "00u1<b>x</b>" + "z" * 200
    claims_and_names = (
        ({"email": "ada@example.com", "name": "Ada"}, "ada@example.com"),
        ({"email": "bob@example.com", "email_verified": False, "preferred_username": "ada", "name": "x"}, "ada"),
        ({"email": "eve@example.com", "email_verified": "false", "preferred_username": "eve"}, "eve"),
        ({"email": "fay@example.com", "email_verified": "true"}, "fay@example.com"),
        ({"email": "gus@example.com", "email_verified": True}, "gus@example.com"),
        ({"name": " <script>alert(1)</script>\u202eada\nx"}, "<script>alert(1)</script><U+202E>ada␊x"),
        ({"email": " \t", "name": "\u3000"}, ""),
        ({"name": "x" * 201, "preferred_username": 7}, ""),
    )
    with scripted_issuer() as company:
        company.responses["/.well-known/oauth-authorization-server"]["issuer"] = company.base
        oauth = {"issuer": company.base, "resource": RESOURCE}
        async with http_server(scene, tmp_path, http={"oauth": oauth}) as our_server:
            for number, (claims, name) in enumerate(claims_and_names):
                token_claims = {"sub": f"{subject}{number}", "scope": "read upstream:*", **claims}
                client = await our_server.client_with(sign_token(company.base, token_claims), HANDSHAKE)
                page = await page_of(browser, await link_from_call(scene, client), **PHONE)
                definitions = await page.get_by_role("definition").all_inner_texts()
                raw = f"{company.base} {subject}{number}"
                assert definitions[2:-1] == ([name, raw] if name else [raw])
                assert await page.locator("script, b").count() == 0
                assert await page.evaluate("innerWidth") == 360


@pytest.mark.requirement("login.connect-link")
async def test_a_page_elsewhere_can_neither_frame_the_page_nor_press_its_button(
    scene: Scene, tmp_path: Path, browser: Browser
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        link = await link_from_call(scene, await our_server.client("ada", HANDSHAKE))
        page = await page_of(browser, link)  # gets the login cookie
        hostile_html = f'<iframe src="{link}"></iframe><form method="post" action="{link}"><button>Win</button></form>'
        # The same site, but another origin, so that the browser sends the cookie.
        await page.route("http://127.0.0.1/", lambda route: route.fulfill(body=hostile_html, content_type="text/html"))
        await page.goto("http://127.0.0.1/")
        frame = page.frames[1]
        assert await frame.get_by_role("button").count() == 0
        await page.get_by_role("button", name="Win").click()
        await page.wait_for_url(link)
        assert "Continue with the button on the login page" in await page.inner_text("body")
        await page.goto(link)
        await page.get_by_role("button").click()
        await page.wait_for_url(ENDS)
        assert "You are logged in" in await page.inner_text("body")


@pytest.mark.requirement("login.connect-again")
async def test_an_open_login_ends_when_its_upstream_leaves_the_settings(
    scene: Scene, tmp_path: Path, browser: Browser
) -> None:
    async with http_server(scene, tmp_path) as our_server:
        link = await link_from_call(scene, await our_server.client("ada", HANDSHAKE))
        page = await page_of(browser, link)
        grants_before = scene.server.grants("authorization_code")
        our_server.write({})
        with anyio.fail_after(30):
            while await page.get_by_role("button").count():
                await page.reload()
        assert "no longer open" in await page.inner_text("body")
        assert scene.server.grants("authorization_code") == grants_before
