"""The tool `notebook_edit`: what of the file changes, what stays byte for byte, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.tables import all_cases, each_of
from tools.builtin.edit import EditTool, NotebookEditTool
from tools.builtin.find_files import GrepTool
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import Answer, Decision, EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.notebook_cells import MAX_NOTEBOOK_BYTES, NotANotebookError, names_of, parse_notebook, source_of

pytestmark = pytest.mark.anyio


def code(name: str | None, source: Any, **more: Any) -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": [f"out of {name}\n"]}
    cell = {"cell_type": "code", "execution_count": 7, "metadata": {"tags": ["é"]}, "outputs": [output]}
    return {**cell, **({"id": name} if name else {}), "source": source, **more}


def notebook(*cells: Any, minor: int = 5) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {"a": 1}, "nbformat": 4, "nbformat_minor": minor}


THREE = notebook(
    code("one", ["a = 1\n", "b = 2"]),
    {"cell_type": "markdown", "id": "two", "metadata": {}, "source": "# T"},
    code("three", "c"),
)
OLD: dict[str, Any] = {
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
    result = await tool.execute(params, context)
    jsonschema.validate(result.structured, dict(tool.output_schema or {}))
    return result


def written(path: Path, data: Any, form: str = "as Jupyter writes it") -> str:
    text: str = FORMS[form](data)
    path.write_bytes(text.encode())
    return text


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.mark.requirement("notebook.bytes")
@pytest.mark.parametrize("form", FORMS)
async def test_all_but_the_cell_stays_as_it_is_written(form: str, root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    before = written(path, THREE, form)
    parts = parse_notebook(before.removeprefix("\ufeff")).cells

    await change(context, cell_id="one", new_source="x = 'ü'\ny = 2")
    now = path.read_bytes().decode()
    for part in parts[1:]:
        assert part.raw in now
    first = now.removeprefix("\ufeff").index(parts[1].raw)
    assert now.endswith(before[before.index(parts[1].raw) :])
    assert first > 0
    cell = read_cells(now)[0]
    assert cell == {**THREE["cells"][0], "source": ["x = 'ü'\n", "y = 2"], "outputs": [], "execution_count": None}
    expected = {**THREE, "cells": [cell, *THREE["cells"][1:]]}
    assert now == FORMS[form](expected)

    await change(context, cell_id="two", new_source="new", edit_mode="insert")
    assert [each["cell_type"] for each in read_cells(path.read_bytes().decode())] == [
        "code",
        "markdown",
        "code",
        "code",
    ]
    assert read_cells(path.read_bytes().decode())[2]["source"] == ["new"]
    added = names_of(read_cells(path.read_bytes().decode()))[2]
    await change(context, cell_id=added, edit_mode="delete")
    assert path.read_bytes().decode() == FORMS[form](expected)


def read_cells(text: str) -> list[Any]:
    return json.loads(text.removeprefix("\ufeff"))["cells"]


@pytest.mark.requirement("notebook.bytes")
@each_of("form", FORMS)
def test_a_notebook_that_is_taken_apart_is_the_same_put_together(form: str) -> None:
    for data in (THREE, OLD, notebook()):
        text = FORMS[form](data).removeprefix("\ufeff")
        for each in parse_notebook(text).lists:
            assert each.parts.within(text) == text
            assert each.holder.within(text) == text


@pytest.mark.requirement("notebook.bytes")
@pytest.mark.parametrize("form", ["as Jupyter writes it", "one line", "compact", "tabs", "CRLF"])
async def test_the_first_cell_of_a_notebook_is_put_in_as_its_file_is_written(
    form: str, root: Path, context: ToolContext
) -> None:
    path = root / "n.ipynb"
    written(path, notebook(minor=4), form)
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
async def test_a_second_cell_is_put_in_as_the_file_is_written(root: Path, context: ToolContext) -> None:
    one = code(None, ["a"])
    new: dict[str, Any] = {"cell_type": "markdown", "metadata": {}, "source": ["b"]}
    with all_cases() as case:
        for form, as_written in FORMS.items():
            for after, cells in ((None, (new, one)), ("cell-0", (one, new))):
                with case((form, after)):
                    path = root / f"{form} {after}.ipynb"
                    written(path, notebook(one, minor=4), form)
                    where = {"notebook_path": path.name, **({"cell_id": after} if after else {})}
                    await change(context, new_source="b", cell_type="markdown", edit_mode="insert", **where)
                    assert path.read_bytes().decode() == as_written(notebook(*cells, minor=4))


@pytest.mark.requirement("notebook.bytes")
async def test_keys_that_a_cell_has_twice_give_way_to_its_source(root: Path, context: ToolContext) -> None:
    kept = '"cell_type": "code", "outputs": [1], "outputs": []'
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
                    cells = f'"cells": [{{{kept}, {sources}}}]'
                    path.write_text(f'{{"worksheets": [{{{cells}}}]}}' if major == 3 else f"{{{cells}}}")
                    where = {"notebook_path": path.name, "cell_id": "cell-0"}
                    await change(context, new_source="new", cell_type=kind, **where)
                    now = path.read_text()
                    assert now.count(f'"{key}"' if kind == "code" else '"source"') == 1
                    assert now.count('"outputs"') == (2 if kind == "code" else 0)
                    (cell,) = parse_notebook(now).cells
                    assert source_of(cell.value) == "new"


@pytest.mark.requirement("notebook.outputs")
async def test_a_changed_cell_loses_its_outputs_and_the_result_says_so(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    written(path, THREE)
    result = await change(context, cell_id="three", new_source="d")
    assert "cell's outputs were cleared" in str(result.llm_content)
    assert "read the notebook again" not in str(result.llm_content)
    cells = read(path)["cells"]
    assert cells[2]["outputs"] == []
    assert cells[2]["execution_count"] is None
    assert cells[0] == THREE["cells"][0]
    await change(context, cell_id="three", new_source="")
    assert read(path)["cells"][2]["source"] == ""
    again = await change(context, cell_id="three", new_source="e")
    assert "cleared" not in str(again.llm_content)
    with pytest.raises(ToolError) as refused:
        await change(context, cell_id="three", new_source="e")
    assert refused.value.code is ToolErrorType.EDIT_NO_CHANGE


@pytest.mark.requirement("notebook.outputs")
async def test_a_cell_becomes_one_of_the_other_kind(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    written(
        path,
        notebook(code("one", "a", attachments={}), {"cell_type": "raw", "id": "two", "metadata": {}, "source": ["r"]}),
    )
    await change(context, cell_id="one", new_source="# T", cell_type="markdown")
    await change(context, cell_id="two", new_source="b", cell_type="code")
    first, second = read(path)["cells"]
    assert first == {
        "cell_type": "markdown",
        "id": "one",
        "metadata": {"tags": ["é"]},
        "source": "# T",
        "attachments": {},
    }
    assert second == {
        "cell_type": "code", "id": "two", "metadata": {}, "source": ["b"], "execution_count": None, "outputs": [],
    }  # fmt: skip


@pytest.mark.requirement("notebook.format_3")
async def test_a_notebook_of_format_3_is_read_and_changed(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    written(path, OLD)
    reader = ReadFileTool()
    shown = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    text = str(shown.llm_content)
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
    assert cells[2] == {**OLD["worksheets"][0]["cells"][1], "input": ["print 2"], "outputs": [], "prompt_number": None}


@pytest.mark.requirement("notebook.names")
async def test_each_cell_has_one_name_which_read_file_shows(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    cells = [code(name, "x") for name in ("same", "same", None, "cell-0", "a_b", "ü", "own")]
    written(path, notebook(*cells))
    names = ["cell-0", "cell-1", "cell-2", "cell-3", "a_b", "cell-5", "own"]
    assert names_of(cells) == names
    reader = ReadFileTool()
    shown = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    for name in names:
        assert f"id {name}," in str(shown.llm_content)
    with pytest.raises(ToolError) as refused:
        await change(context, cell_id="same", new_source="y")
    assert refused.value.code is ToolErrorType.NOTEBOOK_CELL_NOT_FOUND
    assert "cell-0 or cell-1" in refused.value.message
    for number, name in enumerate([*names[:5], "ü", "cell-6"]):
        await change(context, cell_id=name, new_source=f"y{number}")
    assert [cell["source"] for cell in read(path)["cells"]] == [f"y{number}" for number in range(7)]


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
def test_what_is_no_notebook_is_refused_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(NotANotebookError, match=cause):
        parse_notebook(text)


@pytest.mark.requirement("notebook.bad_input")
async def test_a_number_of_any_length_is_no_fault_of_a_notebook(root: Path, context: ToolContext) -> None:
    path, number = root / "n.ipynb", "9" * 5_000
    path.write_text(f'{{"cells": [{{"id": "one", "source": "a", "metadata": {{"n": {number}}}}}], "nbformat": 4}}')
    reader = ReadFileTool()
    shown = await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    assert "Cell 1" in str(shown.llm_content)
    await change(context, cell_id="one", new_source="b")
    assert number in path.read_text()


@pytest.mark.requirement("notebook.bad_input")
async def test_what_is_no_notebook_or_has_no_such_cell_is_refused_with_a_code(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    invalid, gone = ToolErrorType.NOTEBOOK_INVALID_JSON, ToolErrorType.NOTEBOOK_CELL_NOT_FOUND
    one = notebook(code("one", "a"))
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
        (json.dumps(one).encode("latin-1") + b"\xe9", {}, invalid),
        (json.dumps(one).encode(), {"cell_id": "gone"}, gone),
        (json.dumps(one).encode(), {"cell_id": "cell-1"}, gone),
        (json.dumps(one).encode(), {"cell_id": "cell--1"}, gone),
        (json.dumps(one).encode(), {"cell_id": "cell-" + "9" * 5_000}, gone),
        (json.dumps(one).encode(), {"new_source": "\ud800"}, ToolErrorType.INVALID_TOOL_PARAMS),
    ]
    for content, arguments, expected in cases:
        path.write_bytes(content)
        with pytest.raises(ToolError) as refused:
            await change(context, **{"cell_id": "one", "new_source": "b", **arguments})
        assert refused.value.code is expected, (content[:40], arguments)
        assert path.read_bytes() == content
    with path.open("wb") as file:
        file.truncate(MAX_NOTEBOOK_BYTES + 1)
    with pytest.raises(ToolError) as refused:
        await change(context, cell_id="one", new_source="b")
    assert refused.value.code is ToolErrorType.FILE_TOO_LARGE
    os.remove(path)
    with pytest.raises(ToolError) as refused:
        await change(context, cell_id="one", new_source="b")
    assert refused.value.code is ToolErrorType.FILE_NOT_FOUND


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
        with pytest.raises(ToolError) as refused:
            tool.validate_tool_params(arguments)
        assert refused.value.code is ToolErrorType.INVALID_TOOL_PARAMS, arguments


@pytest.mark.requirement("notebook.as_edit")
async def test_a_cell_is_changed_under_the_rules_of_edit(root: Path, context: ToolContext) -> None:
    path = root / "n.ipynb"
    written(path, THREE)
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "n.ipynb"}), context)
    written(path, notebook(code("one", "changed meanwhile")))
    with pytest.raises(ToolError) as refused:
        await change(context, cell_id="one", new_source="b")
    assert refused.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    written(path, THREE)
    modified = await change(context, "by the user", cell_id="one", new_source="b")
    assert modified.structured is not None
    assert modified.structured["user_modified"] is True
    assert read(path)["cells"][0]["source"] == ["by the user"]
    (root / ".geminiignore").write_text("h.ipynb\n")
    written(root / "h.ipynb", THREE)
    with pytest.raises(ToolError) as refused:
        await change(context, notebook_path="h.ipynb", cell_id="one", new_source="b")
    assert refused.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("notebook.as_edit")
async def test_edit_of_a_notebook_names_the_tool_for_cells(root: Path, context: ToolContext) -> None:
    written(root / "n.ipynb", THREE)
    tool = EditTool()
    told = await tool.execute(
        tool.validate_tool_params({"file_path": "n.ipynb", "old_string": "a = 1", "new_string": "a = 2"}), context
    )
    assert "notebook_edit" in str(told.llm_content)
    with pytest.raises(ToolError) as refused:
        await tool.execute(
            tool.validate_tool_params({"file_path": "n.ipynb", "old_string": "gone", "new_string": "x"}), context
        )
    assert "notebook_edit" in refused.value.message


@pytest.mark.requirement("notebook.search")
@pytest.mark.parametrize("form", ["as Jupyter writes it", "one line", "a mark"])
async def test_a_search_names_the_cell_of_a_line(form: str, root: Path, context: ToolContext) -> None:
    data = notebook(code("one", "é = 1"), code("two", "needle"), code("three", "x"))
    written(root / "n.ipynb", data, form)
    (root / "broken.ipynb").write_text("needle")
    tool = GrepTool()
    found = await tool.execute(tool.validate_tool_params({"pattern": "needle", "context": 1}), context)
    lines = [line for line in str(found.llm_content).splitlines() if "needle" in line and line.startswith("L")]
    assert sorted("(cell two):" in line for line in lines) == [False, True]
