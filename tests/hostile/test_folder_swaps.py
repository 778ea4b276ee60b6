"""A folder is swapped with a link out of the workspace again and again, while every tool works in it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import PEERS
from tools.builtin.edit import EditTool, WriteFileTool
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.builtin.search_tools import GlobTool, GrepTool, LSTool
from tools.call.base_tool import BaseTool, ToolContext
from tools.contract.tool_errors import ToolError

pytestmark = pytest.mark.anyio

DURATIONS = [2, pytest.param(12, marks=pytest.mark.long)]
"""For how many seconds the folder is swapped."""

MORE_SECONDS = 20


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The folder outside, which must stay unchanged and unseen. Its names and lines are like those inside."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for path in (folder, folder / "deep"):
        (path / "a.txt").write_text("needle OUTSIDE\n")
        (path / "out-only.txt").write_text("needle OUTSIDE\n")
    return folder


@contextmanager
def swapping(root: Path, outside: Path) -> Generator[None]:
    """Swap `root/inside` with a link to the folder outside, in a separate process."""
    (root / "inside" / "deep").mkdir(parents=True)
    (root / "inside" / "a.txt").write_text("needle inside\n")
    (root / "inside" / "deep" / "a.txt").write_text("needle inside\n")
    (root / "away").symlink_to(outside)
    command = [sys.executable, str(PEERS / "swapper.py"), str(root / "inside"), str(root / "away")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"swapping\n"
            yield
        finally:
            process.stdin.close()
            process.wait(20)


async def text_of(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> str | None:
    """Return everything that a call returns, or `None` if it is refused."""
    params = tool.validate_tool_params(arguments)
    try:
        details = await tool.should_confirm_execute(params, context)
        result = await tool.execute(params, context)
    except ToolError as error:
        return error.message if "OUTSIDE" in error.message else None
    return f"{details}{result.llm_content}{result.return_display}{result.structured}"


async def repeat(seconds: float, calls: list[Callable[[], Awaitable[str | None]]]) -> Counter[int]:
    """Make the calls in turn for some time, and return how often each succeeded. No answer may show what is outside.

    On a busy machine, this goes on until each call has succeeded once.
    """
    successes: Counter[int] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end or (len(+successes) < len(calls) and time.monotonic() < end + MORE_SECONDS):
        for number, call in enumerate(calls):
            text = await call()
            assert text is None or "OUTSIDE" not in text
            assert text is None or "out-only" not in text
            successes[number] += text is not None
    return successes


@pytest.mark.long
@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("seconds", DURATIONS)
async def test_no_tool_reads_through_a_folder_that_is_swapped_with_a_link(
    seconds: int, root: Path, outside: Path, context: ToolContext
) -> None:
    path = str(root / "inside" / "a.txt")
    with swapping(root, outside):
        successes = await repeat(
            seconds,
            [
                lambda: text_of(ReadFileTool(), context, absolute_path=path),
                lambda: text_of(LSTool(), context, path="inside/deep"),
                lambda: text_of(GlobTool(), context, pattern="inside/*"),
                lambda: text_of(GrepTool(), context, pattern="needle", path="inside"),
                lambda: text_of(ReadManyFilesTool(), context, paths=["inside/a.txt", "inside/*.txt"]),
            ],
        )
    assert min(successes[number] for number in range(5)) > 0, successes


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("seconds", DURATIONS)
async def test_no_tool_writes_through_a_folder_that_is_swapped_with_a_link(
    seconds: int, root: Path, outside: Path, context: ToolContext
) -> None:
    before = {path: path.read_bytes() for path in outside.rglob("*.txt")}
    with swapping(root, outside):
        successes = await repeat(
            seconds,
            [
                lambda: text_of(WriteFileTool(), context, file_path="inside/deep/new.txt", content="written"),
                lambda: text_of(WriteFileTool(), context, file_path=f"inside/{time.monotonic_ns()}/b", content="b"),
                lambda: text_of(
                    EditTool(), context, file_path="inside/deep/a.txt", old_string="inside", new_string="inside."
                ),
            ],
        )
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    (real,) = [path for path in root.iterdir() if not path.is_symlink()]
    assert (real / "deep" / "new.txt").read_text() == "written"
    assert min(successes[number] for number in range(3)) > 0, successes
    assert not list(root.rglob(".coretools-*"))
