"""A person's file as a command changes it: read where it can be changed for certain, and replaced as a whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from server.console import CommandFailure
from server.console.known_clients import MAX_CLIENT_BYTES
from server.console.terminal import note
from server.settings import SettingsError
from server.settings.file_rewriting import PRIVATE_FILE, rewrite
from server.settings.settings_files import read_regular
from tools.contract.display import visible_line
from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import explain


def read_file(path: str) -> bytes | None:
    """The content of a file that is to be changed; `None` where there is none.

    Raises:
        Failure: It cannot be read, or is somebody else's, or is not a regular file.
    """
    shown = visible_line(path)
    try:
        info = os.stat(path)
        content = read_regular(path, MAX_CLIENT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        said = f"{shown} cannot be read, or is not a regular file, so it stays as it is"
        raise CommandFailure(f"{said}. Put that right and try again.") from None
    if os.name == "posix" and info.st_uid != os.geteuid():
        raise CommandFailure(f"{shown} belongs to another user, so it stays as it is. Run this as that user.")
    if info.st_nlink > 1:
        raise CommandFailure(
            f"{shown} has a second name (a hard link), which would stay as it is. Make it a link (ln -s)."
        )
    if not os.access(path, os.W_OK):
        raise CommandFailure(f"{shown} may not be written by you, so it stays as it is. Change its mode (chmod u+w).")
    return content


def replace_content(path: str, before: bytes | None, after: bytes) -> None:
    """Put new content in place; a link stays one, and a file that was changed meanwhile stays as it is.

    Raises:
        Failure: It was changed, or cannot be written.
    """

    def changed(content: bytes) -> bytes:
        check_unchanged(content, before)
        return after

    rewrite_file(path, changed)


def check_unchanged(content: bytes, before: bytes | None) -> None:
    """Raises `SettingsError` where a file is not what it was, of which `None` is no file."""
    if content != (before or b""):
        raise SettingsError(["it was changed in the meantime; run this again"])


def keep_private(path: str) -> None:
    """Let nobody else read a settings file that is there, before anything secret comes into it; a new one is so anyway.

    Raises:
        Failure: Its mode cannot be changed.
    """
    if os.name != "posix" or not os.path.exists(path):
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & ~PRIVATE_FILE & 0o077:
        try:
            os.chmod(path, mode & ~0o077)
        except OSError:
            raise CommandFailure(f"{visible_line(path)} cannot be closed to others, so nothing was added.") from None
        said = f"there may be secrets in what is added, so only you can read {visible_line(path)} from now on"
        note(said)


_WHY_NOT_WRITTEN: Mapping[ToolErrorType, str] = {
    ToolErrorType.FILE_CHANGED_SINCE_READ: "another program is writing it. Close that",
    ToolErrorType.PERMISSION_DENIED: "you may not write in its folder. Change the mode of that (chmod u+w)",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full. Make room",
}


def rewrite_file(path: str, change: Callable[[bytes], bytes]) -> None:
    """Write what a file becomes, worked out from what is in it then; a link stays one.

    Raises:
        Failure: It cannot be written, or `change` refuses what is in it.
    """
    try:
        rewrite(path, change, AbortSignal())
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed in {visible_line(path)}: {visible_line(str(error))}.") from None
    except (ToolError, OSError) as error:
        raise not_written(path, error) from None


def not_written(path: str, error: ToolError | OSError) -> CommandFailure:
    """Why a file was not written, and what to do."""
    shown = visible_line(path)
    code = (error if isinstance(error, ToolError) else explain(error, shown)).code
    why = _WHY_NOT_WRITTEN.get(code, "what is there cannot be written. Put that right, or remove it")
    return CommandFailure(f"{shown} cannot be written, so nothing was changed: {why}, and try again.")
