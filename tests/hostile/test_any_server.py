"""The hostile cases for any server: ours passes them, a careless server does not, and they need only the SDK."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from tests.harness import LAUNCHER, PEERS, ROOT, our_http_server
from tools.shell.sandbox.bubblewrap import find_bubblewrap

SDK_ONLY = """
import runpy, sys
for name in ("pytest", "server", "tools"):
    sys.modules[name] = None
runpy.run_module("tests.hostile", run_name="__main__", alter_sys=True)
"""
"""Runs the cases in an interpreter that can import neither pytest nor this server."""
LAST_LINE = re.compile(r"(\d+) passed, (\d+) failed")
SETTINGS = ROOT / "tests" / "hostile" / "any_server" / "ours.json"


def run_cases(*arguments: str) -> tuple[int, str]:
    """Run cases from the command line. Return the exit code and the output."""
    result = subprocess.run(
        [sys.executable, "-c", SDK_ONLY, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not result.stderr, result.stderr
    return result.returncode, result.stdout


def failure_count(output: str) -> int:
    """Return the number of failed cases from the last line of the output."""
    last = LAST_LINE.fullmatch(output.splitlines()[-1])
    assert last is not None, output
    assert int(last.group(1)) > 5, output
    return int(last.group(2))


def our_command(*options: str) -> str:
    """Return the command that starts our server with its defaults."""
    return shlex.join([sys.executable, "-P", str(LAUNCHER), "--workspace", "{ws}", *options])


@pytest.mark.requirement("hostile.any_server")
def test_our_server_passes_the_cases_of_commands() -> None:
    if find_bubblewrap("/usr/bin:/bin", []) is None:
        pytest.skip("not run: bubblewrap is not installed")
    code, output = run_cases("--target", our_command(), "--only", "shell")
    assert (code, failure_count(output)) == (0, 0), output


@pytest.mark.anyio
@pytest.mark.requirement("hostile.any_server")
async def test_our_server_passes_the_cases_of_paths_over_http(root: Path) -> None:
    async with our_http_server(root, None) as url:
        code, output = await anyio.to_thread.run_sync(
            run_cases, "--target", f"{url}/mcp", "--workspace", str(root), "--only", "paths"
        )
    assert (code, failure_count(output)) == (0, 0), output


@pytest.mark.long
@pytest.mark.requirement("hostile.any_server")
def test_our_server_passes_every_case() -> None:
    code, output = run_cases("--target", our_command("--config", "{upstream}"), "--settings", str(SETTINGS))
    assert (code, failure_count(output)) == (0, 0), output


@pytest.mark.requirement("hostile.any_server")
def test_a_careless_server_fails_and_cases_that_do_not_apply_are_counted_separately(tmp_path: Path) -> None:
    careless = shlex.join([sys.executable, "-S", str(PEERS / "careless_server.py")])
    code, output = run_cases("--target", careless, "--only", "paths,web", "--save", str(tmp_path / "run.json"))
    assert code == 1
    assert failure_count(output) >= 5
    for name in (
        "the absolute path of a file outside",
        "a link to a folder outside",
        "a dangling link that points outside",
    ):
        assert re.search(rf"^FAILED +\w+: {name}", output, re.MULTILINE), (name, output)
    assert re.search(r"^not applicable +web: 127", output, re.MULTILINE), output
    page = subprocess.run(
        [sys.executable, "-m", "tests.hostile", "--page", str(tmp_path / "run.json")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "| the absolute path of a file outside | **failed** |" in page
