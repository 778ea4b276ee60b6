"""Servers behind the target: one that lies at any moment spoils nothing of what lies beside it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.hostile.any_server.adapters import Answer, Tools, call_named
from tests.hostile.any_server.scene import Scene, case, check, rows, shown
from tests.hostile.any_server.wire import Connection, Json, accept, decline

GROUP = "proxy"
PEERS = Path(__file__).resolve().parents[2] / "peers"
LIST_WAIT = 60.0
PATIENCE = 5_000
"""Milliseconds that a call of a lying server may take, in the form in which clients and proxies take it."""
CONTROL = ("\x1b", "\u202e", "\U000e0041")


def honest() -> Json:
    """An upstream that does what it should."""
    return {"command": sys.executable, "args": ["-S", str(PEERS / "plain_upstream.py")]}


def liar(*deeds: str) -> Json:
    """An upstream that does these deeds (`tests/peers/lying_upstream.py`)."""
    program = str(PEERS / "lying_upstream.py")
    return {"command": sys.executable, "args": ["-I", "-S", program, *deeds], "timeout": PATIENCE}


async def tools_of(client: Connection) -> Tools:
    """What is listed once the honest server is there: a proxy may list at once, and tell later what has come."""
    until = time.monotonic() + LIST_WAIT
    while True:
        answer = await client.request("tools/list", wait=LIST_WAIT)
        check("result" in answer, f"the list is an error: {str(answer.get('error'))[:120]}")
        tools = Tools(answer["result"]["tools"])
        if any(name.startswith("good") for name in tools.listed) or time.monotonic() > until:
            return tools
        await asyncio.sleep(0.2)


async def echo(client: Connection, tools: Tools, alias: str) -> Answer:
    """Call the tool `echo` of an upstream."""
    found = [name for name in tools.listed if name.startswith(alias) and name.endswith("echo")]
    check(found, f"the tool of {alias} is not listed")
    return await call_named(client, found[0], {"text": "hello"}, 20)


async def beside(scene: Scene, deeds: Sequence[str]) -> None:
    """The honest server is listed and called, and a call of each lying one ends."""
    assert scene.start is not None
    liars = {f"bad{number}": liar(deed) for number, deed in enumerate(deeds)}
    async with scene.start({**liars, "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await _good(client, tools, "before")
        for alias, deed in zip(liars, deeds, strict=True):
            if any(name.startswith(alias) and name.endswith("echo") for name in tools.listed):
                said = await echo(client, tools, alias)
                check("Traceback" not in said.text, f"{deed}: a program error is shown: {shown(said)}")
            await _good(client, tools, f"after {deed}")


async def _good(client: Connection, tools: Tools, when: str) -> None:
    answer = await echo(client, tools, "good")
    check(answer.text == "hello", f"the honest server fails, {when}: {shown(answer)}")


rows(
    GROUP,
    beside,
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
    alone = await _until_listed(scene, {"other": honest()})
    beside_hung = await _until_listed(scene, {"bad0": liar("hang@initialize"), "bad1": liar("hang@list")})
    # Twice the time, and what a proxy may wait for a slow server: a busy machine makes both slower.
    most = 2 * alone + 8
    check(beside_hung <= most, f"handshake and list take {beside_hung:.0f} s, alone {alone:.0f} s")


async def _until_listed(scene: Scene, liars: Json) -> float:
    """Seconds until the tools are listed, beside these servers."""
    assert scene.start is not None
    async with scene.start({**liars, "good": honest()}) as client:
        began = time.monotonic()
        await client.greet()
        tools = await tools_of(client)
        waited = time.monotonic() - began
        await _good(client, tools, "beside")
        return waited


@case(GROUP, "shown", "names and descriptions of tools bring no control characters to the client", "upstream")
async def _(scene: Scene) -> None:
    assert scene.start is not None
    async with scene.start({"bad": liar("control@list"), "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await _good(client, tools, "beside")
        names = [name for name in tools.listed if any(character in name for character in CONTROL)]
        check(not names, f"a name holds them: {names[:1]!r}")
        told = [n for n, tool in tools.listed.items() if any(c in str(tool.get("description")) for c in CONTROL)]
        check(not told, f"{len(told)} descriptions hold them")


@case(GROUP, "questions", "an upstream's question arrives, and the answer comes back", "upstream")
async def _(scene: Scene) -> None:
    said = await _asked(scene)
    check("never" not in said.text and "decline" in said.everything, f"the answer did not reach it: {shown(said)}")


@case(GROUP, "questions named", "an upstream's question names the upstream", "upstream")
async def _(scene: Scene) -> None:
    questions: list[str] = []
    await _asked(scene, questions)
    check(questions, "nobody was asked")
    check(any("bad" in question for question in questions), f"it reads {questions[-1][:100]!r}")


async def _asked(scene: Scene, questions: list[str] | None = None) -> Answer:
    assert scene.start is not None
    async with scene.start({"bad": liar("ask:elicitation/create"), "good": honest()}) as client:
        await client.greet()

        def answer(question: Json) -> Json | None:
            # Consent to the call is a yes; the question of the liar itself is a no.
            return decline(question) if "password" in str(question["params"].get("message")) else accept(question)

        client.person.answer = answer
        tools = await tools_of(client)
        said = await echo(client, tools, "bad")
        if questions is not None:
            questions += [words for words in client.person.questions if "password" in words]
        return said


@case(GROUP, "not offered", "a client gets no requests for capabilities that it did not declare", "upstream")
async def _(scene: Scene) -> None:
    assert scene.start is not None
    async with scene.start({"bad": liar("ask:sampling/createMessage"), "good": honest()}) as client:
        await client.greet()
        tools = await tools_of(client)
        await echo(client, tools, "bad")
        check("sampling/createMessage" not in client.heard, "it received a request for an undeclared capability")
        await _good(client, tools, "after")
