"""What a command sees, what it may not change, and what happens to new auto-run files."""

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
from tools.shell.sandbox.reading_view import _around  # pyright: ignore[reportPrivateUsage] - only reads the file system
from tools.shell.sandbox.visible_file_system import (
    DOWNLOADS,
    Site,
    View,
    _writable_by_consent,  # pyright: ignore[reportPrivateUsage] - creates folders only in the test's folder
    private_downloads,
    sandbox_environment,
)

only_posix = pytest.mark.skipif(sys.platform == "win32", reason="not run: there is no sandbox on Windows")


@pytest.mark.requirement("sandbox.view")
def test_a_system_folder_that_contains_the_home_is_shown_without_it(tmp_path: Path) -> None:
    top = tmp_path.resolve() / "srv"
    for name in ("people/me", "people/other", "lib"):
        (top / name).mkdir(parents=True)
    assert {*_around(str(top), str(top / "people" / "me"))} == {str(top / "people" / "other"), str(top / "lib")}
    assert [*_around(str(top / "lib"), str(top / "people" / "me"))] == [str(top / "lib")]
    assert [*_around(str(top / "people" / "me"), str(top / "people" / "me"))] == []


@pytest.mark.requirement("sandbox.view")
def test_the_innermost_root_or_hidden_folder_decides() -> None:
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
        # Bubblewrap waits here, after its own mounts.
        f"--file {HELD} /dev/null",
    ]
    places = [text.index(step) for step in order]
    assert places == sorted(places)
    assert setup.options[setup.options.index("--chdir") :] == ["--chdir", "/w", "--seccomp", "9"]
    # Mounts that hide a folder's contents come last: a later mount of the folder would show them again.
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


@pytest.mark.requirement("sandbox.lasting")
def test_downloads_are_private_with_the_network_and_afterwards_or_if_the_user_has_none(tmp_path: Path) -> None:
    environment, cache = {"HOME": str(tmp_path)}, str(tmp_path / "cache")
    assert private_downloads(environment, cache, is_online=True) == [*DOWNLOADS]
    assert private_downloads(environment, cache, is_online=False) == ["GOMODCACHE", "CARGO_HOME", "GRADLE_USER_HOME"]
    (tmp_path / "go/pkg/mod").mkdir(parents=True)
    (tmp_path / "rust/registry").mkdir(parents=True)
    environment["CARGO_HOME"] = str(tmp_path / "rust")
    assert private_downloads(environment, cache, is_online=False) == ["GRADLE_USER_HOME"]
    (tmp_path / "cache/go/pkg/mod").mkdir(parents=True)
    assert private_downloads(environment, cache, is_online=False) == ["GOMODCACHE", "GRADLE_USER_HOME"]


@pytest.mark.requirement("sandbox.view")
def test_the_environment_points_to_folders_that_exist_in_the_sandbox() -> None:
    environment = {"SSH_AUTH_SOCK": "/tmp/a", "TMPDIR": "/elsewhere", "XDG_CACHE_HOME": "/w/cache", "PATH": "/bin"}
    assert sandbox_environment(environment, ["/w"], ViewKind.WORKING) == {
        "TMPDIR": "/var/tmp",
        "XDG_CACHE_HOME": "/w/cache",
        "npm_config_cache": "/var/tmp/.cache/npm",
        "npm_config_logs_dir": "/var/tmp/npm-logs",
        "PATH": "/bin",
        "GIT_CEILING_DIRECTORIES": "/tmp",
    }
    reading_environment = sandbox_environment({**environment, "TMP": "/w/t"}, ["/w"], ViewKind.READING)
    assert {reading_environment[name] for name in ("TMPDIR", "TMP")} == {"/tmp"}
    assert (reading_environment["XDG_CACHE_HOME"], reading_environment["GIT_OPTIONAL_LOCKS"]) == ("/tmp/.cache", "0")
    with_downloads = sandbox_environment({**environment, "CARGO_HOME": "/w/c"}, ["/w"], ViewKind.WORKING, DOWNLOADS)
    assert (with_downloads["GOMODCACHE"], with_downloads["CARGO_HOME"]) == ("/var/tmp/.cache/go/pkg/mod", "/w/c")
    offline_environment = sandbox_environment(
        {**environment, "NPM_CONFIG_FETCH_RETRIES": "4", "PIP_RETRIES": "5"}, ["/w"], ViewKind.WORKING, is_online=False
    )
    assert {name: value for name, value in offline_environment.items() if "RETR" in name.upper()} == {
        "NPM_CONFIG_FETCH_RETRIES": "4",
        "PIP_RETRIES": "5",
        "CARGO_NET_RETRY": "0",
        "UV_HTTP_RETRIES": "0",
    }
    # Programs search the parent folders of a workspace in /tmp, so temporary files are kept elsewhere.
    assert sandbox_environment(environment, ["/tmp/w"], ViewKind.READING)["TMPDIR"] == "/var/tmp"


