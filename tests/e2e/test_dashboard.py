"""The dashboard: signing in, its pages and actions, and answers to questions for clients that cannot ask."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types as types
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from axe_playwright_python.async_playwright import Axe
from axe_playwright_python.base import AxeResults
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from playwright.async_api import Browser, Page, expect

from server.app import App
from server.dashboard import page_contents
from server.dashboard.site import CODE_SECONDS, MAX_BROWSERS, MAX_CONNECTIONS, MAX_STREAMS, PAGES, Dashboard, SignIn
from server.settings import load_settings
from server.settings.load import why_no_dashboard
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import lock_text, parse_lock
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool, ToolRecord
from tests.background_servers import background_server
from tests.chromium import chromium_browser
from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, PEERS, command_line, speaking, stdio_upstream, write_config
from tests.interaction.relay.clients import http_transport
from tests.running_servers import ask, runtime_folder, served, sockets, status_of
from tests.unit.test_large_lists import turns_during
from tests.unit.test_tool_catalog import unreachable
from tests.waiting import CEILING, pause, until
from tools.contract.display import MAX_BLOCK_CHARS
from tools.text.secrets import HIDDEN

pytestmark = pytest.mark.anyio

if sys.platform == "win32":
    pytest.skip("not run: there is no control socket on Windows", allow_module_level=True)

ASKS_AT_PAGE: dict[str, object] = {"confirmation": {"whenUnavailable": "page"}}


@pytest.fixture
def runtime() -> Generator[Path]:
    with runtime_folder() as folder:
        yield folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    (folder / "a.py").write_text("print('hello')\n")
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A program that stands in for a browser: it copies the page that it opens to a file next to itself."""
    program = tmp_path / "browser"
    program.write_text('#!/bin/sh\nexec cat "${1#file://}" > "$0.page"\n')
    program.chmod(0o700)
    return program


async def link_of(runtime: Path, root: Path) -> str:
    result = await ask(runtime, "dashboard", "--no-browser", cwd=root)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/open\?code=[\w-]{22}\n", result.stdout)
    return result.stdout.strip()


def parts_of(link: str) -> tuple[str, str]:
    """Split a link into the address of the dashboard and the sign-in code."""
    home, _, code = link.partition("/open?code=")
    return home, code


def origin_of(home: str) -> str:
    return home.rpartition("/")[0]


@asynccontextmanager
async def signed_in(link: str) -> AsyncGenerator[httpx.AsyncClient]:
    """An HTTP client that has signed in and sends the Origin header with its forms, as browsers do."""
    home, code = parts_of(link)
    async with httpx.AsyncClient(base_url=home, headers={"Origin": origin_of(home)}) as browser:
        response = await browser.post("/open", data={"code": code})
        assert response.status_code == 303
        yield browser


