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
