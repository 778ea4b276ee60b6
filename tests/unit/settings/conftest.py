"""Fixtures for the tests of the settings: environments with an empty home folder, and the path of a settings file."""

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
    """An environment in which WORD is set, and both CLIs have their machine-wide settings in the test's folder."""
    for prefix, name in (("QWEN_CODE", "qwen"), ("GEMINI_CLI", "gemini")):
        environ[f"{prefix}_SYSTEM_SETTINGS_PATH"] = str(tmp_path / name / "settings.json")
    return {**environ, "WORD": "value"}
