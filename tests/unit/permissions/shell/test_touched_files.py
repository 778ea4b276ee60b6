"""Files and hosts that commands touch in ways that are easily overlooked, one row for each way."""

from __future__ import annotations

import pytest

from tools.permissions.shell.analyser import analyse


def _targets(command: str, access: str) -> set[str | None]:
    return {
        effect.target
        for found in analyse(command).commands
        for effect in found.effects
        if effect.access.value == access
    }


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("git log --output=f", "f"),
        ("git log --outp=f", "f"),
        ("git diff --output f", "f"),
        ("git show --output f", "f"),
        ("git format-patch -o d", "d"),
        ("git format-patch HEAD~1", None),
        ("git archive -o f HEAD", "f"),
        ("git config k v", ".git/config"),
        ("git config --unset k", ".git/config"),
        ("git config k v --add", ".git/config"),
        ("git -C sub config k v", "sub/.git/config"),
        ("git config --global k v", "~/.gitconfig"),
        ("git config -f f k v", "f"),
        ("git mv a b", "b"),
        ("git checkout -- a", "a"),
        ("git stash pop", None),
        ("git log $X", None),
        ("git $X", None),
        ("sort --outp=f a", "f"),
        ("sort --outp f a", "f"),
        ("sort --output=f a", "f"),
        ("sort $X a", None),
        ("sort --output=$X a", None),
        ("cp --target-d=d a", "d"),
        ("cp --target-d=d a", "d/a"),
        ("cp -r evil/.vscode .", "./.vscode"),
        ("cp -rt d x/a", "d/a"),
        ("cp -r a/. d", None),
        ("cp *.py d", None),
        ("mv evil/.vscode .", "./.vscode"),
        ("ln -s evil/.vscode", "./.vscode"),
        ("install -d a b", "a"),
        ("install x/a d", "d/a"),
        ("rsync a d", "d/a"),
        ("curl --outp f https://h", "f"),
        ("curl --output-d=d https://h", "d"),
        ("wget --output-doc=f https://h", "f"),
        ("tree -o f", "f"),
        ("tree -aof", "f"),
        ("chmod -x f", "f"),
        ("chmod 600 f", "f"),
        ("diff3 --output=f a b", "f"),
        ("tar -xf a", None),
        ("tar --to-command=cat -xf a", None),
        ("tar --creat -f a b", "a"),
        ("tar rf a b", "a"),
        ("tar cvfI a gzip b", "a"),
        ("curl -K f", None),
        ("awk '{print > \"f\"}' g", None),
        ("awk -f p g", None),
        ("awk -i inplace 1 g", None),
        ("gawk '@load \"x\"' g", None),
        ("sed 'w f' g", None),
        ("sed s/a/b/w\\ f g", None),
        ("sed -n -f p g", None),
        ("sed -i s/a/b/ f", "f"),
        ("sed -i.bak s/a/b/ f", "f"),
        ("yq -i .a f", "f"),
        ("find . -fprint f", "f"),
        ("gzip f", "f"),
        ("zip a.zip f", "a.zip"),
        ("/opt/x/cp a b", "b"),
        ("./tee f", "f"),
        ("script f", "f"),
        ("strace -o f ls", "f"),
    ],
)
def test_what_is_written_is_told(command: str, target: str | None) -> None:
    assert target in _targets(command, "write")


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("git annotate f", "f"),
        ("git blame f", "f"),
        ("git log -p -- d", "d"),
        ("git log -p -- 'd/*'", "d"),
        ("git log -p -- :d", ":/"),
        ("git -C d diff", "d/:/"),
        ("git -C a -C b log", "a/b"),
        ("git show HEAD:f -- f", ":/f"),
        ("git show --stat 8baef1b", ":/"),
        ("git commit --dry-run -F -m -v", ":/"),
        ("git status -vv", ":/"),
        ("git log -p", ":/"),
        ("git log --patch", ":/"),
        ("git log -L1,2:f", ":/"),
        ("git whatchanged -p", ":/"),
        ("git stash show -p", ":/"),
        ("git archive HEAD", ":/"),
        ("git reflog -p", ":/"),
        ("git diff-tree -p HEAD", ":/"),
        ("git blame --contents f g", "f"),
        ("mv a b", "a"),
        ("cat -n secrets/key", "secrets/key"),
        ("cat -b secrets/key", "secrets/key"),
        ("cat -s secrets/key", "secrets/key"),
        ("tac -b secrets/key", "secrets/key"),
        ("wc -w secrets/key", "secrets/key"),
        ("ls -t secrets", "secrets"),
        ("grep -g a secrets/key", "secrets/key"),
        ("grep --fil=p a", "p"),
        ("grep -d skip -c a secrets/key", "secrets/key"),
        ("sort --files0-fr=f", "f"),
        ("sort --files0-fr=f", None),
        ("wc --files0-from=f", None),
        ("du --files0-from=f", "f"),
        ("tar -T f -cf a", None),
        ("rsync --files-from=f . d", None),
        ("find -files0-from f", "f"),
        ("find . -newermt f", "f"),
        ("find -L secrets", "secrets"),
        ("jq 'import \"a\" as b; .' f", None),
        ("jq 'include \"a\"; .' f", None),
        ("jq -L d . f", None),
        ("jq -rf p f", "p"),
        ("jq --rawfile v f . g", "f"),
        ("jq 'input_filename' f", None),
        ("yq 'load(\"x\")' f", None),
        ("awk 'BEGIN{ARGV[1]=\"x\"; ARGC=2} 1'", None),
        ("awk '{getline < \"f\"}' g", None),
        ("sed 'r f' g", None),
        ("date -f f", "f"),
        ("date --fil=f", "f"),
        ("wget --post-f=f https://h", "f"),
        ("xargs -a f echo", "f"),
        ("xargs --arg=f echo", "f"),
    ],
)
def test_what_is_read_is_told(command: str, target: str | None) -> None:
    assert target in _targets(command, "read")


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    "command",
    [
        "git remote show origin",
        "git remote update",
        "git remote add -f a b",
        "git -C x fetch",
        "git --no-pager push",
        "git archive --remote=h HEAD",
        "git $X",
    ],
)
def test_what_git_reaches_is_told(command: str) -> None:
    assert _targets(command, "fetch")
    assert not analyse(command).is_read_only


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    "command",
    ["git stash list", "git worktree list", "git remote -v", "git log --oneline -5", "git log --stat --author=me"],
)
def test_what_shows_no_contents_reads_no_file(command: str) -> None:
    analysis = analyse(command)
    assert analysis.is_read_only
    assert [effect for found in analysis.commands for effect in found.effects] == []


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    "command",
    [
        "sed '/x/d; y/ab/cd/; $!N' f",
        "sed -n '/a/{p;q}' f",
        "awk '$1 > 5' f",
        "awk '$1 < 5 || $2 < 3 {n++} END {print n}' f",
        "jq '.[] | select(.a > 1)' f",
        "yq .a f",
        "git log --oneline --graph --all",
    ],
)
def test_programs_that_only_print_stay_read_only(command: str) -> None:
    assert analyse(command).is_read_only
