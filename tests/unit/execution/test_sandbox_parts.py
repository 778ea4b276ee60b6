"""What a command sees, what it may not change, and what becomes of new files that programs obey."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hostile.sandboxed import prepare_view
from tools.contract.command_views import CommandView, Engine, Network, ViewKind
from tools.files.path_opener import SETTLED_NANOSECONDS
from tools.files.workspace import contains
from tools.shell.process_spec import SandboxChanges
from tools.shell.sandbox.auto_run_guard import (
    FOLDERS,
    AutoRunScanner,
    is_harmless,
    move_away,
)
from tools.shell.sandbox.bubblewrap import HELD, NEW_ROOT, STAGE, ViewSetup
from tools.shell.sandbox.credential_masks import secret_places
from tools.shell.sandbox.reading_view import _around  # pyright: ignore[reportPrivateUsage] - pure but for the tree
from tools.shell.sandbox.visible_file_system import (
    Site,
    View,
    _writable_by_consent,  # pyright: ignore[reportPrivateUsage] - what it makes lies in the test's folder
    sandbox_environment,
)

only_posix = pytest.mark.skipif(sys.platform == "win32", reason="not run: there is no sandbox on Windows")


@pytest.mark.requirement("sandbox.view")
def test_of_a_system_folder_that_holds_the_home_only_the_rest_is_shown(tmp_path: Path) -> None:
    top = tmp_path.resolve() / "srv"
    for name in ("people/me", "people/other", "lib"):
        (top / name).mkdir(parents=True)
    assert {*_around(str(top), str(top / "people" / "me"))} == {str(top / "people" / "other"), str(top / "lib")}
    assert [*_around(str(top / "lib"), str(top / "people" / "me"))] == [str(top / "lib")]
    assert [*_around(str(top / "people" / "me"), str(top / "people" / "me"))] == []


@pytest.mark.requirement("sandbox.view")
def test_the_nearest_of_a_root_and_a_hidden_folder_decides() -> None:
    view = View(
        roots=("/home/u/.config/w", "/w"),
        hidden_folders=("/home/u/.config", "/w/.ssh"),
        pinned=("/w/.git",),
        read_only=("/w/.vscode",),
    )
    setup = ViewSetup(view, "/w", is_filtered=True)
    text = " ".join(setup.options)
    order = [
        "--ro-bind / /",
        f"--tmpfs {STAGE}/0",
        f"--bind /home/u/.config/w {STAGE}/0/w",
        # Where it waits: after all that it mounts.
        f"--file {HELD} /dev/null",
    ]
    places = [text.index(step) for step in order]
    assert places == sorted(places)
    assert setup.options[setup.options.index("--chdir") :] == ["--chdir", "/w", "--seccomp", "9"]
    # What hides something in a folder comes last: a mount of that folder would show it again.
    places = ["/home/u/.config", "/w/.git", "/w/.vscode", "/w/.ssh"]
    assert [step.place for step in setup.steps] == [f"/newroot{place}" for place in places]
    assert [step.is_read_only for step in setup.steps] == [True, False, True, True]
    assert [mount.at for mount in view.expected()] == [*view.roots, "/w/.git", "/w/.vscode"]


@pytest.mark.requirement("sandbox.network")
@pytest.mark.parametrize("has_own_network", [True, False])
def test_the_network_is_shared_only_if_that_is_said(has_own_network: bool) -> None:
    argv = ViewSetup(View(roots=("/w",), has_own_network=has_own_network), "/w", is_filtered=False).options
    assert ("--unshare-net" in argv) is has_own_network
    assert "--seccomp" not in argv


@pytest.mark.requirement("sandbox.view")
def test_the_environment_leads_to_what_is_there() -> None:
    given = {"SSH_AUTH_SOCK": "/tmp/a", "TMPDIR": "/elsewhere", "XDG_CACHE_HOME": "/w/cache", "PATH": "/bin"}
    assert sandbox_environment(given, ["/w"], ViewKind.WORKING) == {
        "TMPDIR": "/var/tmp",
        "XDG_CACHE_HOME": "/w/cache",
        "npm_config_cache": "/var/tmp/.cache/npm",
        "npm_config_logs_dir": "/var/tmp/npm-logs",
        "PATH": "/bin",
        "GIT_CEILING_DIRECTORIES": "/tmp",
    }
    reading = sandbox_environment({**given, "TMP": "/w/t"}, ["/w"], ViewKind.READING)
    assert {reading[name] for name in ("TMPDIR", "TMP")} == {"/tmp"}
    assert (reading["XDG_CACHE_HOME"], reading["GIT_OPTIONAL_LOCKS"]) == ("/tmp/.cache", "0")
    # Programs look upwards from a workspace in /tmp: other temporary files are elsewhere.
    assert sandbox_environment(given, ["/tmp/w"], ViewKind.READING)["TMPDIR"] == "/var/tmp"


@only_posix
@pytest.mark.requirement("sandbox.outside")
def test_exactly_what_a_question_named_outside_is_opened_and_a_folder_is_made(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "file").touch()
    named = (f"{top}/new/", f"{top}/file", "no path", f"{top}/ws/inside")
    allowed = CommandView(Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK, writable=named)
    assert _writable_by_consent(Site(str(top)), allowed, [f"{top}/ws"]) == ([f"{top}/new"], [f"{top}/file"])
    assert (top / "new").is_dir()


@only_posix
@pytest.mark.requirement("sandbox.outside")
def test_secrets_are_hidden_where_they_are_and_settings_only_if_they_hold_one(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    (home / "keys").mkdir()
    (home / ".ssh").symlink_to("keys")
    (home / ".aws").symlink_to(".")  # which is the home, and ends no search
    (home / ".kiro").mkdir()
    (home / ".netrc").write_text("x")
    (home / ".npmrc").write_text("registry=https://registry.example\n")
    (home / ".yarnrc.yml").write_text("nodeLinker: x\nnpmAuthToken: abc\n")
    (home / ".tool").mkdir()
    (home / ".tool" / "conf").write_text(f"token = ghp_{'aB3d' * 9}\n")
    own = home / "state"
    own.mkdir()
    hidden = secret_places(str(home), [str(own), str(home / "absent")])
    assert {path for path in hidden.folders if contains(str(home), path)} == {
        str(home / "keys"),
        str(home / ".kiro"),
        str(own),
    }
    assert {path for path in hidden.files if contains(str(home), path)} == {
        str(home / ".netrc"),
        str(home / ".tool" / "conf"),
    }
    assert hidden.settings == (str(home / ".yarnrc.yml"),)


@only_posix
@pytest.mark.requirement("sandbox.auto_run")
def test_auto_run_files_are_found_wherever_they_are(root: Path) -> None:
    for name in (
        ".git/hooks/x",
        "vendor/x/.git/HEAD",
        "a/.vscode/tasks.json",
        ".git/modules/m/config",
        "node_modules/m/.git/c",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "link").symlink_to("a")
    (root / "b").mkdir()
    (root / "b" / ".claude").symlink_to("../a")
    found = AutoRunScanner().scan(str(root))
    assert set(found.pinned) == {str(root / ".git"), str(root / "vendor/x/.git")}
    assert set(found.read_only) == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "a")
    }
    assert found.paths == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "b/.claude")
    }


@only_posix
@pytest.mark.requirement("sandbox.auto_run")
def test_what_appears_in_a_folder_that_is_remembered_is_found(root: Path) -> None:
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    lookout = AutoRunScanner()
    while time.time_ns() - deep.stat().st_ctime_ns < SETTLED_NANOSECONDS:
        assert lookout.scan(str(root)).paths == set()
        time.sleep(0.02)
    assert lookout.scan(str(root)).paths == set()
    (deep / ".vscode").mkdir()
    assert lookout.scan(str(root)).paths == {str(deep / ".vscode")}
    (deep / ".vscode").rmdir()
    assert lookout.scan(str(root)).paths == set()


@only_posix
@pytest.mark.requirement("sandbox.auto_run")
def test_looking_is_bounded_and_begins_at_the_top(root: Path) -> None:
    for number in range(FOLDERS + 10):
        (root / "many" / str(number)).mkdir(parents=True)
    (root / "few").mkdir()
    (root / "few" / ".envrc").write_text("")
    assert AutoRunScanner().scan(str(root)).paths == {str(root / "few" / ".envrc")}


@only_posix
@pytest.mark.requirement("sandbox.view")
def test_a_link_in_a_workspace_asks_for_no_mount_of_what_lies_outside(root: Path) -> None:
    (root / "inside").mkdir()
    for name, target in (
        (".claude", "/"),
        (".gemini", "/run"),
        (".qwen", ".."),
        (".codex", "."),
        (".cursor", "inside"),
    ):
        (root / name).symlink_to(target)
    prepared = prepare_view(Site(home=str(root.parent)), [str(root)])
    assert prepared.view.read_only == (str(root / "inside"),)


@only_posix
@pytest.mark.requirement("sandbox.view")
def test_what_is_hidden_in_a_root_is_not_shown_again_because_it_is_an_auto_run_file(root: Path) -> None:
    (root / ".claude").mkdir()
    prepared = prepare_view(Site(home=str(root)), [str(root), str(root / "missing")])
    assert prepared.view.roots == (str(root),)
    assert str(root / ".claude") in prepared.view.hidden_folders
    assert str(root / ".claude") not in prepared.view.read_only
    assert prepared.settle() == SandboxChanges()
    assert [path.name for path in root.iterdir()] == [".claude"]


def _git(*arguments: str, folder: Path) -> None:
    subprocess.run(["git", "-c", "protocol.file.allow=always", *arguments], cwd=folder, check=True, capture_output=True)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_what_git_makes_for_a_new_repository_worktree_or_submodule_is_harmless(root: Path) -> None:
    first = root / "first"
    _git("init", "-q", "first", folder=root)
    _git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x", "--allow-empty", folder=first)
    _git("remote", "add", "origin", "https://example.org/x.git", folder=first)
    _git("worktree", "add", "-q", "../tree", folder=first)
    _git("clone", "-q", "first", "second", folder=root)
    _git("submodule", "add", "-q", str(first), "module", folder=root / "second")
    new = AutoRunScanner().scan(str(root)).paths
    assert len(new) >= 8
    assert [path for path in sorted(new) if not is_harmless(path, [str(root)], new)] == []


@only_posix
@pytest.mark.requirement("sandbox.new_files")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".git/config", "[core]\n\tfsmonitor = ./x\n"),
        (".git/config", "[core] fsmonitor = ./x"),
        (".git/config", "[core] [alias]\nx = !./x"),
        (".git/config", '[filter "x"]\nclean = ./x'),
        (".git/config", "[include]\npath = ../x"),
        (".git/config", '[remote "x"]\nurl = ext::./x'),
        (".git/config", "[core]\nabbrev = 7 \\\n"),
        (".git/config", "abbrev = 7"),
        (".git/config", "[core"),
        (".git/config", "x" * 300_000),
        (".git/config", "[core]\n#\r[color]\n\tfsmonitor = ./x\n"),
        (".git/config", "[core]\n#\f[color]\n\tfsmonitor = ./x\n"),
        (".git/config", "[core]\n#\x85[color]\n\tfsmonitor = ./x\n"),
        (".git/config", "[core]\nbare = false\n;\x1c\n"),
        (".git/config", '[remote "x"]\nurl = e"xt"::./x'),
        (".git/config", "[core]\n\tworktree = ../..\n"),
        (".git/modules/m/config", "[core]\n\tworktree = /etc\n"),
        (".git/modules/m/config", "[core]\n\tworktree = ../../../../../outside\n"),
        (".git/hooks/pre-commit", "./x"),
        (".git/commondir", "../.."),
        (".git", "gitdir: ../outside"),
        (".git", "gitdir: sub/not-git"),
        (".git", "gitdir: ../evil/.git/modules/logs"),
        (".vscode/tasks.json", "{}"),
        (".mcp.json", "{}"),
    ],
)
def test_what_makes_programs_run_something_or_look_elsewhere_is_not(root: Path, name: str, content: str) -> None:
    (root / "a" / name).parent.mkdir(parents=True)
    (root / "a" / name).write_text(content)
    own = root / "evil" / ".git" / "modules" / "logs"
    own.mkdir(parents=True)
    (own / "config").write_text("[core]\n\tfsmonitor = ./x\n")
    found = AutoRunScanner().scan(str(root)).paths
    assert str(own / "config") in found
    (path,) = found - {str(own / "config")}
    assert not is_harmless(path, [str(root)], found)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_a_folder_of_hooks_that_is_a_link_is_kept_where_it_leads_and_is_never_harmless(root: Path) -> None:
    (root / "githooks").mkdir()
    (root / ".git").mkdir()
    (root / ".git" / "hooks").symlink_to("../githooks")
    found = AutoRunScanner().scan(str(root))
    assert found.paths == {str(root / ".git" / "hooks")}
    assert found.read_only == [str(root / "githooks")]
    assert not is_harmless(str(root / ".git" / "hooks"), [str(root)], found.paths)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_what_is_moved_away_keeps_its_content_and_is_led_nowhere_by_links(root: Path, tmp_path: Path) -> None:
    private, outside = tmp_path / "private", tmp_path / "outside"
    private.mkdir()
    outside.mkdir()
    (outside / ".vscode").mkdir()
    (root / ".vscode").mkdir()
    (root / ".vscode" / "tasks.json").write_text("{}")
    (root / ".vscode" / "link").symlink_to(outside)
    os.mkfifo(root / ".vscode" / "pipe")
    ((_, place),) = move_away([str(root / ".vscode")], str(private))
    assert place is not None
    assert Path(place).is_relative_to(private)
    assert (Path(place) / "tasks.json").read_text() == "{}"
    assert list(root.iterdir()) == []
    (root / "sub").symlink_to(outside)
    away = str(root / "sub" / ".vscode")
    assert list(move_away([away], str(private))) == [(away, None)]
    assert (outside / ".vscode").is_dir()
    (root / ".envrc").write_text("x")
    ((_, renamed),) = move_away([str(root / ".envrc")], None)
    assert renamed is not None
    assert [path.name for path in root.iterdir() if path.is_file()] == [Path(renamed).name]
    assert Path(renamed).name.startswith(".envrc.untrusted-")


@pytest.mark.requirement("sandbox.places")
@pytest.mark.parametrize("roots", [(), ("/opt/app",)], ids=["reading", "working"])
def test_in_a_workspace_below_a_folder_of_the_system_nothing_is_mounted_by_a_path(roots: tuple[str, ...]) -> None:
    view = View(roots=roots, masked={"/opt/app/d/.env": "/dev/null"}, pinned=("/opt/app/d",), read_only=("/opt/app/x",))
    setup = ViewSetup(view, "/opt/app", is_filtered=False)
    mounted = {step.place.removeprefix(NEW_ROOT) for step in setup.steps}
    assert mounted == {"/opt/app/d/.env", "/opt/app/d", "/opt/app/x"}
    assert not {"/opt/app/d/.env", "/opt/app/d", "/opt/app/x"} & set(setup.options)


@pytest.mark.requirement("sandbox.places")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: there are no forks")
def test_a_fork_that_is_killed_while_it_mounts_has_not_mounted() -> None:
    from tools.shell.broker import supervisor

    with pytest.raises(OSError, match="confined") as failed:
        supervisor._fork(lambda: os.kill(os.getpid(), signal.SIGKILL), becomes=False)  # pyright: ignore[reportPrivateUsage]
    assert failed.value.errno == errno.ESRCH
