"""Paths that do not exist: which paths are suggested, which look-alikes are read, and what must not be disclosed."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import all_cases
from tools.builtin.edit import EditTool, WriteFileTool
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.builtin.search_tools import GlobTool, GrepTool, LSTool
from tools.call.base_tool import BaseTool, ClientState, ToolContext
from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.path_suggestions import proposal
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio


async def call(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> str:
    """Return the text of a call's result, whatever its parts are."""
    result = await tool.execute(tool.validate_tool_params(arguments), context)
    content = result.llm_content
    parts = [content] if not isinstance(content, list | tuple) else content
    return "\n".join(getattr(part, "text", str(part)) for part in parts)


async def refusal(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as error_info:
        await call(tool, context, **arguments)
    return error_info.value


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
async def test_the_path_that_was_probably_meant_is_suggested(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts", "src/components/Button.tsx", "docs/README.md", "my file.txt")
    with all_cases() as case:
        for path, proposed_path in (
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
            with case(path):
                error = await refusal(ReadFileTool(), context, file_path=path)
                assert error.code is ToolErrorType.FILE_NOT_FOUND
                assert f"Did you mean '{proposed_path}'" in error.message
    error = await refusal(ReadFileTool(), context, absolute_path=str(root / "src/apps.ts"))
    assert f"Did you mean '{root / 'src/app.ts'}'?" in error.message
    assert "Did you mean" not in (await refusal(ReadFileTool(), context, file_path="zzz.qqq")).message


@pytest.mark.requirement("names.proposed")
async def test_every_tool_suggests_a_path_if_the_given_one_does_not_exist(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts")
    for tool, arguments, code, proposed_path in (
        (EditTool(), {"file_path": "src/App.ts", "old_string": "a", "new_string": "b"}, "file_not_found", "src/app.ts"),
        (LSTool(), {"path": "scr"}, "file_not_found", "src"),
        (GlobTool(), {"pattern": "*", "path": "Src"}, "search_path_not_found", "src"),
        (GrepTool(), {"pattern": "a", "path": "app.ts"}, "search_path_not_found", "src/app.ts"),
    ):
        error = await refusal(tool, context, **arguments)
        assert (error.code, f"Did you mean '{proposed_path}'" in error.message) == (code, True), (
            tool.name,
            error.message,
        )
    assert "does not exist. Did you mean 'src/app.ts'?" in await call(
        ReadManyFilesTool(), context, paths=["src/apps.ts"]
    )


@pytest.mark.requirement("names.hidden")
async def test_hidden_or_outside_paths_are_neither_suggested_nor_read_as_look_alikes(
    root: Path, context: ToolContext
) -> None:
    fill(root, "secret/key.txt", "agents.txt", "caf\u00e9.txt")
    outside_file = root.parent / "outside.txt"
    outside_file.write_text("outside\n")
    (root / "user\u2019s.txt").symlink_to(outside_file)
    (root / "linked.txt").symlink_to(outside_file)
    (root / ".qwenignore").write_text("agents.txt\n")

    def rule_about(path: str) -> str | None:
        return "rule" if "/secret" in path or path.endswith("caf\u00e9.txt") else None

    context = replace(context, workspace=Workspace([str(root)], forbidden=rule_about))
    for path in ("secret/keys.txt", "key.txt", "secrets", "agent.txt", "cafe\u0301.txt", "user's.txt", "link.txt"):
        error = await refusal(ReadFileTool(), context, file_path=path)
        assert error.code is ToolErrorType.FILE_NOT_FOUND, path
        assert "Did you mean" not in error.message, error.message
    await call(WriteFileTool(), context, file_path="cafe\u0301.txt", content="mine\n")
    assert (root / "caf\u00e9.txt").read_text() == "caf\u00e9.txt\n"


LOOK_ALIKES = (
    ("Shot at 4.42\u202fPM.txt", "Shot at 4.42 PM.txt", '"Shot at 4.42\\u202fPM.txt"'),
    ("a\u00a0b.txt", "a b.txt", '"a\\u00a0b.txt"'),
    ("2024\u201325.txt", "2024-25.txt", '"2024\\u201325.txt"'),
    ("cafe\u0301.md", "caf\u00e9.md", '"cafe\\u0301.md"'),
    ("\u00fcber.md", "u\u0308ber.md", '"\\u00fcber.md"'),
    ("user\u2019s.txt", "user's.txt", '"user\\u2019s.txt"'),
    ("plain.txt", "pl\u200bain.txt", "plain.txt"),
    ("zero\u200b.txt", "zero.txt", '"zero\\u200b.txt"'),
    ("M\u00fcll/in.txt", "Mu\u0308ll/in.txt", '"M\\u00fcll"/in.txt'),
)


@pytest.mark.requirement("names.look")
async def test_the_only_file_that_looks_the_same_is_read_with_a_note(root: Path, context: ToolContext) -> None:
    fill(root, *(name for name, _, _ in LOOK_ALIKES))
    for name, path, exact_name in LOOK_ALIKES:
        text = await call(ReadFileTool(), context, file_path=path)
        assert text.startswith(f"{name}\n"), path
        assert exact_name in text, path
        assert f"\n{name}\n" in await call(ReadManyFilesTool(), context, paths=[path])
        if path != "zero.txt":  # glob compares looks only if the pattern has a character with look-alikes
            assert "Found 1 file" in await call(GlobTool(), context, pattern=path)
            assert "Found 1 match" in await call(GrepTool(), context, pattern=".", glob=path)
    assert "in.txt" in await call(LSTool(), context, path="Mu\u0308ll")
    fill(root, "a\u2002b.txt")
    error = await refusal(ReadFileTool(), context, file_path="a b.txt")
    assert all(exact_name in error.message for exact_name in ('"a\\u00a0b.txt"', '"a\\u2002b.txt"'))


@pytest.mark.requirement("names.look")
async def test_a_file_beside_a_look_alike_is_created_only_on_the_second_request(
    root: Path, context: ToolContext
) -> None:
    fill(root, "cafe\u0301.md")
    for tool, arguments in (
        (WriteFileTool(), {"content": "twin\n"}),
        (EditTool(), {"old_string": "", "new_string": "x\n"}),
    ):
        (root / "caf\u00e9.md").unlink(missing_ok=True)
        client = replace(context, client=ClientState("another"))
        error = await refusal(tool, client, file_path="caf\u00e9.md", **arguments)
        assert error.code is ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE
        assert '"cafe\\u0301.md"' in error.message
        assert not (root / "caf\u00e9.md").exists()
        await call(tool, client, file_path="caf\u00e9.md", **arguments)
        assert (root / "caf\u00e9.md").exists()
        (root / "caf\u00e9.md").unlink()
        anonymous = replace(context, client=ClientState(""))
        for _ in range(2):
            error = await refusal(tool, anonymous, file_path="caf\u00e9.md", **arguments)
        await call(tool, anonymous, file_path='"caf\\u00e9.md"', **arguments)
        assert (root / "caf\u00e9.md").exists()


@pytest.mark.requirement("names.look")
async def test_a_path_that_seems_to_mean_an_existing_file_is_created_only_on_the_second_request(
    root: Path, context: ToolContext
) -> None:
    fill(root, "src/app.ts", "x.py")
    for path in ("@src/app.ts", "`x.py`", "x.py:12", "src\\app.ts", "src/app.ts#L3"):
        with pytest.raises(ToolError) as error_info:
            await call(WriteFileTool(), context, file_path=path, content="x\n")
        assert error_info.value.code is ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE, path
        assert ("src/app.ts" if "app" in path else "x.py") in error_info.value.message
        assert not (root / path).exists()
    await call(WriteFileTool(), context, file_path="x.py:12", content="x\n")
    await call(WriteFileTool(), context, file_path="a/x.py", content="x\n")
    # `coretools-mcp call` has a new session each time, so a quoted name must do there too.
    for client, name in ((ClientState(""), "x.py:3"), (ClientState("new"), "x.py:4")):
        new_context = replace(context, client=client)
        error = await refusal(WriteFileTool(), new_context, file_path=name, content="x\n")
        quoted_name = error.message.partition("write the name as '")[2].partition("', including the quotes")[0]
        await call(
            WriteFileTool(), replace(new_context, client=ClientState(client.key)), file_path=quoted_name, content="x\n"
        )
        assert (root / name).exists()
    await call(WriteFileTool(), context, file_path="new.py:12", content="x\n")


@pytest.mark.requirement("names.bounded")
def test_the_search_for_suggestions_ends_at_its_deadline(root: Path, context: ToolContext) -> None:
    fill(root, "src/app.ts")
    location = context.workspace.locate("src/apps.ts")
    assert proposal(context.workspace, location, Deadline(AbortSignal(), 0), otherwise="") == ""
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        proposal(context.workspace, location, Deadline(signal, 1))
    assert error_info.value.code is ToolErrorType.CANCELLED
