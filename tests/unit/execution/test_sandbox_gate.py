"""What holds a command back until its sandbox was looked at, from outside."""

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
    made = MountGate()
    yield made
    made.close()


def arrive(gate: MountGate, told: bytes) -> None:
    """Do what bubblewrap does: tell the process, then read."""
    os.write(gate.info, told)
    os.read(gate.held, 1 << 16)


@pytest.mark.requirement("sandbox.gate")
@pytest.mark.parametrize(
    "other",
    [{"at": "/sys"}, {"at": "/proc/self"}, {"device": "0:0"}, {"source": "/x"}, {"is_read_only": None}, {"layers": 9}],
)
def test_a_mount_table_has_a_mount_only_if_all_of_it_is_as_expected(other: dict[str, object]) -> None:
    table = MountTable()
    own = table.bound_first("/proc")
    assert table.has(own)
    assert not table.has(own._replace(**other))


@pytest.mark.requirement("sandbox.gate")
def test_what_lies_under_a_mount_is_recorded_by_its_file_system() -> None:
    own = MountTable().bound_first("/proc/self")
    assert (own.at, own.source) == ("/proc/self", "/self")


@pytest.mark.requirement("sandbox.gate")
async def test_what_mounted_what_was_meant_goes_on(gate: MountGate) -> None:
    held = os.dup(gate.held)
    arrive(gate, b'{\n    "child-pid": %d\n}\n' % os.getpid())
    gate.close_child_ends()
    await gate.wait_mounted()
    assert gate.check(gate.process(), [])
    while os.read(held, 1 << 16):
        pass
    os.close(held)


@pytest.mark.requirement("sandbox.gate")
@pytest.mark.parametrize("told", [b"", b"{}", b'{"child-pid": x}', b'{"child-pid":', b'{"child-pid": 999999999}'])
async def test_what_does_not_tell_its_process_does_not_go_on(gate: MountGate, told: bytes) -> None:
    arrive(gate, told)
    await gate.wait_mounted()
    assert not gate.check(gate.process(), [])
    os.set_blocking(gate.held, False)
    drained = 1
    with suppress(BlockingIOError):
        while drained:
            drained = len(os.read(gate.held, 1 << 16))
    # Nothing more comes, and no end either.
    assert drained > 0


@pytest.mark.requirement("sandbox.gate")
async def test_what_never_arrives_is_given_up(gate: MountGate) -> None:
    with pytest.raises(TimeoutError):
        await gate.wait_mounted(0.01)


@pytest.mark.requirement("sandbox.gate")
async def test_what_has_ended_before_is_told_apart(gate: MountGate) -> None:
    gate.close_child_ends()
    with pytest.raises(EndedEarlyError):
        await gate.wait_mounted()


async def begun(root: Path, command: str, meanwhile: Callable[[], None]) -> int | None:
    """Run a command in the sandbox to its end, with something that happens before its mounts; its exit code."""
    sandbox = await sandbox_for(Site(str(root.parent)))
    spec = ProcessSpec(("/bin/bash", "-c", command), str(root), command_environment({}, os.environ))
    confined = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(confined, SandboxedCommand)
    look = confined.prepare

    def look_then() -> PreparedView:
        prepared = look()
        meanwhile()
        return prepared

    confined.prepare = look_then
    broker = BrokeredStarter()
    try:
        process = await broker.start(confined.spec)
        try:
            await confined.begin(process.mount)
            await process.wait_gone()
            return (await process.wait()).code
        finally:
            await process.end(0)
            process.close()
    finally:
        await confined.release()
        await broker.aclose()
        sandbox.close()


@pytest.mark.requirement("sandbox.gate")
async def test_a_command_begins_in_the_sandbox_that_was_meant(root: Path) -> None:
    (root / "a" / ".vscode").mkdir(parents=True)
    assert await begun(root, "echo ran > ran; exit 7", lambda: None) == 7
    assert (root / "ran").read_text() == "ran\n"


@pytest.mark.requirement("sandbox.gate")
async def test_where_something_else_was_mounted_the_command_is_refused_and_nothing_of_it_runs(root: Path) -> None:
    for folder in (root / "a", root / "b"):
        (folder / ".vscode").mkdir(parents=True)

    def swap() -> None:
        (root / "a").rename(root / "moved")
        (root / "a").symlink_to("b")

    with anyio.fail_after(30), pytest.raises(ToolError) as refusal:
        await begun(root, "echo ran > ran", swap)
    assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert "workspace changed" in refusal.value.message
    assert not (root / "ran").exists()


@pytest.mark.requirement("sandbox.roots")
async def test_where_a_root_itself_was_swapped_for_a_link_nothing_runs(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()

    def swap() -> None:
        root.rename(root.parent / "moved")
        root.symlink_to("outside")

    with anyio.fail_after(30), pytest.raises(ToolError) as refusal:
        await begun(root, "echo ran > ran", swap)
    assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert not (outside / "ran").exists()


@pytest.mark.requirement("sandbox.gate")
async def test_a_carriage_return_in_a_name_keeps_no_command_from_running(root: Path) -> None:
    (root / "x\ry" / ".vscode").mkdir(parents=True)
    assert await begun(root, "echo x > 'x\ry/.vscode/made'; exit 7", lambda: None) == 7
    assert list((root / "x\ry" / ".vscode").iterdir()) == []


@pytest.mark.requirement("sandbox.gate")
async def test_no_descriptor_stays_open_after_a_command(root: Path) -> None:
    async def settled() -> int:
        """How many are open, once nothing is closed any more."""
        last = -1
        with anyio.fail_after(30):
            while last != (last := len(os.listdir("/proc/self/fd"))):  # noqa: ASYNC110 - closing sets no event
                await anyio.sleep(0.05)
        return last

    await begun(root, "true", lambda: None)
    before = await settled()
    for _ in range(3):
        await begun(root, "true", lambda: None)
    assert await settled() <= before
