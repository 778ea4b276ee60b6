"""Undoes a change: finds it, checks that the file is still as the change left it, and restores the old content.

No other file, folder or repository is ever touched. If the file was changed again later, it is left alone, and the
differences are reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

from tools.contract.call_options import AbortSignal
from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult, line_counts
from tools.files.change.diff import Diff, unified_diff
from tools.files.change.file_change import ABSENT, Author, FileChange, TargetFile, make_change, take_snapshot, truncate
from tools.files.change.journal import Journal, JournaledChange
from tools.files.find.folder_walk import count
from tools.files.ignore_files import refuse_hidden
from tools.files.path_opener import identity_of
from tools.files.text_encodings import UTF_8, Decoded, Encoding, decode_unless_binary, guess
from tools.files.workspace import ReadLedger, Workspace
from tools.text.file_names import sendable_name, shown_path, shown_whole_path

MAX_EXAMINED = 20  # maximum number of changes to examine, newest first, in search of one that can be undone
NONE_KEPT = "undo.enabled is false, or there is no home folder"  # the reason why there is no journal
NOT_COVERED = "Changes by commands and other programs are not recorded."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeUndo(FileChange):
    title: ClassVar[str] = "Undo"
    labels: ClassVar[tuple[str, str]] = ("Before", "Now")

    change: JournaledChange

    @property
    def sentence(self) -> str:
        path, diff = shown_whole_path(self.target.location.path), self.diff
        if self.removes:
            return f"Change {self.change.id} was undone: {path}, which it had created, was removed."
        if self.is_new:
            return f"Change {self.change.id} was undone: {path} was restored, {self.content_summary}."
        effect = f"{diff.counts} lines; now {self.content_summary}"
        return f"Change {self.change.id} was undone in {path}: {effect}."

    @property
    def state(self) -> str:
        """The file's state and the number of the change; an answer is valid only for this combination."""
        return f"{self.change.id} {self.snapshot.sha256 or ABSENT} {self.target.location.path}"

    @property
    def result_fields(self) -> dict[str, Any]:
        return {"undone": self.change.id, "removed_file": self.removes}

    def confirmation(self, proposal: str) -> EditConfirmation:
        confirmation = FileChange.confirmation(self, proposal)
        description = f"change {self.change.id} of {self.target.location.relative} ({self.change.tool})"
        title = f"{self.title} {description}{', and remove the file' * self.removes}"
        return replace(confirmation, title=title, notes=(title, *self.notes, *confirmation.notes), editable=None)


def find_change(journal: Journal, client: str | None, workspace: Workspace, number: int | None) -> JournaledChange:
    """Return the change with this number, or, without a number, the last change that is neither undone nor an undo.

    Without a number, a change is skipped if its file already has the old content, for example because the write was
    interrupted.
    """
    changes = journal.changes(client, workspace.roots, limit=MAX_EXAMINED, number=number, only_undoable=number is None)
    if number is not None and changes:
        return changes[0]
    if number is not None:
        reason, advice = "another client's, or too old", "use list_changes"
        if client is None:
            reason, advice = "another workspace's, or too old", "run coretools-mcp changes"
        raise ToolError(
            ToolErrorType.FILE_NOT_FOUND,
            f"There is no file change {number} in this workspace. It may be {reason} to be kept; {advice} to "
            f"see the recorded changes. {NOT_COVERED}",
        )
    for change in changes:
        try:
            if take_snapshot(target_of(change, workspace, None, AbortSignal(), None)).sha256 != change.before:
                return change
        except ToolError:
            return change  # the undo of this change will fail and give the reason
    raise ToolError(
        ToolErrorType.FILE_NOT_FOUND, f"There is no file change left to undo in this workspace. {NOT_COVERED}"
    )


def target_of(
    change: JournaledChange, workspace: Workspace, reads: ReadLedger | None, signal: AbortSignal, author: Author | None
) -> TargetFile:
    """Return the file of a change, without following symlinks. Raises a `ToolError` if agents must not access it."""
    location = workspace.at(change.path)
    workspace.refuse_to_write(location)
    # Agents must not see the old content, but the user can undo the change.
    refuse_hidden(workspace, location, f"restored (the user can run coretools-mcp undo {change.id})")
    if (rule := workspace.rule_about_reading(location)) is not None:
        raise ToolError(ToolErrorType.PATH_IGNORED, f"'{location.shown}' was not restored: {rule} hides it.")
    return TargetFile(workspace, location, reads, signal, author)


