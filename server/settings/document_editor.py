"""Changes the user's files: edits in the text of a JSON or TOML file, the replacement of a whole file, and saved rules.

Additions follow the style of the file, and all other bytes stay unchanged. Each edit is verified: when parsed again,
the new text must have the old content with exactly this change. Concurrent writes to a file cannot mix. All edits raise
`SettingsError` if the file is not valid, if a value along the path has the wrong type, or if no edit is safe.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

from server.settings.section_model import SettingsError, dotted
from server.settings.settings_files import (
    MAX_FILE_BYTES,
    Tree,
    parent_at,
    parse,
    value_at,
    without_comments,
    without_trailing_commas,
)
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import exclusive, replace_file
from tools.files.path_opener import identity_of
from tools.files.workspace import Workspace
from tools.machine.threads import run_blocking

INDENT = "  "  # the indentation to use if the file itself has none
_CACHE_SIZE = 4  # number of parsed texts to cache: an edit parses in several steps, and a client's file may be large
_SOURCE = "settings"  # the name of a file in errors if its path is not known
PRIVATE_FOLDER = 0o700  # mode of a new folder
PRIVATE_FILE = 0o600  # mode of a new file
MAX_ATTEMPTS = 20  # the maximum number of attempts if another program keeps changing the file
MemberPath = tuple[str, ...]


def with_items(content: bytes, section: str, key: str, texts: Sequence[str]) -> bytes:
    """Add the strings in `texts` to the list `section.key` of a settings file, except those already in the list."""
    document = JsonDocument.parse(content, _SOURCE, MAX_FILE_BYTES)
    inner: Any = document.tree.get(section, {})
    old_items: Any = cast("Tree", inner).get(key, []) if isinstance(inner, dict) else None
    if not isinstance(old_items, list):
        raise SettingsError([f"{_SOURCE}: {section}.{key} is not a list; make it one, such as []."])
    new_items = [item for item in dict.fromkeys(texts) if item not in old_items]
    if not new_items:
        return content
    if key not in inner:
        return with_member(content, (section, key), new_items)
    start = document.containers((section,))[-1].members[key]
    candidates = document.insertions(_Container.at(document.strict, start), new_items)
    return document.choose(candidates, _tree_with(document.tree, (section, key), [*old_items, *new_items]))


def with_entries(content: bytes, section: str, entries: Mapping[str, Any]) -> bytes:
    """Set entries in the object `section` of a settings file; an existing entry is replaced."""
    for name, entry in entries.items():
        content = with_member(content, (section, name), entry)
    return content


def with_member(
    content: bytes, path: MemberPath, value: Any, source: str = _SOURCE, max_bytes: int = MAX_FILE_BYTES
) -> bytes:
    """Set the value at `path` in a JSON file; missing objects above it are created."""
    document = JsonDocument.parse(content, source, max_bytes)
    containers = document.containers(path[:-1])
    container, key = containers[-1], path[len(containers) - 1]
    expected = _tree_with(document.tree, path, value)
    if len(containers) == len(path) and key in container.keys:
        index = len(container.keys) - 1 - container.keys[::-1].index(key)  # for a repeated key, the last one counts
        _, first, last = container.items[index]
        new_text = document.value_text(value, None if document.is_inline(container) else document.indent_in(container))
        return document.choose([document.text[:first] + new_text + document.text[last:]], expected)
    for step in reversed(path[len(containers) :]):
        value = {step: value}
    return document.choose(document.insertions(container, [value], key), expected)


def without_member(content: bytes, path: MemberPath, source: str = _SOURCE, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Remove the key at the end of `path` from a JSON file, with its value, its comma and surrounding blanks."""
    document = JsonDocument.parse(content, source, max_bytes)
    containers = document.containers(path[:-1])
    if len(containers) < len(path) or path[-1] not in containers[-1].keys:
        return content
    members = cast("Tree", parent_at(document.tree, path))
    expected = _tree_with(document.tree, path[:-1], {key: item for key, item in members.items() if key != path[-1]})
    container = containers[-1]
    return document.choose([document.without_item(container, container.keys.index(path[-1]))], expected)


