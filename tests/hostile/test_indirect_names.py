"""A file that a command names in a way that is not literal is judged as if it were named, or as any file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, connected, write_config
from tests.hostile.indirect_names import (
    AUTO_RUN_FILES,
    OTHER_WRITES,
    READERS,
    UNASKED_READS,
    UNASKED_WRITES,
    WHOLE_TREES,
    WRITERS,
    indirect,
    through_folders,
)
from tests.unit.permissions.test_policy import flow_with, in_mode, of_command
from tools.call.context import ToolContext
from tools.call.flow import Flow
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

SECRET = "sesame-4711"


@pytest.fixture
def folder(root: Path) -> Path:
    """A workspace with a secret, a repository and files of all sorts."""
    names = ("a.txt", "b.txt", "src/a.py", "src/b.py", "sub/x", "sub/y", "build/z", ".git/HEAD", ".git/hooks/x.sample")
    auto_run = (f"{place}{path}" for path in AUTO_RUN_FILES for place in ("evil/", "" if "/" in path else "sub/"))
    for name in (*names, *auto_run, "evil/lefthook.yml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    (root / ".env").write_text(f"KEY={SECRET}\n")
    return root


def hide(folder: Path) -> None:
    (folder / ".qwenignore").write_text(".env\nsecrets/\n")


async def unasked(flow: Flow, context: ToolContext, commands: Iterable[str]) -> list[str]:
    return [each for each in commands if (await of_command(flow, context, each)).verdict is Verdict.ALLOW]


def readings() -> list[str]:
    return [*(each for program in READERS for each in indirect(program, ".env")), *WHOLE_TREES]


def writings(paths: Iterable[str] = AUTO_RUN_FILES) -> list[str]:
    plain = [each for path in paths for program in WRITERS for each in indirect(program, path)]
    deep = [each for path in paths if "/" in path for program in WRITERS for each in through_folders(program, path)]
    return [*plain, *deep]


@pytest.mark.requirement("rules.hidden_reads")
async def test_no_rule_for_all_commands_opens_what_is_hidden_from_agents(folder: Path, context: ToolContext) -> None:
    hide(folder)
    commands = readings()
    assert len(commands) > 500
    assert await unasked(flow_with(permissions_allow=["Bash"]), context, commands) == []


@pytest.mark.requirement("rules.hidden_reads")
@pytest.mark.parametrize("program", READERS)
async def test_no_rule_for_one_program_opens_what_is_hidden_from_agents(
    folder: Path, context: ToolContext, program: str
) -> None:
    hide(folder)
    flow = flow_with(permissions_allow=[f"Bash({program.partition(' ')[0]} *)"])
    assert await unasked(flow, context, indirect(program, ".env")) == []


@pytest.mark.requirement("rules.hidden_reads")
async def test_rules_that_deny_and_ask_leave_out_none_of_what_ignore_files_ask_about(
    folder: Path, context: ToolContext
) -> None:
    allowed = ["Bash"]
    for lists in ({"permissions_deny": ["Read(.env)"]}, {"permissions_ask": ["Read(.env)"]}):
        flow = flow_with(permissions_allow=allowed, **lists)
        assert await unasked(flow, context, readings()) == []


@pytest.mark.requirement("rules.hidden_reads")
async def test_what_reads_nothing_hidden_runs_unasked(folder: Path, context: ToolContext) -> None:
    hide(folder)
    flow = flow_with(permissions_allow=["Bash(cat *)", "Bash(head *)"])
    assert await unasked(flow, context, UNASKED_READS) == UNASKED_READS


@pytest.mark.requirement("rules.hidden_reads")
@pytest.mark.parametrize("hidden", ["src/.env", "src/deep/secrets/a", "src/link", "src/own/.env"])
async def test_a_folder_with_something_hidden_in_it_is_asked_about(
    folder: Path, context: ToolContext, hidden: str
) -> None:
    hide(folder)
    path = folder / hidden
    path.parent.mkdir(parents=True, exist_ok=True)
    if hidden.endswith("link"):
        path.symlink_to("../.env")
    else:
        path.write_text(f"{SECRET}\n")
    if "own" in hidden:
        (folder / ".qwenignore").unlink()
        (path.parent / ".geminiignore").write_text(".env\n")
    flow = flow_with(permissions_allow=["Bash(grep *)", "Bash(rg *)", "Bash(git *)", "Bash(mv *)"])
    commands = ["grep -rn x src", "rg -uu x src", "cd src && grep -r x .", "cat src/a.py; grep -r x src"]
    assert await unasked(flow, context, commands) == []
    path.unlink()
    if path.parent.name == "secrets":
        path.parent.rmdir()
    assert await unasked(flow, context, commands[:2]) == commands[:2]
    # What another part puts there, and what only git knows, is not seen by a look.
    assert await unasked(flow, context, ["mv .env src/b; grep -rn x src", "git grep x HEAD -- src"]) == []


@pytest.mark.requirement("rules.hidden_reads")
async def test_where_questions_are_off_commands_show_what_is_hidden(folder: Path, context: ToolContext) -> None:
    hide(folder)
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert await unasked(flow_with(), yolo, ["cat .env", "cat .e*"]) == ["cat .env", "cat .e*"]


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *((path, ApprovalMode.YOLO) for path in AUTO_RUN_FILES),
        *((path, ApprovalMode.DEFAULT) for path in AUTO_RUN_FILES[3:5]),
    ],
)
async def test_an_auto_run_file_is_asked_about_however_it_is_named(
    context: ToolContext, path: str, mode: ApprovalMode
) -> None:
    flow = flow_with(permissions_allow=["Bash", "Edit"])
    commands = writings([path])
    assert len(commands) > 500
    assert await unasked(flow, in_mode(context, mode), commands) == []


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", OTHER_WRITES)
async def test_what_may_be_an_auto_run_file_is_asked_about_where_questions_are_off(
    context: ToolContext, command: str
) -> None:
    assert await unasked(flow_with(), in_mode(context, ApprovalMode.YOLO), [command]) == []


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", UNASKED_WRITES)
async def test_everyday_writing_runs_unasked_where_questions_are_off(context: ToolContext, command: str) -> None:
    assert await unasked(flow_with(), in_mode(context, ApprovalMode.YOLO), [command]) == [command]


@pytest.mark.requirement("policy.auto_run.commands")
async def test_words_without_end_cost_little(folder: Path, context: ToolContext) -> None:
    for number in range(300):
        (folder / "sub" / f"f{number}").write_text("")
    yolo = in_mode(context, ApprovalMode.YOLO)
    doubling = "".join(f"V{number}=$V{number + 1}$V{number + 1}; " for number in range(60))
    commands = [
        "rm sub/*",
        f"{doubling}V60=xxxxxxxx; cp sub/x $V0",
        f"cp sub/x {'{a,b}' * 30}",
        "for a in {1..99}; do for b in {1..99}; do cp sub/x $a$b$c; done; done",
        f"cp sub/x {'{' * 20_000}",
        f"X={'a' * 50_000}; cp sub/x ${{X%%*b}}",
        f"cp sub/x {'*/../' * 200}x",
    ]
    judged = [(await of_command(flow_with(), yolo, command)).verdict for command in commands]
    assert Verdict.DENY not in judged


READ_BY_A_CLIENT = [each for at, each in enumerate(readings()) if at % 23 == 0]
WRITTEN_BY_A_CLIENT = [each for at, each in enumerate(writings(["sub/../.npmrc", ".npmrc"])) if at % 41 == 0]


@pytest.mark.requirement("rules.hidden_reads")
async def test_a_client_whose_person_declines_is_never_shown_what_is_hidden(folder: Path, tmp_path: Path) -> None:
    hide(folder)
    rules = {"allow": ["Bash"]}
    answers = await answers_to(folder, tmp_path, {"permissions": rules}, READ_BY_A_CLIENT)
    assert len(answers) > 20
    assert [command for command, answer in answers.items() if SECRET in answer] == []


@pytest.mark.requirement("policy.auto_run.commands")
async def test_a_client_whose_person_declines_writes_no_auto_run_file(folder: Path, tmp_path: Path) -> None:
    settings = {"tools": {"approvalMode": "yolo"}}
    answers = await answers_to(folder, tmp_path, settings, WRITTEN_BY_A_CLIENT)
    assert len(answers) > 20
    assert not os.path.lexists(folder / ".npmrc")


async def answers_to(folder: Path, place: Path, settings: dict[str, Any], commands: list[str]) -> dict[str, str]:
    """What a real server answers to a client whose person says no to everything."""

    async def nobody(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    config = write_config(place, {"shell": {"sandbox": "off"}, **settings})
    answers: dict[str, str] = {}
    async with connected("stdio", HANDSHAKE, folder, config, elicitation_callback=nobody) as client:
        for command in commands:
            result = await client.call_tool("run_shell_command", {"command": command, "timeout": 5_000})
            answers[command] = result.model_dump_json()
    return answers


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf nested",
        "rm -r build nested",
        "mv nested other",
        "rm -rf deep",
        "git merge-file .git/config a.txt b.txt",
        "git merge-one-file '' '' x .mcp.json '' '' 100644",
        "git interpret-trailers --in-place --trailer a:b .envrc",
        "git symbolic-ref hooks/pre-push refs/heads/main",
    ],
)
async def test_an_auto_run_file_is_asked_about_where_its_folder_goes_or_git_writes_it(
    folder: Path, context: ToolContext, command: str
) -> None:
    for name in ("nested/.git/HEAD", "deep/er/.vscode/tasks.json"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x")
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert await unasked(flow_with(), yolo, [command]) == []
    free = ["rm -rf build", "mv src other", "mv a.txt nested/a.txt", "rm -rf node_modules"]
    assert await unasked(flow_with(), yolo, free) == free
