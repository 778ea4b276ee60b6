"""`edit`: one text in a file replaced by another, every other byte untouched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tools.contract.base import Behaviour, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.parameters import ToolParams, coerce
from tools.contract.result import ToolResult
from tools.filesystem.changing import (
    COMMON_OUTPUT,
    MAX_CHANGED_BYTES,
    PLAN,
    PROPOSED,
    SHA256_PATTERN,
    SHOWN_BYTES,
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
from tools.filesystem.edit_failures import Missed, check_count, not_found
from tools.filesystem.ignore import agent_ignore_file
from tools.filesystem.matching import Haystack, Match, Span, find
from tools.filesystem.omission import first_new_omission
from tools.filesystem.paths import FILE_ALIASES, check_spelling, file_spelling, shown
from tools.filesystem.replacing import apply
from tools.filesystem.snippets import regions
from tools.filesystem.text import UTF_8, Decoded, decode, eol_style, looks_binary, marked_encoding
from tools.filesystem.workspace import Location
from tools.filesystem.writer import exclusive

MAX_STRUCTURED_LINES = 100
"""Line numbers of replacements in the structured result."""

MAX_DESCRIBED_CHARS = 30
"""Characters of each text in the description of an edit (as both seeds do)."""


class EditParams(ToolParams):
    """What to replace by what."""

    file_path: str = Field(description="Path of the file, absolute or relative to the workspace.")
    old_string: str = Field(
        description="The exact text to replace, with enough lines around it to be unique. Empty creates a new file."
    )
    new_string: str = Field(
        description="The text to put in its place. Empty deletes; where old_string is whole lines, they go entirely."
    )
    replace_all: bool = Field(default=False, description="Replace every occurrence instead of exactly one.")
    expected_sha256: str | None = Field(
        default=None,
        pattern=SHA256_PATTERN,
        description="Edit only if the file's present content has this SHA-256 digest.",
    )
    expected_replacements: SkipJsonSchema[int | None] = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """An edit that is ready to be done.

    Args:
        location: The file.
        snapshot: What it is now.
        is_new: Whether it does not exist yet.
        new: The decoded text afterwards.
        diff: The change for people.
        data: The bytes afterwards.
        match: What was found, or `None` for a creation.
        spans: What was put in, in the new text.
        lines: Where the matches began, in the old text; the first `MAX_STRUCTURED_LINES`.
        hidden_by: The agent-ignore file that hides the file, or `None`.
    """

    location: Location
    snapshot: Snapshot
    is_new: bool
    new: Decoded
    diff: Diff
    data: bytes
    match: Match | None
    spans: tuple[Span, ...]
    lines: tuple[int, ...]
    hidden_by: str | None


class EditTool(BuiltinTool[EditParams]):
    """Replaces text in a file."""

    name = "edit"
    display_name = "Edit"
    aliases = ("replace", "EditTool", "Edit")
    description = (
        "Edit a file: replace old_string by new_string (search and replace, change, modify, insert or delete lines). "
        "old_string must be unique in the file unless replace_all is set; copy it from the file, white space "
        "included, without line numbers. Only the matched text changes: encoding, line endings and everything else "
        "stay as they are. If nothing matches, the answer shows the most similar lines and the likely cause. With an "
        "empty old_string a new file is created."
    )
    kind = Kind.EDIT
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = EditParams
    parameter_aliases = {**FILE_ALIASES, "allow_multiple": "replace_all"}  # noqa: RUF012 - declared as a Mapping
    output_schema = output_schema(
        {
            **COMMON_OUTPUT,
            "replacements": {"type": "integer", "description": "How many places were changed; 0 for a new file."},
            "strategy": {
                "type": ["string", "null"],
                "description": "How old_string was matched: exact, or what had to be forgiven; null for a new file.",
            },
            "lines": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "Line numbers, before the edit, where the replaced texts began; at most 100.",
            },
            "regions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "first": {"type": "integer"},
                        "last": {"type": "integer"},
                        "text": {"type": "string"},
                    },
                    "required": ["first", "last", "text"],
                    "additionalProperties": False,
                },
                "description": "The changed places with the lines around them, as the file is now.",
            },
        }
    )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the older count of expected replacements as an assertion; more than one means all."""
        expected = coerce(arguments.get("expected_replacements"), {"type": "integer"})
        if isinstance(expected, int) and not isinstance(expected, bool):
            arguments["expected_replacements"] = expected
            if expected > 1:
                arguments.setdefault("replace_all", True)
        return arguments

    def check(self, params: EditParams, spelled: Mapping[str, str]) -> None:
        """The path keeps what its spelling promises, and nothing is replaced by a placeholder."""
        check_spelling(self.name, params.file_path, file_spelling(spelled, "file_path"))
        omission = first_new_omission(params.new_string, params.old_string)
        if omission is not None:
            raise InvalidToolParamsError(
                self.name,
                f"the line '{omission}' in 'new_string' stands for text that was left out; writing it would delete "
                "that text. Give the complete replacement, or a smaller 'old_string'.",
            )

    def get_description(self, params: EditParams, context: ToolContext) -> str:
        """For example `Edit src/app.py: a = 1 => a = 2`."""
        path = shown(params.file_path, context.workspace)
        if not params.old_string:
            return f"Create {path}"
        if params.old_string == params.new_string:
            return f"No file changes to {path}"
        return f"Edit {path}: {_brief(params.old_string)} => {_brief(params.new_string)}"

    async def should_confirm_execute(self, params: EditParams, context: ToolContext) -> ConfirmationDetails:
        """The change as a diff; an edit that cannot succeed is not asked about."""

        def preview() -> _Plan:
            location = context.workspace.locate(params.file_path)
            with exclusive(location):
                return _plan(params, location, params.new_string, context)

        plan = await run_blocking(context.signal, preview)
        context.memo[PLAN] = plan
        return confirmation("Confirm Edit", plan.location, plan.diff, plan.snapshot, params.new_string)

    async def execute(self, params: EditParams, context: ToolContext) -> ToolResult:
        """Edit in one thread hop, with other writers of this file kept away."""
        previewed = context.memo.pop(PLAN, None)

        def change() -> ToolResult:
            proposal = settled_text(context, params.new_string)
            location = context.workspace.locate(params.file_path)
            with exclusive(location):
                if isinstance(previewed, _Plan) and not proposal.is_users and _still_fits(previewed, location, context):
                    plan = previewed
                else:
                    plan = _plan(params, location, proposal.text, context)
                check_fresh(location, plan.snapshot, context.client.reads, params.expected_sha256)
                committed = commit(location, plan.data, plan.snapshot, context)
            return _result(plan, proposal, committed)

        return await run_blocking(context.signal, change)


