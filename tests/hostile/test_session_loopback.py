"""The loopback that the commands of a session share, as root and as a user without rights."""

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
def started(request: pytest.FixtureRequest) -> Generator[Runner]:
    """What starts commands."""
    with runner(request.param) as made:
        if made.bash("true", key="try").get("none"):
            pytest.skip("not run: bubblewrap makes no namespaces here")
        yield made


def server_of(started: Runner, key: str, folder: Path) -> int:
    """Start a server in the loopback of a client, in the sandbox; its port."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    port = folder / "port"
    command = bubblewrap_command(
        f"exec /usr/bin/python3 -c '{SERVE}' {port}", options=["--bind", str(folder), str(folder)]
    )
    assert "pid" in started.ask(argv=command, environment=ENVIRONMENT, key=key, waits=False)
    wait_until(lambda: port.exists() and port.read_text())
    return int(port.read_text())


@pytest.mark.requirement("loopback.shared")
def test_a_server_of_one_command_answers_the_next_ones_and_nobody_else(started: Runner, tmp_path: Path) -> None:
    port = server_of(started, "one", tmp_path)
    hosts = ("127.0.0.1", "[::1]", "localhost")
    ask = f"for host in {' '.join(hosts)}; do curl -sS -o /dev/null -w '%{{http_code}} ' http://$host:{port}/; done"
    in_sandbox = bubblewrap_command(ask)
    assert started.ask(argv=in_sandbox, environment=ENVIRONMENT, key="one")["output"] == "200 200 200 "
    assert started.bash(ask, key="one")["output"] == "200 200 200 "
    # The same from the loopback of another client, and from the machine's.
    for elsewhere in ({"key": "other"}, {}):
        refused = started.bash(ask, **elsewhere)
        assert "200" not in refused["output"], refused
        assert refused["output"].count("000") == len(hosts), refused
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as client, pytest.raises(OSError, match="refused"):
            client.connect((host, port))


@pytest.mark.requirement("loopback.shared")
def test_nothing_but_the_loopback_is_reached_from_it(started: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        command = f"curl -sS -m 5 http://127.0.0.1:{port}/ ; curl -sS -m 5 http://192.0.2.1/ ; cat /proc/net/dev"
        output = started.bash(command, key="one")["output"]
        assert "Failed to connect to 127.0.0.1" in output or "Couldn't connect" in output, output
        assert "192.0.2.1" in output
        assert [line.split(":")[0].strip() for line in output.splitlines() if line.strip()[-1:].isdigit()] == ["lo"]
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.requirement("loopback.made")
def test_what_is_held_for_a_client_is_given_back_with_it(started: Runner) -> None:
    assert started.bash("true", key="held")["code"] == 0  # whatever is made once is there now
    before = started.ask(ask="descriptors")["open"]
    for key in ("first", "second", "first"):
        inside = started.bash("readlink /proc/self/ns/net; ls /proc/self/fd | wc -l", key=key)
        # Nothing of the namespaces is open in the command: its standard streams, and what lists them.
        assert inside["output"].split()[1] == "4", inside
    held = started.ask(ask="descriptors")["open"]
    assert held - before == (2 if started.user == 0 else 4)
    for key in ("first", "second", "never seen"):
        started.ask(ask="forget", key=key)
    assert started.ask(ask="descriptors")["open"] == before


@pytest.mark.requirement("loopback.made")
def test_where_none_can_be_made_there_is_none_for_a_while(started: Runner, tmp_path: Path) -> None:
    before = started.ask(ask="descriptors")["open"]
    liar = tmp_path / "bwrap"
    liar.write_text('#!/bin/sh\necho "\\"child-pid\\": $$" >&10\necho\nread x\n')
    liar.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    for at, program in enumerate(("/bin/false", "/bin/true", "/nowhere/bwrap", "/bin/echo", str(liar))):
        assert started.bash("true", key=f"without {at}", bubblewrap=program) == {"none": True}
        assert started.bash("true", key=f"without {at}") == {"none": True}  # it is remembered
        started.ask(ask="forget", key=f"without {at}")
        assert started.bash("true", key=f"without {at}")["code"] == 0
        started.ask(ask="forget", key=f"without {at}")
    assert started.bash("true", key="") == {"none": True}
    assert started.ask(ask="descriptors")["open"] == before


class Counting(BrokeredStarter):
    """Counts what is started."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program."""
        self.count += 1
        return await super().start(spec)


@pytest.mark.anyio
@pytest.mark.requirement("loopback.made")
async def test_several_first_calls_share_one_and_a_cancelled_one_spoils_nothing() -> None:
    starter = Counting()
    loopbacks = SessionLoopbacks(starter)
    found: list[tuple[int, ...] | None] = []

    async def look() -> None:
        found.append(await loopbacks.namespaces("client", BWRAP))

    try:
        if await loopbacks.namespaces("try", BWRAP) is None:
            pytest.skip("not run: bubblewrap makes no namespaces here")
        count = starter.count
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(look)
        assert len(set(found)) == 1
        assert starter.count == count + 1
        before = os.listdir("/proc/self/fd")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await loopbacks.namespaces("another", BWRAP)
        assert os.listdir("/proc/self/fd") == before
        # One that is forgotten while it is made is not kept.
        async with anyio.create_task_group() as group:
            group.start_soon(loopbacks.namespaces, "forgotten", BWRAP)
            await anyio.lowlevel.checkpoint()
            loopbacks.forget("forgotten")
        assert os.listdir("/proc/self/fd") == before
        assert await loopbacks.namespaces("another", BWRAP) is not None
        loopbacks.close()
        assert set(found) != {None}
        for descriptor in found[0] or ():
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
    finally:
        loopbacks.close()
        await starter.aclose()


@pytest.mark.anyio
@pytest.mark.requirement("process.confined_start")
async def test_what_cannot_be_joined_starts_nothing_and_says_why() -> None:
    starter = BrokeredStarter()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        spec = ProcessSpec(("/bin/echo", "started"), "/", {}, namespaces=(null,))
        with pytest.raises(StartFailedError) as failed:
            await starter.start(spec)
        assert failed.value.number != 0
        # The supervisor, which was asked, is none the worse for it.
        assert await run(starter, ProcessSpec(("/bin/echo", "started"), "/", {})) == (ExitStatus(0, None), "started\n")
    finally:
        await starter.aclose()
