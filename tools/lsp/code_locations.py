"""Formats code locations named by a language server, without the text of lines that are hidden from the client."""

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
MAX_DEPTH = 20  # maximum depth of nested symbols
MAX_ENTRIES = 20_000  # maximum number of entries examined in one response
MAX_CHARS = 32_000_000  # maximum total length of the files whose lines one result shows
_KINDS = (  # the protocol's symbol kinds, in the order of their numbers
    (  # noqa: SIM905 - a list would take thirty lines
        "file module namespace package class method property field constructor enum interface function variable "
        "constant string number boolean array object key null enum_member struct event operator type_parameter"
    ).split()
)


@dataclass(frozen=True, slots=True)
class CodePlace:
    uri: Any
    start: DocumentPosition
    description: str = ""
    depth: int = 0


def places_in(answer: Any) -> list[CodePlace]:
    """Return the places in a `Location`, a `LocationLink`, or an array of these, without duplicates."""
    places: dict[tuple[str, DocumentPosition], CodePlace] = {}
    for entry in (as_list(answer) or [answer])[:MAX_ENTRIES]:
        item = as_object(entry)
        uri = item.get("targetUri", item.get("uri"))
        start = start_of(item.get("targetSelectionRange", item.get("range")))
        if isinstance(uri, str) and start is not None:
            places.setdefault((uri, start), CodePlace(uri, start))
    return list(places.values())


def symbols_in(answer: Any, uri: str = "") -> Iterator[CodePlace]:
    """Yield the symbols of a document or the workspace. Nested symbols follow their parents."""
    stack = [(as_object(item), 0) for item in reversed(as_list(answer)[:MAX_ENTRIES])]
    remaining = MAX_ENTRIES
    while stack and remaining:
        remaining -= 1
        item, depth = stack.pop()
        place = as_object(item.get("location"))
        start = start_of(item.get("selectionRange", item.get("range", place.get("range")))) or DocumentPosition(0, 0)
        name, kind = item.get("name"), item.get("kind")
        if isinstance(name, str):
            kind_name = _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"
            container = item.get("containerName")
            suffix = f" in {container}" if isinstance(container, str) and container else ""
            yield CodePlace(place.get("uri", uri), start, f"{kind_name} {_short(name)}{_short(suffix)}", depth)
        if depth < MAX_DEPTH:
            children = as_list(item.get("children"))[:remaining]
            stack += ((as_object(child), depth + 1) for child in reversed(children))


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
class _FileLines:
    display_path: str
    lines: list[str] | None  # `None` if the lines are not shown
    hidden_by: str = ""  # the rule or ignore file that hides the lines, or an empty string


@dataclass(slots=True)
class PlaceFormatter:
    """Describes places for one client. Blocking, because it reads the lines at those places."""

    workspace: Workspace
    session: LanguageServerSession
    requested_file: Location | None = None  # the caller has already checked that the client may read this file
    _files: dict[str, _FileLines] = field(default_factory=dict[str, _FileLines])
    _remaining_chars: int = MAX_CHARS

    def hidden_by(self, place: CodePlace) -> str:
        """Return what hides a place from the client (such as a rule); empty if nothing does."""
        return self._file_of(place).hidden_by

    def format_line(self, place: CodePlace) -> str:
        file, (number, units) = self._file_of(place), place.start
        if file.hidden_by:
            return f"{file.display_path}:{number + 1} (hidden from agents by {file.hidden_by})"
        description = f" {'  ' * place.depth}{place.description}" if place.description else ""
        if file.lines is None or number >= len(file.lines):
            note = "" if file.lines is None else " (no such line)"
            return f"{file.display_path}:{number + 1}{note}:{description}".rstrip(":")
        line = file.lines[number]
        column, description = self.session.characters(line, units) + 1, description or f" {_short(line.strip())}"
        return f"{file.display_path}:{number + 1}:{column}:{description}"

    def _file_of(self, place: CodePlace) -> _FileLines:
        raw_uri = place.uri if isinstance(place.uri, str) else ""
        path = path_of(raw_uri)
        key = path if path is not None else raw_uri
        if key not in self._files and path is not None:
            self._files[key] = self._read_file(path)
        elif key not in self._files:
            hides_files = self.session.hidden_files.restrictions.masked or self.session.hidden_files.problem
            reason = "a rule or an ignore file that may apply (the path is unknown)" if hides_files else ""
            self._files[key] = _FileLines(_short(raw_uri) or "(no place)", None, reason)
        return self._files[key]

    def _read_file(self, raw_path: str) -> _FileLines:
        try:
            path = os.path.realpath(raw_path)
        except OSError:
            return _FileLines(shown_whole_path(raw_path), None)
        if not any(contains(root, path) for root in self.workspace.roots):
            return _FileLines(shown_whole_path(raw_path), None)
        location = self.workspace.at(path)
        display_path = location.relative if location.root == self.workspace.roots[0] else location.path
        display_path = shown_whole_path(display_path)
        reason = ""
        if self.requested_file is None or self.requested_file.path != path:
            try:
                reason = why_hidden(self.workspace, location) or ""
            except ToolError:
                reason = "an ignore file that is not understood"
        try:
            if reason or self._remaining_chars < 0:
                return _FileLines(display_path, None, reason)
            text = read_document(self.workspace, location)[1]
            self._remaining_chars -= len(text)
            return _FileLines(display_path, lines_of(text))
        except ToolError:
            return _FileLines(display_path, None)
