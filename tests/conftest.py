"""Fixtures that every test may use."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import LONG_PROFILE
from tests.remembered import remember_parts
from tests.variants import make_long_but_one
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.limits import Limits
from tools.files.workspace import Workspace

# How long an example takes says more of the machine than of the code; speed is measured in bench/.
settings.register_profile("ours", deadline=None)
settings.register_profile(LONG_PROFILE, deadline=None)
settings.load_profile("ours")

_TESTS = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """A run of the long tests gives properties all of their examples (see `tests/examples.py`)."""
    if config.getoption("markexpr") == "long":
        settings.load_profile(LONG_PROFILE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One and a half workers a core, at most four: two thirds of the time, a test waits for other processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores + cores // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest selects by marks: of what is repeated over revisions and transports, one is short."""
    make_long_but_one(items)


@pytest.fixture(scope="session", autouse=True)
def folders_of_servers() -> Generator[None]:
    """What servers keep for themselves, and their sockets, are kept apart from those of the developer's own servers.

    Nor are the certificates of this machine read, which takes every client of HTTP a twentieth of a second.
    """
    kept = ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_DIR")
    before = {name: value for name in (*kept, "SSL_CERT_FILE") if (value := os.environ.pop(name, None)) is not None}
    with tempfile.TemporaryDirectory(prefix="coretools-", ignore_cleanup_errors=True) as folder:
        os.environ |= dict.fromkeys(kept, folder)
        remember_parts()
        try:
            yield
        finally:
            for name in kept:
                del os.environ[name]
            os.environ |= before


@pytest.fixture(autouse=True)
def state_of_own(folders_of_servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the servers of one test keep is not there for those of another."""
    del folders_of_servers
    folder = os.path.join(os.environ["XDG_STATE_HOME"], f"test-{next(_TESTS)}")
    monkeypatch.setenv("XDG_STATE_HOME", folder)


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
def outer_root() -> Generator[Path]:
    """An empty workspace folder that does not lie below `/tmp`, as that of most people."""
    for parent in (Path.home(), Path(__file__).parents[1]):
        if not parent.resolve().is_relative_to("/tmp") and os.access(parent, os.W_OK):
            with tempfile.TemporaryDirectory(prefix=".coretools-test-", dir=parent.resolve()) as folder:
                yield Path(folder)
            return
    pytest.skip("not run: home and checkout lie below /tmp")


@pytest.fixture
def context(root: Path) -> ToolContext:
    """A context of a client of its own, with `root` as its workspace and the default limits."""
    return ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))
