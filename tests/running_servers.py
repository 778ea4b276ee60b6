"""Running servers with control sockets, and the terminal commands that talk to them."""

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

STALE_SOCKET = f"{'0' * 16}.sock"
"""The name of a socket whose server has ended."""


@contextmanager
def runtime_folder() -> Generator[Path]:
    """Create a folder with a short path for control sockets, like a user's runtime folder."""
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
    """Connect an SDK client to a new server whose control socket exists."""
    config = write_config(root.parent, settings or {})
    parameters = StdioServerParameters(
        command=sys.executable,
        args=forked(server_arguments(root, config)),
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
    )
    old_sockets = set(sockets(runtime))
    async with speaking(revision, stdio_client(parameters), **callbacks) as client:
        await client.list_tools()
        await until(lambda: set(sockets(runtime)) - old_sockets)
        yield client


async def status_of(runtime: Path, root: Path) -> dict[str, Any]:
    """Return the status of the server for a workspace. Other servers may run on the machine."""
    servers = json.loads((await ask(runtime, "status", "--json")).stdout)
    return next(server for server in servers if str(root) in str(server["clients"]))


def sockets(runtime: Path) -> list[Path]:
    return list(runtime.glob("coretools-mcp/*.sock"))


async def ask(runtime: Path, *words: str, cwd: Path | None = None, **variables: str) -> CompletedProcess[str]:
    """Run a terminal command in a folder, with additional environment variables."""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), **variables}
    return await to_thread.run_sync(lambda: run_forked(words, cwd=cwd or runtime, env=environ))
