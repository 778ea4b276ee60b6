"""Notebooks that are shown as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.files.notebook_cells import MAX_NOTEBOOK_CHARS, MAX_OUTPUT_CHARS, render

pytestmark = pytest.mark.requirement("read.notebook")


def render_cells(*cells: dict[str, Any], **fields: Any) -> str:
    text = render(json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}, **fields}).encode())
    assert text is not None
    return text


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "id": "c1", "execution_count": 3, "source": source, "outputs": list(outputs)}


def test_cells_are_shown_with_kind_id_and_count() -> None:
    text = render_cells(code(["a = 1\n", "print(a)"]), {"cell_type": "markdown", "source": "# Title"})
    assert text == (
        "Jupyter notebook: python, 2 cells\n"
        "\n--- Cell 1: code, id c1, execution 3 ---\n```python\na = 1\nprint(a)\n```\n"
        "\n--- Cell 2: markdown, id cell-1 ---\n```markdown\n# Title\n```\n"
    )


def test_outputs_follow_their_cell_without_terminal_sequences() -> None:
    stream = {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m\n", "plain\n"]}
    text = render_cells(code("x", stream))
    assert "Output:\n```\nred\nplain\n```\n" in text
    assert "\x1b" not in text


def test_output_that_was_overwritten_is_not_shown() -> None:
    pieces = [["  0%|  |\r"], " 50%|# |", "\r100%|##|\n"]
    outputs = [{"output_type": "stream", "name": "stderr", "text": piece} for piece in pieces]
    redrawn = {"output_type": "stream", "name": "stdout", "text": ["a 1\nb 1\n", "\x1b[2Aa 2\nb 2\n"]}
    assert "Output:\n```\n100%|##|\na 2\nb 2\n```\n" in render_cells(code("x", *outputs, redrawn))


def test_errors_show_their_traceback() -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mline 1\x1b[0m", "E: v"]}
    assert "line 1\nE: v\n" in render_cells(code("x", error))


def test_pictures_are_named_and_not_shown() -> None:
    data = {"image/png": "aGVsbG8=", "text/plain": ["<Figure>"]}
    text = render_cells(code("x", {"output_type": "display_data", "data": data}))
    assert "<Figure>\n[image/png not shown]\n" in text
    assert "aGVsbG8" not in text


def test_a_fence_in_a_cell_does_not_end_it() -> None:
    text = render_cells({"cell_type": "markdown", "source": "```\ncode\n```"})
    assert "````markdown\n```\ncode\n```\n````\n" in text


def test_long_outputs_are_cut_and_say_so() -> None:
    text = render_cells(code("x", {"output_type": "stream", "text": "y" * (MAX_OUTPUT_CHARS + 5) + "\n"}))
    assert "y" * MAX_OUTPUT_CHARS in text
    assert "y" * (MAX_OUTPUT_CHARS + 1) not in text
    assert "6 more characters" in text


def test_a_long_notebook_says_how_many_cells_are_left_out() -> None:
    text = render_cells(*[code("z" * 30_000) for _ in range(10)])
    assert len(text) < MAX_NOTEBOOK_CHARS + 200
    assert "7 of 10 cells not shown]" in text


@pytest.mark.parametrize("data", [b"", b"not json", b"[]", b"{}", b'{"cells": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_a_file_that_is_not_a_notebook_is_not_rendered(data: bytes) -> None:
    assert render(data) is None


DAMAGED: list[Any] = [
    None,
    1,
    [],
    {},
    {"cell_type": 3, "source": 4, "outputs": 5},
    {"cell_type": "code", "source": [1, "a"], "outputs": [None, {"data": [], "text": 1}, {"output_type": "error"}]},
]


@pytest.mark.parametrize("cell", DAMAGED)
def test_damaged_cells_do_not_fail(cell: Any) -> None:
    assert "Cell 1" in render_cells(cell)
