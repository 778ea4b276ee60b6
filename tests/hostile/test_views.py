"""Attacks on views of commands, tried in the real sandbox as root and as a user without rights, and ordinary uses."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import forked
from tests.hostile.sandboxed import PROGRAM, READING, WORKING, CommandResult, run, sandbox_for
from tests.other_user import NOBODY
from tools.contract.command_views import CommandView, FileRestrictions, Network
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import Workspace
from tools.shell.command_environment import command_environment
from tools.shell.process_spec import SandboxChanges
from tools.shell.sandbox.auto_run_guard import AutoRunScanner
from tools.shell.sandbox.landlock_and_seccomp import unavailable_reason
from tools.shell.sandbox.reading_view import private_paths_in_etc, reading_view_paths
from tools.shell.sandbox.visible_file_system import DOWNLOADS, Site

pytestmark = pytest.mark.anyio

if sys.platform != "linux":
    pytest.skip("not run: bubblewrap is Linux only", allow_module_level=True)

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
GIT = " ".join(("git", *IDENTITY))
PYTHON = "/usr/bin/env python3"


class Place:
    """The folders of a test: a home, a workspace that is a repository, and a folder outside. None is in `/tmp`."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.ws, self.outside = base, base / "home", base / "ws", base / "outside"
        self.private = base / "private"
        for folder in (self.home / ".ssh", self.ws / "sub", self.outside, self.private):
            folder.mkdir(parents=True)
        (self.home / ".ssh" / "key").write_text("SECRET")
        (self.home / "notes").write_text("SECRET")
        (self.outside / "file").write_text("SECRET")
        git(self.ws, "init", "-q")
        (self.ws / "file").write_text("one\n")
        git(self.ws, "add", "file")
        git(self.ws, "commit", "-qm", "one")
        for name in (".env", "sub/key", "fixed"):
            (self.ws / name).write_text("SECRET" if name != "fixed" else "fixed\n")
        (self.ws / "closed").mkdir()
        (self.ws / "closed" / "key").write_text("SECRET")

    @property
    def masked(self) -> tuple[str, ...]:
        return tuple(str(self.ws / name) for name in (".env", "sub/key", "closed"))

    def restricted(self, view: CommandView) -> CommandView:
        """Return a view with the restrictions of rules."""
        return replace(view, current_restrictions=lambda: FileRestrictions(self.masked, (str(self.ws / "fixed"),)))

    async def run(
        self,
        command: str,
        view: CommandView = READING,
        site: Site | None = None,
        before_mounts: Callable[[], None] = lambda: None,
    ) -> CommandResult:
        """Run a command in a view."""
        sandbox = await sandbox_for(site or Site(home=str(self.home)))
        try:
            environment = command_environment({"HOME": str(self.home)}, os.environ)
            roots = [str(self.ws)]
            options = dict[str, Any](view=view, private_folder=lambda: str(self.private))
            return await run(sandbox, command, roots, environment, before_mounts, **options)
        finally:
            sandbox.close()

    def listing(self) -> dict[str, tuple[int, int, bytes | None]]:
        """Return the mode, time and content of all files except those of the client's private folder."""
        return {
            str(path): (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else None)
            for path in sorted(self.base.rglob("*"))
            if not path.is_relative_to(self.private) and (status := path.lstat())
        }


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    process = subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    return process.stdout.decode()


@pytest.fixture
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="views-", dir="/srv" if os.access("/srv", os.W_OK) else Path.home())).resolve()
    base.chmod(0o755)
    yield Place(base)
    shutil.rmtree(base)


def python(code: str) -> str:
    return f"{PYTHON} - <<'END'\n{code}\nEND"


def system_call(number: int, *arguments: str) -> str:
    return python(f"import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall({number}, {', '.join(arguments)}) < 0)")


