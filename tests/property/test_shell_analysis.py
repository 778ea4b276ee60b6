"""Whatever the text, the analysis ends, and what bash would run never goes unseen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.shell_corpus import DISGUISED, IN_LINES, IN_STRINGS, verdict
from tools.permissions.shell.analyser import analyse

BASH = shutil.which("bash")

REAL_PROGRAMS = ("env", "nohup", "timeout", "nice", "xargs", "cat", "true", "find", "stdbuf", "sed", "ls")
"""What the tried commands may start besides `rm`: programs that do no harm in an empty folder."""

FRAGMENTS = [
    "rm x",
    "rm",
    "r\\m",
    "'rm'",
    '"rm" x',
    "r''m x",
    "$'rm' x",
    "$'\\x72m'",
    "echo",
    "echo a",
    "true",
    "cat",
    ":",
    "env",
    "timeout 5",
    "nice",
    "command",
    "builtin",
    "exec",
    "eval",
    "eval '",
    "bash -c '",
    "xargs",
    "find . -exec",
    "-n",
    "-c",
    "--",
    "x",
    "A=1",
    "A=",
    "A=(",
    "a[0]=",
    "cd d",
    ";",
    ";;",
    "&&",
    "||",
    "|",
    "|&",
    "&",
    "\n",
    " ",
    "  ",
    "\t",
    "\\\n",
    "\\",
    "'",
    '"',
    "`",
    "$(",
    "$((",
    "((",
    "))",
    ")",
    "(",
    "{ ",
    " }",
    "; }",
    "{",
    "}",
    ",",
    "${x:-",
    "${x",
    "${#x}",
    "$x",
    "$",
    "$'",
    '$"',
    "<(",
    ">(",
    "<",
    ">",
    "> f",
    "2>&1",
    "&> f",
    "<<<",
    "<<A",
    "<<'A'",
    "<<-A",
    "\nA\n",
    "\n\tA\n",
    "if ",
    "then ",
    "else ",
    "; fi",
    "while ",
    "until ",
    "do ",
    "; done",
    "for i in a; do ",
    "for i in ",
    "case a in a) ",
    "case a in ",
    "a) ",
    "a|b) ",
    ";; esac",
    "esac",
    "[[ ",
    " ]]",
    "[ ",
    " ]",
    "-n a",
    "f() ",
    "f() {",
    "function f ",
    "coproc ",
    "coproc N ",
    "time ",
    "! ",
    "# ",
    "#",
    "a",
    "=",
    "~",
    "*",
    "?",
    "!",
]

HARMLESS_PARTS = ["echo a", "true", ":", "cat < /dev/null", "A=1", "[[ a = a ]]", "((1))", "echo $((1+1)) \"b\" 'c'"]
JOINTS = ["; ", " && ", " || ", " | ", " & ", "\n", " |\n", ";", "\n\n", " # c\n"]


@pytest.mark.requirement("shell.analysis.hostile")
@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_text_is_analysed(text: str) -> None:
    analysis = analyse(text)
    assert all(command.source or command.words for command in analysis.commands)


@pytest.mark.requirement("shell.analysis.hostile")
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
@settings(max_examples=500)
def test_any_mixture_of_the_marks_of_bash_is_analysed(text: str) -> None:
    analysis = analyse(text)
    assert analysis.is_read_only in (True, False)


def _put(line: str, command: str) -> str:
    return line.format(command)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Lines that keep what is put into them a command wherever they stand: `ls )` ends a substitution around it."""
    lines = st.sampled_from([line for line in IN_LINES if "\nA" not in line and not line.startswith("ls )")])
    return st.builds(_put, lines, inner)


@pytest.mark.requirement("shell.analysis.everyday")
@given(st.recursive(st.sampled_from(["rm x", "env rm -f", "/bin/rm"]), _nested, max_leaves=4))
@settings(max_examples=300)
def test_a_denied_command_is_never_allowed_however_deep_it_stands(command: str) -> None:
    assert verdict(analyse(command)) != "allow"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with the programs that the tried commands may start, and an `rm` that only says that it ran."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        programs = folder / "bin"
        programs.mkdir()
        (folder / "empty").mkdir()
        for program in REAL_PROGRAMS:
            if found := shutil.which(program):
                (programs / program).symlink_to(found)
        (programs / "bash").symlink_to(str(BASH))
        recorder = programs / "rm"
        recorder.write_text(f"#!{BASH}\n: > '{folder}/ran'\n")
        recorder.chmod(0o755)
        yield folder


