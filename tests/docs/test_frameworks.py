"""The snippets of the page on agent frameworks, run with the real frameworks, which are installed for the tests."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.fetch import CACHE
from tests.fork_server import forked
from tests.harness import ROOT, listening, server_arguments

PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
SNIPPET = re.compile(
    r"^```sh\n(?P<install>[^\n]+)\n```\n\n```(?P<language>python|js)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
SNIPPETS = {shlex.split(snippet["install"])[2]: snippet for snippet in SNIPPET.finditer(PAGE)}
SETTINGS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8808"
PROMPT = "once or deny? "
WITHOUT_QUESTIONS = ("openai-agents", "smolagents")

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("docs.frameworks")]


def test_each_framework_has_a_snippet_with_a_token_and_one_session() -> None:
    assert len(SNIPPETS) == PAGE.count("CORETOOLS_TOKEN']") + PAGE.count("env.CORETOOLS_TOKEN") == 7
    assert all("session" in snippet["code"] or "adapter" in snippet["code"] for snippet in SNIPPETS.values())
    (settings,) = SETTINGS
    assert json.loads(settings)["results"] == {"display": "meta"}


def install_packages(install: str) -> tuple[list[str], Path]:
    """Install the packages of a line of the page. Return the command that runs a program, and the program's folder."""
    installer, _, *packages = shlex.split(install)
    folder = CACHE / "frameworks" / re.sub(r"[^\w.=-]+", "-", f"{'-'.join(packages)}-{sys.version_info.minor}")
    command = [str(folder / "bin" / "python")] if installer == "pip" else [shutil.which("node") or "node"]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if installer == "pip":
            subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
            line = [*command, "-m", "pip", "install", "--quiet", *packages]
        else:
            line = ["npm", "install", "--silent", "--prefix", str(folder), *packages]
        subprocess.run(line, check=True, timeout=900, cwd=folder)
        (folder / "complete").touch()
    return command, folder


def run_and_answer(command: list[str], folder: Path) -> str:
    """Run a program, answer its questions with `once`, and return its output."""
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = ""
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            output += piece.decode()
            if output.endswith(PROMPT):
                process.stdin.write(b"once\n")
                process.stdin.flush()
        assert process.wait(30) == 0, output
    return output


@pytest.mark.long
@pytest.mark.timeout(1_200)  # the first run installs the framework
@pytest.mark.parametrize("package", SNIPPETS)
async def test_a_snippet_of_the_frameworks_page_works_with_only_its_address_changed(
    package: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippet = SNIPPETS[package]
    for name in ("CORETOOLS_TOKEN", "READER_TOKEN"):
        monkeypatch.setenv(name, secrets.token_hex(32))
    config = tmp_path / "config.json"
    config.write_text(SETTINGS[0])
    command, folder = install_packages(snippet["install"])
    options = server_arguments(root, config, "--transport", "http", "--port", "0")
    async with listening([sys.executable, *forked(options)], r"serving MCP at (http://\S+?),") as url:
        ending = "py" if snippet["language"] == "python" else "mjs"
        file = (tmp_path if ending == "py" else folder) / f"snippet.{ending}"
        assert ADDRESS in snippet["code"]
        file.write_text(snippet["code"].replace(ADDRESS, url))
        output = run_and_answer([*command, str(file)], file.parent)
    written_file = root / "hello.txt"
    if package.startswith(WITHOUT_QUESTIONS):
        assert "confirmation.whenUnavailable" in output
        assert not written_file.exists()
    else:
        assert "hello.txt (+1 -0 lines)" in output
        assert written_file.read_text() == "Hello\n"
