"""`make demo` works: the script behind it, run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "docs" / "demo" / "run.py"


@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_tells_its_story_to_the_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", DEMO], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    headings = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert len(headings) == 6
    assert done.stdout.count("The server asks:") == 2
    assert '-    return f"Helo, {name}!"' in done.stdout
    assert '+    return f"Hello, {name}!"' in done.stdout
    assert "demo__echo" in done.stdout


@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_fails_loudly_where_the_command_is_missing(tmp_path: Path) -> None:
    # An interpreter in another folder has no command beside it.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    site = Path(pytest.__file__).parent.parent
    code = f"import runpy, sys; sys.path.insert(0, {str(site)!r}); runpy.run_path({str(DEMO)!r}, run_name='__main__')"
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert "The demo failed" in done.stderr