@only_posix
@pytest.mark.requirement("sandbox.outside")
def test_exactly_the_outside_paths_of_the_question_are_opened_and_a_missing_folder_is_created(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "file").touch()
    paths = (f"{top}/new/", f"{top}/file", "no path", f"{top}/ws/inside")
    view = CommandView(Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK, writable=paths)
    assert _writable_by_consent(Site(str(top)), view, [f"{top}/ws"]) == ([f"{top}/new"], [f"{top}/file"])
    assert (top / "new").is_dir()


@only_posix
@pytest.mark.requirement("sandbox.outside")
def test_secrets_are_hidden_where_they_are_and_settings_only_if_they_contain_one(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    (home / "keys").mkdir()
    (home / ".ssh").symlink_to("keys")
    (home / ".aws").symlink_to(".")  # a link to the home folder, which must not end the search
    (home / ".kiro").mkdir()
    (home / ".netrc").write_text("x")
    (home / ".npmrc").write_text("registry=https://registry.example\n")
    (home / ".yarnrc.yml").write_text("nodeLinker: x\nnpmAuthToken: abc\n")
    (home / ".tool").mkdir()
    (home / ".tool" / "conf").write_text(f"token = ghp_{'aB3d' * 9}\n")
    state_folder = home / "state"
    state_folder.mkdir()
    places = secret_places(str(home), [str(state_folder), str(home / "absent")])
    assert {path for path in places.folders if contains(str(home), path)} == {
        str(home / "keys"),
        str(home / ".kiro"),
        str(state_folder),
    }
    assert {path for path in places.files if contains(str(home), path)} == {
        str(home / ".netrc"),
        str(home / ".tool" / "conf"),
    }
    assert places.settings == (str(home / ".yarnrc.yml"),)


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
    scan = AutoRunScanner().scan(str(root))
    assert set(scan.pinned) == {str(root / ".git"), str(root / "vendor/x/.git")}
    assert set(scan.read_only) == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "a")
    }
    assert scan.paths == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "b/.claude")
    }


@only_posix
@pytest.mark.requirement("sandbox.auto_run")
def test_a_new_auto_run_file_in_a_cached_folder_is_found(root: Path) -> None:
    folder = root / "a" / "b"
    folder.mkdir(parents=True)
    scanner = AutoRunScanner()
    while time.time_ns() - folder.stat().st_ctime_ns < SETTLED_NANOSECONDS:
        assert scanner.scan(str(root)).paths == set()
        time.sleep(0.02)
    assert scanner.scan(str(root)).paths == set()
    (folder / ".vscode").mkdir()
    assert scanner.scan(str(root)).paths == {str(folder / ".vscode")}
    (folder / ".vscode").rmdir()
    assert scanner.scan(str(root)).paths == set()


@only_posix
@pytest.mark.requirement("sandbox.auto_run")
def test_the_scan_is_bounded_and_begins_at_the_top(root: Path) -> None:
    for number in range(FOLDERS + 10):
        (root / "many" / str(number)).mkdir(parents=True)
    (root / "few").mkdir()
    (root / "few" / ".envrc").write_text("")
    assert AutoRunScanner().scan(str(root)).paths == {str(root / "few" / ".envrc")}


@only_posix
@pytest.mark.requirement("sandbox.view")
def test_a_link_in_a_workspace_causes_no_mount_of_anything_outside(root: Path) -> None:
    (root / "inside").mkdir()
    for name, target in (
        (".claude", "/"),
        (".gemini", "/run"),
        (".qwen", ".."),
        (".codex", "."),
        (".cursor", "inside"),
    ):
        (root / name).symlink_to(target)
    setup = prepare_view(Site(home=str(root.parent)), [str(root)])
    assert setup.view.read_only == (str(root / "inside"),)


@only_posix
@pytest.mark.requirement("sandbox.view")
def test_a_hidden_path_in_a_root_stays_hidden_even_if_it_is_an_auto_run_file(root: Path) -> None:
    (root / ".claude").mkdir()
    setup = prepare_view(Site(home=str(root)), [str(root), str(root / "missing")])
    assert setup.view.roots == (str(root),)
    assert str(root / ".claude") in setup.view.hidden_folders
    assert str(root / ".claude") not in setup.view.read_only
    assert setup.settle() == SandboxChanges()
    assert [path.name for path in root.iterdir()] == [".claude"]