def doubtful_key(content: bytes, path: MemberPath, source: str, max_bytes: int = MAX_FILE_BYTES) -> str | None:
    """Return what is wrong with the first doubtful key of `path`, or `None`.

    A key is doubtful if it is repeated or, except for the last one, also occurs in another spelling.
    """
    document = JsonDocument.parse(content, source, max_bytes)
    for depth, container in enumerate(document.containers(path[:-1])):
        key_path = dotted(path[: depth + 1])
        if container.keys.count(path[depth]) > 1:
            return f"{key_path} occurs more than once"
        folded_key = re.sub(r"[_-]", "", path[depth]).casefold()
        similar_keys = (key for key in container.keys if re.sub(r"[_-]", "", key).casefold() == folded_key)
        other_spelling = next((key for key in similar_keys if key != path[depth]), None)
        if depth < len(path) - 1 and other_spelling is not None:
            return f"{key_path} also occurs in another spelling, {json.dumps(other_spelling)}"
    return None


def _tree_with(tree: Tree, path: MemberPath, value: Any) -> Tree:
    """Return a copy of a tree with `value` at `path`; both trees share the unchanged parts."""
    return {**tree, path[0]: _tree_with(tree.get(path[0], {}), path[1:], value)} if path else value


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or an array in a JSON text: the positions of its brackets and items, and the keys of an object.

    Each item is described by three positions: its start (in an object, the start of its key), the start of its value,
    and its end.
    """

    start: int
    end: int
    items: tuple[tuple[int, int, int], ...]
    keys: tuple[str, ...]

    @property
    def members(self) -> dict[str, int]:
        """Where the value of each key begins; for a repeated key, where the last value begins."""
        return {key: start for key, (_, start, _) in zip(self.keys, self.items, strict=True)}

    @classmethod
    @lru_cache(maxsize=_CACHE_SIZE)
    def at(cls, text: str, start: int) -> _Container:
        """Parse the container that begins at `start`. The text is valid JSON, without comments or trailing commas."""
        decoder, position = json.JSONDecoder(), start + 1
        items: list[tuple[int, int, int]] = []
        keys: list[str] = []
        while text[position := _skip(text, position)] not in "]}":
            begin = position
            if text[start] == "{":
                key, position = decoder.raw_decode(text, position)
                keys.append(str(key))
                position = _skip(text, text.index(":", position) + 1)
            _, item_end = decoder.raw_decode(text, position)
            items.append((begin, position, item_end))
            position = _skip(text, item_end)
            position += text[position] == ","
        return cls(start, position, tuple(items), tuple(keys))


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A JSON file: its text, copies of the text with comments and trailing commas blanked out, and its content."""

    source: str
    max_bytes: int
    mark: bytes  # the byte order mark, if any
    text: str
    plain: str  # the text without comments
    strict: str  # the text without comments or trailing commas
    tree: Tree

    @classmethod
    @lru_cache(maxsize=_CACHE_SIZE)
    def parse(cls, content: bytes, source: str, max_bytes: int) -> JsonDocument:
        body = content.removeprefix(BOM_UTF8)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise SettingsError([f"{source}: this file is not UTF-8."]) from None
        if not text.removeprefix("\ufeff").strip():  # `parse` reads such a file as `{}`
            text = "{}\n"
        plain = without_comments(text, source)
        strict = without_trailing_commas(plain)
        # A file with nothing but comments is refused: it has no object to add to.
        tree = parse((strict if strict.strip() else text).encode(), source, max_bytes=max_bytes)
        return cls(source, max_bytes, content[: len(content) - len(body)], text, plain, strict, tree)

    def choose(self, candidates: Iterator[str] | Sequence[str], expected: Tree) -> bytes:
        """Return the first candidate that has the expected content when parsed."""
        for text in candidates:
            content = self.mark + text.encode()
            try:
                if JsonDocument.parse(content, self.source, self.max_bytes).tree == expected:
                    return content
            except SettingsError:
                continue
        raise SettingsError([f"{self.source}: this file cannot be edited safely because of how it is written."])

    @property
    def top(self) -> _Container:
        return _Container.at(self.strict, self.strict.index("{"))

    def containers(self, path: MemberPath) -> list[_Container]:
        """Return the existing objects along a path, from the top down."""
        objects = [self.top]
        for depth, step in enumerate(path, start=1):
            if step not in objects[-1].keys:
                break
            if not isinstance(value_at(self.tree, path[:depth]), dict):
                message = f"{dotted(path[:depth])} is not an object; make it one, such as {{}}."
                raise SettingsError([f"{self.source}: {message}"])
            objects.append(_Container.at(self.strict, objects[-1].members[step]))
        return objects

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def unit(self) -> str:
        """The indentation of one level, taken from the outermost object."""
        top = self.top
        first = top.items[0][0] if top.items else 0
        indent = _indent_of(self.text, first) if "\n" in self.text[:first] else ""
        return indent.removeprefix(_indent_of(self.text, top.start)) or INDENT

    @property
    def colon(self) -> str:
        return ":" if re.match(r'\s*\{\s*"(?:[^"\\]|\\.)*":\S', self.text) else ": "

    def is_inline(self, container: _Container) -> bool:
        """Return whether items are on the bracket's line; if there are none, those of the outermost object decide."""
        if container.items:
            return "\n" not in self.text[container.start : container.items[0][0]]
        top = self.top
        return bool(top.items) and "\n" not in self.text[top.start : top.end]

    def indent_in(self, container: _Container) -> str:
        if container.items:
            return _indent_of(self.text, container.items[0][0])
        return _indent_of(self.text, container.start) + self.unit

    def value_text(self, value: Any, indent: str | None) -> str:
        """Return a value in the style of this file, with `indent` before each line but the first.

        If `indent` is `None`, the value is on one line.
        """
        colon = self.colon
        if indent is None:
            return json.dumps(value, ensure_ascii=False, separators=(colon.replace(":", ","), colon))
        block = json.dumps(value, ensure_ascii=False, indent=self.unit, separators=(",", colon))
        return block.replace("\n", f"{self.newline}{indent}")

    def insertions(self, container: _Container, values: Sequence[Any], key: str | None = None) -> Iterator[str]:
        """Yield whole texts with new values at the end of a container, the best style first.

        In an object, `values` has one value, whose key is `key`.
        """
        text, newline = self.text, self.newline
        indent = self.indent_in(container)
        inline = self.is_inline(container)
        prefix = f"{json.dumps(key, ensure_ascii=False)}{self.colon}" if key is not None else ""
        items = [prefix + self.value_text(value, None if inline else indent) for value in values]
        comma = self.colon.replace(":", ",") if inline else f",{newline}{indent}"
        if not container.items:
            if inline:
                yield text[: container.start + 1] + comma.join(items) + text[container.start + 1 :]
            inside = text[container.start + 1 : container.end]
            # An empty container may contain a comment, which stays; blanks on a single line are dropped.
            rest = inside if inside.strip() or "\n" in inside else f"{newline}{_indent_of(text, container.start)}"
            yield f"{text[: container.start + 1]}{newline}{indent}{comma.join(items)}{rest}{text[container.end :]}"
            return
        last = container.items[-1][2]
        has_comma = "," in self.plain[last : container.end]
        stop = self._line_end(last)
        tail = self.plain[last:stop].strip()
        if not inline and stop < container.end and tail == ("," if has_comma else ""):
            # Insert after any comment that follows the last item.
            lines = f"{newline}{indent}{comma.join(items)}"
            yield text[:last] + "," * (not has_comma) + text[last:stop] + lines + "," * has_comma + text[stop:]
        yield text[:last] + "".join(f"{comma}{item}" for item in items) + text[last:]

    def without_item(self, container: _Container, index: int) -> str:
        text = self.text
        start, _, end = container.items[index]
        previous_end = container.items[index - 1][2] if index else container.start + 1
        is_last = index + 1 == len(container.items)
        next_start = container.end if is_last else container.items[index + 1][0]
        comma, comma_before = self.plain.find(",", end, next_start), self.plain.find(",", previous_end, start)
        line = text.rfind("\n", 0, start)
        has_own_line = line >= previous_end and not text[line + 1 : start].strip()
        cuts: list[tuple[int, int]] = []
        if comma < 0 or (is_last and index and not has_own_line):
            # Remove the comma before the item; a comma after the item now belongs to the previous item.
            if index:
                cuts.append((comma_before, comma_before + 1))
                start = start if has_own_line or text[comma_before + 1 : start].strip() else comma_before + 1
        elif text[end:comma].strip():
            cuts.append((comma, comma + 1))
        else:
            end = comma + 1
        stop = self._line_end(end)
        if has_own_line and not self.plain[end:stop].strip():
            start = line - (text[line - 1 : line] == "\r")
            end = stop if not text[end:stop].strip() else end
        elif comma >= 0 and not (is_last and index):
            end = min(_skip(text, end), next_start)
        for first, last in sorted([(start, end), *cuts], reverse=True):
            text = text[:first] + text[last:]
        new_end = container.end - sum(last - first for first, last in [(start, end), *cuts])
        if len(container.items) == 1 and not text[container.start + 1 : new_end].strip():
            text = text[: container.start + 1] + text[new_end:]
        return text

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        if end < 0:
            return len(self.text)
        return end - (end > position and self.text[end - 1] == "\r")


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