def _still_fits(plan: _Plan, location: Location, context: ToolContext) -> bool:
    return plan.location == location and plan.snapshot.is_current(context.workspace, location)


def _brief(text: str) -> str:
    line = text.strip().partition("\n")[0].rstrip()
    short = line[:MAX_DESCRIBED_CHARS]
    return short if short == text else f"{short}..."


def _plan(params: EditParams, location: Location, new_string: str, context: ToolContext) -> _Plan:
    snapshot = take_snapshot(location, context)
    if snapshot.data is None:
        return _creation(params, location, snapshot, new_string)
    if not params.old_string:
        raise ToolError(
            ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE,
            f"'{location.spelled}' exists already, so it was not created. Give the text to replace as old_string, "
            "or use write_file to replace the whole content.",
        )
    check_fresh(location, snapshot, context.client.reads, params.expected_sha256)
    old = _decoded(location, snapshot.data, params.old_string, new_string)
    context.signal.raise_if_aborted()
    hidden_by = agent_ignore_file(context.workspace, location)
    haystack = Haystack(old.text, is_unknown=not old.encoding.is_known)
    match = find(haystack, params.old_string)
    if match is None or not match.spans:
        is_read = context.client.reads is None or context.client.reads.get(location.path) is not None
        missed = Missed(
            params.old_string, params.new_string, match.skipped if match is not None else 0, is_read=is_read
        )
        raise not_found(haystack, missed, location, is_hidden=hidden_by is not None)
    lines = tuple(haystack.line_number(span.start) for span in match.spans[:MAX_STRUCTURED_LINES])
    check_count(params.expected_replacements, match, lines, location, is_for_all=params.replace_all)
    _check_size(params, match, old.text, location)
    edited = apply(haystack, match, params.old_string, new_string)
    if edited.text == old.text:
        raise ToolError(
            ToolErrorType.EDIT_NO_CHANGE,
            f"The edit would leave '{location.spelled}' as it is: what it puts in place of old_string is there "
            "already. Nothing was written.",
        )
    data = encoded(edited.text, old.encoding, "new_string")
    new = Decoded(edited.text, old.encoding)
    diff = unified_diff(old.shown(), new.shown())
    return _Plan(location, snapshot, False, new, diff, data, match, edited.spans, lines, hidden_by)


