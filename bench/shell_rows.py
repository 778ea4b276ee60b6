"""Running commands, compared with the cost of the operating system."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.line_client import LineClient
from bench.rows import Pair, Round, Row, Scene, in_turn, memory_of

BASH = "/bin/bash"
SHELL = "run_shell_command"
NOTHING = {"command": "true"}
CALLS = 60

OUTPUT_BYTES = 50_000_000
BLOCK_BYTES = 1 << 20
SHOWN_BYTES = 40_000
SPILL_BYTES = 64 << 20
"""The server's limits for the output in a result, and for the file with the whole output."""

LONG_COMMAND = " && ".join(f"git log -{number} -- file{number}.py" for number in range(30_000))
"""One megabyte of short commands."""


def _settings(scene: Scene, sandbox: str) -> list[str]:
    path = scene.scratch / f"sandbox-{sandbox}.json"
    path.write_text(json.dumps({"shell": {"sandbox": sandbox}}))
    return ["--config", str(path), "--approval-mode", "yolo"]


def _spawn_shell() -> None:
    """The floor of a command: start the shell, and wait for it."""
    os.waitpid(os.posix_spawn(BASH, [BASH, "-c", "true"], os.environ), 0)


@contextmanager
def _true(scene: Scene) -> Generator[Round]:
    folder = scene.folder("true")
    (folder / "small.txt").write_text("small\n")
    small = {"absolute_path": str(folder / "small.txt")}
    with LineClient(scene.server(folder, *_settings(scene, "off"))) as client:
        for _ in range(5):
            client.call(SHELL, NOTHING)

        def floor() -> None:
            _spawn_shell()
            client.call("read_file", small)

        yield lambda: in_turn(lambda: client.timed_call(SHELL, NOTHING)[0], floor, CALLS)


@contextmanager
def _sandbox(scene: Scene) -> Generator[Round]:
    folder = scene.folder("sandbox")
    with (
        LineClient(scene.server(folder, *_settings(scene, "off"))) as plain_client,
        LineClient(scene.server(folder, *_settings(scene, "required"))) as sandboxed_client,
    ):
        for client in (plain_client, sandboxed_client):
            for _ in range(5):
                client.call(SHELL, NOTHING)

        def one_round() -> Pair:
            sandboxed_times = [sandboxed_client.timed_call(SHELL, NOTHING)[0] for _ in range(CALLS // 2)]
            plain_times = [plain_client.timed_call(SHELL, NOTHING)[0] for _ in range(CALLS // 2)]
            return Pair(statistics.median(sandboxed_times) - statistics.median(plain_times))

        yield one_round


def _read_and_spill(source: Path, spill: Path) -> None:
    """The floor of a long output: read a pipe, keep both ends, and write everything to a file."""
    read_end, write_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write_end, 1)]
    pid = os.posix_spawn("/bin/cat", ["cat", str(source)], os.environ, file_actions=actions)
    os.close(write_end)
    head, tail, file_bytes = b"", deque[bytes](), 0
    with spill.open("wb", buffering=0) as file:
        while block := os.read(read_end, BLOCK_BYTES):
            head = head or block[:SHOWN_BYTES]
            tail.append(block)
            if len(tail) > 1 and sum(map(len, tail)) > SHOWN_BYTES + BLOCK_BYTES:
                tail.popleft()
            if file_bytes < SPILL_BYTES:
                file_bytes += file.write(block) or 0
    os.close(read_end)
    os.waitpid(pid, 0)
    assert file_bytes == OUTPUT_BYTES


@contextmanager
def _long_output(scene: Scene) -> Generator[Round]:
    folder = scene.folder("long-output")
    source = folder / "long.txt"
    source.write_bytes((b"a line of an output that is far too long for a model to read it\n" * 800_000)[:OUTPUT_BYTES])
    with LineClient(scene.server(folder, *_settings(scene, "off"))) as client:
        command = {"command": f"cat {source}"}
        baseline = memory_of(client.pid, "VmHWM")
        result = client.call(SHELL, command)
        assert result["_meta"]["coretools-mcp/facts"]["outputBytes"] == OUTPUT_BYTES
        growth = memory_of(client.pid, "VmHWM") - baseline
        assert growth < 8, f"the server grew by {growth:.1f} MB"

        def one_round() -> Pair:
            pair = in_turn(
                lambda: client.timed_call(SHELL, command)[0],
                lambda: _read_and_spill(source, scene.scratch / "spill"),
                3,
            )
            return pair._replace(note=f"{growth:.1f} MB more memory at its peak")

        yield one_round


@contextmanager
def _cancelled(scene: Scene) -> Generator[Round]:
    folder = scene.folder("cancelled")
    with LineClient(scene.server(folder, *_settings(scene, "off"))) as client:
        client.call(SHELL, NOTHING)

        def one_round() -> Pair:
            marker = folder / "running"
            marker.unlink(missing_ok=True)
            command = f"trap '' TERM; (setsid sleep 300 &) ; echo $$ > {marker}; while :; do sleep 1; done"
            client.write(client.tool_request(SHELL, {"command": command}))
            number = client.last_id
            while not (marker.exists() and marker.read_text()):
                time.sleep(0.005)
            shell = int(marker.read_text())
            notification = {"method": "notifications/cancelled", "params": {"requestId": number}}
            start = time.perf_counter()
            client.write(json.dumps({"jsonrpc": "2.0", **notification}).encode() + b"\n")
            while _runs(shell):
                time.sleep(0.001)
            return Pair((time.perf_counter() - start) * 1000)

        yield one_round


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def _analysis(scene: Scene) -> Generator[Round]:
    del scene
    from tools.permissions.command_text import read_command

    read_command("true")

    def one_round() -> Pair:
        start = time.perf_counter()
        read_command(LONG_COMMAND)
        return Pair((time.perf_counter() - start) * 1000)

    yield one_round


ROWS = (
    Row("shell: true, of posix_spawn of bash and one small call", 2.5, _true),
    Row("shell: what the sandbox adds to a command", 10.0, _sandbox),
    Row("shell: 50 MB of output, of a reader that keeps both ends and writes the same file", 2.5, _long_output),
    Row("shell: from cancelling to no process left", 1_000.0, _cancelled),
    Row("shell: 1 MB of commands analysed", 1_000.0, _analysis),
)
