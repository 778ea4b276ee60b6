"""Renders Jupyter notebooks as text: the sources and outputs of the cells, without the JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any, cast

from tools.contract.display import fenced
from tools.files.notebook_cells import MAX_VALUES, cells_of, mapping, names_of, source_of, text_of, whole_number
from tools.text.terminal_text import terminal_text

MAX_OUTPUT_CHARS = 10_000  # characters of one cell's outputs (as in Qwen Code)
MAX_NOTEBOOK_CHARS = 100_000  # characters of a whole notebook (as in Qwen Code)
# Maximum characters of one output, including progress bars, to render as a terminal would; the rest is not shown
CLEANED_CHARS = 40 * MAX_OUTPUT_CHARS
_NOT_MIME = re.compile(r"[^A-Za-z0-9.+/-]")


def render(data: bytes) -> str | None:
    """Render a notebook as text: a header with the language and the number of cells, then the cells.

    Omissions are marked. Cells have the same names as in `notebook_edit`. Returns `None` if the content is not a
    notebook, or has too many values.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        return None
    try:
        parsed: Any = json.loads(data, parse_int=whole_number)
    except (ValueError, RecursionError):
        return None
    notebook = mapping(parsed)
    cells = cells_of(notebook)
    if cells is None:
        return None
    metadata = mapping(notebook.get("metadata"))
    named = mapping(metadata.get("language_info")).get("name") or mapping(metadata.get("kernelspec")).get("language")
    language = _NOT_MIME.sub("", named)[:40] if isinstance(named, str) and named else "language unknown"
    header = f"Jupyter notebook: {language}, {len(cells)} {'cell' if len(cells) == 1 else 'cells'}\n"
    texts, room = [header], MAX_NOTEBOOK_CHARS - len(header)
    for number, (value, name) in enumerate(zip(cells, names_of(cells), strict=True), start=1):
        cell = mapping(value)
        kind = _NOT_MIME.sub("", text_of(cell.get("cell_type")))[:40] or "unknown"
        about = [kind, f"id {name}"]
        if isinstance(execution := cell.get("execution_count", cell.get("prompt_number")), int):
            about.append(f"execution {execution}")
        info = {"code": language if language.isalnum() else "", "markdown": "markdown"}.get(kind, "")
        text = f"\n--- Cell {number}: {', '.join(about)} ---\n{_block(source_of(cell), info)}"
        if outputs := _outputs(_list(cell.get("outputs")) or []):
            text += f"Output:\n{_block(outputs, '')}"
        if len(text) > room:
            texts.append(f"\n[cut here: {len(cells) - number + 1} of {len(cells)} cells not shown]\n")
            break
        texts.append(text)
        room -= len(text)
    return "".join(texts)


def _outputs(outputs: Sequence[Any]) -> str:
    """Return the outputs of a cell, truncated to a reasonable length."""
    shown, left_out = "", 0
    # A stream comes in pieces, and a later piece may overwrite an earlier one.
    pieces = groupby(map(mapping, outputs), lambda each: each.get("output_type") == "stream" and each.get("name"))
    joined = [
        [{"text": "".join(text_of(output.get("text")) for output in several)}] if stream else list(several)
        for stream, several in pieces
    ]
    for output in chain.from_iterable(joined):
        text = text_of(output.get("text"))
        if output.get("output_type") in ("error", "pyerr"):
            frames = _list(output.get("traceback")) or []
            text = "\n".join(frame for frame in frames if isinstance(frame, str))
            text = text or f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
        data = mapping(output.get("data"))
        text += text_of(data.get("text/plain"))
        text += "".join(f"\n[{_NOT_MIME.sub('', mime)[:80]} not shown]" for mime in data if mime[:5] != "text/")
        left_out += max(0, len(text) - CLEANED_CHARS)
        text = terminal_text(text[:CLEANED_CHARS])
        shown += text if not text or text.endswith("\n") else f"{text}\n"
    left_out += max(0, len(shown) - MAX_OUTPUT_CHARS)
    return f"{shown[:MAX_OUTPUT_CHARS]}\n[output cut here: {left_out:,} more characters]\n" if left_out else shown


def _block(text: str, language: str) -> str:
    return f"{fenced(text.removesuffix(chr(10)), language)}\n"


def _list(value: Any) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None
