"""Tokens, certificates and health checks of a real server."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from cryptography.hazmat.primitives import serialization
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, listening, server_arguments, write_config
from tests.unit.web.certificates import signed_for

pytestmark = pytest.mark.anyio

TOKENS = {"laptop": "laptop-token-" + "a" * 20, "bot": "bot-token-" + "b" * 20}
ADDRESS = r"serving MCP at (https?://\S+?),"
ACCEPT = {"accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name]}"}


def write_settings(folder: Path, fields: Mapping[str, Any] | None = None) -> Path:
    """Write a settings file that names both tokens, each in its own file."""
    tokens: dict[str, Any] = {}
    for name, token in TOKENS.items():
        path = folder / f"{name}.token"
        path.write_text(token)
        path.chmod(0o600)
        tokens[name] = {"file": str(path)}
    return write_config(folder, {"http": {"tokens": tokens}, "shell": {"sandbox": "off"}, **(fields or {})})


@asynccontextmanager
async def serving(root: Path | None, config: Path, *options: str) -> AsyncGenerator[str]:
    arguments = server_arguments(root, config, "--transport", "http", "--port", "0", *options)
    async with listening([sys.executable, *forked(arguments)], ADDRESS) as url:
        yield url


@asynccontextmanager
async def client_of(
    url: str, name: str, transport: str = "http", mode: str = HANDSHAKE, **callbacks: Any
) -> AsyncGenerator[Client]:
    """A client with the token of this name."""
    if transport == "sse":
        async with Client(sse_client(f"{url}/sse", headers=bearer(name)), mode=mode, cache=None) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers=bearer(name), timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, cache=None, **callbacks) as client,
    ):
        yield client


async def jobs_of(client: Client) -> str:
    result = await client.call_tool("list_background_jobs", {})
    return str(result.content)


@pytest.mark.requirement("network.tokens")
@pytest.mark.requirement("network.health")
async def test_without_a_token_only_health_checks_are_answered(root: Path, tmp_path: Path) -> None:
    async with serving(root, write_settings(tmp_path)) as url, httpx2.AsyncClient(timeout=10) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKENS['bot']}"}):
            for path in ("/mcp", "/messages/?session_id=" + "0" * 32):
                answer = await client.post(url + path, json=INITIALIZE, headers=ACCEPT | headers)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer")
            assert (await client.get(f"{url}/sse", headers=headers)).status_code == 401
        fine = await client.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPT | bearer("bot"))
        assert fine.status_code == 200
        assert (await client.get(f"{url}/healthz")).json() == {"status": "ok"}
        assert (await client.get(f"{url}/readyz")).json() == {"status": "ready"}


@pytest.mark.requirement("network.tokens")
@pytest.mark.parametrize(
    ("transport", "mode"), [("http", HANDSHAKE), ("http", MODERN), ("sse", HANDSHAKE), ("sse", MODERN)]
)
async def test_with_a_token_every_client_works(root: Path, tmp_path: Path, transport: str, mode: str) -> None:
    (root / "notes.txt").write_text("the notes")
    async with serving(root, write_settings(tmp_path)) as url, client_of(url, "laptop", transport, mode) as client:
        result = await client.call_tool("read_file", {"absolute_path": str(root / "notes.txt")})
        assert "the notes" in str(result.content)


@pytest.mark.requirement("network.principal")
async def test_a_session_is_used_only_with_the_token_that_opened_it(root: Path, tmp_path: Path) -> None:
    async with serving(root, write_settings(tmp_path)) as url, httpx2.AsyncClient(timeout=10) as client:
        response = await client.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPT | bearer("laptop"))
        session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        foreign = await client.post(f"{url}/mcp", json=ping, headers=ACCEPT | bearer("bot") | session)
        assert foreign.status_code == 404
        own = await client.post(f"{url}/mcp", json=ping, headers=ACCEPT | bearer("laptop") | session)
        assert own.status_code == 200


@pytest.mark.requirement("network.principal")
async def test_what_belongs_to_a_client_belongs_to_its_token_in_all_its_sessions(root: Path, tmp_path: Path) -> None:
    async with serving(root, write_settings(tmp_path), "--approval-mode", "yolo") as url:
        async with client_of(url, "laptop") as first:
            job = {"command": "exec sleep 300", "is_background": True}
            assert not (await first.call_tool("run_shell_command", job)).is_error
        for transport, mode in (("http", HANDSHAKE), ("http", MODERN), ("sse", HANDSHAKE)):
            async with client_of(url, "laptop", transport, mode) as laptop:
                assert "sleep 300" in await jobs_of(laptop)
            async with client_of(url, "bot", transport, mode) as bot:
                assert "sleep 300" not in await jobs_of(bot)


@pytest.mark.requirement("network.tls")
async def test_a_non_loopback_address_is_served_only_with_a_token_and_for_allowed_hosts(
    root: Path, tmp_path: Path
) -> None:
    settings = {"http": {"allowedHosts": ["tools.example:*"]}}
    config = write_config(tmp_path, settings)
    arguments = server_arguments(root, config, "--transport", "http", "--port", "0", "--host", "0.0.0.0")  # noqa: S104
    command = ["env", f"CORETOOLS_MCP_TOKEN={TOKENS['bot']}", sys.executable, *forked(arguments)]
    async with listening(command, ADDRESS) as url, httpx2.AsyncClient(timeout=10) as client:
        local = url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        for host, status in (("tools.example:8808", 200), ("evil.example", 421)):
            headers = ACCEPT | bearer("bot") | {"host": host}
            assert (await client.post(f"{local}/mcp", json=INITIALIZE, headers=headers)).status_code == status
        assert (await client.post(f"{local}/mcp", json=INITIALIZE, headers=ACCEPT)).status_code == 401


def certificate(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """Write a certificate for localhost and its key; return the two files."""
    key, x509 = signed_for("localhost")
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(x509.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    return files


@pytest.mark.requirement("network.tls")
async def test_https_is_served_with_a_certificate(root: Path, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    options = ("--tls-cert", str(chain), "--tls-key", str(key))
    ssl_context = ssl.create_default_context(cafile=str(chain))
    async with (
        serving(root, write_settings(tmp_path), *options) as url,
        httpx2.AsyncClient(verify=ssl_context) as client,
    ):
        assert url.startswith("https://")
        local = url.replace("127.0.0.1", "localhost")
        answer = await client.post(f"{local}/mcp", json=INITIALIZE, headers=ACCEPT | bearer("bot"))
        assert answer.status_code == 200


@pytest.mark.requirement("network.tls")
def test_an_unusable_certificate_is_reported_before_anything_starts(root: Path, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, b"secret")
    cases = [
        (["--tls-cert", str(chain), "--tls-key", str(key)], "must have no password"),
        (["--tls-cert", str(chain)], "must be PEM files that belong together"),
        (["--tls-cert", str(tmp_path / "none.pem")], "There is no file"),
        (["--tls-key", str(key)], "needs --tls-cert"),
    ]
    for options, message in cases:
        arguments = server_arguments(root, None, "--transport", "http", "--port", "0", *options)
        result = subprocess.run(
            [sys.executable, *forked(arguments)], capture_output=True, encoding="utf-8", timeout=30, check=False
        )
        assert result.returncode == 3, options
        assert message in result.stderr


@pytest.mark.requirement("write.stale")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_what_one_agent_has_read_does_not_count_for_another_agent_with_the_same_token(
    transport: str, root: Path, tmp_path: Path
) -> None:
    path = root / "notes.txt"
    path.write_text("one\n")
    async with (
        serving(root, write_settings(tmp_path), "--approval-mode", "auto-edit") as url,
        client_of(url, "laptop", transport) as first,
        client_of(url, "laptop", transport) as second,
    ):
        await first.call_tool("read_file", {"file_path": str(path)})
        result = await second.call_tool("write_file", {"file_path": str(path), "content": "two\n"})
        assert not result.is_error, result.content
        refusal = await first.call_tool("write_file", {"file_path": str(path), "content": "three\n"})
        assert "[file_changed_since_read]" in str(refusal.content)
        assert path.read_text() == "two\n"
        path.write_text("four\n")
        async with client_of(url, "laptop", transport) as third:  # it has never read the file
            assert not (await third.call_tool("write_file", {"file_path": str(path), "content": "5\n"})).is_error


@pytest.mark.requirement("write.stale")
async def test_without_sessions_no_agent_silently_reverts_what_another_agent_with_the_same_token_wrote(
    root: Path, tmp_path: Path
) -> None:
    path = root / "notes.txt"
    other_program: dict[str, Any] = {"client_info": types.Implementation(name="other", version="1")}
    path.write_text("one\ntwo\nthree\n")
    async with (
        serving(root, write_settings(tmp_path), "--approval-mode", "auto-edit") as url,
        client_of(url, "laptop", mode=MODERN) as first,
        client_of(url, "laptop", mode=MODERN) as second,
        client_of(url, "laptop", mode=MODERN, **other_program) as third,
    ):
        for client in (first, second, third):
            await client.call_tool("read_file", {"file_path": str(path)})
        for content in ("one\nTWO\nthree\n", "one\nTWO\nthree\n4\n"):
            result = await first.call_tool("write_file", {"file_path": str(path), "content": content})
            assert not result.is_error, result.content
        stale = {"file_path": str(path), "content": "one\ntwo\nTHREE\n"}
        for client in (second, third):
            refusal = await client.call_tool("write_file", stale)
            assert "[file_changed_since_read]" in str(refusal.content)
        assert path.read_text() == "one\nTWO\nthree\n4\n"
        assert not (await second.call_tool("write_file", stale)).is_error, "a repeated write is accepted"


@pytest.mark.requirement("write.hidden")
async def test_without_sessions_a_permission_to_read_a_file_does_not_show_it_to_another_agent_with_the_token(
    root: Path, tmp_path: Path
) -> None:
    path, messages = root / ".env", list[str]()
    path.write_text("KEY=of-nobody\n")

    async def agree(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        messages.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})

    config = write_settings(tmp_path, {"permissions": {"ask": ["Read(.env)"]}})
    async with (
        serving(root, config) as url,
        client_of(url, "laptop", mode=MODERN, elicitation_callback=agree) as first,
        client_of(url, "laptop", mode=MODERN, elicitation_callback=agree) as second,
    ):
        read_result = await first.call_tool("read_file", {"file_path": str(path)})
        assert "of-nobody" in str(read_result.content)
        write_result = await second.call_tool("write_file", {"file_path": str(path), "content": "KEY=x\n"})
        assert not write_result.is_error, write_result.content
        assert "of-nobody" not in f"{messages}{write_result}"


@pytest.mark.requirement("consent.always")
async def test_an_answer_that_counts_in_every_session_of_a_token_says_so(root: Path, tmp_path: Path) -> None:
    schemas: list[str] = []

    async def decline(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        schemas.append(str(params.requested_schema))
        return types.ElicitResult(action="decline")

    async with (
        serving(root, write_settings(tmp_path)) as url,
        client_of(url, "laptop", elicitation_callback=decline) as client,
    ):
        await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x\n"})
    assert f"Always allow edits in {root} in all sessions of laptop" in schemas[0]
    arguments = server_arguments(root, write_config(tmp_path, {}), "--transport", "http", "--port", "0")
    command = ["env", f"CORETOOLS_MCP_TOKEN={TOKENS['bot']}", sys.executable, *forked(arguments)]
    async with listening(command, ADDRESS) as url, client_of(url, "bot", elicitation_callback=decline) as client:
        await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x\n"})
    assert f"Always allow edits in {root} in all sessions of this token" in schemas[1]
