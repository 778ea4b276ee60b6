"""Logins in a store that replicas share: what the store contains, which keys open it, and who holds the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from server.store.replica import Replica
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from server.upstreams.login.login_storage import TokenStoreError, key_of
from server.upstreams.login.shared_logins import SharedLogins
from tests.unit.test_token_store import KEY, LOGIN, SECRETS
from tests.valkey_servers import valkey_server
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

OLD, NEW = b"o" * 32, b"n" * 32

Opener = Callable[..., SharedLogins]


@pytest.fixture
async def open_logins(tmp_path: Path) -> AsyncGenerator[Opener]:
    """A function that opens the logins of another replica with the given keys."""
    stores: list[SqliteStore] = []

    def open_replica(*keys: bytes) -> SharedLogins:
        stores.append(SqliteStore(str(tmp_path / "store.db")))
        return SharedLogins(Replica("one-1", stores[-1], keys))

    yield open_replica
    for store in stores:
        await store.aclose()


@asynccontextmanager
async def running(logins: SharedLogins) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(logins.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("login.replicas")
async def test_another_replica_reads_lists_and_removes_a_login_and_the_store_contains_no_secret(
    open_logins: Opener, tmp_path: Path
) -> None:
    first, second = open_logins(OLD), open_logins(OLD)
    ann = replace(LOGIN, principal="ann")
    assert await first.read(*KEY) is await first.stamp(*KEY) is None
    for login in (LOGIN, ann):
        assert await first.write(login) == login
    assert await second.read(*KEY) == LOGIN
    assert {entry.principal for entry in await second.all() if not isinstance(entry, TokenStoreError)} == {"", "ann"}
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert key_of(*KEY).encode() in content
    assert not [secret for secret in (*SECRETS, LOGIN.resource, LOGIN.issuer) if secret.encode() in content]
    assert await second.remove(*KEY)
    assert not await first.remove(*KEY)
    assert await first.read(*KEY) is None
    assert await first.all() == [ann]


@pytest.mark.requirement("login.replicas")
async def test_a_login_derived_from_one_that_was_replaced_meanwhile_is_not_written(open_logins: Opener) -> None:
    first, second = open_logins(OLD), open_logins(OLD)
    await first.write(LOGIN)
    login = await first.read(*KEY)
    assert login is not None
    await second.write(replace(LOGIN, scopes="newer"))
    assert await first.write(replace(login, scopes="older")) is None
    newer_login = await first.read(*KEY)
    assert newer_login is not None
    assert newer_login.scopes == "newer"
    assert await second.remove(*KEY)
    assert await first.write(replace(newer_login, scopes="ended")) is None
    assert await first.read(*KEY) is None


@pytest.mark.requirement("login.replicas-keys")
async def test_a_login_is_resealed_with_the_first_key_so_that_the_old_one_can_be_removed(
    open_logins: Opener,
) -> None:
    await open_logins(OLD).write(LOGIN)
    rotating_logins, new_logins = open_logins(NEW, OLD), open_logins(NEW)
    with pytest.raises(TokenStoreError, match=r"http\.stateKeys"):
        await new_logins.read(*KEY)
    async with running(rotating_logins):
        with anyio.fail_after(CEILING):
            while any(isinstance(entry, TokenStoreError) for entry in await new_logins.all()):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
    assert await new_logins.read(*KEY) == LOGIN
    with pytest.raises(TokenStoreError):
        await open_logins(OLD).read(*KEY)


@pytest.mark.requirement("login.replicas-keys")
async def test_a_login_that_is_stored_under_another_key_or_damaged_is_not_used(
    open_logins: Opener, tmp_path: Path
) -> None:
    logins = open_logins(OLD)
    bob = replace(LOGIN, principal="bob")
    for login in (LOGIN, bob):
        await logins.write(login)
    database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    own_key, bobs_key = (f"upstream-logins:{key_of(login.resource, login.principal)}" for login in (LOGIN, bob))
    (stored_value,) = database.execute("SELECT value FROM held WHERE key = ?", (own_key,)).fetchone()
    for value in (stored_value, stored_value[:-9], "text"):
        database.execute("UPDATE held SET value = ? WHERE key = ?", (value, bobs_key))
        with pytest.raises(TokenStoreError, match="damaged"):
            await logins.read(bob.resource, bob.principal)
    database.close()
    assert await logins.remove(bob.resource, bob.principal)


@pytest.mark.requirement("login.replicas-keys")
async def test_undecodable_values_in_the_store_do_no_harm(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        store = ValkeyStore(server.url, "")
        logins = SharedLogins(Replica("one-1", store, (OLD,)))
        await logins.write(LOGIN)
        for key in ("logins", f"upstream-logins:{key_of(*KEY)}"):
            server.command("SET", f"coretools:{key}", '"\\xff\\xfe"')
        assert await logins.all() == []
        with pytest.raises(TokenStoreError):
            await logins.read(*KEY)
        server.command("FLUSHALL")
        assert await logins.write(LOGIN) == await logins.read(*KEY) == LOGIN
        await store.aclose()


@pytest.mark.requirement("login.replicas-renewal")
async def test_a_lock_has_one_holder_at_a_time_and_can_be_taken_only_after_it_expires(
    open_logins: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_logins(OLD), open_logins(OLD)
    release = await first.lock(*KEY)
    assert release is not None
    assert await first.lock(*KEY) is await second.lock(*KEY) is None
    await release()
    release = await second.lock(*KEY)
    assert release is not None
    assert await first.lock(*KEY) is None
    monkeypatch.setattr("server.upstreams.login.shared_logins.LOCK_SECONDS", 0.0)
    release_of_first = await first.lock(*KEY)
    assert release_of_first is not None
    await release()  # too late: this does not release the lock of the first replica
    monkeypatch.undo()
    assert await second.lock(*KEY) is None
    await release_of_first()
    assert await second.lock(*KEY) is not None


@pytest.mark.requirement("login.issuer")
async def test_the_authorization_server_of_a_client_is_shared_encrypted_and_survives_a_change_of_keys(
    open_logins: Opener, tmp_path: Path
) -> None:
    resource, issuer = "https://up.example/mcp", "https://auth.example"
    first = open_logins(OLD)
    assert await first.issuer_of(resource, "us") is None
    await first.set_issuer(resource, "us", issuer)
    assert await open_logins(OLD).issuer_of(resource, "other") is None
    new_logins = open_logins(NEW)
    async with running(open_logins(NEW, OLD)):  # re-encrypts it, even if nobody logs in meanwhile
        with anyio.fail_after(CEILING):
            while True:
                with suppress(TokenStoreError):
                    assert await new_logins.issuer_of(resource, "us") == issuer
                    break
                await anyio.sleep(0.05)
    with pytest.raises(TokenStoreError, match=r"oauth\.issuer"):
        await first.issuer_of(resource, "us")
    assert await first.all() == []
    assert issuer.encode() not in (tmp_path / "store.db").read_bytes()
