"""Questions over replicas that share a store: asked at one, answered at another one, and counted once."""

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
from tests.interaction.replicas.callers import answered, is_done, result_over
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
    with replicas(tmp_path_factory.mktemp("replicas"), root, {}, shares=True) as all_of_them:
        yield all_of_them


async def result_of(url: str, params: Mapping[str, Any], whose: str = "ada", source: str = "127.0.0.1") -> Message:
    """What a call of 2026-07-28 comes to."""
    async with connection(url, source) as wire:
        return await result_over(wire, params, whose)


def writing(file: Path) -> Mapping[str, Any]:
    return {"name": "write_file", "arguments": {"file_path": str(file), "content": "written\n"}}


async def test_ten_of_ten_questions_are_answered_at_another_replica(scene: Replicas, root: Path) -> None:
    urls = [scene.urls[name] for name in NAMES]
    for number in range(10):
        file = root / f"question-{number}.txt"
        asked = await result_of(urls[number % 3], writing(file))
        done = await result_of(urls[(number + 1 + number % 2) % 3], answered(writing(file), asked))
        assert is_done(done), done
        assert file.read_text() == "written\n"


async def test_questions_and_answers_find_their_way_through_the_balancer(scene: Replicas, root: Path) -> None:
    for number in range(10):
        file = root / f"balanced-{number}.txt"
        # A client that goes from one network to another.
        first, second = f"127.0.0.{number + 1}", f"127.0.1.{number + 1}"
        asked = await result_of(scene.url, writing(file), source=first)
        done = await result_of(scene.url, answered(writing(file), asked), source=second)
        assert is_done(done), done
        assert file.read_text() == "written\n"


async def test_each_round_of_a_question_asks_the_store_once(scene: Replicas, root: Path) -> None:
    assert scene.store is not None
    urls, params = list(scene.urls.values()), writing(root / "counted.txt")
    for url in urls[:2]:
        await result_of(url, params)  # with its first question a replica learns the generation of the store
    before = times_asked(scene.store)
    asked = await result_of(urls[0], params)
    between = times_asked(scene.store)
    assert is_done(await result_of(urls[1], answered(params, asked)))
    after = times_asked(scene.store)
    # For what the user has allowed at another replica.
    assert between - before == Counter(get=1)
    # That nobody has spent the answer; the script of it has a GET of its own.
    assert after - between == Counter(eval=1, get=1)


def times_asked(store: ValkeyServer) -> Counter[str]:
    """How often the store was asked by command or script."""
    told = store.command("INFO", "commandstats").decode()
    return Counter({name: int(count) for name, count in re.findall(r"cmdstat_(get|eval|evalsha):calls=(\d+)", told)})


@pytest.mark.parametrize("races", RACES)
@pytest.mark.timeout(3_000)
async def test_an_answer_that_reaches_all_replicas_at_once_counts_once(scene: Replicas, root: Path, races: int) -> None:
    for number in range(races):
        file = root / "raced.txt"
        file.unlink(missing_ok=True)
        again = answered(writing(file), await result_of(scene.urls[NAMES[number % 3]], writing(file)))
        async with asyncio.timeout(CEILING):
            results = await asyncio.gather(*(result_of(url, again) for url in scene.urls.values()))
        assert [is_done(result) for result in results].count(True) == 1, results


async def test_while_the_store_is_away_answers_are_refused_and_the_rest_goes_on(scene: Replicas, root: Path) -> None:
    assert scene.store is not None
    file, used = root / "away.txt", root / "used.txt"
    asked = answered(writing(file), await result_of(scene.urls["r1"], writing(file)))
    spent = answered(writing(used), await result_of(scene.urls["r1"], writing(used)))
    assert is_done(await result_of(scene.urls["r2"], spent))
    used.unlink()
    await anyio.to_thread.run_sync(scene.store.stop)
    try:
        for url in scene.urls.values():
            refused = await result_of(url, asked)
            assert refused["isError"], refused
            assert "nothing was done" in refused["content"][0]["text"].lower()
            read = await result_of(url, {"name": "list_directory", "arguments": {"path": str(root)}})
            assert is_done(read), read
        assert not file.exists()
    finally:
        await anyio.to_thread.run_sync(scene.store.start)
    # What has counted before has counted.
    assert not is_done(await result_of(scene.urls["r3"], spent))
    assert not used.exists()
    # What is asked before a replica knows that the store was away is asked again.
    async with asyncio.timeout(CEILING):
        while not is_done(await answer_elsewhere(scene, file)):
            assert not file.exists()
    assert file.exists()


async def answer_elsewhere(scene: Replicas, file: Path) -> Message:
    """What comes of writing a file that is asked about at one replica, with the answer at another one."""
    asked = await result_of(scene.urls["r2"], writing(file))
    return await result_of(scene.urls["r3"], answered(writing(file), asked))


async def message_of(url: str, name: str, **arguments: object) -> str:
    """What a tool says, with a yes where it asks."""
    params = {"name": name, "arguments": arguments}
    result = await result_of(url, params)
    if result["resultType"] == "input_required":
        result = await result_of(url, answered(params, result))
    return str(result["content"][0]["text"])


@pytest.mark.requirement("store.elsewhere")
async def test_a_job_is_told_of_by_its_replica_and_named_with_it_by_the_others(scene: Replicas) -> None:
    here, there, _ = scene.urls.values()
    said = await message_of(here, "run_shell_command", command="sleep 600", is_background=True)
    found = re.search(r"bg_[0-9a-f]{8}@(\S+)", said)
    assert found is not None, said
    job, replica = found[0], found[1]
    for tool in ("read_background_output", "stop_background_job"):
        refused = await message_of(there, tool, job_id=job)
        assert f"runs on replica '{replica}'" in refused
        assert "Nothing was done" in refused
    assert "was ended" in await message_of(here, "stop_background_job", job_id=job)
