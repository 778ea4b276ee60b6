"""Upstreams over stdio that lie at every stage: calls to them are answered, and everything else goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import pytest

from tests.hostile.lying import (
    FLOODS,
    LIAR,
    Scene,
    all_over_stdio,
    by_alias,
    check_message,
    over_stdio,
    scene_with,
    scene_with_all,
    with_flood_counts,
)
from tests.tables import all_cases
from tests.variants import one_in
from tests.waiting import CEILING, pause, until

pytestmark = pytest.mark.anyio

SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")


FAILING_STARTS = {
    "exit@start": "ended or did not answer during the connection attempt",
    "exit@initialize": "ended or did not answer during the connection attempt",
    "exit@list": "ended or did not answer during the connection attempt",
    "close@initialize": "ended or did not answer during the connection attempt",
    "null@initialize": "not valid JSON-RPC",
    "odd-greeting@initialize": "has no protocol revision",
    "error@initialize": "with error -32042",
    "null@list": "not valid JSON-RPC",
    "empty@list": "not valid JSON-RPC",
    "long@list": "is larger than",
    "deep@list": "not valid JSON-RPC",
    "error@list": "with error -32042",
}


@pytest.mark.requirement("proxy.faults.start")
async def test_an_upstream_that_fails_at_its_start_is_reported_and_affects_nothing_else(
    root: Path, tmp_path: Path
) -> None:
    async with scene_with_all(tmp_path, root, all_over_stdio(FAILING_STARTS)) as scene:
        assert {"good__echo", "read_file"} <= await scene.names()
        with all_cases() as case:
            for alias, (deed, problem) in by_alias(FAILING_STARTS.items()).items():
                with case(deed):
                    report = scene.report(alias)
                    assert problem in report.get("problem", report.get("lastError", ""))
                    answer = await scene.call(f"{alias}__echo")
                    assert answer.startswith(f"error: The server {alias} is unavailable (state ")
                    assert problem in answer
                    check_message(answer)
        await scene.check_others(root)


HANGING_STARTS = ("hang@start", "hang@initialize", "mute@initialize", "wrong-id@initialize", "hang@list")


@pytest.mark.requirement("upstream.first_call")
async def test_nobody_waits_for_an_upstream_that_hangs_at_its_start(root: Path, tmp_path: Path) -> None:
    liars = {alias: over_stdio(deed, timeout=300) for alias, deed in by_alias(HANGING_STARTS).items()}
    async with scene_with_all(tmp_path, root, liars, wait=200) as scene:
        await until(scene.upstream("good").known.is_set)
        # The limits for the start are a minute, so only the waits of the list and of the call can have ended.
        assert {"good__echo", "read_file"} <= await scene.names()
        with all_cases() as case:
            for alias, deed in by_alias(HANGING_STARTS).items():
                with case(deed):
                    assert not scene.upstream(alias).known.is_set()
                    answer = await scene.call(f"{alias}__echo")
                    assert answer.startswith(f"error: The server {alias} is unavailable (state connecting)")
                    check_message(answer)
                    assert scene.report(alias)["state"] == "connecting"
        await scene.check_others(root)


@pytest.mark.requirement("upstream.first_call")
async def test_tools_are_listed_even_if_another_list_of_their_upstream_hangs(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio("mute@prompts"), wait=500) as scene:
        with anyio.fail_after(CEILING):
            while "bad__echo" not in await scene.names():
                await pause()
        assert not scene.bad.known.is_set()
        assert await scene.call(text="hi") == "hi"


LATE = """
import pathlib, runpy, sys, time
sign = pathlib.Path(sys.argv.pop(1))
while not sign.exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs the program named by its second argument as soon as the file named by its first argument exists."""


@pytest.mark.requirement("upstream.first_call")
async def test_a_call_waits_for_a_server_that_is_slow_to_start(root: Path, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    slow_server = {**over_stdio(), "args": ["-c", LATE, str(sign), LIAR]}
    async with scene_with(tmp_path, root, slow_server, wait=0) as scene, anyio.create_task_group() as calls:
        answers: list[str] = []

        async def call() -> None:
            answers.append(await scene.call(text="hi"))

        calls.start_soon(call)
        await scene.check_others(root)
        assert "bad__echo" not in await scene.names()
        assert answers == []
        sign.touch()
        await until(lambda: answers == ["hi"])


@pytest.mark.requirement("upstream.first_call")
async def test_a_call_to_a_server_that_is_known_to_be_down_does_not_wait(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio("exit@start*1", "hang@start"), wait=0) as scene:
        await scene.names()
        await until(scene.bad.tried.is_set)
        # The second attempt hangs and may take a minute.
        assert "unavailable" in await scene.call()


@pytest.mark.requirement("proxy.faults.start")
@pytest.mark.parametrize(
    ("deed", "limit", "problem"),
    [
        ("hang@initialize", "connectTimeout", "did not connect in time"),
        ("hang@list", "listTimeout", "did not list its tools in time"),
    ],
)
async def test_an_upstream_that_hangs_at_its_start_is_given_up_in_time_and_tried_again(
    deed: str, limit: str, problem: str, root: Path, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    bad = over_stdio(f"{deed}*1", env={"TALE": str(tale)}, **{limit: 700})
    async with scene_with(tmp_path, root, bad) as scene:
        assert "bad__echo" not in await scene.names()
        assert scene.report()["lastError" if scene.bad.live_session is not None else "problem"].endswith(problem)
        await until(lambda: scene.bad.live_session is not None)
        assert await scene.call(text="back") == "back"
    assert tale.read_text().count("start\n") == 2


LOST = "The connection to the server {alias} was lost during the call to echo"
FAILING_CALLS = {
    "exit": LOST,
    "close": LOST,
    "null": "not valid JSON-RPC",
    "empty": "not valid JSON-RPC",
    "deep": "not valid JSON-RPC",
    "long": "is larger than",
    "odd-result": "not the result of a tool",
}


@pytest.mark.requirement("proxy.faults.calls")
async def test_a_call_that_gets_no_answer_fails_at_once_and_says_why(root: Path, tmp_path: Path) -> None:
    async with scene_with_all(tmp_path, root, all_over_stdio(FAILING_CALLS)) as scene:
        names = await scene.names()
        with all_cases() as case:
            for alias, (deed, cause) in by_alias(FAILING_CALLS.items()).items():
                with case(deed):
                    assert f"{alias}__echo" in names
                    answer = await scene.call(f"{alias}__echo", text="hi")
                    assert answer.startswith("error: ")
                    assert cause.format(alias=alias) in answer
                    check_message(answer)
                    await scene.check_others(root)


HONEST = [
    ["garbage@initialize", "garbage@list", "garbage"],
    ["strange@initialize", "strange@list", "strange"],
    ["drip@initialize", "drip@list", "drip"],
    ["text-id@initialize", "text-id@list", "text-id"],
    ["twice@initialize", "twice@list", "twice"],
    ["fraction-id@initialize", "fraction-id@list", "fraction-id"],
    ["together@initialize", "together@list", "together"],
    ["odd-capabilities@initialize"],
    ["ask-odd@initialize", "ask-odd@list", "ask-odd"],
    ["ask-alone"],
    ["structured"],
]


@pytest.mark.requirement("proxy.faults.calls")
async def test_an_honest_answer_is_found_among_the_other_messages_of_a_liar(root: Path, tmp_path: Path) -> None:
    async with scene_with_all(tmp_path, root, all_over_stdio(HONEST)) as scene:
        names = await scene.names()
        with all_cases() as case:
            for alias, deeds in by_alias(HONEST).items():
                with case(deeds):
                    assert f"{alias}__echo" in names
                    assert await scene.call(f"{alias}__echo", text="the truth") == "the truth"
                    assert await scene.call(f"{alias}__echo", text="again") == "again"
                    await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.calls")
@pytest.mark.parametrize("count", FLOODS)
@pytest.mark.parametrize(
    "deeds",
    one_in(
        3,
        [
            ["flood:progress"],
            ["flood:log@list", "flood:log"],
            ["flood:list@list", "flood:list"],
            ["flood:updated"],
            ["flood:ping"],
            ["flood:question"],
        ],
    ),
    ids=lambda deeds: deeds[-1],
)
async def test_an_honest_answer_is_found_in_a_flood(deeds: list[str], count: int, root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio(*with_flood_counts(deeds, count))) as scene:
        assert "bad__echo" in await scene.names()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.check_others, root)
            assert await scene.call(text="the truth") == "the truth"
        assert await scene.call(text="again") == "again"
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.start")
async def test_a_call_without_an_answer_times_out_while_others_go_on(root: Path, tmp_path: Path) -> None:
    silent_liars = by_alias(("hang", "mute", "wrong-id"))
    answers: dict[str, str] = {}

    async def call(scene: Scene, alias: str) -> None:
        answers[alias] = await scene.call(f"{alias}__echo", text="hi")

    tale = tmp_path / "tale"
    liars = {alias: over_stdio(deed, timeout=1_500, env={"TALE": str(tale)}) for alias, deed in silent_liars.items()}
    async with scene_with_all(tmp_path, root, liars) as scene:
        assert {f"{alias}__echo" for alias in silent_liars} <= await scene.names()
        async with anyio.create_task_group() as tasks:
            for alias in silent_liars:
                tasks.start_soon(call, scene, alias)
            await until(lambda: tale.read_text().count("call\n") == len(silent_liars))
            await scene.check_others(root)
            assert answers == {}
        with all_cases() as case:
            for alias, deed in silent_liars.items():
                with case(deed):
                    assert "sent neither a result nor progress" in answers[alias]
                    assert f"mcpServers.{alias}.timeout" in answers[alias]
                    check_message(answers[alias])
                    assert scene.report(alias)["state"] == "connected"


INVALID_LISTS = ("pages", "same-page", "long-names", "control", "deep-schemas", "odd")


@pytest.mark.requirement("proxy.faults.lists")
async def test_an_invalid_list_is_reduced_to_what_clients_can_read(root: Path, tmp_path: Path) -> None:
    async with scene_with_all(tmp_path, root, all_over_stdio(f"{deed}@list" for deed in INVALID_LISTS)) as scene:
        names = await scene.names()  # the client refuses a list with an invalid item
        assert {"good__echo", "read_file"} <= names
        assert all(SAFE_NAME.fullmatch(name) for name in names)
        with all_cases() as case:
            for alias, deed in by_alias(INVALID_LISTS).items():
                with case(deed):
                    assert f"{alias}__echo" in names
                    assert await scene.call(f"{alias}__echo", text="hi") == "hi"
        await scene.check_others(root)


@pytest.mark.long
@pytest.mark.requirement("proxy.faults.lists")
async def test_a_list_that_is_too_long_is_cut_to_what_clients_can_read(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio("many@list")) as scene:
        names = await scene.names()
        assert {"good__echo", "bad__echo", "read_file"} <= names
        assert len(names) < 10_100
        assert await scene.call(text="hi") == "hi"
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.lists")
async def test_only_the_items_that_no_client_could_read_are_left_out(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio("odd@list")) as scene:
        tools = {tool.name: tool for tool in (await scene.client.list_tools()).tools}
    assert {name for name in tools if name.startswith("bad__")} == {
        "bad__echo",
        "bad__half",
        "bad__schema4",
        "bad__schema6",
        "bad__schema7",
        "bad__words",
    }
    assert tools["bad__half"].input_schema == tools["bad__schema6"].input_schema == {"type": "object"}
    assert tools["bad__words"].model_dump(exclude_unset=True).keys() == {"name", "input_schema", "meta"}


@pytest.mark.requirement("proxy.faults.lists")
async def test_tools_that_change_with_each_listing_are_listed_after_growing_pauses(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = anyio.sleep

    async def record_pause(delay: float) -> None:
        if delay in (0.07, 0.14, 0.28, 0.3):
            pauses.append(delay)
        await sleep(delay)

    monkeypatch.setattr("server.upstreams.connections.connection.anyio.sleep", record_pause)
    monkeypatch.setattr("server.upstreams.connections.connection.SETTLE_SECONDS", 0.07)
    monkeypatch.setattr("server.upstreams.connections.connection.LONGEST_SETTLE_SECONDS", 0.3)
    async with scene_with(tmp_path, root, over_stdio("changing@list", "flood:list@list")) as scene:
        assert "bad__echo" in await scene.names()
        await until(lambda: len(pauses) >= 5 and len(scene.notifications) >= 3)
        assert any(name.startswith("bad__echo") for name in await scene.names())
        await scene.check_others(root)
    assert pauses[0] == 0.07
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.3


REFUSED_QUESTIONS: dict[str, dict[str, object]] = {
    "elicitation/create": {"result": {"action": "cancel"}, "error": None},
    "roots/list": {"result": {"roots": ["ROOT"]}, "error": None},  # the workspace, because the client has no roots
    "sampling/createMessage": {"result": None, "error": -32601},
}


@pytest.mark.requirement("proxy.faults.calls")
async def test_a_question_that_nobody_can_answer_is_refused_at_once(root: Path, tmp_path: Path) -> None:
    liars = all_over_stdio(f"ask:{method}" for method in REFUSED_QUESTIONS)
    async with scene_with_all(tmp_path, root, liars) as scene:
        await scene.names()
        with all_cases() as case:
            for alias, (method, answer) in by_alias(REFUSED_QUESTIONS.items()).items():
                with case(method):
                    reply = json.loads(await scene.call(f"{alias}__echo"))
                    if reply["error"] is not None:
                        reply["error"] = reply["error"]["code"]
                    if method == "roots/list":
                        reply["result"]["roots"] = [
                            "ROOT" if entry["uri"] == root.as_uri() else entry for entry in reply["result"]["roots"]
                        ]
                    assert reply == answer


@pytest.mark.requirement("proxy.faults.calls")
async def test_questions_outside_of_any_call_are_refused_for_a_client_that_cannot_be_asked(
    root: Path, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    async with scene_with(tmp_path, root, over_stdio("ask-alone", env={"TALE": str(tale)})) as scene:
        await scene.names()
        await until(lambda: tale.read_text().count("answered ") == 3)
    assert 'answered elicitation/create {"action": "cancel"}' in tale.read_text()