CONNECT = "import socket; socket.socket({}).connect({})"
# In any view, each must fail, and no output may contain the secret. `$W` is the workspace.
ATTACKS = [
    "cat .e*v",
    "f=$(printf .en)v; cat $f",
    "ln -s $W/.env /tmp/link && cat /tmp/link",
    "ln .env hard && cat hard",
    "cat /proc/self/root$W/.env",
    "cat /proc/1/root$W/.env",
    "cat /proc/self/cwd/.env",
    "mv .env moved",
    "rm -f .env && echo x > .env",
    "mv sub other; cat other/key; code=$?; mv other sub; exit $code",
    "cp -r sub /tmp/copied && cat /tmp/copied/key",
    "cp closed/key /tmp/key",
    "ls closed",
    "mv closed open",
    "set -o pipefail; tar c .env | tar xO",
    "dd if=.env",
    "base64 .env",
    "exec 3<.env; cat <&3",
    "chmod 644 .env",
    "chmod 755 closed",
    "touch -d 2001-01-01 .env",
    "truncate -s 0 .env",
    "perl -e 'open(F, \".env\") or exit 1; print <F>'",
    'node -e \'console.log(require("fs").readFileSync(".env", "utf8"))\'',
    python("import os; fd = os.open('.env', os.O_PATH); print(open(f'/proc/self/fd/{fd}').read())"),
    python("import mmap, os; print(mmap.mmap(os.open('.env', os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])"),
    f"{GIT} add -f .env && {GIT} commit -qm x && git show HEAD:.env",
    "mount --bind /tmp sub",
    "umount .env",
    "unshare -rm sh -c 'umount .env && cat .env'",
    "nsenter -t 1 -m cat $W/.env",
    "mknod /tmp/device b 8 0",
    "cat ~/.ssh/key",
    "echo x > fixed",
    "sed -i s/x/y/ fixed",
    "mv fixed other",
    "echo x > ~/notes",
    "mkdir ../beside",
    "echo x > ../outside/file",
    "rm ../outside/file",
    "echo x > /dev/foo",
    "mkdir /lost",
    "echo x > /etc/x",
    "echo x > /proc/sys/kernel/core_pattern",
    "cp /bin/sh /tmp/sh && chmod u+s /tmp/sh && unshare -U /tmp/sh -pc 'cat .env'",
    "su -c 'cat ~/.ssh/key'",
    "kill -9 $PPID && kill -0 1000000",
    python(CONNECT.format("socket.AF_INET, socket.SOCK_DGRAM", "('192.0.2.1', 9)")),
    python(CONNECT.format("socket.AF_INET, socket.SOCK_STREAM, 262", "('192.0.2.1', 9)")),
    python(CONNECT.format("socket.AF_INET6", "('2001:db8::1', 9)")),
    python("import socket; socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ('192.0.2.1', 9))"),
    python(CONNECT.format("socket.AF_UNIX", "'\\0' + '/tmp/.X11-unix/X0'")),
    python(CONNECT.format("socket.AF_UNIX", "'/run/dbus/system_bus_socket'")),
    "getent hosts example.org",
    "ip link add dummy0 type dummy",
    system_call(425, "8", "ctypes.create_string_buffer(120)"),  # io_uring_setup
    system_call(248, "b'user'", "b'x'", "b'y'", "1", "-5"),  # add_key
    system_call(304, "-100", "ctypes.create_string_buffer(128)", "0"),  # open_by_handle_at
    system_call(165, "b'none'", "b'/tmp'", "b'tmpfs'", "0", "0"),  # mount
    "test $(df --output=size -k /dev/shm | tail -1) -gt 600000",
]
# In the reading view, these must fail too.
READING_ATTACKS = [
    "cat ~/notes",
    "cat ../outside/file",
    "cat /proc/self/root/../outside/file",
    "ls /srv /home /var/lib",
    "cat /etc/shadow",
    "ls -A /etc/ssl/private | grep .",
    "ls /run/dbus",
    "echo x > file",
    "echo x >> new",
    "touch -d 2001-01-01 file",
    "touch -a -d 2001-01-01 file",
    "truncate -s 0 file",
    "chmod 600 file",
    "chown 1:1 file",
    "setfattr -n user.x -v y file",
    "rm file",
    "mv file other",
    "mkdir made",
    "ln file made",
    "ln -s file made",
    "mkfifo made",
    "sed -i s/one/two/ file",
    "echo x > .git/hooks/pre-commit",
    f"{GIT} config core.fsmonitor $W/x",
    f"{GIT} commit -qam two",
    f"{GIT} stash -q -u",
    "git gc -q --prune=now",
    python("import os; os.open('file', os.O_RDONLY | os.O_TRUNC)"),
    python("import os; os.utime('file', (1, 1))"),
    python("import os; os.fchmod(os.open('file', os.O_RDONLY), 0o600)"),
    "echo x > /var/tmp/x",
    "echo x > /usr/x",
]


