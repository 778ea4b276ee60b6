"""Real commands in the real sandbox, with file systems mounted as the workspace, above it, in it, and on each other.

Everything is mounted in a separate namespace, which ends with its processes.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import forked
from tests.harness import HANDSHAKE, ROOT, server_arguments, text_of
from tests.hostile.sandboxed import PROGRAM, WORKING
from tests.hostile.watched_server import facts_of
from tests.processes import PRIVATE_FOLDERS, BrokerPerProgram
from tests.variants import one_in
from tools.contract.tool_errors import ToolError
from tools.shell.process_spec import ProcessSpec
from tools.shell.sandbox.bubblewrap import BubblewrapConfinement, SandboxMode
from tools.shell.sandbox.visible_file_system import Site

pytestmark = pytest.mark.anyio

if sys.platform != "linux":
    pytest.skip("not run: bubblewrap is Linux only", allow_module_level=True)

NAMESPACE = ("unshare", "--mount")

WORKSPACES = {
    "a folder": "true",
    "tmpfs": "mount -t tmpfs none ws",
    "ramfs": "mount -t ramfs none ws",
    # Where there are no loop devices, it is a ramfs instead.
    "ext4": "truncate -s 8M image; mkfs.ext4 -q image; mount -o loop image ws || mount -t ramfs none ws",
    "overlay": "mount -t tmpfs none o; mkdir o/a o/b o/c; "
    "mount -t overlay -o lowerdir=o/a,upperdir=o/b,workdir=o/c o ws",
    "a bind of a file system's root": "mount -t tmpfs none o; mount --bind o ws",
    "a bind of a folder": "mount -t tmpfs none o; mkdir o/a; mount --bind o/a ws",
    "a bind of itself": "mount --bind ws ws",
    "a file system on another": "mount -t tmpfs none ws; mount -t ramfs none ws",
    "the same bound on itself twice": "mount -t tmpfs none ws; mount --bind ws ws; mount --bind ws ws",
    "a folder on a file system": "mount -t tmpfs none ws; mount --bind o ws",
    "a folder above an older mount": "mount -t tmpfs none ws; mount --bind o .; cd .; mkdir -p ../base/ws",
    "a folder of a file system": "mount -t tmpfs none .; cd ../base; mkdir ws home o",
    "a file system in one above it": "mount -t tmpfs none .; cd ../base; mkdir ws home o; mount -t tmpfs none ws",
    "shared": "mount --make-rshared /; mount -t tmpfs none ws",
    "shared and bound twice": "mount --make-rshared /; mount -t tmpfs none ws; mount --bind ws o; mkdir o/v; "
    "mount -t tmpfs none o/v",
    "a slave": "mount -t tmpfs none ws; mount --make-shared ws; mount --make-slave ws",
    "not to be bound": "mount -t tmpfs none ws; mount --make-unbindable ws",
    "a link to a file system": "mount -t tmpfs none o; rmdir ws; ln -s o ws",
    "in a home that is mounted": "mount -t tmpfs none home; mkdir home/ws; rmdir ws; ln -s home/ws ws",
    # The server starts programs from the checkout, which may be below /tmp too.
    "in a /tmp that is mounted": f"mount --rbind . /mnt; mount --rbind {ROOT} /srv; mount -t tmpfs none /tmp; "
    f"mkdir -p $PWD {ROOT}; mount --rbind /mnt $PWD; mount --rbind /srv {ROOT}",
    "with mounts below": "mkdir -p ws/node_modules ws/tmp; "
    "mount -t tmpfs none ws/node_modules; mount -t tmpfs none ws/tmp",
    "with mounts below in another order": "mount -t tmpfs none ws; mkdir -p ws/sub/.git/a ws/sub/.git/b; "
    "touch ws/sub/.git/config; mount -t tmpfs none ws/sub/.git/a; mount -t tmpfs none ws/sub/.git/b; "
    "mkdir ws/sub/.git/a/c; mount -t tmpfs none ws/sub/.git/a/c",
    "with covered mounts below": "mkdir -p ws/a/b/.vscode; mount -t tmpfs none ws/a/b/.vscode; "
    "mount -t tmpfs none ws/a; "
    "mkdir -p ws/a/b/.vscode",
    "with what is mounted not to be bound": "mkdir ws/v; mount -t tmpfs none ws/v; mount --make-unbindable ws/v",
    "with an empty volume for an auto-run name": "mkdir ws/.vscode; mount -t tmpfs -o mode=1777 none ws/.vscode",
}
"""Scripts that mount `ws` in the folder `base` as their names say; `o` and `home` are empty folders next to it."""

MOUNTED_AUTO_RUN_FILES = {
    "a repository's own folder": "mkdir ws/.git; mount -t tmpfs none ws/.git; touch ws/.git/HEAD ws/.git/config",
    "hooks": "mkdir -p ws/.git/hooks; touch ws/.git/HEAD; mount -t tmpfs none ws/.git/hooks; touch ws/.git/config",
    "hooks in a repository": "mkdir -p ws/.git; mount -t tmpfs none ws/.git; mkdir ws/.git/hooks; touch ws/.git/HEAD "
    "ws/.git/config; mount -t tmpfs none ws/.git/hooks; mount -t tmpfs none ws/.git/hooks",
    "settings of an editor": "mkdir ws/.vscode; mount -t tmpfs -o mode=0755 none ws/.vscode; "
    "touch ws/.vscode/tasks.json",
    "a file of an agent": "touch o/file ws/.mcp.json; mount --bind o/file ws/.mcp.json",
    "what lies in a volume": "mkdir ws/v; mount -t tmpfs none ws/v; "
    "mkdir -p ws/v/.git ws/v/.vscode; touch ws/v/.git/config",
    "volumes in volumes": "for f in ws/v ws/v/v ws/v/.claude ws/v/v/.git; do mkdir $f; mount -t tmpfs none $f; done; "
    "touch ws/v/v/.git/config",
}
"""Scripts that mount auto-run files."""

AUTO_RUN_CHANGES = (
    "for place in . v v/v; do for name in .git/config .git/hooks .vscode .claude .mcp.json; do "
    "to=$place/$name; [ ! -d $to ] || to=$to/x; [ ! -e $place/$name ] || ( echo evil > $to ) 2>/dev/null; done; done; "
    "mv v w 2>/dev/null; mv .git g 2>/dev/null; mv .vscode g 2>/dev/null; "
    "rm -rf .vscode v/.vscode v/.claude 2>/dev/null; true"
)
"""A command that tries to change or replace those files."""

LISTING = "find . -mindepth 1; find . -type f -size +0 -printf 'not empty: %p\\n'"

NAMES = (
    "a b",
    "a\tb",
    "a\nb",
    "a\rb",
    "a\\b",
    "a\\040b",
    "a\\134040",
    "\\",
    " ",
    "a#b",
    "a,b",
    "é",
    "\u2028",
    "\udcff",
)


@dataclass(frozen=True)
class Base:
    """A folder to mount things in: `ws`, `home` and `o` are empty folders there."""

    folder: Path

    def run(
        self,
        mounts: str,
        command: str,
        *other_roots: str,
        meanwhile: str = "true",
        keeps_rights: bool = True,
        tests_sandbox: bool = False,
        ws: str = "ws",
    ) -> tuple[dict[str, Any], list[str]]:
        """Mount something and run a command in the sandbox.

        Args:
            mounts: A shell script that is run in the folder first; `$1` is the workspace.
            command: The command, in the workspace.
            other_roots: Further roots.
            meanwhile: A shell script that is run between the scan of the workspace and the sandbox's mounts.
            keeps_rights: Whether root makes the sandbox.
            tests_sandbox: Whether to test first that the sandbox works there.
            ws: The workspace.

        Returns:
            The result, and the listing of the workspace afterwards.
        """
        environment = {
            **os.environ,
            "MOUNTS": mounts,
            "MEANWHILE": f"cd '{self.folder}'; {meanwhile}",
            "AFTERWARDS": LISTING,
        }
        if keeps_rights:
            environment["KEEP_RIGHTS"] = "1"
        if not tests_sandbox:
            environment["WORKS"] = "1"
        roots = [str(self.folder / root) for root in other_roots]
        program = forked([str(PROGRAM), ws, f"{self.folder}/home", "working", command, *roots])
        process = subprocess.run(
            [sys.executable, *program], cwd=self.folder, env=environment, capture_output=True, check=False, timeout=60
        )
        assert process.returncode == 0, process.stderr.decode("utf-8", "replace")
        result, _, listing = process.stdout.decode("utf-8", "replace").partition("\n")
        return json.loads(result), listing.splitlines()


@cache
def reason_to_skip() -> str | None:
    """Return why these tests cannot run here, or None if they can."""
    if os.geteuid() != 0:
        return "only root can mount every kind of file system"
    if subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode != 0:
        return "nothing can be mounted here"
    confinement = BubblewrapConfinement(SandboxMode.AUTO, Site("/root"), BrokerPerProgram(), PRIVATE_FOLDERS)
    return "bubblewrap does not run here" if anyio.run(confinement.status, ("/nowhere",)).failure is not None else None


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Base]:
    """A folder for mounts that a user without rights can reach."""
    if (missing := reason_to_skip()) is not None:
        pytest.skip(f"not run: {missing}")
    folder = tmp_path.resolve() / "base"
    for name in ("ws", "home", "o"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    yield Base(folder)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize("layout", one_in(6, WORKSPACES))
def test_a_command_runs_in_a_workspace_with_any_kind_of_mount(base: Base, layout: str) -> None:
    outside = base.folder.parent / "outside"
    attempts = f"for file in .vscode/x .claude/y {outside}; do ( echo x > $file ) 2>/dev/null; done"
    result, listing = base.run(WORKSPACES[layout], f"{attempts}; echo mine > made && cat made", tests_sandbox=True)
    assert result.pop("changes", {}).get("changed") == [], result
    assert result == {"code": 0, "output": "mine\n"}
    assert "./made" in listing
    assert not {"./.vscode/x", "./.claude", "./.mcp.json"} & set(listing)
    assert not outside.exists()


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize(
    "layout", one_in(3, ["tmpfs", "a file system on another", "with mounts below in another order"])
)
def test_a_command_of_a_user_without_rights_runs_in_a_mounted_workspace_too(base: Base, layout: str) -> None:
    result, listing = base.run(
        f"{WORKSPACES[layout]}; chmod 1777 ws", "echo mine > made && cat made", keeps_rights=False, tests_sandbox=True
    )
    assert (result.get("code"), result.get("output")) == (0, "mine\n"), result
    assert "./made" in listing


@pytest.mark.requirement("sandbox.mounts")
def test_a_read_only_file_system_is_a_workspace_in_which_nothing_changes(base: Base) -> None:
    mounts = "mount -t tmpfs none ws; echo there > ws/file; mkdir -m 1755 ws/.vscode; mount -o remount,ro ws"
    result, listing = base.run(mounts, "cat file; echo x > made")
    assert result["code"] == 1
    assert result["output"].startswith("there\n")
    assert "Read-only file system" in result["output"]
    assert sorted(listing) == ["./.vscode", "./file", "not empty: ./file"]


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize(
    ("outer", "inner", "roots"),
    [
        ("true", "true", ("ws", "ws/in")),
        ("true", "mount -t tmpfs none ws/in", ("ws/in", "ws")),
        ("true", "mount --bind o ws/in", ("ws", "ws/in")),
        ("mount -t tmpfs none ws", "true", ("ws/in", "ws")),
        ("mount -t tmpfs none ws", "mount -t tmpfs none ws/in", ("ws", "ws/in")),
        ("mount -t tmpfs none ws", "mount --bind o ws/in", ("ws/in", "ws")),
    ],
)
def test_nested_roots_are_all_writable_however_they_are_mounted(
    base: Base, outer: str, inner: str, roots: tuple[str, str]
) -> None:
    command = f"echo 1 > {base.folder}/ws/x && echo 2 > {base.folder}/ws/in/x && cat {base.folder}/ws/x ../*/x ./x"
    result, _ = base.run(f"{outer}; mkdir ws/in; {inner}", command, roots[1], ws=roots[0])
    assert result.get("code") == 0, result


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize("layout", one_in(3, MOUNTED_AUTO_RUN_FILES))
def test_a_mounted_auto_run_file_is_not_changed(base: Base, layout: str) -> None:
    listing_before = base.folder / "o" / "before"
    result, listing = base.run(
        f"{MOUNTED_AUTO_RUN_FILES[layout]}; ( cd ws; {LISTING} ) > {listing_before}", AUTO_RUN_CHANGES
    )
    assert result.get("code") == 0, result
    # The sandbox makes an empty hooks folder in a repository that has none.
    assert sorted({*listing, "./.git/hooks"}) == sorted({*listing_before.read_text().splitlines(), "./.git/hooks"})


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize("name", one_in(3, [" ", "\\", "".join(NAMES)]))
def test_a_mount_may_have_any_name(base: Base, name: str) -> None:
    mounts = 'mkdir -- "$1"; mount -t tmpfs none "./$1"; cd "./$1"; ' + "; ".join(
        f"mkdir -p {v}; mount -t tmpfs none {v}; mkdir {v}/.git; mount -t tmpfs none {v}/.git; touch {v}/.git/config"
        for v in (shlex.quote(f"v {name}") for name in NAMES)
    )
    result, listing = base.run(
        mounts, 'echo mine > made && cat made; for v in v*; do mv "$v" w 2>/dev/null; done; true', ws=name
    )
    assert (result.get("code"), result.get("output")) == (0, "mine\n"), result
    assert "./made" in listing
    assert not [line for line in listing if line.startswith("./w")]


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize(
    "layout", ["true", "mount -t tmpfs none home", "mkdir home/.ssh; mount -t tmpfs none home/.ssh"]
)
def test_secrets_in_a_home_stay_hidden_whichever_part_of_it_is_mounted(base: Base, layout: str) -> None:
    mounts = (
        f"{layout}; mkdir -p home/.ssh home/.aws; echo secret | tee home/.ssh/key home/.aws/credentials home/.netrc"
    )
    result, _ = base.run(f"{{ {mounts}; }} >/dev/null", "cat ~/.ssh/* ~/.aws/* ~/.netrc 2>/dev/null; true")
    assert (result.get("code"), result.get("output")) == (0, ""), result


CHANGES_MEANWHILE = {
    "a folder above a mount gave way to a link": (
        "mkdir -p ws/a/v/.vscode ws/b/v/.vscode; mount -t tmpfs none ws/a/v; mkdir ws/a/v/.vscode",
        "mv ws/a ws/moved; ln -s b ws/a",
    ),
    "a folder above a mount gave way to another": (
        "mkdir -p ws/a/v ws/b/v/.vscode; mount -t tmpfs none ws/a/v; mkdir ws/a/v/.vscode",
        "mv ws/a ws/moved; mv ws/b ws/a",
    ),
    "a folder in a mount gave way to a link": (
        "mount -t tmpfs none ws; mkdir -p ws/a/.vscode ws/b/.vscode",
        "mv ws/a ws/moved; ln -s b ws/a",
    ),
}


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize("change", CHANGES_MEANWHILE)
def test_nothing_runs_if_the_path_of_a_mount_changes_meanwhile(base: Base, change: str) -> None:
    mounts, meanwhile = CHANGES_MEANWHILE[change]
    result, listing = base.run(mounts, "echo x > ran", meanwhile=meanwhile)
    assert "workspace changed" in result.get("refused", ""), result
    assert "./ran" not in listing


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize("root", ["/", "/tmp", "/home"])
async def test_a_root_that_contains_the_system_gets_no_sandbox_and_an_error_says_so(root: str) -> None:
    confinement = BubblewrapConfinement(SandboxMode.REQUIRED, Site("/root"), BrokerPerProgram(), PRIVATE_FOLDERS)
    with pytest.raises(ToolError, match=f"'{root}' contains the system itself"):
        await confinement.confine(ProcessSpec(("/bin/true",), root, {}), [root], WORKING)


@pytest.mark.requirement("sandbox.mounts")
@pytest.mark.parametrize(
    "layout",
    ["overlay", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("tmpfs", "ext4", "with mounts below"))],
)
async def test_a_whole_server_works_in_a_workspace_that_is_mounted(base: Base, layout: str) -> None:
    root = base.folder / "ws"
    script = f'cd "$1"; shift; {WORKSPACES[layout]}; exec "$@"'
    server = [sys.executable, *server_arguments(root, None, "--approval-mode", "yolo")]
    parameters = StdioServerParameters(
        command=NAMESPACE[0], args=[*NAMESPACE[1:], "bash", "-ec", script, "sh", str(base.folder), *server]
    )
    async with Client(parameters, mode=HANDSHAKE, cache=None) as client:

        async def call(tool: str, **arguments: str) -> types.CallToolResult:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, text_of(result)
            return result

        await call("write_file", file_path="sub/file.txt", content="one\n")
        await call("edit", file_path="sub/file.txt", old_string="one", new_string="two")
        command_result = await call("run_shell_command", command="cat sub/file.txt; mkdir -p tmp; echo three > tmp/new")
        assert facts_of(command_result)["engine"] == "bubblewrap"
        assert "two" in text_of(command_result)
        assert "three" in text_of(await call("read_file", file_path="tmp/new"))
        assert "sub/file.txt" in text_of(await call("grep_search", pattern="two"))
