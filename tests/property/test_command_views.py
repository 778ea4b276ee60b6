"""For any command: nothing runs without a question in a view that can write, and denied commands never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.permissions.commands import judge
from tools.contract.call_options import ApprovalMode
from tools.contract.command_views import CommandSite, Engine, Network, ViewKind
from tools.contract.tool_errors import ToolError
from tools.permissions.verdict import Verdict

_SOME_NAMES = (
    "ls cat git sed find xargs env timeout tar curl awk rm touch npm pip python3 sh bash eval trap export cd test [ "
    "echo printf source . $x ./ls /bin/ls /tmp/ls sudo command exec nohup sort tee dd make node time ! { f() coproc "
    "kill mount ip"
)
_SOME_WORDS = (
    "-i -n -c -rf -delete -exec {} ; + -o --output=x status diff config push branch install -m pip --version -v a.txt "
    "$HOME $(rm\\ x) `touch\\ y` 'a b' \"$z\" *.py {a,b} ~/x ../y /etc/passwd .git/hooks/x .vscode/tasks.json x=1 -x "
    "--check /tmp/x"
)
_NAMES, _WORDS = _SOME_NAMES.split(), _SOME_WORDS.split()
_REDIRECTIONS = [
    "> out",
    ">> a.txt",
    "2>&1",
    "< in",
    "> /tmp/x",
    "> /dev/null",
    "&> .git/config",
    "<<< x",
    "> $x",
    ">| b",
]
_SEPARATORS = [" ; ", " && ", " || ", " | ", " & ", "\n", " |& "]
_WRAPPERS = [
    "%s",
    "( %s )",
    "{ %s; }",
    "$( %s )",
    "for i in 1; do %s; done",
    "if true; then %s; fi",
    "x=$(%s)",
    "[[ %s ]]",
]


@st.composite
def commands(draw: st.DrawFn) -> str:
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        words = [draw(st.sampled_from(_NAMES)), *draw(st.lists(st.sampled_from(_WORDS), max_size=4))]
        words += draw(st.lists(st.sampled_from(_REDIRECTIONS), max_size=2))
        prefix = draw(st.sampled_from(["", "", "A=1 ", "PATH=. ", "GIT_DIR=x "]))
        parts.append(draw(st.sampled_from(_WRAPPERS)).replace("%s", prefix + " ".join(words)))
        parts.append(draw(st.sampled_from(_SEPARATORS)))
    return "".join(parts[:-1])


@pytest.mark.requirement("commands.property")
@examples(100)
@given(command=commands() | st.text(max_size=60), mode=st.sampled_from([ApprovalMode.PLAN, ApprovalMode.DEFAULT]))
def test_nothing_runs_without_a_question_in_a_view_that_can_write(command: str, mode: ApprovalMode) -> None:
    root = Path("/nonexistent/home/project")
    for engine in Engine:
        try:
            permission = judge(root, command, mode, site=CommandSite(engine, failure="x"))
        except ToolError:
            continue
        view = permission.view
        if mode is ApprovalMode.PLAN:
            assert permission.verdict is Verdict.DENY or (view is not None and view.kind is not ViewKind.WORKING)
        if permission.verdict is Verdict.ALLOW and engine is not Engine.NONE:
            assert view is not None
            assert view.kind is ViewKind.READING
            assert view.network is not Network.HOST
            assert view.writable == ()
            assert view.seen == ()


@pytest.mark.requirement("commands.property")
@examples(100)
@given(command=commands(), mode=st.sampled_from(list(ApprovalMode)))
def test_no_mode_runs_a_command_that_a_rule_denies(command: str, mode: ApprovalMode) -> None:
    root = Path("/nonexistent/home/project")
    try:
        permission = judge(root, f"{command}\nforbidden x", mode, deny=["Bash(forbidden *)"])
    except ToolError:
        return
    assert permission.verdict is not Verdict.ALLOW
