"""A notebook as a client works with it: seen as cells, changed by cell with a person's consent, searched, undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, MODERN, in_memory, write_config

pytestmark = pytest.mark.anyio

EMPTY_CELL: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": []}
CELLS = [{**EMPTY_CELL, "id": name, "source": [f"{name} = 1"]} for name in "ab"]
NOTEBOOK: dict[str, Any] = {"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.requirement("notebook.as_edit")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_cell_is_changed_once_a_person_has_seen_it_and_the_change_is_taken_back(
    era: str, root: Path, tmp_path: Path
) -> None:
    questions: list[str] = []

    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})

    path, before = root / "n.ipynb", json.dumps(NOTEBOOK, indent=1)
    path.write_text(before)
    config = write_config(tmp_path, {"permissions": {"deny": ["NotebookEdit(closed/**)"]}})
    async with in_memory(era, root, config, elicitation_callback=person) as client:

        async def call(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))

        assert "id b" in await call("read_file", file_path="n.ipynb")
        assert "Replaced the code cell b" in await call(
            "notebook_edit", notebook_path="n.ipynb", cell_id="b", new_source="b = 2"
        )
        assert path.read_text() == before.replace("b = 1", "b = 2")
        assert '+    "b = 2"' in questions[0]
        assert "(cell b): " in await call("grep_search", pattern="b = 2")
        await call("undo_change")
        assert path.read_text() == before
        (root / "closed").mkdir()
        (root / "closed" / "n.ipynb").write_text(before)
        await call("notebook_edit", notebook_path="closed/n.ipynb", cell_id="b", new_source="b = 2")
        assert (root / "closed" / "n.ipynb").read_text() == before
    assert len(questions) == 2
