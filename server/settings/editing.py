"""Adding to a list or an object in a settings file: every other byte stays, comments and indentation included."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from server.settings.errors import Findings, SettingsError
from server.settings.files import parse, without_comments

INDENT = "  "

_SOURCE = "settings"
"""How errors call the file, whose path is not known here."""


def with_added(content: bytes, section: str, key: str, texts: Sequence[str]) -> bytes:
    """The content of a settings file with texts added to the list `section.key`; those that are there stay alone.

    Args:
        content: The bytes of the file; none at all for a file that does not exist.
        section: A key at the top of the settings.
        key: The key in it that holds the list. What is missing of both is made.
        texts: What to add.

    Raises:
        SettingsError: It is no settings file, or something else than a list stands there.
    """
    mark = BOM_UTF8 if content.startswith(BOM_UTF8) else b""
    body = content.removeprefix(mark)
    if not body.strip():
        return mark + _written({section: {key: list(texts)}}, "").encode() + b"\n"
    present = _listed(parse(body, _SOURCE, Findings()), section, key)
    added = [text for text in dict.fromkeys(texts) if text not in present]
    return mark + _spliced(body.decode(), section, key, added).encode() if added else content


def with_entries(content: bytes, section: str, entries: Mapping[str, Any]) -> bytes:
    """The content of a settings file with entries in the object `section`; one that is there is replaced in its place.

    Args:
        content: The bytes of the file; none at all for a file that does not exist.
        section: A key at the top of the settings; made where it is missing.
        entries: The entries by their names.

    Raises:
        SettingsError: It is no settings file, or something else than an object stands there.
    """
    mark = BOM_UTF8 if content.startswith(BOM_UTF8) else b""
    body = content.removeprefix(mark)
    if not entries:
        return content
    if not body.strip():
        return mark + _written({section: dict(entries)}, "").encode() + b"\n"
    inner: Any = parse(body, _SOURCE, Findings()).get(section, {})
    if not isinstance(inner, dict):
        raise SettingsError([f"{_SOURCE}: {section} is no object; make it one, such as {{}}."])
    text = body.decode()
    for name, entry in entries.items():
        text = _with_entry(text, section, name, entry)
    return mark + text.encode()


def _with_entry(text: str, section: str, name: str, entry: object) -> str:
    blanked = without_comments(text, _SOURCE)
    root = _Container.at(blanked, blanked.index("{"))
    start = root.members.get(section)
    if start is None:
        return root.with_member(text, section, _written({name: entry}, INDENT))
    inner = _Container.at(blanked, start)
    if name not in inner.members:
        return inner.with_member(text, name, _written(entry, INDENT * 2))
    first, last = next(place for key, place in zip(inner.keys, inner.items, strict=True) if key == name)
    return text[:first] + _written(entry, INDENT * 2) + text[last:]


def _listed(tree: dict[str, Any], section: str, key: str) -> Sequence[object]:
    inner: Any = tree.get(section, {})
    listed: Any = cast("dict[str, Any]", inner).get(key, []) if isinstance(inner, dict) else None
    if not isinstance(listed, list):
        raise SettingsError([f"{_SOURCE}: {section}.{key} is no list; make it one, such as []."])
    return cast("list[object]", listed)


def _spliced(text: str, section: str, key: str, added: Sequence[str]) -> str:
    blanked = without_comments(text, _SOURCE)
    whole = _Container.at(blanked, blanked.index("{"))
    inner_start = whole.members.get(section)
    if inner_start is None:
        return whole.with_member(text, section, _written({key: list(added)}, INDENT))
    inner = _Container.at(blanked, inner_start)
    list_start = inner.members.get(key)
    if list_start is None:
        return inner.with_member(text, key, _written(list(added), INDENT * 2))
    return _Container.at(blanked, list_start).with_items(text, [_written(item, "") for item in added])


def _written(value: Any, indent: str) -> str:
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

    def with_member(self, text: str, key: str, value: str) -> str:
        """The text with one more member at the end of this object."""
        return self.with_items(text, [f"{json.dumps(key)}: {value}"])

    def with_items(self, text: str, added: Sequence[str]) -> str:
        """The text with more items at the end of this container, written as those before them are."""
        if not self.items:
            outer = _indent_of(text, self.start)
            lines = "".join(f"\n{outer}{INDENT}{item}," for item in added).removesuffix(",")
            inside = text[self.start + 1 : self.end]
            # A comment may stand where there are no items; of blanks nobody misses any.
            rest = inside if inside.strip() else f"\n{outer}"
            return f"{text[: self.start + 1]}{lines}{rest}{text[self.end :]}"
        last = self.items[-1][1]
        first = self.items[0][0]
        own_lines = "\n" in text[self.start : first]
        between = f",\n{_indent_of(text, first)}" if own_lines else ", "
        return text[:last] + "".join(f"{between}{item}" for item in added) + text[last:]


def _skip(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]
