"""The hostile cases for any server: this one passes them, a careless one does not, and they need the SDK alone."""

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

ALONE = """
import runpy, sys
for name in ("pytest", "server", "tools"):
    sys.modules[name] = None
runpy.run_module("tests.hostile", run_name="__main__", alter_sys=True)
"""
"""Runs the cases where neither pytest nor this server can be imported."""
LAST_LINE = re.compile(r"(\d+) passed, (\d+) failed")
SETTINGS = ROOT / "tests" / "hostile" / "any_server" / "ours.json"


def hostile(*arguments: str) -> tuple[int, str]:
    """Run cases as a person does; the exit code, and all that was printed."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def failed(said: str) -> int:
    """How many cases failed, as the last line says."""
    last = LAST_LINE.fullmatch(said.splitlines()[-1])
    assert last is not None, said
    assert int(last.group(1)) > 5, said
    return int(last.group(2))


def our_command(*options: str) -> str:
    """Our server as a person starts it, with its defaults."""
    return shlex.join([sys.executable, "-P", str(LAUNCHER), "--workspace", "{ws}", *options])


@pytest.mark.requirement("hostile.any_server")
def test_our_server_passes_the_cases_of_commands() -> None:
    if find_bubblewrap("/usr/bin:/bin", []) is None:
        pytest.skip("not run: bubblewrap is not there")
    code, said = hostile("--target", our_command(), "--only", "shell")
    assert (code, failed(said)) == (0, 0), said


@pytest.mark.anyio
@pytest.mark.requirement("hostile.any_server")
async def test_our_server_passes_the_cases_of_paths_over_http(root: Path) -> None:
    async with our_http_server(root, None) as url:
        code, said = await anyio.to_thread.run_sync(
            hostile, "--target", f"{url}/mcp", "--workspace", str(root), "--only", "paths"
        )
    assert (code, failed(said)) == (0, 0), said


@pytest.mark.long
@pytest.mark.requirement("hostile.any_server")
def test_our_server_passes_every_case() -> None:
    code, said = hostile("--target", our_command("--config", "{upstream}"), "--settings", str(SETTINGS))
    assert (code, failed(said)) == (0, 0), said


@pytest.mark.requirement("hostile.any_server")
def test_a_careless_server_fails_and_what_it_does_not_have_is_counted_apart(tmp_path: Path) -> None:
    careless = shlex.join([sys.executable, "-S", str(PEERS / "careless_server.py")])
    code, said = hostile("--target", careless, "--only", "paths,web", "--save", str(tmp_path / "run.json"))
    assert code == 1
    assert failed(said) >= 5
    for name in (
        "the absolute path of a file outside",
        "a link to a folder outside",
        "a dangling link that points outside",
    ):
        assert re.search(rf"^FAILED +\w+: {name}", said, re.MULTILINE), (name, said)
    assert re.search(r"^not applicable +web: 127", said, re.MULTILINE), said
    page = subprocess.run(
        [sys.executable, "-m", "tests.hostile", "--page", str(tmp_path / "run.json")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "| the absolute path of a file outside | **failed** |" in page
