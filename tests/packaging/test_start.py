"""The installed command starts our own code, wherever it is started."""

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
"""Modules of a workspace that have the names of ours, of our dependencies, of the standard library's."""

SPRUNG = "sprung"
"""A trap that is imported leaves a file of this name beside the workspace."""

STARTS = {
    "script": ("coretools-mcp",),
    "module": ("python", "-m", "coretools_mcp"),
}

NOT_ALWAYS = ("exit_plan_mode", "enter_plan_mode", "lsp", "skill")  # plan mode, a person to ask, what is on the machine
OFFERED = [tool.name for tool in builtin_tools() if tool.is_listed and tool.name not in NOT_ALWAYS]
"""What a client outside of plan mode sees."""

WITHOUT_FORMS = [name for name in OFFERED if name != "ask_user_question"]
"""What one sees that can show no form."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A working folder full of traps; `inside/` holds the same ones, `../beside/` two with the names of ours."""
    folder = tmp_path / "workspace"
    body = f"open({str(tmp_path / SPRUNG)!r}, 'a').write(__file__ + '\\n')\nraise SystemExit('a trap was imported')\n"
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
            # One folder inside, the working folder in both spellings, and one with other packages of our names.
            pytest.param("script", os.pathsep.join(("inside", ".", "", "../beside")), id="script-with-PYTHONPATH"),
            pytest.param("module", "inside", id="module-with-PYTHONPATH-inside"),
        ],
    ),
)
def test_our_own_code_starts_and_no_module_of_the_working_folder_is_imported(
    start: str, python_path: str, installed: Path, workspace: Path, tmp_path: Path
) -> None:
    program, *arguments = STARTS[start]
    command = [str(installed / program), *arguments, "tools", "--json"]
    listed = run(*command, cwd=workspace, env=_environment(tmp_path, python_path))
    assert not (tmp_path / SPRUNG).exists()
    names = [tool["name"] for tool in json.loads(listed)["tools"]]
    assert [name for name in names if name not in NOT_ALWAYS] == OFFERED


@pytest.mark.requirement("project.launcher")
def test_the_traps_are_sharp(workspace: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tools"], cwd=workspace, env=_environment(tmp_path, None), check=False
    )
    assert done.returncode != 0
    assert (tmp_path / SPRUNG).read_text(encoding="utf-8") == f"{workspace / 'tools' / '__init__.py'}\n"


@pytest.mark.requirement("project.launcher")
def test_a_conversation_over_stdio_lists_the_tools_from_a_folder_of_traps(
    installed: Path, workspace: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [installed / "coretools-mcp"],
        cwd=workspace,
        env=_environment(tmp_path, "."),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as server:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        initialized = _ask(server, {"id": 1, "method": "initialize", "params": about})
        _send(server, {"method": "notifications/initialized"})
        listed = _ask(server, {"id": 2, "method": "tools/list"})
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait() == 0
    assert initialized["result"]["serverInfo"]["name"] == "coretools-mcp"
    names = [tool["name"] for tool in listed["result"]["tools"]]
    assert [name for name in names if name not in NOT_ALWAYS] == WITHOUT_FORMS
    assert not (tmp_path / SPRUNG).exists()


@pytest.mark.long
@pytest.mark.requirement("project.launcher")
def test_the_pdf_worker_imports_nothing_of_the_workspace(installed: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / "pypdf.py").write_text((workspace / "anyio.py").read_text(encoding="utf-8"), encoding="utf-8")
    (workspace / "notes.pdf").write_bytes(document(lines("needle and thread")))
    command = [installed / "coretools-mcp", "call", "read_file", "file_path=notes.pdf"]
    found = run(*command, cwd=workspace, env=_environment(tmp_path, "."))
    assert "--- Page 1 of 1 ---\n\nneedle and thread" in found
    assert not (tmp_path / SPRUNG).exists()


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
def test_a_damaged_installation_says_so_in_a_sentence(installed: Path, tmp_path: Path) -> None:
    launcher = run(installed / "python", "-P", "-c", "import coretools_mcp; print(coretools_mcp.__file__)").strip()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "coretools_mcp.py").write_text(Path(launcher).read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", alone / "coretools_mcp.py"], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"coretools-mcp is damaged: {alone / 'tools'} is missing. Install it again.\n"


@pytest.mark.requirement("project.launcher")
def test_the_exit_code_of_the_command_line_is_the_exit_code_of_the_process(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "coretools-mcp", "tools", "--config", tmp_path / "absent.json"], capture_output=True, check=False
    )
    assert done.returncode == 2
