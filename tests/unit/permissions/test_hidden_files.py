"""The scan for hidden files before a command: what it finds, the limits that follow, and when it reports a problem."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.other_user import NOBODY
from tests.tables import each_of
from tools.contract.command_views import FileRestrictions, ViewKind
from tools.files import path_opener
from tools.files.workspace import Workspace
from tools.permissions import git_history_names, hidden_files
from tools.permissions.git_history_names import object_folders, stored_in
from tools.permissions.hidden_files import HiddenFile, HiddenFiles, HiddenFileScanner, LiftedLimits, restrictions
from tools.permissions.permission_rules import Rule, Rules, parse_rule
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="not run: there is no sandbox on Windows")
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "init.defaultBranch=main"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def root(home: Path) -> Path:
    folder = home / "work"
    folder.mkdir()
    return folder


def write_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}")


def rules_of(home: Path, *, deny: tuple[str, ...] = (), ask: tuple[str, ...] = ()) -> Rules:
    def read(texts: tuple[str, ...], verdict: Verdict) -> tuple[Rule, ...]:
        return tuple(parse_rule(t, verdict, f"permissions.{verdict}", lambda name: name, str(home)) for t in texts)

    return Rules(deny=read(deny, Verdict.DENY), ask=read(ask, Verdict.ASK))


def paths(files: tuple[HiddenFile, ...], root: Path) -> list[str]:
    return sorted(os.path.relpath(file.path, root) for file in files)


def scan(root: Path, rules: Rules) -> HiddenFiles:
    return HiddenFileScanner().scan(Workspace([str(root)]), rules)


def limits_for(
    root: Path,
    rules: Rules,
    kind: ViewKind = ViewKind.WORKING,
    *,
    question_paths: tuple[Path, ...] = (),
    is_asked: bool = False,
) -> FileRestrictions:
    workspace = Workspace([str(root)])
    scan_result = HiddenFileScanner().scan(workspace, rules)
    names = set(map(str, question_paths))
    lifted_limits = LiftedLimits(names, names, names)
    return restrictions(scan_result, rules, workspace.roots, kind, (), lifted=lifted_limits, is_asked=is_asked)


def relative_paths(root: Path, absolute_paths: tuple[str, ...]) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in absolute_paths)


@pytest.mark.requirement("hidden.found")
def test_each_hidden_file_comes_with_the_reason(root: Path, home: Path) -> None:
    write_files(root, ".env", "conf/.env", "conf/key", "sub/x.log", "lock")
    (root / "sub/.qwenignore").write_text("*.log\n")
    rules = rules_of(home, deny=("Read(.env)", "Edit(/lock)"), ask=("Read(conf/key)", "Edit(**/key)"))
    result = scan(root, rules)
    assert result.problem == ""
    assert paths(result.denied, root) == [".env", "conf/.env"]
    assert {(file.reason, file.setting) for file in result.denied} == {
        ("permissions.deny rule Read(.env)", "permissions.deny")
    }
    assert result.asked == (
        HiddenFile(str(root / "conf/key"), False, "permissions.ask rule Read(conf/key)", "permissions.ask"),
    )
    assert result.ignored == (HiddenFile(str(root / "sub/x.log"), False, "sub/.qwenignore"),)
    assert paths(result.protected, root) == ["lock"]
    assert [file.reason for file in result.protected_unless_asked] == ["permissions.ask rule Edit(**/key)"]


@pytest.mark.requirement("hidden.found")
@pytest.mark.parametrize("rule", ["secret", "secret/", "secret/**", "/secret/*", "**/secret/**"])
def test_a_folder_that_is_hidden_as_a_whole_is_one_result(root: Path, home: Path, rule: str) -> None:
    write_files(root, *(f"secret/{number}/{number}" for number in range(hidden_files.MAX_HIDDEN + 1)), "other/1/1")
    result = scan(root, rules_of(home, deny=(f"Read({rule})",)))
    assert (result.problem, paths(result.denied, root)) == ("", ["secret"])
    assert result.denied[0].is_folder
    write_files(root, "secret/1/a.key", "b.key")
    edits = scan(root, rules_of(home, deny=(f"Edit({rule})",), ask=("Edit(*.key)",)))
    assert (paths(edits.protected, root), paths(edits.protected_unless_asked, root)) == (["secret"], ["b.key"])


@pytest.mark.requirement("hidden.found")
def test_a_denied_file_is_found_in_a_folder_that_is_ignored_or_asked_about(root: Path, home: Path) -> None:
    write_files(root, "conf/.env", "node_modules/x/.env", "conf/other")
    (root / ".geminiignore").write_text("node_modules/\n")
    result = scan(root, rules_of(home, deny=("Read(.env)",), ask=("Read(conf)",)))
    assert paths(result.denied, root) == ["conf/.env", "node_modules/x/.env"]
    assert paths(result.asked, root) == ["conf"]
    assert paths(result.ignored, root) == ["node_modules"]


@pytest.mark.requirement("hidden.found")
def test_files_are_found_by_rules_about_the_home_and_absolute_paths(root: Path, home: Path) -> None:
    write_files(
        home, ".ssh/id", ".ssh/deep/key", "apps/a/token", "apps/b/token", "apps/b/c/token", "etc/shadow", ".env"
    )
    rules = rules_of(home, deny=("Read(~/.ssh/**)", "Read(~/apps/*/token)", f"Read(/{home}/etc/shadow)", "Read(.env)"))
    assert paths(scan(root, rules).denied, home) == [".ssh", "apps/a/token", "apps/b/token", "etc/shadow"]


@pytest.mark.requirement("hidden.links")
def test_the_target_of_a_link_that_a_rule_hides_is_hidden_even_outside_the_workspace(root: Path, home: Path) -> None:
    write_files(root, "conf/production", "real/key", "real/other")
    write_files(home, "outside")
    (root / ".env").symlink_to("conf/production")
    (root / "conf/.env").symlink_to(home / "outside")
    (root / "deep").mkdir()
    (root / "deep/.env").symlink_to("..")
    (root / "gone").mkdir()
    (root / "gone/.env").symlink_to("nothing")
    (root / "closed").mkdir()
    (root / "closed/.env").symlink_to("/proc/1/root/x")  # which only root can read, if anyone
    (root / "linked").symlink_to("real")
    (root / "around").symlink_to(".")
    result = scan(root, rules_of(home, deny=("Read(.env)", "Read(linked/key)")))
    assert (result.problem, paths(result.denied, root)) == ("", ["../outside", "conf/production", "real/key"])
    (root / ".qwenignore").write_text(".env\n")
    assert paths(scan(root, rules_of(home)).ignored, root) == ["conf/production"]


@pytest.mark.requirement("hidden.links")
@pytest.mark.parametrize(
    ("rule", "hidden_paths"),
    [
        ("**/lnk/key", ["real/key"]), ("**/lnk/**", ["real"]), ("l?k/*", ["real"]),
        ("*/deep/k", ["../outside/deep/k", "real/deep/k"]),
        ("**/lnk/deep/k", ["real/deep/k"]), ("/out/key", ["../outside/key"]), ("/out/**", ["../outside"]),
        ("**/out/*.pem", ["../outside/a.pem"]), ("/o*/deep/k", ["../outside/deep/k"]), ("a/**/k", ["real/deep/k"]),
        ("**/outside/key", []), ("**/around/key", ["key"]), ("~/linked/work/key", ["key"]),
        ("~/linked/**/real/key", ["real/key"]), ("**/far/deep/k", ["real/deep/k"]),
        ("**/deep/*.pem", ["../outside/deep/a.pem"]),
    ],
)  # fmt: skip
def test_a_rule_with_a_path_through_a_link_hides_the_files_behind_it(
    root: Path, home: Path, rule: str, hidden_paths: list[str]
) -> None:
    write_files(root, "real/key", "real/deep/k", "a/b/x", "key")
    write_files(home, "outside/key", "outside/a.pem", "outside/deep/k", "outside/deep/a.pem")
    for name, target in {"lnk": "real", "out": home / "outside", "around": ".", "a/b/up": "../../real"}.items():
        (root / name).symlink_to(target)
    (root / "far").symlink_to("lnk")
    (home / "linked").symlink_to(".")
    scanner = HiddenFileScanner()
    results = [scanner.scan(Workspace([str(root)]), rules_of(home, deny=(f"Read({rule})",))) for _ in range(2)]
    assert [(paths(result.denied, root), result.problem) for result in results] == [(hidden_paths, "")] * 2


@pytest.mark.requirement("hidden.links")
def test_too_many_files_behind_a_link_are_a_problem(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(home, *(f"outside/{number}" for number in range(30)))
    (root / "out").symlink_to(home / "outside")
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    result = scan(root, rules_of(home, deny=("Read(/out/*.pem)",)))
    assert "more than 20 files" in result.problem
    assert result.problem_of_deny
    assert scan(root, rules_of(home, deny=("Read(/other/*.pem)",))).problem == ""


@pytest.mark.requirement("hidden.closed")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
@pytest.mark.parametrize("mode", [0o111, 0o000])
def test_a_folder_that_cannot_be_listed_is_hidden_as_a_whole(mode: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "work").resolve()
        write_files(root, "sub/.env", "sub/a.md", "others/.env")
        for folder in (Path(base), *(path for path in (root, *root.rglob("*")) if "others" not in path.parts)):
            os.chown(folder, NOBODY, NOBODY)
        (root / "sub").chmod(mode)
        (root / "others").chmod(0o700)
        rules = rules_of(root, deny=("Read(.env)", "Edit(*.md)"))
        os.seteuid(NOBODY)
        try:
            result = scan(root, rules)
        finally:
            os.seteuid(0)
        # `others` may be in the lists, too: `os.access` checks the real user of this test, root. For a server that runs
        # as one user, commands cannot enter a folder that somebody else has closed, so it need not be hidden.
        assert [paths(files, root)[-1:] for files in (result.denied, result.protected)] == [["sub"], ["sub"]]
        assert result.asked == result.ignored == result.protected_unless_asked == ()


@pytest.mark.requirement("hidden.closed")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
def test_a_folder_behind_a_link_that_cannot_be_listed_is_hidden_as_a_whole() -> None:
    with tempfile.TemporaryDirectory() as base:
        top = Path(base).resolve()
        write_files(top, "outside/key", "work/a")
        (top / "work/out").symlink_to("../outside")
        for folder in (top, *top.rglob("*")):
            os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
        (top / "outside").chmod(0o111)
        rules = rules_of(top, deny=("Read(/out/*y)",))
        os.seteuid(NOBODY)
        try:
            result = scan(top / "work", rules)
        finally:
            os.seteuid(0)
        assert paths(result.denied, top) == ["outside"]


@pytest.mark.requirement("hidden.git_folder")
def test_a_folder_that_looks_like_a_bare_repository_is_scanned_like_any_other(root: Path, home: Path) -> None:
    write_files(root, "HEAD", "objects/conf/.env", "refs/x", "logs/a/.env", "conf/a.key")
    (root / ".qwenignore").write_text("*.key\n")
    result = scan(root, rules_of(home, deny=("Read(.env)",)))
    assert paths(result.denied, root) == ["logs/a/.env", "objects/conf/.env"]
    assert paths(result.ignored, root) == ["conf/a.key"]


@pytest.mark.requirement("hidden.git_folder")
def test_rules_apply_in_a_git_folder_but_branch_names_do_not_count_as_files(root: Path, home: Path) -> None:
    write_files(root, ".git/HEAD", ".git/config", ".git/refs/heads/config", ".git/objects/ab/config", ".git/logs/HEAD")
    (root / ".qwenignore").write_text("logs/\nconfig\n")
    assert scan(root, Rules()) == HiddenFiles()
    assert paths(scan(root, rules_of(home, deny=("Read(config)",))).denied, root) == [".git/config"]
    assert paths(scan(root, rules_of(home, deny=("Read(.git/logs/HEAD)",))).denied, root) == [".git/logs/HEAD"]
    assert paths(scan(root, rules_of(home, deny=("Read(.git/**)",))).denied, root) == [".git"]


@pytest.mark.requirement("hidden.problems")
def test_a_second_hard_link_of_a_hidden_file_is_a_problem(root: Path, home: Path) -> None:
    write_files(root, "x/.env", "lock")
    os.link(root / "x/.env", root / "copy")
    os.link(root / "lock", root / "other")
    result = scan(root, rules_of(home, deny=("Read(.env)",)))
    assert (result.problem, result.problem_of_deny) == ("'x/.env' has a second hard link", True)
    result = scan(root, rules_of(home, ask=("Read(.env)",)))
    assert (result.problem, result.problem_of_deny) == ("'x/.env' has a second hard link", False)
    result = scan(root, rules_of(home, deny=("Edit(lock)",)))
    assert (result.problem, result.problem_of_deny) == ("'lock' has a second hard link", True)
    write_files(home, "out/key")
    os.link(home / "out/key", home / "out/other")
    result = scan(root, rules_of(home, deny=("Read(~/out/key)",)))
    assert result.problem == f"'{home}/out/key' has a second hard link"


@pytest.mark.requirement("hidden.problems")
def test_more_files_than_can_be_masked_are_a_problem(root: Path, home: Path) -> None:
    write_files(root, *(f"{number}/.env" for number in range(hidden_files.MAX_HIDDEN)))
    assert scan(root, rules_of(home, deny=("Read(.env)",))).problem == ""
    write_files(root, "more/.env", "more/x.key")
    result = scan(root, rules_of(home, deny=("Read(.env)",)))
    assert result.problem == "more than 100 files are hidden, some of them by permissions.deny rule Read(.env)"
    assert result.problem_of_deny
    (root / "more/.env").unlink()
    result = scan(root, rules_of(home, deny=("Read(.env)",), ask=("Read(*.key)",)))
    assert result.problem == "more than 100 files are hidden, some of them by permissions.ask rule Read(*.key)"
    assert not result.problem_of_deny


@pytest.mark.requirement("hidden.problems")
def test_an_incomplete_scan_says_so(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(root, *(f"d/{number}" for number in range(20)))
    monkeypatch.setattr(hidden_files, "ENTRIES", 25)
    result_anywhere = scan(root, rules_of(home, deny=("Read(//**/1)",)))
    assert (paths(result_anywhere.denied, root), result_anywhere.problem) == (["d/1"], "")
    assert scan(root, rules_of(home, deny=("Read(//*/1)",))).problem == "", (
        "the root folder of the disk is not searched"
    )
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    for deny, ask in ((("Read(.env)",), ()), ((), ("Read(.env)",))):
        result = scan(root, rules_of(home, deny=deny, ask=ask))
        assert result.problem.startswith("there are more than 20 files to check; the scan stopped in ")
        assert result.problem_of_deny is bool(deny)
    write_files(home, *(f"far/{number}" for number in range(20)))
    result = scan(root, rules_of(home, deny=("Read(~/work/x)",), ask=("Read(~/far/**/x)",)))
    assert result.problem_of_deny is True  # the workspace alone is already too large
    monkeypatch.setattr(hidden_files, "ENTRIES", 30)
    result = scan(root, rules_of(home, deny=("Read(.env)",), ask=("Read(~/far/**/x)",)))
    assert result.problem == f"there are more than 30 files to check; the scan stopped in {home}/far"
    assert result.problem_of_deny is False
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    # Without rules, an incomplete scan is no problem as long as it finds no agent ignore file.
    assert scan(root, Rules()).problem == ""
    (root / ".qwenignore").write_text("x\n")
    assert scan(root, Rules()).problem.startswith("there are more than 20 files")


@pytest.mark.requirement("hidden.problems")
def test_a_workspace_folder_that_is_hidden_or_gone_is_a_problem(root: Path, home: Path) -> None:
    result = scan(root, rules_of(home, ask=("Read(work)",)))
    assert result.problem == "the workspace folder itself is hidden by permissions.ask rule Read(work)"
    workspace, rules = Workspace([str(root)]), rules_of(home, deny=("Read(.env)",))
    root.rmdir()
    result = HiddenFileScanner().scan(workspace, rules)
    assert result.problem == f"the workspace folder {root} no longer exists"
    assert result.problem_of_deny


@pytest.mark.requirement("hidden.held")
@each_of(
    ("line", "own_line", "is_alone"),
    [
        ("inner/", "", False),
        ("inner/", "", True),
        ("inner", "!a.txt", False),
        ("deep/", "", False),
        ("deep/", "!*", True),
        ("*", "", True),
        ("*", "", False),
    ],
)
def test_everything_in_a_workspace_folder_that_an_outer_folder_ignores_is_hidden_without_a_problem(
    home: Path, line: str, own_line: str, is_alone: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=home) as name:
        outer = Path(name)
        inner = outer / "deep" / "inner"
        write_files(inner, "a.txt", "src/b.txt")
        write_files(outer, "deep/other.txt")
        git(inner, "init")
        git(inner, "add", "-A")
        git(inner, "commit", "-m", "a")
        (inner / ".qwenignore").write_text(f"{own_line}\n")
        (outer / ".qwenignore").write_text(f"{line}\n")
        workspace = Workspace([str(inner)] if is_alone else [str(outer), str(inner)], outer_roots=[str(outer)])
        scanner = HiddenFileScanner()
        for _ in range(2):  # also with what the first scan has cached
            result = scanner.scan(workspace, Rules())
            assert result.problem == ""
            ignored = {*paths(result.ignored, inner)}
            assert ignored >= {".git", ".qwenignore", "a.txt", "src"}
            assert ("../other.txt" in ignored) is (line in ("deep/", "*") and not is_alone)
            assert scanner.stores_hidden(workspace, result, Rules()) == (str(inner / ".git"),)


@pytest.mark.requirement("hidden.problems")
def test_an_unreadable_agent_ignore_file_is_a_problem_that_is_not_about_deny_rules(root: Path, home: Path) -> None:
    write_files(root, ".env")
    (root / ".qwenignore").symlink_to("nowhere")
    result = scan(root, rules_of(home, deny=("Read(.env)",)))
    assert result.problem == f".qwenignore in {root} is a broken symlink"
    assert not result.problem_of_deny
    assert paths(result.denied, root) == [".env"]


@pytest.mark.requirement("hidden.cached")
def test_a_later_scan_finds_changes(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every folder is cached at once, like a folder that has not changed for a while.
    monkeypatch.setattr(path_opener, "SETTLED_NANOSECONDS", -(10**12))
    workspace, rules, scanner = Workspace([str(root)]), rules_of(home, deny=("Read(.env)",)), HiddenFileScanner()
    write_files(root, "a/b/.env", "a/b/x.log")
    assert paths(scanner.scan(workspace, rules).denied, root) == ["a/b/.env"]
    write_files(root, "c/.env")
    (root / "a/b/.env").rename(root / "a/b/env")
    assert paths(scanner.scan(workspace, rules).denied, root) == ["c/.env"]
    (root / "a/.qwenignore").write_text("*.log\n")
    assert paths(scanner.scan(workspace, rules).ignored, root) == ["a/b/x.log"]
    (root / "a/.qwenignore").write_text("*.txt\n")
    assert scanner.scan(workspace, rules).ignored == ()
    os.link(root / "c/.env", root / "a/copy")
    assert scanner.scan(workspace, rules).problem
    (root / "c").rename(root / "d")
    assert paths(scanner.scan(workspace, rules).denied, root) == ["d/.env"]
    assert paths(scanner.scan(workspace, rules_of(home, deny=("Read(env)",))).denied, root) == ["a/b/env"]


@pytest.mark.requirement("hidden.held")
def test_consent_opens_what_the_question_names_but_nothing_denied(root: Path, home: Path) -> None:
    write_files(root, ".env", "conf/key", "conf/other", "conf/sub/.env", "lock", "x.log", "logs/1")
    (root / ".qwenignore").write_text("*.log\nlogs/\n")
    rules = rules_of(home, deny=("Read(.env)",), ask=("Read(conf)", "Edit(lock)"))
    reading_limits = limits_for(root, rules, ViewKind.READING)
    assert relative_paths(root, reading_limits.masked) == [".env", "conf", "logs", "x.log"]
    assert relative_paths(root, reading_limits.read_only) == ["lock"]
    assert relative_paths(root, limits_for(root, rules).masked) == [".env", "conf", "x.log"]
    assert relative_paths(root, limits_for(root, rules, is_asked=True).masked) == [".env", "conf"]
    assert relative_paths(root, limits_for(root, rules, ViewKind.READING, question_paths=(root,)).masked) == [
        ".env",
        "conf/sub/.env",
    ]
    key_limits = limits_for(root, rules, is_asked=True, question_paths=(root / "conf/key",))
    assert relative_paths(root, key_limits.masked) == [".env", "conf/other", "conf/sub"]
    assert limits_for(root, rules, is_asked=True, question_paths=(root / "lock",)).read_only == ()
    write_files(root, *(f"wide/{number}" for number in range(hidden_files.MAX_HIDDEN)))
    wide_rules = rules_of(home, ask=("Read(wide)",))
    other_paths = [f"wide/{number}" for number in range(1, hidden_files.MAX_HIDDEN)]
    assert relative_paths(
        root, limits_for(root, wide_rules, is_asked=True, question_paths=(root / "wide/0",)).masked
    ) == sorted(other_paths)


@pytest.mark.requirement("hidden.held")
def test_parent_folders_of_hidden_files_are_pinned(root: Path, home: Path) -> None:
    write_files(root, "a/b/key", "a/b/c/.env", "d/e/lock")
    limits = limits_for(root, rules_of(home, deny=("Read(a/b/key)", "Read(.env)", "Edit(d/e/lock)", "Edit(**/.env)")))
    assert relative_paths(root, limits.pinned) == ["a", "a/b", "a/b/c", "d", "d/e"]


@pytest.mark.requirement("hidden.held")
def test_equally_long_paths_have_one_order_wherever_they_are_found(root: Path) -> None:
    files = [HiddenFile(str(root / name), False, "a rule", "permissions.deny") for name in ("c", "a", "b")]
    found = HiddenFiles(denied=tuple(files))
    kept = restrictions(found, Rules(), [str(root)], ViewKind.WORKING, (), lifted=LiftedLimits(), is_asked=False)
    assert kept.masked == tuple(str(root / name) for name in "abc")


@pytest.mark.requirement("hidden.held")
def test_a_rule_about_every_edit_makes_the_whole_workspace_read_only(root: Path, home: Path) -> None:
    deny, ask = rules_of(home, deny=("Edit",)), rules_of(home, ask=("Edit",))
    assert limits_for(root, deny, is_asked=True).read_only == (str(root),)
    assert limits_for(root, ask).read_only == (str(root),)
    assert limits_for(root, ask, is_asked=True).read_only == ()


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


def stores_with_hidden_files(root: Path, rules: Rules, scanner: HiddenFileScanner | None = None) -> list[str]:
    scanner, workspace = scanner or HiddenFileScanner(), Workspace([str(root)])
    scan_result = scanner.scan(workspace, rules)
    return [os.path.relpath(path, root) for path in scanner.stores_hidden(workspace, scan_result, rules)]


@pytest.mark.requirement("hidden.stored")
def test_hidden_files_are_found_in_commits_reflogs_and_indexes(root: Path, home: Path) -> None:
    rules, scanner = rules_of(home, deny=("Read(.env)",)), HiddenFileScanner()
    git(root, "init")
    write_files(root, ".env", "other")
    git(root, "add", "other")
    assert stores_with_hidden_files(root, rules, scanner) == []
    git(root, "add", ".env")
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]  # staged
    git(root, "commit", "-m", "both")
    git(root, "rm", ".env")
    git(root, "commit", "-m", "gone")
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]
    git(root, "checkout", "--orphan", "new")
    git(root, "commit", "-m", "new")
    git(root, "branch", "-D", "main")
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]  # in the reflog of HEAD
    git(root, "reflog", "expire", "--expire=now", "--all")
    assert stores_with_hidden_files(root, rules, scanner) == []
    git(root, "worktree", "add", str(home / "linked"), "-b", "linked")
    write_files(home, "linked/.env")
    git(home / "linked", "add", ".env")
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]  # in the index of another worktree
    assert stores_with_hidden_files(home / "linked", rules) == ["../work/.git"]
    assert stores_with_hidden_files(root, Rules()) == []


@pytest.mark.requirement("hidden.stored")
def test_files_that_an_agent_ignore_file_hides_are_found_in_commits_when_none_is_on_disk(root: Path) -> None:
    git(root, "init")
    write_files(root, "secret.env", "other")
    git(root, "add", ".")
    git(root, "commit", "-m", "both")
    git(root, "rm", "secret.env")
    git(root, "commit", "-m", "gone")
    assert stores_with_hidden_files(root, Rules()) == []
    (root / ".qwenignore").write_text("*.env\n")
    assert stores_with_hidden_files(root, Rules()) == [".git"]
    (root / ".qwenignore").write_text("*.key\n")
    assert stores_with_hidden_files(root, Rules()) == []


@pytest.mark.requirement("hidden.stored")
def test_a_history_that_cannot_be_listed_counts_as_hidden_only_if_something_is_hidden(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_history_names, "MAX_BYTES", 1)
    git(root, "init")
    write_files(root, "other", ".qwenignore")
    git(root, "add", ".")
    git(root, "commit", "-m", "both")
    (root / ".qwenignore").write_text("*.env\n")
    assert stores_with_hidden_files(root, Rules()) == []
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(.env)",))) == [".git"]
    write_files(root, "secret.env")
    assert stores_with_hidden_files(root, Rules()) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_hidden_files_are_found_under_refs_that_only_git_names(root: Path, home: Path) -> None:
    rules, scanner, other_repository = rules_of(home, deny=("Read(.env)",)), HiddenFileScanner(), home / "theirs"
    write_files(other_repository, ".env")
    git(other_repository, "init")
    git(other_repository, "add", ".env")
    git(other_repository, "commit", "-m", "theirs")
    git(root, "init")
    write_files(root, "other")
    git(root, "add", "other")
    git(root, "commit", "-m", "ours")
    assert stores_with_hidden_files(root, rules, scanner) == []
    git(root, "fetch", str(other_repository))
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]
    (root / ".git/FETCH_HEAD").unlink()
    assert stores_with_hidden_files(root, rules, scanner) == []
    git(root, "worktree", "add", "--detach", str(home / "linked"))
    git(home / "linked", "fetch", str(other_repository), "HEAD:refs/worktree/kept")
    (root / ".git/worktrees/linked/FETCH_HEAD").unlink()
    assert stores_with_hidden_files(root, rules, scanner) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_git_is_searched_for_ignored_files_and_for_the_targets_of_links(root: Path, home: Path) -> None:
    git(root, "init", "sub")
    write_files(root, "sub/keys/a", "sub/production")
    git(root / "sub", "add", "keys/a")
    assert stores_with_hidden_files(root, Rules()) == []
    (root / "sub/.qwenignore").write_text("keys/\n")
    assert stores_with_hidden_files(root, Rules()) == ["sub/.git"]
    (root / "sub/keys/a").unlink()
    (root / "sub/keys").rmdir()
    (root / "sub/x.log").touch()
    (root / "sub/.qwenignore").write_text("keys/\n*.log\n")
    assert stores_with_hidden_files(root, Rules()) == ["sub/.git"], (
        "files that have been deleted from the work tree count too"
    )
    git(root / "sub", "rm", "--cached", "keys/a")
    assert stores_with_hidden_files(root, Rules()) == []
    git(root / "sub", "add", "production")
    (root / "sub/.env").symlink_to("production")
    assert stores_with_hidden_files(root, rules_of(home, ask=("Read(.env)",))) == ["sub/.git"]
    (home / "linked").symlink_to(".")
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(~/linked/work/sub/gone)",))) == []
    write_files(root, "sub/gone")
    git(root / "sub", "add", "gone")
    (root / "sub/gone").unlink()
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(~/linked/work/sub/gone)",))) == ["sub/.git"]


@pytest.mark.requirement("hidden.stored")
def test_a_repository_around_the_workspace_is_searched_by_the_rules_of_the_workspace(root: Path, home: Path) -> None:
    git(home, "init")
    write_files(home, "work/conf/key", "conf/key")
    git(home, "add", "conf/key")
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(conf/key)",))) == []
    git(home, "add", "work/conf/key")
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(conf/key)",))) == ["../.git"]
    assert stores_with_hidden_files(root, Rules()) == []
    (root / "conf/.qwenignore").write_text("key\n")
    assert stores_with_hidden_files(root, Rules()) == ["../.git"]


@pytest.mark.requirement("hidden.stored")
def test_files_that_left_the_work_tree_are_found_in_stashes_and_bare_repositories(root: Path, home: Path) -> None:
    rules = rules_of(home, deny=("Read(.env)",))
    git(root, "init")
    write_files(root, "a", ".env")
    git(root, "add", "a")
    git(root, "commit", "-m", "a")
    assert stores_with_hidden_files(root, rules) == []
    git(root, "stash", "-u")
    assert not (root / ".env").exists()
    assert stores_with_hidden_files(root, rules) == [".git"]
    git(root, "clone", "--mirror", ".git", "kept.git")
    git(root, "stash", "drop")
    git(root, "reflog", "expire", "--expire=now", "--all")
    assert stores_with_hidden_files(root, rules) == ["kept.git"]


@pytest.mark.requirement("hidden.stored")
def test_files_stored_by_a_submodule_are_found_even_if_it_is_not_checked_out(root: Path, home: Path) -> None:
    git(home, "init", "inner")
    write_files(home, "inner/.env")
    git(home / "inner", "add", ".env")
    git(home / "inner", "commit", "-m", "a")
    git(root, "init")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", str(home / "inner"), "sub/deep")
    git(root, "commit", "-m", "b")
    git(root, "submodule", "deinit", "-f", "sub/deep")
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(.env)",))) == [".git/modules/sub/deep"]


@pytest.mark.requirement("hidden.stored")
def test_stored_contents_include_objects_alternates_and_an_unfinished_rebase(root: Path) -> None:
    git(root, "init", "main")
    git(root, "clone", "--shared", "main", "copy")
    write_files(root, "copy/.git/rebase-apply/0001", "copy/.git/lfs/objects/a")
    stored_paths = {os.path.relpath(path, root) for path in stored_in(str(root / "copy/.git"))}
    assert stored_paths >= {f"copy/.git/{name}" for name in ("objects", "lfs", "rebase-apply")} | {"main/.git/objects"}
    alternates = "\n".join(map(str, (root / "main/.git/objects", root / "copy/.git/objects", root, "nowhere")))
    (root / "main/.git/objects/info/alternates").write_text(alternates)
    assert len(list(object_folders([str(root / "copy/.git")]))) == 3, (
        "each folder is listed once, even if alternates form a cycle"
    )


@pytest.mark.requirement("hidden.stored")
def test_an_unreadable_repository_counts_as_containing_hidden_files(root: Path, home: Path) -> None:
    git(root, "init")
    (root / ".git/HEAD").write_text("nonsense")
    assert stores_with_hidden_files(root, rules_of(home, deny=("Read(.env)",))) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_a_repository_below_an_unreadable_agent_ignore_file_counts_too(root: Path, home: Path) -> None:
    git(root, "init")
    write_files(root, "a")
    git(root, "add", "a")
    rules = rules_of(home, deny=("Read(.env)",))
    assert stores_with_hidden_files(root, rules) == []
    (root / ".qwenignore").symlink_to("nowhere")
    assert stores_with_hidden_files(root, rules) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_without_git_a_repository_counts_where_something_is_hidden(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(root, "init")
    monkeypatch.setenv("PATH", str(root))
    rules = rules_of(home, deny=("Read(.env)",))
    assert stores_with_hidden_files(root, rules) == []
    write_files(root, ".env")
    assert stores_with_hidden_files(root, rules) == [".git"]