@asynccontextmanager
async def client_and_browser(
    runtime: Path, root: Path, settings: Mapping[str, object] | None = None
) -> AsyncGenerator[tuple[Client, httpx.AsyncClient]]:
    """An MCP client with its own server, and an HTTP client that is signed in to the server's dashboard."""
    async with (
        served(runtime, root, settings=settings) as client,
        signed_in(await link_of(runtime, root)) as browser,
    ):
        yield client, browser


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Use asyncio, as elsewhere, but with module scope: the tests must share one event loop to share the browser."""
    return "asyncio"


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncGenerator[Browser]:
    """The Chromium that all tests of this module share."""
    del anyio_backend
    async with chromium_browser() as browser:
        yield browser


@asynccontextmanager
async def browsed_later(chromium: Browser, **options: Any) -> AsyncGenerator[Callable[[str], Awaitable[Page]]]:
    """Yield a function that opens a link in Chromium.

    At the end, fail if a page sent a request to another origin, raised an error, or violated its security policy.
    """
    foreign: list[str] = []
    problems: list[str] = []
    async with AsyncExitStack() as contexts:

        async def browse(link: str) -> Page:
            page = await (await contexts.enter_async_context(await chromium.new_context(**options))).new_page()
            origin = origin_of(parts_of(link)[0])
            page.on("request", lambda request: None if request.url.startswith(origin) else foreign.append(request.url))
            page.on("console", lambda message: problems.append(message.text) if "Policy" in message.text else None)
            page.on("pageerror", lambda error: problems.append(str(error)))
            await page.goto(link)
            if options.get("java_script_enabled") is False:
                await page.get_by_role("button", name="Open the dashboard").click()
            await page.wait_for_url("**/")
            return page

        yield browse
    assert foreign == []
    assert problems == []


@asynccontextmanager
async def browsed(chromium: Browser, link: str, **options: Any) -> AsyncGenerator[Page]:
    """Open a link in Chromium, and yield its page."""
    async with browsed_later(chromium, **options) as browse:
        yield await browse(link)


@asynccontextmanager
async def asking(client: Client, name: str, arguments: dict[str, Any]) -> AsyncGenerator[list[types.CallToolResult]]:
    """Call a tool in the background; the result is in the list when the context has ended."""
    results: list[types.CallToolResult] = []

    async def call() -> None:
        results.append(await client.call_tool(name, arguments))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        yield results


EDIT = {"file_path": "a.py", "old_string": "hello", "new_string": "goodbye"}


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.requirement("dashboard.answers")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_an_edit_by_a_client_that_cannot_ask_is_allowed_with_the_keyboard_on_the_dashboard(
    runtime: Path, root: Path, chromium: Browser, revision: str
) -> None:
    async with (
        served(runtime, root, revision=revision, settings=ASKS_AT_PAGE) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
        asking(client, "edit", EDIT) as results,
    ):
        await expect(page).to_have_title(re.compile(r"^\(1\)"))
        await expect(page.locator("#news")).to_contain_text("New question: Edit a.py")
        assert (root / "a.py").read_text() == "print('hello')\n"
        if revision == MODERN:
            await page.keyboard.press("d")  # the keys only move the focus between answers
            await page.keyboard.press("o")
        for _ in range(40):
            if (await page.evaluate("document.activeElement.innerText")).startswith("Allow once"):
                break
            assert revision == HANDSHAKE
            await page.keyboard.press("Tab")
        assert (root / "a.py").read_text() == "print('hello')\n"
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No question is waiting")).to_be_visible()
    assert not results[0].is_error
    assert (root / "a.py").read_text() == "print('goodbye')\n"


@pytest.mark.requirement("dashboard.answers")
async def test_a_denial_and_its_reason_reach_the_model_without_javascript(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    async with (
        served(runtime, root, settings=ASKS_AT_PAGE) as client,
        browsed(chromium, await link_of(runtime, root), java_script_enabled=False) as page,
        asking(client, "edit", EDIT) as results,
    ):
        with anyio.fail_after(CEILING):
            while await page.get_by_role("article").count() == 0:
                await page.reload()
        await page.get_by_label("Reason").fill("not that file")
        await page.get_by_role("button", name="Deny: Edit").click()
        await expect(page.get_by_text("No question is waiting")).to_be_visible()
    assert "not that file" in text_of(results[0])
    assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.answers")
async def test_a_question_that_nobody_answers_in_time_is_a_refusal_that_names_the_dashboard_command(
    runtime: Path, root: Path
) -> None:
    settings = {"confirmation": {"whenUnavailable": "page", "timeout": 300}}
    messages: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        messages.append(message)

    async with served(runtime, root, settings=settings) as client:
        result = await client.call_tool("edit", EDIT, progress_callback=note)
    assert result.is_error
    assert "coretools-mcp dashboard" in text_of(result)
    assert any("coretools-mcp dashboard" in (message or "") for message in messages)
    assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.answers")
async def test_a_question_and_the_list_of_calls_name_the_token_of_a_client(runtime: Path, root: Path) -> None:
    token = "a" * 24
    config = write_config(root.parent, {**ASKS_AT_PAGE, "http": {"tokens": {"ada": {"env": "ADA"}}}})
    serve = command_line("--transport", "http", "--port", "0", "--workspace", str(root), "--config", str(config))
    with background_server(
        ["env", f"XDG_RUNTIME_DIR={runtime}", f"ADA={token}", *serve], r"serving MCP at (http://\S+?),"
    ) as url:
        await until(lambda: sockets(runtime))
        async with (
            speaking(HANDSHAKE, http_transport(f"{url}/mcp", token)) as client,
            signed_in(await link_of(runtime, root)) as browser,
        ):
            async with asking(client, "edit", EDIT):
                await question_on(browser)
                page = (await browser.get("/")).text
                await answered(browser, "deny")
            assert re.search(r"Asked by \S+ \S+ of ada at", page)
            assert re.search(r'data-label="Client">\S+ \S+ of ada<', (await browser.get("/calls")).text)


@pytest.mark.requirement("dashboard.answers")
async def test_always_on_the_dashboard_allows_later_calls_that_the_button_names(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser):
        async with asking(client, "edit", EDIT):
            await answered(browser, "always")
        again = await client.call_tool("edit", {**EDIT, "old_string": "goodbye", "new_string": "again"})
        assert not again.is_error


@pytest.mark.requirement("dashboard.answers")
async def test_the_page_names_rules_and_says_in_words_what_is_not_one(runtime: Path, root: Path) -> None:
    settings = {**ASKS_AT_PAGE, "shell": {"sandbox": "auto"}}
    async with (
        client_and_browser(runtime, root, settings) as (client, browser),
        asking(client, "run_shell_command", {"command": "make all"}),
    ):
        await question_on(browser)
        page = (await browser.get("/")).text
        await answered(browser, "deny")
    assert "as the rule Bash(make all *)" in page
    if "stays in the sandbox" not in page:
        pytest.skip("not run: bubblewrap does not run here")
    assert "rule Sandboxed" not in page


async def question_on(browser: httpx.AsyncClient) -> tuple[str, str]:
    """Wait for the only question, and return the path that its form is sent to, and its token."""
    pattern = r'action="/[\w-]{22}(/questions/[\w-]+)"[^>]*>\s*<input type="hidden" name="token" value="(\w+)"'
    questions: list[tuple[str, str]] = []
    with anyio.fail_after(CEILING):
        while not questions:
            questions = re.findall(pattern, (await browser.get("/")).text)
    return questions[0]


async def answered(browser: httpx.AsyncClient, decision: str) -> tuple[str, str]:
    path, token = await question_on(browser)
    response = await browser.post(path, data={"token": token, "decision": decision})
    assert response.status_code == 303
    return path, token


async def wait_longer(browser: httpx.AsyncClient, path: str) -> None:
    pattern = rf'{path}/longer">\s*<input type="hidden" name="token" value="(\w+)"'
    token = re.findall(pattern, (await browser.get("/")).text)[0]
    assert (await browser.post(f"{path}/longer", data={"token": token})).status_code == 303


@pytest.mark.requirement("dashboard.absent")
async def test_without_the_dashboard_extra_page_means_deny_and_a_warning_says_so(root: Path) -> None:
    config = write_config(root.parent, ASKS_AT_PAGE)
    program = str(PEERS / "without_templates.py")
    options = ["--workspace", str(root), "--config", str(config)]
    warning = f"{config}: confirmation.whenUnavailable is page, but the `dashboard` extra is not installed"
    doctor = [sys.executable, *forked([program, "doctor", "--json", *options])]
    report = await anyio.run_process(doctor, check=False)
    by_subject = {finding["subject"]: finding for finding in json.loads(report.stdout)["findings"]}
    assert by_subject["dashboard"]["health"] == "broken"
    assert re.search(r"install .*\[dashboard\]", by_subject["dashboard"]["remedy"])
    server = StdioServerParameters(command=sys.executable, args=forked([program, "serve", *options]))
    with (root.parent / "log").open("w+") as log:
        async with speaking(HANDSHAKE, stdio_client(server, log)) as client:
            result = await client.call_tool("edit", EDIT)
        log.seek(0)
        assert f"WARNING {warning}" in log.read()
    assert "confirmation.whenUnavailable" in text_of(result)
    assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.absent")
def test_there_is_no_dashboard_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_dashboard() is None
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Windows" in (why_no_dashboard() or "")


@pytest.mark.requirement("dashboard.answers")
async def test_a_call_that_is_too_long_to_be_shown_completely_can_only_be_denied(runtime: Path, root: Path) -> None:
    settings = {**ASKS_AT_PAGE, "mcpServers": {"up": stdio_upstream()}}
    async with client_and_browser(runtime, root, settings) as (client, browser):
        long = {"text": "x" * (MAX_BLOCK_CHARS + 1)}
        async with asking(client, "up__echo", long) as results:
            path, token = await question_on(browser)
            page = (await browser.get("/")).text
            assert "can only be denied here" in page
            assert 'value="once"' not in page
            response = await browser.post(path, data={"token": token, "decision": "once"})
            assert response.status_code == 400
            assert (await browser.post(path, data={"token": token, "decision": "deny"})).status_code == 303
    assert results[0].is_error


@pytest.mark.requirement("dashboard.forgery")
async def test_numbers_and_tokens_that_no_page_contains_are_refused(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root) as (_, browser):
        for number in ("9" * 5_000, "1" * 30, "-1", "x"):
            assert (await browser.get(f"changes/{number}")).status_code == 404
        half_a_pair = '--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n+2AA-\r\n--x--\r\n'
        headers = {"Content-Type": "multipart/form-data; boundary=x; charset=utf-7"}
        response = await browser.post("servers/up/off", content=half_a_pair, headers=headers)
        assert response.status_code == 403


@pytest.mark.requirement("dashboard.forgery")
async def test_answers_that_are_forged_or_replayed_change_nothing(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser):
        async with asking(client, "edit", EDIT) as results:
            path, token = await question_on(browser)
            yes = {"token": token, "decision": "once"}
            for headers in (
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Host": "evil.example"},
                {"Host": f"localhost.evil.example:{browser.base_url.port}"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
            ):
                assert (await browser.post(path, data=yes, headers=headers)).status_code == 403, headers
            async with httpx.AsyncClient(base_url=browser.base_url, cookies=browser.cookies) as plain:
                assert (await plain.post(path, data=yes)).status_code == 403  # no origin
            async with httpx.AsyncClient(base_url=browser.base_url, headers=browser.headers) as stranger:
                assert (await stranger.post(path, data=yes)).status_code == 403  # no cookie
                assert (await stranger.get("/")).status_code == 403
                assert (await stranger.get("/events")).status_code == 403
            for form in (
                {"decision": "once"},
                {**yes, "token": "0" * 64},
                {**yes, "decision": "save_all"},
                {**yes, "decision": ""},
            ):
                assert (await browser.post(path, data=form)).status_code in (400, 403), form
            assert (await browser.post(f"{path}x", data=yes)).status_code == 409
            assert (await browser.get(path, params=yes)).status_code == 405
            assert (await browser.post(f"{path}/longer", data=yes)).status_code == 403  # the token of another form
            assert (await browser.post(path, content=b"x" * 70_000)).status_code == 413
            assert (root / "a.py").read_text() == "print('hello')\n"
            assert (await browser.post(path, data={"token": token, "decision": "deny"})).status_code == 303
            assert (await browser.post(path, data=yes)).status_code == 409  # it has an answer already
        assert results[0].is_error
        assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.answers")
async def test_a_question_disappears_with_its_call_and_its_time_can_be_extended(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser):
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "edit", EDIT)
            path, _ = await question_on(browser)
            await wait_longer(browser, path)
            group.cancel_scope.cancel()
        with anyio.fail_after(CEILING):
            while "No question is waiting" not in (await browser.get("/")).text:
                await pause()
        assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.answers")
async def test_a_tool_that_was_switched_off_while_its_question_waited_does_not_run(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser):
        async with asking(client, "edit", EDIT) as results:
            await question_on(browser)
            pattern = r'(/tools/edit/off)"><input type="hidden" name="token" value="(\w+)"'
            path, token = re.findall(pattern, (await browser.get("/tools?q=edit")).text)[0]
            assert (await browser.post(path, data={"token": token, "q": ""})).status_code == 303
            await answered(browser, "once")
        assert "switched off on the dashboard" in text_of(results[0])
        assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.sign-in")
async def test_idle_connections_of_strangers_lock_nobody_out(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root) as (client, browser), AsyncExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            stream = await anyio.connect_tcp("127.0.0.1", browser.base_url.port or 0)
            stack.push_async_callback(stream.aclose)
            await stream.send(b"GET / HTTP/1.1\r\n")
        browser.headers["Connection"] = "close"
        with suppress(httpx.TransportError):  # the idle connection of this browser may have made room
            await browser.get("/servers")
        assert (await browser.get("/servers")).status_code == 200
        assert (await client.list_tools()).tools


@pytest.mark.requirement("dashboard.sign-in")
async def test_a_link_signs_one_browser_in_once(runtime: Path, root: Path) -> None:
    async with served(runtime, root):
        link = await link_of(runtime, root)
        home, code = parts_of(link)
        async with httpx.AsyncClient(headers={"Origin": origin_of(home)}) as other_browser:
            # A link preview that fetches the link does not use it up.
            assert (await other_browser.get(link)).status_code == 200
        async with signed_in(link) as browser:
            page = await browser.get("/")
            assert page.status_code == 200
            for name, value in {
                "cache-control": "no-store",
                "x-content-type-options": "nosniff",
                "cross-origin-opener-policy": "same-origin",
            }.items():
                assert page.headers[name] == value
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "access-control-allow-origin" not in page.headers
            second = await browser.post("/open", data={"code": code})
            assert second.status_code == 403
            assert "coretools-mcp dashboard" in second.text
        async with httpx.AsyncClient(headers={"Origin": origin_of(home)}) as other_browser:
            assert (await other_browser.post(f"{home}/open", data={"code": code})).status_code == 403
            assert (await other_browser.get(f"{home}/")).status_code == 403


@pytest.mark.requirement("dashboard.sign-in")
async def test_another_server_of_this_machine_is_sent_no_cookie_of_the_dashboard(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    heads: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            heads.append(await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", 10_000))
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(runtime, root))
        browse = await stack.enter_async_context(browsed_later(chromium))
        page = await browse(await link_of(runtime, root))
        listener = await stack.enter_async_context(await anyio.create_tcp_listener(local_host="127.0.0.1"))
        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(listener.serve, answer)
        port = listener.extra_attributes[SocketAttribute.local_port]()
        look = await page.context.new_page()
        await look.goto(f"http://127.0.0.1:{port}/")
        await look.evaluate("location.reload()")  # a reload by the page itself makes the request same-site
        await until(lambda: heads[1:])
        assert not [head for head in heads if b"cookie:" in head.lower()]
        await page.reload()
        assert "signs in one browser" not in await page.content()
        group.cancel_scope.cancel()


@pytest.mark.requirement("dashboard.sign-in")
def test_codes_expire_and_the_number_of_browsers_is_limited() -> None:
    now = 1_000.0
    sign_in = SignIn(lambda: now)
    code = sign_in.new_code()
    now += CODE_SECONDS + 1
    assert sign_in.use(code) is None
    assert sign_in.use("") is None
    sessions = [sign_in.use(sign_in.new_code()) for _ in range(MAX_BROWSERS + 1)]
    assert sessions[0] is not None
    assert sessions[-1] is not None
    assert sign_in.session(sessions[0].cookie) is None
    assert sign_in.session(sessions[-1].cookie) is sessions[-1]


async def accessible(page: Page, name: str, rules: dict[str, object] | None = None) -> None:
    """Fail if the page has accessibility problems."""
    results: AxeResults = await Axe().run(page, options=rules)  # pyright: ignore[reportUnknownMemberType] - the library has no types
    assert results.violations_count == 0, (name, results.generate_report())


SOME_PAGES = ("", "calls", "memory")
OTHER_PAGES = (*sorted(PAGES.keys() - SOME_PAGES), "servers/good", "nothing")


@pytest.mark.requirement("dashboard.pages")
@pytest.mark.parametrize("names", [SOME_PAGES, pytest.param(OTHER_PAGES, marks=pytest.mark.long)], ids=len)
async def test_every_page_is_accessible_and_shows_hostile_texts_as_plain_text(
    names: tuple[str, ...], runtime: Path, root: Path, chromium: Browser
) -> None:
    hostile = (
        "<script>document.title='owned'</script><img src=http://evil.example/x onerror=alert(1) hx-post=/x>\u202egnp"
    )
    (root / "AGENTS.md").write_text(f"## Added Memories\n- {hostile}\n")
    settings: dict[str, object] = {
        **ASKS_AT_PAGE,
        "mcpServers": {"good": stdio_upstream(), "bad": {"command": "there-is-no-such-command"}},
        "approvalMode": "default",
    }
    async with (
        served(runtime, root, settings=settings) as client,
        browsed(chromium, await link_of(runtime, root), viewport={"width": 360, "height": 700}) as page,
    ):
        origin = page.url
        await client.call_tool("read_file", {"absolute_path": hostile})
        await client.call_tool("todo_write", {"todos": [{"id": "1", "content": hostile, "status": "pending"}]})
        async with asking(client, "edit", {**EDIT, "new_string": hostile}):
            await expect(page.get_by_role("article")).to_be_visible()
            for name in names:
                await page.goto(f"{origin}{name}")
                await expect(page.get_by_role("heading", level=1)).to_be_visible()
                assert "owned" not in await page.title()
                assert await page.locator("main img, main script, main [onerror]").count() == 0
                await accessible(page, name)
                await page.emulate_media(color_scheme="dark")
                await accessible(page, name, {"runOnly": ["color-contrast"]})
                await page.emulate_media(color_scheme="light")
                if name in ("", "memory", "calls"):
                    assert "<script>document.title" in await page.inner_text("main")
                    assert "\u202e" not in await page.inner_text("body")
                overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert overflow <= 0, name
            await page.goto(origin)
            await page.get_by_role("button", name="Deny").click()
        await expect(page.get_by_text("No question is waiting")).to_be_visible()


@pytest.mark.requirement("dashboard.pages")
async def test_viewing_the_memory_page_does_not_count_as_a_read_by_the_client(runtime: Path, root: Path) -> None:
    memory = root / "AGENTS.md"
    memory.write_text("## Added Memories\n- one\n")
    async with client_and_browser(runtime, root, {"approvalMode": "yolo"}) as (client, browser):
        await client.call_tool("read_file", {"absolute_path": str(memory)})
        memory.write_text("## Added Memories\n- one\n- by hand\n")
        assert "by hand" in (await browser.get("/memory")).text
        audit = (await browser.get("/audit")).text
        assert audit.count('<td data-label="Tool">read_file</td>') == 1
        result = await client.call_tool("write_file", {"file_path": str(memory), "content": "gone\n"})
        assert "file_changed_since_read" in text_of(result)
        assert "by hand" in memory.read_text()


@pytest.mark.requirement("dashboard.pages")
async def test_servers_and_tools_are_switched_off_and_on_and_clients_see_it(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    settings: dict[str, object] = {"mcpServers": {"good": stdio_upstream()}}
    async with (
        served(runtime, root, settings=settings) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        origin = page.url

        async def names() -> set[str]:
            return {tool.name for tool in (await client.list_tools()).tools}

        async def until_listed(name: str, *, is_there: bool) -> None:
            with anyio.fail_after(CEILING):
                while (name in await names()) is not is_there:
                    await pause()

        await page.goto(f"{origin}tools?q=give+back+text")
        assert await page.get_by_role("button", name="Switch off").count() == 1
        await page.get_by_role("button", name="Switch off good__echo").click()
        await expect(page.get_by_role("button", name="Switch on good__echo")).to_be_visible()
        await until_listed("good__echo", is_there=False)
        refusal = await client.call_tool("good__echo", {"text": "x"})
        assert "switched off on the dashboard" in text_of(refusal)
        await page.get_by_role("button", name="Switch on good__echo").click()
        await until_listed("good__echo", is_there=True)
        await page.goto(f"{origin}servers")
        await page.get_by_role("button", name="Switch off good").click()
        await until_listed("good__echo", is_there=False)
        await page.get_by_role("button", name="Switch on good").click()
        await until_listed("good__echo", is_there=True)
        await page.get_by_role("button", name="Restart good").click()
        await until_listed("good__echo", is_there=True)
        assert not (await client.call_tool("good__echo", {"text": "x"})).is_error


@pytest.mark.requirement("dashboard.answers")
async def test_enter_in_the_reason_denies_and_the_next_question_appears_by_itself(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    async with (
        served(runtime, root, settings=ASKS_AT_PAGE) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        for _ in range(2):
            async with asking(client, "edit", EDIT) as results:
                await page.get_by_label("Reason").fill("no")
                await page.keyboard.press("Enter")
                await expect(page.get_by_text("No question is waiting")).to_be_visible()
            assert "Their reason: no" in text_of(results[0])
        assert (root / "a.py").read_text() == "print('hello')\n"


@pytest.mark.requirement("dashboard.pages")
async def test_typed_text_and_focus_survive_updates_of_the_page(runtime: Path, root: Path, chromium: Browser) -> None:
    async with (
        served(runtime, root, settings=ASKS_AT_PAGE) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
        asking(client, "edit", EDIT),
    ):
        await page.get_by_label("Reason").fill("because")
        await page.get_by_role("link", name="Calls").focus()
        changes = await page.evaluate("document.querySelectorAll('article').length")
        async with asking(client, "edit", {**EDIT, "new_string": "other"}):
            await expect(page.get_by_role("article")).to_have_count(changes + 1)
            assert await page.get_by_label("Reason").first.input_value() == "because"
            assert await page.evaluate("document.activeElement.innerText") == "Calls"
            for _ in range(2):
                await page.get_by_role("button", name="Deny").first.click()
        await expect(page.get_by_text("No question is waiting")).to_be_visible()


SOON = CEILING * 1_000
"""How long a page may take to show something, in milliseconds."""


async def seconds_shown(page: Page) -> int:
    """Return how many seconds the page says that the only question still waits."""
    minutes, seconds = re.findall(r"(?:(\d+) min )?(\d+) s", await page.inner_text("[data-seconds]"))[0]
    return int(minutes or 0) * 60 + int(seconds)


async def seconds_left(browser: httpx.AsyncClient) -> int:
    """Return how many seconds the server says that the only question still waits."""
    return int(re.findall(r'data-seconds="(\d+)"', (await browser.get("/")).text)[0])


@pytest.mark.requirement("dashboard.following")
async def test_the_countdown_of_a_question_continues_in_a_frozen_page_and_is_extended_in_every_page(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    async with (
        client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser),
        browsed(chromium, await link_of(runtime, root)) as page,
        asking(client, "edit", EDIT),
    ):
        path, _ = await question_on(browser)
        await expect(page.get_by_role("article")).to_be_visible()
        await page.get_by_label("Reason").fill("because")
        await page.evaluate("const end = performance.now() + 2500; while (performance.now() < end);")
        server_seconds = await seconds_left(browser)
        countdown = await page.inner_text("[data-seconds]")
        await expect(page.locator("[data-seconds]")).not_to_have_text(countdown)
        seconds_before = await seconds_shown(page)
        assert seconds_before <= server_seconds + 1
        await wait_longer(browser, path)
        with anyio.fail_after(CEILING):
            while await seconds_shown(page) <= seconds_before:
                await pause()
        assert await page.get_by_label("Reason").input_value() == "because"
        await answered(browser, "deny")


@pytest.mark.requirement("dashboard.following")
async def test_a_page_says_that_its_server_does_not_answer_and_recovers_when_it_does(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    alert = "The server does not answer"
    async with browsed_later(chromium) as browse:
        async with served(runtime, root, settings=ASKS_AT_PAGE) as client:
            page = await browse(await link_of(runtime, root))
            await page.context.set_offline(True)
            async with asking(client, "edit", EDIT):
                await expect(page.get_by_role("alert")).to_contain_text(alert, timeout=SOON)
                await page.context.set_offline(False)
                await expect(page.get_by_role("article")).to_be_visible(timeout=SOON)
                await expect(page.locator("#lost")).to_be_empty()
                await page.get_by_role("button", name="Deny").click()
        await expect(page.get_by_role("alert")).to_contain_text(alert, timeout=SOON)


@pytest.mark.requirement("dashboard.following")
async def test_a_page_beyond_the_limit_says_so_and_is_updated_less_often_until_others_are_closed(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    async with (
        client_and_browser(runtime, root) as (client, browser),
        browsed_later(chromium) as browse,
        AsyncExitStack() as streams,
    ):
        for _ in range(MAX_STREAMS):
            stream = await streams.enter_async_context(browser.stream("GET", "/events"))
            assert stream.status_code == 200
        page = await browse(await link_of(runtime, root))
        await page.goto(f"{page.url}calls")
        await expect(page.get_by_role("alert")).to_contain_text("Too many pages are open", timeout=SOON)
        await client.call_tool("read_file", {"absolute_path": str(root / "a.py")})
        await expect(page.get_by_role("cell", name="read_file")).to_be_visible(timeout=SOON)
        await streams.aclose()
        await expect(page.locator("#lost")).to_be_empty(timeout=SOON)


@pytest.mark.requirement("dashboard.following")
async def test_a_focused_item_is_updated_in_place_and_a_removed_one_is_marked_as_such(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    async with (
        served(runtime, root) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        todo = {"id": "1", "content": "first", "status": "pending"}
        await client.call_tool("todo_write", {"todos": [todo]})
        await page.goto(f"{page.url}memory")
        box = page.get_by_role("group", name="Todo list")
        await box.focus()
        await client.call_tool("todo_write", {"todos": [{**todo, "content": "second"}]})
        await expect(box).to_contain_text("second")
        await expect(box).to_be_focused()
        await client.call_tool("todo_write", {"todos": []})
        await expect(page.get_by_role("article")).to_contain_text("This no longer exists.")
        await expect(box).to_contain_text("second")


@pytest.mark.requirement("dashboard.following")
async def test_pages_show_changed_settings_and_their_problems(runtime: Path, root: Path, chromium: Browser) -> None:
    async with (
        served(runtime, root),
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        tools = await page.context.new_page()
        await tools.goto(f"{page.url}tools?q=glob")
        group = tools.locator("tbody", has=tools.get_by_role("rowheader", name="glob", exact=True))
        await expect(group).to_contain_text("Allowed")
        await page.goto(f"{page.url}settings")
        await expect(page.get_by_role("row", name="permissions.ask")).to_have_count(0)
        write_config(root.parent, {"permissions": {"ask": ["glob"]}, "nonsense": 1})
        await expect(page.get_by_role("row", name="permissions.ask")).to_be_visible(timeout=SOON)
        await expect(page.get_by_role("main")).to_contain_text("nonsense is not a known key")
        await expect(group).to_contain_text("Ask first", timeout=SOON)


@pytest.mark.requirement("dashboard.pages")
async def test_each_reason_is_shown_once_above_the_tools_that_it_applies_to(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root) as (_, browser):
        page = (await browser.get("/tools")).text
    reasons = re.findall(r'scope="rowgroup">([^<]+)<small>([^<]+)', page)
    assert len(reasons) == len(set(reasons)) < page.count('scope="row">')
    assert ("Allowed ", "makes no changes that need consent") in reasons


@pytest.mark.requirement("dashboard.pages")
async def test_the_models_description_of_a_command_is_separate_from_the_servers_own_text(
    runtime: Path, root: Path
) -> None:
    call = {"command": "touch a && rm a", "description": "A <b>harmless</b> check"}
    async with (
        client_and_browser(runtime, root, ASKS_AT_PAGE) as (client, browser),
        asking(client, "run_shell_command", call),
    ):
        await question_on(browser)
        page = (await browser.get("/")).text
        assert "<blockquote>A &lt;b&gt;harmless&lt;/b&gt; check</blockquote>" in page
        assert page.count("harmless") == 1
        await answered(browser, "deny")


@pytest.mark.requirement("dashboard.failures")
async def test_an_internal_error_is_a_page_with_one_sentence_and_a_traceback_in_the_log(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(load_settings([], {"workspace": {"roots": [str(root)]}}, {}), "stdio")
    dashboard, is_serving = Dashboard(app.running_server), anyio.Event()
    async with app.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(dashboard.serve, is_serving)
        await is_serving.wait()
        async with signed_in(dashboard.link()) as browser:
            app.running_server.audit.recent.append(lambda: {"tool": "a record without its time"})
            response = await browser.get("/audit")
            assert response.status_code == 500
            assert "coretools-mcp logs" in response.text
            assert "KeyError" not in response.text
            assert response.headers["content-security-policy"]
            assert (await browser.get("/calls")).status_code == 200
            assert "There is no such page." in (await browser.get("/questions/x")).text
        tasks.cancel_scope.cancel()
    assert "KeyError: 'time'" in caplog.text


@pytest.mark.requirement("dashboard.following")
async def test_other_calls_run_while_thousands_of_tools_are_searched(root: Path) -> None:
    app = App(load_settings([], {"workspace": {"roots": [str(root)]}}, {}), "stdio")
    record = ToolRecord("", "")
    app.registry.replace_source(
        "up",
        [
            DiscoveredMCPTool(
                "up",
                f"up__t{n}",
                {"name": f"t{n}", "description": "d" * 2_000},
                trusted=False,
                call=unreachable,
                record=record,
            )
            for n in range(10_000)
        ],
    )
    async with app.running():
        assert await turns_during(page_contents.tools(app.running_server, "")) > 4
        assert await turns_during(page_contents.tools(app.running_server, "no such words")) > 4
        assert (await page_contents.tools(app.running_server, "up__"))["more"] == 10_000 - page_contents.MAX_TOOLS


@pytest.mark.requirement("dashboard.undo")
async def test_changes_are_undone_on_the_dashboard_unless_the_file_has_changed_since(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    settings = {"approvalMode": "auto-edit"}
    async with (
        served(runtime, root, settings=settings) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        await client.call_tool("edit", EDIT)
        await client.call_tool("write_file", {"file_path": "new.txt", "content": "new\n"})
        await page.goto(f"{page.url}changes")
        rows = page.get_by_role("link", name="Undo")
        await expect(rows).to_have_count(2)
        await rows.nth(1).click()
        await expect(page.locator("ins")).to_contain_text("hello")
        (root / "a.py").write_text("print('moved on')\n")
        await page.get_by_role("button", name="Undo change").click()
        await expect(page.get_by_role("main")).to_contain_text("has changed since change")
        assert (root / "a.py").read_text() == "print('moved on')\n"
        await page.get_by_role("link", name="Changes").click()
        await page.get_by_role("link", name="Undo").first.click()
        await page.get_by_role("button", name="Undo change").click()
        await expect(page.get_by_role("heading", name="Changes")).to_be_visible()
        assert not (root / "new.txt").exists()


@pytest.mark.requirement("dashboard.pages")
async def test_calls_and_decisions_are_shown_from_the_start_with_denials_and_without_secrets(
    runtime: Path, root: Path
) -> None:
    denies: dict[str, object] = {"permissions": {"deny": ["Edit(a.py)"]}}
    long = {"file_path": "b.txt", "content": "x" * 700 + "token=ghp_" + "a" * 100_000}
    async with served(runtime, root, settings={**denies, "approvalMode": "auto-edit"}) as client:
        await client.call_tool("grep_search", {"pattern": "token=ghp_" + "a" * 36})
        await client.call_tool("read_file", {"absolute_path": str(root / "a.py")})
        await client.call_tool("write_file", long)
        assert (await client.call_tool("edit", EDIT)).is_error
        assert (await client.call_tool("read_file", {"absolute_path": str(root / "none")})).is_error
        async with signed_in(await link_of(runtime, root)) as browser:
            calls, audit = (await browser.get("/calls")).text, (await browser.get("/audit")).text
        assert "grep_search" in calls
        assert "read_file" in audit
        assert "ghp_" not in calls + audit
        assert HIDDEN in calls
        assert re.findall(r'data-label="Outcome">(\w+)<', calls) == ["failed", "denied", "done", "done", "done"]
        assert f"process {(await status_of(runtime, root))['pid']} in {root}</small>" in calls


@pytest.mark.requirement("dashboard.jobs")
async def test_a_background_job_is_stopped_on_the_dashboard(runtime: Path, root: Path) -> None:
    async with client_and_browser(runtime, root, {"approvalMode": "yolo"}) as (client, browser):
        start = await client.call_tool("run_shell_command", {"command": "sleep 1000", "is_background": True})
        assert not start.is_error, text_of(start)
        stop_form = re.search(
            r'action="/[\w-]{22}(/jobs/bg_\w+/stop)".*?value="(\w+)"', (await browser.get("/jobs")).text
        )
        assert stop_form is not None
        assert (await browser.post(stop_form[1], data={"token": "forged"})).status_code == 403
        assert (await browser.post(stop_form[1], data={"token": stop_form[2]})).status_code == 303
        assert "stopped" in (page := (await browser.get("/jobs")).text)
        assert "/stop" not in page


@pytest.mark.requirement("dashboard.pages")
async def test_a_call_by_way_of_the_tool_search_is_shown_as_a_call_of_the_tool_itself(
    runtime: Path, root: Path
) -> None:
    settings: dict[str, object] = {"proxy": {"search": "on"}, "mcpServers": {"demo": stdio_upstream(trust=True)}}
    async with client_and_browser(runtime, root, settings) as (client, browser):
        secret = "token=ghp_" + "a" * 36
        result = await client.call_tool("call_tool", {"name": "demo__echo", "arguments": {"text": secret}})
        assert text_of(result) == secret
        calls, audit = (await browser.get("/calls")).text, (await browser.get("/audit")).text
        for page in (calls, audit):
            assert "demo__echo" in page
            assert "call_tool" not in page
            assert "ghp_" not in page
        assert HIDDEN in calls
        assert "call it directly" in text_of(await client.call_tool("call_tool", {"name": "read_file"}))
        calls = (await browser.get("/calls")).text
        assert "call_tool" in calls
        assert "read_file" in calls


@pytest.mark.requirement("dashboard.sandbox")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
async def test_a_command_in_the_sandbox_may_reach_the_port_and_gets_nothing_there(runtime: Path, root: Path) -> None:
    settings: dict[str, object] = {"approvalMode": "yolo", "shell": {"sandbox": "required", "network": "host"}}
    async with served(runtime, root, settings=settings) as client:
        link = await link_of(runtime, root)
        home, _ = parts_of(link)
        program = (
            "import urllib.request as r, urllib.error\n"
            f"for path in ('/', '/tools', '/events', '/open?code=x'):\n"
            f"    try: print(path, r.urlopen('{home}' + path).status)\n"
            f"    except urllib.error.HTTPError as e: print(path, e.code)\n"
        )
        (root / "probe.py").write_text(program)
        result = await client.call_tool(
            "run_shell_command",
            {"command": "python3 probe.py; coretools-mcp dashboard; ls /run", "needs": "network"},
        )
        output = text_of(result)
        if "bubblewrap" in output and "/tools" not in output:
            pytest.skip("not run: bubblewrap does not run here")
        for line in ("/ 403", "/tools 403", "/events 403", "/open?code=x 200"):
            assert line in output
        assert "code=" not in output.replace("code=x", "")


@pytest.mark.requirement("dashboard.browser")
async def test_a_browser_gets_the_link_in_a_private_file_that_is_removed_with_the_server(
    runtime: Path, root: Path, browser: Path
) -> None:
    async with served(runtime, root):
        result = await ask(runtime, "dashboard", cwd=root, BROWSER=f"{browser} %s")
        assert (result.returncode, "browser" in result.stderr.partition("\n")[2]) == (0, False)
        (file,) = runtime.glob("coretools-mcp/*.html")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f"url={result.stdout.strip()}" in browser.with_name("browser.page").read_text()
    assert list((runtime / "coretools-mcp").iterdir()) == []


@pytest.mark.requirement("dashboard.browser")
async def test_files_that_a_killed_server_left_for_browsers_are_removed(
    runtime: Path, root: Path, browser: Path
) -> None:
    async with served(runtime, root):
        await ask(runtime, "dashboard", cwd=root, BROWSER=f"{browser} %s")
        assert list(runtime.glob("coretools-mcp/*.html"))
        os.kill((await status_of(runtime, root))["pid"], signal.SIGKILL)
        with anyio.fail_after(60):
            while list((runtime / "coretools-mcp").iterdir()):
                await ask(runtime, "status")


@pytest.mark.requirement("dashboard.browser")
@pytest.mark.parametrize("lacks", ["a browser", "a place"])
async def test_if_no_browser_can_be_started_a_sentence_says_so_and_the_link_is_printed(
    runtime: Path, root: Path, browser: Path, lacks: str
) -> None:
    async with served(runtime, root):
        if lacks == "a browser":
            variables = {"PATH": str(root), "DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
        else:
            variables = {"BROWSER": f"{browser} %s"}
            (socket,) = runtime.glob("coretools-mcp/*.sock")
            socket.with_suffix(".html").mkdir()
        result = await ask(runtime, "dashboard", cwd=root, **variables)
        assert result.returncode == 0
        assert "/open?code=" in result.stdout
        assert result.stderr.endswith("no browser could be started here; open the link yourself\n")
        assert not browser.with_name("browser.page").exists()


@pytest.mark.requirement("dashboard.sign-in")
async def test_no_list_status_or_log_contains_the_link(runtime: Path, root: Path) -> None:
    async with served(runtime, root) as client:
        _, code = parts_of(await link_of(runtime, root))
        output = str(await client.list_resources()) + str(await client.list_tools())
        output += (await ask(runtime, "logs", cwd=root)).stdout + (await ask(runtime, "status", "--json")).stdout
        assert code not in output


@pytest.mark.requirement("dashboard.sign-in")
async def test_the_id_of_a_process_that_is_no_server_is_refused_and_the_running_servers_are_named(
    tmp_path: Path,
) -> None:
    with runtime_folder() as runtime:
        async with served(runtime, tmp_path):
            result = await ask(runtime, "dashboard", "--pid", "1", cwd=tmp_path)
            assert (result.returncode, result.stdout) == (2, "")
            assert "no server with process ID 1 is running. To select one:\n" in result.stderr


@pytest.mark.requirement("lock.states")
async def test_a_blocked_tool_is_shown_and_approved_on_the_dashboard(
    runtime: Path, root: Path, chromium: Browser
) -> None:
    lock = root.parent / LOCK_NAME
    lock.write_bytes(lock_text({}))
    settings: dict[str, object] = {"mcpServers": {"good": stdio_upstream()}}
    async with (
        served(runtime, root, settings=settings) as client,
        browsed(chromium, await link_of(runtime, root)) as page,
    ):
        (server,) = (await status_of(runtime, root))["servers"]
        assert server["approval"].keys() == {"new"}
        await page.goto(f"{page.url}tools?q=good__echo")
        await page.get_by_text("Current version good__echo", exact=True).click()
        await expect(page.locator("tbody pre")).to_contain_text("Its description now:")
        # Opened details stay open when other parts of the page change, and close when they have changed themselves.
        await page.evaluate("document.querySelector('tbody td').append('outdated'); refresh()")
        await expect(page.locator("tbody pre")).to_be_visible()
        await expect(page.get_by_text("outdated")).to_have_count(0)
        await page.evaluate("document.querySelector('tbody pre').append('outdated'); refresh()")
        await expect(page.locator("tbody pre")).to_be_hidden()
        await page.get_by_text("Current version good__echo", exact=True).click()
        await page.get_by_role("button", name="Approve the current version").click()
        await expect(page.get_by_role("button", name="Approve the current version")).to_have_count(0)
        assert list(parse_lock(lock.read_bytes())["good"]["tools"]) == ["echo"]
        assert (
            "offers this tool, but"
            not in str(await client.list_tools()).partition("good__echo")[2].partition("name=")[0]
        )
