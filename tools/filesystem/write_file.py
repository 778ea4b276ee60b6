"""`write_file`: the whole content of one file, new or replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from tools.contract.base import Behaviour, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.parameters import ToolParams
from tools.contract.result import ToolResult
from tools.filesystem.changing import (
    COMMON_OUTPUT,
    PLAN,
    SHA256_PATTERN,
    Committed,
    Proposal,
    Snapshot,
    check_fresh,
    clipped,
    commit,
    confirmation,
    display,
    encoded,
    output_schema,
    settled_text,
    take_snapshot,
)
from tools.filesystem.diff import Diff, unified_diff
from tools.filesystem.ignore import agent_ignore_file
from tools.filesystem.omission import first_new_omission
from tools.filesystem.paths import FILE_ALIASES, check_spelling, file_spelling, shown
from tools.filesystem.text import UTF_8, Encoding, decode, eol_style, line_endings, looks_binary, marked_encoding
from tools.filesystem.workspace import Location
from tools.filesystem.writer import exclusive

_WRITTEN = ("Original", "Written")
"""What the two sides of the diff in a result are called (both seeds' words)."""


class WriteFileParams(ToolParams):
    """What to write where."""

    file_path: str = Field(description="Path of the file, absolute or relative to the workspace.")
    content: str = Field(description="The complete new content of the file, byte for byte as it shall be written.")
    expected_sha256: str | None = Field(
        default=None,
        pattern=SHA256_PATTERN,
        description="Write only if the file's present content has this SHA-256 digest.",
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A write that is ready to be done.

    Args:
        location: The file.
        snapshot: What it is now.
        new: Its text afterwards.
        diff: The change for people.
        data: Its bytes afterwards.
        encoding: Of the new bytes.
        notes: What the model should know about the change of form.
    """

    location: Location
    snapshot: Snapshot
    new: str
    diff: Diff
    data: bytes
    encoding: Encoding
    notes: list[str] = field(default_factory=list[str])


class WriteFileTool(BuiltinTool[WriteFileParams]):
    """Creates a file, or replaces all of its content."""

    name = "write_file"
    display_name = "WriteFile"
    aliases = ("WriteFileTool", "WriteFile")
    description = (
        "Write a file: create a new file or overwrite (replace, save) an existing one with the complete content "
        "given. Missing folders are created. An existing file keeps its encoding, byte order mark and line endings. "
        "To change only a part of a file use edit. The content is written literally: no escapes are interpreted, and "
        "placeholders such as '// rest of code ...' are refused."
    )
    kind = Kind.EDIT
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=True)
    params_model = WriteFileParams
    parameter_aliases = FILE_ALIASES
    output_schema = output_schema(
        {
            **COMMON_OUTPUT,
            "changed": {"type": "boolean", "description": "False if the file held exactly this content already."},
            "lines": {"type": "integer", "description": "Lines in the file now."},
        }
    )

    def check(self, params: WriteFileParams, spelled: Mapping[str, str]) -> None:
        """The path keeps what its spelling promises."""
        check_spelling(self.name, params.file_path, file_spelling(spelled, "file_path"))

    def get_description(self, params: WriteFileParams, context: ToolContext) -> str:
        """For example `Write src/app.py`."""
        return f"Write {shown(params.file_path, context.workspace)}"

    async def should_confirm_execute(self, params: WriteFileParams, context: ToolContext) -> ConfirmationDetails:
        """The change as a diff against what is there now."""

        def preview() -> _Plan:
            location = context.workspace.locate(params.file_path)
            with exclusive(location):
                return _plan(params, location, Proposal(params.content), context)

        plan = await run_blocking(context.signal, preview)
        context.memo[PLAN] = plan
        return confirmation("Confirm Write", plan.location, plan.diff, plan.snapshot, params.content)

    async def execute(self, params: WriteFileParams, context: ToolContext) -> ToolResult:
        """Write in one thread hop, with other writers of this file kept away."""
        previewed = context.memo.pop(PLAN, None)

        def write() -> ToolResult:
            proposal = settled_text(context, params.content)
            location = context.workspace.locate(params.file_path)
            with exclusive(location):
                if isinstance(previewed, _Plan) and not proposal.is_users and _still_fits(previewed, location, context):
                    plan = previewed
                else:
                    plan = _plan(params, location, proposal, context)
                check_fresh(location, plan.snapshot, context.client.reads, params.expected_sha256)
                committed = commit(location, plan.data, plan.snapshot, context)
            return _result(plan, proposal, context, committed)

        return await run_blocking(context.signal, write)


def _still_fits(plan: _Plan, location: Location, context: ToolContext) -> bool:
    return plan.location == location and plan.snapshot.is_current(context.workspace, location)


def _plan(params: WriteFileParams, location: Location, proposal: Proposal, context: ToolContext) -> _Plan:
    snapshot = take_snapshot(location, context)
    check_fresh(location, snapshot, context.client.reads, params.expected_sha256)
    old, encoding, notes = _present(snapshot)
    omission = None if proposal.is_users else first_new_omission(proposal.text, old or "")
    if omission is not None:
        raise InvalidToolParamsError(
            WriteFileTool.name,
            f"the line '{omission}' stands for text that was left out; writing it would delete that text. "
            "Give the complete content, or use edit to change only a part.",
        )
    new = proposal.text
    ending = line_endings(old).majority if old and "\r" in old and "\r" not in new else None
    if ending is not None:
        new = new.replace("\n", ending)
    data = encoded(new, encoding, "content")
    return _Plan(location, snapshot, new, unified_diff(old, new), data, encoding, notes)


def _present(snapshot: Snapshot) -> tuple[str | None, Encoding, list[str]]:
    """The present text for people, the encoding to write in, and what has to be told about that."""
    if snapshot.data is None:
        return None, UTF_8, []
    if marked_encoding(snapshot.data) is None and looks_binary(snapshot.data):
        return "", UTF_8, [f"The file held {len(snapshot.data):,} bytes that are no text; all of it was replaced."]
    decoded = decode(snapshot.data)
    if decoded is not None and decoded.encoding.is_known:
        return decoded.text, decoded.encoding, []
    note = "The file was not valid UTF-8 (nor UTF-16 or UTF-32 with a mark); the new content is UTF-8."
    return (decoded.shown() if decoded is not None else ""), UTF_8, [note]


def _result(plan: _Plan, proposal: Proposal, context: ToolContext, committed: Committed) -> ToolResult:
    is_new = plan.snapshot.data is None
    is_changed = plan.snapshot.data != plan.data
    diff = plan.diff
    eol = eol_style(plan.new)
    lines = plan.new.count("\r" if eol == "cr" else "\n")
    lines += bool(plan.new) and not plan.new.endswith(("\n", "\r"))
    notes = [*(plan.notes if is_changed else []), *committed.notes]
    if proposal.is_users:
        notes.append("The user changed the content before it was written.")
    hidden_by = None if is_new else agent_ignore_file(context.workspace, plan.location)
    final_diff = (
        clipped(diff.text(os.path.basename(plan.location.path), _WRITTEN))
        if proposal.is_users and hidden_by is None
        else ""
    )
    form = f"{lines} {'line' if lines == 1 else 'lines'}, {len(plan.data):,} bytes, {plan.encoding.name}"
    form += f", {eol}" if eol else ""
    if is_new:
        sentence = f"Created the new file {plan.location.path}: {form}."
    elif is_changed:
        sentence = f"Overwrote {plan.location.path}: +{diff.added} -{diff.removed} lines; now {form}."
    else:
        sentence = f"{plan.location.path} holds exactly this content already; nothing was written."
    return ToolResult(
        llm_content="\n".join(
            [" ".join([sentence, *notes]), *([f"The final change:\n{final_diff}"] if final_diff else [])]
        ),
        return_display=display(plan.location, diff, _WRITTEN, is_new=is_new, hidden_by=hidden_by),
        structured={
            "path": plan.location.path,
            "created": is_new,
            "changed": is_changed,
            "added": diff.added,
            "removed": diff.removed,
            "lines": lines,
            "bytes": len(plan.data),
            "encoding": plan.encoding.name,
            "eol": eol,
            "sha256": committed.sha256,
            "links_broken": committed.links_broken,
            "user_modified": proposal.is_users,
            "notes": notes,
            "diff": final_diff,
        },
    )
