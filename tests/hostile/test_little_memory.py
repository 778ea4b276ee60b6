"""Real servers that run out of memory, threads, processes or descriptors, or hang: they still answer, and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tests.harness import HANDSHAKES, LAUNCHER, MODERN
from tests.processes import children_of, descendants_of, is_running
from tests.waiting import CEILING, wait_until

if sys.platform != "linux":
    pytest.skip("not run: needs Linux, which limits the address space and lists processes", allow_module_level=True)

import resource

pytestmark = pytest.mark.timeout(180)

CALLS = 40

long = partial(pytest.param, marks=pytest.mark.long)
"""Marks a case for `make test-long`, because each case starts a server."""

HOSTILE = Path(__file__).resolve().parent

NEWEST = HANDSHAKES[-1]

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def arguments_of(tool: str, root: Path, number: int) -> dict[str, Any]:
    """Return the arguments of the call of a tool with this number."""
    path = str(root / f"{number}.txt")
    return {
        "run_shell_command": {"command": f"echo {number}"},
        "read_file": {"file_path": path},
        "grep_search": {"pattern": "word"},
        "edit": {"file_path": path, "old_string": "word", "new_string": "other"},
        "write_file": {"file_path": path + ".new", "content": "word\n" * 100_000},
    }[tool]


class Client:
    """A client that does not wait for answers."""

    def __init__(self, process: subprocess.Popen[bytes], root: Path, revision: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self._root = root
        self._revision = revision
        self._next = 1

    def initialize(self) -> bool:
        """Do the handshake if the revision has one. Return False if the server does not answer it."""
        if self._revision == MODERN:
            return True
        client = {"protocolVersion": self._revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        try:
            self._send({"id": 0, "method": "initialize", "params": client})
            is_answered = bool(self.stdout.readline())
            self._send({"method": "notifications/initialized"})
        except BrokenPipeError:
            return False
        return is_answered

    def call(self, tool: str, count: int, command: str | None = None) -> list[dict[str, Any]]:
        """Make `count` calls at once, and return their results or errors."""
        open_ids = self.ask(tool, count, command)
        answers: list[dict[str, Any]] = []
        while open_ids and (line := self.stdout.readline()):
            message = json.loads(line)
            if message.get("id") in open_ids and "method" not in message:
                open_ids.remove(message["id"])
                answers.append(message.get("result") or message)
        assert not open_ids, "some calls were not answered"
        return answers

    def ask(self, tool: str, count: int, command: str | None = None) -> set[int]:
        """Make `count` calls, and return their ids."""
        first, self._next = self._next, self._next + count
        meta = {"_meta": META} if self._revision == MODERN else {}
        for identity in range(first, self._next):
            arguments = {"command": command} if command else arguments_of(tool, self._root, identity)
            params = {"name": tool, "arguments": arguments, **meta}
            self._send({"id": identity, "method": "tools/call", "params": params})
        return set(range(first, self._next))

    def _send(self, message: Mapping[str, Any]) -> None:
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def end(self, method: str) -> int:
        """End the input of the server or send SIGTERM. Return its exit code once all its processes have ended."""
        processes = descendants_of(self.process.pid)
        if method == "input":
            self.stdin.close()
        else:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(CEILING)
        wait_until(lambda: not any(map(is_running, processes)))
        return code


def is_refused(answer: Mapping[str, Any]) -> bool:
    """Return whether a call was refused, and check that its message has the right code."""
    if not answer.get("isError"):
        assert "content" in answer, answer
        return False
    text = answer["content"][0]["text"]
    assert "[resources_exhausted]" in text, text
    return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    for number in range(1, CALLS + 1):
        (folder / f"{number}.txt").write_text("word\n")
    return folder


@pytest.fixture
def open_root() -> Generator[Path]:
    """A workspace that a user without rights can reach."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "workspace")
        folder.mkdir()
        for number in range(1, CALLS + 1):
            (folder / f"{number}.txt").write_text("word\n")
        Path(parent).chmod(0o755)
        yield folder


