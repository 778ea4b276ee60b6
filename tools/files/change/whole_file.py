"""The work of `write_file`: the new content takes the form of the present one, and what it holds now is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.builtin.file_changes import first_new_omission
from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.names_on_one_line import shown_whole_path
from tools.files.change.changer import (
    Aim,
    Change,
    Changer,
    Committed,
    Proposal,
    Report,
    Snapshot,
    check_fresh,
    encode_or_refuse,
    take_snapshot,
)
from tools.files.change.diff import unified_diff
from tools.files.ignore_files import agent_ignore_file
from tools.files.line_endings import count_lines, line_endings
from tools.files.text_encodings import (
    Encoding,
    check_fits,
    decode,
    encoding_to_write,
    guess,
    looks_binary,
    marked_encoding,
)
from tools.files.workspace import Location

if TYPE_CHECKING:
    from tools.builtin.write_file import WriteFileParams


_WRITTEN = ("Original", "Written")
"""What the two sides of the diff in a result are called (both seeds' words)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write(Change):
    """A write that is ready to be done.

    Args:
        notes: What the model should know about the change of form.
    """

    notes: list[str] = field(default_factory=list[str])


class WholeWriter(Changer["WriteFileParams", _Write]):
    """Creates a file, or replaces all of its content."""

    question = "Confirm Write"
    labels = _WRITTEN
    proposal_noun = "content"

    def aim(self, params: WriteFileParams) -> Aim:
        """The whole content."""
        return Aim(params.file_path, params.content, params.expected_sha256)

    def plan(self, params: WriteFileParams, location: Location, proposal: Proposal, context: ToolContext) -> _Write:
        """The new content in the form of the present one."""
        snapshot = take_snapshot(location, context)
        hidden_by = None if snapshot.data is None else agent_ignore_file(context.workspace, location)
        check_fresh(location, snapshot, context.client.reads, params.expected_sha256, is_hidden=hidden_by is not None)
        if hidden_by is None:
            old, encoding, notes = _present(snapshot, params.encoding, location)
        else:
            # Nothing of the result may depend on what the file holds.
            old, encoding, notes = None, encoding_to_write(params.encoding, None, location.shown), []
        omission = None if proposal.is_users else first_new_omission(proposal.text, old or "")
        if omission is not None:
            raise InvalidToolParamsError(
                "write_file",
                f"the line '{omission}' stands for text that was left out; writing it would delete that text. "
                "Give the complete content, or use edit to change only a part.",
            )
        # The mark of the present file stays; one that the content brings along would be a second.
        new = proposal.text.removeprefix("\ufeff") if encoding.bom else proposal.text
        if params.encoding is not None:
            check_fits(new, encoding, "content")
        ending = line_endings(old).majority if old and "\r" in old and "\r" not in new else None
        if ending is not None:
            new = new.replace("\n", ending)
        return _Write(
            location=location,
            snapshot=snapshot,
            text=new,
            encoding=encoding,
            data=encode_or_refuse(new, encoding, "content"),
            diff=unified_diff(old, new),
            hidden_by=hidden_by,
            notes=notes,
        )

    def report(self, change: _Write, committed: Committed, final_diff: str) -> Report:
        """What the file holds now."""
        del final_diff
        is_changed = change.hidden_by is not None or change.snapshot.data != change.data
        lines = count_lines(change.text)
        form = f"{lines} {'line' if lines == 1 else 'lines'}, {change.form}"
        path, diff = shown_whole_path(change.location.path), change.diff
        if change.is_new:
            sentence = f"Created the new file {path}: {form}."
        elif is_changed:
            sentence = f"Overwrote {path}: +{diff.added} -{diff.removed} lines; now {form}."
        else:
            sentence = f"{path} holds exactly this content already; nothing was written."
        notes = [*(change.notes if is_changed else []), *committed.notes]
        return Report(sentence, notes, {"changed": is_changed, "lines": lines})


def _present(snapshot: Snapshot, name: str | None, location: Location) -> tuple[str | None, Encoding, list[str]]:
    """The present text for people, the encoding to write in, and what has to be told about that."""
    data = snapshot.data
    if data is None:
        return None, encoding_to_write(name, None, location.shown), []
    if marked_encoding(data) is None and looks_binary(data):
        note = f"The file held {len(data):,} bytes that are no text; all of it was replaced."
        return "", encoding_to_write(name, None, location.shown), [note]
    decoded = decode(data)
    encoding = encoding_to_write(name, decoded, location.shown)
    if decoded is not None and decoded.encoding.is_known:
        return decoded.text, encoding, []
    guessed = guess(data) if decoded is not None else None
    if name is None:
        note = "The file was not valid UTF-8 (nor UTF-16 or UTF-32 with a mark); the new content is UTF-8."
        if guessed is not None:
            note += f" It was shown as {guessed.name}; to write in that, give encoding='{guessed.name}'."
        notes = [note]
    else:
        notes = []
    old = guessed.decoded if guessed is not None else decoded
    return (old.shown() if old is not None else ""), encoding, notes
