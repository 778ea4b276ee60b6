"""Real commands in the real sandbox: forbidden actions fail, ordinary ones work, and nothing is left on the disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import mcp_types as types
import pytest

from tests.fork_server import forked
from tests.harness import write_config
from tests.hostile.sandboxed import PROGRAM, READING, WORKING, CommandResult, run, run_confined, sandbox_for
from tests.interaction.test_own_files import Person, workspace_client
from tests.other_user import NOBODY
from tests.variants import one_in
from tests.waiting import until
from tools.contract.command_views import CommandView, Network
from tools.contract.tool_errors import ToolError
from tools.shell import private_folders
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_environment import command_environment
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import ProcessSpec, SandboxChanges
from tools.shell.resource_limits import GROUP_PROCESSES, is_root
from tools.shell.result_text import sandbox_notes
from tools.shell.sandbox.auto_run_guard import COPIED_ENTRIES, AutoRunScanner, is_harmless
from tools.shell.sandbox.bubblewrap import BubblewrapConfinement, SandboxedCommand
from tools.shell.sandbox.visible_file_system import Site

pytestmark = pytest.mark.anyio
GIT = replace(WORKING, is_git=True, is_asked=True)

if sys.platform != "linux":
    pytest.skip("not run: bubblewrap is Linux only", allow_module_level=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with secrets."""
    folder = tmp_path.resolve() / "home"
    for name in (".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc", ".claude/settings.json"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("the secret")
    (folder / ".npmrc").write_text("//registry.example/:_authToken=the secret\n")
    (folder / ".condarc").write_text("channels: [conda-forge]\n")
    (folder / ".bashrc").write_text("")
    return folder


async def confinement(
    home: Path,
    settings: Sequence[Path] = (),
    writable: tuple[str, ...] = (),
    consented_digests: Mapping[str, str] = MappingProxyType({}),
) -> BubblewrapConfinement:
    site = Site(home=str(home), read_only=tuple(map(str, settings)), writable=writable)
    return await sandbox_for(site, consented_digests)


async def run_in_sandbox(
    home: Path, command: str, *roots: Path, network: Network = Network.OWN_LOOPBACK
) -> CommandResult:
    sandbox = await confinement(home)
    try:
        view = replace(WORKING, network=network)
        return await run(sandbox, command, [str(root) for root in roots], environment_of(home), view=view)
    finally:
        sandbox.close()


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of commands, with the test's home."""
    return command_environment({"HOME": str(home)}, os.environ)


def listing(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return the mode of everything in a folder, with the content of files."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def start(argv: Sequence[str], folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a program outside the sandbox; its standard input stays open until it is killed."""
    return subprocess.Popen(argv, cwd=folder, stdin=subprocess.PIPE)


def repository(folder: Path) -> Path:
    """Make a git repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    git += ["-c", "maintenance.auto=false"]  # later versions of git leave it running in the background
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run([*git, "init", "-q"], cwd=folder, env=environment, check=True)
    (folder / "file").write_text("one\n")
    subprocess.run([*git, "add", "."], cwd=folder, env=environment, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=folder, env=environment, check=True)
    return folder


def python(code: str) -> str:
    """Return a shell command that runs Python code."""
    return f"/usr/bin/env python3 - <<'END'\n{code}\nEND"


FORBIDDEN_COMMANDS = (
    "echo x > /etc/x",
    "echo x >> ~/.bashrc",
    "mknod device c 1 3",
    "echo x > /proc/sys/kernel/core_pattern",
    "mount -t tmpfs none .",
    "unshare -U true",
    "cat ~/.ssh/id_ed25519",
    "cat ~/.aws/credentials",
    "cat ~/.config/gh/hosts.yml",
    "cat ~/.netrc",
    "grep secret ~/.npmrc",
    "cat ~/.claude/settings.json",
    "echo x > ~/.ssh/authorized_keys",
    "cat /etc/shadow",
)
"""Each command must fail."""


@pytest.mark.requirement("sandbox.outside")
@pytest.mark.parametrize("command", FORBIDDEN_COMMANDS)
async def test_files_outside_cannot_be_read_or_changed(root: Path, home: Path, command: str) -> None:
    before = listing(home)
    result = await run_in_sandbox(home, command, root)
    assert result.code != 0
    assert "secret" not in result.output
    assert listing(home) == before
    assert list(root.iterdir()) == []


@pytest.mark.requirement("sandbox.outside")
async def test_settings_without_a_secret_stay_readable(root: Path, home: Path) -> None:
    assert "conda-forge" in (await run_in_sandbox(home, "cat ~/.condarc", root)).output


@pytest.mark.requirement("sandbox.outside")
async def test_writes_next_to_a_root_in_a_private_folder_reach_no_disk(root: Path, home: Path) -> None:
    await run_in_sandbox(home, "echo x > ../beside; mkdir -p ../other/deep", root)
    assert sorted(path.name for path in root.parent.iterdir()) == ["home", "workspace"]


CONNECT = "import socket; socket.socket(socket.AF_UNIX).connect({address!r})"


@pytest.mark.requirement("sandbox.network")
@pytest.mark.parametrize("network", [Network.OWN_LOOPBACK, Network.HOST])
@pytest.mark.parametrize("place", ["beside", "home", "workspace", "abstract"])
async def test_no_local_socket_outside_is_reached(root: Path, home: Path, place: str, network: Network) -> None:
    folder = {"beside": root.parent, "home": home, "workspace": root}.get(place)
    with socket.socket(socket.AF_UNIX) as server:
        if folder is None:
            address = f"\0{root}"
            server.bind(address)
        else:
            address = "s"
            # A test's path can be longer than a socket's address may be.
            descriptor = os.open(folder, os.O_RDONLY)
            server.bind(f"/proc/self/fd/{descriptor}/s")
            os.close(descriptor)
        server.listen()
        code = CONNECT.format(address=address)
        server.setblocking(False)
        # Without the sandbox the connection works.
        await anyio.run_process([sys.executable, "-c", code], cwd=folder or root)
        server.accept()[0].close()
        result = await run_in_sandbox(home, f"cd {folder or root}; " + python(code), root, network=network)
        assert result.code != 0
        assert "Error" in result.output
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.requirement("sandbox.network")
async def test_socket_pairs_work_except_those_that_could_connect_elsewhere(root: Path, home: Path) -> None:
    code = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b"x")
    print(b.recv(1))
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
except OSError as error:
    print("refused", error.errno)
"""
    result = await run_in_sandbox(home, python(code), root)
    assert result.output.splitlines() == ["b'x'", "b'x'", "refused 93"]


@pytest.mark.requirement("sandbox.network")
async def test_without_network_only_the_sandboxs_own_loopback_is_reached(root: Path, home: Path) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
print("loopback")
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    try:
        socket.socket(socket.AF_INET, kind).connect(("192.0.2.1", 9))
        print("reached")
    except OSError as error:
        print(error.errno)
"""
    result = await run_in_sandbox(home, python(code), root)
    assert result.output.splitlines() == ["loopback", "101", "101"]


@pytest.mark.requirement("sandbox.network")
@pytest.mark.parametrize("network", [Network.OWN_LOOPBACK, Network.HOST])
async def test_a_server_on_this_machine_is_reached_only_with_the_machines_network(
    root: Path, home: Path, network: Network
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5); print('reached')"
        result = await run_in_sandbox(home, python(code), root, network=network)
    assert ("reached" in result.output.splitlines()) == (network is Network.HOST)


@pytest.mark.requirement("sandbox.kernel")
async def test_system_calls_that_would_bypass_the_filter_are_refused(root: Path, home: Path) -> None:
    code = """
import ctypes, errno, platform
call = ctypes.CDLL(None, use_errno=True).syscall
numbers = {"x86_64": (250, 321, 323, 298, 308, 272), "aarch64": (219, 280, 282, 241, 268, 97)}[platform.machine()]
for number in (425, 426, 427, 435, *numbers):
    ctypes.set_errno(0)
    result = call(number, 0x10000000, 0, 0, 0, 0)
    print(result, errno.errorcode[ctypes.get_errno()])
if platform.machine() == "x86_64":
    print(call(0x40000000 + 39), errno.errorcode[ctypes.get_errno()])
"""
    result = await run_in_sandbox(home, python(code), root)
    lines = result.output.splitlines()
    assert lines[:4] == ["-1 ENOSYS"] * 4
    assert lines[4:10] == ["-1 EPERM"] * 6
    assert lines[10:] in ([], ["-1 ENOSYS"])


@pytest.mark.requirement("sandbox.processes")
async def test_no_process_outside_can_be_seen_or_killed(root: Path, home: Path) -> None:
    bystander = start(["sleep", "600"])
    try:
        pid = os.getpid()
        for command in (
            "kill -9 $PPID; kill -9 -- -1; true",
            f"kill -9 {bystander.pid}; kill -9 {pid}; true",
            "pkill -9 -f sleep; true",
        ):
            await run_in_sandbox(home, command, root)
            assert bystander.poll() is None
        result = await run_in_sandbox(home, f"cat /proc/{pid}/environ || ls /proc | grep -c '^[0-9]'", root)
        assert int(result.output.splitlines()[-1]) < 10
        trace = f"import ctypes; print(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0))"
        assert (await run_in_sandbox(home, python(trace), root)).output.strip() == "-1"
    finally:
        bystander.kill()
        bystander.communicate()


@pytest.mark.requirement("sandbox.processes")
async def test_processes_that_a_command_leaves_behind_continue_and_can_be_ended(root: Path, home: Path) -> None:
    command = (
        f"setsid sleep 598 & (setsid setsid sleep 598 &) ; cp {shutil.which('sleep')} {root}/stays; {root}/stays 598 &"
    )
    sandbox = await confinement(home)
    spec = ProcessSpec(("/bin/bash", "-c", command), str(root), command_environment({}, os.environ))
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    broker = BrokeredStarter()
    try:
        process = await broker.start(sandboxed_command.spec)
        with anyio.fail_after(30):
            await sandboxed_command.begin(process.mount)
            assert (await process.wait()).code == 0
            assert await process.left_running()
            assert any("stays" in line for line in _command_lines())
            await process.end(0.2)
        assert not any("stays" in line for line in _command_lines())
        process.close()
    finally:
        await broker.aclose()
        await sandboxed_command.release()


def _command_lines() -> list[str]:
    lines: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            lines.append((folder / "cmdline").read_bytes().decode("utf-8", "replace"))
    return [line for line in lines if "598" in line]


AUTO_RUN_CHANGES = (
    "echo x > .git/hooks/pre-commit",
    "echo x >> .git/config",
    "git config core.fsmonitor ./x",
    "rm -rf .git",
    "mv .git .git2",
    "mv .git/hooks .git/hooks2",
    "rm .git/config",
    "ln -sf ../x .git/hooks/post-checkout",
    "echo x > vendor/x/.git/hooks/post-merge",
    "echo x >> vendor/x/.git/config",
    "echo x >> sub/.git",
    "rm sub/.git",
    "echo x > present/.vscode/settings.json",
    "echo x > present/.vscode/tasks.json",
    "echo x > Present.code-workspace",
    "echo x > link/settings.json",
    "echo x >> own-settings.json",
)
"""Each command must fail and leave the workspace as it was."""

NEW_AUTO_RUN_FILES = (
    "mkdir -p .vscode && echo x > .vscode/tasks.json",
    "echo x > .mcp.json",
    "echo {} > mcp.lock.json",
    "mkdir -p .coretools && echo x > .coretools/settings.json",
    "mkdir -p deep/er/.qwen && echo x > deep/er/.qwen/settings.json",
    "mkdir -p other && echo x > other/settings.json && mv other .gemini",
    "ln -s present .claude",
    "cp -r present other",
    "echo x > absent-settings.json",
    "mkdir -p absent/folder && echo x > absent/folder/settings.json",
    "echo {} > x.untrusted.code-workspace",
    "git init -q other && echo x > other/.git/hooks/post-checkout",
    "git init -q other && git -C other config core.fsmonitor ./x",
    "mkdir other && echo 'gitdir: ../evil' > other/.git",
    "cp -r .git evil && echo ../evil > .git/commondir",
    "M=.git/modules/m; mkdir -p $M/objects/x o; echo x > $M/HEAD; echo gitdir: ../$M/objects/x > o/.git",
    "mkdir -p .git/modules/a/b/c/d/e/f other; echo 'gitdir: ../.git/modules/a/b/c/d/e/f' > other/.git",
    "M=node_modules/.git/modules/m; mkdir -p $M o; touch $M/config; echo gitdir: ../$M > o/.git",
    "mkdir -p .git/modules/m other; touch .git/modules/m/config; echo 'gitdir:  ../.git/modules/m' > other/.git",
    "mkdir -p .git/modules/m other; touch .git/modules/m/config; echo 'gitdir: ../.git/modules/m ' > other/.git",
    "mkdir other; ln -s x other/x; echo 'gitdir: x/y' > other/.git",
    r"mkdir other; printf 'gitdir: x\\0y' > other/.git",
    r"git init -q other && printf '[core]\n#\r[color]\n\tfsmonitor = ./x\n' > other/.git/config",
    r"git init -q other && printf '[core]\n#\f[color]\n\tfsmonitor = ./x\n' > other/.git/config",
    "git init -q other && git -C other config core.worktree $PWD",
    "git init -q other && git -C other config core.worktree ../..",
    "mkdir -p b y/refs y/objects; echo ref: refs/heads/main > b/HEAD; echo ../y > b/commondir",
    "mkdir -p b/refs b/objects; echo ref: x > b/HEAD; printf '[core]\\nbare = false\\nfsmonitor = ./x\\n' > b/config",
)
"""Each command succeeds, but afterwards the files that programs outside obey are no longer there."""


@pytest.fixture
def auto_run_root(root: Path) -> Path:
    """A workspace with auto-run files."""
    repository(root)
    repository(root / "vendor" / "x")
    (root / "sub").mkdir()
    (root / "sub" / ".git").write_text("gitdir: ../vendor/x/.git\n")
    (root / "present" / ".vscode").mkdir(parents=True)
    (root / "present" / ".vscode" / "settings.json").write_text("{}")
    (root / "Present.code-workspace").write_text("{}")
    (root / "own-settings.json").write_text("{}")
    (root / "config").mkdir()
    (root / "link").symlink_to("present/.vscode")
    return root


@pytest.mark.requirement("sandbox.auto_run")
@pytest.mark.parametrize("command", one_in(4, AUTO_RUN_CHANGES))
async def test_no_auto_run_file_is_changed_and_nothing_is_left(auto_run_root: Path, home: Path, command: str) -> None:
    before = listing(auto_run_root)
    sandbox = await confinement(home, settings=[auto_run_root / "own-settings.json"])
    result = await run(sandbox, command, [str(auto_run_root)], environment_of(home))
    assert result.code != 0
    after = listing(auto_run_root)
    # git and rm may have changed other files.
    names = {name for name in before if "objects" not in name and "index" not in name and "logs" not in name}
    assert {name: after.get(name) for name in names if _is_auto_run(name)} == {
        name: before[name] for name in names if _is_auto_run(name)
    }
    assert {name for name in after if _is_auto_run(name)} == {name for name in before if _is_auto_run(name)}
    assert result.changes == SandboxChanges()


def _is_auto_run(name: str) -> bool:
    return any(
        part in name for part in ("hooks", "config", ".vscode", ".mcp", ".coretools", "settings", ".claude", ".qwen")
    )


@pytest.mark.requirement("sandbox.new_files")
@pytest.mark.parametrize("command", one_in(4, NEW_AUTO_RUN_FILES))
@pytest.mark.parametrize("has_folder", [True, False], ids=["known client", "unknown client"])
async def test_new_files_that_programs_outside_obey_are_moved_out_of_the_workspace(
    auto_run_root: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, has_folder: bool
) -> None:
    private, away = tmp_path.resolve() / "private", tmp_path.resolve() / "away"
    private.mkdir()
    away.mkdir()
    absent = [auto_run_root / "absent-settings.json", auto_run_root / "absent" / "folder" / "settings.json"]
    sandbox = await confinement(home, settings=absent)
    monkeypatch.setattr(tempfile, "tempdir", str(away))
    paths_before = {path for path in AutoRunScanner().scan(str(auto_run_root)).paths if os.path.lexists(path)}
    folder = (lambda: str(private)) if has_folder else None
    result = await run(sandbox, command, [str(auto_run_root)], environment_of(home), private_folder=folder)
    assert result.code == 0, result.output
    paths_after = AutoRunScanner().scan(str(auto_run_root)).paths
    assert [
        path for path in paths_after - paths_before if not is_harmless(path, [str(auto_run_root)], paths_after)
    ] == []
    assert not any(path.exists() for path in absent)
    assert result.changes.moved
    for old, new in result.changes.moved:
        assert not os.path.lexists(old)
        assert os.path.lexists(new)
        assert Path(new).is_relative_to(away if has_folder else auto_run_root)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in away.iterdir()] == [0o700] * has_folder
    assert replace(result.changes, moved=()) == SandboxChanges()


@pytest.mark.requirement("sandbox.roots")
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="not run: there is no /dev/shm here")
async def test_a_workspace_in_shared_memory_is_protected_and_writable_like_any_other(home: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        root, other = folder / "work", folder / "other"
        repository(root)
        other.mkdir()
        command = f"echo new > file; echo x > .git/hooks/post-commit; echo x > {other}/x; ls {folder}"
        result = await run_in_sandbox(home, command, root)
        assert result.output.splitlines()[-1] == "work"
        assert (root / "file").read_text() == "new\n"
        assert not (root / ".git" / "hooks" / "post-commit").exists()
        assert list(other.iterdir()) == []
    finally:
        shutil.rmtree(folder)


@pytest.mark.requirement("sandbox.new_files_elsewhere")
async def test_files_moved_to_another_file_system_are_complete_and_bounded_and_outlive_the_session(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == root.stat().st_dev:
        pytest.skip("not run: there is no other file system here")
    command = (
        "mkdir -p .vscode/deep .idea .fleet; echo work > .vscode/deep/a; ln -s a .vscode/deep/link;"
        "mkfifo .vscode/pipe; ln -s /etc .claude; truncate -s 60M .idea/a .idea/b; mkdir .fleet/{1..10001};"
        "echo x > .envrc"
    )
    mode = stat.S_IMODE(root.stat().st_mode)
    folders, temporary_folder = PrivateFolders(str(root.parent)), tempfile.mkdtemp(dir=shared_memory)
    monkeypatch.setattr(tempfile, "tempdir", temporary_folder)
    client = folders.folder("client")
    assert client is not None
    sandbox = await confinement(home)
    try:
        result = await run(sandbox, command, [str(root)], environment_of(home), private_folder=client.make)
        await folders.aclose()
        # Another server starts, and removes the folders that others have abandoned.
        folders = PrivateFolders(temporary_folder)
        client = folders.folder("client")
        assert client is not None
        await anyio.to_thread.run_sync(client.make)
        await folders.aclose()
        new_paths = {Path(old).name: Path(new) for old, new in result.changes.moved}
        assert set(new_paths) == {".vscode", ".idea", ".fleet", ".claude", ".envrc"}, result.output
        renamed_in_place = {name for name, new in new_paths.items() if new.parent == root}
        assert renamed_in_place == {".idea", ".fleet"}
        assert {path.name for path in root.iterdir()} == {new_paths[name].name for name in renamed_in_place}
        assert len(list(new_paths[".fleet"].iterdir())) == COPIED_ENTRIES + 1
        assert (new_paths[".vscode"] / "deep" / "link").read_text() == "work\n"
        assert (new_paths[".vscode"] / "pipe").is_fifo()
        assert new_paths[".claude"].readlink() == Path("/etc")
        assert new_paths[".envrc"].read_text() == "x\n"
        assert set(new_paths[".envrc"].parent.iterdir()) == {
            new_paths[name] for name in set(new_paths) - renamed_in_place
        }
        notes = sandbox_notes(result.changes)
        assert len(notes) == 2
        assert "until the system clears its temporary files" in notes[0]
        assert "renamed in place" in notes[1]
        assert stat.S_IMODE(root.stat().st_mode) == mode
    finally:
        sandbox.close()
        shutil.rmtree(temporary_folder)


@pytest.mark.requirement("sandbox.new_files")
async def test_the_sandbox_puts_nothing_into_the_workspace_while_a_command_runs(root: Path, home: Path) -> None:
    result = await run_in_sandbox(home, "find . | sort", root)
    assert result.output == ".\n"


@pytest.mark.requirement("sandbox.new_files")
async def test_files_that_people_and_git_create_while_a_job_runs_stay(root: Path, home: Path) -> None:
    repository(root)
    commit = "git checkout -qb settings; mkdir .qwen; echo x > .qwen/settings.json; git add .qwen; {} commit -qm x"
    git = "git -c user.name=t -c user.email=t@example.org"
    await anyio.run_process(["bash", "-ec", f"{commit.format(git)}; git checkout -q main"], cwd=root)
    consented_digests: dict[str, str] = {}
    sandbox = await confinement(home, consented_digests=consented_digests)
    environment = environment_of(home)

    def meanwhile() -> None:
        for name in ("settings.json", "tasks.json"):
            (root / ".vscode").mkdir(exist_ok=True)
            (root / ".vscode" / name).write_text("{}")
            consented_digests[str(root / ".vscode" / name)] = hashlib.sha256(b"{}").hexdigest()

    async def check_out_settings() -> None:
        command = "git checkout -q settings && git init -q x"
        await run(sandbox, command, [str(root)], environment, view=GIT)

    spec = ProcessSpec(("/bin/bash", "-c", "until [ -e end ]; do sleep 0.01; done"), str(root), environment)
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)
    async with anyio.create_task_group() as group:
        group.start_soon(run_confined, sandboxed_command, 30, meanwhile)
        await until((root / ".vscode").exists)
        await check_out_settings()
        (root / "end").touch()
    assert await sandboxed_command.release() == SandboxChanges()
    assert (root / ".qwen" / "settings.json").exists()


@pytest.mark.requirement("sandbox.new_files")
async def test_consent_covers_the_written_content_and_nothing_next_to_it(root: Path, home: Path) -> None:
    good, names = "good\n", (".envrc", ".vscode/tasks.json", ".qwen/agents/a.md", ".gemini/settings.json", ".mcp.json")
    consented_digests = {str(root / name): hashlib.sha256(good.encode()).hexdigest() for name in names}
    consented_digests[str(root / ".claude" / "settings.json")] = hashlib.sha256().hexdigest()
    (root / ".claude").mkdir()
    (root / ".claude" / "settings.json").write_text(good)
    sandbox = await confinement(home, consented_digests=consented_digests)

    def meanwhile() -> None:
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(good)
        (root / ".claude" / "settings.json").unlink()
        # A job does this as soon as it sees the files: it changes one, adds another and replaces one with a link.
        (root / ".envrc").write_text("evil\n")
        (root / ".qwen" / "agents" / "b.md").write_text("evil\n")
        (root / ".gemini" / "settings.json").unlink()
        (root / ".gemini" / "settings.json").symlink_to(root / ".mcp.json")

    spec = ProcessSpec(("/bin/bash", "-c", "true"), str(root), environment_of(home))
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)
    await run_confined(sandboxed_command, 30, meanwhile)
    changes = await sandboxed_command.release()
    assert [Path(old).name for old, _ in changes.moved] == [".envrc", ".gemini", ".qwen"]
    assert replace(changes, moved=()) == SandboxChanges()
    assert (root / ".mcp.json").read_text() == (root / ".vscode" / "tasks.json").read_text() == good


STEP_KINDS = {
    "a list of steps": "mkdir $R; echo 'exec ./x' > $R/git-rebase-todo",
    "a list of steps with a tab": "mkdir $R; printf 'pick a\n\tx ./x\n' > $R/git-rebase-todo",
    "a strategy": "mkdir $R; echo pick a > $R/git-rebase-todo; echo /../x > $R/strategy",
    "a strategy of two lines": "mkdir $R; printf 'ort\n/../x' > $R/strategy",
    "options of picks": "mkdir $S; printf '[options]\n\tSTRATEGY = x\n' > $S/opts",
    "a link": "mkdir steps; echo 'exec ./x' > steps/git-rebase-todo; ln -s ../steps $R",
    "a list that is a link": "mkdir $R; echo pick a > steps; ln -s ../../steps $R/git-rebase-todo",
    "a folder that looks like a repository": "mkdir $R; echo 'exec ./x' > $R/git-rebase-todo; touch $R/HEAD",
    "a step after many other files": "mkdir $R; touch $R/a{1..60}; echo 'exec ./x' > $R/git-rebase-todo",
}


@pytest.mark.requirement("sandbox.steps")
async def test_steps_that_git_would_continue_are_moved_away_if_they_run_something(root: Path, home: Path) -> None:
    repository(root)
    sandbox = await confinement(home)
    for step_kind, command in STEP_KINDS.items():
        place = "sequencer" if "$S" in command else "rebase-merge"
        paths = "R=.git/rebase-merge S=.git/sequencer;"
        result = await run(sandbox, f"{paths} {command}", [str(root)], environment_of(home))
        assert [old for old, _ in result.changes.moved] == [str(root / ".git" / place)], (step_kind, result.output)
        await anyio.run_process(["rm", "-rf", "steps"], cwd=root)
    # Steps that a person has begun are moved too, once a command has added something to run.
    steps = root / ".git" / "rebase-merge"
    steps.mkdir()
    (steps / "git-rebase-todo").write_text("exec make test\npick a\nexec make test\n")
    for command, is_moved in (("sed -i 1d git-rebase-todo", False), ("echo 'x ./x' >> git-rebase-todo", True)):
        result = await run(sandbox, f"cd {steps}; {command}", [str(root)], environment_of(home))
        assert bool(result.changes.moved) == is_moved
        assert steps.exists() != is_moved
        assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.steps")
@pytest.mark.parametrize("view", [WORKING, GIT], ids=["unasked", "git alone"])
async def test_later_commands_can_continue_a_rebase_and_cherry_picks_with_conflicts(
    root: Path, home: Path, view: CommandView
) -> None:
    repository(root)
    git = "git -c user.name=t -c user.email=t@example.org -c core.editor=true"
    prepare = (
        f"git checkout -qb other; for n in 1 2; do echo other $n > file; {git} commit -qam 'exec $n'; done;"
        f"git checkout -q main; echo main > file; {git} commit -qam main; git branch picks"
    )
    await anyio.run_process(["bash", "-ec", prepare], cwd=root)
    sandbox = await confinement(home)

    async def run_git(command: str) -> CommandResult:
        result = await run(sandbox, command, [str(root)], environment_of(home), view=view)
        assert result.changes == SandboxChanges(), result.output
        return result

    for beginning, continuation, steps in (
        ("checkout -q other && {} rebase main", "rebase --continue", "rebase-merge"),
        ("checkout -q picks && {} cherry-pick -X patience other@{{1}} other@{{0}}", "cherry-pick --skip", "sequencer"),
    ):
        assert (await run_git(f"{git} {beginning.format(git)}")).code != 0
        assert (root / ".git" / steps).exists()
        for number in (1, 2):
            await run_git(f"echo done {number} > file; git add file; {git} {continuation}")
        assert not (root / ".git" / steps).exists()
    with_steps = f"git checkout -q main; {git} rebase -q --reschedule-failed-exec -x false HEAD~1"
    result = await run(sandbox, with_steps, [str(root)], environment_of(home), view=view)
    steps = str(root / ".git" / "rebase-merge")
    assert ([old for old, _ in result.changes.moved], result.changes.changed) == (
        ([steps], ()) if view is WORKING else ([], (steps,))
    )


@pytest.mark.requirement("sandbox.git")
async def test_files_that_a_hook_or_a_job_creates_while_git_works_are_reported_or_moved(root: Path, home: Path) -> None:
    repository(root)
    hook = root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho x > .mcp.json\ngit config core.fsmonitor ./x\n")
    hook.chmod(0o755)
    sandbox = await confinement(home)
    environment, git = environment_of(home), "git -c user.name=t -c user.email=t@example.org"
    hook_result = await run(sandbox, f"{git} commit -qm x --allow-empty", [str(root)], environment, view=GIT)
    assert set(hook_result.changes.changed) == {str(root / ".mcp.json"), str(root / ".git" / "config")}
    hook.unlink()

    async def make_branch() -> None:
        await run(sandbox, "git branch x", [str(root)], environment, view=GIT)

    spec = ProcessSpec(
        ("/bin/bash", "-c", "mkdir .qwen; until [ -e end ]; do sleep 0.01; done"), str(root), environment
    )
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)
    async with anyio.create_task_group() as group:
        group.start_soon(run_confined, sandboxed_command)
        await until((root / ".qwen").exists)
        await make_branch()
        (root / "end").touch()
    changes = await sandboxed_command.release()
    assert [old for old, _ in changes.moved] == [str(root / ".qwen")]


@pytest.mark.requirement("sandbox.git")
@pytest.mark.parametrize(
    "command",
    [
        "git config user.name new && git config --get user.name",
        "git checkout -q -b local --track origin/settings && cat .vscode/settings.json .mcp.json",
        "git merge -q origin/settings && git push -q -u origin main",
        "git rebase -q origin/settings && git remote add other ../bare && git fetch -q other",
        "git checkout -q origin/settings && git rm -q -r .vscode && git stash -q && git stash pop -q",
        "git worktree add -q sub/tree origin/settings && git -C sub/tree checkout -q -b b2",
        "git clone -q ../bare copy && git init -q made && git -c protocol.file.allow=always submodule -q add ../bare m",
        "git branch -q x && git branch -q -u origin/main x && git branch -q -m x y && git branch -q -d y",
    ],
)
async def test_commands_of_git_alone_work_as_they_do_outside(root: Path, home: Path, command: str) -> None:
    (root / "seed").mkdir()
    repository(root / "seed")
    (root / "seed" / ".mcp.json").write_text("{}")
    (root / "seed" / ".vscode").mkdir()
    (root / "seed" / ".vscode" / "settings.json").write_text("{}")
    git = "git -c user.name=t -c user.email=t@example.org"
    prepare = (
        f"cd seed && git checkout -q -b settings && git add . && {git} commit -qm s && git checkout -q main && cd .. &&"
        " git clone -q --bare seed bare && git clone -q bare work && cd work &&"
        " git config user.email t@example.org && git config user.name t"
    )
    await anyio.run_process(["bash", "-ec", prepare], cwd=root)
    work = root / "work"
    sandbox = await confinement(home)
    result = await run(sandbox, command, [str(work), str(root / "bare")], environment_of(home), view=GIT)
    assert (result.code, result.changes) == (0, SandboxChanges()), result.output
    assert "resource busy" not in result.output
    status = await anyio.run_process(["git", "fsck"], cwd=work)
    assert status.returncode == 0


@pytest.mark.requirement("sandbox.git")
@pytest.mark.parametrize(
    "command",
    [
        "git -C node_modules/x commit -q --allow-empty -m x",
        "git push -q ./node_modules/x HEAD:refs/heads/other",
        "git rebase --continue",
    ],
)
async def test_files_written_by_hooks_of_another_repository_or_by_a_list_of_steps_are_reported(
    root: Path, home: Path, command: str
) -> None:
    repository(root)
    other_repository = repository(root / "node_modules" / "x")
    evil = root / "evil.sh"
    evil.write_text(
        f"#!/bin/sh\ncd {root}; mkdir .vscode; echo x > .vscode/tasks.json; echo x > .envrc\n"
        "printf '[core]\\n\\tfsmonitor = ./x\\n' >> .git/config; git config user.name y\n"
    )
    evil.chmod(0o755)
    for hook in ("pre-commit", "pre-receive"):
        shutil.copy(evil, other_repository / ".git" / "hooks" / hook)
    prepare = (
        "git config alias.x '!echo x'; git config user.email t@example.org; git config user.name t; cp -r .git/config "
        "node_modules/x/.git; GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i --root 2>&-; "
        "echo 'exec ./evil.sh' >> .git/rebase-merge/git-rebase-todo"
    )
    await anyio.run_process(["bash", "-c", prepare], cwd=root)
    sandbox = await confinement(home)
    result = await run(sandbox, command, [str(root)], environment_of(home), view=GIT)
    assert (root / ".envrc").exists(), result.output
    assert result.changes == SandboxChanges(changed=tuple(str(root / n) for n in (".envrc", ".git/config", ".vscode")))


@pytest.mark.requirement("sandbox.git")
@pytest.mark.parametrize(
    "command",
    one_in(
        3,
        [
            "git checkout -q main && git -C tree checkout -q --detach main",
            "git worktree remove tree && git submodule -q deinit -f m && git rm -q m",
            "cd tree; git checkout -q --detach main; git checkout -q other; git -C ../m checkout -q origin/settings",
            "git checkout -q other && git merge -q settings && git config user.name x && git remote add o ../bare",
            "git clone -q --bare . made.git && git --git-dir=made.git worktree add -q place settings",
            "git worktree move tree moved && git stash -q && git sparse-checkout set x && git worktree add -q sub/tree",
        ],
    ),
)
async def test_commands_of_git_alone_report_no_files_that_are_tracked_or_were_there_before(
    root: Path, home: Path, command: str
) -> None:
    repository(root)
    prepare = """
        git config user.email t@example.org; git config user.name t; git config alias.x '!echo x'; echo > .git/hooks/x
        git checkout -q -b settings; mkdir .vscode; echo {} > .mcp.json; echo {} > .vscode/settings.json; git add .
        git commit -qm s; git checkout -q -b other; echo [] > .mcp.json; git commit -qam o; git checkout -q settings
        git clone -q --bare . ../bare; git -c protocol.file.allow=always submodule -q add ../bare m; git commit -qm m
        git worktree add -q tree -b third; echo x > .vscode/own.json
    """
    await anyio.run_process(["bash", "-ec", prepare], cwd=root)
    sandbox = await confinement(home)
    result = await run(sandbox, command, [str(root)], environment_of(home), view=GIT)
    assert (result.code, result.changes) == (0, SandboxChanges()), result.output


@pytest.mark.requirement("sandbox.consent")
async def test_a_command_writes_the_files_that_a_person_allowed_and_no_others(auto_run_root: Path, home: Path) -> None:
    sandbox = await confinement(home)
    writable = (str(auto_run_root / "present" / ".vscode" / "settings.json"), str(auto_run_root / ".mcp.json"))
    view = replace(WORKING, writable=writable)
    command = (
        "echo new > present/.vscode/settings.json; echo {} > .mcp.json; echo x > .envrc;"
        " sed -i s/new/newer/ present/.vscode/settings.json; echo x > present/.vscode/tasks.json;"
        " echo x > .git/hooks/pre-commit"
    )
    result = await run(sandbox, command, [str(auto_run_root)], environment_of(home), view=view)
    assert (auto_run_root / "present" / ".vscode" / "settings.json").read_text() == "newer\n"
    assert (auto_run_root / ".mcp.json").read_text() == "{}\n"
    assert not (auto_run_root / ".git" / "hooks" / "pre-commit").exists()
    assert [old for old, _ in result.changes.moved] == [str(auto_run_root / ".envrc")]
    # The new file is in the folder that had to be writable, so it can only be reported.
    assert result.changes.changed == (str(auto_run_root / "present" / ".vscode"),)


@pytest.mark.requirement("sandbox.consent")
async def test_every_command_can_write_the_files_that_the_operator_names(auto_run_root: Path, home: Path) -> None:
    sandbox = await confinement(home, writable=(".vscode", "present/.vscode"))
    command = "mkdir .vscode; echo x > .vscode/tasks.json; echo x > present/.vscode/tasks.json; echo x > .envrc"
    result = await run(sandbox, command, [str(auto_run_root)], environment_of(home))
    assert result.code == 0
    assert (auto_run_root / ".vscode" / "tasks.json").exists()
    assert (auto_run_root / "present" / ".vscode" / "tasks.json").exists()
    assert [old for old, _ in result.changes.moved] == [str(auto_run_root / ".envrc")]
    assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.temporary")
async def test_the_temporary_folder_is_kept_between_commands_and_is_seen_by_nobody_else(
    root: Path, home: Path, tmp_path: Path
) -> None:
    private = tmp_path.resolve() / "private"
    private.mkdir()
    sandbox = await confinement(home)
    environment = environment_of(home)
    own = dict[str, Any](private_folder=lambda: str(private))
    first = await run(sandbox, "umask 0; echo kept > /var/tmp/file && mktemp -d", [str(root)], environment, **own)
    second = await run(sandbox, "cat /var/tmp/file; test -d $(ls -d $TMPDIR/tmp.*)", [str(root)], environment, **own)
    third = await run(sandbox, "cat /var/tmp/file", [str(root)], environment)
    assert (first.code, second.code, second.output) == (0, 0, "kept\n")
    assert third.code != 0
    assert (private / "work" / "file").read_text() == "kept\n"


@pytest.mark.requirement("sandbox.temporary")
async def test_links_that_a_command_leaves_in_its_temporary_folder_redirect_no_mount(home: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="workspace-", dir="/tmp"))
    private = home.parent / "private"
    private.mkdir()
    try:
        sandbox = await confinement(home)
        own = dict[str, Any](private_folder=lambda: str(private))
        (private / "tmp").mkdir()
        (private / "tmp" / folder.name).symlink_to("/etc")
        result = await run(sandbox, "echo x > made; cat made", [str(folder)], environment_of(home), **own)
        assert (result.code, result.output) == (0, "x\n")
        assert (folder / "made").exists()
    finally:
        shutil.rmtree(folder)


@pytest.mark.requirement("sandbox.temporary")
async def test_a_temporary_folder_that_has_become_too_large_is_emptied_and_the_result_says_so(
    root: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path.resolve() / "private"
    private.mkdir()
    site = Site(home=str(home), temporary_bytes=1024**2)
    sandbox = await sandbox_for(site)
    own = dict[str, Any](private_folder=lambda: str(private))
    environment = environment_of(home)
    small = await run(sandbox, "cd /var/tmp; truncate -s 4G holes; echo x > small", [str(root)], environment, **own)
    assert small.changes == SandboxChanges()
    large = await run(sandbox, "cd /var/tmp; head -c 2M /dev/zero > large; mkdir d", [str(root)], environment, **own)
    assert large.changes.temporary_bytes > 2 * 1024**2
    assert list((private / "work").iterdir()) == []
    monkeypatch.setattr(private_folders, "MAX_TEMPORARY", 20)
    command = "cd /var/tmp; touch {1..30}; ln -s /etc link; mkdir -m 0 x"
    many = await run(sandbox, command, [str(root)], environment, **own)
    assert many.changes.temporary_files >= 20
    assert "temporary files were removed" in sandbox_notes(many.changes)[-1]
    assert list((private / "work").iterdir()) == []


@pytest.mark.requirement("sandbox.temporary")
async def test_the_tmp_of_a_reading_command_is_limited_while_it_runs(root: Path, home: Path, tmp_path: Path) -> None:
    private = tmp_path.resolve() / "private"
    private.mkdir()
    sandbox = await sandbox_for(Site(home=str(home), temporary_bytes=1024**2))
    spec = ProcessSpec(("/bin/true",), str(root), environment_of(home))
    for view in (READING, WORKING):
        sandboxed_command = await sandbox.confine(spec, [str(root)], view, lambda: str(private))
        assert isinstance(sandboxed_command, SandboxedCommand)
        await run_confined(sandboxed_command)
        folders, byte_limit = sandboxed_command.limited_folders()
        assert all(Path(folder).is_relative_to(private) for folder in folders)
        assert (bool(folders), byte_limit) == ((True, 1024**2) if view is READING else (False, 0))
        await sandboxed_command.release()


@pytest.mark.requirement("sandbox.roots")
@pytest.mark.parametrize("target", ["/", "../../outside", "secrets"])
async def test_nothing_runs_if_a_folder_is_swapped_for_a_link_before_the_mount(
    root: Path, home: Path, target: str
) -> None:
    repository(root / "vendor" / "x")
    (root.parent / "outside" / "x" / ".git" / "hooks").mkdir(parents=True)
    spec = ProcessSpec(("/bin/bash", "-c", "echo ran; touch ran"), str(root), environment_of(home))
    sandboxed_command = await (await confinement(home)).confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)

    def swap() -> None:
        (root / "vendor").rename(root / "moved")
        (root / "vendor").symlink_to(target)

    with suppress(ToolError):
        code, output = await run_confined(sandboxed_command, before_mounts=swap)
        assert code != 0
        assert "ran\n" not in output
    await sandboxed_command.release()
    assert not (root / "ran").exists()


@pytest.mark.requirement("sandbox.roots")
async def test_a_folder_that_is_swapped_all_the_time_never_gives_access_to_the_outside(root: Path, home: Path) -> None:
    outside = root.parent / "outside"
    for folder in (root / "a" / ".git" / "hooks", outside / "hooks", root / "b"):
        folder.mkdir(parents=True)
    (root / "a" / ".git" / "HEAD").write_text("")
    (root / "b" / ".git").symlink_to("../../outside")
    sandbox = await confinement(home)
    swapper = start([sys.executable, "-c", SWAP, str(root / "a"), str(root / "b")])
    try:
        for _ in range(40):
            command = "for f in a/.git b/.git ../outside; do echo x > $f/escaped; done; true"
            spec = ProcessSpec(("/bin/bash", "-c", command), str(root), environment_of(home))
            sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
            assert isinstance(sandboxed_command, SandboxedCommand)
            with suppress(ToolError):
                await run_confined(sandboxed_command)
            await sandboxed_command.release()
            assert not (outside / "escaped").exists()
    finally:
        swapper.kill()
        swapper.communicate()


SWAP = """
import ctypes, sys
exchange, first, second = ctypes.CDLL(None).renameat2, *map(str.encode, sys.argv[1:])
while True:
    exchange(-100, first, -100, second, 2)
"""


@pytest.mark.requirement("sandbox.git")
async def test_git_commits_branches_and_stashes(root: Path, home: Path) -> None:
    repository(root)
    git = "git -c user.name=t -c user.email=t@example.org"
    command = (
        f"set -e; echo two > file; {git} commit -qam two; git checkout -qb side; echo three > new; git add new; "
        f"{git} commit -qm three; git checkout -q main; git merge -q side; echo 4 > file; {git} stash -q; git gc -q; "
        "git status --porcelain; git log --oneline | wc -l; git fsck"
    )
    result = await run_in_sandbox(home, command, root)
    assert (result.code, result.output.strip().splitlines()[0]) == (0, "3")
    assert result.changes == SandboxChanges()
    status = await anyio.run_process(["git", "status", "--porcelain"], cwd=root)
    assert status.stdout == b""


@pytest.mark.requirement("sandbox.git")
async def test_python_can_use_process_pools_and_virtual_environments(root: Path, home: Path) -> None:
    (root / "pool.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\n"
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:\n"
        "            print(sum(pool.map(abs, range(10))))\n"
    )
    result = await run_in_sandbox(
        home, "python3 pool.py && python3 -m venv --without-pip v && v/bin/python -c 'print(7)'", root
    )
    assert result.output.splitlines() == ["45", "45", "7"]


@pytest.mark.requirement("sandbox.git")
@pytest.mark.skipif(shutil.which("node") is None, reason="not run: node is not installed")
async def test_node_can_start_child_processes(root: Path, home: Path) -> None:
    (root / "child.js").write_text("process.send(42); process.disconnect()")
    (root / "main.js").write_text("require('child_process').fork('./child.js').on('message', m => console.log(m))")
    assert (await run_in_sandbox(home, "node main.js", root)).output.strip() == "42"


@pytest.mark.requirement("sandbox.git")
async def test_temporary_files_and_shared_memory_work_and_are_gone_afterwards(root: Path, home: Path) -> None:
    mark = f"coretools-test-{os.getpid()}"
    command = f"for d in /tmp /var/tmp /dev/shm $(dirname $(mktemp)); do echo x > $d/{mark} && cat $d/{mark}; done"
    result = await run_in_sandbox(home, command, root)
    assert result.output.split() == ["x"] * 4
    assert not any((Path(folder) / mark).exists() for folder in ("/tmp", "/var/tmp", "/dev/shm"))


NAMES = ["with space", "with\nline", "-leading", "quote'\"", "ünïcode", "$(touch x)", "{a,b}*"]


@pytest.mark.requirement("sandbox.roots")
@pytest.mark.parametrize("name", NAMES)
async def test_roots_of_any_name_are_writable_and_left_clean(tmp_path: Path, home: Path, name: str) -> None:
    folder = tmp_path.resolve() / name
    folder.mkdir()
    result = await run_in_sandbox(home, "pwd; echo x > made; echo y > .mcp.json", folder)
    assert result.code == 0
    assert result.output.startswith(f"{folder}\n")
    assert [old for old, _ in result.changes.moved] == [str(folder / ".mcp.json")]
    assert sorted(path.name for path in folder.iterdir()) == [Path(result.changes.moved[0][1]).name, "made"]


@pytest.mark.requirement("sandbox.roots")
async def test_nested_roots_are_writable_and_a_root_that_is_a_link_is_not(tmp_path: Path, home: Path) -> None:
    base = tmp_path.resolve()
    first, inner, second, linked_folder = base / "a", base / "a" / "in", base / "b", base / "c"
    for folder in (first, inner, second, linked_folder):
        folder.mkdir()
    (base / "to-c").symlink_to(linked_folder)
    command = f"echo 1 > {first}/x; echo 1 > {inner}/x; echo 1 > {second}/x; echo 1 > {linked_folder}/x"
    result = await run_in_sandbox(home, command, first, inner, second, base / "to-c")
    assert result.code != 0
    assert [(folder / "x").exists() for folder in (first, inner, second, linked_folder)] == [True, True, True, False]
    assert all(not path.name.startswith(".") for folder in (first, inner, second) for path in folder.iterdir())


@pytest.mark.requirement("sandbox.limits")
async def test_a_file_stops_growing_at_the_limit(root: Path, home: Path) -> None:
    sandbox = await confinement(home)
    spec = ProcessSpec(("/bin/bash", "-c", "ulimit -f 1000; dd if=/dev/zero of=big bs=1M count=64"), str(root), {})
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)
    code, _ = await run_confined(sandboxed_command)
    await sandboxed_command.release()
    assert code != 0
    assert (root / "big").stat().st_size <= 1000 * 1024


@pytest.mark.requirement("sandbox.limits")
@pytest.mark.skipif(not is_root(), reason="not run: only root needs a control group")
async def test_root_cannot_start_an_endless_number_of_processes(root: Path, home: Path) -> None:
    sandbox = await confinement(home)
    code = f"""
import os, signal
pids = []
try:
    for _ in range({GROUP_PROCESSES} + 50):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
    print("no limit")
except BlockingIOError:
    print("stopped", len(pids) <= {GROUP_PROCESSES})
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""
    spec = ProcessSpec(("/bin/bash", "-c", python(code)), str(root), command_environment({}, os.environ))
    sandboxed_command = await sandbox.confine(spec, [str(root)], WORKING)
    entrance = sandboxed_command.spec.limits.group
    if entrance is None:
        pytest.skip("not run: no control group can be made here")
    assert isinstance(sandboxed_command, SandboxedCommand)
    _, output = await run_confined(sandboxed_command, 50)
    await sandboxed_command.release()
    assert output.strip() == "stopped True"
    group = Path(entrance).parent
    await until(lambda: not (group / "cgroup.procs").read_text())
    sandbox.close()
    assert not group.exists()


async def run_as_nobody(root: Path, home: Path, command: str, meanwhile: str = "true") -> dict[str, Any]:
    """Run a command in the sandbox as a user without rights who owns the whole workspace; return the result."""
    for folder in (root, home):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for parent in root.parents:
        with suppress(PermissionError):
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
    process = await anyio.run_process(
        [sys.executable, *forked([str(PROGRAM), str(root), str(home), "working", command])],
        env={**os.environ, "MEANWHILE": meanwhile},
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode()
    return json.loads(process.stdout)


@pytest.mark.requirement("sandbox.closed_folders")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
async def test_a_folder_that_a_command_makes_unreadable_hides_no_new_files(root: Path, home: Path) -> None:
    new = "x/deep/.envrc", ".git/hooks", "y/.vscode", ".mcp.json", "z/.qwen"
    command = """
    git init -q; rm -rf .git/hooks; mkdir -p .git/hooks x/deep y/.vscode z/.qwen
    for file in x/deep/.envrc .git/hooks/pre-commit y/.vscode/tasks.json .mcp.json z/.qwen/a; do echo x > $file; done
    chmod 000 x/deep y/.vscode; chmod 111 x .git; chmod 444 y; chmod 555 z/.qwen z .
    """
    result = await run_as_nobody(root, home, command)
    assert sorted(old for old, _ in result["changes"]["moved"]) == sorted(str(root / name) for name in new), result
    assert not any((root / name).exists() for name in new)
    assert result["changes"]["unmovable"] == []


@pytest.mark.requirement("sandbox.closed_folders")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
@pytest.mark.parametrize("meanwhile", ["true", "chmod -R u=rwX '{}'"], ids=["closed", "opened meanwhile"])
async def test_a_folder_that_cannot_be_read_stays_as_it_is(root: Path, home: Path, meanwhile: str) -> None:
    folders = {mode: root / "a" / f"{mode:o}" for mode in (0o111, 0o444, 0o333, 0o000)}
    repository(root / "b")
    folders[0o555] = root / "b" / ".git"  # can be listed, and a part of it must not change
    folders[0o101] = root / "b" / ".git" / "modules" / "m"
    for mode, folder in folders.items():
        for name in (".envrc", ".vscode/tasks.json", "sub/.mcp.json", "hooks/pre-commit", ".git/config"):
            if mode not in (0o555, 0o101) or name.startswith("hooks"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text("the person's")
    before = listing(root)
    for mode, folder in reversed(folders.items()):
        folder.chmod(mode)
    command = """
    for closed in a/* b/.git/modules/m b/.git; do
        chmod 755 $closed; mv $closed $closed.moved; mkdir -p $closed/hooks $closed/.git $closed/sub
        for file in .envrc .vscode/tasks.json hooks/pre-commit .git/config config.worktree config sub/.mcp.json; do
            echo EVIL > $closed/$file
        done
    done 2>&1
    """
    result = await run_as_nobody(root, home, command, meanwhile.format(root / "a"))
    # The repository's folder can be read, and new files in it are moved away.
    assert [old for old, _ in result["changes"].pop("moved")] == [str(root / "b" / ".git" / "config.worktree")]
    assert not any(result["changes"].values()), result
    for folder in folders.values():
        folder.chmod(0o755)
    after = listing(root)
    content = {name: entry[1] for name, entry in before.items()}
    assert {name: entry[1] for name, entry in after.items() if name in content} == content, result["output"]


@pytest.mark.requirement("sandbox.view")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
async def test_a_user_without_rights_has_the_same_sandbox(root: Path, home: Path) -> None:
    repository(root)
    attempts = " ; ".join(
        f"( {command} ) >/dev/null 2>&1 && echo 'worked: {number}'"
        for number, command in enumerate((*FORBIDDEN_COMMANDS, *AUTO_RUN_CHANGES[:3]))
    )
    git = "git -c user.name=t -c user.email=t@example.org"
    command = f"{attempts}; echo two > file; {git} commit -qam two && echo committed; echo x > .mcp.json"
    before = listing(home)
    result = await run_as_nobody(root, home, command)
    ((old, new),) = result["changes"].pop("moved")
    assert old == str(root / ".mcp.json")
    changes = json.loads(json.dumps(asdict(SandboxChanges())))
    assert result == {"code": 0, "output": "committed\n", "changes": {k: v for k, v in changes.items() if k != "moved"}}
    assert listing(home) == before
    assert {path.name for path in root.iterdir()} == {".git", "file", Path(new).name}


@pytest.mark.requirement("sandbox.masks")
@pytest.mark.requirement("sandbox.new_files")
async def test_files_that_rules_protect_from_edits_stay_and_no_files_of_a_person_are_moved(
    root: Path, tmp_path: Path
) -> None:
    await sandbox_for(Site(str(root)))
    deep = "1/2/3/4/5/6/7/8"
    for name in ("docs/a.md", "docs/b.txt", f"{deep}/a.md", "keys/.env"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("kept")
    rules = {
        "sandboxedCommands": "allow",
        "deny": ["Edit(*.md)", "Read(.env)", "Edit(.env)"],
        "ask": ["Edit(/notes/**)", "Edit(.envrc)"],
    }
    person = Person("once")
    async with workspace_client(
        root, person, "--config", str(write_config(tmp_path, {"permissions": rules}))
    ) as client:

        async def call_tool(tool: str, **arguments: object) -> str:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result
            return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))

        evil = "import os; os.makedirs('{0}', exist_ok=True); open('{0}/{1}'.replace('+', ''), 'w').write('EVIL')"
        for folder, name in (("docs", "a.m+d"), (deep, "a.m+d"), ("keys", ".e+nv")):
            top = folder.partition("/")[0]
            moves = f"mv {top} moved; mv {top}/2/3/4 moved; mv {folder} moved; mkdir -p {folder}"
            code = evil.format(folder, name)
            assert "Note: the command ran in the working view" in await call_tool(
                "run_shell_command",
                command=f'{moves}; python3 -c "{code}"; mv docs/b.txt docs/c.txt; mv docs/c.txt docs/b.txt',
            )
            assert (root / folder / name.replace("+", "")).read_text() == "kept"
        assert person.questions == []
        job = await call_tool(
            "run_shell_command", command="touch began; until [ -e end ]; do sleep 0.1; done", is_background=True
        )
        for name in ("notes/written.txt", ".envrc"):
            await call_tool("write_file", file_path=name, content="written")
        (root / "notes" / "by_hand.txt").write_text("written")
        assert len(person.questions) == 2
        assert "Note" not in await call_tool("stop_background_job", job_id=job.split()[2])
    assert {(root / name).read_text() for name in (".envrc", "notes/written.txt", "notes/by_hand.txt")} == {"written"}


@pytest.mark.requirement("sandbox.consent")
@pytest.mark.requirement("sandbox.git")
@pytest.mark.requirement("sandbox.stopped")
@pytest.mark.requirement("sandbox.temporary")
async def test_actions_that_a_person_allows_work_and_ordinary_git_commands_need_no_question(
    root: Path, tmp_path: Path
) -> None:
    await sandbox_for(Site(str(root)))
    repository(root)
    scripts = ["Bash(python3 x.py)", "Bash(python3 y.py)"]
    config = write_config(tmp_path, {"permissions": {"allow": ["Bash(git *)", *scripts]}})
    (root / "x.py").write_text("try: open('.vscode/settings.json', 'w')\nexcept OSError as error: print(error)\n")
    (root / "y.py").write_text("open('.envrc', 'w').write('x')\n")
    person = Person("once")
    async with workspace_client(root, person, "--config", str(config)) as client:

        async def run_shell(command: str) -> str:
            result = await client.call_tool("run_shell_command", {"command": command})
            assert not result.is_error, result
            return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))

        assert "Note" not in await run_shell("git config user.name t; git config user.email t@example.org && git log")
        assert len(person.questions) == 1
        assert "changes git's own settings" in person.questions[0]
        settings_before = (root / ".git" / "config").read_text()
        assert "Note" not in await run_shell("git add x.py && git commit -qm x && git log")
        await run_shell("git -c alias.x='!echo x >> .git/config' x")
        assert (root / ".git" / "config").read_text() == settings_before
        assert len(person.questions) == 1
        assert "Note" not in await run_shell("mkdir .vscode && echo 1 > .vscode/settings.json")
        assert ".vscode/settings.json" in person.questions[1]
        assert (root / ".vscode" / "settings.json").read_text() == "1\n"
        x_output = await run_shell("python3 x.py")
        assert "Exit Code" not in x_output
        assert "Note: the command ran in the working view" in x_output
        assert len(person.questions) == 2
        y_output = await run_shell("python3 y.py")
        assert f"moved out of the workspace: {root}/.envrc (now " in y_output
        assert not (root / ".envrc").exists()
        assert "/var/tmp/tmp." in await run_shell("mktemp")