@contextmanager
def serving(
    root: Path,
    revision: str,
    limits: Mapping[int, int],
    command: tuple[str, ...] = ("-P", str(LAUNCHER), "serve"),
) -> Generator[Client]:
    arguments = [sys.executable, *command, "--workspace", str(root), "--approval-mode", "yolo"]
    with (
        (root.parent / "log").open("wb") as log,
        subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            preexec_fn=partial(limit, limits),  # noqa: PLW1509 - this process has no other threads
            env={**os.environ, "HOME": str(root.parent)},
        ) as process,
    ):
        try:
            yield Client(process, root, revision)
        finally:
            process.kill()


def limit(limits: Mapping[int, int]) -> None:
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


@pytest.mark.requirement("scarcity.memory")
@pytest.mark.parametrize(
    ("megabytes", "tool", "revision", "end"),
    [
        long(256, "read_file", MODERN, "input"),
        (384, "edit", NEWEST, "signal"),
        long(512, "run_shell_command", MODERN, "signal"),
        long(512, "grep_search", NEWEST, "input"),
        long(640, "write_file", MODERN, "signal"),
        long(768, "run_shell_command", NEWEST, "input"),
        long(1024, "run_shell_command", NEWEST, "signal"),
    ],
)
def test_with_little_address_space_forty_first_calls_at_once_succeed_and_the_server_ends(
    root: Path, megabytes: int, tool: str, revision: str, end: str
) -> None:
    with serving(root, revision, {resource.RLIMIT_AS: megabytes << 20}) as client:
        assert client.initialize()
        assert not any(map(is_refused, client.call(tool, CALLS)))
        assert not is_refused(client.call("run_shell_command", 1)[0])
        assert client.end(end) == 0


@pytest.mark.requirement("scarcity.memory")
@pytest.mark.parametrize("end", [long("input"), "signal"])
def test_a_server_whose_memory_runs_out_while_it_serves_still_ends(root: Path, end: str) -> None:
    with serving(root, MODERN, {}) as client:
        assert not any(map(is_refused, client.call("run_shell_command", 2)))
        resource.prlimit(client.process.pid, resource.RLIMIT_AS, (1, 1))
        with suppress(BrokenPipeError):  # the server may already have ended
            client.ask("run_shell_command", CALLS)
        client.end(end)


@pytest.mark.requirement("scarcity.refused")
@pytest.mark.parametrize(("descriptors", "tool"), [(32, "grep_search"), long(40, "edit"), long(64, "grep_search")])
def test_without_descriptors_calls_are_refused_clearly_and_the_next_one_works(
    root: Path, descriptors: int, tool: str
) -> None:
    with serving(root, NEWEST, {resource.RLIMIT_NOFILE: descriptors}) as client:
        assert client.initialize()
        for answer in client.call(tool, CALLS):
            is_refused(answer)
        assert not is_refused(client.call("run_shell_command" if descriptors > 40 else "write_file", 1)[0])
        assert client.end("input") == 0


SETTINGS = (".npmrc", ".yarnrc", ".pypirc", ".gitconfig", ".bashrc", ".profile", ".zshrc", ".wgetrc", ".curlrc")
"""Files of which a command sees a redacted copy if they hold a secret. Each copy briefly needs a descriptor."""


@pytest.mark.long
@pytest.mark.requirement("scarcity.turns")
@pytest.mark.parametrize(("descriptors", "calls"), [long(56, 1), (56, 4), long(80, CALLS)])
def test_with_few_descriptors_commands_in_the_sandbox_wait_for_each_other(
    root: Path, descriptors: int, calls: int
) -> None:
    for name in SETTINGS:
        (root.parent / name).write_text("export API_TOKEN=abcdef123\n//r/:_authToken=abcdef123\n")
    (root.parent / "settings.json").write_text('{"shell": {"sandbox": "auto"}}')
    command = ("-P", str(LAUNCHER), "serve", "--config", str(root.parent / "settings.json"))
    with serving(root, NEWEST, {resource.RLIMIT_NOFILE: descriptors}, command) as client:
        assert client.initialize()
        assert not any(map(is_refused, client.call("run_shell_command", calls)))
        assert client.end("input") == 0


