"""Fixtures for the stores in which replicas share state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from server.store.shared_store import Store
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from tests.valkey_servers import ValkeyServer, valkey_server

Opener = Callable[[], Store]
"""Opens a store for one more replica. The fixture closes every store at the end."""


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Generator[ValkeyServer]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["sqlite", "valkey"])
async def open_replica(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Opener]:
    stores: list[Store] = []
    server: ValkeyServer | None = request.getfixturevalue("valkey") if request.param == "valkey" else None
    if server is not None:
        server.command("FLUSHALL")

    def open_store() -> Store:
        store = SqliteStore(str(tmp_path / "store.db")) if server is None else ValkeyStore(server.url, "")
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        await store.aclose()


@pytest.fixture
async def store(open_replica: Opener) -> Store:
    store = open_replica()
    await store.start()
    return store
