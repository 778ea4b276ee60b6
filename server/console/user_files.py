"""Lets terminal commands change the user's own settings and other files, but only if that is safe.

A file is always replaced as a whole. An unsafe change raises `CommandFailure`; an invalid file raises `SettingsError`.
This module also says which servers the user's settings contain, and whether new ones are valid.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from server.console import CommandFailure
from server.console.known_clients import MAX_CLIENT_BYTES
from server.console.terminal import ask, diff_text, note, show
from server.settings import SettingsError, SettingsReport
from server.settings.document_editor import PRIVATE_FILE, doubtful_key, rewrite
from server.settings.load import SettingsInputs, read_settings
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_display import shown_difference
from server.settings.settings_files import (
    MAX_FILE_BYTES,
    Tree,
    parse,
    read_regular,
    read_settings_file,
    table_at,
    user_file,
    value_at,
)
from server.settings.upstream_entries import DEFAULT_PORT, alias_of, is_own
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import explain

SECTION = "mcpServers"


def read_file(path: str) -> bytes | None:
    """Return the content of a file to change; `None` if there is no file. Refuse a file that is unsafe to change."""
    display_path = visible_line(path)
    try:
        info = os.stat(path)
        content = read_regular(path, MAX_CLIENT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        message = f"{display_path} cannot be read, or is not a regular file, so it was left unchanged"
        raise CommandFailure(f"{message}. Fix that and try again.") from None
    if os.name == "posix" and info.st_uid != os.geteuid():
        problem, remedy = "belongs to another user", "Run this command as that user"
    elif info.st_nlink > 1:
        problem = "has a second name (a hard link), which would keep the old content"
        remedy = "Use a symbolic link instead (ln -s)"
    elif not os.access(path, os.W_OK):
        problem, remedy = "is not writable by you", "Change its mode (chmod u+w)"
    else:
        return content
    raise CommandFailure(f"{display_path} {problem}, so it was left unchanged. {remedy}.")


def confirm_change(path: str, before: Tree | None, after: Tree | None, *, is_sure: bool, is_dry: bool) -> bool:
    """Show a change to a file, ask the user unless `is_sure`, and return whether to make the change.

    A dry run asks nothing and returns `False`; if the user does not agree, the command fails. `before` and `after` are
    the parsed contents of the file.
    """
    show(diff_text(shown_difference(path, before, after)))
    sys.stdout.flush()
    if not is_dry and not is_sure:
        ask(f"Change {visible_line(path)}?", "nothing was changed")
    return not is_dry


def replace_content(path: str, old_content: bytes | None, new_content: bytes) -> None:
    """Replace a file's content; fail if it has changed in the meantime. A symbolic link is kept."""

    def checked_content(content: bytes) -> bytes:
        check_unchanged(content, old_content)
        return new_content

    rewrite_file(path, checked_content)


def check_unchanged(content: bytes, old_content: bytes | None) -> None:
    """Raise `SettingsError` if a file has changed. `old_content` is `None` if there was no file."""
    if content != (old_content or b""):
        raise SettingsError(["it has changed in the meantime; run this again"])


def keep_private(path: str) -> None:
    """Make an existing settings file private before a secret is added; a new file is private from the start."""
    if os.name != "posix" or not os.path.exists(path):
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & ~PRIVATE_FILE & 0o077:
        try:
            os.chmod(path, mode & ~0o077)
        except OSError:
            raise CommandFailure(f"{visible_line(path)} cannot be made private, so nothing was added.") from None
        note(f"the new content may contain secrets, so {visible_line(path)} is now readable only by you")


_WHY_NOT_WRITTEN: Mapping[ToolErrorType, str] = {
    ToolErrorType.FILE_CHANGED_SINCE_READ: "another program is writing it. Close that program",
    ToolErrorType.PERMISSION_DENIED: "you may not write in its folder. Change the folder's mode (chmod u+w)",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full. Free some space",
}


