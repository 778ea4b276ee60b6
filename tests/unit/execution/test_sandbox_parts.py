"""What a command sees, what it may not change, and the folders that keep names free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.execution.confinement import NetworkAccess
from tools.execution.sandbox.arguments import Descriptors, View, bubblewrap_options
from tools.execution.sandbox.hidden import secret_places
from tools.execution.sandbox.placeholders import Placeholders, is_placeholder
from tools.execution.sandbox.steering import FOLDERS, SETTLED_NANOSECONDS, SteeringLookout
from tools.execution.sandbox.view import Site, prepare, sandbox_environment
from tools.filesystem.workspace import contains
from tools.permissions.steering_files import ABSENT_FILES, ABSENT_FOLDERS

only_posix = pytest.mark.skipif(sys.platform == "win32", reason="not run: there is no sandbox on Windows")


@pytest.mark.requirement("sandbox.view")
def test_the_nearest_of_a_root_and_a_hidden_folder_decides() -> None:
    view = View(
        roots=("/home/u/.config/w", "/w"),
        hidden_folders=("/home/u/.config", "/w/.ssh"),
        pinned=("/w/.git",),
        read_only=("/w/.vscode",),
        absent=frozenset({"/w/.vscode"}),
    )
    argv = bubblewrap_options(view, "/w", Descriptors(info=7, held=8, options=6, calls=9))
    text = " ".join(argv)
    order = [
        "--ro-bind / /",
        "--bind /w /w",
        "--tmpfs /home/u/.config",
        "--bind /home/u/.config/w",
        # It would be shown again by the mount of a folder that holds it.
        "--bind-try /w/.git",
        "--tmpfs /w/.vscode",
        "--tmpfs /w/.ssh",
        # Where it waits: after all that is mounted.
        "--file 8 /dev/null",
    ]
    places = [text.index(step) for step in order]
    assert places == sorted(places)
    assert argv[argv.index("--chdir") :] == ("--chdir", "/w", "--seccomp", "9")
    assert [mount.at for mount in view.expected()] == [*view.roots, "/w/.git", "/w/.vscode"]


@pytest.mark.requirement("sandbox.network")
@pytest.mark.parametrize("network", NetworkAccess)
def test_the_network_is_shared_only_if_that_is_said(network: NetworkAccess) -> None:
    argv = bubblewrap_options(View(roots=("/w",), network=network), "/w", Descriptors(7, 8, 6, None))
    assert ("--unshare-net" in argv) is (network is NetworkAccess.NONE)
    assert "--seccomp" not in argv


@pytest.mark.requirement("sandbox.view")
def test_the_environment_leads_to_what_is_there() -> None:
    given = {"SSH_AUTH_SOCK": "/tmp/a", "TMPDIR": "/elsewhere", "XDG_CACHE_HOME": "/w/cache", "PATH": "/bin"}
    assert sandbox_environment(given, ["/w"]) == {
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": "/w/cache",
        "npm_config_cache": "/tmp/.npm",
        "PATH": "/bin",
    }


@only_posix
@pytest.mark.requirement("sandbox.outside")
def test_secrets_are_hidden_where_they_are_and_settings_are_copied_only_if_they_hold_one(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    (home / "keys").mkdir()
    (home / ".ssh").symlink_to("keys")
    (home / ".kiro").mkdir()
    (home / ".netrc").write_text("x")
    (home / ".npmrc").write_text("registry=https://registry.example\n")
    (home / ".yarnrc.yml").write_text("npmAuthToken: abc\n")
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
    }
    assert dict(hidden.copies) == {str(home / ".yarnrc.yml"): b'npmAuthToken: ""\n'}


@only_posix
@pytest.mark.requirement("sandbox.steering")
def test_what_steers_is_found_wherever_it_is(root: Path) -> None:
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
    found = SteeringLookout().look(str(root))
    assert set(found.pinned) == {str(root / ".git"), str(root / "vendor/x/.git")}
    assert set(found.read_only) == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "a")
    }
    assert set(found.absent) == {
        *(str(root / name) for name in (*ABSENT_FOLDERS, *ABSENT_FILES)),
    }
    assert found.found == {
        str(root / name) for name in (".git/hooks", ".git/modules/m/config", "a/.vscode", "b/.claude")
    }


@only_posix
@pytest.mark.requirement("sandbox.steering")
def test_a_repository_at_the_top_without_hooks_gets_none(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("")
    assert str(root / ".git" / "hooks") in SteeringLookout().look(str(root)).absent


@only_posix
@pytest.mark.requirement("sandbox.placeholders")
def test_no_folder_is_made_behind_a_link(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / ".git").symlink_to(outside)
    held = Placeholders([str(root / ".git" / "hooks")])
    assert (held.paths, list(outside.iterdir())) == ((), [])


@only_posix
@pytest.mark.requirement("sandbox.steering")
def test_what_appears_in_a_folder_that_is_remembered_is_found(root: Path) -> None:
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    lookout = SteeringLookout()
    while time.time_ns() - deep.stat().st_ctime_ns < SETTLED_NANOSECONDS:
        assert lookout.look(str(root)).found == set()
    assert lookout.look(str(root)).found == set()
    (deep / ".vscode").mkdir()
    assert lookout.look(str(root)).found == {str(deep / ".vscode")}
    (deep / ".vscode").rmdir()
    assert lookout.look(str(root)).found == set()


@only_posix
@pytest.mark.requirement("sandbox.steering")
def test_looking_is_bounded_and_begins_at_the_top(root: Path) -> None:
    for number in range(FOLDERS + 10):
        (root / "many" / str(number)).mkdir(parents=True)
    (root / "few").mkdir()
    (root / "few" / ".envrc").write_text("")
    assert SteeringLookout().look(str(root)).found == {str(root / "few" / ".envrc")}


@only_posix
@pytest.mark.requirement("sandbox.placeholders")
def test_the_last_of_those_who_hold_a_name_removes_it(root: Path) -> None:
    path = str(root / ".vscode")
    first, second = Placeholders([path]), Placeholders([path])
    assert is_placeholder(path)
    first.release()
    first.release()
    assert is_placeholder(path)
    second.release()
    assert not os.path.lexists(path)


@only_posix
@pytest.mark.requirement("sandbox.placeholders")
def test_a_name_held_by_another_process_stays(root: Path) -> None:
    path = str(root / ".vscode")
    program = (
        "import sys; from tools.execution.sandbox.placeholders import Placeholders\n"
        "held = Placeholders([sys.argv[1]]); print(held.paths, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert path.encode() in other.stdout.readline()
        Placeholders([path]).release()
        assert is_placeholder(path)
        other.send_signal(signal.SIGKILL)
        other.wait()
    # Left by a process that was killed: taken over, and removed.
    assert is_placeholder(path)
    Placeholders([path]).release()
    assert not os.path.lexists(path)


@only_posix
@pytest.mark.requirement("sandbox.placeholders")
def test_names_that_are_lost_are_given_back_when_the_program_ends(root: Path) -> None:
    path = str(root / ".vscode")
    program = (
        "import sys; from tools.execution.sandbox.placeholders import Placeholders; held = Placeholders([sys.argv[1]])"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert not os.path.lexists(path)


@only_posix
@pytest.mark.requirement("sandbox.placeholders")
def test_what_people_put_there_is_never_touched(root: Path) -> None:
    taken, filled, empty = root / ".mcp.json", root / ".vscode", root / ".claude"
    taken.write_text("{}")
    empty.mkdir()
    held = Placeholders([str(taken), str(filled), str(empty), str(root / "absent" / "deep")])
    assert held.paths == (str(filled),)
    (filled / "settings.json").write_text("{}")
    held.release()
    assert (taken.read_text(), (filled / "settings.json").read_text(), empty.is_dir()) == ("{}", "{}", True)


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
    prepared = prepare(Site(home=str(root.parent)), NetworkAccess.NONE, SteeringLookout(), [str(root)])
    try:
        kept = {path for path in prepared.view.read_only if not is_placeholder(path)}
        assert kept == {str(root / "inside")}
    finally:
        prepared.placeholders.close()


@only_posix
@pytest.mark.requirement("sandbox.view")
def test_what_is_hidden_in_a_root_is_not_shown_again_because_it_steers(root: Path) -> None:
    (root / ".claude").mkdir()
    prepared = prepare(Site(home=str(root)), NetworkAccess.NONE, SteeringLookout(), [str(root), str(root / "missing")])
    try:
        assert prepared.view.roots == (str(root),)
        assert str(root / ".claude") in prepared.view.hidden_folders
        assert str(root / ".claude") not in prepared.view.read_only
        assert str(root / ".gemini") in prepared.view.read_only
    finally:
        assert prepared.new() == ()
        prepared.placeholders.close()
    assert [path.name for path in root.iterdir()] == [".claude"]