def plan_undo(target: TargetFile, change: JournaledChange, journal: Journal, client: str | None) -> ChangeUndo:
    """Plan the undo of a change. Writes nothing. Blocking. Raises a `ToolError` if the change cannot be undone.

    If the file has been changed again, the error is `file_changed_since_read`, with the differences. `client` is the
    caller's name in the journal, or `None` for the user, who sees the changes of all clients.
    """
    location = target.location
    path = location.shown
    snapshot = take_snapshot(target)
    if snapshot.sha256 != change.after:
        if snapshot.sha256 == change.before:
            message = f"'{path}' is already as it was before change {change.id}; there is nothing to undo."
            raise ToolError(ToolErrorType.EDIT_NO_CHANGE, message)
        message = _explain_later_changes(target, change, journal, client, snapshot.data)
        raise ToolError(ToolErrorType.FILE_CHANGED_SINCE_READ, message)
    info = target.workspace.stat(location)
    if info is not None and (info.st_nlink != 1 or identity_of(info) != snapshot.identity):
        raise ToolError(
            ToolErrorType.FILE_WRITE_FAILURE,
            f"'{path}' has other names (hard links) or is being changed, so nothing was undone. Edit it instead.",
        )
    data = journal.content(change.before)
    if data is None and change.before is not None:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"Change {change.id} cannot be undone: the earlier content of '{path}' was too large to keep "
            "(undo.maxFileBytes), is no longer kept, or is damaged. Nothing was undone.",
        )
    old_content = _text_of(data)
    is_own = client is None or journal.is_own(change.id)
    return ChangeUndo(
        snapshot=snapshot,
        text=old_content.text if old_content is not None else "",
        encoding=old_content.encoding if old_content is not None else UTF_8 if data is None else _BINARY,
        data=data or b"",
        diff=_diff(_text_of(snapshot.data), old_content, len(snapshot.data or b""), len(data or b"")),
        undoes=change.id,
        removes=data is None,
        mode=info.st_mode & 0o7777 if info is not None else change.mode,
        change=change,
        notes=() if is_own else (f"Change {change.id} was made by another session, at {_time_of(change)}.",),
    )


_BINARY = Encoding("binary", "latin-1", is_known=False)


def plan_chosen(
    chosen: JournaledChange,
    workspace: Workspace,
    author: Author,
    client: str | None,
    reads: ReadLedger | None = None,
    signal: AbortSignal | None = None,
) -> ChangeUndo:
    """Plan the undo of the change that `find_change` has chosen. If that fails, name the next older one to undo.

    Without the name, nobody could get further, because each call without a number chooses the same change.
    """

    def plan(change: JournaledChange) -> ChangeUndo:
        target = target_of(change, workspace, reads, signal or AbortSignal(), author)
        return plan_undo(target, change, author.journal, client)

    try:
        return plan(chosen)
    except ToolError as error:
        older = author.journal.changes(
            client, workspace.roots, limit=MAX_EXAMINED, before=chosen.id, only_undoable=True
        )
        for change in older:
            try:
                path = plan(change).target.location.shown
            except ToolError:
                continue
            way = f"run coretools-mcp undo {change.id}" if client is None else f"pass change_id={change.id}"
            hint = f"Change {change.id} ({path}) is the next older one that can be undone; {way}."
            raise ToolError(error.code, f"{error.message.rstrip()}\n{hint}") from None
        raise


def plan_for_person(journal: Journal, workspace: Workspace, number: int | None) -> ChangeUndo:
    """Plan an undo for the user: of the change with this number or, without a number, of the last change by any client.

    Blocking. Raises a `ToolError` if there is no such change, or if it cannot be undone.
    """
    change = find_change(journal, None, workspace, number)
    author = Author(journal, change.client, "undo")
    if number is None:
        return plan_chosen(change, workspace, author, None)
    return plan_undo(target_of(change, workspace, None, AbortSignal(), author), change, journal, None)


