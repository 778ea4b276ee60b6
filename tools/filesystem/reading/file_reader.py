"""The work of `read_file`: the file is opened, read as what it is, and remembered as seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.ledger import SeenFile
from tools.contract.names import sendable_name
from tools.contract.result import Part, TextPart, ToolResult
from tools.filesystem.ignore_files import refuse_hidden
from tools.filesystem.reading.content import read as read_content
from tools.filesystem.reading.media import FileKind
from tools.filesystem.reading.outcome import Reading
from tools.filesystem.reading.pdf import ALL_PAGES, Pages
from tools.filesystem.workspace import Location

if TYPE_CHECKING:
    from tools.filesystem.read_file import ReadFileParams

_AS_TEXT = {
    FileKind.NOTEBOOK: "Read notebook",
    FileKind.SVG: "Read SVG as text",
    FileKind.PDF: "Read PDF as text",
}
"""What a person is told of a file that is shown as another text than it holds."""


class FileReader:
    """Shows one file.

    Args:
        tool: The name of the tool, for errors.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def check(self, params: ReadFileParams) -> None:
        """The pages are a run of pages.

        Raises:
            InvalidToolParamsError: They are not.
        """
        try:
            _pages(params)
        except ValueError:
            raise InvalidToolParamsError(
                self._tool, f"'pages' must be like '3', '10-15' or '8-', counted from 1; got {params.pages!r}."
            ) from None

    def read(self, params: ReadFileParams, context: ToolContext) -> ToolResult:
        """Read, blocking, and remember what was seen.

        Raises:
            ToolError: There is no such file, or it cannot or may not be read.
        """
        location = context.workspace.locate(params.absolute_path)
        refuse_hidden(context.workspace, location, "read")
        with context.workspace.open_file(location) as opened:
            reading = read_content(
                opened,
                location,
                offset=params.offset,
                limit=params.limit,
                limits=context.limits,
                media=context.media,
                signal=context.signal,
                pages=_pages(params),
            )
            identity = opened.identity
        if context.client.reads is not None:
            context.client.reads.record(location.path, SeenFile(identity, reading.sha256))
        parts: list[Part] = list(reading.parts)
        if reading.kind is FileKind.PDF and not reading.is_text and (params.pages or "").strip():
            parts.append(
                TextPart("Without its text no pages can be picked: 'pages' was ignored, this is the whole document.")
            )
        return ToolResult(
            llm_content=parts, return_display=_display(reading, location), facts=_facts(reading, location)
        )


def _pages(params: ReadFileParams) -> Pages:
    """The pages that are asked for; a blank text asks for all (as in Qwen Code).

    Raises:
        ValueError: It is no run of pages.
    """
    wanted = (params.pages or "").strip()
    return Pages.parse(wanted) if wanted else ALL_PAGES


def _facts(reading: Reading, location: Location) -> dict[str, Any]:
    known: dict[str, Any] = {"path": sendable_name(location.path), "kind": reading.kind.value, "sha256": reading.sha256}
    if reading.is_text:
        known |= {
            "start": reading.start,
            "end": reading.end,
            "total": reading.total,
            "encoding": reading.encoding,
            "encoding_is_guess": reading.is_guess or None,
            "eol": reading.eol,
            "truncated": reading.truncated or reading.shortened,
            "next_offset": reading.next_offset,
            "pages": reading.pages,
        }
    return {name: value for name, value in known.items() if value is not None}


def _display(reading: Reading, location: Location) -> str:
    """One line for a person; nothing for a text that is shown whole."""
    name = location.relative
    if reading.kind is FileKind.BINARY:
        return f"Skipped binary file: {name}"
    if not reading.is_text:
        return f"Read {reading.kind.value} file: {name}"
    if reading.kind in _AS_TEXT:
        return f"{_AS_TEXT[reading.kind]}: {name}"
    if not reading.truncated and reading.start in {0, 1} and not reading.shortened:
        return ""
    total = f" of {reading.total}" if reading.total is not None else ""
    lines = f"{reading.start}-{reading.end}" if reading.start > 0 else f"{reading.start} to {reading.end}"
    notes = (" (truncated)" if reading.truncated else "") + (" (some lines shortened)" if reading.shortened else "")
    return f"Read lines {lines}{total} from {name}{notes}"
