"""Which settings files of workspaces a person has trusted: kept outside of them, by what the files hold.

A file is trusted as it was seen. When it changes, or another one appears beside it, it has to be looked at again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from server.settings.errors import Findings, SettingsError
from server.settings.files import own_folder, parse, read_regular
from server.settings.layers import FileState

Folders = Mapping[str, Mapping[str, str]]
"""Real path of a folder, to relative path of a file, to the SHA-256 of its content."""

MAX_FILE_BYTES = 1_000_000
"""Bytes of the store that are read; thousands of folders (ours)."""


def trust_file(environ: Mapping[str, str]) -> str | None:
    """Where trust is kept: beside the user's own settings; `None` where there is no home folder."""
    folder = own_folder(environ)
    return os.path.join(folder, "trusted.json") if folder is not None else None


def digest(content: bytes) -> str:
    """What a file is known by."""
    import hashlib  # noqa: PLC0415 - only workspaces with settings need it

    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Trust:
    """What is trusted.

    Args:
        folders: The folders, and in each the files as they were seen.
    """

    folders: Folders = field(default_factory=dict[str, Mapping[str, str]])

    def state_of(self, folder: str, name: str, content: bytes) -> FileState:
        """Whether a file may be read as settings.

        Args:
            folder: Real path of the workspace folder.
            name: The file below it.
            content: What it holds now.
        """
        seen = self.folders.get(folder)
        if seen is None:
            return FileState.UNTRUSTED
        return FileState.READ if seen.get(name) == digest(content) else FileState.CHANGED


def read_trust(path: str | None, findings: Findings) -> Trust:
    """What was trusted so far. A store that cannot be read trusts nothing, with a warning."""
    if path is None:
        return Trust()
    try:
        return Trust(_folders(read_regular(path)))
    except FileNotFoundError:
        return Trust()
    except (OSError, SettingsError):
        findings.warn(path, "this file cannot be read, so no workspace is trusted; coretools-mcp trust makes it anew.")
        return Trust()


def _folders(content: bytes) -> Folders:
    tree = parse(content, "trust", Findings()) if content.strip() else {}
    folders: Any = tree.get("folders")
    found: dict[str, dict[str, str]] = {}
    for folder, files in cast("dict[str, Any]", folders if isinstance(folders, dict) else {}).items():
        if isinstance(files, dict):
            found[folder] = {name: str(value) for name, value in cast("dict[str, Any]", files).items()}
    return found


def trust_folder(path: str, folder: str, files: Mapping[str, str]) -> None:
    """Trust a folder's settings files as they were seen; what was trusted of it before counts no more.

    Args:
        path: The store.
        folder: Real path of the folder.
        files: Relative path to SHA-256.

    Raises:
        ToolError, OSError: The store cannot be written.
    """
    _change(path, lambda folders: {**folders, folder: dict(files)})


def forget_folder(path: str, folder: str) -> bool:
    """Trust a folder no more; whether it had been trusted.

    Raises:
        ToolError, OSError: The store cannot be written.
    """
    had: list[bool] = []

    def without(folders: Folders) -> Folders:
        had.append(folder in folders)
        return {name: files for name, files in folders.items() if name != folder}

    _change(path, without)
    return had[-1]


def _change(path: str, change: Callable[[Folders], Folders]) -> None:
    from server.settings.own_files import rewrite  # noqa: PLC0415 - reading settings needs no writer
    from tools.contract.context import AbortSignal  # noqa: PLC0415 - as above

    def rewritten(content: bytes) -> bytes:
        try:
            folders = _folders(content)
        except SettingsError:
            folders = dict[str, Mapping[str, str]]()
        after = change(folders)
        return content if after == folders else json.dumps({"folders": after}, indent=2).encode() + b"\n"

    rewrite(path, rewritten, AbortSignal())
