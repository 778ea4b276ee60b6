"""A command without a sandbox gets nothing from the processes that run it, unless they run as root."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.harness import HANDSHAKE, server_arguments, text_of
from tests.hostile.unprivileged_server import SYSTEM_PYTHON
from tests.other_user import NOBODY
from tests.processes import children_of

if sys.platform != "linux":
    pytest.skip("not run: only Linux shows processes as files", allow_module_level=True)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("process.private"),
    pytest.mark.skipif(
        os.geteuid() == 0 and not os.path.exists(SYSTEM_PYTHON),
        reason="not run: a user without rights finds no Python here",
    ),
]

SERVER = Path(__file__).with_name("unprivileged_server.py")
SECRET = "kept-from-commands-7391"

PEEK = r"""
for pid in "$@"; do
  tr '\0' ' ' </proc/$pid/environ && echo "environ of $pid is shown"
  ls /proc/$pid/fd/ && echo "descriptors of $pid are shown"
  echo forged >/proc/$pid/fd/1 && echo "output of $pid is written to"
  true </proc/$pid/mem && echo "memory of $pid is opened"
  echo "tried $pid"
done 2>/dev/null
"""
"""Prints each access that succeeds, and each process that was tried."""


@pytest.fixture
def open_root() -> Generator[Path]:
    """A workspace that a user without rights owns."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        root = Path(parent).resolve() / "root"
        root.mkdir()
        (root / "peek.sh").write_text(PEEK)
        if os.geteuid() == 0:
            os.chown(root, NOBODY, NOBODY)
        yield root


async def output_of_command(client: Client, command: str) -> str:
    result = await client.call_tool("run_shell_command", {"command": command})
    assert not result.is_error, result
    return text_of(result)


async def test_a_command_cannot_read_the_environment_or_descriptors_of_the_processes_that_run_it(
    open_root: Path,
) -> None:
    config = open_root.parent / "coretools.json"
    config.write_text('{"shell": {"sandbox": "off"}}')
    arguments = server_arguments(open_root, config, "--approval-mode", "yolo")
    command = ["-P", "-W", "error", str(SERVER), "022", *arguments[arguments.index("serve") :]]
    environment = {"HOME": str(open_root), "SECRET": SECRET}
    children_before = set(children_of(os.getpid()))
    parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
    async with Client(parameters, mode=HANDSHAKE, cache=None) as client:
        (server,) = set(children_of(os.getpid())) - children_before
        assert SECRET not in await output_of_command(client, "env")
        server_pids = [
            server,
            *(children := children_of(server)),
            *(grandchild for child in children for grandchild in children_of(child)),
        ]
        # The server, its watchdog, the broker, and its supervisor.
        assert len(server_pids) >= 4
        attempts = "\n".join(f"tried {pid}" for pid in server_pids)
        assert (
            await output_of_command(client, f"sh peek.sh {' '.join(map(str, server_pids))}") == f"Output:\n{attempts}"
        )
        # The script does work: a command can read its own process.
        assert "environ of self is shown" in await output_of_command(client, "sh peek.sh self")
