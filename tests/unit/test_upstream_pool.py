"""The pool of upstreams: it waits once for the first lists, and it finds the owner of a name."""

from __future__ import annotations

import errno
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.settings import UpstreamSettings
from server.upstreams.connections import connection
from server.upstreams.connections.connection import Audience, UpstreamState
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.connections.tool_owner import owner_of
from tests.harness import PEERS
from tests.pools import ONE_CLIENT, quiet_pool, refuse_calls
from tools.builtin.all_tools import builtin_tools
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_errors import ToolError

pytestmark = pytest.mark.anyio

HUNG = UpstreamSettings(command=sys.executable, args=(str(PEERS / "hung.py"),))

MIRROR = """
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "mirror", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    else:
        result = {"tools": [], "_meta": request.get("params", {}).get("_meta")}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
"""A server whose answers repeat the `_meta` of the request, so that each client takes the server for itself."""

REFUSAL = """
import json, sys

error = {"code": -32603, "message": "API_KEY is not set"}
print(json.dumps({"jsonrpc": "2.0", "id": json.loads(sys.stdin.readline())["id"], "error": error}), flush=True)
"""


ONLY_DISCOVERY = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    is_known = message["method"] == "server/discover"
    error = {"code": -32603, "message": "API_KEY is not set"} if is_known else {"code": -32601, "message": "unknown"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""
"""A server of the 2026-07-28 revision that cannot serve."""

ONLY_HANDSHAKE = """
import json, sys

results = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {}}, "tools/list": {"tools": []}}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"""
"""A server that does not respond to unknown methods."""


async def first_problem(program: str, audience: Audience = ONE_CLIENT, **options: Any) -> str:
    """Return why the first connection to a program in Python failed; empty if it did not."""
    pool = quiet_pool({"bad": UpstreamSettings(command=sys.executable, args=("-c", program), **options)})
    (bad,) = pool.upstreams
    async with anyio.create_task_group() as tasks:
        pool.start(tasks, audience)
        with anyio.fail_after(60):
            await bad.known.wait()
        tasks.cancel_scope.cancel()
    return bad.status.last_error


def pool_of(*aliases: str) -> UpstreamPool:
    return quiet_pool(dict.fromkeys(aliases, HUNG), first_list_wait_seconds=0.3)


@pytest.mark.requirement("upstream.first_list")
async def test_only_the_first_lists_wait_for_a_hung_upstream() -> None:
    pool = pool_of("hung")
    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        await pool.wait_for_first_list()
        assert not pool.upstreams[0].known.is_set()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pool.wait_for_first_list()
        # A wait would have been cancelled.
        assert not scope.cancelled_caught
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("upstream.first_list")
async def test_there_is_no_wait_before_the_start() -> None:
    with anyio.fail_after(20):
        await pool_of("hung").wait_for_first_list()


@pytest.mark.requirement("proxy.status")
async def test_a_failure_is_a_warning_when_it_is_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_RETRY_SECONDS", 0.01)
    program = tmp_path / "program"
    pool = quiet_pool({"bad": UpstreamSettings(command=str(program), cwd=str(tmp_path))})
    (bad,) = pool.upstreams

    async def attempts(count: int) -> None:
        while bad.status.attempts < count:
            bad.retry_now()
            await anyio.sleep(0.001)

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        with anyio.fail_after(60):
            await attempts(5)
            missing = "upstream bad is not available: its command was not found"
            assert warnings() == [missing]
            script = tmp_path / "written"
            script.write_text("#!/bin/sh\nexit 3\n")
            script.chmod(0o755)
            script.rename(program)  # atomic: no attempt must find the file before it is executable
            await attempts(12)
        failure_text = "upstream bad is not available: it ended or did not answer during the connection attempt"
        assert warnings() == [missing, failure_text]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.status")
async def test_a_program_that_cannot_be_executed_is_reported_with_the_error_of_the_system(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("neither a script nor a binary\n")
    program.chmod(0o755)
    pool = quiet_pool({"bad": UpstreamSettings(command=str(program), cwd=str(tmp_path))})
    (bad,) = pool.upstreams
    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        with anyio.fail_after(60):
            await bad.known.wait()
        tasks.cancel_scope.cancel()
    assert bad.status.last_error == f"the connection failed: {os.strerror(errno.ENOEXEC)}"


@pytest.mark.requirement("proxy.status")
@pytest.mark.parametrize("ending", ["", "sys.stdin.read()"], ids=["exits", "answers nothing else"])
async def test_the_error_with_which_a_server_refuses_the_handshake_is_reported_within_a_short_time_limit(
    ending: str,
) -> None:
    assert await first_problem(REFUSAL + ending, connect_timeout=6_000) == (
        "it answered initialize with error -32603: API_KEY is not set"
    )


@pytest.mark.requirement("proxy.status")
async def test_the_error_with_which_a_server_refuses_the_only_revision_is_reported() -> None:
    assert await first_problem(REFUSAL + "sys.stdin.read()", protocol="2026-07-28") == (
        "it answered server/discover with error -32603: API_KEY is not set"
    )


@pytest.mark.requirement("proxy.status")
@pytest.mark.parametrize("is_modern", [False, True])
async def test_the_error_of_a_server_without_the_handshake_is_reported_to_clients_of_both_eras(is_modern: bool) -> None:
    assert await first_problem(ONLY_DISCOVERY, replace(ONE_CLIENT, is_modern=is_modern)) == (
        "it answered server/discover with error -32603: API_KEY is not set"
    )


@pytest.mark.requirement("proxy.status")
async def test_a_server_that_knows_only_the_handshake_is_connected_within_a_short_time_limit() -> None:
    assert await first_problem(ONLY_HANDSHAKE, replace(ONE_CLIENT, is_modern=True), connect_timeout=6_000) == ""


@pytest.mark.requirement("upstream.errors")
async def test_a_call_right_after_a_lost_connection_is_not_told_that_the_server_is_connected() -> None:
    (upstream,) = quiet_pool({"lost": UpstreamSettings(command="a-command")}).upstreams
    upstream.status.change(UpstreamState.CONNECTED)  # as in the moment before the end of a session changes the state
    assert "its connection was just lost" in upstream.unavailable().message


@pytest.mark.requirement("relay.ring")
async def test_a_server_that_is_left_out_is_not_tried_again_when_it_is_called() -> None:
    pool = quiet_pool({"me": UpstreamSettings(command=sys.executable, args=("-c", MIRROR))})
    (me,) = pool.upstreams
    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        with anyio.fail_after(60):
            await me.known.wait()
        for _ in range(3):
            with pytest.raises(ToolError, match="state left out: it is this server itself"):
                raise me.unavailable()
            await anyio.wait_all_tasks_blocked()
            assert me.status.attempts == 1
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.names")
def test_a_published_name_finds_its_upstream() -> None:
    pool = pool_of("one", "one-more")
    owners = [owner_of(pool, name) for name in ("one__x", "one-more__x", "one", "two__x", "read_file")]
    assert [owner.alias if owner else None for owner in owners] == ["one", "one-more", None, None, None]


@pytest.mark.requirement("proxy.names.unprefixed")
def test_only_an_unowned_name_may_belong_to_a_server_without_a_prefix() -> None:
    registry = ToolRegistry()
    for tool in builtin_tools():
        registry.register_tool(tool)
    entry_without_prefix = HUNG.model_copy(update={"prefix": "none"})
    pool = quiet_pool({"one": HUNG, "bare": entry_without_prefix}, registry=registry)
    owners = [owner_of(pool, name) for name in ("read_file", "replace", "search", "one__x")]
    assert [owner.alias if owner else None for owner in owners] == [None, None, "bare", "one"]
    pool.catalog.set_listed("bare", [{"name": "find"}], refuse_calls(pool.upstreams[1]))
    owners = [owner_of(pool, name) for name in ("find", "search")]
    assert [owner.alias if owner else None for owner in owners] == ["bare", None]
