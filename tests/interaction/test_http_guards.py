"""Requests that the HTTP transports refuse before they reach the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.harness import our_http_server, write_config

pytestmark = pytest.mark.anyio

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.requirement("http.headers")
async def test_foreign_hosts_and_origins_and_large_bodies_are_refused(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"requestBytes": 100_000}})
    async with our_http_server(root, config) as url, httpx2.AsyncClient(timeout=10) as client:
        for path in ("/mcp", "/messages/?session_id=" + "0" * 32):
            host_response = await client.post(url + path, json=INITIALIZE, headers=ACCEPT | {"host": "evil.example"})
            assert host_response.status_code == 421, path
            origin_response = await client.post(
                url + path, json=INITIALIZE, headers=ACCEPT | {"origin": "http://evil.example"}
            )
            assert origin_response.status_code == 403, path
        assert (await client.get(f"{url}/sse", headers={"host": "evil.example"})).status_code == 421
        assert (await client.get(f"{url}/sse", headers={"origin": "http://evil.example"})).status_code == 403
        large_response = await client.post(f"{url}/mcp", content=b"x" * 200_000, headers=ACCEPT)
        assert large_response.status_code == 413
        valid_response = await client.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPT)
        assert valid_response.status_code == 200


@pytest.mark.requirement("http.headers")
async def test_sse_alone_serves_no_streamable_http(root: Path) -> None:
    async with our_http_server(root, None, "sse") as url, httpx2.AsyncClient(timeout=10) as client:
        assert (await client.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPT)).status_code == 404
