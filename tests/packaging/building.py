"""Building distributions and running commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, target: str, place: Path) -> Path:
    """Build one distribution of a project and return its file."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", place, cwd=project)
    (built,) = place.iterdir()
    return built


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command that has to succeed, and return what it printed."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
