"""What the one look before a command finds, what it makes of that, and when it says that it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.other_user import NOBODY
from tools.contract.command_views import FileRestrictions, ViewKind
from tools.files import path_opener
from tools.files.workspace import Workspace
from tools.permissions import hidden_files
from tools.permissions.git_store import object_folders, stored_in
from tools.permissions.hidden_files import HiddenFile, HiddenFiles, HiddenFileScanner, LiftedLimits, restrictions
from tools.permissions.permission_rules import Rule, Rules, parse_rule
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands are held by what Linux has")
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


def plant(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}")


def rules_of(home: Path, *, deny: tuple[str, ...] = (), ask: tuple[str, ...] = ()) -> Rules:
    def read(texts: tuple[str, ...], verdict: Verdict) -> tuple[Rule, ...]:
        return tuple(parse_rule(t, verdict, f"permissions.{verdict}", lambda name: name, str(home)) for t in texts)

    return Rules(deny=read(deny, Verdict.DENY), ask=read(ask, Verdict.ASK))


def paths(files: tuple[HiddenFile, ...], root: Path) -> list[str]:
    return sorted(os.path.relpath(file.path, root) for file in files)


def look(root: Path, rules: Rules) -> HiddenFiles:
    return HiddenFileScanner().scan(Workspace([str(root)]), rules)


def held(
    root: Path,
    rules: Rules,
    kind: ViewKind = ViewKind.WORKING,
    *,
    named: tuple[Path, ...] = (),
    is_asked: bool = False,
) -> FileRestrictions:
    workspace = Workspace([str(root)])
    hidden = HiddenFileScanner().scan(workspace, rules)
    names = set(map(str, named))
    lifted = LiftedLimits(names, names, names)
    return restrictions(hidden, rules, workspace.roots, kind, (), lifted=lifted, is_asked=is_asked)


def below(root: Path, found: tuple[str, ...]) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in found)


@pytest.mark.requirement("hidden.found")
def test_what_hides_a_file_is_told_with_it(root: Path, home: Path) -> None:
    plant(root, ".env", "conf/.env", "conf/key", "sub/x.log", "lock")
    (root / "sub/.qwenignore").write_text("*.log\n")
    rules = rules_of(home, deny=("Read(.env)", "Edit(/lock)"), ask=("Read(conf/key)", "Edit(**/key)"))
    found = look(root, rules)
    assert found.problem == ""
    assert paths(found.denied, root) == [".env", "conf/.env"]
    assert {(file.reason, file.setting) for file in found.denied} == {
        ("permissions.deny rule Read(.env)", "permissions.deny")
    }
    assert found.asked == (
        HiddenFile(str(root / "conf/key"), False, "permissions.ask rule Read(conf/key)", "permissions.ask"),
    )
    assert found.ignored == (HiddenFile(str(root / "sub/x.log"), False, "sub/.qwenignore"),)
    assert paths(found.protected, root) == ["lock"]
    assert [file.reason for file in found.protected_unless_asked] == ["permissions.ask rule Edit(**/key)"]


@pytest.mark.requirement("hidden.found")
@pytest.mark.parametrize("rule", ["secret", "secret/", "secret/**", "/secret/*", "**/secret/**"])
def test_a_folder_that_is_hidden_as_a_whole_is_one_find(root: Path, home: Path, rule: str) -> None:
    plant(root, *(f"secret/{number}/{number}" for number in range(hidden_files.MAX_HIDDEN + 1)), "other/1/1")
    found = look(root, rules_of(home, deny=(f"Read({rule})",)))
    assert (found.problem, paths(found.denied, root)) == ("", ["secret"])
    assert found.denied[0].is_folder
    plant(root, "secret/1/a.key", "b.key")
    edits = look(root, rules_of(home, deny=(f"Edit({rule})",), ask=("Edit(*.key)",)))
    assert (paths(edits.protected, root), paths(edits.protected_unless_asked, root)) == (["secret"], ["b.key"])


@pytest.mark.requirement("hidden.found")
def test_what_is_asked_about_or_ignored_may_hold_what_is_denied(root: Path, home: Path) -> None:
    plant(root, "conf/.env", "node_modules/x/.env", "conf/other")
    (root / ".geminiignore").write_text("node_modules/\n")
    found = look(root, rules_of(home, deny=("Read(.env)",), ask=("Read(conf)",)))
    assert paths(found.denied, root) == ["conf/.env", "node_modules/x/.env"]
    assert paths(found.asked, root) == ["conf"]
    assert paths(found.ignored, root) == ["node_modules"]


@pytest.mark.requirement("hidden.found")
def test_rules_about_the_home_and_absolute_places_are_found_there(root: Path, home: Path) -> None:
    plant(home, ".ssh/id", ".ssh/deep/key", "apps/a/token", "apps/b/token", "apps/b/c/token", "etc/shadow", ".env")
    rules = rules_of(home, deny=("Read(~/.ssh/**)", "Read(~/apps/*/token)", f"Read(/{home}/etc/shadow)", "Read(.env)"))
    assert paths(look(root, rules).denied, home) == [".ssh", "apps/a/token", "apps/b/token", "etc/shadow"]


@pytest.mark.requirement("hidden.links")
def test_the_target_of_a_hidden_link_is_hidden_wherever_it_lies_unless_an_agent_ignore_file_names_it(
    root: Path, home: Path
) -> None:
    plant(root, "conf/production", "real/key", "real/other")
    plant(home, "outside")
    (root / ".env").symlink_to("conf/production")
    (root / "conf/.env").symlink_to(home / "outside")
    (root / "deep").mkdir()
    (root / "deep/.env").symlink_to("..")
    (root / "gone").mkdir()
    (root / "gone/.env").symlink_to("nothing")
    (root / "linked").symlink_to("real")
    (root / "around").symlink_to(".")
    found = look(root, rules_of(home, deny=("Read(.env)", "Read(linked/key)")))
    assert (found.problem, paths(found.denied, root)) == ("", ["../outside", "conf/production", "real/key"])
    (root / ".qwenignore").write_text(".env\n")
    assert paths(look(root, rules_of(home)).ignored, root) == ["conf/production"]


@pytest.mark.requirement("hidden.links")
@pytest.mark.parametrize(
    ("rule", "found"),
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
def test_a_rule_that_leads_through_a_link_to_a_folder_hides_what_is_there(
    root: Path, home: Path, rule: str, found: list[str]
) -> None:
    plant(root, "real/key", "real/deep/k", "a/b/x", "key")
    plant(home, "outside/key", "outside/a.pem", "outside/deep/k", "outside/deep/a.pem")
    for name, target in {"lnk": "real", "out": home / "outside", "around": ".", "a/b/up": "../../real"}.items():
        (root / name).symlink_to(target)
    (root / "far").symlink_to("lnk")
    (home / "linked").symlink_to(".")
    scanner = HiddenFileScanner()
    hidden = [scanner.scan(Workspace([str(root)]), rules_of(home, deny=(f"Read({rule})",))) for _ in range(2)]
    assert [(paths(each.denied, root), each.problem) for each in hidden] == [(found, "")] * 2


@pytest.mark.requirement("hidden.links")
def test_what_lies_behind_a_link_is_too_much_to_look_at(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(home, *(f"outside/{number}" for number in range(30)))
    (root / "out").symlink_to(home / "outside")
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    found = look(root, rules_of(home, deny=("Read(/out/*.pem)",)))
    assert "more than 20 files" in found.problem
    assert found.problem_of_deny
    assert look(root, rules_of(home, deny=("Read(/other/*.pem)",))).problem == ""


@pytest.mark.requirement("hidden.closed")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
@pytest.mark.parametrize("mode", [0o111, 0o000])
def test_a_folder_that_cannot_be_listed_is_hidden_as_a_whole(mode: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "work").resolve()
        plant(root, "sub/.env", "sub/a.md", "others/.env")
        for folder in (Path(base), *(each for each in (root, *root.rglob("*")) if "others" not in each.parts)):
            os.chown(folder, NOBODY, NOBODY)
        (root / "sub").chmod(mode)
        (root / "others").chmod(0o700)
        rules = rules_of(root, deny=("Read(.env)", "Edit(*.md)"))
        os.seteuid(NOBODY)
        try:
            found = look(root, rules)
        finally:
            os.seteuid(0)
        # What somebody else has closed is closed to commands, too; but `access` goes by the real user of this test.
        assert [paths(files, root)[-1:] for files in (found.denied, found.protected)] == [["sub"], ["sub"]]
        assert found.asked == found.ignored == found.protected_unless_asked == ()


@pytest.mark.requirement("hidden.closed")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become a user without rights")
def test_a_folder_behind_a_link_that_cannot_be_listed_is_hidden_as_a_whole() -> None:
    with tempfile.TemporaryDirectory() as base:
        top = Path(base).resolve()
        plant(top, "outside/key", "work/a")
        (top / "work/out").symlink_to("../outside")
        for folder in (top, *top.rglob("*")):
            os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
        (top / "outside").chmod(0o111)
        rules = rules_of(top, deny=("Read(/out/*y)",))
        os.seteuid(NOBODY)
        try:
            found = look(top / "work", rules)
        finally:
            os.seteuid(0)
        assert paths(found.denied, top) == ["outside"]


@pytest.mark.requirement("hidden.git_folder")
def test_a_folder_that_looks_like_a_repository_without_a_work_tree_hides_nothing_from_the_look(
    root: Path, home: Path
) -> None:
    plant(root, "HEAD", "objects/conf/.env", "refs/x", "logs/a/.env", "conf/a.key")
    (root / ".qwenignore").write_text("*.key\n")
    found = look(root, rules_of(home, deny=("Read(.env)",)))
    assert paths(found.denied, root) == ["logs/a/.env", "objects/conf/.env"]
    assert paths(found.ignored, root) == ["conf/a.key"]


@pytest.mark.requirement("hidden.git_folder")
def test_in_a_repositorys_own_folder_rules_hold_but_names_of_branches_are_no_files(root: Path, home: Path) -> None:
    plant(root, ".git/HEAD", ".git/config", ".git/refs/heads/config", ".git/objects/ab/config", ".git/logs/HEAD")
    (root / ".qwenignore").write_text("logs/\nconfig\n")
    assert look(root, Rules()) == HiddenFiles()
    assert paths(look(root, rules_of(home, deny=("Read(config)",))).denied, root) == [".git/config"]
    assert paths(look(root, rules_of(home, deny=("Read(.git/logs/HEAD)",))).denied, root) == [".git/logs/HEAD"]
    assert paths(look(root, rules_of(home, deny=("Read(.git/**)",))).denied, root) == [".git"]


@pytest.mark.requirement("hidden.problems")
def test_a_second_hard_link_is_a_problem_of_who_hides_the_file(root: Path, home: Path) -> None:
    plant(root, "x/.env", "lock")
    os.link(root / "x/.env", root / "copy")
    os.link(root / "lock", root / "other")
    found = look(root, rules_of(home, deny=("Read(.env)",)))
    assert (found.problem, found.problem_of_deny) == ("'x/.env' has a second hard link", True)
    found = look(root, rules_of(home, ask=("Read(.env)",)))
    assert (found.problem, found.problem_of_deny) == ("'x/.env' has a second hard link", False)
    found = look(root, rules_of(home, deny=("Edit(lock)",)))
    assert (found.problem, found.problem_of_deny) == ("'lock' has a second hard link", True)
    plant(home, "out/key")
    os.link(home / "out/key", home / "out/other")
    found = look(root, rules_of(home, deny=("Read(~/out/key)",)))
    assert found.problem == f"'{home}/out/key' has a second hard link"


@pytest.mark.requirement("hidden.problems")
def test_more_than_can_be_masked_is_a_problem(root: Path, home: Path) -> None:
    plant(root, *(f"{number}/.env" for number in range(hidden_files.MAX_HIDDEN)))
    assert look(root, rules_of(home, deny=("Read(.env)",))).problem == ""
    plant(root, "more/.env", "more/x.key")
    found = look(root, rules_of(home, deny=("Read(.env)",)))
    assert found.problem == "more than 100 files are hidden, some of them by permissions.deny rule Read(.env)"
    assert found.problem_of_deny
    (root / "more/.env").unlink()
    found = look(root, rules_of(home, deny=("Read(.env)",), ask=("Read(*.key)",)))
    assert found.problem == "more than 100 files are hidden, some of them by permissions.ask rule Read(*.key)"
    assert not found.problem_of_deny


@pytest.mark.requirement("hidden.problems")
def test_a_look_that_is_not_complete_says_so(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, *(f"d/{number}" for number in range(20)))
    monkeypatch.setattr(hidden_files, "ENTRIES", 25)
    anywhere = look(root, rules_of(home, deny=("Read(//**/1)",)))
    assert (paths(anywhere.denied, root), anywhere.problem) == (["d/1"], "")
    assert look(root, rules_of(home, deny=("Read(//*/1)",))).problem == "", "the top of the disk is not looked through"
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    for deny, ask in ((("Read(.env)",), ()), ((), ("Read(.env)",))):
        found = look(root, rules_of(home, deny=deny, ask=ask))
        assert found.problem.startswith("there are more than 20 files to check in ")
        assert found.problem_of_deny is bool(deny)
    plant(home, *(f"far/{number}" for number in range(20)))
    found = look(root, rules_of(home, deny=("Read(~/work/x)",), ask=("Read(~/far/**/x)",)))
    assert found.problem_of_deny is True  # the workspace is too large already
    monkeypatch.setattr(hidden_files, "ENTRIES", 30)
    found = look(root, rules_of(home, deny=("Read(.env)",), ask=("Read(~/far/**/x)",)))
    assert found.problem == f"there are more than 30 files to check in {home}/far"
    assert found.problem_of_deny is False
    monkeypatch.setattr(hidden_files, "ENTRIES", 20)
    # Nothing that was met says that anything is hidden.
    assert look(root, Rules()).problem == ""
    (root / ".qwenignore").write_text("x\n")
    assert look(root, Rules()).problem.startswith("there are more than 20 files")


@pytest.mark.requirement("hidden.problems")
def test_the_folder_itself_hidden_or_gone_is_a_problem(root: Path, home: Path) -> None:
    found = look(root, rules_of(home, ask=("Read(work)",)))
    assert found.problem == "the workspace folder itself is hidden by permissions.ask rule Read(work)"
    workspace, rules = Workspace([str(root)]), rules_of(home, deny=("Read(.env)",))
    root.rmdir()
    found = HiddenFileScanner().scan(workspace, rules)
    assert found.problem == f"the workspace folder {root} no longer exists"
    assert found.problem_of_deny


@pytest.mark.requirement("hidden.problems")
def test_an_agent_ignore_file_that_is_not_understood_is_a_problem_that_is_asked_about(root: Path, home: Path) -> None:
    plant(root, ".env")
    (root / ".qwenignore").symlink_to("nowhere")
    found = look(root, rules_of(home, deny=("Read(.env)",)))
    assert found.problem == f".qwenignore in {root} is a broken symlink"
    assert not found.problem_of_deny
    assert paths(found.denied, root) == [".env"]


@pytest.mark.requirement("hidden.cached")
def test_a_later_look_sees_what_has_changed(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every folder is remembered at once, as one that has not changed for a while is.
    monkeypatch.setattr(path_opener, "SETTLED_NANOSECONDS", -(10**12))
    workspace, rules, scanner = Workspace([str(root)]), rules_of(home, deny=("Read(.env)",)), HiddenFileScanner()
    plant(root, "a/b/.env", "a/b/x.log")
    assert paths(scanner.scan(workspace, rules).denied, root) == ["a/b/.env"]
    plant(root, "c/.env")
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
def test_an_answer_opens_what_its_question_named_and_nothing_denied(root: Path, home: Path) -> None:
    plant(root, ".env", "conf/key", "conf/other", "conf/sub/.env", "lock", "x.log", "logs/1")
    (root / ".qwenignore").write_text("*.log\nlogs/\n")
    rules = rules_of(home, deny=("Read(.env)",), ask=("Read(conf)", "Edit(lock)"))
    unasked = held(root, rules, ViewKind.READING)
    assert below(root, unasked.masked) == [".env", "conf", "logs", "x.log"]
    assert below(root, unasked.read_only) == ["lock"]
    assert below(root, held(root, rules).masked) == [".env", "conf", "x.log"]
    assert below(root, held(root, rules, is_asked=True).masked) == [".env", "conf"]
    assert below(root, held(root, rules, ViewKind.READING, named=(root,)).masked) == [".env", "conf/sub/.env"]
    one = held(root, rules, is_asked=True, named=(root / "conf/key",))
    assert below(root, one.masked) == [".env", "conf/other", "conf/sub"]
    assert held(root, rules, is_asked=True, named=(root / "lock",)).read_only == ()
    plant(root, *(f"wide/{number}" for number in range(hidden_files.MAX_HIDDEN)))
    wide = rules_of(home, ask=("Read(wide)",))
    others = [f"wide/{number}" for number in range(1, hidden_files.MAX_HIDDEN)]
    assert below(root, held(root, wide, is_asked=True, named=(root / "wide/0",)).masked) == sorted(others)


@pytest.mark.requirement("hidden.held")
def test_folders_on_the_way_are_pinned(root: Path, home: Path) -> None:
    plant(root, "a/b/key", "a/b/c/.env", "d/e/lock")
    found = held(root, rules_of(home, deny=("Read(a/b/key)", "Read(.env)", "Edit(d/e/lock)", "Edit(**/.env)")))
    assert below(root, found.pinned) == ["a", "a/b", "a/b/c", "d", "d/e"]


@pytest.mark.requirement("hidden.held")
def test_a_rule_about_every_edit_keeps_the_whole_workspace(root: Path, home: Path) -> None:
    deny, ask = rules_of(home, deny=("Edit",)), rules_of(home, ask=("Edit",))
    assert held(root, deny, is_asked=True).read_only == (str(root),)
    assert held(root, ask).read_only == (str(root),)
    assert held(root, ask, is_asked=True).read_only == ()


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


def stores(root: Path, rules: Rules, scanner: HiddenFileScanner | None = None) -> list[str]:
    scanner, workspace = scanner or HiddenFileScanner(), Workspace([str(root)])
    hidden = scanner.scan(workspace, rules)
    return [os.path.relpath(path, root) for path in scanner.stores_hidden(workspace, hidden, rules)]


@pytest.mark.requirement("hidden.stored")
def test_what_git_has_stored_is_found_in_commits_reflogs_and_indexes(root: Path, home: Path) -> None:
    rules, scanner = rules_of(home, deny=("Read(.env)",)), HiddenFileScanner()
    git(root, "init")
    plant(root, ".env", "other")
    git(root, "add", "other")
    assert stores(root, rules, scanner) == []
    git(root, "add", ".env")
    assert stores(root, rules, scanner) == [".git"]  # staged
    git(root, "commit", "-m", "both")
    git(root, "rm", ".env")
    git(root, "commit", "-m", "gone")
    assert stores(root, rules, scanner) == [".git"]
    git(root, "checkout", "--orphan", "new")
    git(root, "commit", "-m", "new")
    git(root, "branch", "-D", "main")
    assert stores(root, rules, scanner) == [".git"]  # by the reflog of HEAD
    git(root, "reflog", "expire", "--expire=now", "--all")
    assert stores(root, rules, scanner) == []
    git(root, "worktree", "add", str(home / "linked"), "-b", "linked")
    plant(home, "linked/.env")
    git(home / "linked", "add", ".env")
    assert stores(root, rules, scanner) == [".git"]  # in the index of another worktree
    assert stores(home / "linked", rules) == ["../work/.git"]
    assert stores(root, Rules()) == []


@pytest.mark.requirement("hidden.stored")
def test_what_only_git_itself_has_a_name_for_is_found(root: Path, home: Path) -> None:
    rules, scanner, theirs = rules_of(home, deny=("Read(.env)",)), HiddenFileScanner(), home / "theirs"
    plant(theirs, ".env")
    git(theirs, "init")
    git(theirs, "add", ".env")
    git(theirs, "commit", "-m", "theirs")
    git(root, "init")
    plant(root, "other")
    git(root, "add", "other")
    git(root, "commit", "-m", "ours")
    assert stores(root, rules, scanner) == []
    git(root, "fetch", str(theirs))
    assert stores(root, rules, scanner) == [".git"]
    (root / ".git/FETCH_HEAD").unlink()
    assert stores(root, rules, scanner) == []
    git(root, "worktree", "add", "--detach", str(home / "linked"))
    git(home / "linked", "fetch", str(theirs), "HEAD:refs/worktree/kept")
    (root / ".git/worktrees/linked/FETCH_HEAD").unlink()
    assert stores(root, rules, scanner) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_what_agent_ignore_files_hide_and_what_links_lead_to_is_looked_for_in_git(root: Path, home: Path) -> None:
    git(root, "init", "sub")
    plant(root, "sub/keys/a", "sub/production")
    git(root / "sub", "add", "keys/a")
    assert stores(root, Rules()) == []
    (root / "sub/.qwenignore").write_text("keys/\n")
    assert stores(root, Rules()) == ["sub/.git"]
    (root / "sub/keys/a").unlink()
    (root / "sub/keys").rmdir()
    (root / "sub/x.log").touch()
    (root / "sub/.qwenignore").write_text("keys/\n*.log\n")
    assert stores(root, Rules()) == ["sub/.git"], "also what is in the work tree no more"
    git(root / "sub", "rm", "--cached", "keys/a")
    assert stores(root, Rules()) == []
    git(root / "sub", "add", "production")
    (root / "sub/.env").symlink_to("production")
    assert stores(root, rules_of(home, ask=("Read(.env)",))) == ["sub/.git"]
    (home / "linked").symlink_to(".")
    assert stores(root, rules_of(home, deny=("Read(~/linked/work/sub/gone)",))) == []
    plant(root, "sub/gone")
    git(root / "sub", "add", "gone")
    (root / "sub/gone").unlink()
    assert stores(root, rules_of(home, deny=("Read(~/linked/work/sub/gone)",))) == ["sub/.git"]


@pytest.mark.requirement("hidden.stored")
def test_a_repository_around_the_workspace_is_looked_into_by_the_rules_of_the_workspace(root: Path, home: Path) -> None:
    git(home, "init")
    plant(home, "work/conf/key", "conf/key")
    git(home, "add", "conf/key")
    assert stores(root, rules_of(home, deny=("Read(conf/key)",))) == []
    git(home, "add", "work/conf/key")
    assert stores(root, rules_of(home, deny=("Read(conf/key)",))) == ["../.git"]
    assert stores(root, Rules()) == []
    (root / "conf/.qwenignore").write_text("key\n")
    assert stores(root, Rules()) == ["../.git"]


@pytest.mark.requirement("hidden.stored")
def test_what_is_not_in_the_work_tree_any_more_is_found_in_stashes_and_repositories_without_one(
    root: Path, home: Path
) -> None:
    rules = rules_of(home, deny=("Read(.env)",))
    git(root, "init")
    plant(root, "a", ".env")
    git(root, "add", "a")
    git(root, "commit", "-m", "a")
    assert stores(root, rules) == []
    git(root, "stash", "-u")
    assert not (root / ".env").exists()
    assert stores(root, rules) == [".git"]
    git(root, "clone", "--mirror", ".git", "kept.git")
    git(root, "stash", "drop")
    git(root, "reflog", "expire", "--expire=now", "--all")
    assert stores(root, rules) == ["kept.git"]


@pytest.mark.requirement("hidden.stored")
def test_what_a_submodule_has_stored_is_found_though_it_is_not_checked_out(root: Path, home: Path) -> None:
    git(home, "init", "inner")
    plant(home, "inner/.env")
    git(home / "inner", "add", ".env")
    git(home / "inner", "commit", "-m", "a")
    git(root, "init")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", str(home / "inner"), "sub/deep")
    git(root, "commit", "-m", "b")
    git(root, "submodule", "deinit", "-f", "sub/deep")
    assert stores(root, rules_of(home, deny=("Read(.env)",))) == [".git/modules/sub/deep"]


@pytest.mark.requirement("hidden.stored")
def test_contents_are_kept_in_objects_alternates_and_what_a_rebase_has_begun(root: Path) -> None:
    git(root, "init", "main")
    git(root, "clone", "--shared", "main", "copy")
    plant(root, "copy/.git/rebase-apply/0001", "copy/.git/lfs/objects/a")
    found = {os.path.relpath(path, root) for path in stored_in(str(root / "copy/.git"))}
    assert found >= {f"copy/.git/{name}" for name in ("objects", "lfs", "rebase-apply")} | {"main/.git/objects"}
    listed = "\n".join(map(str, (root / "main/.git/objects", root / "copy/.git/objects", root, "nowhere")))
    (root / "main/.git/objects/info/alternates").write_text(listed)
    assert len(list(object_folders([str(root / "copy/.git")]))) == 3, "each once, however they lead to each other"


@pytest.mark.requirement("hidden.stored")
def test_a_repository_that_cannot_be_read_counts_as_one_that_has_stored_it(root: Path, home: Path) -> None:
    git(root, "init")
    (root / ".git/HEAD").write_text("nonsense")
    assert stores(root, rules_of(home, deny=("Read(.env)",))) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_a_repository_below_an_agent_ignore_file_that_is_not_understood_counts_too(root: Path, home: Path) -> None:
    git(root, "init")
    plant(root, "a")
    git(root, "add", "a")
    rules = rules_of(home, deny=("Read(.env)",))
    assert stores(root, rules) == []
    (root / ".qwenignore").symlink_to("nowhere")
    assert stores(root, rules) == [".git"]


@pytest.mark.requirement("hidden.stored")
def test_without_git_a_repository_counts_where_something_is_hidden(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(root, "init")
    monkeypatch.setenv("PATH", str(root))
    rules = rules_of(home, deny=("Read(.env)",))
    assert stores(root, rules) == []
    plant(root, ".env")
    assert stores(root, rules) == [".git"]
