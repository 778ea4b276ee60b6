"""The loopback network that the commands of a session share, as root and as a user without rights."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from tests.hostile.confined import ENVIRONMENT, USERS, Runner, bubblewrap_command, runner
from tests.processes import run
from tests.waiting import wait_until
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.loopback import SessionLoopbacks
from tools.shell.process_spec import ExitStatus, Process, ProcessSpec, StartFailedError

if sys.platform != "linux":
    pytest.skip("not run: namespaces are Linux only", allow_module_level=True)

BWRAP = "/usr/bin/bwrap"

SERVE = """
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
server = Server(("::", 0), http.server.SimpleHTTPRequestHandler)
open(sys.argv[1], "w").write(str(server.server_port))
server.serve_forever()
"""


@pytest.fixture(scope="module", params=USERS)
def command_runner(request: pytest.FixtureRequest) -> Generator[Runner]:
    """A process that starts commands."""
    with runner(request.param) as starter:
        if starter.bash("true", key="try").get("none"):
            pytest.skip("not run: bubblewrap makes no namespaces here")
        yield starter


def start_server(command_runner: Runner, key: str, folder: Path) -> int:
    """Start a server in a client's loopback, in the sandbox; return its port."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o055)  # bubblewrap 0.12 must be able to list it
    port = folder / "port"
    command = bubblewrap_command(
        f"exec /usr/bin/python3 -c '{SERVE}' {port}", options=["--bind", str(folder), str(folder)]
    )
    assert "pid" in command_runner.ask(argv=command, environment=ENVIRONMENT, key=key, waits=False)
    wait_until(lambda: port.exists() and port.read_text())
    return int(port.read_text())


@pytest.mark.requirement("loopback.shared")
def test_a_server_of_one_command_answers_the_clients_next_commands_and_nobody_else(
    command_runner: Runner, tmp_path: Path
) -> None:
    port = start_server(command_runner, "one", tmp_path)
    hosts = ("127.0.0.1", "[::1]", "localhost")
    ask = f"for host in {' '.join(hosts)}; do curl -sS -o /dev/null -w '%{{http_code}} ' http://$host:{port}/; done"
    sandboxed_command = bubblewrap_command(ask)
    assert command_runner.ask(argv=sandboxed_command, environment=ENVIRONMENT, key="one")["output"] == "200 200 200 "
    assert command_runner.bash(ask, key="one")["output"] == "200 200 200 "
    # Nothing is reached from the loopback of another client, or from the machine's.
    for loopback_options in ({"key": "other"}, {}):
        result = command_runner.bash(ask, **loopback_options)
        assert "200" not in result["output"], result
        assert result["output"].count("000") == len(hosts), result
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as client, pytest.raises(OSError, match="refused"):
            client.connect((host, port))


@pytest.mark.requirement("loopback.shared")
def test_commands_in_a_session_loopback_reach_nothing_else(command_runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        command = f"curl -sS -m 5 http://127.0.0.1:{port}/ ; curl -sS -m 5 http://192.0.2.1/ ; cat /proc/net/dev"
        output = command_runner.bash(command, key="one")["output"]
        assert "Failed to connect to 127.0.0.1" in output or "Couldn't connect" in output, output
        assert "192.0.2.1" in output
        assert [line.split(":")[0].strip() for line in output.splitlines() if line.strip()[-1:].isdigit()] == ["lo"]
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.requirement("loopback.made")
def test_the_descriptors_held_for_a_client_are_closed_when_it_is_forgotten(command_runner: Runner) -> None:
    assert command_runner.bash("true", key="held")["code"] == 0  # descriptors that are opened only once are open now
    count_before = command_runner.ask(ask="descriptors")["open"]
    for key in ("first", "second", "first"):
        result = command_runner.bash("readlink /proc/self/ns/net; ls /proc/self/fd | wc -l", key=key)
        # The command has no namespace open: only the standard streams, and the folder that `ls` lists.
        assert result["output"].split()[1] == "4", result
    count = command_runner.ask(ask="descriptors")["open"]
    assert count - count_before == (2 if command_runner.user == 0 else 4)
    for key in ("first", "second", "never seen"):
        command_runner.ask(ask="forget", key=key)
    assert command_runner.ask(ask="descriptors")["open"] == count_before


@pytest.mark.requirement("loopback.made")
def test_if_no_loopback_can_be_made_none_is_tried_again_for_a_while(command_runner: Runner, tmp_path: Path) -> None:
    count_before = command_runner.ask(ask="descriptors")["open"]
    liar = tmp_path / "bwrap"
    liar.write_text('#!/bin/sh\necho "\\"child-pid\\": $$" >&10\necho\nread x\n')
    liar.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o055)  # bubblewrap 0.12 must be able to list it
    for number, program in enumerate(("/bin/false", "/bin/true", "/nowhere/bwrap", "/bin/echo", str(liar))):
        assert command_runner.bash("true", key=f"without {number}", bubblewrap=program) == {"none": True}
        assert command_runner.bash("true", key=f"without {number}") == {"none": True}  # the failure is remembered
        command_runner.ask(ask="forget", key=f"without {number}")
        assert command_runner.bash("true", key=f"without {number}")["code"] == 0
        command_runner.ask(ask="forget", key=f"without {number}")
    assert command_runner.bash("true", key="") == {"none": True}
    assert command_runner.ask(ask="descriptors")["open"] == count_before


class CountingStarter(BrokeredStarter):
    """A starter that counts the programs that it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program."""
        self.count += 1
        return await super().start(spec)


@pytest.mark.anyio
@pytest.mark.requirement("loopback.made")
async def test_concurrent_first_calls_share_one_loopback_and_a_cancelled_call_does_no_harm() -> None:
    starter = CountingStarter()
    loopbacks = SessionLoopbacks(starter)
    namespaces: list[tuple[int, ...] | None] = []

    async def request_namespaces() -> None:
        namespaces.append(await loopbacks.namespaces("client", BWRAP))

    try:
        if await loopbacks.namespaces("try", BWRAP) is None:
            pytest.skip("not run: bubblewrap makes no namespaces here")
        count = starter.count
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(request_namespaces)
        assert len(set(namespaces)) == 1
        assert starter.count == count + 1
        descriptors_before = os.listdir("/proc/self/fd")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await loopbacks.namespaces("another", BWRAP)
        assert os.listdir("/proc/self/fd") == descriptors_before
        # A loopback that is forgotten while it is made is not kept.
        async with anyio.create_task_group() as group:
            group.start_soon(loopbacks.namespaces, "forgotten", BWRAP)
            await anyio.lowlevel.checkpoint()
            loopbacks.forget("forgotten")
        assert os.listdir("/proc/self/fd") == descriptors_before
        assert await loopbacks.namespaces("another", BWRAP) is not None
        loopbacks.close()
        assert set(namespaces) != {None}
        for descriptor in namespaces[0] or ():
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
    finally:
        loopbacks.close()
        await starter.aclose()


@pytest.mark.anyio
@pytest.mark.requirement("process.confined_start")
async def test_nothing_starts_if_a_namespace_cannot_be_joined_and_the_error_says_why() -> None:
    starter = BrokeredStarter()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        spec = ProcessSpec(("/bin/echo", "started"), "/", {}, namespaces=(null,))
        with pytest.raises(StartFailedError) as error_info:
            await starter.start(spec)
        assert error_info.value.number != 0
        # The supervisor, which was asked to start it, still works.
        assert await run(starter, ProcessSpec(("/bin/echo", "started"), "/", {})) == (ExitStatus(0, None), "started\n")
    finally:
        await starter.aclose()
