"""Ignore files where they stand: what git's hold counts as far as it goes, what an agent's hold is to be understood."""

from __future__ import annotations

import codecs
import logging
import os
import stat

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.contract.resources import NOTHING_DONE, exhaustion_of
from tools.filesystem.descriptors import NotRegularError, OpenedFile, open_regular
from tools.filesystem.finding.ignore_rules import RuleList, parse_rules

logger = logging.getLogger(__name__)

GIT_FOLDER = ".git"
"""A repository's own folder, or a file that says where it is."""

MAX_IGNORE_FILE_BYTES = 1 << 20
"""Rules are read from the first megabyte of an ignore file; the longest real ones have some kilobytes."""

_UNREADABLE = frozenset(range(0x20)) - frozenset(b"\t\n\f\r")
"""Bytes that no text holds which is neither UTF-8 nor UTF-16."""


class PresentNames:
    """The names in a folder, each looked up when asked for."""

    __slots__ = ("_above",)

    def __init__(self, folder: str) -> None:
        self._above = os.path.join(folder, "")

    def __contains__(self, name: object) -> bool:
        try:
            os.lstat(f"{self._above}{name}")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False  # if it is there, nothing else in the folder can be opened either
        except OSError:
            return os.path.isdir(self._above)  # in a folder, it is not known whether it is there; to open it tells why
        return True


def rules_of_git(path: str, *, through_links: bool = False) -> RuleList:
    """The rules in an ignore file of git; none where there is none, or where it cannot be read.

    Args:
        path: The file.
        through_links: Whether links are followed.
    """
    return parse_rules(beginning_of(path, through_links=through_links))


def rules_for_agents(folder: str, name: str) -> RuleList | None:
    """The rules in an agent-ignore file; `None` where there is none, or nothing in it.

    Args:
        folder: Where it stands.
        name: Its base name.

    Raises:
        ToolError: `path_ignored`: there is one, and it is not known what it protects; `resources_exhausted`.
    """
    content = _protecting(folder, name)
    rules = parse_rules(content) if content else None
    if rules and rules.is_cut:
        raise not_known(folder, name, "holds too many rules")
    return rules


def beginning_of(path: str, *, through_links: bool = False) -> bytes:
    """The beginning of a regular file; empty where there is none. Only rules are taken from it, never shown text."""
    try:
        with open_regular(path, through_links=through_links) as opened:
            size = opened.info.st_size
            if size > MAX_IGNORE_FILE_BYTES:
                logger.warning("an ignore file is too large: only its first %s bytes count", MAX_IGNORE_FILE_BYTES)
            # As much as may be wanted would be set aside first, and that takes longer than all the rest.
            return _beginning(opened, min(size, MAX_IGNORE_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        logger.warning("cannot read an ignore file: %s", error)
        return b""


def repository_above(root: str) -> str | None:
    """The nearest folder from a root upwards that is the top of a repository, if there is one."""
    folder = root
    while True:
        if exclude_file(os.path.join(folder, GIT_FOLDER)) is not None:
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def exclude_file(git_folder: str) -> str | None:
    """Where a repository keeps its own excludes (the file need not exist), or `None` if this is no repository."""
    try:
        mode = os.lstat(git_folder).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return _exclude_of_worktree(git_folder)
    return os.path.join(git_folder, "info", "exclude")


def _exclude_of_worktree(git_file: str) -> str:
    """The excludes of a linked worktree or submodule, whose `.git` is a file that names the real folder."""
    named = beginning_of(git_file).decode("utf-8", "surrogateescape").partition("\n")[0]
    folder = os.path.join(os.path.dirname(git_file), named.removeprefix("gitdir:").strip(" \r").replace("\0", ""))
    common = (
        beginning_of(os.path.join(folder, "commondir"), through_links=True)
        .decode("utf-8", "surrogateescape")
        .strip()
        .replace("\0", "")
    )
    return os.path.join(folder, common, "info", "exclude")


def _protecting(folder: str, name: str) -> bytes:
    """The content of an agent-ignore file; empty where there is none.

    Raises:
        ToolError: `path_ignored`: there is one, and it is not known what it protects; `resources_exhausted`.
    """
    try:
        with open_regular(os.path.join(folder, name), through_links=True) as opened:
            content = _beginning(opened, MAX_IGNORE_FILE_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(os.path.join(folder, name)):
            return b""
        why = "is a link that leads nowhere"
    except OSError as error:
        exhaustion = exhaustion_of(error, NOTHING_DONE)
        if exhaustion is not None:
            raise exhaustion from None
        why = "cannot be read"
    else:
        if len(content) > MAX_IGNORE_FILE_BYTES:
            why = f"is larger than {MAX_IGNORE_FILE_BYTES:,} bytes"
        elif not _is_text(content):
            why = "is not UTF-8 text"
        else:
            return content
    raise not_known(folder, name, why)


def not_known(folder: str, name: str, why: str) -> ToolError:
    """That nothing in a folder is read, since it is not known what the agent-ignore file in it protects.

    Args:
        folder: Where it stands.
        name: Its base name.
        why: What is the matter with it, as the end of a sentence.
    """
    return ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(folder)} {why}, so it is not known what it hides, and nothing there is read. "
        "Ask the user to mend or to remove it.",
    )


def _beginning(opened: OpenedFile, size: int) -> bytes:
    """So many bytes, or all there are: one read may bring fewer.

    Raises:
        OSError: They cannot be read.
    """
    pieces: list[bytes] = []
    while size > 0:
        piece: bytes | None = opened.stream.read(size)
        if piece is None:
            raise BlockingIOError  # it is made up by somebody, and there may be more of it
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_text(content: bytes) -> bool:
    """Whether rules can be read from it: UTF-8, UTF-16 with its mark, or names in an older encoding."""
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        # That of UTF-32 begins with the mark of UTF-16; it is told by its NUL characters.
        return "\0" not in content.decode("utf-16" if is_utf_16 else "utf-8")
    except UnicodeDecodeError:
        return not is_utf_16 and _UNREADABLE.isdisjoint(content)
