"""The messages for requests with a wrong path, a wrong method or a wrong token."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, listening, our_http_server, server_arguments

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-a-test-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
ADDRESS = r"serving MCP at (http://\S+?),"
ENDPOINTS = "MCP clients connect to /mcp (Streamable HTTP) or to /sse (SSE)"
ACCEPT = {"accept": "application/json, text/event-stream"}
HEADER = "the header 'Authorization: Bearer TOKEN'"


def server_with_token(root: Path, *, pattern: str = ADDRESS) -> Any:
    """Run a server whose token is in an environment variable; yield what a pattern captures in its start messages."""
    arguments = server_arguments(root, None, "--transport", "http", "--port", "0")
    return listening(["env", f"CORETOOLS_MCP_TOKEN={TOKEN}", sys.executable, *forked(arguments)], pattern)


def error_message(answer: httpx2.Response) -> str:
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    return str(body["error"]["message"])


@pytest.mark.requirement("network.refusals")
async def test_the_error_for_an_unknown_path_names_the_paths_of_the_server(root: Path) -> None:
    async with our_http_server(root, None) as url, httpx2.AsyncClient(timeout=10) as client:
        for method, path in (("GET", "/"), ("POST", "/"), ("GET", "/mpc"), ("POST", "/register")):
            answer = await client.request(method, url + path)
            assert answer.status_code == 404, path
            assert error_message(answer) == f"There is no MCP server at '{path}': {ENDPOINTS}."
        wrong_method = await client.post(f"{url}/sse", json={})
        assert wrong_method.status_code == 405
        assert "GET" in wrong_method.headers["allow"]
        assert error_message(wrong_method) == f"There is no POST at '/sse': {ENDPOINTS}."
        strange_path = await client.get(f"{url}/%E2%80%AE%0a" + "x" * 1000)
        assert error_message(strange_path).isascii()
        assert len(error_message(strange_path)) < 400


@pytest.mark.requirement("network.refusals")
async def test_a_server_with_sse_only_names_no_other_path(root: Path) -> None:
    async with our_http_server(root, None, "sse") as url, httpx2.AsyncClient(timeout=10) as client:
        message = error_message(await client.post(f"{url}/mcp", json={}))
    assert "clients connect to /sse (SSE); only --transport http serves /mcp" in message


@pytest.mark.requirement("network.refusals")
async def test_without_its_token_a_client_is_told_which_header_to_send_and_not_the_token(root: Path) -> None:
    async with server_with_token(root) as url, httpx2.AsyncClient(timeout=10) as client:
        cases: list[tuple[dict[str, str], str]] = [
            ({}, "A token is required: "),
            ({"authorization": "Bearer wrong"}, "The token is unknown: "),
        ]
        for headers, prefix in cases:
            for method, path in (("POST", "/mcp"), ("GET", "/mcp/"), ("GET", "/sse"), ("POST", "/messages/")):
                answer = await client.request(method, url + path, headers=headers)
                assert answer.status_code == 401, path
                message = error_message(answer)
                assert message.startswith(prefix)
                assert HEADER in message
                # Codex shows the challenge, and not the body.
                assert (
                    answer.headers["www-authenticate"] == f'Bearer error="invalid_token", error_description="{message}"'
                )
        # Some clients try to register for a login after a refusal.
        message = error_message(await client.post(f"{url}/register", json={}))
        assert message.startswith(f"There is no MCP server at '/register': {ENDPOINTS}. There, send {HEADER}")
        assert "no login (OAuth)" in message


@pytest.mark.requirement("network.refusals")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_a_client_shows_why_it_was_refused(root: Path, mode: str) -> None:
    async with server_with_token(root) as url:
        for path, headers, reason in (
            ("/mcp", {}, "A token is required"),
            ("/wrong", BEARER, "There is no MCP server"),
        ):
            with pytest.RaisesGroup(
                pytest.RaisesExc(MCPError, match=reason), allow_unwrapped=True, flatten_subgroups=True
            ):
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=10) as http,
                    Client(streamable_http_client(url + path, http_client=http), mode=mode, cache=None) as client,
                ):
                    await client.list_tools()


@pytest.mark.requirement("network.refusals")
async def test_a_slash_at_the_end_of_a_path_leads_to_the_same_server_without_a_redirect(root: Path) -> None:
    async with our_http_server(root, None) as url:
        async with httpx2.AsyncClient(timeout=10) as client:
            # Behind a proxy that terminates TLS, a redirect would lead to a wrong URL.
            assert (await client.post(f"{url}/mcp/", json={}, headers=ACCEPT)).status_code == 400
            async with client.stream("GET", f"{url}/sse/", headers=ACCEPT) as answer:
                assert answer.status_code == 200
            # A redirect could also lead to any host, because the client chooses the Host header.
            for path in ("/healthz/", "/readyz//", "/metrics/", "/messages", "/nowhere/"):
                answer = await client.get(f"{url}{path}", headers={"Host": "evil.example"})
                assert (answer.is_redirect, "evil" in answer.text) == (False, False)
            assert (await client.get(f"{url}/healthz/")).status_code == 200
        async with Client(f"{url}/mcp/", mode=HANDSHAKE, cache=None) as client:
            assert (await client.list_tools()).tools
        async with Client(sse_client(f"{url}/sse/"), mode=HANDSHAKE, cache=None) as client:
            assert (await client.list_tools()).tools


@pytest.mark.requirement("network.refusals")
async def test_the_start_tells_whether_a_token_is_needed(root: Path) -> None:
    async with server_with_token(root, pattern=r"serving MCP at .* paths /mcp and /sse, to (.*)\n") as audience:
        assert audience == "clients that send a token"
    arguments = server_arguments(root, None, "--transport", "sse", "--port", "0")
    async with listening([sys.executable, *forked(arguments)], r"serving MCP at .* paths /sse, to (.*)\n") as audience:
        assert audience == "every client, without a token"