@pytest.mark.requirement("sandbox.views")
@pytest.mark.parametrize("is_root", [True, False], ids=["root", "nobody"])
@pytest.mark.parametrize("kind", ["reading", "working"])
def test_no_way_leads_out_of_a_view(place: Place, kind: str, *, is_root: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root can become another user")
    if not is_root:
        for path in (place.base, *place.base.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    attacks = ATTACKS + (READING_ATTACKS if kind == "reading" else [])
    lines = [f"cd {place.ws}; W=$PWD"]
    for number, attack in enumerate(attacks):
        lines.append(f"if (\n{attack}\n) > /tmp/output 2>&1; then echo 'worked: {number}'; fi; cat /tmp/output")
    # A process that is left behind must be killed with the sandbox.
    lines.append("(sleep 2; echo x > late) & true")
    listing_before = place.listing()
    environment = {**os.environ, "MASKED": ":".join(place.masked), "READ_ONLY": str(place.ws / "fixed")}
    environment |= {"KEEP_RIGHTS": "1"} if is_root else {}
    program = forked([str(PROGRAM), str(place.ws), str(place.home), kind, "\n".join(lines)])
    process = subprocess.run(
        [sys.executable, *program],
        env=environment,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr.decode()
    result = json.loads(process.stdout)
    assert "refused" not in result, result
    successes = [
        attacks[int(line.removeprefix("worked: "))] for line in result["output"].splitlines() if "worked: " in line
    ]
    assert successes == []
    assert "SECRET" not in result["output"]
    listing_after = place.listing()
    if kind == "reading":
        assert listing_after == listing_before
    expected = {path: entry for path, entry in listing_before.items() if not path.startswith(f"{place.ws}/.git/")}
    differences = {path for path in expected if listing_after.get(path) != expected[path] and not Path(path).is_dir()}
    assert differences == set()


@pytest.mark.requirement("sandbox.reading")
async def test_ordinary_readers_work_in_the_reading_view(place: Place) -> None:
    (place.ws / "file").write_text("two\n")
    command = (
        "git status --porcelain -uno; git log --oneline | wc -l; git diff --stat | tail -1; grep -c two file; nproc"
    )
    result = await place.run(command)
    processors = str(len(os.sched_getaffinity(0)))
    stat = " 1 file changed, 1 insertion(+), 1 deletion(-)"
    assert result.output.splitlines() == [" M file", "1", stat, "1", processors]
    versions = "bash --version >/dev/null && python3 --version && git --version"
    assert (await place.run(versions)).code == 0
    assert result.changes == SandboxChanges()


@pytest.mark.requirement("sandbox.shares")
async def test_a_reader_uses_up_no_resources_that_all_programs_of_the_user_share_and_can_still_follow_files(
    place: Place,
) -> None:
    calls = 'c.inotify_init(), c.inotify_init1(0), c.fanotify_init(0x200, 0), c.mq_open(b"/q", 66, 384, None)'
    take = f"/usr/bin/python3 -c 'import ctypes; c = ctypes.CDLL(None); print({calls})'"
    follow = "echo one > /tmp/f; (sleep 0.2; echo two >> /tmp/f) & tail -f -s 0.1 -n +1 --pid=$! /tmp/f 2> /dev/null"
    result = await place.run(f"{take}; {follow}", replace(READING, may_take_shares=False))
    assert result.output == "-1 -1 -1 -1\none\ntwo\n"


@pytest.mark.requirement("sandbox.kernel")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_the_filter_refuses_every_call_that_changes_mounts(place: Place, view: CommandView) -> None:
    code = (
        "import ctypes\nlibrary = ctypes.CDLL(None, use_errno=True)\n"
        "for number in (428, 429, 430, 431, 432, 433, 442, 467):\n"
        "    library.syscall(number, -1, 0, 0, 0, 0)\n    print(ctypes.get_errno())"
    )
    result = await place.run(python(code), view)
    assert {*result.output.split()} == {str(errno.EPERM)}


@pytest.mark.requirement("sandbox.reading")
async def test_symlinks_that_cannot_be_read_and_unusable_settings_in_a_workspace_stop_no_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Path("/proc/1/root/bin")
    for name in ("venv/bin", "env", "holding/.vscode"):
        (place.ws / name).mkdir(parents=True)
    (place.ws / "venv" / "bin" / "python").symlink_to(unreadable / "python3")
    (place.ws / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (place.ws / "env" / "pyvenv.cfg").write_text("home = /usr\0bin\n")
    (place.ws / "bin").symlink_to(unreadable)
    monkeypatch.setenv("PATH", f"{place.ws}/bin:{os.environ['PATH']}")
    # The settings of the repository, which is elsewhere, cannot be found.
    shutil.rmtree(place.ws / ".git")
    (place.ws / ".git").write_text(f"gitdir: {unreadable}\n")
    for view in (READING, WORKING):
        assert (await place.run("echo done", view)).output == "done\n"
    scanner = AutoRunScanner()
    assert str(place.ws / "holding" / ".vscode") in scanner.scan(str(place.ws)).paths
    shutil.rmtree(place.ws / "holding")
    (place.ws / "holding").symlink_to(unreadable)
    assert str(place.ws / "holding" / ".vscode") not in scanner.scan(str(place.ws)).paths


@pytest.mark.requirement("sandbox.reading")
async def test_a_chain_of_a_thousand_symlinks_stops_no_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1_000):
        (place.ws / f"link{number}").symlink_to(place.ws / f"link{number + 1}")
    (place.ws / ".vscode").symlink_to("link0")
    git(place.ws, "config", "core.hooksPath", "link0")
    (place.home / ".gitconfig").write_text(f"[include]\n\tpath = {place.ws}/link0\n")
    monkeypatch.setenv("PATH", f"{place.ws}/link0:{os.environ['PATH']}")
    for view in (READING, WORKING):
        assert (await place.run("echo done", view)).output == "done\n"
    assert Workspace([str(place.ws / "link0")]).roots


@pytest.mark.requirement("sandbox.reading")
async def test_programs_and_git_settings_in_the_home_are_visible_and_nothing_next_to_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\ncat $(dirname $(readlink -f $0))/../lib/data\n")
        path.chmod(0o755)
        return path

    local = place.home / ".local" / "bin"
    tool, other_tool = (
        program(place.home / "tool" / "bin" / "tool"),
        program(place.home / "secretive" / "bin" / "other"),
    )
    for tool_path in (tool, other_tool):
        (tool_path.parents[1] / "lib").mkdir()
        (tool_path.parents[1] / "lib" / "data").write_text("data\n")
    (place.home / "secretive" / ".netrc").write_text("x")
    local.mkdir(parents=True)
    (place.home / "current").symlink_to("tool")
    (local / "linked").symlink_to("../../current/bin/tool")
    (local / "leak").symlink_to(place.home / ".ssh" / "key")
    (local.parent / "lib").mkdir()
    (local.parent / "lib" / "data").write_text("not seen")
    (place.home / ".gitconfig").write_text('[core] # [x]\n\texcludesFile = "~/\\"ignored\\""\n[user]\n\tname = me\n')
    (place.home / '"ignored"').write_text("new*\n")
    (place.ws / "new1").write_text("")
    monkeypatch.setenv("PATH", f"{local}:{other_tool.parent}:{place.ws}/bin:{place.home}:{os.environ['PATH']}")
    # Links in or into the workspace must make nothing visible.
    (place.ws / "bin").mkdir()
    (place.ws / "bin" / "leak").symlink_to(place.outside / "file")
    (local / "through").symlink_to(place.ws / "bin" / "leak")
    (place.home / ".config" / "git").mkdir(parents=True)
    (place.home / ".config" / "git" / "config").symlink_to(place.ws / "gitconfig")
    (place.ws / "gitconfig").write_text("[core]\n\tattributesFile = ~/notes\n")
    hidden_files = (str(place.home / "secretive" / ".netrc"),)
    command = (
        "linked; git config user.name; git status --porcelain new1; ls ~ ~/secretive ~/.local; "
        "cat ~/.local/bin/leak ~/.local/bin/through bin/leak ~/notes ../outside/file"
    )
    result = await place.run(command, site=Site(str(place.home), hidden=hidden_files))
    assert "SECRET" not in result.output
    assert result.output.splitlines()[:2] == ["data", "me"]
    words = result.output.split()
    assert {"bin", "current", '"ignored"', "tool"} <= set(words)
    assert not {"notes", "new1", "lib"} & {line.strip() for line in result.output.splitlines()}


@pytest.mark.requirement("sandbox.reading")
async def test_an_environment_makes_its_interpreter_visible_only_if_it_was_really_made_from_it(place: Place) -> None:
    prefix = place.base / "pythons" / "3.99"
    for name in ("bin", "lib"):
        (prefix / name).mkdir(parents=True)
    (prefix / "bin" / "python3").write_text("#!/bin/sh\necho ran\n")
    (prefix / "bin" / "python3").chmod(0o755)
    for name, home, target in (
        (".venv", prefix / "bin", prefix / "bin" / "python3"),
        ("false", place.outside, place.outside / "file"),
        ("other", place.home / ".ssh", prefix / "bin" / "python3"),
    ):
        (place.ws / name / "bin").mkdir(parents=True)
        (place.ws / name / "bin" / "python").symlink_to(target)
        (place.ws / name / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.99\n")
    result = await place.run(".venv/bin/python; cat false/bin/python ../outside/file ~/.ssh/key")
    assert result.output.splitlines()[0] == "ran"
    assert "SECRET" not in result.output


@pytest.mark.requirement("sandbox.ways")
async def test_in_the_opened_store_of_a_worktree_git_works_but_hooks_and_settings_cannot_be_changed(
    place: Place,
) -> None:
    main, store, worktree = place.ws, place.ws / ".git", place.base / "linked"
    git(main, "worktree", "add", "-q", str(worktree))
    shutil.rmtree(store / "hooks")
    place.ws, view = worktree, replace(WORKING, writable=(str(store),))
    own, settings = store / "worktrees" / "linked", (store / "config").read_text()
    result = await place.run(
        f"echo x > x; {GIT} add x; {GIT} commit -qm two; for file in {store}/hooks/post-commit {store}/config "
        f"{own}/config.worktree {own}/commondir {main}/file; do echo x >> $file; done; mv {store} {store}2",
        view,
    )
    assert git(main, "log", "--format=%s", "linked").splitlines() == ["two", "one"], result
    assert ((store / "config").read_text(), (own / "commondir").read_text()) == (settings, "../..\n")
    assert (os.listdir(store / "hooks"), (main / "file").read_text()) == ([], "one\n")
    assert "config.worktree" not in os.listdir(own)


@pytest.mark.requirement("sandbox.ways")
async def test_an_earlier_command_cannot_make_the_settings_of_an_opened_store_writable(place: Place) -> None:
    store, worktree = place.ws / ".git", place.base / "linked"
    git(place.ws, "worktree", "add", "-q", str(worktree))
    place.ws, view = worktree, replace(WORKING, writable=(str(store),))
    settings = (store / "config").read_text()
    for parts in ("refs objects", "HEAD"):
        await place.run(f"cd {store}; mv {parts} {worktree}", view)
        changes = f"echo x >> {store}/config; echo x > {store}/hooks/post-commit"
        result = await place.run(f"cd {worktree}; {changes}; mv {parts} {store}", view)
        assert set(os.listdir(store)) >= {*parts.split(), "config"}, result
    assert (store / "config").read_text() == settings
    assert not (store / "hooks" / "post-commit").exists()


@pytest.mark.requirement("sandbox.reading")
async def test_git_sees_the_repository_that_it_works_in_and_no_other(place: Place) -> None:
    worktree = place.base / "linked"
    git(place.ws, "worktree", "add", "-q", str(worktree))
    other_repository = place.base / "elsewhere"
    git(place.base, "init", "-q", str(other_repository))
    (other_repository / "private").write_text("SECRET")
    git(other_repository, "add", "private")
    git(other_repository, "commit", "-qm", "private")
    git(other_repository, "worktree", "add", "-q", str(place.base / "theirs"))
    repository, place.ws = place.ws, worktree
    assert (await place.run("git status --porcelain; git log --oneline | wc -l")).output == "1\n"
    # A `.git` file that points to a repository that does not point back.
    place.ws = place.base / "forged"
    place.ws.mkdir()
    (place.ws / ".git").write_text(f"gitdir: {other_repository}/.git/worktrees/theirs\n")
    assert "SECRET" not in (await place.run("git show HEAD:private; cat ../elsewhere/private")).output
    # The workspace is a folder of a repository: git sees the whole repository, other programs only the folder.
    place.ws = repository / "sub"
    (repository / "beside").write_text("beside\n")
    reading_git = replace(READING, is_git=True)
    assert (
        await place.run("git status --porcelain | grep -c '^ D'; cat ../beside", reading_git)
    ).output == "0\nbeside\n"
    assert (await place.run("cat ../beside")).code != 0
    # Git never sees a repository that contains the home.
    git(place.home, "init", "-q")
    place.ws = place.home / "project"
    place.ws.mkdir()
    assert "SECRET" not in (await place.run("git status; cat ~/notes", reading_git)).output


@pytest.mark.requirement("sandbox.reading")
async def test_files_that_a_question_or_a_setting_named_are_visible_and_nothing_next_to_them(place: Place) -> None:
    (place.outside / "beside").write_text("SECRET")
    (place.outside / "file").write_text("shown\n")
    view = replace(READING, seen=(str(place.outside / "file"), str(place.home / ".ssh" / "key")))
    result = await place.run("cat ../outside/file ~/.ssh/key; ls ../outside; echo x > ../outside/file", view)
    assert result.output.startswith("shown\nSECRETfile\n")
    assert "beside" not in result.output
    readable_result = await place.run("cat ../outside/file", site=Site(str(place.home), readable=(str(place.outside),)))
    assert readable_result.output == "shown\n"
    hidden_result = await place.run("cat ../outside/file", view, Site(str(place.home), hidden=(str(place.outside),)))
    assert "shown" not in hidden_result.output


@pytest.mark.requirement("sandbox.reading")
async def test_a_path_that_leads_over_links_to_a_visible_file_works_as_spelled(place: Place) -> None:
    (place.outside / "file").write_text("shown\n")
    (place.base / "link").symlink_to("outside")
    (place.base / "to").symlink_to("link")
    (place.home / "project").symlink_to(place.ws)
    (place.home / "closed").symlink_to(place.home / "notes")
    spellings = (f"{place.base}/to/file", f"{place.home}/project/file", f"{place.home}/closed")
    view = replace(READING, seen=(str(place.outside / "file"),), spelled=spellings)
    result = await place.run("cat ../to/file ~/project/file; ls -d ~/closed; ls -A ../to", view)
    assert result.output.startswith("shown\none\n")
    assert "closed': No such file" in result.output, "a link to something hidden is visible"
    assert result.output.endswith("file\n")


@pytest.mark.requirement("sandbox.reading")
async def test_a_file_that_a_question_named_is_not_followed_if_it_has_become_a_link(place: Place) -> None:
    link = place.outside / "file"
    link.unlink()
    link.symlink_to(place.home / ".ssh" / "key")
    for view in (READING, WORKING):
        with pytest.raises(ToolError, match="has become a symlink") as refusal:
            await place.run("cat ../outside/file", replace(view, seen=(str(link),)))
        assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    place.outside.rename(place.base / "moved")
    place.outside.symlink_to(place.home)
    with pytest.raises(ToolError, match="has become a symlink"):
        await place.run("cat ../outside/notes", replace(READING, seen=(str(place.outside / "notes"),)))


@pytest.mark.requirement("sandbox.reading")
def test_a_home_in_a_system_folder_is_not_visible_with_that_folder() -> None:
    paths = reading_view_paths("/usr/share", os.defpath, ["/usr/share/doc"])
    assert "/usr" not in paths
    assert os.path.realpath("/usr/bin") in paths
    assert not any(path == "/usr/share" or path.startswith("/usr/share/") for path in paths)


@pytest.mark.requirement("sandbox.reading")
def test_a_program_of_a_package_is_visible_with_the_packages_next_to_it(tmp_path: Path) -> None:
    packages = tmp_path.resolve() / "node_modules"
    for name in (".bin", "tool/lib", "dependency"):
        (packages / name).mkdir(parents=True)
    (packages / "tool/lib/cli.js").touch()
    (packages / ".bin/tool").symlink_to("../tool/lib/cli.js")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "tool").symlink_to(packages / "tool/lib/cli.js")
    for folder in (packages / ".bin", bin_folder):
        assert str(packages) in reading_view_paths("/nowhere", str(folder), [])
    # The packages are not visible if there is a secret among them.
    assert str(packages) not in reading_view_paths("/nowhere", str(packages / ".bin"), [], [str(packages / "key")])


@pytest.mark.requirement("sandbox.reading")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can close a file of the system")
def test_files_that_not_every_user_may_read_are_found_as_soon_as_they_exist() -> None:
    before = private_paths_in_etc()
    assert "/etc/shadow" in before
    with tempfile.NamedTemporaryFile(dir="/etc", prefix="coretools-test-") as file:
        assert set(private_paths_in_etc()) - set(before) == {file.name}
    assert private_paths_in_etc() == before


@pytest.mark.requirement("sandbox.masks")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_masked_files_are_closed_and_the_rest_works(place: Place, view: CommandView) -> None:
    restricted_view = place.restricted(view)
    result = await place.run(
        "cat .env closed/key sub/key 2>&1 | grep -c 'Permission denied'; cat file", restricted_view
    )
    assert result.output == "3\none\n"
    assert (place.ws / ".env").read_text() == "SECRET"
    archive_result = await place.run("tar c . | tar t | grep -c file; tar cf /tmp/x .", restricted_view)
    assert archive_result.code != 0
    masked_paths = [place.ws / f"many{number}" for number in range(100)]
    for path in masked_paths:
        path.write_text("SECRET")
    hundred_masks_view = replace(view, current_restrictions=lambda: FileRestrictions(tuple(map(str, masked_paths))))
    assert (await place.run("cat many* 2>/dev/null | wc -c", hundred_masks_view)).output == "0\n"


@pytest.mark.requirement("sandbox.masks")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_masks_hold_outside_the_workspace_and_nothing_runs_if_the_whole_workspace_is_masked(
    place: Place, view: CommandView
) -> None:
    outside_masked_view = replace(
        view, current_restrictions=lambda: FileRestrictions(("/usr/bin/sort", str(place.outside), "/etc/passwd"))
    )
    result = await place.run("cat ../outside/file; sort < file; cat /etc/passwd", outside_masked_view)
    assert "SECRET" not in result.output
    assert "root:" not in result.output
    assert "one" not in result.output
    fully_masked_view = replace(view, current_restrictions=lambda: FileRestrictions((str(place.base),)))
    with pytest.raises(ToolError, match="is hidden from commands by a rule"):
        await place.run("true", fully_masked_view)


@pytest.mark.requirement("sandbox.masks")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_nothing_runs_if_something_hidden_moves_during_the_start_or_cannot_be_masked(
    place: Place, view: CommandView
) -> None:
    def look() -> FileRestrictions:
        return FileRestrictions((str(place.ws / "gone"), str(place.ws / ".env")))

    with pytest.raises(ToolError, match="the workspace changed"):
        await place.run("cat .env; ls", replace(view, current_restrictions=look))
    assert not (place.ws / "gone").exists()
    looks = iter([FileRestrictions((str(place.ws / ".env"),)), FileRestrictions()])
    with pytest.raises(ToolError, match="the workspace changed"):
        await place.run("cat .env; ls", replace(view, current_restrictions=lambda: next(looks)))

    def refuse() -> FileRestrictions:
        raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, "too many places")

    with pytest.raises(ToolError, match="too many places"):
        await place.run("true", replace(view, current_restrictions=refuse))


@pytest.mark.requirement("sandbox.masks")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
@pytest.mark.parametrize("layout", ["in the home", "the home", "the target of the home", "in /tmp"])
async def test_masks_hold_wherever_the_workspace_lies(
    place: Place, tmp_path: Path, layout: str, view: CommandView
) -> None:
    if layout == "in the home":
        place.ws = place.home / "project"
    elif layout == "in /tmp":
        place.ws = tmp_path.resolve()
    else:
        place.ws = place.home
    (place.ws / "sub").mkdir(parents=True)
    for name in (".env", "sub/key"):
        (place.ws / name).write_text("SECRET")
    (place.ws / "file").write_text("one\n")
    (place.ws / "notes").touch()
    masked_paths = tuple(str(place.ws / name) for name in (".env", "sub/key", "notes", "sub"))
    if layout == "the target of the home":
        (place.base / "link").symlink_to("home")
        place.home = place.base / "link"
    restricted_view = replace(view, current_restrictions=lambda: FileRestrictions(masked_paths))
    result = await place.run("cat file; cat .env sub/key ~/.env notes ~/.ssh/key; mv sub s; cat s/key", restricted_view)
    assert result.output.startswith("one\n")
    assert "SECRET" not in result.output


@pytest.mark.requirement("sandbox.masks")
async def test_the_view_enforces_edit_rules_and_new_files_that_match_them_stay(place: Place) -> None:
    (place.ws / "conf").mkdir()
    (place.ws / "conf" / "key").write_text("kept\n")

    def look() -> FileRestrictions:
        read_only, pins = (str(place.ws / "fixed"), str(place.ws / "conf" / "key")), (str(place.ws / "conf"),)
        return FileRestrictions((), read_only, pins)

    view = replace(WORKING, current_restrictions=look)
    command = (
        "echo x > fixed; mv conf c2; mkdir conf; echo x > conf/key; echo x > new.pem; echo y > new.txt; cat new.txt"
    )
    result = await place.run(command, view)
    assert result.output.splitlines()[-1] == "y"
    assert (place.ws / "fixed").read_text() == "fixed\n"
    assert (place.ws / "conf" / "key").read_text() == "kept\n"
    assert result.changes.moved == ()
    assert (place.ws / "new.pem").exists()
    read_only_view = replace(WORKING, current_restrictions=lambda: FileRestrictions((), (str(place.ws),)))
    before = place.listing()
    assert (await place.run("echo x > a; echo x > file; rm file", read_only_view)).code != 0
    assert place.listing() == before


@pytest.mark.requirement("sandbox.opened")
async def test_files_that_a_question_named_are_writable_and_nothing_next_to_them(place: Place) -> None:
    worktree, file = place.base / "wt", place.outside / "file"
    view = replace(WORKING, writable=(f"{worktree}/", str(file)), is_git=True, is_asked=True)
    command = f"{GIT} worktree add -q -f ../wt; echo x > ../outside/file; echo x > ../outside/new; touch ../beside"
    await place.run(command, view)
    assert (worktree / "file").read_text() == "one\n"
    assert file.read_text() == "x\n"
    assert [path.name for path in place.outside.iterdir()] == ["file"]
    assert not (place.base / "beside").exists()
    with pytest.raises(ToolError, match=f"Name the folder '{place.outside}'"):
        await place.run("echo x > ../outside/new.txt", replace(WORKING, writable=(str(place.outside / "new.txt"),)))
    # Auto-run files are guarded in a folder outside as they are in the workspace.
    result = await place.run("mkdir ../outside/.vscode", replace(WORKING, writable=(str(place.outside),)))
    ((old, new),) = result.changes.moved
    assert old == str(place.outside / ".vscode")
    shutil.rmtree(Path(new).parent)
    # They are guarded even from a reading git command to which a folder of the workspace was opened.
    config = place.ws / ".git" / "config"
    before = config.read_text()
    reading_view = replace(READING, writable=(str(place.ws / ".git"),), is_git=True)
    assert (await place.run("git config core.fsmonitor ./x", reading_view)).code != 0
    assert config.read_text() == before


@pytest.mark.requirement("sandbox.opened")
@pytest.mark.parametrize("path", ["/etc", "/", "home-link"])
async def test_the_system_and_links_are_never_made_writable(place: Place, path: str) -> None:
    if path == "home-link":
        (place.base / "link").symlink_to("home")
        path = str(place.base / "link")
    with pytest.raises(ToolError, match="never made writable for a command"):
        await place.run("true", replace(WORKING, writable=(path,)))


@pytest.mark.requirement("sandbox.opened")
async def test_a_reader_may_write_the_file_that_its_redirection_names(place: Place) -> None:
    view = replace(READING, writable=(str(place.ws / "listing.txt"),))
    result = await place.run("ls > listing.txt; echo x > file", view)
    assert "listing.txt" in (place.ws / "listing.txt").read_text()
    assert (place.ws / "file").read_text() == "one\n"
    assert "Read-only" in result.output
    with pytest.raises(ToolError, match=f"the folder '{place.ws}/none' does not exist"):
        await place.run("ls > none/x", replace(READING, writable=(str(place.ws / "none" / "x"),)))


@pytest.mark.requirement("sandbox.lasting")
async def test_a_home_that_is_tmp_gives_a_reader_no_way_to_plant_settings_for_others(place: Place) -> None:
    place.home = Path("/tmp")
    plant_result = await place.run("mkdir -p ~ && echo planted > ~/.npmrc && cat ~/.npmrc; echo planted > /tmp/.npmrc")
    assert plant_result.output == "planted\n"
    for command in ("cat ~/.npmrc", 'ls -A "$HOME"'):
        assert "planted" not in (result := await place.run(command, WORKING)).output
        assert ".npmrc" not in result.output.replace("/.npmrc", "")
    assert not Path("/tmp/.npmrc").exists()


@pytest.mark.requirement("sandbox.lasting")
async def test_tmp_is_the_same_in_every_view_and_programs_ignore_what_a_reader_leaves_there(place: Place) -> None:
    plant = (
        "mkdir -p /tmp/.npm/_npx $TMPDIR/jest_0 /tmp/.cache/pip; echo evil > $TMPDIR/jest_0/x; "
        "echo evil > /tmp/.npm/x; echo evil > $XDG_CACHE_HOME/x; echo kept > /tmp/file; "
        "echo x > /dev/shm/x; mkdir /var/tmp/x"
    )
    await place.run(plant)
    look = "cat /tmp/file; find $TMPDIR $XDG_CACHE_HOME $npm_config_cache /dev/shm -type f 2>/dev/null; echo $TMPDIR"
    assert (await place.run(look, WORKING)).output == "kept\n/var/tmp\n"
    await place.run("echo mine > $TMPDIR/mine; echo more > /tmp/more", WORKING)
    second_look = await place.run("cat /tmp/more; ls /var/tmp; echo $TMPDIR")
    assert "more\n" in second_look.output
    assert "mine" not in second_look.output
    assert second_look.output.endswith("/tmp\n")
    assert (await place.run("cat $TMPDIR/mine", WORKING)).output == "mine\n"
    # Plan mode has another `/tmp`.
    assert (await place.run("cat /tmp/file", replace(READING, is_plan=True))).code != 0
    assert {path.name for path in place.private.iterdir()} == {"tmp", "plan-tmp", "work"}


@pytest.mark.requirement("sandbox.rule_tmp")
async def test_a_command_that_a_rule_allows_finds_nothing_in_tmp_and_its_files_there_are_merged(place: Place) -> None:
    await place.run("mkdir -p /tmp/d; echo evil > /tmp/d/m; echo old > /tmp/out; ln -s /etc /tmp/link")
    look = "cat ~+/../../../../../../../tmp/d/m $(echo /tm)p/d/m /t*/d/m /proc/$PPID/root/tmp/d/m 2>&1; ls -A /tmp"
    leave = "echo new > /tmp/out; mkdir /tmp/d /tmp/link; echo x > /tmp/d/n; echo y > /tmp/link/passwd"
    new_tmp_view = replace(WORKING, has_new_tmp=True)
    first_result = await place.run(f"{look}; {leave}", new_tmp_view)
    assert "evil" not in first_result.output
    assert "link" not in first_result.output
    merged_result = await place.run("cat /tmp/out /tmp/d/m /tmp/d/n; ls -A /tmp/link")
    assert merged_result.output == "new\nevil\nx\npasswd\n"
    await place.run("mkdir -p /tmp/file/x")
    await place.run(
        "echo data > /tmp/file; for n in $(seq 300); do mkdir /tmp/$n; echo > /tmp/$n/a; done", new_tmp_view
    )
    await place.run("for n in $(seq 300); do mkdir /tmp/$n; echo > /tmp/$n/b; done", new_tmp_view)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        await place.run("for n in $(seq 300); do mkdir /tmp/$n; echo > /tmp/$n/c; done", new_tmp_view)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (
        await place.run("cat /tmp/file; ls /tmp/*/[abc] | wc -l; ls -d /tmp/file-*/x | wc -l")
    ).output == "data\n900\n1\n"
    assert {path.name for path in place.private.iterdir()} == {"tmp", "work"}


@pytest.mark.requirement("sandbox.places")
@pytest.mark.parametrize("unrestricted_view", [READING, WORKING], ids=["reading", "working"])
@pytest.mark.parametrize("mount_point", ["sub", "closed"])
async def test_a_job_that_swaps_a_mount_point_has_nothing_created_or_emptied_outside(
    place: Place, unrestricted_view: CommandView, mount_point: str
) -> None:
    view = place.restricted(unrestricted_view)
    victim = place.outside / "new" if mount_point != "sub" else place.outside

    def swap() -> None:
        (place.ws / mount_point).rename(place.ws / "gone")
        (place.ws / mount_point).symlink_to(f"/oldroot{victim}")

    names_before = sorted(path.name for path in place.outside.iterdir())
    with pytest.raises(ToolError) as refusal:
        await place.run("echo ran", view, before_mounts=swap)
    assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert sorted(path.name for path in place.outside.iterdir()) == names_before


@pytest.mark.requirement("sandbox.places")
async def test_a_link_in_tmp_redirects_neither_a_mount_nor_the_removal_of_its_mount_point(place: Place) -> None:
    real = Path(tempfile.mkdtemp(prefix="real-", dir="/tmp")).resolve()
    (real / "file").write_text("shown\n")
    try:
        view = replace(READING, seen=(str(real / "file"),))
        swap = f"mv {real} /tmp/gone && ln -s {place.outside} {real}"
        assert (await place.run(f"cat {real}/file; {swap}", view)).output == "shown\n"
        assert (place.outside / "file").read_text() == "SECRET"
        # The link that was swapped in is moved aside. If one appears before the mount, the mount is refused.
        assert (await place.run(f"cat {real}/file", view)).output == "shown\n"

        def swap_it() -> None:
            inner = place.private / "tmp" / real.name
            inner.rename(place.private / "tmp" / "gone-2")
            inner.symlink_to(f"/oldroot{place.outside}/new")

        with pytest.raises(ToolError, match="changed while the sandbox was being set up"):
            await place.run("echo ran", view, before_mounts=swap_it)
        assert [path.name for path in place.outside.iterdir()] == ["file"]
        assert (place.outside / "file").read_text() == "SECRET"
    finally:
        shutil.rmtree(real)


@pytest.mark.requirement("sandbox.pipes")
@pytest.mark.skipif(bool(unavailable_reason()), reason="not run: the kernel has no Landlock that restricts pipes")
async def test_a_command_cannot_write_to_a_pipe_that_its_view_does_not_make_writable(place: Place) -> None:
    places = (place.outside / "pipe", place.ws / "pipe")
    for path in places:
        os.mkfifo(path)
    readers = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in places]
    try:
        for view in (READING, WORKING):
            for path in places:
                result = await place.run(f"echo told > {path}; echo own > /tmp/own; cat /tmp/own > /dev/null", view)
                is_writable = view is WORKING and path is places[1]
                assert ("denied" in result.output or "No such file" in result.output) is not is_writable
        assert [os.read(reader, 100) for reader in readers] == [b"", b"told\n"]
    finally:
        for reader in readers:
            os.close(reader)


@pytest.mark.requirement("sandbox.leases")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_no_command_keeps_others_from_opening_a_file_that_it_reads(place: Place, view: CommandView) -> None:
    lease = "import fcntl, os; fcntl.fcntl(os.open({}, os.O_RDONLY), {}, {})"
    for path, request, argument in (("'file'", 1024, 1), ("'.'", 1026, 1), ("'.'", 1040, 0)):
        assert "Invalid argument" in (await place.run(python(lease.format(path, request, argument)), view)).output
    assert (await place.run(python(lease.format("'file'", 1033, 0)), view)).code != 7


@pytest.mark.requirement("sandbox.lasting")
async def test_what_build_programs_download_with_the_network_is_found_without_it(place: Place) -> None:
    names = " ".join(f'"${name}"' for name in DOWNLOADS)
    online_view = replace(WORKING, network=Network.HOST)
    result = await place.run(f'for f in {names}; do mkdir -p "$f" && touch "$f/x" && echo "$f"; done', online_view)
    assert result.output.splitlines() == [f"/var/tmp/.cache/{folder}" for folder in DOWNLOADS.values()]
    assert (await place.run('ls "$GOMODCACHE/x" "$CARGO_HOME/x"', WORKING)).code == 0


@pytest.mark.requirement("sandbox.rule_tmp")
async def test_a_reader_with_the_network_finds_nothing_that_others_left_in_tmp(place: Place) -> None:
    await place.run("mkdir -p $XDG_CACHE_HOME $TMPDIR/d; echo evil | tee $XDG_CACHE_HOME/x $TMPDIR/d/x /tmp/x")
    online_view = replace(READING, network=Network.HOST, has_new_tmp=True)
    result = await place.run("find /tmp $TMPDIR $XDG_CACHE_HOME -type f; echo new > /tmp/y", online_view)
    assert "x" not in result.output
    assert (await place.run("cat /tmp/x /tmp/y")).output == "evil\nnew\n"


@pytest.mark.requirement("sandbox.lasting")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_nothing_lasts_next_to_a_workspace_in_tmp_and_the_result_says_so(
    place: Place, tmp_path: Path, view: CommandView
) -> None:
    if not tmp_path.resolve().is_relative_to("/tmp"):
        pytest.skip("not run: temporary folders of tests do not lie in /tmp")
    place.ws = tmp_path.resolve()
    (place.ws / "file").write_text("one\n")
    plant = f"mkdir /tmp/node_modules; echo evil > {place.ws.parent}/.cargo; cat file; mktemp > /dev/null"
    result = await place.run(plant, view)
    assert result.output == "one\n"
    assert result.changes.not_lasting == ("/tmp/node_modules", f"{place.ws.parent}/.cargo")
    assert (await place.run("ls -A /tmp", view)).output == f"{place.ws.relative_to('/tmp').parts[0]}\n"
    assert not any(path.name.startswith("alone-") for path in place.private.iterdir())
    assert not (place.ws.parent / ".cargo").exists()


@pytest.mark.requirement("sandbox.lasting")
@pytest.mark.parametrize("view", [READING, WORKING], ids=["reading", "working"])
async def test_if_the_server_ends_after_a_command_the_result_names_what_the_command_left_in_tmp(
    place: Place, view: CommandView
) -> None:
    site = Site(home=str(place.home), keeps_tmp=False)
    caches = "mkdir -p $npm_config_cache $npm_config_logs_dir; echo x > $XDG_CACHE_HOME/x"
    result = await place.run(f"{caches}; echo hi > /tmp/y; cat file", view, site)
    assert (result.output, result.changes.not_lasting) == ("one\n", ("/tmp/y",))


@pytest.mark.requirement("sandbox.network")
async def test_package_managers_without_the_network_hardly_retry_and_still_name_the_cause(place: Place) -> None:
    variables = "$npm_config_fetch_retries $PIP_RETRIES $CARGO_NET_RETRY $UV_HTTP_RETRIES"
    for view in (READING, WORKING):
        assert (await place.run(f"echo {variables}", view)).output == "0 1 0 0\n"
    assert (await place.run(f"echo {variables}", replace(WORKING, network=Network.HOST))).output == "\n"
    result = await place.run(f"{PYTHON} -m pip download --index-url https://example.org/ absent")
    assert "No matching distribution" in result.output
    assert "name resolution" in result.output
    assert result.output.count("Retrying") == 1


@pytest.mark.requirement("sandbox.lasting")
async def test_a_file_in_the_real_tmp_that_a_question_named_is_visible_only_for_that_command(place: Place) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/tmp", prefix="coretools-test-") as file:
        file.write("shown\n")
        file.flush()
        for view in (READING, WORKING):
            result = await place.run(f"cat {file.name}; echo x > {file.name}", replace(view, seen=(file.name,)))
            assert result.output.startswith("shown\n")
            assert "Read-only" in result.output
            assert (await place.run(f"cat {file.name}", view)).code != 0
    assert list((place.private / "tmp").iterdir()) == []


@pytest.mark.requirement("sandbox.lasting")
async def test_a_command_may_start_in_the_scratch_folder(place: Place) -> None:
    await place.run("mkdir /tmp/sub")
    scratch = place.private / "tmp" / "sub"
    place_ws, place.ws = place.ws, scratch
    sandbox = await sandbox_for(Site(home=str(place.home)))
    environment = command_environment({"HOME": str(place.home)}, os.environ)
    result = await run(
        sandbox,
        "pwd; echo x > y",
        [str(place_ws)],
        environment,
        view=READING,
        private_folder=lambda: str(place.private),
        folder=str(scratch),
    )
    assert result.output == "/tmp/sub\n"
    assert (scratch / "y").exists()


PLANTS: list[tuple[str, Callable[[Place], Path]]] = [
    ("git config diff.external /tmp/evil", lambda place: place.ws / ".git" / "config"),
    ("echo evil > .git/hooks/pre-commit", lambda place: place.ws / ".git" / "hooks" / "pre-commit"),
    ("echo evil > ~/.local/bin/git", lambda place: place.home / ".local" / "bin" / "git"),
    ("mkdir -p .venv && echo 'home = /tmp' > .venv/pyvenv.cfg", lambda place: place.ws / ".venv"),
    ("echo evil > sitecustomize.py", lambda place: place.ws / "sitecustomize.py"),
    ("echo evil > .npmrc", lambda place: place.ws / ".npmrc"),
]


@pytest.mark.requirement("sandbox.lasting")
@pytest.mark.parametrize(("plant", "locate"), PLANTS, ids=[plant for plant, _ in PLANTS])
async def test_a_reader_plants_nothing_where_a_later_command_looks(
    place: Place, plant: str, locate: Callable[[Place], Path]
) -> None:
    content_before = locate(place).read_bytes() if locate(place).exists() else None
    assert (await place.run(plant)).code != 0
    assert (locate(place).read_bytes() if locate(place).exists() else None) == content_before


@pytest.mark.requirement("sandbox.network")
async def test_a_view_has_the_network_that_it_says(place: Place) -> None:
    for view in (READING, WORKING):
        links = {
            network: (await place.run("cat /proc/net/dev | wc -l", replace(view, network=network))).output
            for network in (Network.OWN_LOOPBACK, Network.HOST)
        }
        assert links[Network.OWN_LOOPBACK] == "3\n"
        assert int(links[Network.HOST]) == len(Path("/proc/net/dev").read_text().splitlines())
