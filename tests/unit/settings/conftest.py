"""What every test of the settings starts from: an empty home, and a place for a file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose home folder is empty."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test writes its settings file."""
    return tmp_path / "mcp.json"


@pytest.fixture
def machine(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment in which both CLIs have their files for the machine below the test's folder, and WORD a value."""
    for prefix, name in (("QWEN_CODE", "qwen"), ("GEMINI_CLI", "gemini")):
        environ[f"{prefix}_SYSTEM_SETTINGS_PATH"] = str(tmp_path / name / "settings.json")
    return {**environ, "WORD": "value"}
