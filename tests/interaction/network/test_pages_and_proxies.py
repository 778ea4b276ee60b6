"""Clients that are web pages, use a proxy with a path prefix, accept only JSON, or send batches."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.interaction.serving import SharedServers
from tests.interaction.test_lifecycle import running
from tests.waiting import CEILING

PAGE = "https://page.example"
SETTINGS = {
    "http": {"allowedOrigins": [PAGE], "rootPath": "/tools", "trustedProxies": ["127.0.0.1"]},
    "workspace": {"roots": ["."]},
}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, mcp-session-id"}


def hello(revision: str) -> dict[str, Any]:
    """The `initialize` request."""
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def ping(identity: int | str) -> dict[str, Any]:
    """A `ping` request."""
    return {"jsonrpc": "2.0", "id": identity, "method": "ping"}


def session_at(http: httpx2.Client, revision: str, **headers: str) -> dict[str, str]:
    """Open a session; return the headers of its requests."""
    response = http.post("/mcp", json=hello(revision), headers=headers)
    assert response.status_code == 200, response.text
    return {**headers, "mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": revision}


@pytest.mark.requirement("http.pages")
def test_only_pages_of_allowed_origins_may_send_requests_and_read_answers(shared_servers: SharedServers) -> None:
    with httpx2.Client(base_url=shared_servers.url(SETTINGS), timeout=CEILING) as http:
        for path in ("/mcp", "/sse", "/messages"):
            preflight = http.options(path, headers={"Origin": PAGE, **PREFLIGHT})
            assert preflight.status_code == 204
            assert preflight.headers["access-control-allow-origin"] == PAGE
            assert "POST" in preflight.headers["access-control-allow-methods"]
            assert preflight.headers["access-control-allow-headers"] == "content-type, mcp-session-id"
        for origin in ("https://other.example", "null", f"{PAGE}.evil.example"):
            refusal = http.options("/mcp", headers={"Origin": origin, **PREFLIGHT})
            assert refusal.status_code == 403
            assert "access-control-allow-origin" not in refusal.headers
        local_preflight = http.options("/mcp", headers={"Origin": "http://localhost:1", **PREFLIGHT})
        assert local_preflight.status_code == 405
        assert "access-control-allow-origin" not in local_preflight.headers
        answer = http.post("/mcp", json=hello("2025-11-25"), headers={"Origin": PAGE})
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
        wrong_response = http.post("/mcp", content=b"{", headers={"Origin": PAGE, "Content-Type": "application/json"})
        assert (wrong_response.status_code, wrong_response.headers["access-control-allow-origin"]) == (400, PAGE)
        assert "access-control-allow-origin" not in http.post("/mcp", json=hello("2025-11-25")).headers
        with http.stream("GET", "/sse", headers={"Origin": PAGE}) as stream:
            assert stream.headers["access-control-allow-origin"] == PAGE


@pytest.mark.requirement("http.root-path")
def test_the_endpoint_of_a_client_over_sse_has_the_path_prefix_of_the_proxy(shared_servers: SharedServers) -> None:
    prefix_headers = {"X-Forwarded-Prefix": "/other/"}
    with httpx2.Client(base_url=shared_servers.url(SETTINGS), timeout=CEILING) as http:
        for headers, path in (
            ({}, "/tools/messages/"),
            (prefix_headers, "/other/messages/"),
            ({**prefix_headers, "X-Forwarded-For": "10.0.0.1"}, "/other/messages/"),
            ({"X-Forwarded-Prefix": "//evil.example"}, "/tools/messages/"),
            ({"X-Forwarded-Prefix": "/a/../.."}, "/tools/messages/"),
            ({"X-Forwarded-Prefix": "/./"}, "/tools/messages/"),
            ({"X-Forwarded-Prefix": "/.a/b..c"}, "/.a/b..c/messages/"),
        ):
            with http.stream("GET", "/sse", headers=headers) as stream:
                lines = stream.iter_lines()
                assert next(lines) == "event: endpoint"
                endpoint = next(lines).removeprefix("data: ")
                assert endpoint.startswith(f"{path}?session_id=")
                # It works whether or not the proxy removes its prefix from the path.
                for target in (endpoint, endpoint.removeprefix(path.removesuffix("/messages/"))):
                    assert http.post(target, json=ping(1), headers=headers).status_code == 202
        assert http.post("/tools/mcp", json=hello("2025-11-25")).status_code == 200
        assert http.get("/toolsmcp").status_code == 404
    with (
        httpx2.Client(base_url=shared_servers.url(), timeout=CEILING) as http,
        http.stream("GET", "/sse", headers=prefix_headers) as stream,
    ):
        lines = stream.iter_lines()
        assert [next(lines), next(lines).partition("?")[0]] == ["event: endpoint", "data: /messages/"]


@pytest.mark.requirement("http.json")
@pytest.mark.parametrize("accept", ["application/json", "Application/JSON;q=0.9, text/*;q=0"])
def test_a_client_that_accepts_only_json_gets_the_answer_as_json(accept: str, shared_servers: SharedServers) -> None:
    with httpx2.Client(base_url=shared_servers.url(SETTINGS), timeout=CEILING, headers={"Accept": accept}) as http:
        headers = session_at(http, "2025-11-25")
        http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        # The call reports progress before its answer, and takes longer than most calls.
        arguments = {"command": "sleep 1.5; echo done", "description": "Wait"}
        params = {"name": "run_shell_command", "arguments": arguments, "_meta": {"progressToken": 1}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        answer = http.post("/mcp", json=call, headers=headers)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["id"] == 2
        assert http.get("/mcp", headers=headers).status_code == 406
        for wrong_accept in ("application/json; Q=0", "application/*;q=0.0, */*", "text/event-stream"):
            assert http.post("/mcp", json=call, headers={**headers, "Accept": wrong_accept}).status_code == 406


@pytest.mark.requirement("http.batches")
def test_a_batch_gets_a_batch_of_answers_in_the_revision_that_has_batches(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    with (
        httpx2.Client(base_url=shared_servers.url(SETTINGS), timeout=CEILING) as http,
        running(tmp_path.resolve()) as stdio,
    ):
        stdio.send(hello("2025-03-26"))
        assert stdio.answer()["id"] == 1
        headers = session_at(http, "2025-03-26")
        answers = http.post(
            "/mcp", json=[notification, ping(5), ping("six"), {**ping(7), "method": "no"}], headers=headers
        )
        assert answers.status_code == 200
        assert {answer["id"]: "error" in answer for answer in answers.json()} == {5: False, "six": False, 7: True}
        assert http.post("/mcp", json=[notification, notification], headers=headers).status_code == 202
        assert http.post("/mcp", json=[ping(8), ping(8)], headers=headers).json()[1]["id"] == 8
        long_batch = [ping(number) for number in range(129)]
        for wrong_batch, reason in (
            ([], "valid MCP message"),
            ([ping(1), 2], "valid MCP message"),
            ([[ping(1)]], "valid MCP message"),
            (long_batch, "more than 128 messages"),
            ([ping(1), {**hello("2025-03-26"), "id": 2}], "initialize"),
        ):
            refusal = http.post("/mcp", json=wrong_batch, headers=headers)
            assert refusal.status_code == 400
            assert reason in refusal.json()["error"]["message"]
            stdio.send(json.dumps(wrong_batch).encode())
            assert stdio.answer() == refusal.json()
        assert http.post("/mcp", json=ping(9), headers=headers).json() == {"jsonrpc": "2.0", "id": 9, "result": {}}
        for revision in ("2024-11-05", "2025-06-18"):
            other_headers = session_at(http, revision)
            assert http.post("/mcp", json=[ping(5)], headers=other_headers).status_code == 400


@pytest.mark.requirement("http.large")
def test_large_bodies_are_read_like_small_ones_but_not_for_unknown_sessions(shared_servers: SharedServers) -> None:
    url = httpx2.URL(shared_servers.url(SETTINGS))
    with httpx2.Client(base_url=url, timeout=CEILING) as http:
        headers = session_at(http, "2025-03-26")
        filler = {str(number): 1 for number in range(50_000)}
        cases: tuple[tuple[Any, Any], ...] = (
            ({**ping(1), **filler}, {"jsonrpc": "2.0", "id": 1, "result": {}}),
            ({**ping(2), "params": filler}, {"jsonrpc": "2.0", "id": 2, "result": {}}),
            (
                [ping(3), {**ping(4), "params": filler}],
                [{"jsonrpc": "2.0", "id": identity, "result": {}} for identity in (3, 4)],
            ),
        )
        for body, answer in cases:
            assert http.post("/mcp", json=body, headers=headers).json() == answer
        assert http.post("/mcp", json=filler, headers=headers).status_code == 400
    for path in ("/mcp", "/messages/?session_id=" + "0" * 32):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n"
        )
        with socket.create_connection((url.host, url.port or 0), timeout=CEILING) as wire:
            wire.sendall(f"{head}Mcp-Session-Id: {'0' * 32}\r\n\r\n".encode())
            assert b" 404 " in wire.recv(100)


@pytest.mark.requirement("http.second-get")
def test_a_second_stream_takes_the_place_of_the_first(shared_servers: SharedServers) -> None:
    with httpx2.Client(base_url=shared_servers.url(SETTINGS), timeout=CEILING) as http:
        headers = {**session_at(http, "2025-11-25"), "Accept": "text/event-stream"}
        with (
            http.stream("GET", "/mcp", headers=headers) as first,
            http.stream("GET", "/mcp", headers=headers) as second,
        ):
            assert (first.status_code, second.status_code) == (200, 200)
            assert list(first.iter_lines()) == []
