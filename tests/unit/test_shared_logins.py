"""Logins in a store that replicas share: what is written there, by which keys it is opened, who has the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
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
async def opened(tmp_path: Path) -> AsyncGenerator[Opener]:
    """Opens the logins of one more replica with these keys."""
    made: list[SqliteStore] = []

    def open_logins(*keys: bytes) -> SharedLogins:
        made.append(SqliteStore(str(tmp_path / "store.db")))
        return SharedLogins(Replica("one-1", made[-1], keys))

    yield open_logins
    for store in made:
        await store.aclose()


@asynccontextmanager
async def running(logins: SharedLogins) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(logins.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("login.replicas")
async def test_a_login_is_read_listed_and_removed_by_another_replica_and_no_secret_stands_in_the_store(
    opened: Opener, tmp_path: Path
) -> None:
    one, other = opened(OLD), opened(OLD)
    ann = replace(LOGIN, principal="ann")
    assert await one.read(*KEY) is await one.stamp(*KEY) is None
    for login in (LOGIN, ann):
        assert await one.write(login) == login
    assert await other.read(*KEY) == LOGIN
    assert {each.principal for each in await other.all() if not isinstance(each, TokenStoreError)} == {"", "ann"}
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert key_of(*KEY).encode() in kept
    assert not [secret for secret in (*SECRETS, LOGIN.resource, LOGIN.issuer) if secret.encode() in kept]
    assert await other.remove(*KEY)
    assert not await one.remove(*KEY)
    assert await one.read(*KEY) is None
    assert await one.all() == [ann]


@pytest.mark.requirement("login.replicas")
async def test_what_was_made_from_a_login_that_was_replaced_meanwhile_is_not_written(opened: Opener) -> None:
    one, other = opened(OLD), opened(OLD)
    await one.write(LOGIN)
    read = await one.read(*KEY)
    assert read is not None
    await other.write(replace(LOGIN, scopes="newer"))
    assert await one.write(replace(read, scopes="older")) is None
    found = await one.read(*KEY)
    assert found is not None
    assert found.scopes == "newer"
    assert await other.remove(*KEY)
    assert await one.write(replace(found, scopes="ended")) is None
    assert await one.read(*KEY) is None


@pytest.mark.requirement("login.replicas-keys")
async def test_a_login_is_sealed_anew_by_the_first_key_so_that_the_one_before_can_be_left_out(opened: Opener) -> None:
    await opened(OLD).write(LOGIN)
    between, last = opened(NEW, OLD), opened(NEW)
    with pytest.raises(TokenStoreError, match=r"http\.stateKeys"):
        await last.read(*KEY)
    async with running(between):
        with anyio.fail_after(CEILING):
            while any(isinstance(each, TokenStoreError) for each in await last.all()):  # noqa: ASYNC110 - asked for only
                await anyio.sleep(0.05)
    assert await last.read(*KEY) == LOGIN
    with pytest.raises(TokenStoreError):
        await opened(OLD).read(*KEY)


@pytest.mark.requirement("login.replicas-keys")
async def test_a_login_that_stands_under_the_name_of_another_or_is_damaged_is_not_used(
    opened: Opener, tmp_path: Path
) -> None:
    logins = opened(OLD)
    bob = replace(LOGIN, principal="bob")
    for login in (LOGIN, bob):
        await logins.write(login)
    database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    own, other = (f"upstream-logins:{key_of(each.resource, each.principal)}" for each in (LOGIN, bob))
    (sealed,) = database.execute("SELECT value FROM held WHERE key = ?", (own,)).fetchone()
    for value in (sealed, sealed[:-9], "text"):
        database.execute("UPDATE held SET value = ? WHERE key = ?", (value, other))
        with pytest.raises(TokenStoreError, match="damaged"):
            await logins.read(bob.resource, bob.principal)
    database.close()
    assert await logins.remove(bob.resource, bob.principal)


@pytest.mark.requirement("login.replicas-keys")
async def test_what_is_no_text_in_the_store_ends_nothing(tmp_path: Path) -> None:
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
async def test_a_lock_is_had_by_one_at_a_time_and_taken_from_who_is_gone_after_its_time_alone(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(OLD), opened(OLD)
    release = await one.lock(*KEY)
    assert release is not None
    assert await one.lock(*KEY) is await other.lock(*KEY) is None
    await release()
    release = await other.lock(*KEY)
    assert release is not None
    assert await one.lock(*KEY) is None
    monkeypatch.setattr("server.upstreams.login.shared_logins.LOCK_SECONDS", 0.0)
    taken = await one.lock(*KEY)
    assert taken is not None
    await release()  # of who comes back too late: that of the other one stays
    monkeypatch.undo()
    assert await other.lock(*KEY) is None
    await taken()
    assert await other.lock(*KEY) is not None
