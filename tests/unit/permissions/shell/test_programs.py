"""What is known of programs: by whichever of their names they are called, and what may be allowed of them for good."""

from __future__ import annotations

import pytest

from tools.contract.permission_subjects import Access
from tools.permissions.shell.analyser import analyse
from tools.permissions.shell.command_analysis import SubCommand


def only(command: str) -> SubCommand:
    """The one sub-command of a command that runs nothing else."""
    (sub,) = analyse(command).commands
    return sub


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize(
    ("called", "known"),
    [
        ("gsed -n 1p f", "sed -n 1p f"),
        ("ssed -n 1p f", "sed -n 1p f"),
        ("nawk 1 f", "awk 1 f"),
        ("mawk 1 f", "awk 1 f"),
        ("bwk 'BEGIN{system(1)}' f", "awk 'BEGIN{system(1)}' f"),
        ("gojq . f", "jq . f"),
        ("ripgrep x f", "rg x f"),
        ("gcat f", "cat f"),
        ("gsort -o out f", "sort -o out f"),
        ("gcp a b", "cp a b"),
        ("/usr/bin/gfind . -delete", "find . -delete"),
        ("gtar xf a", "tar xf a"),
        ("bsdtar xf a", "tar xf a"),
        ("gmake --eval=x", "make --eval=x"),
        ("nodejs -e x", "node -e x"),
    ],
)
def test_a_program_is_known_by_each_of_its_names(called: str, known: str) -> None:
    found, expected = only(called), only(known)
    assert (found.is_read_only, found.effects, found.doubts) == (
        expected.is_read_only,
        expected.effects,
        expected.doubts,
    )


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize("program", ["tar", "gtar", "bsdtar"])
def test_what_a_packer_runs_is_listed_by_whichever_name_it_is_called(program: str) -> None:
    commands = analyse(f"{program} --use-compress-program='evil y' -xf a").commands
    assert [command.text for command in commands[1:]] == ["evil y"]


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize("command", ["genv rm x", "gnohup rm x", "gxargs rm x", "gtimeout 5 rm x"])
def test_a_wrapper_is_looked_into_by_whichever_name_it_is_called(command: str) -> None:
    assert any(sub.words[:1] == ("rm",) for sub in analyse(command).commands)


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize("command", ["jaq -i . f", "/tmp/gsed -n 1p f", "gsed -i s/a/b/ f", "gtest x"])
def test_what_only_resembles_a_reading_program_is_not_taken_for_one(command: str) -> None:
    assert not only(command).is_read_only


@pytest.mark.requirement("shell.analysis.roots")
def test_what_jaq_writes_in_place_is_among_its_effects() -> None:
    assert (Access.WRITE, "f") in {(effect.access, effect.target) for effect in only("jaq -i . f").effects}


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize(
    "command",
    [
        "python x.py",
        "Python x.py",
        "python3.13t -m http.server",
        "pypy3 x.py",
        ".venv/bin/python x.py",
        "node x.js",
        "nodejs x.js",
        "Rscript x.R",
        "julia x.jl",
        "deno run x.ts",
        "swift x.swift",
        "/opt/x/env x",
        "genv x",
        "make '*'",
        "npm 'a b'",
        "npm -g",
        "npm exec rimraf",
        "npx --yes eslint",
        "npx tsx x.ts",
        "uv run python x.py",
        "poetry run sh x",
        "java -jar x.jar",
        "tsx x.ts",
        "go run x.go",
        "docker run x",
        "docker exec x ls",
        "kubectl exec x",
    ],
)
def test_nothing_is_offered_for_good_that_would_cover_any_text(command: str) -> None:
    assert analyse(command).commands[0].scope == ""


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize(
    ("command", "scope"),
    [
        ("node-gyp build", "node-gyp"),
        ("phpunit tests", "phpunit"),
        ("npx eslint x", "npx eslint"),
        ("uvx ruff check", "uvx ruff"),
        ("uv run pytest -q", "uv run pytest"),
        ("bundle exec rake x", "bundle exec rake"),
        ("docker ps -a", "docker ps"),
        ("kubectl get pods", "kubectl get"),
        ("perltidy x", "perltidy"),
        ("luacheck x", "luacheck"),
        ("git push origin", "git push"),
        ("npm run build", "npm run build"),
        ("./gradlew test", "./gradlew test"),
        ("touch x", "touch"),
    ],
)
def test_a_program_that_only_begins_like_an_interpreter_can_be_allowed_for_good(command: str, scope: str) -> None:
    assert only(command).scope == scope


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize("program", ["gdb", "lldb", "tmux", "screen", "expect", "socat", "entr", "at", "batch"])
def test_a_program_that_runs_others_in_its_own_way_is_doubted_with_and_without_arguments(program: str) -> None:
    assert analyse(program).commands[0].doubts
    inner = analyse(f"{program} rm x").commands
    assert inner[0].doubts
    assert any(sub.words == ("rm", "x") for sub in inner)
