"""Fixtures that every test may use."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cached_startup import cache_schemas_and_patterns
from tests.examples import LONG_PROFILE
from tests.variants import mark_variants_long
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.call_options import Limits
from tools.files.workspace import Workspace

# No deadline: the duration of an example says more about the machine than about the code. bench/ measures speed.
settings.register_profile("default", deadline=None)
settings.register_profile(LONG_PROFILE, deadline=None)
settings.load_profile("default")

_TESTS = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Give property tests all their examples in a run of the long tests (see `tests/examples.py`)."""
    if config.getoption("markexpr") == "long":
        settings.load_profile(LONG_PROFILE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use 1.5 workers per core, at most four: a test spends two thirds of its time waiting for other processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores + cores // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest selects by marks, mark all but one variant of each repeated test as long."""
    mark_variants_long(items)


@pytest.fixture(scope="session", autouse=True)
def server_folders() -> Generator[None]:
    """Keep the state and the sockets of tested servers apart from those of the developer's own servers.

    The certificates of this machine are not read either: that would cost every HTTP client 50 ms.
    """
    names = ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_DIR")
    before = {name: value for name in (*names, "SSL_CERT_FILE") if (value := os.environ.pop(name, None)) is not None}
    with tempfile.TemporaryDirectory(prefix="coretools-", ignore_cleanup_errors=True) as folder:
        os.environ |= dict.fromkeys(names, folder)
        cache_schemas_and_patterns()
        try:
            yield
        finally:
            for name in names:
                del os.environ[name]
            os.environ |= before


@pytest.fixture(autouse=True)
def separate_state(server_folders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the servers of each test a state folder of their own."""
    del server_folders
    folder = os.path.join(os.environ["XDG_STATE_HOME"], f"test-{next(_TESTS)}")
    monkeypatch.setenv("XDG_STATE_HOME", folder)


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, like the server."""
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace folder, as its real path."""
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def outer_root() -> Generator[Path]:
    """An empty workspace folder that is not below `/tmp`, like most people's workspaces."""
    for parent in (Path.home(), Path(__file__).parents[1]):
        if not parent.resolve().is_relative_to("/tmp") and os.access(parent, os.W_OK):
            with tempfile.TemporaryDirectory(prefix=".coretools-test-", dir=parent.resolve()) as folder:
                yield Path(folder)
            return
    pytest.skip("not run: home and checkout are below /tmp")


@pytest.fixture
def context(root: Path) -> ToolContext:
    """A context for a new client, with `root` as its workspace and the default limits."""
    return ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))
