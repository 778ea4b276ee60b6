"""Fixtures that every test may use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tools.call.context import ClientState, ToolContext
from tools.contract.limits import Limits
from tools.files.workspace import Workspace

# How long an example takes says more of the machine than of the code; speed is measured in bench/.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Generator[None]:
    """What servers keep for themselves is kept apart from what those of the developer keep."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="coretools-state-", ignore_cleanup_errors=True) as folder:
        os.environ["XDG_STATE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_STATE_HOME"]
            os.environ |= {"XDG_STATE_HOME": before} if before is not None else {}


@pytest.fixture
def anyio_backend() -> str:
    """The server runs on asyncio, and so do the tests."""
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace folder, by its real path."""
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def context(root: Path) -> ToolContext:
    """A context of a client of its own, with `root` as its workspace and the default limits."""
    return ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))