@pytest.mark.requirement("scarcity.turns")
@pytest.mark.parametrize("revision", [long(MODERN), NEWEST])
def test_a_server_takes_all_descriptors_that_it_may_and_leaves_commands_the_usual_limit(
    root: Path, revision: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = min(soft, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual, hard))
    try:
        with serving(root, revision, {}) as client:
            assert client.initialize()
            (answer,) = client.call("run_shell_command", 1, "ulimit -Sn; ulimit -Hn")
            assert resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE) == (min(hard, 16_384), hard)
            assert answer["content"][0]["text"].split()[-2:] == [str(usual), str(hard)]
            assert client.end("input") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("scarcity.threads")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root to become a user without rights")
@pytest.mark.parametrize("processes", [long(1), 3, long(4)])
def test_without_threads_a_server_reports_this_at_its_start_or_serves_with_the_existing_ones(
    open_root: Path, processes: int
) -> None:
    command = (str(HOSTILE / "unprivileged_server.py"), "022", "serve")
    with serving(open_root, NEWEST, {resource.RLIMIT_NPROC: processes}, command) as client:
        if client.initialize():
            assert not any(map(is_refused, client.call("read_file", CALLS)))
            client.end("signal")
        else:
            client.process.wait(CEILING)
            log = (open_root.parent / "log").read_text()
            assert log.startswith("coretools-mcp: no more processes or threads can be started; raise the limits")
            assert log.count("\n") == 1


@pytest.mark.requirement("stdio.watchdog")
@pytest.mark.parametrize(
    ("stuck", "end"),
    [
        long(signal.SIGUSR1, "input", id="in a lock, input"),
        long(signal.SIGUSR1, "signal", id="in a lock, signal"),
        long(signal.SIGUSR2, "input", id="in a library, input"),
        pytest.param(signal.SIGUSR2, "signal", id="in a library, signal"),
    ],
)
def test_a_server_that_hangs_for_ever_ends_with_all_that_it_has_started(
    root: Path, stuck: signal.Signals, end: str
) -> None:
    with serving(root, NEWEST, {}, ("-P", str(HOSTILE / "stuck_server.py"))) as client:
        assert client.initialize()
        client.call("run_shell_command", 1)
        client.process.send_signal(stuck)
        if stuck is signal.SIGUSR1:
            # Nothing would handle the next signal, so it must not come before the server hangs.
            wait_until(lambda: "futex" in Path(f"/proc/{client.process.pid}/wchan").read_text())
        assert client.end(end) == -signal.SIGKILL


@pytest.mark.requirement("stdio.watchdog")
def test_a_server_that_is_killed_leaves_no_watchdog(root: Path) -> None:
    with serving(root, NEWEST, {}) as client:
        assert client.initialize()
        processes = descendants_of(client.process.pid)
        assert processes
        client.process.kill()
        client.process.wait(CEILING)
        assert client.stdout.read() == b""
        wait_until(lambda: not any(map(is_running, processes)))


@pytest.mark.requirement("stdio.watchdog")
def test_a_server_whose_watchdog_was_killed_serves_and_ends_in_order(root: Path) -> None:
    with serving(root, NEWEST, {}) as client:
        assert client.initialize()
        (watchdog,) = children_of(client.process.pid)
        os.kill(watchdog, signal.SIGKILL)
        wait_until(lambda: not children_of(client.process.pid) or not is_running(watchdog))
        assert not is_refused(client.call("read_file", 1)[0])
        assert client.end("signal") == 0
        assert (root.parent / "log").read_text() == ""