def _check_size(params: EditParams, match: Match, text: str, location: Location) -> None:
    """Refuse an edit whose result is too large, before anything of that size is built."""
    growth = len(match.spans) * max(0, len(params.new_string) - len(params.old_string))
    if len(text) + growth > MAX_CHANGED_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"The edit would make '{location.spelled}' larger than {MAX_CHANGED_BYTES:,} bytes: old_string was "
            f"found {len(match.spans):,} times, and new_string has {len(params.new_string):,} characters. "
            "Nothing was written.",
        )


def _creation(params: EditParams, location: Location, snapshot: Snapshot, new_string: str) -> _Plan:
    if params.old_string:
        raise ToolError(
            ToolErrorType.FILE_NOT_FOUND,
            f"'{location.spelled}' does not exist, so nothing in it can be replaced. Check the path with "
            "list_directory or glob; to create the file, give an empty old_string or use write_file.",
        )
    check_fresh(location, snapshot, None, params.expected_sha256)
    data = encoded(new_string, UTF_8, "new_string")
    diff = unified_diff(None, new_string)
    return _Plan(location, snapshot, True, Decoded(new_string, UTF_8), diff, data, None, (), (), None)


def _decoded(location: Location, data: bytes, old_string: str, new_string: str) -> Decoded:
    """The text of the file, if it can be changed without touching a byte that does not belong to the change."""
    decoded = None if marked_encoding(data) is None and looks_binary(data) else decode(data)
    if decoded is None:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.spelled}' is no text that can be edited: it is binary, or damaged UTF-16 or UTF-32. "
            "Nothing was written.",
        )
    if not decoded.encoding.is_known and not (old_string.isascii() and new_string.isascii()):
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.spelled}' is in an encoding that is not known here (no UTF-8), so only ASCII text in it can "
            "be replaced, and only by ASCII text. Choose an old_string and a new_string without other characters, "
            "or convert the file to UTF-8 first. Nothing was written.",
        )
    return decoded


def _result(plan: _Plan, proposal: Proposal, committed: Committed) -> ToolResult:
    diff = plan.diff
    eol = eol_style(plan.new.text)
    notes = list(committed.notes)
    if plan.match is not None and plan.match.strategy.is_relaxed:
        how = plan.match.strategy.value.replace("_", " ")
        notes.append(f"old_string was not there exactly; it was matched but for {how}.")
    if plan.match is not None and plan.match.skipped:
        notes.append(f"{plan.match.skipped} other places may begin inside a character and were left alone.")
    if proposal.is_users:
        notes.append("The user changed the new text before it was written.")
    final_diff = (
        clipped(diff.text(os.path.basename(plan.location.path), PROPOSED))
        if proposal.is_users and plan.hidden_by is None
        else ""
    )
    changed = [] if final_diff or plan.hidden_by is not None else _shown_regions(plan)
    form = f"{len(plan.data):,} bytes, {plan.new.encoding.name}" + (f", {eol}" if eol else "")
    count = len(plan.spans)
    if plan.is_new:
        sentence = f"Created the new file {plan.location.path}: {diff.added} lines, {form}."
    else:
        what = "1 replacement" if count == 1 else f"{count} replacements"
        sentence = f"Edited {plan.location.path}: {what}, +{diff.added} -{diff.removed} lines; now {form}."
    text = [" ".join([sentence, *notes])]
    text += [f"Lines {region['first']}-{region['last']} now:\n---\n{region['text']}\n---" for region in changed]
    text += [f"The final change:\n{final_diff}"] if final_diff else []
    return ToolResult(
        llm_content="\n".join(text),
        return_display=display(plan.location, diff, PROPOSED, is_new=plan.is_new, hidden_by=plan.hidden_by),
        structured={
            "path": plan.location.path,
            "created": plan.is_new,
            "added": diff.added,
            "removed": diff.removed,
            "bytes": len(plan.data),
            "encoding": plan.new.encoding.name,
            "eol": eol,
            "sha256": committed.sha256,
            "links_broken": committed.links_broken,
            "user_modified": proposal.is_users,
            "notes": notes,
            "diff": final_diff,
            "replacements": count,
            "strategy": plan.match.strategy.value if plan.match is not None else None,
            "lines": list(plan.lines),
            "regions": changed,
        },
    )


def _shown_regions(plan: _Plan) -> list[dict[str, Any]]:
    """The changed places for the model, as many as fit."""
    room = SHOWN_BYTES
    result: list[dict[str, Any]] = []
    found, _ = regions(plan.new.text, plan.spans, room)
    for region in found:
        if room <= 0:
            break
        text = clipped(Decoded(region.text, plan.new.encoding).shown(), room)
        room -= len(text.encode("utf-8", "replace"))
        result.append({"first": region.first, "last": region.last, "text": text})
    return result
