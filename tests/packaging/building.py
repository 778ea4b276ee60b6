"""Building distributions and running commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, target: str, folder: Path) -> Path:
    """Build one distribution of a project and return its file."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=project)
    (file,) = folder.iterdir()
    return file


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed, and return its output."""
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout
