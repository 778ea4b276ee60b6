"""Servers behind the target: one that lies at any moment does not disturb the others."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.hostile.any_server.adapters import Answer, Tools, call_named
from tests.hostile.any_server.scene import Scene, add_cases, case, check, excerpt
from tests.hostile.any_server.wire import Connection, Json, accept, decline

GROUP = "proxy"
PEERS = Path(__file__).resolve().parents[2] / "peers"
LIST_WAIT = 60.0
PATIENCE = 5_000
"""Milliseconds that a call to a lying server may take: the unit of `timeout` in the settings of clients and proxies."""
CONTROL = ("\x1b", "\u202e", "\U000e0041")


def honest() -> Json:
    """Return the settings of an upstream that does what it should."""
    return {"command": sys.executable, "args": ["-S", str(PEERS / "plain_upstream.py")]}


def liar(*deeds: str) -> Json:
    """Return the settings of an upstream that does these deeds (`tests/peers/lying_upstream.py`)."""
    program = str(PEERS / "lying_upstream.py")
    return {"command": sys.executable, "args": ["-I", "-S", program, *deeds], "timeout": PATIENCE}


async def tools_of(client: Connection) -> Tools:
    """List the tools until those of the honest server are there: a proxy may add them after its first answer."""
    deadline = time.monotonic() + LIST_WAIT
    while True:
        answer = await client.request("tools/list", wait=LIST_WAIT)
        check("result" in answer, f"the list is an error: {str(answer.get('error'))[:120]}")
        tools = Tools(answer["result"]["tools"])
        if any(name.startswith("good") for name in tools.by_name) or time.monotonic() > deadline:
            return tools
        await asyncio.sleep(0.2)


async def echo(client: Connection, tools: Tools, alias: str) -> Answer:
    """Call the tool `echo` of an upstream."""
    names = [name for name in tools.by_name if name.startswith(alias) and name.endswith("echo")]
    check(names, f"the tool of {alias} is not listed")
    return await call_named(client, names[0], {"text": "hello"}, 20)


async def check_beside(scene: Scene, deeds: Sequence[str]) -> None:
    """Check that the honest server is listed and works, and that a call to each lying one ends."""
    assert scene.start is not None
    liars = {f"bad{number}": liar(deed) for number, deed in enumerate(deeds)}
    async with scene.start({**liars, "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await _check_good(client, tools, "before")
        for alias, deed in zip(liars, deeds, strict=True):
            if any(name.startswith(alias) and name.endswith("echo") for name in tools.by_name):
                answer = await echo(client, tools, alias)
                check("Traceback" not in answer.text, f"{deed}: a program error is shown: {excerpt(answer)}")
            await _check_good(client, tools, f"after {deed}")


async def _check_good(client: Connection, tools: Tools, moment: str) -> None:
    answer = await echo(client, tools, "good")
    check(answer.text == "hello", f"the honest server fails, {moment}: {excerpt(answer)}")


add_cases(
    GROUP,
    check_beside,
    [
        ("beside", "an upstream that exits while it starts", ["exit@start", "exit@initialize"]),
        ("beside", "an endless list", ["pages@list"]),
        ("beside", "lists of the wrong shape", ["null@list", "odd@list"]),
        ("beside", "lines that are not messages, and a flood of log messages", ["garbage", "flood:log/5000"]),
        ("beside", "an upstream that exits or closes its output during a call", ["exit", "close"]),
        ("beside", "a response with the wrong id, and two responses", ["wrong-id", "twice"]),
        ("beside", "results of the wrong shape, and with 100,000 levels of nesting", ["odd-result", "deep"]),
    ],
    "upstream",
)


@case(GROUP, "beside hung", "an upstream that hangs while it starts, or while it lists its tools", "upstream")
async def _(scene: Scene) -> None:
    # Some proxies give no prefix to the tools of a single server.
    seconds_alone = await _seconds_until_listed(scene, {"other": honest()})
    seconds_beside_hung = await _seconds_until_listed(
        scene, {"bad0": liar("hang@initialize"), "bad1": liar("hang@list")}
    )
    # Twice the time, because the machine may be busy, plus what a proxy may wait for a slow server.
    limit = 2 * seconds_alone + 8
    check(
        seconds_beside_hung <= limit,
        f"handshake and list take {seconds_beside_hung:.0f} s, and {seconds_alone:.0f} s without the hung servers",
    )


async def _seconds_until_listed(scene: Scene, liars: Json) -> float:
    """Return the seconds until the tools are listed, next to these servers."""
    assert scene.start is not None
    async with scene.start({**liars, "good": honest()}) as client:
        began = time.monotonic()
        await client.greet()
        tools = await tools_of(client)
        seconds = time.monotonic() - began
        await _check_good(client, tools, "beside")
        return seconds


@case(GROUP, "shown", "names and descriptions of tools bring no control characters to the client", "upstream")
async def _(scene: Scene) -> None:
    assert scene.start is not None
    async with scene.start({"bad": liar("control@list"), "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await _check_good(client, tools, "beside")
        names = [name for name in tools.by_name if any(character in name for character in CONTROL)]
        check(not names, f"a name contains control characters: {names[:1]!r}")
        names_with_control_characters = [
            n for n, tool in tools.by_name.items() if any(c in str(tool.get("description")) for c in CONTROL)
        ]
        check(
            not names_with_control_characters,
            f"{len(names_with_control_characters)} descriptions contain control characters",
        )


@case(GROUP, "questions", "an upstream's question arrives, and the answer comes back", "upstream")
async def _(scene: Scene) -> None:
    answer = await _answer_of_asking_upstream(scene)
    check(
        "never" not in answer.text and "decline" in answer.everything, f"the answer did not reach it: {excerpt(answer)}"
    )


@case(GROUP, "questions named", "an upstream's question names the upstream", "upstream")
async def _(scene: Scene) -> None:
    questions: list[str] = []
    await _answer_of_asking_upstream(scene, questions)
    check(questions, "nobody was asked")
    check(any("bad" in question for question in questions), f"it reads {questions[-1][:100]!r}")


async def _answer_of_asking_upstream(scene: Scene, questions: list[str] | None = None) -> Answer:
    assert scene.start is not None
    async with scene.start({"bad": liar("ask:elicitation/create"), "good": honest()}) as client:
        await client.greet()

        def answer(question: Json) -> Json | None:
            # Say yes to the call itself, and no to the lying upstream's question.
            return decline(question) if "password" in str(question["params"].get("message")) else accept(question)

        client.person.answer = answer
        tools = await tools_of(client)
        result = await echo(client, tools, "bad")
        if questions is not None:
            questions += [message for message in client.person.messages if "password" in message]
        return result


@case(GROUP, "not offered", "a client gets no requests for capabilities that it did not declare", "upstream")
async def _(scene: Scene) -> None:
    assert scene.start is not None
    async with scene.start({"bad": liar("ask:sampling/createMessage"), "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await echo(client, tools, "bad")
        check("sampling/createMessage" not in client.methods, "it received a request for an undeclared capability")
        await _check_good(client, tools, "after")