def rewrite_file(path: str, change: Callable[[bytes], bytes]) -> None:
    """Rewrite a file from its current content; fail if `change` rejects it. A symbolic link is kept."""
    try:
        rewrite(path, change)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed in {visible_line(path)}: {visible_line(str(error))}.") from None
    except (ToolError, OSError) as error:
        raise not_written(path, error) from None


def not_written(path: str, error: ToolError | OSError) -> CommandFailure:
    """Build the failure that says why a file was not written, and what to do."""
    display_path = visible_line(path)
    code = (error if isinstance(error, ToolError) else explain(error, display_path)).code
    reason = _WHY_NOT_WRITTEN.get(code, "the system does not allow it. Check this path and its folder")
    return CommandFailure(f"{display_path} cannot be written, so nothing was changed: {reason}, and try again.")


def usable_servers(client_servers: Tree, path: str, environ: Mapping[str, str], diagnostics: Diagnostics) -> Tree:
    """Return those of an MCP client's servers that can be used here, keyed by alias, without coretools-mcp itself.

    If a name is empty, two names have the same alias, no server can be used, or the user's settings are already
    invalid, raise `SettingsError`.
    """
    servers: Tree = {}
    ports = own_ports(environ)
    for name, entry in client_servers.items():
        alias = alias_of(name)
        if is_own(cast("Tree", entry), ports):
            diagnostics.warn(path, f"{dotted((name,))} starts or reaches this server itself and was skipped.")
            continue
        if not alias or alias in servers:
            problem = f"The server name {json.dumps(name)} has the same alias as that of another server."
            raise SettingsError([problem if alias else "A server has an empty name."])
        servers[alias] = entry
    if not servers:
        raise SettingsError(["There are no servers to import."])
    report = settings_with(json.dumps({SECTION: servers}).encode(), path, environ)
    problems = {entry.alias: entry.problems for entry in report.entries if entry.alias in servers and entry.problems}
    diagnostics.warnings += [problem for reasons in problems.values() for problem in reasons]
    usable = {alias: entry for alias, entry in servers.items() if alias not in problems}
    if not usable:
        raise SettingsError(["None of these servers can be used here, so nothing was added."])
    return usable


def own_settings(environ: Mapping[str, str]) -> Tree:
    """Return the content of the user's own settings file; empty if there is no file."""
    path = user_file(environ)
    content = read_settings_file(path, is_optional=True) if path is not None else None
    return parse(content or b"", path or "")


def own_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the ports on which this program may listen: the default, and the one in the user's settings."""
    try:
        port = value_at(own_settings(environ), ("http", "port"))
    except SettingsError:
        port = None
    return [DEFAULT_PORT, *([port] if isinstance(port, int) else [])]


def settings_with(content: bytes, source: str, environ: Mapping[str, str]) -> SettingsReport:
    """Return the settings that result if the file `source` has this content, or raise `SettingsError`."""
    files = [source] if source != user_file(environ) else []
    inputs = SettingsInputs(files, {}, environ, cli=None, working_folder=None, streams={source: content})
    return read_settings(inputs)


def check_keys(content: bytes | None, place: tuple[str, ...], path: str, max_bytes: int = MAX_FILE_BYTES) -> None:
    """Fail if a key on the path to `place` occurs more than once or in two spellings: an edit might have no effect."""
    ambiguity = doubtful_key(content or b"", place, path, max_bytes)
    if ambiguity is not None:
        message = f"{visible_line(path)}: {visible_line(ambiguity)}"
        raise CommandFailure(f"{message}. Remove one of them and try again; nothing was changed.")


def own_names(servers: Tree, ports: Sequence[int] = ()) -> list[str]:
    """Return the names of the server entries that run coretools-mcp or connect to it on one of these ports."""
    return [name for name, entry in servers.items() if isinstance(entry, dict) and is_own(cast("Tree", entry), ports)]


def own_servers(environ: Mapping[str, str]) -> Tree:
    return {alias_of(name): entry for name, entry in table_at(own_settings(environ), SECTION).items()}


def names_by_alias(settings: Tree) -> dict[str, str]:
    """Return the server names in a settings file, as written there, keyed by alias."""
    return {alias_of(name): name for name in table_at(settings, SECTION)}
