"""`write_file`: writes new content with the encoding and line endings of the old one, and reports the file's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tools.files.change.diff import unified_diff
from tools.files.change.file_change import FileChange, TargetFile, encode_or_refuse, take_snapshot
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.text_encodings import (
    Decoded,
    check_fits,
    count_lines,
    decode_unless_binary,
    encoding_to_write,
    guess,
    line_endings,
    marked_encoding,
)
from tools.text.file_names import shown_whole_path


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFileWrite(FileChange):
    title: ClassVar[str] = "Confirm Write"
    labels: ClassVar[tuple[str, str]] = ("Original", "Written")

    lines: int  # the number of lines in the new content

    @property
    def _changes_file(self) -> bool:
        return self.snapshot.hidden_by is not None or self.snapshot.data != self.data

    @property
    def sentence(self) -> str:
        form = f"{self.lines} {'line' if self.lines == 1 else 'lines'}, {self.form}"
        path, diff = shown_whole_path(self.target.location.name), self.diff
        if self.is_new:
            return f"Created the new file {path}: {form}."
        if self._changes_file:
            return f"Overwrote {path}: +{diff.added} -{diff.removed} lines; now {form}."
        return f"{path} already has exactly this content; nothing was written."

    @property
    def details(self) -> dict[str, Any]:
        return {"changed": self._changes_file, "lines": self.lines}


def plan_write(
    target: TargetFile,
    content: str,
    *,
    expected_sha256: str | None = None,
    encoding: str | None = None,
    is_users: bool = False,
) -> WholeFileWrite:
    """Plan a write that keeps the encoding and line endings. Writes nothing. The parameters are as in `plan_edit`."""
    location = target.location
    snapshot = take_snapshot(target)
    data, is_hidden = snapshot.data, snapshot.hidden_by is not None
    snapshot.check_fresh(expected_sha256)
    if data is None:
        target.refuse_look_alike()
    elif expected_sha256 is None and not is_users:
        snapshot.refuse_taking_back(content)

    # The current text as shown to people. `None` for a new file, and for hidden content, on which nothing may depend.
    old: str | None = None
    decoded: Decoded | None = None
    notes: list[str] = []
    if data is not None and not is_hidden:
        decoded = decode_unless_binary(data)
        is_binary = decoded is None and marked_encoding(data) is None
        is_known = decoded is not None and decoded.encoding.is_known
        guessed = None if decoded is None or is_known else guess(data)
        present = guessed.decoded if guessed is not None else decoded
        old = present.shown() if present is not None else ""
        if is_binary:
            notes.append(f"The file had {len(data):,} bytes of binary data, all of which were replaced.")
        elif encoding is None and not is_known:
            note = "The file was not UTF-8, and had no UTF-16 or UTF-32 byte order mark. The new content is UTF-8."
            if guessed is not None:
                note += f" It was shown as {guessed.name}; to write in that encoding, set encoding='{guessed.name}'."
            notes.append(note)
    form = encoding_to_write(encoding, decoded, location.shown)

    may_omit = is_users or data is None
    if not may_omit and (line := first_omission(content, old, path=location.path)) is not None:
        advice = "Give the complete content, or use edit to change only a part."
        raise placeholder_error("write_file", f"'{line}'", advice)
    # The current file's byte order mark is kept, so one at the start of the new content would be a second one.
    new = content.removeprefix("\ufeff") if form.bom else content
    if encoding is not None:
        check_fits(new, form, "content")
    ending = line_endings(old).majority if old and "\r" in old and "\r" not in new else None
    if ending is not None:
        new = new.replace("\n", ending)
    written = encode_or_refuse(new, form, "content")
    return WholeFileWrite(
        snapshot=snapshot,
        text=new,
        encoding=form,
        data=written,
        diff=unified_diff(old, new),
        notes=tuple(notes) if written != data else (),
        lines=count_lines(new),
    )
