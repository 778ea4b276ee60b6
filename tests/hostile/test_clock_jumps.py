"""The clock of a machine is set while calls run: time limits depend on elapsed time, not on the clock."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, PEERS, server_arguments, text_of, write_config
from tests.processes import until_ended
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("time.monotonic"),
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

EDIT = {"file_path": "a.txt", "old_string": "old", "new_string": "new"}


async def accept(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context, params
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def keep_silent(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context, params
    await anyio.sleep_forever()
    raise AssertionError


@asynccontextmanager
async def connected(
    root: Path, tmp_path: Path, mode: str = HANDSHAKE, callback: Any = accept, **settings: Any
) -> AsyncGenerator[Client]:
    """Connect to a server whose clock jumps."""
    config = write_config(tmp_path, {"shell": {"sandbox": "off"}, **settings})
    arguments = [str(PEERS / "jumping_clock.py"), *server_arguments(root, config)[4:]]
    parameters = StdioServerParameters(command=sys.executable, args=forked(arguments))
    with anyio.fail_after(CEILING):
        async with Client(parameters, mode=mode, cache=None, elicitation_callback=callback) as client:
            yield client


async def test_a_command_is_ended_at_its_time_limit_and_not_before(root: Path, tmp_path: Path) -> None:
    async with connected(root, tmp_path) as client:
        long = {"command": "echo $$ > pid; exec sleep 600", "timeout": 500}
        result = await client.call_tool("run_shell_command", long)
        assert "shell_timed_out" in text_of(result)
        await until_ended([int((root / "pid").read_text())])
        short = await client.call_tool("run_shell_command", {"command": "sleep 0.3; echo whole", "timeout": 60_000})
        assert "whole" in text_of(short)
        assert not short.is_error


async def test_a_question_that_nobody_answers_ends_at_its_time_limit(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("old\n")
    async with connected(root, tmp_path, callback=keep_silent, confirmation={"timeout": 500}) as client:
        assert (await client.call_tool("edit", EDIT)).is_error
    assert (root / "a.txt").read_text() == "old\n"


@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_an_answer_that_comes_in_time_counts(mode: str, root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("old\n")
    async with connected(root, tmp_path, mode) as client:
        result = await client.call_tool("edit", EDIT)
    assert not result.is_error, text_of(result)
    assert (root / "a.txt").read_text() == "new\n"


async def test_a_file_that_was_read_may_be_edited_and_a_job_goes_on(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("old\n")
    async with connected(root, tmp_path) as client:
        assert "old" in text_of(await client.call_tool("read_file", {"file_path": "a.txt"}))
        assert not (await client.call_tool("edit", EDIT)).is_error
        job = {"command": "echo started; exec sleep 600", "is_background": True}
        assert not (await client.call_tool("run_shell_command", job)).is_error
        assert "running" in text_of(await client.call_tool("list_background_jobs", {}))
