"""Paths at which nothing is: what is proposed, what is read because it looks the same, and what must not be told."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import all_cases
from tools.builtin.edit import EditTool, WriteFileTool
from tools.builtin.find_files import GlobTool, GrepTool, LSTool
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.call.base_tool import BaseTool, ClientState, ToolContext
from tools.contract.limits import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.path_suggestions import proposal
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio


async def call(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> str:
    """The text of a call's result, whatever its parts are."""
    result = await tool.execute(tool.validate_tool_params(arguments), context)
    content = result.llm_content
    parts = [content] if not isinstance(content, list | tuple) else content
    return "\n".join(getattr(part, "text", str(part)) for part in parts)


async def refusal(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await call(tool, context, **arguments)
    return caught.value


def fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


@pytest.mark.requirement("names.proposed")
def test_a_proposal_leaves_no_garbage(root: Path) -> None:
    fill(root, "src/app.ts", "src/other.ts")
    workspace = Workspace([str(root)])
    location = workspace.locate("src/apps.ts")
    proposal(workspace, location, Deadline(AbortSignal(), 60))
    gc.collect()
    gc.disable()
    try:
        proposal(workspace, location, Deadline(AbortSignal(), 60))
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.requirement("names.proposed")
async def test_what_was_probably_meant_is_proposed(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts", "src/components/Button.tsx", "docs/README.md", "my file.txt")
    with all_cases() as case:
        for given, meant in (
            ("src/apps.ts", "src/app.ts"),
            ("src/app.js", "src/app.ts"),
            ("src/app", "src/app.ts"),
            ("app.ts", "src/app.ts"),
            ("SRC/App.ts", "src/app.ts"),
            ("src\\app.ts", "src/app.ts"),
            ("@src/app.ts", "src/app.ts"),
            ("src/app.ts:12", "src/app.ts"),
            ("src/app.ts:12:5", "src/app.ts"),
            ("src/app.ts#L3-L7", "src/app.ts"),
            ("`src/app.ts`", "src/app.ts"),
            ("'src/app.ts',", "src/app.ts"),
            ("`@src\\apps.ts:7`", "src/app.ts"),
            ("b/src/app.ts", "src/app.ts"),
            ("my%20file.txt", "my file.txt"),
            ("src/app.ts/x", "src/app.ts"),
            ("scr/components/Button.tsx", "src/components/Button.tsx"),
            ("src/componens/Unknown.tsx", "src/components"),
            ("readme.md", "docs/README.md"),
        ):
            with case(given):
                error = await refusal(ReadFileTool(), context, file_path=given)
                assert error.code is ToolErrorType.FILE_NOT_FOUND
                assert f"Did you mean '{meant}'" in error.message
    error = await refusal(ReadFileTool(), context, absolute_path=str(root / "src/apps.ts"))
    assert f"Did you mean '{root / 'src/app.ts'}'?" in error.message
    assert "Did you mean" not in (await refusal(ReadFileTool(), context, file_path="zzz.qqq")).message


@pytest.mark.requirement("names.proposed")
async def test_every_tool_that_finds_nothing_at_a_path_proposes(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts")
    for tool, arguments, code, meant in (
        (EditTool(), {"file_path": "src/App.ts", "old_string": "a", "new_string": "b"}, "file_not_found", "src/app.ts"),
        (LSTool(), {"path": "scr"}, "file_not_found", "src"),
        (GlobTool(), {"pattern": "*", "path": "Src"}, "search_path_not_found", "src"),
        (GrepTool(), {"pattern": "a", "path": "app.ts"}, "search_path_not_found", "src/app.ts"),
    ):
        error = await refusal(tool, context, **arguments)
        assert (error.code, f"Did you mean '{meant}'" in error.message) == (code, True), (tool.name, error.message)
    assert "does not exist. Did you mean 'src/app.ts'?" in await call(
        ReadManyFilesTool(), context, paths=["src/apps.ts"]
    )


@pytest.mark.requirement("names.hidden")
async def test_nothing_hidden_or_outside_is_proposed_or_read_for_its_look(root: Path, context: ToolContext) -> None:
    fill(root, "secret/key.txt", "agents.txt", "caf\u00e9.txt")
    outside = root.parent / "outside.txt"
    outside.write_text("outside\n")
    (root / "user\u2019s.txt").symlink_to(outside)
    (root / "linked.txt").symlink_to(outside)
    (root / ".qwenignore").write_text("agents.txt\n")

    def forbidden(path: str) -> str | None:
        return "rule" if "/secret" in path or path.endswith("caf\u00e9.txt") else None

    context = replace(context, workspace=Workspace([str(root)], forbidden=forbidden))
    for given in ("secret/keys.txt", "key.txt", "secrets", "agent.txt", "cafe\u0301.txt", "user's.txt", "link.txt"):
        error = await refusal(ReadFileTool(), context, file_path=given)
        assert error.code is ToolErrorType.FILE_NOT_FOUND, given
        assert "Did you mean" not in error.message, error.message
    await call(WriteFileTool(), context, file_path="cafe\u0301.txt", content="mine\n")
    assert (root / "caf\u00e9.txt").read_text() == "caf\u00e9.txt\n"


LOOK_ALIKES = (
    ("Shot at 4.42\u202fPM.txt", "Shot at 4.42 PM.txt", '"Shot at 4.42\\u202fPM.txt"'),
    ("a\u00a0b.txt", "a b.txt", '"a\\u00a0b.txt"'),
    ("cafe\u0301.md", "caf\u00e9.md", '"cafe\\u0301.md"'),
    ("\u00fcber.md", "u\u0308ber.md", '"\\u00fcber.md"'),
    ("user\u2019s.txt", "user's.txt", '"user\\u2019s.txt"'),
    ("plain.txt", "pl\u200bain.txt", "plain.txt"),
    ("zero\u200b.txt", "zero.txt", '"zero\\u200b.txt"'),
    ("M\u00fcll/in.txt", "Mu\u0308ll/in.txt", '"M\\u00fcll"/in.txt'),
)


@pytest.mark.requirement("names.look")
async def test_the_one_file_that_looks_the_same_is_read_with_a_remark(root: Path, context: ToolContext) -> None:
    fill(root, *(name for name, _, _ in LOOK_ALIKES))
    for name, given, exact in LOOK_ALIKES:
        text = await call(ReadFileTool(), context, file_path=given)
        assert text.startswith(f"{name}\n"), given
        assert exact in text, given
        assert f"\n{name}\n" in await call(ReadManyFilesTool(), context, paths=[given])
        if given != "zero.txt":  # most patterns are as plain as this one, and are not held against looks
            assert "Found 1 file" in await call(GlobTool(), context, pattern=given)
    assert "in.txt" in await call(LSTool(), context, path="Mu\u0308ll")
    fill(root, "a\u2002b.txt")
    error = await refusal(ReadFileTool(), context, file_path="a b.txt")
    assert all(exact in error.message for exact in ('"a\\u00a0b.txt"', '"a\\u2002b.txt"'))


@pytest.mark.requirement("names.look")
async def test_nothing_is_made_beside_what_looks_the_same_until_it_is_asked_for_again(
    root: Path, context: ToolContext
) -> None:
    fill(root, "cafe\u0301.md")
    for tool, text in ((WriteFileTool(), {"content": "twin\n"}), (EditTool(), {"old_string": "", "new_string": "x\n"})):
        (root / "caf\u00e9.md").unlink(missing_ok=True)
        client = replace(context, client=ClientState("another"))
        error = await refusal(tool, client, file_path="caf\u00e9.md", **text)
        assert error.code is ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE
        assert '"cafe\\u0301.md"' in error.message
        assert not (root / "caf\u00e9.md").exists()
        await call(tool, client, file_path="caf\u00e9.md", **text)
        assert (root / "caf\u00e9.md").exists()
        (root / "caf\u00e9.md").unlink()
        nobody = replace(context, client=ClientState(""))
        for _ in range(2):
            error = await refusal(tool, nobody, file_path="caf\u00e9.md", **text)
        await call(tool, nobody, file_path='"caf\\u00e9.md"', **text)
        assert (root / "caf\u00e9.md").exists()


@pytest.mark.requirement("names.look")
async def test_nothing_is_made_under_a_path_with_marks_around_one_that_is_there_until_it_is_asked_for_again(
    root: Path, context: ToolContext
) -> None:
    fill(root, "src/app.ts", "x.py")
    for path in ("@src/app.ts", "`x.py`", "x.py:12", "src\\app.ts", "src/app.ts#L3"):
        with pytest.raises(ToolError) as caught:
            await call(WriteFileTool(), context, file_path=path, content="x\n")
        assert caught.value.code is ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE, path
        assert ("src/app.ts" if "app" in path else "x.py") in caught.value.message
        assert not (root / path).exists()
    await call(WriteFileTool(), context, file_path="x.py:12", content="x\n")
    await call(WriteFileTool(), context, file_path="a/x.py", content="x\n")
    nobody = replace(context, client=ClientState(""))
    error = await refusal(WriteFileTool(), nobody, file_path="x.py:3", content="x\n")
    quoted = error.message.partition("write the name as '")[2].partition("', including the quotes")[0]
    await call(WriteFileTool(), nobody, file_path=quoted, content="x\n")
    assert (root / "x.py:3").exists()
    await call(WriteFileTool(), context, file_path="new.py:12", content="x\n")


@pytest.mark.requirement("names.bounded")
def test_no_more_is_looked_at_once_the_time_is_up(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts")
    location = context.workspace.locate("src/apps.ts")
    assert proposal(context.workspace, location, Deadline(AbortSignal(), 0), otherwise="") == ""
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as caught:
        proposal(context.workspace, location, Deadline(signal, 1))
    assert caught.value.code is ToolErrorType.CANCELLED
