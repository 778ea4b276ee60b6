"""The tool `notebook_edit`: which parts of the file change, which stay byte for byte, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import all_cases, each_of
from tools.builtin.edit import EditTool, NotebookEditTool
from tools.builtin.read_file import ReadFileTool
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import Answer, Decision, EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.notebook_cells import MAX_NOTEBOOK_BYTES, NotANotebookError, names_of, parse_notebook, source_of

pytestmark = pytest.mark.anyio


def code(name: str | None, source: Any, **fields: Any) -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": [f"out of {name}\n"]}
    cell = {"cell_type": "code", "execution_count": 7, "metadata": {"tags": ["é"]}, "outputs": [output]}
    return {**cell, **({"id": name} if name else {}), "source": source, **fields}


def notebook(*cells: Any, minor: int = 5) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {"a": 1}, "nbformat": 4, "nbformat_minor": minor}


THREE_CELLS = notebook(
    code("one", ["a = 1\n", "b = 2"]),
    {"cell_type": "markdown", "id": "two", "metadata": {}, "source": "# T"},
    code("three", "c"),
)
FORMAT_3: dict[str, Any] = {
    "metadata": {"name": ""},
    "nbformat": 3,
    "nbformat_minor": 0,
    "worksheets": [
        {
            "cells": [
                {"cell_type": "heading", "level": 1, "metadata": {}, "source": ["Title"]},
                {
                    "cell_type": "code",
                    "collapsed": False,
                    "input": ["print 1"],
                    "language": "python",
                    "metadata": {},
                    "outputs": [{"output_type": "stream", "stream": "stdout", "text": ["1\n"]}],
                    "prompt_number": 4,
                },
            ],
            "metadata": {},
        }
    ],
}
FORMS: dict[str, Callable[[Any], str]] = {
    "as Jupyter writes it": lambda data: json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
    "without a final line": lambda data: json.dumps(data, indent=1, ensure_ascii=False),
    "two blanks": lambda data: json.dumps(data, indent=2, ensure_ascii=False) + "\n",
    "tabs": lambda data: json.dumps(data, indent="\t", ensure_ascii=False) + "\n",
    "escapes": lambda data: json.dumps(data, indent=4) + "\n",
    "one line": json.dumps,
    "compact": lambda data: json.dumps(data, separators=(",", ":")),
    "CRLF": lambda data: json.dumps(data, indent=1, ensure_ascii=False).replace("\n", "\r\n"),
    "a mark": lambda data: "\ufeff" + json.dumps(data, indent=1, ensure_ascii=False),
    "escaped slashes": lambda data: json.dumps(data, indent=1, ensure_ascii=False).replace("/", "\\/"),
}


async def change(context: ToolContext, answer: str | None = None, **arguments: Any) -> ToolResult:
    """Ask and execute, as a call does."""
    tool = NotebookEditTool()
    params = tool.validate_tool_params({"notebook_path": "n.ipynb", **arguments})
    details = await tool.should_confirm_execute(params, context)
    assert isinstance(details, EditConfirmation)
    if answer is not None:
        context = replace(context, answer=Answer(Decision.ONCE, content=answer))
    return await tool.execute(params, context)


def write_notebook(path: Path, data: Any, form: str = "as Jupyter writes it") -> str:
    text: str = FORMS[form](data)
    path.write_bytes(text.encode())
    return text


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.mark.requirement("notebook.bytes")
@pytest.mark.parametrize("form", FORMS)
async def test_everything_but_the_changed_cell_stays_as_it_is_written(
    form: str, root: Path, context: ToolContext
) -> None:
    path = root / "n.ipynb"
    old_text = write_notebook(path, THREE_CELLS, form)
    parts = parse_notebook(old_text.removeprefix("\ufeff")).cells

    await change(context, cell_id="one", new_source="x = 'ü'\ny = 2")
    text = path.read_bytes().decode()
    for part in parts[1:]:
        assert part.raw in text
    second_cell_start = text.removeprefix("\ufeff").index(parts[1].raw)
    assert text.endswith(old_text[old_text.index(parts[1].raw) :])
    assert second_cell_start > 0
    changed_cell = read_cells(text)[0]
    assert changed_cell == {
        **THREE_CELLS["cells"][0],
        "source": ["x = 'ü'\n", "y = 2"],
        "outputs": [],
        "execution_count": None,
    }
    changed_notebook = {**THREE_CELLS, "cells": [changed_cell, *THREE_CELLS["cells"][1:]]}
    assert text == FORMS[form](changed_notebook)

    await change(context, cell_id="two", new_source="new", edit_mode="insert")
    assert [cell["cell_type"] for cell in read_cells(path.read_bytes().decode())] == [
        "code",
        "markdown",
        "code",
        "code",
    ]
    assert read_cells(path.read_bytes().decode())[2]["source"] == ["new"]
    new_cell_id = names_of(read_cells(path.read_bytes().decode()))[2]
    await change(context, cell_id=new_cell_id, edit_mode="delete")
    assert path.read_bytes().decode() == FORMS[form](changed_notebook)


def read_cells(text: str) -> list[Any]:
    return json.loads(text.removeprefix("\ufeff"))["cells"]


@pytest.mark.requirement("notebook.bytes")
@each_of("form", FORMS)
def test_the_parts_of_a_notebook_join_to_the_same_text(form: str) -> None:
    for data in (THREE_CELLS, FORMAT_3, notebook()):
        text = FORMS[form](data).removeprefix("\ufeff")
        for cell_list in parse_notebook(text).lists:
            assert cell_list.parts.within(text) == text
            assert cell_list.holder.within(text) == text


@pytest.mark.requirement("notebook.bytes")
@pytest.mark.parametrize("form", ["as Jupyter writes it", "one line", "compact", "tabs", "CRLF"])
async def test_the_first_cell_of_a_notebook_is_inserted_in_the_format_of_the_file(
    form: str, root: Path, context: ToolContext
) -> None:
    path = root / "n.ipynb"
    write_notebook(path, notebook(minor=4), form)
    await change(context, new_source="a\nb", edit_mode="insert")
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": ["a\n", "b"],
    }
    assert path.read_bytes().decode() == FORMS[form](notebook(cell, minor=4))


@pytest.mark.requirement("notebook.bytes")
async def test_a_second_cell_is_inserted_in_the_format_of_the_file(root: Path, context: ToolContext) -> None:
    old_cell = code(None, ["a"])
    new_cell: dict[str, Any] = {"cell_type": "markdown", "metadata": {}, "source": ["b"]}
    with all_cases() as case:
        for form, to_text in FORMS.items():
            for previous_id, cells in ((None, (new_cell, old_cell)), ("cell-0", (old_cell, new_cell))):
                with case((form, previous_id)):
                    path = root / f"{form} {previous_id}.ipynb"
                    write_notebook(path, notebook(old_cell, minor=4), form)
                    place = {"notebook_path": path.name, **({"cell_id": previous_id} if previous_id else {})}
                    await change(context, new_source="b", cell_type="markdown", edit_mode="insert", **place)
                    assert path.read_bytes().decode() == to_text(notebook(*cells, minor=4))


@pytest.mark.requirement("notebook.bytes")
async def test_duplicate_source_keys_of_a_cell_are_replaced_by_one(root: Path, context: ToolContext) -> None:
    other_keys = '"cell_type": "code", "outputs": [1], "outputs": []'
    with all_cases() as case:
        for major, sources, key in (
            (3, '"source": "a", "input": "b"', "input"),
            (3, '"input": "b", "source": "a"', "input"),
            (3, '"input": "a", "input": "b"', "input"),
            (4, '"source": "a", "source": "b"', "source"),
        ):
            for kind in ("code", "markdown"):
                with case((major, sources, kind)):
                    path = root / f"{len(os.listdir(root))}.ipynb"
                    cells = f'"cells": [{{{other_keys}, {sources}}}]'
                    path.write_text(f'{{"worksheets": [{{{cells}}}]}}' if major == 3 else f"{{{cells}}}")
                    place = {"notebook_path": path.name, "cell_id": "cell-0"}
                    await change(context, new_source="new", cell_type=kind, **place)
                    text = path.read_text()
                    assert text.count(f'"{key}"' if kind == "code" else '"source"') == 1
                    assert text.count('"outputs"') == (2 if kind == "code" else 0)
                    (cell,) = parse_notebook(text).cells
                    assert source_of(cell.value) == "new"


@pytest.mark.requirement("notebook.outputs")
async def test_a_changed_cell_loses_its_outputs_and_the_result_says_so(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    write_notebook(path, THREE_CELLS)
    result = await change(context, cell_id="three", new_source="d")
    assert "cell's outputs were cleared" in str(result.llm_content)
    assert "read the notebook again" not in str(result.llm_content)
    cells = read(path)["cells"]
    assert cells[2]["outputs"] == []
    assert cells[2]["execution_count"] is None
    assert cells[0] == THREE_CELLS["cells"][0]
    await change(context, cell_id="three", new_source="")
    assert read(path)["cells"][2]["source"] == ""
    second_result = await change(context, cell_id="three", new_source="e")
    assert "cleared" not in str(second_result.llm_content)
    with pytest.raises(ToolError) as error_info:
        await change(context, cell_id="three", new_source="e")
    assert error_info.value.code is ToolErrorType.EDIT_NO_CHANGE


@pytest.mark.requirement("notebook.outputs")
async def test_outputs_that_a_text_cell_has_by_mistake_are_kept_and_not_said_to_be_cleared(
    root: Path, context: ToolContext
) -> None:
    write_notebook(root / "n.ipynb", notebook(code("one", "a", cell_type="markdown")))
    result = await change(context, cell_id="one", new_source="b")
    assert "cleared" not in str(result.llm_content)
    assert read(root / "n.ipynb")["cells"][0]["outputs"]


@pytest.mark.requirement("notebook.outputs")
async def test_a_cell_can_change_its_kind(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    write_notebook(
        path,
        notebook(code("one", "a", attachments={}), {"cell_type": "raw", "id": "two", "metadata": {}, "source": ["r"]}),
    )
    await change(context, cell_id="one", new_source="# T", cell_type="markdown")
    await change(context, cell_id="two", new_source="b", cell_type="code")
    first_cell, second_cell = read(path)["cells"]
    assert first_cell == {
        "cell_type": "markdown",
        "id": "one",
        "metadata": {"tags": ["é"]},
        "source": "# T",
        "attachments": {},
    }
    assert second_cell == {
        "cell_type": "code", "id": "two", "metadata": {}, "source": ["b"], "execution_count": None, "outputs": [],
    }  # fmt: skip


@pytest.mark.requirement("notebook.format_3")
async def test_a_notebook_of_format_3_is_read_and_changed(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    write_notebook(path, FORMAT_3)
    reader = ReadFileTool()
    listing = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    text = str(listing.llm_content)
    assert "Cell 2: code, id cell-1, execution 4" in text
    assert "print 1" in text
    await change(context, cell_id="cell-1", new_source="print 2")
    await change(context, cell_id="cell-0", new_source="print 3", cell_type="code")
    result = await change(context, new_source="text", cell_type="markdown", edit_mode="insert")
    assert "read the notebook again" in str(result.llm_content)
    cells = read(path)["worksheets"][0]["cells"]
    assert cells[0] == {"cell_type": "markdown", "metadata": {}, "source": ["text"]}
    assert cells[1] == {
        "cell_type": "code", "metadata": {}, "input": ["print 3"],
        "collapsed": False, "language": "python", "outputs": [],
    }  # fmt: skip
    assert cells[2] == {
        **FORMAT_3["worksheets"][0]["cells"][1],
        "input": ["print 2"],
        "outputs": [],
        "prompt_number": None,
    }


@pytest.mark.requirement("notebook.names")
async def test_each_cell_has_one_name_which_read_file_shows(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    cells = [code(name, "x") for name in ("same", "same", None, "cell-0", "a_b", "ü", "own")]
    write_notebook(path, notebook(*cells))
    names = ["cell-0", "cell-1", "cell-2", "cell-3", "a_b", "cell-5", "own"]
    assert names_of(cells) == names
    reader = ReadFileTool()
    listing = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    for name in names:
        assert f"id {name}," in str(listing.llm_content)
    with pytest.raises(ToolError) as error_info:
        await change(context, cell_id="same", new_source="y")
    assert error_info.value.code is ToolErrorType.NOTEBOOK_CELL_NOT_FOUND
    assert "cell-0 or cell-1" in error_info.value.message
    for number, name in enumerate([*names[:5], "ü", "cell-6"]):
        await change(context, cell_id=name, new_source=f"y{number}")
    assert [cell["source"] for cell in read(path)["cells"]] == [f"y{number}" for number in range(7)]


@pytest.mark.requirement("notebook.names")
async def test_only_later_cells_without_an_id_are_said_to_have_new_numbers(root: Path, context: ToolContext) -> None:
    write_notebook(root / "n.ipynb", notebook(*(code(None, "x") for _ in range(3)), minor=4))
    for cell_id, are_renumbered in (("cell-0", True), ("cell-1", False)):
        result = await change(context, cell_id=cell_id, edit_mode="delete")
        assert ("numbered differently" in str(result.llm_content)) is are_renumbered


@pytest.mark.requirement("notebook.bad_input")
@each_of(
    "text, cause",
    [
        ("", "empty"),
        (" \n", "empty"),
        ("not JSON", "not valid JSON"),
        ("[1", "not valid JSON"),
        ("1", "but not a notebook"),
        ("[]", "without a list of cells"),
        ('{"cells": ' + "[" * 100_000, "too deeply"),
    ],
)
def test_a_file_that_is_not_a_notebook_is_refused_with_the_cause(text: str, cause: str) -> None:
    with pytest.raises(NotANotebookError, match=cause):
        parse_notebook(text)


@pytest.mark.requirement("notebook.bad_input")
async def test_a_notebook_may_contain_numbers_of_any_length(root: Path, context: ToolContext) -> None:
    path, number = root / "n.ipynb", "9" * 5_000
    path.write_text(f'{{"cells": [{{"id": "one", "source": "a", "metadata": {{"n": {number}}}}}], "nbformat": 4}}')
    reader = ReadFileTool()
    listing = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    assert "Cell 1" in str(listing.llm_content)
    await change(context, cell_id="one", new_source="b")
    assert number in path.read_text()


@pytest.mark.requirement("notebook.bad_input")
async def test_an_invalid_notebook_or_an_unknown_cell_is_refused_with_a_code(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    invalid, not_found = ToolErrorType.NOTEBOOK_INVALID_JSON, ToolErrorType.NOTEBOOK_CELL_NOT_FOUND
    one_cell = notebook(code("one", "a"))
    cases: list[tuple[bytes, dict[str, Any], ToolErrorType]] = [
        (b"", {}, invalid),
        (b"not JSON", {}, invalid),
        (b'{"cells": [', {}, invalid),
        (b'{"cells": [] } more', {}, invalid),
        (b'{"cells": [,]}', {}, invalid),
        (b'{"cells": [{} {}]}', {}, invalid),
        (b'{"cells": {}}', {}, invalid),
        (b'{"metadata": {}}', {}, invalid),
        (b'[{"cells": []}]', {}, invalid),
        (b'{"worksheets": [1]}', {}, invalid),
        (b'{"cells": [{"id": "one"}, 1]}', {}, invalid),
        (b'{"cells": ' + b"[" * 100_000, {}, invalid),
        (b'{"cells": [' + b"1," * 300_000 + b"1]}", {}, invalid),
        (b"\xff\xfe\xff", {}, invalid),
        (json.dumps(one_cell).encode("latin-1") + b"\xe9", {}, invalid),
        (json.dumps(one_cell).encode(), {"cell_id": "gone"}, not_found),
        (json.dumps(one_cell).encode(), {"cell_id": "cell-1"}, not_found),
        (json.dumps(one_cell).encode(), {"cell_id": "cell--1"}, not_found),
        (json.dumps(one_cell).encode(), {"cell_id": "cell-" + "9" * 5_000}, not_found),
        (json.dumps(one_cell).encode(), {"new_source": "\ud800"}, ToolErrorType.INVALID_TOOL_PARAMS),
    ]
    for content, arguments, error_code in cases:
        path.write_bytes(content)
        with pytest.raises(ToolError) as error_info:
            await change(context, **{"cell_id": "one", "new_source": "b", **arguments})
        assert error_info.value.code is error_code, (content[:40], arguments)
        assert path.read_bytes() == content
    with path.open("wb") as file:
        file.truncate(MAX_NOTEBOOK_BYTES + 1)
    with pytest.raises(ToolError) as error_info:
        await change(context, cell_id="one", new_source="b")
    assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
    os.remove(path)
    with pytest.raises(ToolError) as error_info:
        await change(context, cell_id="one", new_source="b")
    assert error_info.value.code is ToolErrorType.FILE_NOT_FOUND


@pytest.mark.requirement("notebook.bad_input")
async def test_arguments_that_do_not_fit_together_are_refused(context: ToolContext) -> None:
    del context
    tool = NotebookEditTool()
    for arguments in (
        {"notebook_path": "a.py", "cell_id": "x", "new_source": "y"},
        {"notebook_path": "n.ipynb", "new_source": "y"},
        {"notebook_path": "n.ipynb", "cell_id": "x"},
        {"notebook_path": "n.ipynb", "edit_mode": "delete"},
        {"notebook_path": "n.ipynb", "edit_mode": "delete", "cell_id": "x", "new_source": "y"},
        {"notebook_path": "n.ipynb", "edit_mode": "insert"},
        {"notebook_path": "n.ipynb", "edit_mode": "move", "cell_id": "x", "new_source": "y"},
    ):
        with pytest.raises(ToolError) as error_info:
            tool.validate_tool_params(arguments)
        assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS, arguments


@pytest.mark.requirement("notebook.as_edit")
async def test_a_cell_is_changed_under_the_rules_of_edit(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    write_notebook(path, THREE_CELLS)
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    write_notebook(path, notebook(code("one", "changed meanwhile")))
    with pytest.raises(ToolError) as error_info:
        await change(context, cell_id="one", new_source="b")
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    write_notebook(path, THREE_CELLS)
    result = await change(context, "by the user", cell_id="one", new_source="b")
    assert result.structured is not None
    assert result.structured["user_modified"] is True
    assert read(path)["cells"][0]["source"] == ["by the user"]
    (root / ".geminiignore").write_text("h.ipynb\n")
    write_notebook(root / "h.ipynb", THREE_CELLS)
    with pytest.raises(ToolError) as error_info:
        await change(context, notebook_path="h.ipynb", cell_id="one", new_source="b")
    assert error_info.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("notebook.as_edit")
async def test_edit_of_a_notebook_names_the_tool_for_cells(root: Path, context: ToolContext) -> None:
    write_notebook(root / "n.ipynb", THREE_CELLS)
    tool = EditTool()
    result = await tool.execute(
        tool.validate_tool_params({"file_path": "n.ipynb", "old_string": "a = 1", "new_string": "a = 2"}), context
    )
    assert "notebook_edit" in str(result.llm_content)
    with pytest.raises(ToolError) as error_info:
        await tool.execute(
            tool.validate_tool_params({"file_path": "n.ipynb", "old_string": "gone", "new_string": "x"}), context
        )
    assert "notebook_edit" in error_info.value.message


@pytest.mark.requirement("notebook.as_edit")
@pytest.mark.parametrize(
    ("arguments", "first_lines"),
    [
        ({"new_source": "a = 1\nb = 3"}, ["@@ -1,2 +1,2 @@", " a = 1", "-b = 2"]),
        ({"new_source": "x", "edit_mode": "insert"}, ["@@ -0,0 +1 @@", "+x"]),
        ({"edit_mode": "delete"}, ["@@ -1,2 +0,0 @@", "-a = 1", "-b = 2"]),
    ],
)
async def test_the_question_about_a_notebook_of_one_line_begins_with_the_change_to_the_source(
    arguments: dict[str, str], first_lines: list[str], root: Path, context: ToolContext
) -> None:
    write_notebook(root / "n.ipynb", notebook(code("one", "a = 1\nb = 2", outputs=["x" * 9_000])), "one line")
    tool = NotebookEditTool()
    params = tool.validate_tool_params({"notebook_path": "n.ipynb", "cell_id": "one", **arguments})
    details = await tool.should_confirm_execute(params, context)
    assert isinstance(details, EditConfirmation)
    assert details.file_diff.splitlines()[2 : 2 + len(first_lines)] == first_lines
    assert '"cells"' in details.file_diff


@pytest.mark.requirement("notebook.search")
@pytest.mark.parametrize("form", ["as Jupyter writes it", "one line", "a mark"])
async def test_a_search_names_the_cell_of_a_line(form: str, root: Path, context: ToolContext) -> None:
    data = notebook(code("one", "é = 1"), code("two", "needle"), code("three", "x"))
    write_notebook(root / "n.ipynb", data, form)
    (root / "broken.ipynb").write_text("needle")
    tool = GrepTool()
    result = await tool.execute(tool.validate_tool_params({"pattern": "needle", "context": 1}), context)
    lines = [line for line in str(result.llm_content).splitlines() if "needle" in line and line.startswith("L")]
    assert sorted("(cell two):" in line for line in lines) == [False, True]
