"""States that replicas seal and open: each is valid once, for its purpose, for a limited time."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from server.settings import SettingsError
from server.settings.server_models import StateKey, StoreSettings
from server.store.replica import Replica, lone_replica, read_replica
from server.store.sealing import SealedStates
from server.store.shared_store import LocalUses, Store, StoreUnavailableError
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from server.transports.configured_secrets import read_state_keys
from tests.settings_cases import refusal
from tests.valkey_servers import ValkeyServer, valkey_server

pytestmark = pytest.mark.anyio

OLD, NEW = b"o" * 32, b"n" * 32
AHEAD = 60.0  # a difference between clocks that is larger than allowed, in seconds


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    store = SqliteStore(str(tmp_path / "store.db"))
    yield store
    await store.aclose()


def sealed_states(
    *secrets: bytes, store: Store | None = None, now: float = 1_000.0, purpose: str = "question"
) -> SealedStates:
    return SealedStates(purpose, 300, Replica("one", store, secrets), clock=lambda: now)


async def opens(states: SealedStates, state: str) -> bool:
    return await states.open(state, "action", "token:ada") is not None


@pytest.mark.requirement("store.keys")
async def test_keys_can_be_rotated_without_losing_a_state(store: Store) -> None:
    await store.start()
    steps = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for before, after in pairwise(steps):
        for sealing, opening in ((before, after), (after, before)):
            state = sealed_states(*sealing, store=store).seal("action", "token:ada")
            assert await opens(sealed_states(*opening, store=store), state)
    assert not await opens(sealed_states(NEW, store=store), sealed_states(OLD, store=store).seal("action", "token:ada"))


@pytest.mark.requirement("store.keys")
async def test_a_state_for_one_purpose_is_invalid_for_another(store: Store) -> None:
    await store.start()
    state = sealed_states(OLD, store=store).seal("action", "token:ada", {"task": 1})
    assert sealed_states(OLD, store=store, purpose="task").read(state, "action", "token:ada") is None
    assert not await opens(sealed_states(OLD, store=store, purpose="relayed request"), state)
    assert await opens(sealed_states(OLD, store=store), state)


@pytest.mark.requirement("store.keys")
async def test_a_state_is_valid_only_for_its_action_and_its_client() -> None:
    states = sealed_states(OLD)
    state = states.seal("action", "token:ada", {"task": 1})
    for action, client in (("other", "token:ada"), ("action", "token:bob"), ("action", "")):
        assert states.read(state, action, client) is None
    assert states.read(state, "action", "token:ada") == {"task": 1}


@pytest.mark.requirement("store.keys")
async def test_a_state_in_another_base64_spelling_is_refused() -> None:
    states = sealed_states(OLD)
    texts = (states.seal("action", "token:ada", {"a": "x" * size}) for size in range(48))
    state = next(text for text in texts if text.endswith("="))
    bare = state.rstrip("=")
    unused_bits = f"{bare[:-1]}{chr(ord(bare[-1]) + 1)}{state[len(bare) :]}"
    variants = [unused_bits, f" {state}", f"{state}\n"]
    assert {urlsafe_b64decode(text) for text in variants} == {urlsafe_b64decode(state)}
    assert [text for text in variants if states.read(text, "action", "token:ada") is not None] == []
    assert states.read(state, "action", "token:ada") is not None


@pytest.mark.requirement("store.keys")
async def test_replicas_without_shared_keys_cannot_open_each_others_states(store: Store) -> None:
    await store.start()
    first, second = (SealedStates("question", 300, Replica(name, store)) for name in ("one", "other"))
    state = first.seal("action", "token:ada")
    assert not await opens(second, state)
    assert await opens(first, state)


@pytest.mark.requirement("store.clocks")
@pytest.mark.parametrize(("ahead", "counts"), [(30.0, True), (-25.0, True), (AHEAD, False)])
async def test_a_small_difference_between_clocks_is_tolerated_and_a_large_one_is_refused(
    ahead: float, counts: bool, store: Store
) -> None:
    await store.start()
    state = sealed_states(OLD, store=store, now=1_000.0 + ahead).seal("action", "token:ada")
    assert await opens(sealed_states(OLD, store=store), state) is counts


@pytest.mark.requirement("store.clocks")
async def test_a_state_expires_by_the_clock_of_every_replica(store: Store) -> None:
    await store.start()
    state = sealed_states(OLD, store=store).seal("action", "token:ada")
    for seconds in (30.0, AHEAD):
        assert not await opens(sealed_states(OLD, store=store, now=1_000.0 + 300 + seconds), state)
    assert await opens(sealed_states(OLD, store=store, now=1_000.0 + 300 + 25), state)


@pytest.mark.requirement("store.claims")
async def test_a_lone_server_knows_each_used_key_for_its_seconds_and_only_in_its_own_generation() -> None:
    now = [0.0]
    uses = LocalUses(clock=lambda: now[0])
    assert await uses.take_once("long", 100.0, uses.generation)
    assert await uses.take_once("short", 1.0, uses.generation)
    now[0] = 99.0
    assert not await uses.take_once("long", 100.0, uses.generation)
    assert await uses.take_once("short", 1.0, uses.generation)
    now[0] = 100.0
    assert await uses.take_once("long", 100.0, uses.generation)
    assert not await uses.take_once("other", 1.0, "another generation")
    assert await uses.take_once("other", 1.0, uses.generation)


@pytest.mark.requirement("store.clocks")
async def test_a_used_state_is_never_valid_again_whatever_the_clock_says() -> None:
    now = [1_000.0]
    replica = Replica("one", None, (OLD,), LocalUses(clock=lambda: now[0]))
    states, late_states = (SealedStates("question", 300, replica, clock=lambda at=at: at) for at in (1_000.0, 1_001.0))
    state = states.seal("action", "token:ada")
    assert await opens(states, state)
    for seconds in (0.0, 299.0, 329.0, 400.0, 3_000.0):
        now[0] = 1_000.0 + seconds
        assert not await opens(late_states, state)


@pytest.mark.requirement("store.forgotten")
async def test_without_a_store_a_state_is_invalid_in_another_process_with_the_same_keys() -> None:
    state = sealed_states(OLD).seal("action", "token:ada")
    assert not await opens(sealed_states(OLD), state)  # each call makes a replica with its own record of used states


@pytest.mark.requirement("store.away")
async def test_states_are_refused_while_the_store_is_away_and_new_ones_are_valid_afterwards(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        store = ValkeyStore(server.url, "")
        await store.start()
        states = sealed_states(OLD, store=store)
        state = states.seal("action", "token:ada")
        server.stop()
        with pytest.raises(StoreUnavailableError) as error:
            await states.open(state, "action", "token:ada")
        assert "Nothing was done." in error.value.message
        assert states.read(state, "action", "token:ada") == {}  # the failed attempt did not use up the state
        server.start()
        assert not await opens(states, state)  # the store was empty after the restart
        assert await opens(states, states.seal("action", "token:ada"))
        await store.aclose()


@asynccontextmanager
async def three_replicas(kind: str, tmp_path: Path) -> AsyncGenerator[list[SealedStates]]:
    """Start three replicas that share a store."""
    server = ValkeyServer(tmp_path)
    if kind == "valkey":
        server.start()
    url = server.url if kind == "valkey" else f"sqlite:{tmp_path / 'store.db'}"
    replicas = [read_replica(StoreSettings(url=url), "", ["k" * 32]) for _ in range(3)]
    assert isinstance(replicas[0].store, ValkeyStore if kind == "valkey" else SqliteStore)
    for replica in replicas:
        await replica.store.start()
    try:
        yield [SealedStates("question", 300, replica) for replica in replicas]
    finally:
        for replica in replicas:
            await replica.store.aclose()
        server.stop()


async def races(replicas: list[SealedStates], rounds: int) -> int:
    """Give an answer to all replicas at once, and return the number of rounds in which it was not accepted once."""
    failures = 0
    for number in range(rounds):
        state = replicas[number % len(replicas)].seal("action", "token:ada")
        results = await asyncio.gather(*(opens(states, state) for states in replicas * 2))
        failures += sum(results) != 1
    return failures


@pytest.mark.requirement("store.once")
@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
async def test_an_answer_sent_to_all_replicas_at_once_counts_once(kind: str, tmp_path: Path) -> None:
    async with three_replicas(kind, tmp_path) as replicas:
        assert await races(replicas, 50) == 0


@pytest.mark.long
@pytest.mark.requirement("store.once")
async def test_each_answer_counts_once_in_ten_thousand_races(tmp_path: Path) -> None:
    async with three_replicas("valkey", tmp_path) as replicas:
        assert await races(replicas, 10_000) == 0


@pytest.mark.requirement("store.keys")
async def test_every_replica_gets_a_unique_name() -> None:
    settings = StoreSettings(replica="web-1")
    names = {read_replica(settings, "", []).name for _ in range(20)}
    assert all(name.startswith("web-1-") for name in names)
    assert len(names | {lone_replica().name for _ in range(20)}) == 40


def refused_keys(*sources: StateKey, **environment: str) -> str:
    with pytest.raises(SettingsError) as error:
        read_state_keys(sources, environment)
    return str(error.value)


@pytest.mark.requirement("store.keys")
def test_keys_are_read_from_files_and_variables_in_order(tmp_path: Path) -> None:
    path = tmp_path / "state.key"
    path.write_text("ü" * 32 + "\n")
    path.chmod(0o600)
    assert read_state_keys([StateKey(env="NEW"), StateKey(file=str(path))], {"NEW": "n" * 32}) == ["n" * 32, "ü" * 32]
    assert read_state_keys([], {}) == []


@pytest.mark.requirement("store.keys")
def test_a_key_that_cannot_be_used_stops_the_start_and_is_not_shown(tmp_path: Path) -> None:
    assert "http.stateKeys[0] needs either file or env" in refused_keys(StateKey())
    assert "'MISSING', which is not set" in refused_keys(StateKey(env="MISSING"))
    assert "cannot be read" in refused_keys(StateKey(file=str(tmp_path / "none")))
    message = refused_keys(StateKey(env="A"), A="s" * 31)
    assert "http.stateKeys[0] is too short for a key: it needs at least 32 characters" in message
    assert "sss" not in message
    message_of_duplicate = refused_keys(StateKey(env="A"), StateKey(env="B"), A="k" * 32, B="k" * 32)
    assert "http.stateKeys[1] is the same key as another one" in message_of_duplicate
    public_file = tmp_path / "state.key"
    public_file.write_text("k" * 32)
    public_file.chmod(0o644)
    assert "chmod 600" in refused_keys(StateKey(file=str(public_file)))


@pytest.mark.requirement("store.away")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:store.db", "'store.db' is not an absolute path"),
        ("valkey://host:99999/0", "the port is out of range"),
    ],
)
def test_an_impossible_store_address_stops_the_start(url: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_replica(StoreSettings(url=url), "", [])
    assert message in str(error.value)


@pytest.mark.requirement("store.password")
def test_a_store_address_with_a_password_is_refused_and_not_shown(tmp_path: Path) -> None:
    settings = {"store": {"url": "valkey://user:hunter2@host/0"}}
    message = refusal(tmp_path / "settings.json", settings, {"HOME": str(tmp_path)})
    assert "store.url is a string, but must be" in message
    assert "hunter2" not in message
