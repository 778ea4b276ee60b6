"""The installed command starts our own code in every working folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.building import run
from tests.pdf_files import document, lines
from tests.variants import one_in
from tools.builtin.all_tools import builtin_tools

TRAPS = (
    "server/__init__.py",
    "tools/__init__.py",
    "tools.py",
    "mcp/__init__.py",
    "anyio.py",
    "pydantic.py",
    "json.py",
    "logging.py",
    "__future__.py",
)
"""Modules in a workspace with the names of our modules, of dependencies, or of the standard library."""

TRACE = "sprung"
"""A trap that is imported leaves a file of this name next to the workspace."""

STARTS = {
    "script": ("coretools-mcp",),
    "module": ("python", "-m", "coretools_mcp"),
}

CONDITIONAL_TOOLS = (
    "exit_plan_mode",
    "enter_plan_mode",
    "lsp",
    "skill",
)  # depend on plan mode, forms, or installed programs
LISTED_TOOLS = [tool.name for tool in builtin_tools() if tool.is_listed and tool.name not in CONDITIONAL_TOOLS]
"""The tools that every client with forms sees outside plan mode."""

TOOLS_WITHOUT_FORMS = [name for name in LISTED_TOOLS if name != "ask_user_question"]
"""The tools that a client without forms sees."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A working folder full of traps. `inside/` has the same traps, and `../beside/` has two with our package names."""
    folder = tmp_path / "workspace"
    body = f"open({str(tmp_path / TRACE)!r}, 'a').write(__file__ + '\\n')\nraise SystemExit('a trap was imported')\n"
    for base, names in ((folder, TRAPS), (folder / "inside", TRAPS), (tmp_path / "beside", TRAPS[:2])):
        for name in names:
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(body, encoding="utf-8")
    return folder


def _environment(tmp_path: Path, python_path: str | None) -> dict[str, str]:
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    return environment if python_path is None else {**environment, "PYTHONPATH": python_path}


@pytest.mark.requirement("project.launcher")
@pytest.mark.parametrize(
    ("start", "python_path"),
    one_in(
        2,
        [
            # A folder inside, the working folder in two spellings, and a folder with packages of our names.
            pytest.param("script", os.pathsep.join(("inside", ".", "", "../beside")), id="script-with-PYTHONPATH"),
            pytest.param("module", "inside", id="module-with-PYTHONPATH-inside"),
        ],
    ),
)
def test_our_own_code_starts_and_no_module_of_the_working_folder_is_imported(
    start: str, python_path: str, installed_bin: Path, workspace: Path, tmp_path: Path
) -> None:
    program, *arguments = STARTS[start]
    command = [str(installed_bin / program), *arguments, "tools", "--json"]
    listing = run(*command, cwd=workspace, env=_environment(tmp_path, python_path))
    assert not (tmp_path / TRACE).exists()
    names = [tool["name"] for tool in json.loads(listing)["tools"]]
    assert [name for name in names if name not in CONDITIONAL_TOOLS] == LISTED_TOOLS


@pytest.mark.requirement("project.launcher")
def test_the_traps_work(workspace: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import tools"], cwd=workspace, env=_environment(tmp_path, None), check=False
    )
    assert result.returncode != 0
    assert (tmp_path / TRACE).read_text(encoding="utf-8") == f"{workspace / 'tools' / '__init__.py'}\n"


@pytest.mark.requirement("project.launcher")
def test_a_conversation_over_stdio_lists_the_tools_from_a_folder_of_traps(
    installed_bin: Path, workspace: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [installed_bin / "coretools-mcp"],
        cwd=workspace,
        env=_environment(tmp_path, "."),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as server:
        client_info = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        initialize_answer = _ask(server, {"id": 1, "method": "initialize", "params": client_info})
        _send(server, {"method": "notifications/initialized"})
        list_answer = _ask(server, {"id": 2, "method": "tools/list"})
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait() == 0
    assert initialize_answer["result"]["serverInfo"]["name"] == "coretools-mcp"
    names = [tool["name"] for tool in list_answer["result"]["tools"]]
    assert [name for name in names if name not in CONDITIONAL_TOOLS] == TOOLS_WITHOUT_FORMS
    assert not (tmp_path / TRACE).exists()


@pytest.mark.long
@pytest.mark.requirement("project.launcher")
def test_the_pdf_worker_imports_nothing_of_the_workspace(installed_bin: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / "pypdf.py").write_text((workspace / "anyio.py").read_text(encoding="utf-8"), encoding="utf-8")
    (workspace / "notes.pdf").write_bytes(document(lines("needle and thread")))
    command = [installed_bin / "coretools-mcp", "call", "read_file", "file_path=notes.pdf"]
    output = run(*command, cwd=workspace, env=_environment(tmp_path, "."))
    assert "--- Page 1 of 1 ---\n\nneedle and thread" in output
    assert not (tmp_path / TRACE).exists()


def _send(server: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def _ask(server: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any]:
    _send(server, request)
    assert server.stdout is not None
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == request["id"]:
            return message
    raise AssertionError("the server ended without an answer")


@pytest.mark.requirement("project.launcher")
def test_a_damaged_installation_prints_one_sentence(installed_bin: Path, tmp_path: Path) -> None:
    launcher = run(installed_bin / "python", "-P", "-c", "import coretools_mcp; print(coretools_mcp.__file__)").strip()
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "coretools_mcp.py").write_text(Path(launcher).read_text(encoding="utf-8"), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-P", folder / "coretools_mcp.py"], capture_output=True, encoding="utf-8", check=False
    )
    assert result.returncode == 1
    assert result.stderr == f"coretools-mcp is damaged: {folder / 'tools'} is missing. Install it again.\n"


@pytest.mark.requirement("project.launcher")
def test_the_exit_code_of_the_command_line_is_the_exit_code_of_the_process(installed_bin: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [installed_bin / "coretools-mcp", "tools", "--config", tmp_path / "absent.json"],
        capture_output=True,
        check=False,
    )
    assert result.returncode == 2
