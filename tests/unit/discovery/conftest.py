"""Fixtures for custom tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.unit.discovery.custom_tools import CustomTools, custom_tools


@pytest.fixture
async def tools(root: Path, tmp_path: Path) -> AsyncGenerator[CustomTools]:
    """Custom tools with working commands."""
    async with custom_tools(root, tmp_path) as working_tools:
        yield working_tools
