"""What a call returns over the wire: content for the model, and a display for the person at the client."""

from __future__ import annotations

from pathlib import Path

import mcp_types as types
import pytest

from tests.harness import REVISIONS, in_memory, write_config

pytestmark = pytest.mark.anyio

DISPLAY = "coretools-mcp/display"
EDIT = {"file_path": "a.txt", "old_string": "world", "new_string": "there"}


def texts_for(audience: str | None, result: types.CallToolResult) -> list[str]:
    """Return the texts for an audience. `None` stands for the texts without an audience, which the model reads."""
    texts: list[str] = []
    for block in result.content:
        assert isinstance(block, types.TextContent)
        block_audience = block.annotations.audience if block.annotations is not None else None
        if block_audience == (None if audience is None else [audience]):
            texts.append(block.text)
    return texts


@pytest.mark.requirement("flow.display")
@pytest.mark.parametrize("mode", REVISIONS)
@pytest.mark.parametrize("place", ["block", "meta"])
async def test_a_change_is_shown_to_the_person_as_a_diff_and_described_to_the_model_in_words(
    mode: str, place: str, root: Path, tmp_path: Path
) -> None:
    (root / "a.txt").write_text("hello world\n")
    config = write_config(tmp_path, {"approvalMode": "auto-edit", "results": {"display": place}})
    async with in_memory(mode, root, config) as client:
        result = await client.call_tool("edit", EDIT)
    assert not result.is_error
    (model_text,) = texts_for(None, result)
    assert "a.txt" in model_text
    display = (result.meta or {})[DISPLAY]
    assert (display["fileName"], display["added"], display["removed"]) == ("a.txt", 1, 1)
    assert "-hello world\n+hello there\n" in display["fileDiff"]
    blocks = texts_for("user", result)
    assert len(blocks) == (1 if place == "block" else 0)
    assert all("-hello world\n+hello there\n" in block for block in blocks)


@pytest.mark.requirement("flow.display")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_text_display_is_for_the_person_and_stands_beside_the_content(mode: str, root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    async with in_memory(mode, root) as client:
        result = await client.call_tool("list_directory", {"path": "."})
    assert "a.txt" in "".join(texts_for(None, result))
    assert isinstance((result.meta or {})[DISPLAY], str)
    assert texts_for("user", result) == []
