"""Formats a language server's responses: places with their lines, except lines that are hidden from the client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.contract.tool_errors import ToolError
from tools.files.ignore_files import why_hidden
from tools.files.workspace import Location, Workspace, contains
from tools.lsp.language_server_session import (
    Diagnostic,
    DocumentPosition,
    LanguageServerSession,
    as_list,
    as_object,
    lines_of,
    path_of,
    read_document,
    start_of,
    uri_of,
)
from tools.text.file_names import one_line, shown_whole_path

LINE_CHARS = 200  # maximum length of a line, or of a place's description
HOVER_CHARS = 6_000
DEEPEST = 20  # maximum depth of nested symbols
MAX_LOOKED_AT = 20_000  # maximum number of entries examined in one response
MAX_CHARS = 32_000_000  # maximum total length of the files whose lines one result shows
_KINDS = (  # the protocol's symbol kinds, in the order of their numbers
    (  # noqa: SIM905 - a list would take thirty lines
        "file module namespace package class method property field constructor enum interface function variable "
        "constant string number boolean array object key null enum_member struct event operator type_parameter"
    ).split()
)


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A place in a response, with its description."""

    uri: Any
    start: DocumentPosition
    said: str = ""
    depth: int = 0


def places_in(answer: Any) -> list[CodePlace]:
    """Return the places in a `Location`, a `LocationLink`, or an array of these, without duplicates."""
    found: dict[tuple[str, DocumentPosition], CodePlace] = {}
    for given in (as_list(answer) or [answer])[:MAX_LOOKED_AT]:
        item = as_object(given)
        uri = item.get("targetUri", item.get("uri"))
        start = start_of(item.get("targetSelectionRange", item.get("range")))
        if isinstance(uri, str) and start is not None:
            found.setdefault((uri, start), CodePlace(uri, start))
    return list(found.values())


def symbols_in(answer: Any, uri: str = "") -> Iterator[CodePlace]:
    """Yield the symbols of a document or the workspace. Nested symbols follow their parents."""
    waiting = [(as_object(item), 0) for item in reversed(as_list(answer)[:MAX_LOOKED_AT])]
    left = MAX_LOOKED_AT
    while waiting and left:
        left -= 1
        item, depth = waiting.pop()
        place = as_object(item.get("location"))
        start = start_of(item.get("selectionRange", item.get("range", place.get("range")))) or DocumentPosition(0, 0)
        name, kind = item.get("name"), item.get("kind")
        if isinstance(name, str):
            what = _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"
            inside = item.get("containerName")
            where = f" in {inside}" if isinstance(inside, str) and inside else ""
            yield CodePlace(place.get("uri", uri), start, f"{what} {_short(name)}{_short(where)}", depth)
        if depth < DEEPEST:
            children = as_list(item.get("children"))[:left]
            waiting += ((as_object(child), depth + 1) for child in reversed(children))


def place_of(path: str, item: Diagnostic) -> CodePlace:
    return CodePlace(uri_of(path), item.start, item.text())


def hover_text(answer: Any) -> str:
    """Return the text of a hover response, truncated if it is long."""
    contents = as_object(answer).get("contents")
    parts = as_list(contents) or [contents]
    texts = (part if isinstance(part, str) else as_object(part).get("value") for part in parts[:100])
    text = "\n\n".join(text.strip() for text in texts if isinstance(text, str))
    return text if len(text) <= HOVER_CHARS else f"{text[:HOVER_CHARS]}\n[cut here]"


def _short(text: str) -> str:
    line = one_line(text[: 2 * LINE_CHARS].replace("\t", " "))
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}..."


@dataclass(frozen=True, slots=True)
class _ReadFile:
    shown: str
    lines: list[str] | None  # `None` if the lines are not shown
    why: str = ""  # the reason, if a rule hides the lines


@dataclass(slots=True)
class Teller:
    """Describes places for one client. Blocking, because it reads the lines of the places.

    The caller has already checked that the client may read the file `asked`.
    """

    workspace: Workspace
    session: LanguageServerSession
    asked: Location | None = None
    _files: dict[str, _ReadFile] = field(default_factory=dict[str, _ReadFile])
    _left: int = MAX_CHARS

    def hides(self, place: CodePlace) -> str:
        """Return why the client may not see a place, or an empty string."""
        return self._file_of(place).why

    def line(self, place: CodePlace) -> str:
        file, (number, units) = self._file_of(place), place.start
        if file.why:
            return f"{file.shown}:{number + 1} (hidden from agents by {file.why})"
        said = f" {'  ' * place.depth}{place.said}" if place.said else ""
        if file.lines is None or number >= len(file.lines):
            gone = "" if file.lines is None else " (no such line)"
            return f"{file.shown}:{number + 1}{gone}:{said}".rstrip(":")
        line = file.lines[number]
        return (
            f"{file.shown}:{number + 1}:{self.session.characters(line, units) + 1}:{said or f' {_short(line.strip())}'}"
        )

    def _file_of(self, place: CodePlace) -> _ReadFile:
        raw = place.uri if isinstance(place.uri, str) else ""
        path = path_of(raw)
        key = path if path is not None else raw
        if key not in self._files and path is not None:
            self._files[key] = self._look(path)
        elif key not in self._files:
            hides = self.session.hidden.files.masked or self.session.hidden.problem
            why = "a rule or an ignore file that may apply (the path is unknown)" if hides else ""
            self._files[key] = _ReadFile(_short(raw) or "(no place)", None, why)
        return self._files[key]

    def _look(self, named: str) -> _ReadFile:
        try:
            path = os.path.realpath(named)
        except OSError:
            return _ReadFile(shown_whole_path(named), None)
        if not any(contains(root, path) for root in self.workspace.roots):
            return _ReadFile(shown_whole_path(named), None)
        location = self.workspace.at(path)
        shown = location.relative if location.root == self.workspace.roots[0] else location.path
        shown = shown_whole_path(shown)
        why = ""
        if self.asked is None or self.asked.path != path:
            try:
                why = why_hidden(self.workspace, location) or ""
            except ToolError:
                why = "an ignore file that is not understood"
        try:
            if why or self._left < 0:
                return _ReadFile(shown, None, why)
            text = read_document(self.workspace, location)[1]
            self._left -= len(text)
            return _ReadFile(shown, lines_of(text))
        except ToolError:
            return _ReadFile(shown, None)
