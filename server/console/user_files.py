"""Lets terminal commands read and replace the user's files, but only if that is safe.

A file is always replaced as a whole.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.console import CommandFailure
from server.console.known_clients import MAX_CLIENT_BYTES
from server.console.terminal import diff_text, note, show
from server.console.terminal_questions import ask
from server.settings import SettingsError
from server.settings.document_editor import PRIVATE_FILE, rewrite
from server.settings.settings_display import shown_difference
from server.settings.settings_files import read_regular
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import explain


def read_file(path: str) -> bytes | None:
    """Return the content of a file to change; `None` if there is none.

    Raises:
        CommandFailure: The file cannot be read, belongs to another user, or is not a regular file.
    """
    shown = visible_line(path)
    try:
        info = os.stat(path)
        content = read_regular(path, MAX_CLIENT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        said = f"{shown} cannot be read, or is not a regular file, so it was left unchanged"
        raise CommandFailure(f"{said}. Fix that and try again.") from None
    if os.name == "posix" and info.st_uid != os.geteuid():
        raise CommandFailure(
            f"{shown} belongs to another user, so it was left unchanged. Run this command as that user."
        )
    if info.st_nlink > 1:
        raise CommandFailure(
            f"{shown} has a second name (a hard link), which would keep the old content, so it was left unchanged."
            " Use a symbolic link instead (ln -s)."
        )
    if not os.access(path, os.W_OK):
        raise CommandFailure(f"{shown} is not writable by you, so it was left unchanged. Change its mode (chmod u+w).")
    return content


def confirm_change(
    path: str, before: bytes | None, after: bytes | None, documents: Sequence[Any], *, is_sure: bool, is_dry: bool
) -> bool:
    """Show a change to a file, ask the user unless `is_sure`, and return whether to make the change.

    A dry run asks nothing and returns `False`. `documents` contains the parsed content before and after the change.

    Raises:
        CommandFailure: The user did not agree.
    """
    show(diff_text(shown_difference(path, before, after, documents)))
    sys.stdout.flush()
    if not is_dry and not is_sure:
        ask(f"Change {visible_line(path)}?", "nothing was changed")
    return not is_dry


def replace_content(path: str, before: bytes | None, after: bytes) -> None:
    """Replace a file's content, unless it has changed in the meantime. A symbolic link is kept.

    Raises:
        CommandFailure: The file has changed, or cannot be written.
    """

    def changed(content: bytes) -> bytes:
        check_unchanged(content, before)
        return after

    rewrite_file(path, changed)


def check_unchanged(content: bytes, before: bytes | None) -> None:
    """Raise `SettingsError` if a file has changed; `None` means that there was no file."""
    if content != (before or b""):
        raise SettingsError(["it has changed in the meantime; run this again"])


def keep_private(path: str) -> None:
    """Make an existing settings file private before a secret is added; a new file is private from the start.

    Raises:
        CommandFailure: The mode cannot be changed.
    """
    if os.name != "posix" or not os.path.exists(path):
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & ~PRIVATE_FILE & 0o077:
        try:
            os.chmod(path, mode & ~0o077)
        except OSError:
            raise CommandFailure(f"{visible_line(path)} cannot be made private, so nothing was added.") from None
        said = f"the new content may contain secrets, so {visible_line(path)} is now readable only by you"
        note(said)


_WHY_NOT_WRITTEN: Mapping[ToolErrorType, str] = {
    ToolErrorType.FILE_CHANGED_SINCE_READ: "another program is writing it. Close that program",
    ToolErrorType.PERMISSION_DENIED: "you may not write in its folder. Change the folder's mode (chmod u+w)",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full. Free some space",
}


def rewrite_file(path: str, change: Callable[[bytes], bytes]) -> None:
    """Rewrite a file from its current content. A symbolic link is kept.

    Raises:
        CommandFailure: The file cannot be written, or `change` rejects its content.
    """
    try:
        rewrite(path, change)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed in {visible_line(path)}: {visible_line(str(error))}.") from None
    except (ToolError, OSError) as error:
        raise not_written(path, error) from None


def not_written(path: str, error: ToolError | OSError) -> CommandFailure:
    """Build the failure that says why a file was not written, and what to do."""
    shown = visible_line(path)
    code = (error if isinstance(error, ToolError) else explain(error, shown)).code
    why = _WHY_NOT_WRITTEN.get(code, "the system does not allow it. Check this path and its folder")
    return CommandFailure(f"{shown} cannot be written, so nothing was changed: {why}, and try again.")
