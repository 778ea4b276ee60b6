"""Real commands in the real sandbox that move a folder with protected files and put another one in its place."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.hostile.sandboxed import WORKING, CommandResult, prepare_view, run, run_confined, sandbox_for
from tools.contract.tool_errors import ToolError
from tools.shell.command_environment import command_environment
from tools.shell.process_spec import ProcessSpec, SandboxChanges
from tools.shell.sandbox.auto_run_guard import FOLDERS, MODULE_FOLDERS, AutoRunScanner
from tools.shell.sandbox.bubblewrap import BubblewrapConfinement, SandboxedCommand
from tools.shell.sandbox.visible_file_system import MAX_PROTECTIVE_MOUNTS, Site

pytestmark = pytest.mark.anyio

if sys.platform != "linux":
    pytest.skip("not run: bubblewrap is Linux only", allow_module_level=True)

EVIL = '{"mcpServers": {}}'


async def sandbox(root: Path, settings: Sequence[str] = (), hidden_names: Sequence[str] = ()) -> BubblewrapConfinement:
    site = Site(
        home=str(root.parent),
        hidden=tuple(str(root / name) for name in hidden_names),
        read_only=tuple(str(root / name) for name in settings),
    )
    return await sandbox_for(site)


async def run_in_sandbox(
    root: Path, command: str, settings: Sequence[str] = (), hidden_names: Sequence[str] = ()
) -> CommandResult:
    confinement = await sandbox(root, settings, hidden_names)
    try:
        return await run(confinement, command, [str(root)], command_environment({}, os.environ))
    finally:
        confinement.close()


def file(root: Path, name: str, text: str = "{}") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def content(root: Path) -> dict[str, str | None]:
    """Return the paths in a folder, with the text of files."""
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in root.rglob("*")}


EXCHANGE = (
    "import ctypes, sys; first, second = map(str.encode, sys.argv[1:]); "
    "sys.exit(-ctypes.CDLL(None).renameat2(-100, first, -100, second, 2))"
)

SETTINGS_MOVES = (
    ("conf/coretools.json", "mv conf conf2 && mkdir conf && cp evil.json conf/coretools.json"),
    (
        "cfg/coretools-mcp/settings.json",
        "N=cfg/coretools-mcp; mv cfg old && mkdir -p $N && cp evil.json $N/settings.json",
    ),
    ("cfg/own/settings.json", "cd cfg && mv own ../old"),
    ("a/b/c/coretools.json", "mv a/b x && mkdir -p a/b/c && cp evil.json a/b/c/coretools.json"),
    ("conf/coretools.json", f"mkdir new && cp evil.json new/coretools.json && python3 -c '{EXCHANGE}' new conf"),
    ("conf/coretools.json", "rm -rf conf ; mkdir conf && cp evil.json conf/coretools.json"),
    ("conf/coretools.json", "ln conf/coretools.json mine && cp evil.json mine"),
    ("coretools.json", "mv $PWD ${PWD}2"),
    ("conf/coretools.json", "unshare -rm sh -c 'umount conf; mount --bind new conf'"),
)


@pytest.mark.requirement("sandbox.ways")
@pytest.mark.parametrize(("settings", "command"), SETTINGS_MOVES)
async def test_own_settings_in_a_folder_of_the_workspace_are_not_replaced_by_moving_the_folder(
    root: Path, settings: str, command: str
) -> None:
    file(root, settings)
    file(root, "evil.json", EVIL)
    identity = (root / settings).stat().st_ino
    result = await run_in_sandbox(root, command, [settings])
    assert result.code != 0
    assert (root / settings).read_text() == "{}"
    assert (root / settings).stat().st_ino == identity
    assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.ways")
@pytest.mark.parametrize("folder", [".", "cfg"])
@pytest.mark.parametrize("kind", ["settings", "hidden"])
async def test_own_settings_that_a_command_created_are_moved_away(root: Path, folder: str, kind: str) -> None:
    (root / folder).mkdir(exist_ok=True)
    file(root, "evil.json", EVIL)
    command = "mv cfg old ; mkdir -p cfg/coretools-mcp/deep && cp evil.json cfg/coretools-mcp/deep/settings.json"
    settings, hidden_names = ["cfg/coretools-mcp/deep/settings.json"], ["cfg/coretools-mcp"]
    result = await run_in_sandbox(
        root, command, settings if kind == "settings" else [], hidden_names if kind == "hidden" else []
    )
    assert not (root / "cfg/coretools-mcp/deep/settings.json").exists()
    assert len(result.changes.moved) == 1
    assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.ways")
@pytest.mark.parametrize(
    "command",
    [
        "mv sub s2 && cp -r s2 sub && echo '[core] fsmonitor = ./x' >> sub/.git/config",
        "mv sub s2 && cp -r s2 sub && echo x > sub/.vscode/tasks.json",
        "mv sub/deep x && cp -r x sub/deep && echo x > sub/deep/.envrc",
        "mv .git/modules/group .git/modules/old && cp -r .git/modules/old .git/modules/group",
        "mv .git/modules .git/old && cp -r .git/old .git/modules",
        "mv .git/worktrees .git/old && cp -r .git/old .git/worktrees",
        "mv .git/worktrees/w .git/old && cp -r .git/old .git/worktrees/w",
        "rm -rf sub",
    ],
)
async def test_an_auto_run_file_in_a_nested_folder_stays_where_it_is(root: Path, command: str) -> None:
    for name in (
        *("sub/.git/config", "sub/.git/hooks/x", "sub/.vscode/tasks.json", "sub/deep/.envrc", ".git/HEAD"),
        *(".git/config", ".git/modules/group/m/config", ".git/worktrees/w/commondir", ".git/hooks/x"),
    ):
        file(root, name)
    content_before = content(root)
    result = await run_in_sandbox(root, command)
    assert result.code != 0
    assert content(root).items() >= content_before.items()
    assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.ways")
@pytest.mark.parametrize("hidden_name", ["secret", "a/secret", "a/b/c/secret"])
async def test_hidden_files_in_an_auto_run_folder_stay_hidden_and_the_folder_stays_as_it_is(
    root: Path, hidden_name: str
) -> None:
    file(root, f"sub/.claude/{hidden_name}", "SECRET")
    command = (
        f"cat sub/.claude/{hidden_name}; echo x > sub/.claude/x; mv sub/.claude/a sub/.claude/b; mv sub other; true"
    )
    result = await run_in_sandbox(root, command, ["sub/.claude/own.json"], [f"sub/.claude/{hidden_name}"])
    assert result.code == 0
    assert "SECRET" not in result.output
    assert set(content(root)) == {
        "sub",
        "sub/.claude",
        *(f"sub/.claude/{path}" for path in path_and_parents(hidden_name)),
    }


def path_and_parents(path: str) -> list[str]:
    """Return a path and its parent folders."""
    return [path, *(str(folder) for folder in Path(path).parents if folder.name)]


@pytest.mark.requirement("sandbox.ways")
async def test_commands_can_work_next_to_nested_auto_run_files(root: Path) -> None:
    file(root, "sub/.vscode/tasks.json")
    git = "git -c user.name=t -c user.email=t@example.org"
    command = (
        f"set -e; {git} init -q; mkdir -p sub/src; echo x > sub/src/a; mv sub/src sub/lib; echo y > y; mv y sub/lib/y; "
        f"{git} add .; {git} commit -qm one; {git} checkout -qb side; rm -r sub/lib; {git} commit -qam two; "
        f"{git} checkout -q master 2>&- || {git} checkout -q main; cat sub/lib/a sub/lib/y"
    )
    result = await run_in_sandbox(root, command)
    assert (result.code, result.output.splitlines()[-2:]) == (0, ["x", "y"])
    assert result.changes.changed == ()


@pytest.mark.requirement("sandbox.ways")
async def test_an_ordinary_project_needs_no_further_mounts(root: Path) -> None:
    for name in (".git/HEAD", ".git/config", ".git/hooks/x", ".vscode/tasks.json", ".envrc", "src/deep/a.py"):
        file(root, name)
    prepared_view = prepare_view(Site(home=str(root.parent)), [str(root)])
    assert prepared_view.view.pinned == (str(root / ".git"),)


@pytest.mark.requirement("sandbox.ways")
def test_git_may_write_nothing_more_while_an_auto_run_file_may_come_from_a_running_job(root: Path) -> None:
    file(root, ".git/config")
    file(root, ".git/hooks/pre-commit")
    site, lookout = Site(home=str(root.parent)), AutoRunScanner()
    git = replace(WORKING, is_git=True, is_asked=True)
    hooks = str(root / ".git/hooks")
    job = prepare_view(site, [str(root)], scanner=lookout)
    assert hooks not in prepare_view(site, [str(root)], git, lookout).view.read_only
    file(root, "other/.git/hooks/post-checkout")
    assert hooks in prepare_view(site, [str(root)], git, lookout).view.read_only
    job.settle()
    assert hooks not in prepare_view(site, [str(root)], git, lookout).view.read_only


@pytest.mark.requirement("policy.named_by_settings")
@pytest.mark.parametrize("folder", [".hooks", "tools/git/hooks", "link", "."])
async def test_hooks_in_a_folder_that_the_settings_name_stay_as_they_are_and_no_new_ones_remain(
    root: Path, folder: str
) -> None:
    (root / "behind").mkdir()
    (root / "link").symlink_to("behind")
    file(root, ".git/config", f"[core]\nhooksPath = {folder}")
    hook = file(root, f"{folder}/pre-commit", "old")
    result = await run_in_sandbox(root, f"touch x; echo new > {folder}/pre-commit; echo new > {folder}/pre-push")
    assert hook.read_text() == "old"
    assert not (root / folder / "pre-push").exists()
    assert (root / "x").exists()
    assert [path for path, _ in result.changes.moved] == ([str(root / "pre-push")] if folder == "." else [])


@pytest.mark.requirement("policy.named_by_settings")
@pytest.mark.parametrize(("setting", "name"), [("[core]\nhooksPath", ".hooks/pre-push"), ("[include]\npath", ".more")])
async def test_new_paths_that_the_settings_name_are_moved_out(root: Path, setting: str, name: str) -> None:
    file(root, ".git/config", f"{setting} = {'.hooks' if 'hooks' in name else '../.more'}")
    result = await run_in_sandbox(root, f"mkdir .hooks; echo '[alias] x = !y' > {name}")
    assert not (root / name).exists()
    assert [path for path, _ in result.changes.moved] == [str(root / name.partition("/")[0])]


@pytest.mark.requirement("policy.named_by_settings")
def test_git_may_write_nothing_more_while_a_hook_that_the_settings_name_may_come_from_a_running_job(root: Path) -> None:
    file(root, ".git/config", "[core]\nhooksPath = .hooks")
    site, scanner = Site(home=str(root.parent)), AutoRunScanner()
    git = replace(WORKING, is_git=True, is_asked=True)
    job = prepare_view(site, [str(root)], scanner=scanner)
    file(root, ".hooks/pre-commit")
    assert str(root / ".hooks") in prepare_view(site, [str(root)], git, scanner).view.read_only
    job.settle()


@pytest.mark.requirement("sandbox.ways")
def test_new_files_that_programs_obey_are_renamed_in_place_only_for_anonymous_clients(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for private_folder in (None, lambda: str(tmp_path / "own")):
        prepared_view = prepare_view(Site(home=str(root.parent)), [str(root)], private_folder=private_folder)
        path = file(root, ".mcp.json")
        ((old_path, new_path),) = prepared_view.settle().moved
        assert old_path == str(path)
        assert Path(new_path).is_relative_to(tmp_path / "temporary") is (private_folder is not None)


@pytest.mark.requirement("sandbox.ways")
def test_a_repository_without_a_hooks_folder_gets_one_that_commands_cannot_write(root: Path) -> None:
    file(root, ".git/HEAD")
    prepared_view = prepare_view(Site(home=str(root.parent)), [str(root)])
    assert str(root / ".git/hooks") in prepared_view.view.read_only
    assert list((root / ".git/hooks").iterdir()) == []


@pytest.mark.requirement("sandbox.ways")
async def test_a_repository_that_a_question_named_can_be_removed_and_moved(root: Path) -> None:
    for name in ("one", "two"):
        file(root, f"{name}/.git/HEAD")
        file(root, f"{name}/.git/hooks/pre-commit")
    confinement = await sandbox(root)
    view = replace(WORKING, writable=tuple(str(root / name / ".git") for name in ("one", "two")), is_asked=True)
    try:
        environment = command_environment({}, os.environ)
        result = await run(
            confinement, "rm -rf one/.git one && mv two/.git two/old", [str(root)], environment, view=view
        )
    finally:
        confinement.close()
    assert (result.code, result.output) == (0, "")
    assert sorted(path.name for path in root.iterdir()) == ["two"]


@pytest.mark.requirement("sandbox.ways")
async def test_parent_folders_count_towards_the_limit_of_protective_mounts(root: Path) -> None:
    for number in range(MAX_PROTECTIVE_MOUNTS):
        file(root, f"many/{number}/deep/.envrc")
    file(root, "conf/coretools.json")
    site = Site(home=str(root.parent), read_only=(str(root / "conf/coretools.json"),))
    prepared_view = prepare_view(site, [str(root)])
    protected_paths = {*prepared_view.view.pinned, *prepared_view.view.read_only}
    assert str(root / "conf") in protected_paths
    assert MAX_PROTECTIVE_MOUNTS - 3 < len(protected_paths) <= MAX_PROTECTIVE_MOUNTS
    files = [path for path in protected_paths if path.endswith(".envrc")]
    assert prepared_view.uncovered == MAX_PROTECTIVE_MOUNTS - len(files)
    assert {str(Path(path).parents[count]) for path in files for count in range(3)} <= protected_paths


@pytest.mark.requirement("sandbox.auto_run_most")
async def test_of_too_many_auto_run_files_those_near_the_top_of_every_root_are_protected(root: Path) -> None:
    first, second = root / "first", root / "second"
    for folder in (first, second):
        for number in range(MAX_PROTECTIVE_MOUNTS):
            file(folder, f"deep/{number}/.envrc", "")
        file(folder, ".envrc", "")
    confinement = await sandbox(root)
    command = f"echo x > {first}/.envrc; echo x > {second}/.envrc; true"
    result = await run(confinement, command, [str(first), str(second)], command_environment({}, os.environ))
    confinement.close()
    assert [(folder / ".envrc").read_text() for folder in (first, second)] == ["", ""]
    # There is room for this many more: each needs two mounts, and they share one for their parent folder.
    deep = (MAX_PROTECTIVE_MOUNTS - len(("first/.envrc", "second/.envrc", "first/deep"))) // 2
    assert result.changes == SandboxChanges(uncovered=2 * MAX_PROTECTIVE_MOUNTS - deep)


@pytest.mark.requirement("sandbox.auto_run_most")
async def test_unprotected_files_that_were_replaced_changed_or_removed_are_reported(root: Path) -> None:
    for number in range(MAX_PROTECTIVE_MOUNTS + 10):
        file(root, f"many/{number}/.envrc")
        file(root, f"last/{number}/deep/.vscode/tasks.json")
    (root / "aaa").mkdir()
    (root / "aaa/.claude").symlink_to("../many")
    command = (
        "cd last; rm -r 0; mv 1 x; cp -r x 1; echo x >> 2/deep/.vscode/tasks.json; chmod 600 3/deep/.vscode/tasks.json;"
        "echo x > 4/deep/other; cd ../aaa; rm .claude; ln -s ../last .claude"
    )
    result = await run_in_sandbox(root, command)
    assert result.code == 0, result.output
    assert result.changes.uncovered > MAX_PROTECTIVE_MOUNTS
    names = {str(Path(path).relative_to(root)) for path in result.changes.changed}
    assert names == {"aaa/.claude", *(f"last/{number}/deep/.vscode" for number in range(4))}


@pytest.mark.requirement("sandbox.auto_run_most")
async def test_a_change_through_another_name_is_reported(root: Path) -> None:
    file(root, "sub/.vscode/tasks.json")
    os.link(root / "sub/.vscode/tasks.json", root / "second-name")
    result = await run_in_sandbox(root, "echo x > second-name")
    assert result.changes.changed == (str(root / "sub/.vscode"),)


@pytest.mark.requirement("sandbox.ways")
async def test_hidden_files_in_the_workspace_stay_hidden_and_where_they_are(root: Path) -> None:
    file(root, "sub/state/key", "the secret")
    file(root, "sub/.vscode/credentials", "the secret")
    command = "cat sub/state/key sub/.vscode/credentials; mv sub old && mkdir -p sub/state && echo x > sub/state/key"
    result = await run_in_sandbox(root, command, hidden_names=["sub/state", "sub/.vscode/credentials"])
    assert result.code != 0
    assert "secret" not in result.output
    assert (root / "sub/state/key").read_text() == "the secret"


@pytest.mark.requirement("sandbox.roots")
@pytest.mark.parametrize("target", ["../outside", "/", "other"])
async def test_nothing_runs_if_a_parent_folder_is_swapped_for_a_link_before_the_mount(root: Path, target: str) -> None:
    for folder in (root / "sub", root / "other", root.parent / "outside"):
        file(folder, "deep/.vscode/tasks.json")
    file(root, "sub/state/key")
    confinement = await sandbox(root, hidden_names=["sub/state"])
    spec = ProcessSpec(("/bin/bash", "-c", "touch ran"), str(root), command_environment({}, os.environ))
    sandboxed_command = await confinement.confine(spec, [str(root)], WORKING)
    assert isinstance(sandboxed_command, SandboxedCommand)

    def swap() -> None:
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(target)

    code: int | None = None
    with suppress(ToolError):
        code, _ = await run_confined(sandboxed_command, before_mounts=swap)
    changes = await sandboxed_command.release()
    assert code != 0
    assert not (root / "ran").exists()
    assert str(root / "sub/deep/.vscode") in changes.changed


@pytest.mark.requirement("sandbox.ways")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can mount without a namespace of its own")
async def test_mounts_below_a_parent_folder_do_not_count_as_a_change(root: Path) -> None:
    file(root, "sub/.vscode/tasks.json")
    places = [root / "sub" / name for name in ("z", "z/inner", "a")]
    try:
        for place in places:
            place.mkdir()
            process = await anyio.run_process(["mount", "-t", "tmpfs", "none", str(place)], check=False)
            if process.returncode != 0:
                pytest.skip("not run: nothing can be mounted here")
        result = await run_in_sandbox(root, "echo x > sub/z/inner/x && mv sub old")
        assert "Device or resource busy" in result.output
        assert (root / "sub/z/inner/x").read_text() == "x\n"
    finally:
        # The mounts may have another path by now: they move with a folder that is renamed.
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        for place in [line.split()[4] for line in lines if f"{root}/" in line][::-1]:
            await anyio.run_process(["umount", place])


@pytest.mark.requirement("sandbox.auto_run")
async def test_very_many_new_folders_do_not_unprotect_files_that_were_found_before(root: Path) -> None:
    file(root, "sub/deep/.vscode/tasks.json")
    confinement = await sandbox(root)
    environment = command_environment({}, os.environ)
    try:
        first = await run(confinement, f"mkdir -p crowd/{{1..{FOLDERS}}} {{1..{FOLDERS}}}", [str(root)], environment)
        command = "echo x > sub/deep/.vscode/tasks.json || mv sub old"
        second = await run(confinement, command, [str(root)], environment)
    finally:
        confinement.close()
    assert first.code == 0
    assert second.code != 0
    assert (root / "sub/deep/.vscode/tasks.json").read_text() == "{}"


@pytest.mark.requirement("sandbox.auto_run")
async def test_very_many_files_in_a_repository_do_not_unprotect_what_git_obeys(root: Path) -> None:
    names = (".git/hooks/x", ".git/config", ".git/config.worktree", ".git/modules/m/config")
    for name in names:
        file(root, name)
    for number in range(4 * FOLDERS):
        file(root, f".git/j{number}", "")
        file(root, f".git/modules/m/j{number}", "")
    result = await run_in_sandbox(
        root, "; ".join(f"echo x > {name}" for name in names) + "; echo x > .git/hooks/new; true"
    )
    assert result.output.count("Read-only") == len(names) + 1
    assert [(root / name).read_text() for name in names] == ["{}"] * len(names)
    assert result.changes == SandboxChanges()


@pytest.mark.requirement("sandbox.auto_run_most")
async def test_a_folder_with_too_many_worktrees_is_reported_and_protected_as_a_whole(root: Path) -> None:
    file(root, ".git/HEAD")
    confinement = await sandbox(root)
    environment = command_environment({}, os.environ)
    command = f"mkdir -p .git/worktrees/w{{1..{MODULE_FOLDERS}}}; echo x > .git/worktrees/w9/config.worktree"
    try:
        first = await run(confinement, command, [str(root)], environment)
        second = await run(confinement, "echo x > .git/worktrees/w8/config.worktree", [str(root)], environment)
    finally:
        confinement.close()
    assert (first.code, first.changes) == (0, SandboxChanges(changed=(str(root / ".git/worktrees"),)))
    assert (second.code, second.changes) == (1, SandboxChanges())