# TOML: a table is appended and removed as a whole, and the standard library's parser checks the result.

_HEADER = re.compile(r"^[ \t]*\[.*$", re.MULTILINE)
_COMMENTS_AT_END = re.compile(r"(?:^[ \t]*#.*\n(?:[ \t]*(?:#.*)?\r?\n)*)?\Z", re.MULTILINE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@lru_cache(maxsize=_CACHE_SIZE)
def toml_tree(content: bytes, source: str) -> Tree:
    """Parse a TOML file. The result is cached, so it must not be changed."""
    try:
        # A NaN is not equal to itself, but containers treat identical objects as equal. So all NaNs become one object.
        text = content.removeprefix(BOM_UTF8).decode()
        return tomllib.loads(text, parse_float=lambda digits: math.nan if "nan" in digits else float(digits))
    except UnicodeDecodeError:
        raise SettingsError([f"{source}: this file is not UTF-8."]) from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits also raises `ValueError`
        match = re.search(r"at line \d+, column \d+", str(error))
        location = f" {match[0]}" if match else ""
        raise SettingsError([f"{source}: this file is not valid TOML{location}."]) from None


def toml_table(path: MemberPath, table: Mapping[str, Any]) -> str:
    """Return a table as TOML. Each value in `table` is a string, number, boolean, list, or object of strings."""
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join([f"[{'.'.join(map(_toml_key, path))}]", *lines]) + "\n"


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{_toml_key(key)} = {_toml_value(item)}" for key, item in cast("Tree", value).items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in cast('list[Any]', value))}]"
    # A date becomes a string here, but the check of the result rejects it.
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def with_table(content: bytes, path: MemberPath, table: Mapping[str, Any], source: str) -> bytes:
    """Append a table to a TOML file, replacing a table with the same path."""
    tree = toml_tree(content, source)
    if value_at(tree, path) is not None:
        content = without_table(content, path, source)
    text = content.decode()
    lines = toml_table(path, table)
    gap = "" if not text.strip("\ufeff \t\r\n") else "\n" if text.endswith("\n") else "\n\n"
    newline = "\r\n" if "\r\n" in text else "\n"
    new_content = (text + (gap + lines).replace("\n", newline)).encode()
    try:
        if toml_tree(new_content, source) == _tree_with(tree, path, dict(table)):
            return new_content
    except SettingsError:
        pass
    parent_key, member = dotted(path[:-1]), f"{_toml_key(path[-1])} = {_toml_value(dict(table))}"
    message = f"{parent_key} is written as {parent_key} = {{...}}, and no table can be added to it"
    raise SettingsError([f"{source}: {message}. Add this by hand, within its braces: {member}"])


def without_table(content: bytes, path: MemberPath, source: str) -> bytes:
    """Remove a table and its subtables from a TOML file."""
    tree = toml_tree(content, source)
    if value_at(tree, path) is None:
        return content
    expected = deepcopy(tree)
    siblings = cast("Tree", parent_at(expected, path))
    del siblings[path[-1]]
    body = content.removeprefix(BOM_UTF8)
    text, kept_text = body.decode(), ""
    for first, last in pairwise([0, *(match.start() for match in _HEADER.finditer(text)), len(text)]):
        piece = text[first:last]
        head = piece.partition("\n")[0].rstrip("\r")
        is_below = _is_toml(head) and value_at(tomllib.loads(head), path) is not None
        if is_below and _is_toml(text[:first]):  # otherwise the header is part of a multi-line string
            # Comments before the next header belong to that header. If this table is the last one, the blank line
            # before it was added together with it, and is removed too.
            piece = piece.removeprefix(_COMMENTS_AT_END.sub("", piece))
            kept_text = re.sub(r"(?<=\n)\r?\n\Z", "", kept_text) if last == len(text) else kept_text
        kept_text += piece
    new_content = content[: len(content) - len(body)] + kept_text.encode()
    new_tree = toml_tree(new_content, source)
    if not siblings and len(path) > 1:
        # The parent table may have disappeared together with the table.
        parent = cast("Tree", parent_at(expected, path[:-1]))
        if value_at(new_tree, path[:-1]) is None:
            del parent[path[-2]]
    if new_tree != expected:
        message = f"{dotted(path)} cannot be removed safely because of how it is written. Remove it by hand."
        raise SettingsError([f"{source}: {message}"])
    return new_content


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


# Whole files, and the rules that a person saves.


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal | None = None) -> None:
    """Replace a file's content with the result of `change`; a link is kept, and its target is changed. Blocks.

    A missing file counts as empty, and is created readable only by its owner. `change` is called again if another
    program has written in the meantime. `signal` aborts the wait for another writer in this process.

    Raises:
        ToolError: The file cannot be read or written, or other programs keep writing it (`file_changed_since_read`).
        OSError: The file's folder cannot be created.
    """
    path, signal = os.path.realpath(path), signal or AbortSignal()
    folder = os.path.dirname(path)
    os.makedirs(folder, PRIVATE_FOLDER, exist_ok=True)
    workspace = Workspace([folder], ignore_case=False)
    location = workspace.at(path)
    for attempt in range(MAX_ATTEMPTS):
        try:
            with exclusive(location, signal):
                content, identity = b"", None
                if workspace.stat(location) is not None:
                    with workspace.open_file(location) as file:
                        content, identity = file.whole(signal), identity_of(file.info)
                if (new_content := change(content)) != content:
                    replace_file(workspace, location, new_content, identity, mode=PRIVATE_FILE)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == MAX_ATTEMPTS - 1:
                raise