def _git(*arguments: str, folder: Path) -> None:
    subprocess.run(["git", "-c", "protocol.file.allow=always", *arguments], cwd=folder, check=True, capture_output=True)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_files_that_git_creates_for_a_repository_worktree_or_submodule_are_harmless(root: Path) -> None:
    origin = root / "first"
    _git("init", "-q", "first", folder=root)
    _git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x", "--allow-empty", folder=origin)
    _git("remote", "add", "origin", "https://example.org/x.git", folder=origin)
    _git("worktree", "add", "-q", "../tree", folder=origin)
    _git("clone", "-q", "first", "second", folder=root)
    _git("submodule", "add", "-q", str(origin), "module", folder=root / "second")
    new_paths = AutoRunScanner().scan(str(root)).paths
    assert len(new_paths) >= 8
    assert [path for path in sorted(new_paths) if not is_harmless(path, [str(root)], new_paths)] == []


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
        (".git/config", "[core]\nabbrev = 7 \\\n\nsshCommand = x\n"),
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
def test_files_that_make_programs_run_something_or_look_elsewhere_are_not_harmless(
    root: Path, name: str, content: str
) -> None:
    (root / "a" / name).parent.mkdir(parents=True)
    (root / "a" / name).write_text(content)
    module_folder = root / "evil" / ".git" / "modules" / "logs"
    module_folder.mkdir(parents=True)
    (module_folder / "config").write_text("[core]\n\tfsmonitor = ./x\n")
    new_paths = AutoRunScanner().scan(str(root)).paths
    assert str(module_folder / "config") in new_paths
    (path,) = new_paths - {str(module_folder / "config")}
    assert not is_harmless(path, [str(root)], new_paths)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_the_target_of_a_linked_hooks_folder_is_read_only_and_the_link_is_never_harmless(root: Path) -> None:
    (root / "githooks").mkdir()
    (root / ".git").mkdir()
    (root / ".git" / "hooks").symlink_to("../githooks")
    scan = AutoRunScanner().scan(str(root))
    assert scan.paths == {str(root / ".git" / "hooks")}
    assert scan.read_only == [str(root / "githooks")]
    assert not is_harmless(str(root / ".git" / "hooks"), [str(root)], scan.paths)


@only_posix
@pytest.mark.requirement("sandbox.new_files")
def test_moved_files_keep_their_content_and_the_move_follows_no_links(root: Path, tmp_path: Path) -> None:
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
    linked_path = str(root / "sub" / ".vscode")
    assert list(move_away([linked_path], str(private))) == [(linked_path, None)]
    assert (outside / ".vscode").is_dir()
    (root / ".envrc").write_text("x")
    ((_, new_path),) = move_away([str(root / ".envrc")], None)
    assert new_path is not None
    assert [path.name for path in root.iterdir() if path.is_file()] == [Path(new_path).name]
    assert Path(new_path).name.startswith(".envrc.untrusted-")


@pytest.mark.requirement("sandbox.places")
@pytest.mark.parametrize("roots", [(), ("/opt/app",)], ids=["reading", "working"])
def test_in_a_workspace_below_a_system_folder_bubblewrap_mounts_nothing_by_path(roots: tuple[str, ...]) -> None:
    view = View(roots=roots, masked={"/opt/app/d/.env": "/dev/null"}, pinned=("/opt/app/d",), read_only=("/opt/app/x",))
    setup = ViewSetup(view, "/opt/app", is_filtered=False)
    places = {step.place.removeprefix(NEW_ROOT) for step in setup.steps}
    assert places == {"/opt/app/d/.env", "/opt/app/d", "/opt/app/x"}
    assert not {"/opt/app/d/.env", "/opt/app/d", "/opt/app/x"} & set(setup.options)


@pytest.mark.requirement("sandbox.places")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows cannot fork processes")
def test_a_fork_that_is_killed_while_it_mounts_counts_as_failed() -> None:
    from tools.shell.broker import supervisor

    with pytest.raises(OSError, match="confined") as error_info:
        supervisor._fork(lambda: os.kill(os.getpid(), signal.SIGKILL), becomes=False)  # pyright: ignore[reportPrivateUsage]
    assert error_info.value.errno == errno.ESRCH
