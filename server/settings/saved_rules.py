"""Adding rules to the user's own settings file; every other byte of it stays as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from server.settings.errors import Findings, SettingsError
from server.settings.files import parse, without_comments
from tools.contract.builtin_tool import run_blocking
from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.changing.writer import exclusive, replace_file
from tools.filesystem.descriptors import identity_of
from tools.filesystem.workspace import Workspace

PRIVATE_FOLDER = 0o700
"""Mode of the settings folder where it has to be made."""

PLACE = ("permissions", "allow")
"""Where rules that a person saves stand."""

INDENT = "  "


class SavedRules:
    """Saves rules to the user's settings file.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def keep(self, rules: Sequence[str]) -> str:
        """Add rules that are not there yet to `permissions.allow`, whole or not at all.

        Raises:
            ToolError: The file cannot be read as settings, or cannot be written.
        """
        signal = AbortSignal()
        await run_blocking(signal, lambda: self._add(rules, signal))
        return ".".join(PLACE)

    def _add(self, rules: Sequence[str], signal: AbortSignal) -> None:
        folder = os.path.dirname(self._path)
        try:
            os.makedirs(folder, PRIVATE_FOLDER, exist_ok=True)
        except OSError:
            raise _not_saved("its folder cannot be made") from None
        workspace = Workspace([folder], ignore_case=False)
        location = workspace.at(self._path)
        with exclusive(location, signal):
            info = workspace.stat(location)
            text = ""
            if info is not None:
                with workspace.open_file(location) as opened:
                    info = opened.info
                    text = opened.whole(signal).decode("utf-8", "surrogateescape")
            try:
                changed = with_rules(text, rules)
            except (SettingsError, ValueError):
                raise _not_saved("it is no settings file as it is now") from None
            if changed != text:
                content = changed.encode("utf-8", "surrogateescape")
                replace_file(workspace, location, content, identity_of(info) if info is not None else None)


def _not_saved(why: str) -> ToolError:
    return ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"The rules were not saved to the user's settings: {why}.")


def with_rules(text: str, rules: Sequence[str]) -> str:
    """The text of a settings file with rules added to `permissions.allow`.

    Raises:
        SettingsError: It is no settings file.
        ValueError: What stands where the rules belong is no list of texts.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    body = text.removeprefix(mark)
    tree = parse(body.encode("utf-8", "surrogateescape"), "settings", Findings()) if body.strip() else {}
    present = _present(tree)
    added = [json.dumps(rule, ensure_ascii=False) for rule in dict.fromkeys(rules) if rule not in present]
    if not added:
        return text
    if not body.strip():
        return mark + _object({PLACE[0]: {PLACE[1]: list(rules)}}, "") + "\n"
    blanked = without_comments(body, "settings")
    root = _Container.at(blanked, blanked.index("{"))
    section = root.members.get(PLACE[0])
    if section is None:
        return mark + root.with_member(body, PLACE[0], _object({PLACE[1]: list(rules)}, INDENT))
    inner = _Container.at(blanked, section)
    listed = inner.members.get(PLACE[1])
    if listed is None:
        return mark + inner.with_member(body, PLACE[1], _object(list(rules), INDENT * 2))
    return mark + _Container.at(blanked, listed).with_items(body, added)


def _present(tree: dict[str, Any]) -> Sequence[str]:
    section: Any = tree.get(PLACE[0], {})
    if not isinstance(section, dict):
        raise ValueError(PLACE[0])  # noqa: TRY004 - of the file, not of an argument
    present: Any = cast("dict[str, Any]", section).get(PLACE[1], [])
    if not isinstance(present, list):
        raise ValueError(PLACE[0])  # noqa: TRY004 - of the file, not of an argument
    return cast("list[str]", present)


def _object(value: Any, indent: str) -> str:
    return json.dumps(value, indent=INDENT, ensure_ascii=False).replace("\n", f"\n{indent}")


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or an array in a JSON text: where its parts stand.

    Args:
        start: Offset of its opening bracket.
        end: Offset of its closing bracket.
        items: Start and end offsets of its values.
        keys: For an object, each value's key.
    """

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
        """Read the container that begins here; the text is valid JSON."""
        decoder, position = json.JSONDecoder(), start + 1
        items: list[tuple[int, int]] = []
        keys: list[str] = []
        while (position := _skip(text, position)) < len(text) and text[position] not in "]}":
            if text[start] == "{":
                key, position = decoder.raw_decode(text, position)
                keys.append(str(key))
                position = _skip(text, text.index(":", position) + 1)
            _, after = decoder.raw_decode(text, position)
            items.append((position, after))
            position = _skip(text, after)
            position += text[position] == ","
        return cls(start, position, tuple(items), tuple(keys))

    def with_member(self, text: str, key: str, value: str) -> str:
        """The text with one more member at the end of this object."""
        return self.with_items(text, [f"{json.dumps(key)}: {value}"])

    def with_items(self, text: str, added: Sequence[str]) -> str:
        """The text with more items at the end of this container, written as those before them are."""
        if not self.items:
            outer = _indent_of(text, self.start)
            lines = f",\n{outer}{INDENT}".join(added)
            return f"{text[: self.start + 1]}\n{outer}{INDENT}{lines}\n{outer}{text[self.end :]}"
        last = self.items[-1][1]
        first = self.items[0][0]
        own_lines = "\n" in text[self.start : first]
        between = f",\n{_indent_of(text, first)}" if own_lines else ", "
        return text[:last] + "".join(f"{between}{item}" for item in added) + text[last:]


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]
