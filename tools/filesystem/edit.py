"""`edit`: one text in a file replaced by another, every other byte untouched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tools.contract.base import Behaviour
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.names import one_line, shown_whole_path
from tools.contract.parameters import ToolParams, coerce
from tools.filesystem.changing.changed_regions import regions
from tools.filesystem.changing.changing_tool import (
    COMMON_OUTPUT,
    PROPOSED,
    SHA256_PATTERN,
    SHOWN_BYTES,
    Aim,
    Change,
    ChangingTool,
    Committed,
    Proposal,
    Report,
    clipped,
    encode_or_refuse,
    output_schema,
)
from tools.filesystem.changing.diff import unified_diff
from tools.filesystem.changing.failures import Missed, check_count, check_number, not_found
from tools.filesystem.changing.matching import Haystack, Match, Span, find_match
from tools.filesystem.changing.omission import first_new_omission
from tools.filesystem.changing.replacing import apply_edit
from tools.filesystem.changing.snapshot import MAX_CHANGED_BYTES, Snapshot, check_fresh, take_snapshot
from tools.filesystem.ignore import agent_ignore_file
from tools.filesystem.legacy_encoding import Guess, check_fits, decode_as_named, guess
from tools.filesystem.paths import FILE_ALIASES, check_spelling, shown
from tools.filesystem.text import UTF_8, Decoded, decode, looks_binary, marked_encoding
from tools.filesystem.workspace import Location

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
    encoding: str | None = Field(
        default=None,
        max_length=40,
        description="Encoding of a file that is not UTF-8 and has no mark, such as 'windows-1252' or 'shift_jis'; "
        "needed to replace or insert other than ASCII text in it.",
    )
    expected_replacements: SkipJsonSchema[int | None] = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit(Change):
    """An edit that is ready to be done.

    Args:
        match: What was found, or `None` for a creation.
        spans: What was put in, in the new text.
        lines: Where the matches began, in the old text; the first `MAX_STRUCTURED_LINES`.
    """

    match: Match | None = None
    spans: tuple[Span, ...] = ()
    lines: tuple[int, ...] = ()


class EditTool(ChangingTool[EditParams, _Edit]):
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
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = EditParams
    question = "Confirm Edit"
    labels = PROPOSED
    proposal_noun = "new text"
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
        check_spelling(self.name, params.file_path, spelled.get("file_path", "file_path"))
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

    def aim(self, params: EditParams) -> Aim:
        """The text to put in."""
        return Aim(params.file_path, params.new_string, params.expected_sha256)

    def plan(self, params: EditParams, location: Location, proposal: Proposal, context: ToolContext) -> _Edit:
        """The file with the text replaced, or the new file."""
        new_string = proposal.text
        snapshot = take_snapshot(location, context)
        if snapshot.data is None:
            return _creation(params, location, snapshot, new_string)
        hidden_by = agent_ignore_file(context.workspace, location)
        if hidden_by is not None:
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"'{location.shown}' is hidden from agents by {hidden_by}, so no part of it is replaced: whether that "
                "works would tell what it holds. Use write_file to replace all of it, or ask the user to change "
                "that file.",
            )
        if not params.old_string:
            raise ToolError(
                ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE,
                f"'{location.shown}' exists already, so it was not created. Give the text to replace as old_string, "
                "or use write_file to replace the whole content.",
            )
        check_fresh(location, snapshot, context.client.reads, params.expected_sha256)
        old = _decoded(location, snapshot.data, params, new_string)
        context.signal.raise_if_aborted()
        haystack = Haystack(old.text, old.encoding, context.signal.raise_if_aborted)
        match = find_match(haystack, params.old_string)
        if match is None or not match.spans:
            is_read = context.client.reads is None or context.client.reads.get(location.path) is not None
            missed = Missed(
                params.old_string, params.new_string, match.skipped if match is not None else 0, is_read=is_read
            )
            raise not_found(haystack, missed, location)
        check_number(params.old_string, match, old.text, location)
        lines = tuple(haystack.line_number(span.start) for span in match.spans[:MAX_STRUCTURED_LINES])
        check_count(params.expected_replacements, match, lines, location, is_for_all=params.replace_all)
        _check_size(params, match, old.text, location)
        edited = apply_edit(haystack, match, params.old_string, new_string)
        if edited.text == old.text:
            raise ToolError(
                ToolErrorType.EDIT_NO_CHANGE,
                f"The edit would leave '{location.shown}' as it is: what it puts in place of old_string is there "
                "already. Nothing was written.",
            )
        return _Edit(
            location=location,
            snapshot=snapshot,
            text=edited.text,
            encoding=old.encoding,
            data=encode_or_refuse(edited.text, old.encoding, "new_string"),
            diff=unified_diff(old.shown(), Decoded(edited.text, old.encoding).shown()),
            match=match,
            spans=edited.spans,
            lines=lines,
        )

    def report(self, change: _Edit, committed: Committed, final_diff: str) -> Report:
        """What was replaced, how it was found, and the changed places as they are now."""
        notes = list(committed.notes)
        path = shown_whole_path(change.location.path)
        match, diff, count = change.match, change.diff, len(change.spans)
        if match is not None and match.strategy.is_relaxed:
            how = match.strategy.value.replace("_", " ")
            notes.append(f"old_string was not there exactly; it was matched but for {how}.")
        if match is not None and match.skipped:
            notes.append(f"{match.skipped} other places may begin inside a character and were left alone.")
        if change.is_new:
            sentence = f"Created the new file {path}: {diff.added} lines, {change.form}."
        else:
            what = "1 replacement" if count == 1 else f"{count} replacements"
            sentence = f"Edited {path}: {what}, +{diff.added} -{diff.removed} lines; now {change.form}."
        changed = [] if final_diff else _shown_regions(change)
        return Report(
            sentence,
            notes,
            structured={
                "replacements": count,
                "strategy": match.strategy.value if match is not None else None,
                "lines": list(change.lines),
                "regions": changed,
            },
            shown=[f"Lines {part['first']}-{part['last']} now:\n---\n{part['text']}\n---" for part in changed],
        )


def _brief(text: str) -> str:
    line = text.strip().partition("\n")[0].rstrip()
    short = line[:MAX_DESCRIBED_CHARS]
    return one_line(short if short == text else f"{short}...")


def _check_size(params: EditParams, match: Match, text: str, location: Location) -> None:
    """Refuse an edit whose result is too large, before anything of that size is built."""
    growth = len(match.spans) * max(0, len(params.new_string) - len(params.old_string))
    if len(text) + growth > MAX_CHANGED_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"The edit would make '{location.shown}' larger than {MAX_CHANGED_BYTES:,} bytes: old_string was "
            f"found {len(match.spans):,} times, and new_string has {len(params.new_string):,} characters. "
            "Nothing was written.",
        )


def _creation(params: EditParams, location: Location, snapshot: Snapshot, new_string: str) -> _Edit:
    if params.old_string:
        raise ToolError(
            ToolErrorType.FILE_NOT_FOUND,
            f"'{location.shown}' does not exist, so nothing in it can be replaced. Check the path with "
            "list_directory or glob; to create the file, give an empty old_string or use write_file.",
        )
    check_fresh(location, snapshot, None, params.expected_sha256)
    return _Edit(
        location=location,
        snapshot=snapshot,
        text=new_string,
        encoding=UTF_8,
        data=encode_or_refuse(new_string, UTF_8, "new_string"),
        diff=unified_diff(None, new_string),
    )


def _decoded(location: Location, data: bytes, params: EditParams, new_string: str) -> Decoded:
    """The text of the file, if it can be changed without touching a byte that does not belong to the change."""
    decoded = None if marked_encoding(data) is None and looks_binary(data) else decode(data)
    if decoded is None:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' is no text that can be edited: it is binary, or damaged UTF-16 or UTF-32. "
            "Nothing was written.",
        )
    if params.encoding is not None:
        decoded = decode_as_named(data, params.encoding, decoded, location.shown)
        check_fits(new_string, decoded.encoding, "new_string")
        return decoded
    if decoded.encoding.is_known:
        return decoded
    guessed = guess(data)
    if not (params.old_string.isascii() and new_string.isascii()):
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' is in an encoding that it does not say (no UTF-8), so other than ASCII text is "
            f"replaced in it only if you name the encoding. {_proposal(guessed)} Nothing was written.",
        )
    shown_as = guessed.decoded.encoding.codec if guessed is not None else decoded.encoding.shown_as
    return replace(decoded, encoding=replace(decoded.encoding, shown_as=shown_as))


def _proposal(guessed: Guess | None) -> str:
    if guessed is None:
        return "It seems to be UTF-8 in which some bytes are damaged; repair them first, or replace only ASCII text."
    return (
        f"It may be {guessed.name} ({guessed.how}): if it reads right so, repeat this with encoding='{guessed.name}'."
    )


def _shown_regions(change: _Edit) -> list[dict[str, Any]]:
    """The changed places for the model, as many as fit."""
    room = SHOWN_BYTES
    result: list[dict[str, Any]] = []
    for region in regions(change.text, change.spans, room):
        if room <= 0:
            break
        text = clipped(Decoded(region.text, change.encoding).shown(), room)
        room -= len(text.encode("utf-8", "replace"))
        result.append({"first": region.first, "last": region.last, "text": text})
    return result
