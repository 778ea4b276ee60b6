"""Fixtures for the tests of commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.unit.execution.shell import Shell, shell_in


@pytest.fixture
async def shell(root: Path, tmp_path: Path) -> AsyncGenerator[Shell]:
    """A client that runs commands in `root`."""
    async with shell_in(root, tmp_path) as client_shell:
        yield client_shell
