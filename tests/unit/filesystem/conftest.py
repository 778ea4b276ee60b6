"""Fixtures for the tests of the file layer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.files.search import ripgrep


@pytest.fixture
def no_ripgrep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate a machine without ripgrep: it is not on the path, not beside Python, and not installed as a package."""
    python = tmp_path / "python-alone" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(ripgrep, "PACKAGE", "ripgrep-that-nobody-has-installed")
    monkeypatch.setenv("PATH", "")
    return monkeypatch
