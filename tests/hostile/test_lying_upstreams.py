"""Upstreams over stdio that lie at every moment: whoever is beside them goes on, and a call to them is answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import pytest

from tests.hostile.lying import LIAR, Scene, beside, check_told, over_stdio
from tests.waiting import until

pytestmark = pytest.mark.anyio

SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")


@pytest.mark.requirement("proxy.faults.start")
@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        ("exit@start", "ended or did not answer while connecting"),
        ("exit@initialize", "ended or did not answer while connecting"),
        ("exit@list", "ended or did not answer while connecting"),
        ("close@initialize", "ended or did not answer while connecting"),
        ("null@initialize", "not a valid JSON-RPC message"),
        ("odd-greeting@initialize", "shares no protocol revision"),
        ("error@initialize", "answered with error -32042"),
        ("null@list", "not a valid JSON-RPC message"),
        ("long@list", "is larger than"),
        ("deep@list", "not a valid JSON-RPC message"),
        ("error@list", "answered with error -32042"),
    ],
)
async def test_an_upstream_that_fails_at_its_start_is_told_and_spoils_nothing(
    deed: str, problem: str, root: Path, tmp_path: Path
) -> None:
    async with beside(tmp_path, root, over_stdio(deed)) as scene:
        assert {"good__echo", "read_file"} <= await scene.names()
        report = scene.report()
        assert problem in report.get("problem", report.get("lastError", ""))
        said = await scene.call()
        assert said.startswith("error: The server bad is not available now (state ")
        assert problem in said
        check_told(said)
        await scene.check_others(root)


@pytest.mark.requirement("upstream.first_call")
@pytest.mark.parametrize(
    "deed", ["hang@start", "hang@initialize", "mute@initialize", "wrong-id@initialize", "hang@list"]
)
async def test_nobody_waits_for_an_upstream_that_hangs_at_its_start(deed: str, root: Path, tmp_path: Path) -> None:
    async with beside(tmp_path, root, over_stdio(deed, timeout=300), wait=2_000) as scene:
        await until(scene.upstream("good").known.is_set)
        # Its limits for the start are a minute away: only the waits of the list and of the call can be over.
        assert {"good__echo", "read_file"} <= await scene.names()
        assert not scene.bad.known.is_set()
        said = await scene.call()
        assert said.startswith("error: The server bad is not available now (state connecting)")
        check_told(said)
        assert scene.report()["state"] == "connecting"
        await scene.check_others(root)


@pytest.mark.requirement("upstream.first_call")
async def test_tools_are_there_though_another_list_of_their_upstream_hangs(root: Path, tmp_path: Path) -> None:
    async with beside(tmp_path, root, over_stdio("mute@prompts"), wait=2_000) as scene:
        assert "bad__echo" in await scene.names()
        assert not scene.bad.known.is_set()
        assert await scene.call(text="hi") == "hi"


LATE = """
import pathlib, runpy, sys, time
sign = pathlib.Path(sys.argv.pop(1))
while not sign.exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs the program of its second argument once the file of its first one is there."""


@pytest.mark.requirement("upstream.first_call")
async def test_a_call_waits_for_a_server_that_is_slow_to_start(root: Path, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    late = {**over_stdio(), "args": ["-c", LATE, str(sign), LIAR]}
    async with beside(tmp_path, root, late, wait=0) as scene, anyio.create_task_group() as calls:
        told: list[str] = []

        async def call() -> None:
            told.append(await scene.call(text="hi"))

        calls.start_soon(call)
        await scene.check_others(root)
        assert "bad__echo" not in await scene.names()
        assert told == []
        sign.touch()
        await until(lambda: told == ["hi"])


@pytest.mark.requirement("upstream.first_call")
async def test_a_call_of_a_server_that_is_known_to_be_down_does_not_wait(root: Path, tmp_path: Path) -> None:
    async with beside(tmp_path, root, over_stdio("exit@start*1", "hang@start"), wait=0) as scene:
        await scene.names()
        await until(scene.bad.tried.is_set)
        # Its second attempt hangs, with a minute to go.
        assert "not available now" in await scene.call()


@pytest.mark.requirement("proxy.faults.start")
@pytest.mark.parametrize(
    ("deed", "limit", "problem"),
    [
        ("hang@initialize", "connectTimeout", "did not connect in time"),
        ("hang@list", "listTimeout", "did not tell its tools in time"),
    ],
)
async def test_an_upstream_that_hangs_at_its_start_is_given_up_in_its_time_and_tried_again(
    deed: str, limit: str, problem: str, root: Path, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    bad = over_stdio(f"{deed}*1", env={"TALE": str(tale)}, **{limit: 700})
    async with beside(tmp_path, root, bad) as scene:
        assert "bad__echo" not in await scene.names()
        assert scene.report()["lastError" if scene.bad.live_session is not None else "problem"].endswith(problem)
        await until(lambda: scene.bad.live_session is not None)
        assert await scene.call(text="back") == "back"
    assert tale.read_text().count("start\n") == 2


@pytest.mark.requirement("proxy.faults.calls")
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("exit", "The connection to the server bad was lost during the call of echo"),
        ("close", "The connection to the server bad was lost during the call of echo"),
        ("null", "not a valid JSON-RPC message"),
        ("deep", "not a valid JSON-RPC message"),
        ("long", "is larger than"),
        ("odd-result", "not the result of a tool"),
    ],
)
async def test_a_call_that_gets_no_answer_fails_at_once_and_says_why(
    deed: str, said: str, root: Path, tmp_path: Path
) -> None:
    async with beside(tmp_path, root, over_stdio(deed)) as scene:
        assert "bad__echo" in await scene.names()
        answer = await scene.call(text="hi")
        assert answer.startswith("error: ")
        assert said in answer
        check_told(answer)
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.calls")
@pytest.mark.parametrize(
    "deeds",
    [
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
        ["flood:progress"],
        ["flood:log@list", "flood:log"],
        ["flood:list@list", "flood:list"],
        ["flood:updated"],
        ["flood:ping"],
        ["flood:question"],
    ],
    ids=lambda deeds: deeds[-1],
)
async def test_an_honest_answer_is_found_among_all_that_a_liar_says(
    deeds: list[str], root: Path, tmp_path: Path
) -> None:
    async with beside(tmp_path, root, over_stdio(*deeds)) as scene:
        assert "bad__echo" in await scene.names()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.check_others, root)
            assert await scene.call(text="the truth") == "the truth"
        assert await scene.call(text="again") == "again"
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.start")
@pytest.mark.parametrize("deed", ["hang", "mute", "wrong-id"])
async def test_a_call_without_an_answer_ends_in_its_time_while_others_go_on(
    deed: str, root: Path, tmp_path: Path
) -> None:
    answers: list[str] = []

    async def call(scene: Scene) -> None:
        answers.append(await scene.call(text="hi"))

    tale = tmp_path / "tale"
    async with beside(tmp_path, root, over_stdio(deed, timeout=3_000, env={"TALE": str(tale)})) as scene:
        assert "bad__echo" in await scene.names()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, scene)
            await until(lambda: "call\n" in tale.read_text())
            await scene.check_others(root)
            assert answers == []
        assert "sent neither a result nor progress" in answers[0]
        assert "mcpServers.bad.timeout" in answers[0]
        check_told(answers[0])
        assert scene.report()["state"] == "connected"


@pytest.mark.requirement("proxy.faults.lists")
@pytest.mark.parametrize("deed", ["pages", "same-page", "many", "long-names", "control", "deep-schemas", "odd"])
async def test_a_list_that_is_too_much_or_no_list_is_cut_to_what_clients_can_read(
    deed: str, root: Path, tmp_path: Path
) -> None:
    async with beside(tmp_path, root, over_stdio(f"{deed}@list")) as scene:
        names = await scene.names()  # the client refuses a list in which one item is wrong
        assert {"good__echo", "bad__echo", "read_file"} <= names
        assert all(SAFE_NAME.fullmatch(name) for name in names)
        assert len(names) < 10_100
        assert await scene.call(text="hi") == "hi"
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.lists")
async def test_an_item_that_no_client_could_read_is_left_out_alone(root: Path, tmp_path: Path) -> None:
    async with beside(tmp_path, root, over_stdio("odd@list")) as scene:
        listed = {tool.name: tool for tool in (await scene.client.list_tools()).tools}
    assert {name for name in listed if name.startswith("bad__")} == {
        "bad__echo",
        "bad__half",
        "bad__schema4",
        "bad__schema7",
    }
    assert listed["bad__half"].input_schema == {"type": "object"}


@pytest.mark.requirement("proxy.faults.lists")
async def test_tools_that_are_others_at_each_listing_are_listed_after_pauses_that_grow(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = anyio.sleep

    async def noting(delay: float) -> None:
        if delay in (0.07, 0.14, 0.28, 0.3):
            pauses.append(delay)
        await sleep(delay)

    monkeypatch.setattr("server.upstreams.connection.anyio.sleep", noting)
    monkeypatch.setattr("server.upstreams.connection.SETTLE_SECONDS", 0.07)
    monkeypatch.setattr("server.upstreams.connection.LONGEST_SETTLE_SECONDS", 0.3)
    async with beside(tmp_path, root, over_stdio("changing@list", "flood:list@list")) as scene:
        assert "bad__echo" in await scene.names()
        await until(lambda: len(pauses) >= 5 and len(scene.heard) >= 3)
        assert any(name.startswith("bad__echo") for name in await scene.names())
        await scene.check_others(root)
    assert pauses[0] == 0.07
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.3


@pytest.mark.requirement("proxy.faults.calls")
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("elicitation/create", {"result": {"action": "cancel"}, "error": None}),
        ("roots/list", {"result": None, "error": -32601}),
        ("sampling/createMessage", {"result": None, "error": -32601}),
    ],
)
async def test_a_question_that_nobody_can_answer_is_refused_at_once(
    method: str, answer: dict[str, object], root: Path, tmp_path: Path
) -> None:
    async with beside(tmp_path, root, over_stdio(f"ask:{method}")) as scene:
        await scene.names()
        said = json.loads(await scene.call())
    if said["error"] is not None:
        said["error"] = said["error"]["code"]
    assert said == answer


@pytest.mark.requirement("proxy.faults.calls")
async def test_questions_outside_of_any_call_are_refused_for_a_client_that_cannot_be_asked(
    root: Path, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    async with beside(tmp_path, root, over_stdio("ask-alone", env={"TALE": str(tale)})) as scene:
        await scene.names()
        await until(lambda: tale.read_text().count("answered ") == 3)
    assert 'answered elicitation/create {"action": "cancel"}' in tale.read_text()