def _runs_rm(folder: Path, command: str) -> bool:
    """Whether bash really starts `rm` when it is given a command."""
    ran, empty = folder / "ran", folder / "empty"
    ran.unlink(missing_ok=True)
    shutil.rmtree(empty)
    empty.mkdir()
    environment = {"PATH": str(folder / "bin")}
    process = subprocess.Popen(
        [str(BASH), "--norc", "--noprofile", "-c", command],
        cwd=empty,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None and sys.platform != "win32":
            os.killpg(process.pid, 9)
            process.wait()
    return ran.exists()


FIND_PARTS = [
    "f.txt", ".", "-exec", "-execdir", "-ok", "sed", "1p", "+", "\\;", "{}", "'{}'", "{} +", "-e", "'1e rm'", "'w out'",
    "-n", "-i", "-name", "-o", "ls", "cat", "env", "rm", "-print", "-delete", "-fprint", "out", "-exec cat {} +", "!",
    "\\(", "\\)",
]  # fmt: skip


needs_bash = pytest.mark.skipif(BASH is None or os.name != "posix", reason="not run: there is no bash here")


@needs_bash
@pytest.mark.requirement("shell.analysis.hostile")
@pytest.mark.parametrize(
    "command", ["rm x", "r\\m x", "echo $(true)#; rm x", "cat <<A\n`rm`\nA\n", "env rm", "find . -exec rm {} +"]
)
def test_the_trial_notices_what_bash_runs(folder: Path, command: str) -> None:
    assert _runs_rm(folder, command)
    assert verdict(analyse(command)) != "allow"


@needs_bash
@pytest.mark.requirement("shell.analysis.hostile")
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(text="echo $(true)#; rm x")
@example(text="cat <<A\n`rm`\nA\n")
@given(text=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=12).map("".join))
def test_what_bash_runs_of_any_mixture_is_seen_or_doubted(folder: Path, text: str) -> None:
    if verdict(analyse(text)) != "deny" and _runs_rm(folder, text):
        assert verdict(analyse(text)) == "ask"


@needs_bash
@pytest.mark.requirement("shell.analysis.hostile")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from([*HARMLESS_PARTS, "rm x", *DISGUISED]), min_size=1, max_size=4),
    joints=st.lists(st.sampled_from(JOINTS), min_size=4, max_size=4),
    frame=st.sampled_from([line for line in (*IN_LINES, *IN_STRINGS) if "ssh" not in line and "su" not in line]),
)
def test_what_bash_runs_of_joined_commands_is_seen_or_doubted(
    folder: Path, parts: list[str], joints: list[str], frame: str
) -> None:
    joined = "".join(part + joint for part, joint in zip(parts, joints, strict=False)).rstrip("|& \n")
    text = frame.replace("{{", "{").replace("}}", "}").replace("{}", joined)
    if verdict(analyse(text)) == "allow":
        assert not _runs_rm(folder, text)


@needs_bash
@pytest.mark.requirement("shell.analysis.hostile")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(parts=["f.txt", "-exec", "sed", "1p", "+", "-e", "'1e rm'", "f.txt", "\\;"])
@example(parts=[".", "-exec", "cat", "{}", "x", "+", "-exec", "rm", "\\;"])
@given(parts=st.lists(st.sampled_from(FIND_PARTS), min_size=2, max_size=9))
def test_find_runs_nothing_that_is_not_seen(folder: Path, parts: list[str]) -> None:
    text = "echo a > f.txt; find " + " ".join(parts)
    if analyse(text.partition("; ")[2]).is_read_only:
        assert not _runs_rm(folder, text)
        assert sorted(entry.name for entry in (folder / "empty").iterdir()) == ["f.txt"]


PS_PARTS = [
    "-e", "-A", "-ef", "-eF", "-f", "-l", "a", "ax", "aux", "auxww", "-ax", "-aux", "-p 1", "-o pid,args", "-eo args",
    "e", "--sort=pid", "--no-headers", "--forest", "-ww", "-E", "-o environ",
]  # fmt: skip


@needs_bash
@pytest.mark.requirement("shell.analysis.hostile")
@pytest.mark.skipif(shutil.which("ps") is None or sys.platform != "linux", reason="not run: there is no Linux ps here")
def test_ps_shows_no_environment_unasked() -> None:
    cat = subprocess.Popen([str(shutil.which("cat"))], stdin=subprocess.PIPE, env={"MARK": "shown-by-ps"})
    try:
        lines = [" ".join(("ps", *parts)) for number in (1, 2) for parts in permutations(PS_PARTS, number)]
        unasked = [line for line in lines if analyse(line).is_read_only]
        assert len(unasked) > 40
        text = "\n".join(unasked)
        shown = subprocess.run([str(BASH), "-c", text], capture_output=True, check=False, timeout=50).stdout
        assert b"PID" in shown
        assert b"shown-by-ps" not in shown
        asked = subprocess.run([str(BASH), "-c", "ps axeww"], capture_output=True, check=False).stdout
        assert b"shown-by-ps" in asked
    finally:
        cat.communicate()
