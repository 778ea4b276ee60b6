"""Jupyter notebooks as text: the cells with their sources and outputs, without the JSON around them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from tools.contract.display import fenced

MAX_NOTEBOOK_BYTES = 16_000_000
"""A larger notebook is not parsed but shown as the JSON text it is; parsing stops everything else for up to 50 ms."""

MAX_VALUES = 300_000
"""Values in a notebook, about; one with more is shown as JSON too, for the same reason. A line is one value."""

MAX_OUTPUT_CHARS = 10_000
"""Characters of one cell's outputs (Qwen Code's)."""

MAX_NOTEBOOK_CHARS = 100_000
"""Characters of a whole notebook (Qwen Code's)."""

CLEANED_CHARS = 4 * MAX_OUTPUT_CHARS
"""Characters of one output that terminal sequences are taken out of; what is behind them is not shown anyway."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Terminal sequences: CSI, OSC, and two-character ones."""

_NOT_MIME = re.compile(r"[^A-Za-z0-9.+/-]")


def render(data: bytes) -> str | None:
    """Render a notebook.

    Args:
        data: The file's content.

    Returns:
        A header with the language and the number of cells, then each cell; what was cut says so. `None` if the
        content is no notebook, or one of too many values.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        return None
    try:
        parsed: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    notebook = _mapping(parsed)
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        return None
    found = cast("list[Any]", cells)
    noun = "cell" if len(found) == 1 else "cells"
    pieces = [f"Jupyter notebook: {_language(notebook)}, {len(found)} {noun}\n"]
    room = MAX_NOTEBOOK_CHARS - len(pieces[0])
    for number, cell in enumerate(found, start=1):
        piece = _cell(number, _mapping(cell), _language(notebook))
        if len(piece) > room:
            pieces.append(f"\n[cut here: {len(found) - number + 1} of {len(found)} cells are left out]\n")
            break
        pieces.append(piece)
        room -= len(piece)
    return "".join(pieces)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """A multi-line string as the format writes it: one string, or a list of them."""
    if isinstance(value, list):
        return "".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return value if isinstance(value, str) else ""


def _language(notebook: Mapping[str, Any]) -> str:
    metadata = _mapping(notebook.get("metadata"))
    named = _mapping(metadata.get("language_info")).get("name") or _mapping(metadata.get("kernelspec")).get("language")
    return _NOT_MIME.sub("", named)[:40] if isinstance(named, str) and named else "language unknown"


def _cell(number: int, cell: Mapping[str, Any], language: str) -> str:
    kind = _NOT_MIME.sub("", _text(cell.get("cell_type")))[:40] or "unknown"
    about = [kind]
    if isinstance(cell.get("id"), str):
        about.append(f"id {_NOT_MIME.sub('', cell['id'])[:64]}")
    if isinstance(cell.get("execution_count"), int):
        about.append(f"execution {cell['execution_count']}")
    info = {"code": language if language.isalnum() else "", "markdown": "markdown"}.get(kind, "")
    piece = f"\n--- Cell {number}: {', '.join(about)} ---\n{_block(_text(cell.get('source')), info)}"
    outputs = _outputs(cell.get("outputs"))
    return f"{piece}Output:\n{_block(outputs, '')}" if outputs else piece


def _block(text: str, language: str) -> str:
    return f"{fenced(text.removesuffix(chr(10)), language)}\n"


def _outputs(outputs: Any) -> str:
    if not isinstance(outputs, list):
        return ""
    found = [_output(_mapping(item)) for item in cast("list[Any]", outputs)]
    text = "".join(piece for piece, _ in found)
    left_out = sum(more for _, more in found) + max(0, len(text) - MAX_OUTPUT_CHARS)
    return f"{text[:MAX_OUTPUT_CHARS]}\n[output cut here: {left_out:,} more characters]\n" if left_out else text


def _output(output: Mapping[str, Any]) -> tuple[str, int]:
    """One output, and how many characters of it were not even looked at."""
    text = _text(output.get("text"))
    if output.get("output_type") == "error":
        trace = output.get("traceback")
        frames = cast("list[Any]", trace) if isinstance(trace, list) else []
        text = "\n".join(frame for frame in frames if isinstance(frame, str))
        text = text or f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    data = _mapping(output.get("data"))
    if data:
        shown = _text(data.get("text/plain"))
        others = [_NOT_MIME.sub("", mime)[:80] for mime in data if not mime.startswith("text/")]
        text += shown + "".join(f"\n[{mime} not shown]" for mime in others)
    left_out = max(0, len(text) - CLEANED_CHARS)
    text = _ANSI.sub("", text[:CLEANED_CHARS])
    return (text if not text or text.endswith("\n") else f"{text}\n"), left_out
