"""Rules that users have allowed and replicas share: for one client only, for a limited time, and not forgeable."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from server.clients.shared_grants import SharedGrants
from server.store.replica import Replica
from server.store.shared_store import Store
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from tests.valkey_servers import valkey_server
from tests.waiting import CEILING
from tools.call.base_tool import ClientState
from tools.contract.call_options import ApprovalMode

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    store = SqliteStore(str(tmp_path / "store.db"))
    yield store
    await store.aclose()


def grants_in(store: Store, *keys: bytes, seconds: float = 60) -> SharedGrants:
    return SharedGrants(Replica("one", store, keys or (KEY,)), seconds, lambda: "servers")


async def rules_of(grants: SharedGrants, key: str = "token:ada") -> list[str] | None:
    client = ClientState(key, ApprovalMode.DEFAULT)
    had_any = await grants.take_up(client)
    assert had_any is bool(client.grants)
    return client.grants


def ada(*rules: str) -> ClientState:
    return ClientState("token:ada", grants=list(rules))


@pytest.mark.requirement("store.grants")
async def test_rules_of_several_replicas_add_up_for_their_client_only(store: Store) -> None:
    first, second = grants_in(store), grants_in(store)
    await first.add(ada(), ["Edit(/a)", "WebFetch(domain:x)"])
    await second.add(ada(), ["WebFetch(domain:x)", "Edit(/b)"])
    assert await rules_of(first) == ["Edit(/a)", "WebFetch(domain:x)", "Edit(/b)"]
    assert await rules_of(first, "token:bob") == []
    client = ada("Edit(/a)", "WebFetch(domain:x)", "Edit(/b)")
    assert not await first.take_up(client)
    assert client.grants == ["Edit(/a)", "WebFetch(domain:x)", "Edit(/b)"]


@pytest.mark.requirement("store.grants")
@pytest.mark.parametrize("key", ["http:a-session", "sse:a-session", "stdio", ""])
async def test_no_rules_are_shared_for_a_client_without_a_token(store: Store, key: str) -> None:
    grants = grants_in(store)
    await grants.add(ClientState(key), ["Edit(/a)"])
    assert not await rules_of(grants, key)


@pytest.mark.requirement("store.grants")
async def test_rules_expire_after_the_idle_time(store: Store) -> None:
    await grants_in(store, seconds=1e-3).add(ada(), ["Edit(/a)"])
    with anyio.fail_after(CEILING):
        while await rules_of(grants_in(store)):  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(1e-3)


class NamingStore(SqliteStore):
    """A store in which no row expires, and which records the name of the row that was written last."""

    name = ""

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        self.name = key
        return await super().put(key, value, None, if_version=if_version)


@pytest.mark.requirement("store.grants")
async def test_a_forged_row_allows_nothing(tmp_path: Path) -> None:
    store = NamingStore(str(tmp_path / "store.db"))
    rows: dict[str, str] = {}

    async def row_of(grants: SharedGrants, key: str) -> str:
        """Write the row of a client, delete it from the store, and return its content."""
        await grants.add(ClientState(key), ["Bash"])
        rows[key] = store.name
        row_value = await store.get(rows[key])
        assert row_value is not None
        await store.delete(rows[key])
        return row_value.value

    bobs_row = await row_of(grants_in(store), "token:bob")
    others_row = await row_of(grants_in(store, OTHER_KEY), "token:ada")
    expired_row = await row_of(grants_in(store, seconds=1e-9), "token:ada")
    for invalid_row in (bobs_row, others_row, expired_row, '["Bash"]', ""):
        await store.put(rows["token:ada"], invalid_row)
        assert await rules_of(grants_in(store)) == []
    await grants_in(store).add(ada(), ["Edit(/a)"])
    assert await rules_of(grants_in(store)) == ["Edit(/a)"]


@pytest.mark.requirement("store.grants-keys")
async def test_rules_are_resealed_with_the_first_key_so_that_the_old_one_can_be_removed(store: Store) -> None:
    await grants_in(store).add(ada(), ["Edit(/a)"])
    assert await rules_of(grants_in(store, OTHER_KEY)) == []
    assert await rules_of(grants_in(store, OTHER_KEY, KEY)) == ["Edit(/a)"]
    assert await rules_of(grants_in(store, OTHER_KEY)) == ["Edit(/a)"]
    assert await rules_of(grants_in(store, KEY)) == []


@pytest.mark.requirement("store.grants")
async def test_while_the_store_is_away_there_are_no_shared_rules_and_no_failures(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        store = ValkeyStore(server.url, "")
        grants = grants_in(store)
        await grants.add(ada(), ["Edit(/a)"])
        assert await rules_of(grants) == ["Edit(/a)"]
        server.stop()
        assert await rules_of(grants) == []
        await grants.add(ada(), ["Edit(/b)"])
        await store.aclose()
