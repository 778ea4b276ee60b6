"""Memory files under attack: many writers, links, permissions and damage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.unit.memory.memories import confirmation_for, save
from tests.variants import one_in
from tests.waiting import CEILING
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.memory.memory_files import MemoryFiles

pytestmark = pytest.mark.anyio

SAVER = Path(__file__).with_name("memory_saver.py")
PROCESSES = 4
FACTS = 50
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="not run: on Windows, links need special rights")


async def refusal(context: ToolContext, files: MemoryFiles | None = None, scope: str = "project") -> ToolError:
    """Return the error that refuses a fact. The confirmation and the call must fail with the same message."""
    with pytest.raises(ToolError) as error_before_question:
        await confirmation_for(context, files, fact="Tabs.", scope=scope)
    with pytest.raises(ToolError) as error_info:
        await save(context, files, fact="Tabs.", scope=scope)
    assert error_info.value.message == error_before_question.value.message
    return error_info.value


async def saver(root: Path, folder: Path, scope: str, name: str) -> list[str]:
    command = [sys.executable, "-P", str(SAVER), str(root), str(folder), scope, name, str(FACTS)]
    process = await anyio.run_process(command, stderr=subprocess.STDOUT, check=False)
    return process.stdout.decode().splitlines()


@pytest.mark.long
@pytest.mark.requirement("memory.bytes")
@pytest.mark.parametrize("scope", one_in(2, ["project", "global"]))
async def test_facts_that_many_processes_save_at_once_are_all_kept(scope: str, root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "settings"
    answers: dict[str, list[str]] = {}

    async def run(name: str) -> None:
        answers[name] = await saver(root, folder, scope, name)

    if scope == "project":
        (root / "AGENTS.md").write_bytes(b"# Rules\r\n\r\n## Added Memories\r\n\r\n## Last\r\nx\r\n")
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as group:
            for number in range(PROCESSES):
                group.start_soon(run, f"process {number}")
    assert {line for lines in answers.values() for line in lines} == {"saved"}
    entries = {f"- process {number} remembers {fact}" for number in range(PROCESSES) for fact in range(FACTS)}
    memory_folder = root if scope == "project" else folder
    lines = (memory_folder / "AGENTS.md").read_bytes().decode().replace("\r\n", "\n").splitlines()
    assert {line for line in lines if line.startswith("- ")} == entries
    other_lines = (
        ["# Rules", "", "## Added Memories", "", "## Last", "x"] if scope == "project" else ["## Added Memories"]
    )
    assert [line for line in lines if line not in entries] == other_lines
    assert len(lines) == len(entries) + len(other_lines)
    assert os.listdir(memory_folder) == ["AGENTS.md"]


@needs_links
@pytest.mark.requirement("memory.links")
@pytest.mark.parametrize("scope", ["project", "global"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_memory_that_is_a_link_to_the_outside_is_refused(
    exists: bool, scope: str, root: Path, tmp_path: Path, context: ToolContext
) -> None:
    files = MemoryFiles(global_folder=str(tmp_path / "home"))
    outside = tmp_path / "outside.md"
    if exists:
        outside.write_text("theirs\n")
    memory_folder = root if scope == "project" else tmp_path / "home"
    memory_folder.mkdir(exist_ok=True)
    (memory_folder / "AGENTS.md").symlink_to(outside)
    error = await refusal(context, files, scope)
    assert error.code is ToolErrorType.PATH_NOT_IN_WORKSPACE
    assert "outside.md" not in error.message
    assert outside.exists() is exists
    assert not exists or outside.read_text() == "theirs\n"
    assert (memory_folder / "AGENTS.md").is_symlink()


@needs_links
@pytest.mark.requirement("memory.links")
async def test_a_memory_that_is_a_link_inside_is_written_through(root: Path, context: ToolContext) -> None:
    (root / "CLAUDE.md").write_text("theirs\n")
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    await save(context, fact="Tabs.")
    assert (root / "CLAUDE.md").read_text() == "theirs\n\n## Added Memories\n- Tabs.\n"
    assert (root / "AGENTS.md").is_symlink()


@pytest.mark.requirement("memory.links")
@pytest.mark.parametrize("mode", [0o444, 0o400, 0o555])
async def test_a_read_only_memory_is_left_alone(mode: int, root: Path, context: ToolContext) -> None:
    path = root / "AGENTS.md"
    path.write_text("theirs\n")
    path.chmod(mode)
    before = path.stat()
    error = await refusal(context)
    assert error.code is ToolErrorType.PERMISSION_DENIED
    assert path.stat() == before


@pytest.mark.requirement("memory.links")
@pytest.mark.parametrize(
    "content",
    [
        b"# Rules\n\n## Added Memories\n- one\n" + b"\0" * 512,
        b"x" * 5_000 + b"\0" * 10,
        "- caf\u00e9\n".encode()[:-2],
        b"\xff\xfe#\0R",
        b"\xff\xfe\0\0#\0",
        b"\x7fELF\0\0",
    ],
    ids=["zeros", "late-zeros", "cut-character", "cut-utf-16", "cut-utf-32", "binary"],
)
async def test_a_half_written_memory_is_left_alone(content: bytes, root: Path, context: ToolContext) -> None:
    path = root / "AGENTS.md"
    path.write_bytes(content)
    before = path.stat()
    error = await refusal(context)
    assert error.code is ToolErrorType.READ_CONTENT_FAILURE
    assert (path.read_bytes(), path.stat().st_ino) == (content, before.st_ino)
    assert os.listdir(root) == ["AGENTS.md"]


@pytest.mark.requirement("memory.links")
async def test_a_memory_that_is_huge_a_folder_or_a_pipe_is_refused(root: Path, context: ToolContext) -> None:
    path = root / "AGENTS.md"
    path.write_bytes(b"x" * 1_000_001)
    assert (await refusal(context)).code is ToolErrorType.FILE_TOO_LARGE
    path.unlink()
    path.mkdir()
    assert (await refusal(context)).code is ToolErrorType.TARGET_IS_DIRECTORY
    path.rmdir()
    if sys.platform != "win32":
        os.mkfifo(path)
        assert (await refusal(context)).code is ToolErrorType.READ_CONTENT_FAILURE


@pytest.mark.requirement("memory.resources")
async def test_a_memory_hidden_from_agents_is_refused_whatever_it_holds(root: Path, context: ToolContext) -> None:
    (root / ".geminiignore").write_text("AGENTS.md\n")
    messages: set[str] = set()
    for content in ("- Tabs.\n", "nothing\n"):
        (root / "AGENTS.md").write_text(content)
        error = await refusal(context)
        assert error.code is ToolErrorType.PATH_IGNORED
        messages.add(error.message)
        assert (root / "AGENTS.md").read_text() == content
    assert len(messages) == 1


@pytest.mark.requirement("memory.links")
async def test_a_global_folder_that_is_a_file_is_refused(tmp_path: Path, context: ToolContext) -> None:
    (tmp_path / "home").write_text("theirs")
    with pytest.raises(ToolError) as error_info:
        await save(context, MemoryFiles(global_folder=str(tmp_path / "home")), fact="Tabs.", scope="global")
    assert error_info.value.code is ToolErrorType.FILE_WRITE_FAILURE
    assert "memory.globalFolder" in error_info.value.message
    assert str(tmp_path) not in error_info.value.message
    assert (tmp_path / "home").read_text() == "theirs"
