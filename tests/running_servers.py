"""Servers that run with a control socket of their own, and the commands of a person who asks them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from anyio import to_thread
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.fork_server import forked
from tests.forked_commands import run_forked
from tests.harness import HANDSHAKE, server_arguments, speaking, write_config
from tests.waiting import until

LEFT = f"{'0' * 16}.sock"
"""A socket of a server that is not there any more."""


@contextmanager
def runtime_folder() -> Generator[Path]:
    """A folder for control sockets with a short path, as a system gives one to each of its users."""
    folder = Path(tempfile.mkdtemp(prefix="run-"))
    yield folder
    shutil.rmtree(folder)


@asynccontextmanager
async def served(
    runtime: Path,
    root: Path,
    *,
    revision: str = HANDSHAKE,
    settings: Mapping[str, object] | None = None,
    **callbacks: Any,
) -> AsyncGenerator[Client]:
    """A client of a server of its own, once its control socket is there."""
    config = write_config(root.parent, settings or {})
    parameters = StdioServerParameters(
        command=sys.executable,
        args=forked(server_arguments(root, config)),
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
    )
    known = set(sockets(runtime))
    async with speaking(revision, stdio_client(parameters), **callbacks) as client:
        await client.list_tools()
        await until(lambda: set(sockets(runtime)) - known)
        yield client


async def status_of(runtime: Path, root: Path) -> dict[str, Any]:
    """What the server that works in a folder tells of itself; others may run on the machine."""
    told = json.loads((await ask(runtime, "status", "--json")).stdout)
    return next(each for each in told if str(root) in str(each["clients"]))


def sockets(runtime: Path) -> list[Path]:
    return list(runtime.glob("coretools-mcp/*.sock"))


async def ask(runtime: Path, *words: str, cwd: Path | None = None, **variables: str) -> CompletedProcess[str]:
    """A command of a person, in a folder, with further environment variables."""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), **variables}
    return await to_thread.run_sync(lambda: run_forked(words, cwd=cwd or runtime, env=environ))