def carry_out(plan: ChangeUndo, journal: Journal) -> ToolResult:
    """Undo the change that the user has seen. Blocking. Raises a `ToolError` if the file has changed."""
    return make_change(
        plan.target,
        lambda _text, _is_users: plan_undo(plan.target, plan.change, journal, None),
        "",
        planned=plan,
        answer=None,
        confirmed_state=plan.state,
    )


def _text_of(data: bytes | None) -> Decoded | None:
    """Decode the content of a file, or return `None` if it is not text. A missing file counts as empty."""
    if data is None:
        return Decoded("", UTF_8)
    decoded = decode_unless_binary(data)
    if decoded is None or decoded.encoding.is_known:
        return decoded
    best_guess = guess(data)
    return best_guess.decoded if best_guess is not None else decoded


def _diff(old: Decoded | None, new: Decoded | None, old_bytes: int, new_bytes: int) -> Diff:
    if old is None or new is None:
        return Diff(f"[not text: {count(old_bytes, 'byte')} before, {count(new_bytes, 'byte')} afterwards]\n", 0, 0)
    return unified_diff(old.shown(), new.shown())


def _explain_later_changes(
    target: TargetFile, change: JournaledChange, journal: Journal, client: str | None, data: bytes | None
) -> str:
    """Explain why a file is left alone, and show how it differs from the content that the change wrote."""
    message = f"'{target.location.shown}' has changed since change {change.id}, so nothing was undone."
    of_file = journal.changes(None, target.workspace.roots, limit=MAX_EXAMINED, path=change.path, only_undoable=True)
    later = [entry for entry in of_file if entry.id > change.id]
    # Do not reveal the numbers of another client's changes, which this client cannot use anyway.
    names = [f"change {entry.id}" if client in (None, entry.client) else "another client" for entry in later]
    if names:
        message += f" The file was changed again by {', '.join(name for name, _ in groupby(names))}: "
        if "another client" in names:
            message += "only the user can undo another client's change (coretools-mcp undo), so edit the file instead."
        else:
            order = "it first" if len(names) == 1 else "these first, in this order"
            message += f"undo {order}, or edit the file."
    if data is None:
        advice = "If it was moved, move it back and undo this change again, or edit it where it is now."
        return f"{message} The file no longer exists. {advice}"
    content_after = journal.content(change.after)
    if content_after is None and change.after is not None:
        return message
    name = os.path.basename(change.path)
    diff = _diff(_text_of(content_after), _text_of(data), len(content_after or b""), len(data))
    return f"{message} Changes since then:\n{truncate(diff.text(name, ('As it was left', 'Now')))}"


def change_as_json(change: JournaledChange, id_key: str) -> dict[str, Any]:
    return {
        id_key: change.id,
        "time": change.time,
        "tool": change.tool,
        "path": sendable_name(change.path),
        "added": change.added,
        "removed": change.removed,
        "undoes": change.undoes,
        "undone": bool(change.is_undone),
    }


def _time_of(change: JournaledChange) -> str:
    from datetime import datetime  # noqa: PLC0415 - loaded on first use

    return datetime.fromtimestamp(change.time).astimezone().isoformat(" ", "seconds")


def describe_changes(
    changes: Sequence[JournaledChange], workspace: Workspace, is_own: Callable[[int], bool] = bool
) -> list[str]:
    """Describe each change in one line. Numbers for which `is_own` returns False are marked as another session's."""
    lines: list[str] = []
    for change in changes:
        status = f", undoes {change.undoes}" if change.undoes is not None else ""
        status += ", undone" if change.is_undone else ""
        status += "" if is_own(change.id) else ", another session"
        effect = "removed" if change.after is None else line_counts(change.added, change.removed)
        effect += ", hidden content replaced" if change.removed is None else ""
        effect += ", new" if change.before is None else ""
        path = shown_path(workspace.at(change.path).relative if len(workspace.roots) == 1 else change.path)
        lines.append(f"{change.id}  {_time_of(change)}  {change.tool}  {path} ({effect}{status})")
    return lines