_SAVE_FAILURES: Mapping[ToolErrorType, str] = {
    ToolErrorType.PERMISSION_DENIED: "this server may not read or write it",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full",
    ToolErrorType.FILE_CHANGED_SINCE_READ: "another program changed it at the same moment",
    ToolErrorType.TARGET_IS_DIRECTORY: "a folder has its name",
}
"""Why the settings file was not written. The texts contain no path."""


class SavedRules:
    """Saves rules to the user's settings file, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def save(self, rules: Sequence[str]) -> str:
        """Add the missing rules to `permissions.allow`, and return that key.

        A `ToolError` (`file_write_failure`, with the reason but no path) means that nothing was saved.
        """
        key, signal = "permissions.allow", AbortSignal()

        def add() -> None:
            try:
                rewrite(self._path, lambda content: with_items(content, "permissions", "allow", rules), signal)
            except SettingsError:
                reason = "its content is not valid"
            except ToolError as error:
                reason = _SAVE_FAILURES.get(error.code, "it could not be written")
            except OSError:
                reason = "it could not be reached"
            else:
                return
            problem = f"Nothing was saved in the user's settings file: {reason}."
            remedy = f"Fix this problem, or add the rules to {key} there by hand."
            raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"{problem} {remedy}")

        await run_blocking(signal, add)
        return key
