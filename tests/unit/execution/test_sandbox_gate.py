"""The gate that holds a command back until its sandbox has been checked from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from tests.hostile.sandboxed import WORKING, sandbox_for
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_environment import command_environment
from tools.shell.process_spec import EndedEarlyError, ProcessSpec
from tools.shell.sandbox.bubblewrap import SandboxedCommand
from tools.shell.sandbox.mount_check import MountGate, MountTable
from tools.shell.sandbox.visible_file_system import PreparedView, Site

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only"),
]


@pytest.fixture
def gate() -> Iterator[MountGate]:
    new_gate = MountGate()
    yield new_gate
    new_gate.close()


def arrive(gate: MountGate, info: bytes) -> None:
    """Act like bubblewrap: write the process id, then read from the gate."""
    os.write(gate.info, info)
    os.read(gate.held, 1 << 16)


@pytest.mark.requirement("sandbox.gate")
@pytest.mark.parametrize(
    "difference",
    [{"at": "/sys"}, {"at": "/proc/self"}, {"device": "0:0"}, {"source": "/x"}, {"is_read_only": None}, {"layers": 9}],
)
def test_a_mount_table_has_a_mount_only_if_all_of_it_is_as_expected(difference: dict[str, object]) -> None:
    table = MountTable()
    mount = table.bound_first("/proc")
    assert table.has(mount)
    assert not table.has(mount._replace(**difference))


@pytest.mark.requirement("sandbox.gate")
def test_a_mount_is_recorded_with_its_path_in_its_file_system() -> None:
    mount = MountTable().bound_first("/proc/self")
    assert (mount.at, mount.source) == ("/proc/self", "/self")


@pytest.mark.requirement("sandbox.gate")
async def test_a_command_with_the_expected_mounts_continues(gate: MountGate) -> None:
    descriptor = os.dup(gate.held)
    arrive(gate, b'{\n    "child-pid": %d\n}\n' % os.getpid())
    gate.close_child_ends()
    await gate.wait_mounted()
    assert gate.check(gate.process(), [])
    while os.read(descriptor, 1 << 16):
        pass
    os.close(descriptor)


@pytest.mark.requirement("sandbox.gate")
@pytest.mark.parametrize("info", [b"", b"{}", b'{"child-pid": x}', b'{"child-pid":', b'{"child-pid": 999999999}'])
async def test_a_command_without_a_valid_process_id_does_not_continue(gate: MountGate, info: bytes) -> None:
    arrive(gate, info)
    await gate.wait_mounted()
    assert not gate.check(gate.process(), [])
    os.set_blocking(gate.held, False)
    byte_count = 1
    with suppress(BlockingIOError):
        while byte_count:
            byte_count = len(os.read(gate.held, 1 << 16))
    # The pipe has no more data, and no end of file either.
    assert byte_count > 0


@pytest.mark.requirement("sandbox.gate")
async def test_waiting_for_a_sandbox_that_never_arrives_times_out(gate: MountGate) -> None:
    with pytest.raises(TimeoutError):
        await gate.wait_mounted(0.01)


@pytest.mark.requirement("sandbox.gate")
async def test_a_sandbox_that_has_already_exited_is_a_different_error(gate: MountGate) -> None:
    gate.close_child_ends()
    with pytest.raises(EndedEarlyError):
        await gate.wait_mounted()


async def run_in_sandbox(root: Path, command: str, interfere: Callable[[], None]) -> int | None:
    """Run a command in the sandbox and return its exit code. `interfere` is called just before the mounts."""
    sandbox = await sandbox_for(Site(str(root.parent)))
    spec = ProcessSpec(("/bin/bash", "-c", command), str(root), command_environment({}, os.environ))
    confined_command = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(confined_command, SandboxedCommand)
    prepare = confined_command.prepare

    def prepare_and_interfere() -> PreparedView:
        view = prepare()
        interfere()
        return view

    confined_command.prepare = prepare_and_interfere
    broker = BrokeredStarter()
    try:
        process = await broker.start(confined_command.spec)
        try:
            await confined_command.begin(process.mount)
            await process.wait_gone()
            return (await process.wait()).code
        finally:
            await process.end(0)
            process.close()
    finally:
        await confined_command.release()
        await broker.aclose()
        sandbox.close()


@pytest.mark.requirement("sandbox.gate")
async def test_a_command_starts_in_the_intended_sandbox(root: Path) -> None:
    (root / "a" / ".vscode").mkdir(parents=True)
    assert await run_in_sandbox(root, "echo ran > ran; exit 7", lambda: None) == 7
    assert (root / "ran").read_text() == "ran\n"


@pytest.mark.requirement("sandbox.gate")
async def test_a_command_whose_mounts_are_not_as_expected_is_refused_and_never_runs(root: Path) -> None:
    for folder in (root / "a", root / "b"):
        (folder / ".vscode").mkdir(parents=True)

    def swap() -> None:
        (root / "a").rename(root / "moved")
        (root / "a").symlink_to("b")

    with anyio.fail_after(30), pytest.raises(ToolError) as refusal:
        await run_in_sandbox(root, "echo ran > ran", swap)
    assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert "workspace changed" in refusal.value.message
    assert not (root / "ran").exists()


@pytest.mark.requirement("sandbox.roots")
async def test_nothing_runs_where_a_root_was_replaced_by_a_link(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()

    def swap() -> None:
        root.rename(root.parent / "moved")
        root.symlink_to("outside")

    with anyio.fail_after(30), pytest.raises(ToolError) as refusal:
        await run_in_sandbox(root, "echo ran > ran", swap)
    assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert not (outside / "ran").exists()


@pytest.mark.requirement("sandbox.gate")
async def test_a_carriage_return_in_a_name_keeps_no_command_from_running(root: Path) -> None:
    (root / "x\ry" / ".vscode").mkdir(parents=True)
    assert await run_in_sandbox(root, "echo x > 'x\ry/.vscode/made'; exit 7", lambda: None) == 7
    assert list((root / "x\ry" / ".vscode").iterdir()) == []


@pytest.mark.requirement("sandbox.gate")
async def test_no_descriptor_stays_open_after_a_command(root: Path) -> None:
    async def open_descriptors() -> int:
        """Return the number of open descriptors, once the number no longer changes."""
        count = -1
        with anyio.fail_after(30):
            while count != (count := len(os.listdir("/proc/self/fd"))):  # noqa: ASYNC110 - closing sets no event
                await anyio.sleep(0.05)
        return count

    await run_in_sandbox(root, "true", lambda: None)
    before = await open_descriptors()
    for _ in range(3):
        await run_in_sandbox(root, "true", lambda: None)
    assert await open_descriptors() <= before
