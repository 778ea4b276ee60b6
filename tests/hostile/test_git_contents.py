"""What git has stored of a hidden file is shown by no sub-command, and gets no other name, without a question."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.unit.permissions.test_policy import flow_with, in_mode, of_command
from tools.call.context import ToolContext
from tools.call.flow import Flow
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

SECRET = "sesame-4711"
AUTHOR = ("-c", "user.name=n", "-c", "user.email=n@e.example", "-c", "init.defaultBranch=main")

VERBS = [
    "add", "am", "apply", "archive", "bisect visualize", "blame", "branch", "bundle create -", "cat-file",
    "checkout", "checkout-index", "cherry-pick", "clone", "commit --dry-run", "commit-tree", "config", "describe",
    "diff", "diff-files", "diff-index", "diff-tree", "difftool", "fast-export", "fetch", "for-each-ref",
    "format-patch", "fsck", "grep", "hash-object", "ls-files", "ls-tree", "log", "merge", "merge-file -p",
    "merge-tree", "mktree", "mv", "notes", "pull", "push", "range-diff", "read-tree", "rebase", "reflog", "replace",
    "request-pull", "rerere", "reset", "restore", "rev-list", "revert", "shortlog", "show", "show-branch", "stash",
    "stash list", "stash show", "stash push", "status", "submodule", "switch", "tag", "tag -l", "unknown-to-all",
    "update-index", "update-ref", "whatchanged", "worktree add",
]  # fmt: skip
OPTIONS = [
    "-p", "--patch", "--pat", "-qp", "-v", "-vv", "--verb", "-u", "-c", "--cc", "-m", "-U9", "--unified", "-W",
    "--binary", "--word-diff", "--color-words", "--patch-with-stat", "--stat -p", "-L1,1:.env", "-G sesame", "-i",
    "-e", "--format='%(raw)'", "--format='%(contents)'", "--show-current-patch", "--stdout",
    "--batch-all-objects --batch", "--stat", "--name-only", "-s", "--raw", "--oneline", "-S sesame",
    "--no-index /dev/null", "--textconv", "--temp",
]  # fmt: skip
OPERANDS = [
    "HEAD", "{blob}", "{tree}", "HEAD:.env", ":.env", ":0:.env", "HEAD:./.env", "HEAD:app", "{empty}",
    "HEAD~1..HEAD", "topic", "blob {blob}", "-- .env", "-- .", "-- app", "-- '*'", "-- ':/'", "-- ':!a.txt'", "app",
    ". out", "app out", "-p HEAD:.env", "{empty} -- .env", "sesame {blob}", "'' HEAD", "t {blob}",
    "{blob} -- a.txt", "a.txt", "-- a.txt",
]  # fmt: skip
"""Some of these lead to the secret; which of them are asked about, nobody says here."""

OTHER_NAMES = [
    "git mv app lib",
    "git mv -f .env env.txt",
    "git -C app mv .env env.txt",
    "git worktree add ../there",
    "git worktree add -b x there HEAD",
    "git clone . there",
    "git clone -q file://$PWD there",
    "git submodule add ./ there",
    "git read-tree -u --prefix=there/ HEAD:app",
    "git update-index --add --cacheinfo 100644,{blob},there",
    "git update-index --add --cacheinfo 100644 {blob} there; git checkout -- there",
    "git update-index --index-info < a.txt",
    "git checkout-index -a --prefix=there/",
    "git archive -o there.tar HEAD",
    "git archive HEAD app | tar x -C there",
    "git checkout HEAD:app -- .env",
    "git checkout {tree} -- .",
    "git restore --source=HEAD:app .env",
    "git restore -s {tree} .",
    "git reset HEAD:app -- .env",
    "git commit-tree -m x HEAD:app",
    "git hash-object -w -t tree --stdin < a.txt",
    "git replace {blob} HEAD:a.txt",
    "git tag there {blob}",
    "git tag --message=x there {blob}",
    "git update-ref refs/tags/there {blob}",
    "git push . {blob}:refs/tags/there",
    "git fetch . {blob}:refs/tags/there",
    "git merge -X subtree=app topic",
    "git notes add -C {blob}",
    "git config --blob {blob} --list",
]
STORES = [
    "cat {object}",
    "cat {object} | gzip -dc",
    "head -c 99 < {object}",
    "cd .git/objects && cat */*",
    "cp {object} there",
    "ln {object} there",
    "mytool {object}",
    "mytool --in={object}",
    "mytool .git/objects/$X",
    "X={object}; base64 $X",
    "tail -c +1 .git/objects/pack/pack-1.pack",
    "cat .git/rr-cache/1/preimage",
    "cat .git/lost-found/other/1",
    "grep -ra x .git",
    "tar cf there.tar .git",
]
UNASKED = [
    "git -C src status",
    "git -C . log --oneline -3",
    "git show HEAD --stat",
    "git show --name-only",
    "git show -s --format=%h HEAD~1",
    "git stash push -m wip src/a.py",
    "git stash show",
    "git stash --include-untracked",
    "git stash list",
    "git log -S foo --oneline",
    "git log --stat -3",
    "git show HEAD:src/a.py",
    "git -C src show HEAD:./a.py",
    "git show :a.txt",
    "git cat-file -p HEAD:a.txt",
    "git diff src/a.py",
    "git diff HEAD~1 -- src/a.py a.txt",
    "git log -p src/a.py",
    "git log -p -- src/a.py",
    "git blame -L 1,1 src/a.py",
    "git grep -n foo -- src/a.py",
    "git grep -n foo -- src",
    "git diff --stat",
    "git add -A",
    "git commit -qam '-p'",
    "git commit -m x --amend --no-edit",
    "git checkout -b topic2",
    "git checkout main -- src/a.py",
    "git checkout -- src/a.py",
    "git restore --staged .",
    "git reset --hard HEAD~1",
    "git mv src/a.py src/c.py",
    "git tag -a v1 -m x",
    "git tag v1 HEAD~1",
    "git tag -l --format='%(refname:short) %(subject)'",
    "git for-each-ref --format='%(refname) %(objectname)'",
    "git branch -vv",
    "git ls-files -s",
    "git fetch --prune",
    "git push -u origin main",
    "git clone https://h.example/x there",
    "git worktree list",
    "git rebase main",
    "git status -sb",
    "cat .git/HEAD .git/config .git/refs/heads/main",
    "ls .git/objects",
]
"""What shows nothing hidden."""


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *AUTHOR, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(root: Path) -> Path:
    """A workspace with secrets in its first commit, a second commit, and a change of each."""
    files = {".env": f"KEY={SECRET}\n", "app/.env": f"KEY={SECRET}\n", "app/m.py": "m\n", "a.txt": "a\n"}
    for name, text in {**files, "src/a.py": "foo\n"}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    for name in ("app/m.py", "a.txt", "src/a.py"):
        (root / name).write_text("foo two\n")
    git(root, "branch", "topic")
    git(root, "commit", "-qam", "second")
    for name in (".env", "src/a.py"):
        (root / name).write_text(f"KEY={SECRET}-new\n" if name == ".env" else "foo three\n")
    return root


def filled(commands: Iterable[str], repository: Path) -> list[str]:
    blob, tree = git(repository, "rev-parse", "HEAD:.env"), git(repository, "rev-parse", "HEAD:app")
    empty = git(repository, "hash-object", "-t", "tree", "/dev/null")
    stored = f".git/objects/{blob[:2]}/{blob[2:]}"
    values = {"{blob}": blob, "{tree}": tree, "{empty}": empty, "{object}": stored}
    filled_in: list[str] = []
    for command in commands:
        text = command
        for name, value in values.items():
            text = text.replace(name, value)
        filled_in.append(text)
    return filled_in


def combinations() -> Iterator[str]:
    """Each sub-command with each option and each operand, and some of them with both."""
    for verb, further in zip(VERBS, cycle(OPTIONS[::3]), strict=False):
        yield f"git {verb}"
        yield from (f"git {verb} {option}" for option in OPTIONS)
        yield from (f"git {verb} {operand}" for operand in OPERANDS)
        yield from (f"git {verb} {further} {operand}" for operand in OPERANDS)
        yield from (f"git {verb} {option} {{blob}}" for option in OPTIONS)


async def unasked(flow: Flow, context: ToolContext, commands: Iterable[str]) -> list[str]:
    return [each for each in commands if (await of_command(flow, context, each)).verdict is Verdict.ALLOW]


@pytest.mark.requirement("rules.hidden_reads")
async def test_no_git_command_that_runs_unasked_shows_what_is_hidden(
    repository: Path, context: ToolContext, tmp_path: Path
) -> None:
    (repository / ".qwenignore").write_text(".env\n")
    sample = filled(combinations(), repository)[::7]
    allowed = await unasked(flow_with(permissions_allow=["Bash(git *)"]), context, sample)
    assert len(allowed) > 300
    for verb in dict.fromkeys(command.split()[1] for command in allowed):
        commands = [command for command in allowed if command.split()[1] == verb]
        assert SECRET not in shown(commands, repository, tmp_path / verb), verb


def shown(commands: Iterable[str], repository: Path, copy: Path) -> str:
    """What commands print in a copy, and what lies there then by names that are not hidden."""
    shutil.copytree(repository, copy)
    ours = f"git {' '.join(AUTHOR)} -c core.editor=true -c protocol.file.allow=always "
    script = "\n".join(command.replace("git ", ours, 1) for command in commands)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(copy), "GIT_PAGER": "cat"}
    run = subprocess.run(
        ["bash", "-c", script], cwd=copy, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    files = (path for path in copy.rglob("*") if path.name != ".env" and ".git" not in path.parts and path.is_file())
    return run.stdout.decode(errors="replace") + "".join(path.read_text(errors="replace") for path in files)


@pytest.mark.requirement("rules.hidden_reads")
@pytest.mark.parametrize("lists", [{}, {"permissions_deny": ["Read(.env)"]}, {"permissions_ask": ["Read(.env)"]}])
async def test_stored_contents_are_read_and_get_other_names_with_a_question_alone(
    repository: Path, context: ToolContext, lists: dict[str, list[str]]
) -> None:
    if not lists:
        (repository / ".qwenignore").write_text(".env\n")
    flow = flow_with(permissions_allow=["Bash"], **lists)
    assert await unasked(flow, context, filled([*OTHER_NAMES, *STORES], repository)) == []


@pytest.mark.requirement("rules.hidden_reads")
@pytest.mark.parametrize("lists", [{}, {"permissions_deny": ["Read(.env)"]}, {"permissions_ask": ["Read(.env)"]}])
async def test_git_commands_that_show_nothing_hidden_run_unasked(
    repository: Path, context: ToolContext, lists: dict[str, list[str]]
) -> None:
    if not lists:
        (repository / ".qwenignore").write_text(".env\n")
        git(repository, "add", ".qwenignore")
    flow = flow_with(permissions_allow=["Bash(git *)"], **lists)
    assert await unasked(flow, context, UNASKED) == UNASKED


FOLDER_READS = ["grep -rn foo src", "rg foo src", "grep -r foo src docs", "cat src/a.py; grep -rl foo src"]


@pytest.mark.requirement("rules.hidden_reads")
@pytest.mark.parametrize("kind", ["permissions_deny", "permissions_ask", ""])
async def test_a_folder_is_looked_at_for_what_rules_and_ignore_files_hide(
    root: Path, context: ToolContext, kind: str
) -> None:
    for name in (".env", "src/a.py", "docs/a.md"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("foo\n")
    if not kind:
        (root / ".qwenignore").write_text(".env\n")
    flow = flow_with(**({kind: ["Read(.env)"]} if kind else {}))
    assert await unasked(flow, context, [*FOLDER_READS, "grep -rn foo ."]) == FOLDER_READS
    (root / "src" / "link").symlink_to("../docs")
    assert await unasked(flow, context, FOLDER_READS) == []
    (root / "src" / "link").unlink()
    (root / "src" / "deep").mkdir()
    (root / "src" / "deep" / ".env").write_text(SECRET)
    assert await unasked(flow, context, FOLDER_READS) == []


@pytest.mark.requirement("rules.hidden_reads")
async def test_a_folder_with_more_in_it_than_is_looked_at_is_asked_about(root: Path, context: ToolContext) -> None:
    (root / "src").mkdir()
    for number in range(10_001):
        (root / "src" / str(number)).touch()
    flow = flow_with(permissions_deny=["Read(.env)"])
    assert await unasked(flow, context, ["grep -rn foo src"]) == []


AUTO_RUN_FILES = [".npmrc", ".qwenignore", ".envrc", "sub/.mcp.json", ".husky/pre-commit"]
PATHSPECS = [
    "'{begin}*'",
    "'*{end}'",
    "'{begin}?{rest}'",
    "':(glob)**/{name}'",
    "':(top){path}'",
    "':/{path}'",
    ":/",
    ".",
]


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.parametrize("path", AUTO_RUN_FILES)
async def test_a_pathspec_that_fits_an_auto_run_file_is_asked_about(
    root: Path, context: ToolContext, path: str
) -> None:
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("x\n")
    (root / "a.py").write_text("x\n")
    git(root, "init", "-q")
    name = Path(path).name
    values = {"begin": path[:3], "rest": path[4:], "end": name[-4:], "name": name, "path": path}
    commands = [f"git rm -rq {pathspec.format(**values)}" for pathspec in PATHSPECS]
    commands += [f"git {verb} -- {PATHSPECS[1].format(**values)}" for verb in ("checkout HEAD~1", "restore -s HEAD~1")]
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert await unasked(flow_with(), yolo, [*commands, "git sparse-checkout set --no-cone a.py"]) == []
    others = ["git rm -q '*.py'", "git checkout -- '*.py'", "git restore .", "git rm -r --cached a.py"]
    assert await unasked(flow_with(), yolo, others) == others


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.parametrize("path", AUTO_RUN_FILES)
async def test_untracked_auto_run_files_are_cleaned_away_with_a_question(
    root: Path, context: ToolContext, path: str
) -> None:
    wide = ["git clean -fd", "git clean -qf -e x", "git clean -f -- .", "git stash -u", "git stash push -qu -m x"]
    wider = ["git clean -fdx", "git clean -fX", "git stash --all"]
    yolo = in_mode(context, ApprovalMode.YOLO)
    git(root, "init", "-q")
    assert await unasked(flow_with(), yolo, [*wide, *wider]) == [*wide, *wider]
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("x\n")
    assert await unasked(flow_with(), yolo, [*wide, *wider, "git clean -nd"]) == ["git clean -nd"]
    (root / ".gitignore").write_text(f"{path}\n")
    assert await unasked(flow_with(), yolo, [*wide, *wider]) == wide
    (root / ".gitignore").unlink()
    git(root, "add", path)
    assert await unasked(flow_with(), yolo, [*wide, *wider]) == [*wide, *wider]


HEADERS = [
    "+++ b/{}",
    "+++ {}\t2020-01-01 00:00",
    "--- a/{}",
    "rename to {}",
    "copy to {}",
    "diff --git a/{0} b/{0}",
    "*** {} 2020-01-01",
    "Index: {}",
    '+++ "b/{}"',
    "+++ x/y/z/{}",
]
GIVEN = [
    "{program} <<'E'\n{header}\n@@ -0,0 +1 @@\n+x\nE",
    "{program} <<E\n{header}\nE",
    "cat <<'E' | {program} -\n{header}\nE",
    "{program} <<< '{header}'",
    "echo '{header}' | {program}",
    "printf 'x\\n{header}\\n' | {program}",
    "cat > p.txt <<'E'\n{header}\nE\n{program} p.txt",
]
APPLYING = ["git apply", "git apply -p3", "patch -p1", "patch -sp0", "git am", "git -C . apply"]


def patched(path: str) -> Iterator[str]:
    for header, program in zip(HEADERS, cycle(APPLYING), strict=False):
        yield from (form.format(program=program, header=header.format(path)) for form in GIVEN)


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.parametrize("path", AUTO_RUN_FILES)
async def test_a_patch_in_the_text_of_a_command_writes_what_it_says(
    root: Path, context: ToolContext, path: str
) -> None:
    (root / ".git").mkdir()
    commands = list(patched(path))
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert len(commands) == len(set(commands)) == len(HEADERS) * len(GIVEN)
    assert await unasked(flow_with(), yolo, commands) == []
    escaped = [
        f"git apply <<'E'\n+++ \"b/{path[:2]}\\{ord(path[2]):03o}{path[3:]}\"\nE",
        f"X={path}; git apply <<E\n+++ b/$X\nE",
        f"git apply --directory={Path(path).parent} <<'E'\n+++ b/{Path(path).name}\nE",
    ]
    assert await unasked(flow_with(), yolo, escaped) == []
    others = [*patched("src/a.py"), "git apply < x.patch", "patch -p1 < x.patch"]
    assert await unasked(flow_with(), yolo, others) == others
    assert await unasked(flow_with(permissions_deny=["Edit(src/**)"]), yolo, patched("src/a.py")) == []


@pytest.mark.requirement("options.named")
async def test_an_editor_that_leaves_all_as_it_is_and_the_name_of_a_branch_are_not_asked_about(
    repository: Path, context: ToolContext
) -> None:
    del repository
    flow = flow_with(permissions_allow=["Bash(git *)"])
    harmless = [
        'BR=$(git branch --show-current); git push origin "$BR"',
        'BR="$(git rev-parse --abbrev-ref HEAD)"; git push -u origin "$BR"',
        "GIT_EDITOR=true git rebase --continue",
        "GIT_SEQUENCE_EDITOR=: git rebase -i --autosquash main",
        "git -c core.editor=true commit",
        "git -c sequence.editor=: rebase -i main",
    ]
    assert await unasked(flow, context, harmless) == harmless
    others = [
        "GIT_EDITOR=./true git rebase --continue",
        "GIT_EDITOR='true; ./pwn' git commit",
        "git -c core.editor=./true commit",
        "git -c 'core.editor=true ; ./pwn' commit",
        "git -c core.pager=true log",
        'BR=$(cat x); git push origin "$BR"',
        'BR=$(git branch --show-current); read BR; git push origin "$BR"',
    ]
    assert await unasked(flow, context, others) == []
