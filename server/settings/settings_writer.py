"""Changes to a settings file, replaced as a whole: every other byte stays, and no other writer gets between."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from server.settings.files import parse, without_comments
from server.settings.section import SettingsError
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import AbortSignal
from tools.contract.threads import run_blocking
from tools.files.change.writer import exclusive, replace_file
from tools.files.opener import identity_of
from tools.files.workspace import Workspace

_WHY_NOT_SAVED: Mapping[ToolErrorType, str] = {
    ToolErrorType.PERMISSION_DENIED: "this server may not read or write it",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full",
    ToolErrorType.FILE_CHANGED_SINCE_READ: "somebody else changed it in the same moment",
    ToolErrorType.TARGET_IS_DIRECTORY: "there is a folder in its place",
}
"""Why the file was not written, in words that name no path."""


class SavedRules:
    """Saves rules to the user's settings file, which need not exist."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def keep(self, rules: Sequence[str]) -> str:
        """Add what is missing in `permissions.allow`, and return that key; a `file_write_failure` where it fails."""
        key, signal = "permissions.allow", AbortSignal()

        def add() -> None:
            try:
                rewrite(self._path, lambda content: with_added(content, "permissions", "allow", rules), signal)
            except SettingsError:
                why = "it cannot be read as settings now"
            except ToolError as error:
                why = _WHY_NOT_SAVED.get(error.code, "it could not be written")
            except OSError:
                why = "it could not be reached"
            else:
                return
            said = f"Nothing was saved in the user's settings file, because {why}."
            remedy = f"Put that right, or add the rules to {key} there by hand."
            raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"{said} {remedy}")

        await run_blocking(signal, add)
        return key


PRIVATE_FOLDER = 0o700  # modes of the settings folder and of a file in it where they have to be made
PRIVATE_FILE = 0o600
TRIES = 20  # how often a change is retried because somebody else wrote in the same moment (ours)


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal) -> None:
    """Put what `change` makes of a file's content in its place; no file has no content. Blocking.

    It is called again where somebody else was quicker. What fails is a `ToolError` or an `OSError`.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, PRIVATE_FOLDER, exist_ok=True)
    workspace = Workspace([folder], ignore_case=False)
    location = workspace.at(path)
    for attempt in range(TRIES):
        try:
            with exclusive(location, signal):
                content, identity = b"", None
                if workspace.stat(location) is not None:
                    with workspace.open_file(location) as opened:
                        content, identity = opened.whole(signal), identity_of(opened.info)
                changed = change(content)
                if changed == content:
                    return
                if identity is None:
                    # An object in a file that nobody else may read; what replaces it keeps its mode.
                    with suppress(FileExistsError):
                        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
                        with os.fdopen(descriptor, "wb") as file:
                            file.write(b"{}\n")
                    identity = identity_of(os.stat(path))
                replace_file(workspace, location, changed, identity)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == TRIES - 1:
                raise


INDENT = "  "
_SOURCE = "settings"  # how errors call the file, whose path is not known here


def with_added(content: bytes, section: str, key: str, texts: Sequence[str]) -> bytes:
    """The content of a settings file with texts added to the list `section.key`; none is added twice."""
    mark, text = _split_mark(content)
    inner: Any = parse(text.encode(), _SOURCE).get(section, {})
    present: Any = cast("dict[str, Any]", inner).get(key, []) if isinstance(inner, dict) else None
    if not isinstance(present, list):
        raise SettingsError([f"{_SOURCE}: {section}.{key} is not a list; make it one, such as []."])
    added = [item for item in dict.fromkeys(texts) if item not in present]
    if not added:
        return content
    if key not in inner:
        return mark + _with_member(text, section, key, added).encode()
    blanked = without_comments(text, _SOURCE)
    whole = _Container.at(blanked, blanked.index("{"))
    below = _Container.at(blanked, whole.members[section])
    items = [_written(item, "") for item in added]
    return mark + _Container.at(blanked, below.members[key]).with_items(text, items).encode()


def with_entries(content: bytes, section: str, entries: Mapping[str, Any]) -> bytes:
    """The content of a settings file with entries in the object `section`; one that is there is replaced."""
    if not entries:
        return content
    mark, text = _split_mark(content)
    if not isinstance(parse(text.encode(), _SOURCE).get(section, {}), dict):
        raise SettingsError([f"{_SOURCE}: {section} is not an object; make it one, such as {{}}."])
    for name, entry in entries.items():
        text = _with_member(text, section, name, entry)
    return mark + text.encode()


def _split_mark(content: bytes) -> tuple[bytes, str]:
    """The byte order mark, if there is one, and the text of a settings file, which is an object at least."""
    body = content.removeprefix(BOM_UTF8)
    try:
        return content[: len(content) - len(body)], body.decode() if body.strip() else "{}\n"
    except UnicodeDecodeError:
        raise SettingsError([f"{_SOURCE}: this file is not UTF-8."]) from None


def _with_member(text: str, section: str, key: str, value: Any) -> str:
    """The text of a settings file with a member of a section set; the section is made where it is missing."""
    blanked = without_comments(text, _SOURCE)
    whole = _Container.at(blanked, blanked.index("{"))
    if section not in whole.members:
        return whole.with_items(text, [f"{json.dumps(section)}: {_written({key: value}, INDENT)}"])
    below = _Container.at(blanked, whole.members[section])
    written = _written(value, INDENT * 2)
    if key not in below.keys:
        return below.with_items(text, [f"{json.dumps(key)}: {written}"])
    first, last = below.items[below.keys.index(key)]
    return text[:first] + written + text[last:]


def _written(value: Any, indent: str) -> str:
    return json.dumps(value, indent=INDENT, ensure_ascii=False).replace("\n", f"\n{indent}")


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or an array in a JSON text: its brackets, its values from start to end, and an object's keys."""

    start: int
    end: int
    items: tuple[tuple[int, int], ...]
    keys: tuple[str, ...]

    @property
    def members(self) -> dict[str, int]:
        """Where the value of each key begins; of a repeated key the last, which counts."""
        return {key: start for key, (start, _) in zip(self.keys, self.items, strict=True)}

    @classmethod
    def at(cls, text: str, start: int) -> _Container:
        """Read the container that begins here; the text is valid JSON without comments."""
        decoder, position = json.JSONDecoder(), start + 1
        items: list[tuple[int, int]] = []
        keys: list[str] = []
        while text[position := _skip(text, position)] not in "]}":
            if text[start] == "{":
                key, position = decoder.raw_decode(text, position)
                keys.append(str(key))
                position = _skip(text, text.index(":", position) + 1)
            _, after = decoder.raw_decode(text, position)
            items.append((position, after))
            position = _skip(text, after)
            position += text[position] == ","
        return cls(start, position, tuple(items), tuple(keys))

    def with_items(self, text: str, added: Sequence[str]) -> str:
        """The text with more items at the end of this container, written as those before them are."""
        if not self.items:
            outer = _indent_of(text, self.start)
            lines = ",".join(f"\n{outer}{INDENT}{item}" for item in added)
            inside = text[self.start + 1 : self.end]
            # A comment may stand where there are no items; blanks can go.
            rest = inside if inside.strip() else f"\n{outer}"
            return f"{text[: self.start + 1]}{lines}{rest}{text[self.end :]}"
        first, last = self.items[0][0], self.items[-1][1]
        between = f",\n{_indent_of(text, first)}" if "\n" in text[self.start : first] else ", "
        return text[:last] + "".join(f"{between}{item}" for item in added) + text[last:]


def _skip(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]
