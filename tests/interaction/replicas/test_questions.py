"""Questions of replicas that share a store: one replica asks, another one gets the answer, and it counts only once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.network.wires import connection
from tests.interaction.raw_clients import Message
from tests.interaction.replicas.callers import has_succeeded, result_over, with_answers
from tests.interaction.replicas.scene import NAMES, Replicas, needs_haproxy, needs_redis, replicas
from tests.valkey_servers import ValkeyServer
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.shared_questions"),
    needs_haproxy,
    needs_redis,
]

RACES = [20, pytest.param(10_000, marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace").resolve()


@pytest.fixture(scope="module")
def scene(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Replicas]:
    with replicas(tmp_path_factory.mktemp("replicas"), root, {}, shares=True) as replica_set:
        yield replica_set


async def result_of(url: str, params: Mapping[str, Any], principal: str = "ada", source: str = "127.0.0.1") -> Message:
    """Make a call of 2026-07-28 on a new connection; return its result."""
    async with connection(url, source) as wire:
        return await result_over(wire, params, principal)


def write_call(file: Path) -> Mapping[str, Any]:
    return {"name": "write_file", "arguments": {"file_path": str(file), "content": "written\n"}}


async def test_ten_of_ten_questions_are_answered_at_another_replica(scene: Replicas, root: Path) -> None:
    urls = [scene.urls[name] for name in NAMES]
    for number in range(10):
        file = root / f"question-{number}.txt"
        question = await result_of(urls[number % 3], write_call(file))
        result = await result_of(urls[(number + 1 + number % 2) % 3], with_answers(write_call(file), question))
        assert has_succeeded(result), result
        assert file.read_text() == "written\n"


async def test_questions_and_answers_find_their_way_through_the_balancer(scene: Replicas, root: Path) -> None:
    for number in range(10):
        file = root / f"balanced-{number}.txt"
        # The client's address changes, as if it moved to another network.
        first, second = f"127.0.0.{number + 1}", f"127.0.1.{number + 1}"
        question = await result_of(scene.url, write_call(file), source=first)
        result = await result_of(scene.url, with_answers(write_call(file), question), source=second)
        assert has_succeeded(result), result
        assert file.read_text() == "written\n"


async def test_each_round_of_a_question_asks_the_store_once(scene: Replicas, root: Path) -> None:
    assert scene.store is not None
    urls, params = list(scene.urls.values()), write_call(root / "counted.txt")
    for url in urls[:2]:
        await result_of(url, params)  # with its first question, a replica reads the store's generation
    counts_before = store_calls(scene.store)
    question = await result_of(urls[0], params)
    counts_between = store_calls(scene.store)
    assert has_succeeded(await result_of(urls[1], with_answers(params, question)))
    counts_after = store_calls(scene.store)
    # The GET looks for permissions that the user gave at another replica.
    assert counts_between - counts_before == Counter(get=1)
    # The script checks that the answer is unspent; it contains a GET.
    assert counts_after - counts_between == Counter(eval=1, get=1)


def store_calls(store: ValkeyServer) -> Counter[str]:
    """The number of the store's GET and script calls."""
    stats = store.command("INFO", "commandstats").decode()
    return Counter({name: int(count) for name, count in re.findall(r"cmdstat_(get|eval|evalsha):calls=(\d+)", stats)})


@pytest.mark.parametrize("races", RACES)
@pytest.mark.timeout(3_000)
async def test_an_answer_that_reaches_all_replicas_at_once_counts_once(scene: Replicas, root: Path, races: int) -> None:
    for number in range(races):
        file = root / "raced.txt"
        file.unlink(missing_ok=True)
        answer = with_answers(write_call(file), await result_of(scene.urls[NAMES[number % 3]], write_call(file)))
        async with asyncio.timeout(CEILING):
            results = await asyncio.gather(*(result_of(url, answer) for url in scene.urls.values()))
        assert str(results).count("Created the new file") == 1, results


async def test_while_the_store_is_down_answers_are_refused_and_everything_else_works(
    scene: Replicas, root: Path
) -> None:
    assert scene.store is not None
    file, spent_file = root / "away.txt", root / "used.txt"
    fresh_answer = with_answers(write_call(file), await result_of(scene.urls["r1"], write_call(file)))
    spent_answer = with_answers(write_call(spent_file), await result_of(scene.urls["r1"], write_call(spent_file)))
    assert has_succeeded(await result_of(scene.urls["r2"], spent_answer))
    spent_file.unlink()
    await anyio.to_thread.run_sync(scene.store.stop)
    try:
        for url in scene.urls.values():
            refusal = await result_of(url, fresh_answer)
            assert refusal["isError"], refusal
            assert "nothing was done" in refusal["content"][0]["text"].lower()
            listing = await result_of(url, {"name": "list_directory", "arguments": {"path": str(root)}})
            assert has_succeeded(listing), listing
        assert not file.exists()
    finally:
        await anyio.to_thread.run_sync(scene.store.start)
    # A spent answer stays spent.
    assert not has_succeeded(await result_of(scene.urls["r3"], spent_answer))
    assert not spent_file.exists()
    # A question that was asked before its replica noticed the outage must be asked again.
    async with asyncio.timeout(CEILING):
        while not has_succeeded(await answer_elsewhere(scene, file)):
            assert not file.exists()
    assert file.exists()


async def answer_elsewhere(scene: Replicas, file: Path) -> Message:
    """Write a file: one replica asks, and another one gets the answer. Return the result."""
    question = await result_of(scene.urls["r2"], write_call(file))
    return await result_of(scene.urls["r3"], with_answers(write_call(file), question))


async def message_of(url: str, name: str, **arguments: object) -> str:
    """Call a tool, and accept its question if it asks one; return the text of the result."""
    params = {"name": name, "arguments": arguments}
    result = await result_of(url, params)
    if result["resultType"] == "input_required":
        result = await result_of(url, with_answers(params, result))
    return str(result["content"][0]["text"])


@pytest.mark.requirement("store.elsewhere")
async def test_only_the_replica_of_a_job_controls_it_and_the_others_name_that_replica(scene: Replicas) -> None:
    own_url, other_url, _ = scene.urls.values()
    message = await message_of(own_url, "run_shell_command", command="sleep 600", is_background=True)
    match = re.search(r"bg_[0-9a-f]{8}@(\S+)", message)
    assert match is not None, message
    job, replica = match[0], match[1]
    for tool in ("read_background_output", "stop_background_job"):
        refusal = await message_of(other_url, tool, job_id=job)
        assert f"runs on replica '{replica}'" in refusal
        assert "Nothing was done" in refusal
    assert "was ended" in await message_of(own_url, "stop_background_job", job_id=job)
