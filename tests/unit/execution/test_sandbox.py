"""When commands have a sandbox, when they have none, and what the user is told about it."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.hostile.sandboxed import READING, WORKING
from tests.processes import PRIVATE_FOLDERS, BrokerPerProgram
from tests.unit.execution.shell import shell_in
from tests.variants import one_in
from tests.waiting import until
from tools.contract.command_views import UNCONFINED, CommandView, Engine, Network, ViewKind
from tools.contract.tool_errors import ExhaustedError, ToolError, ToolErrorType
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import Mount, ProcessSpec, unread_output
from tools.shell.resource_limits import FILE_BYTES, PROCESSES, default_limits, is_root
from tools.shell.sandbox import bubblewrap
from tools.shell.sandbox.bubblewrap import (
    USUAL_FOLDER,
    BubblewrapConfinement,
    SandboxedCommand,
    SandboxMode,
    find_bubblewrap,
    setup_error,
)
from tools.shell.sandbox.landlock_and_seccomp import LandlockConfinement, seccomp_program, unavailable_reason
from tools.shell.sandbox.probe import WORKED
from tools.shell.sandbox.visible_file_system import Site

pytestmark = pytest.mark.anyio

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")


def spec(root: Path) -> ProcessSpec:
    return ProcessSpec(("/bin/true",), str(root), {"DISPLAY": ":0"})


def confinement(mode: SandboxMode, root: Path, program: str | None = None) -> BubblewrapConfinement:
    return BubblewrapConfinement(mode, Site(home=str(root.parent)), BrokerPerProgram(), PRIVATE_FOLDERS, "", program)


def fake_bubblewrap(root: Path, script: str) -> str:
    """Write a script named bwrap that stands in for bubblewrap, and return its path."""
    program = root.parent / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


FAKE_SCRIPTS = [
    ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "user namespaces are restricted"),
    ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "user namespaces are forbidden"),
    ("echo 'bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted' >&2; exit 1", "network namespace"),
    ("echo 'bwrap: Failed to make / slave: Permission denied' >&2; exit 1", "mounts are forbidden"),
    ('echo "bwrap: Can\'t read /proc/sys/kernel/overflowuid" >&2; exit 1', "/proc is missing"),
    ('echo "bwrap: Can\'t mount proc on /newroot/proc" >&2; exit 1', "a new /proc cannot be mounted"),
    ("echo 'bwrap: Unknown option --perms' >&2; exit 1", "too old"),
    ("exit 7", "it ended with code 7"),
    # Reads its arguments and the file that it must read, but mounts nothing.
    (
        """set -- $(tr '\\0\\n' '\\n ' < "/dev/fd/$2"); while [ "$1" != --file ]; do shift; done; cat "/dev/fd/$2" """,
        "it does not make the requested mounts",
    ),
    # These two run the command without any sandbox, which the probe must notice.
    ('while [ "$1" != -- ]; do shift; done; shift; exec "$@"', "it does not confine commands as it should: a test"),
    (
        'while [ "$1" != /bin/sh ]; do shift; done; exec "$@"',
        "it does not confine commands as it should: a test command",
    ),
    ("exec sleep 600", "did not answer within 5 s"),
]


@only_linux
@pytest.mark.requirement("sandbox.probe")
@pytest.mark.parametrize(("script", "reason"), one_in(4, FAKE_SCRIPTS))
async def test_a_sandbox_that_does_not_work_is_refused_or_not_used(root: Path, script: str, reason: str) -> None:
    program = fake_bubblewrap(root, script)
    with pytest.raises(ToolError) as refusal:
        await confinement(SandboxMode.REQUIRED, root, program).confine(spec(root), [str(root)], WORKING)
    assert refusal.value.code is ToolErrorType.SANDBOX_UNAVAILABLE
    assert reason in refusal.value.message
    assert "shell.sandbox" in refusal.value.message
    sandbox = confinement(SandboxMode.AUTO, root, program)
    with pytest.raises(ToolError, match="the sandbox that it was approved for is no longer available"):
        await sandbox.confine(spec(root), [str(root)], WORKING)
    assert sandbox.site([str(root)], "").engine is Engine.NONE
    command = await sandbox.confine(spec(root), [str(root)], UNCONFINED)
    assert (command.spec, command.engine, command.view, command.network) == (spec(root), "none", "unconfined", "host")
    # The probe left nothing behind.
    assert sorted(path.name for path in root.parent.iterdir()) == ["bwrap", "workspace"]


@only_linux
@pytest.mark.requirement("sandbox.probe")
@pytest.mark.parametrize(
    ("deletion", "reason"),
    [
        ("/^--unshare-net$/d", "a test command had a route to the network"),
        ("/^--unshare-pid$/d", "a test command was in the process namespace of this server"),
        ("/^--seccomp$/,+1d", "a test command ran without a system call filter"),
    ],
)
async def test_a_sandbox_that_ignores_an_option_is_not_relied_on(root: Path, deletion: str, reason: str) -> None:
    if (await confinement(SandboxMode.AUTO, root).status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    if "network" in reason and len(Path("/proc/net/route").read_text().splitlines()) == 1:
        pytest.skip("not run: there is no route to a network here")
    options = root.parent / "options"
    program = fake_bubblewrap(
        root,
        f"tr '\\0' '\\n' < /dev/fd/$2 | sed '{deletion}' | tr '\\n' '\\0' > {options}; shift 2; "
        f'exec {USUAL_FOLDER}/bwrap --args 3 "$@" 3< {options}',
    )
    failure = (await confinement(SandboxMode.AUTO, root, program).status([])).failure
    assert failure == f"it does not confine commands as it should: {reason}"


@only_linux
@pytest.mark.requirement("sandbox.probe")
async def test_a_lack_of_descriptors_for_the_mounts_does_not_count_as_a_result(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(_command: SandboxedCommand, _mount: Mount) -> None:
        raise setup_error(OSError(errno.EMFILE, ""))

    monkeypatch.setattr(SandboxedCommand, "begin", begin)
    monkeypatch.setattr(bubblewrap, "SCARCITY_ATTEMPTS", 1)
    sandbox = confinement(SandboxMode.AUTO, root, fake_bubblewrap(root, "exit 0"))
    with pytest.raises(ExhaustedError):
        await sandbox.status([])
    assert sandbox.site([], "").failure == "it has not been tested yet"


@pytest.mark.requirement("sandbox.probe")
async def test_without_the_program_there_is_no_sandbox(root: Path) -> None:
    missing_program = str(root / "missing")
    with pytest.raises(ToolError) as refusal:
        await confinement(SandboxMode.REQUIRED, root, missing_program).confine(spec(root), [str(root)], UNCONFINED)
    assert refusal.value.code is ToolErrorType.SANDBOX_UNAVAILABLE
    sandbox = confinement(SandboxMode.AUTO, root, missing_program)
    assert sandbox.site([str(root)], "").engine is Engine.NONE
    assert (await sandbox.confine(spec(root), [str(root)], UNCONFINED)).spec == spec(root)


@only_linux
@pytest.mark.requirement("sandbox.probe")
async def test_the_sandbox_is_probed_once(root: Path) -> None:
    program = fake_bubblewrap(root, f"echo x >> {root}/tried; exit {WORKED}")
    sandbox = confinement(SandboxMode.AUTO, root, program)
    for view in (WORKING, READING):
        with pytest.raises(ToolError):
            await sandbox.confine(spec(root), [str(root)], view)
    assert sandbox.site([str(root)], "").engine is Engine.NONE
    assert (root / "tried").read_text() == "x\n"


@pytest.mark.requirement("sandbox.modes")
async def test_a_sandbox_that_is_switched_off_is_not_probed(root: Path) -> None:
    program = fake_bubblewrap(root, f"echo x >> {root}/tried")
    sandbox = confinement(SandboxMode.OFF, root, program)
    assert sandbox.site([str(root)], "").engine is Engine.NONE
    command = await sandbox.confine(spec(root), [str(root)], UNCONFINED)
    assert (command.spec, command.engine) == (spec(root), "none")
    assert list(root.iterdir()) == []


@only_linux
@pytest.mark.requirement("sandbox.roots")
@pytest.mark.parametrize("broad_root", one_in(3, ["/", "/etc", "/usr", "/home", "/tmp", "/var"]))
async def test_a_root_that_contains_system_folders_is_refused(root: Path, broad_root: str) -> None:
    sandbox = confinement(SandboxMode.REQUIRED, root)
    if (await sandbox.status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    with pytest.raises(ToolError) as refusal:
        await sandbox.confine(spec(root), [str(root), broad_root], WORKING)
    assert f"'{broad_root}'" in refusal.value.message
    assert sandbox.site([broad_root], "").engine is Engine.NONE


@only_linux
@pytest.mark.requirement("sandbox.modes")
async def test_a_working_sandbox_wraps_the_command_and_reports_it(root: Path) -> None:
    sandbox = confinement(SandboxMode.AUTO, root)
    if (await sandbox.status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    assert sandbox.site([str(root)], "").engine is Engine.BUBBLEWRAP
    # Nothing holds a network for the session here, so the command gets its own loopback, and the result says so.
    view = replace(WORKING, network=Network.SESSION_LOOPBACK)
    command = await sandbox.confine(spec(root), [str(root)], view)
    assert (command.engine, command.view, command.network) == ("bubblewrap", "working", "own loopback")
    assert command.spec.argv[-1] == "/bin/true"
    assert "DISPLAY" not in command.spec.environment
    assert replace(command.spec.limits, group=None) == spec(root).limits
    sandbox.close()


@only_linux
@pytest.mark.requirement("landlock.works")
@pytest.mark.skipif(bool(unavailable_reason()), reason="not run: the kernel has no Landlock")
async def test_git_under_landlock_uses_the_users_settings_even_if_they_are_a_symlink_and_never_the_workspace(
    tmp_path: Path,
) -> None:
    home, root = tmp_path / "home", tmp_path / "git" / "config"
    for folder in (home / "dotfiles", root):
        folder.mkdir(parents=True)
    (home / "dotfiles" / "git").write_text("[user]\n\tname = me\n[include]\n\tpath = more\n")
    (home / "more").write_text("[user]\n\temail = me@home\n")
    starter, folders = BrokeredStarter(), PrivateFolders(str(tmp_path))
    sandbox = BubblewrapConfinement(
        SandboxMode.AUTO,
        Site(str(home)),
        starter,
        folders,
        program=str(root / "missing"),
        landlock=LandlockConfinement(starter, folders),
    )
    view = CommandView(Engine.LANDLOCK, ViewKind.READING, Network.OWN_LOOPBACK)
    command = "git config user.name; git config user.email; echo $?"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}

    async def output() -> str:
        shell = ProcessSpec(("/bin/sh", "-c", command), str(root), environment)
        confined_command = await sandbox.confine(shell, [str(root)], view)
        process = await starter.start(confined_command.spec)
        await process.wait()
        try:
            return unread_output(process)
        finally:
            process.close()

    assert await output() == "1\n"
    (home / ".gitconfig").symlink_to("dotfiles/git")
    assert await output() == "me\nme@home\n0\n"
    (home / ".gitconfig").unlink()
    (home / ".gitconfig").symlink_to(root / "settings")
    (root / "settings").write_text("[user]\n\tname = other\n")
    assert await output() == "1\n"
    await starter.aclose()
    await folders.aclose()


@only_linux
@pytest.mark.requirement("sandbox.probe")
def test_the_program_is_looked_for_outside_of_all_workspaces(root: Path) -> None:
    inside, outside = root / "bin", root.parent / "bin"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "bwrap").write_text("#!/bin/sh\n")
        (folder / "bwrap").chmod(0o755)
    search = os.pathsep.join((str(inside), "relative", str(outside)))
    # The usual folder counts as a workspace here. Otherwise it would be searched first.
    roots = [str(root), USUAL_FOLDER]
    assert find_bubblewrap(search, roots) == str(outside / "bwrap")
    assert find_bubblewrap(str(inside), roots) is None


@only_linux
@pytest.mark.requirement("scarcity.refused")
@pytest.mark.parametrize(
    ("mode", "message"),
    one_in(
        3,
        [
            (SandboxMode.AUTO, "Resource temporarily unavailable"),
            (SandboxMode.REQUIRED, "Too many open files"),
            (SandboxMode.AUTO, "Cannot allocate memory"),
        ],
    ),
)
async def test_a_sandbox_that_could_not_be_probed_for_lack_of_resources_is_probed_again(
    tmp_path: Path, mode: SandboxMode, message: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    program = fake_bubblewrap(root, f"echo 'bwrap: Creating new namespace failed: {message}' >&2; exit 1")
    sandbox = confinement(mode, root, program)
    with pytest.raises(ToolError) as refusal:
        await sandbox.confine(spec(root), [str(root)], WORKING)
    assert refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED
    fake_bubblewrap(root, "kill -9 $$")
    assert (await sandbox.status([str(root)])).failure == "it was killed by SIGKILL"


@pytest.mark.requirement("sandbox.kernel")
@pytest.mark.parametrize(("machine", "audit"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
@pytest.mark.parametrize("terms", [{}, {"only_reads": True}, {"only_reads": True, "may_signal": False}])
def test_all_jumps_of_the_system_call_filter_stay_within_the_program(
    machine: str, audit: int, terms: dict[str, bool]
) -> None:
    program = seccomp_program(machine, **terms)
    assert program is not None
    lines = [program[at : at + 8] for at in range(0, len(program), 8)]
    assert int.from_bytes(lines[1][4:], "little") == audit
    assert lines[-1] == bytes.fromhex("060000000000ff7f")
    for at, line in enumerate(lines):
        if line[0] & 7 == 5:
            assert at + 1 + max(line[2], line[3]) < len(lines)


@pytest.mark.requirement("sandbox.kernel")
def test_there_is_no_filter_for_an_unknown_machine() -> None:
    assert seccomp_program("riscv64") is None


@pytest.mark.requirement("sandbox.limits")
def test_every_command_has_limits() -> None:
    limits = default_limits()
    assert (limits.file_bytes, limits.core_bytes) == (FILE_BYTES, 0)
    if sys.platform == "win32" or is_root():
        assert limits.processes is None
    else:
        assert limits.processes is not None
        assert limits.processes > PROCESSES


@only_linux
@pytest.mark.requirement("sandbox.gate")
async def test_a_sandbox_that_fails_before_the_command_starts_is_an_error_and_not_output(root: Path) -> None:
    sandbox = confinement(SandboxMode.AUTO, root, fake_bubblewrap(root, f'exec {USUAL_FOLDER}/bwrap "$@"'))
    if (await sandbox.status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    async with shell_in(root, root.parent, confinement=sandbox) as shell:
        shell.context = replace(shell.context, view=WORKING)
        for script, cause in (
            ("echo 'bwrap: Creating folders failed' >&2; exit 1", " (bwrap: Creating folders failed)"),
            ("exit 1", ""),
        ):
            fake_bubblewrap(root, script)
            error = await shell.error_of("touch ran")
            assert error.code is ToolErrorType.SANDBOX_UNAVAILABLE
            assert f"its sandbox could not be set up{cause}. " in error.message
    assert list(root.iterdir()) == []


@only_linux
@pytest.mark.requirement("sandbox.probe")
async def test_a_cancelled_probe_leaves_nothing_behind(root: Path) -> None:
    parent = root.parent / "private"
    folders = PrivateFolders(str(parent))
    site = Site(home=str(root.parent))
    sandbox = BubblewrapConfinement(
        SandboxMode.AUTO, site, BrokerPerProgram(), folders, "", fake_bubblewrap(root, "exec sleep 600")
    )
    async with anyio.create_task_group() as group:
        group.start_soon(sandbox.status, [str(root)])
        await until(lambda: list(parent.glob("*/probe/*/root")))
        group.cancel_scope.cancel()
    assert list(parent.glob("*/probe/*")) == []
    await folders.aclose()
    assert list(parent.iterdir()) == []
