"""Which folders are the workspace: those of the operator, those of the client, or the working folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from server.cli import main
from server.clients.client_workspaces import ClientRoots, WorkspacePolicy
from server.settings.server_models import WorkspaceSettings
from server.settings.settings_files import home_folder
from tools.contract.tool_errors import ToolError, ToolErrorType


def policy(*roots: Path, intersect: bool = False) -> WorkspacePolicy:
    paths = tuple(str(root) for root in roots)
    settings = WorkspaceSettings(roots=paths, client_roots="intersect" if intersect else "fallback")
    return WorkspacePolicy(settings, lambda _roots, _rights: None)


@pytest.mark.requirement("roots.client")
def test_without_any_root_the_working_folder_is_the_workspace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert policy().workspace(ClientRoots()).roots == (str(root),)
    assert policy().workspace(ClientRoots()).roots == (str(root),)


@pytest.mark.requirement("roots.client")
@pytest.mark.parametrize("place", ["/", "home", "installation"])
def test_a_home_the_root_folder_and_an_installation_are_never_the_default_workspace(
    place: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.chdir({"/": "/", "home": str(root), "installation": sys.prefix}[place])
    with pytest.raises(ToolError, match="--workspace") as error:
        policy().workspace(ClientRoots()).locate("a.txt")
    assert error.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("roots.client")
def test_a_home_a_folder_above_it_and_the_root_folder_are_left_out_of_the_roots_of_a_client(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, project = root / "home", root / "home" / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    broad_folders = (str(home), str(root), "/")
    for folder in broad_folders:
        with pytest.raises(ToolError, match=f"'{folder}'.*--workspace") as error:
            policy().workspace(ClientRoots((folder,))).locate(str(home / "notes"))
        assert error.value.code is ToolErrorType.NO_WORKSPACE
        assert f"'{folder}'" in caplog.text
    assert policy().workspace(ClientRoots((*broad_folders, str(project)))).roots == (str(project),)
    # Such a folder may be the workspace if the operator names it, or a folder above it.
    for operator_policy in (policy(home), policy(home, intersect=True), policy(root, intersect=True)):
        assert operator_policy.workspace(ClientRoots((str(home),))).roots == (str(home),)


PRINT_FOLDERS = """
import sys
from server.clients.client_workspaces import ClientRoots, WorkspacePolicy
from server.settings.server_models import WorkspaceSettings
from tools.permissions.permission_policy import ALL_RIGHTS

policy = WorkspacePolicy(WorkspaceSettings(), lambda _roots, _rights: None)
print(*policy.folders(ClientRoots(tuple(sys.argv[1:])), ALL_RIGHTS)[0])
"""


def folders_with_mounts(mounts: Mapping[Path, Path], home: Path, *roots: Path) -> str:
    """Return what is left of a client's roots after these folders (the values) were mounted at other places."""
    for folder in (*mounts, *mounts.values()):
        folder.mkdir(parents=True, exist_ok=True)
    commands = [f"mount --bind '{folder}' '{mount_point}'" for mount_point, folder in mounts.items()]
    script = " && ".join([*commands, 'exec "$@"'])
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("not run: this system allows no mount namespaces")
    return subprocess.run(
        [*namespace, "sh", "-c", script, "sh", sys.executable, "-c", PRINT_FOLDERS, *map(str, roots)],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        check=True,
        text=True,
    ).stdout


@pytest.mark.requirement("roots.client")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bind mounts are Linux only")
def test_a_home_and_a_folder_above_it_are_left_out_of_the_roots_of_a_client_that_names_a_bind_mount(
    tmp_path: Path,
) -> None:
    home = tmp_path / "above" / "home"
    mounts = {tmp_path / "m1": home, tmp_path / "m2": home.parent, tmp_path / "m3": home / "project"}
    assert folders_with_mounts(mounts, home, *mounts) == f"{tmp_path / 'm3'}\n"


@pytest.mark.requirement("roots.client")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bind mounts are Linux only")
def test_a_folder_that_contains_the_mounted_home_is_left_out_of_the_roots_of_a_client_unless_the_home_is_covered(
    tmp_path: Path,
) -> None:
    data, homes = tmp_path / "data", tmp_path / "homes"
    home = homes / "a b" / "me"
    (data / "homes" / "a b" / "me" / "project").mkdir(parents=True)
    mounts = {homes: data / "homes"}
    roots = (data, data / "homes", data / "homes" / "a b" / "me" / "project", home / "project")
    assert folders_with_mounts(mounts, home, *roots) == f"{roots[2]} {roots[3]}\n"
    mounts[data / "homes"] = tmp_path / "other"
    assert folders_with_mounts(mounts, home, data, home) == f"{data}\n"


@pytest.mark.requirement("roots.client")
def test_a_user_without_a_home_can_use_the_folders_of_a_client_and_the_working_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "~")  # what `expanduser` returns for such a user
    monkeypatch.chdir(root)
    for roots in (ClientRoots((str(root),)), ClientRoots()):
        assert policy().workspace(roots).roots == (str(root),)


@pytest.mark.requirement("roots.client")
@pytest.mark.skipif(sys.platform == "win32", reason="HOME means nothing on Windows")
def test_an_empty_variable_does_not_make_the_root_folder_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    home = home_folder(os.environ)
    monkeypatch.setenv("HOME", "")
    with pytest.raises(SystemExit):
        main(["version"])
    assert home_folder(os.environ) == home != "/"


@pytest.mark.requirement("roots.operator")
def test_an_empty_intersection_leaves_no_workspace_and_says_why(root: Path, tmp_path: Path) -> None:
    intersection = policy(root, intersect=True)
    with pytest.raises(ToolError, match="intersect") as error:
        intersection.workspace(ClientRoots((str(tmp_path / "elsewhere"),))).locate("a")
    assert error.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("roots.operator")
def test_an_intersection_is_the_smaller_folder_of_each_pair(root: Path) -> None:
    (root / "part").mkdir()
    intersection = policy(root, intersect=True)
    assert intersection.workspace(ClientRoots((str(root / "part"),))).roots == (str(root / "part"),)
    assert intersection.workspace(ClientRoots((str(root.parent),))).roots == (str(root),)
    assert intersection.workspace(ClientRoots((str(root),))).roots == (str(root),)
    assert intersection.workspace(ClientRoots()).roots == (str(root),)


@pytest.mark.requirement("roots.client")
@pytest.mark.parametrize("roots", [None, ClientRoots(problem="They are no folders.")])
@pytest.mark.parametrize("intersect", [True, False])
def test_unusable_roots_of_a_client_are_never_replaced_by_the_working_folder(
    roots: ClientRoots | None, intersect: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    workspace_policy = policy(root, intersect=True) if intersect else policy()
    with pytest.raises(ToolError) as error:
        workspace_policy.workspace(roots).locate("a.txt")
    assert error.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("roots.client")
def test_a_deleted_working_folder_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ToolError, match="no longer exists"):
        policy().workspace(ClientRoots()).locate("a.txt")
