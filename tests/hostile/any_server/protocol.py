"""The protocol: what MCP and JSON-RPC require of every server, tested with messages that no polite client sends."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from tests.hostile.any_server.scene import NotApplicableError, Scene, case, check, excerpt
from tests.hostile.any_server.wire import Connection, Json, answer_of, object_at

GROUP = "protocol"
ENDS_WITHIN = 10.0


@case(GROUP, "errors", "an unknown method and an unknown tool are errors")
async def _(scene: Scene) -> None:
    unknown = await scene.connection.request("no/such/method", {})
    check(unknown.get("error", {}).get("code") == -32601, f"an unknown method was answered with {str(unknown)[:120]}")
    answer = await scene.call_named("no_such_tool", {})
    check(answer.is_error, f"an unknown tool is not an error: {excerpt(answer)}")


@case(GROUP, "answers", "`tools/call` with parameters of wrong types is answered")
async def _(scene: Scene) -> None:
    for wrong in (
        '{"name": 5}',
        '{"name": ["x"], "arguments": "x"}',
        '{"arguments": {}}',
        '{"name": "x", "arguments": []}',
    ):
        params = json.loads(wrong)
        future = await scene.connection.begin("tools/call", params)
        answer = await answer_of(future, f"tools/call with {params!r}")
        check("error" in answer or answer["result"].get("isError"), f"{params!r} is not an error")


@case(GROUP, "answers", "request ids come back unchanged")
async def _(scene: Scene) -> None:
    for identity in ("text", "", "1", 2**53 - 1, 0, -5):
        await scene.connection.request("ping", identity=identity, wait=10)
    check(
        not scene.connection.unexpected_answers,
        f"answers to requests that nobody sent: {str(scene.connection.unexpected_answers)[:120]}",
    )


@case(GROUP, "answers", "64 concurrent calls each get their own result", "read")
async def _(scene: Scene) -> None:
    paths = [scene.file(f"{number}.txt", f"content {number};\n") for number in range(64)]
    answers = await asyncio.gather(*(scene.call("read", path=path, wait=120) for path in paths))
    wrong = [number for number, answer in enumerate(answers) if f"content {number};" not in answer.text]
    check(not wrong, f"{len(wrong)} calls got another answer or none")


@case(GROUP, "answers", "unexpected notifications are ignored")
async def _(scene: Scene) -> None:
    notifications: list[tuple[str, Json | None]] = [
        ("notifications/cancelled", {"requestId": 10**9}), ("notifications/cancelled", {"requestId": [1]}),
        ("notifications/cancelled", None), ("notifications/progress", {"progressToken": 5, "progress": "x"}),
        ("no/such/notification", {"a": 1}), ("notifications/initialized", None),
    ]  # fmt: skip
    for method, params in notifications:
        await scene.connection.notify(method, params)
    await scene.connection.send({"id": "of nobody", "result": {}})
    await scene.connection.ping()


INVALID_MESSAGES: list[bytes] = [
    b"Hello!\n", b"\x00\xff\xfe\n", b"{\n", b"[]\n", b"null\n", b"7\n", b"{}\n",
    b'{"jsonrpc": "1.0", "method": "ping", "id": 1}\n',
    b'{"jsonrpc": "2.0", "method": 5, "id": 2}\n', b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}\n', b"\n\n",
    b'{"jsonrpc": "2.0", "method": "ping", "id": 1e400}\n', b'[{"jsonrpc": "2.0", "method": "ping", "id": 3}]\n',
    b'{"jsonrpc": "2.0", "method": "tools/call", "id": 4, "params": {"name": "\\ud800"}}\n',
]  # fmt: skip


@case(GROUP, "answers", "lines that are not messages do not crash the server", "pipes")
async def _(scene: Scene) -> None:
    assert scene.connection.send_bytes is not None
    for line in INVALID_MESSAGES:
        await scene.connection.send_bytes(line)
        await scene.connection.ping()


@case(GROUP, "answers", "a message with 100,000 levels of nesting does not crash the server", "pipes")
async def _(scene: Scene) -> None:
    assert scene.connection.send_bytes is not None
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep_json = opening * 100_000 + b"1" + closing * 100_000
        await scene.connection.send_bytes(
            b'{"jsonrpc":"2.0","id":"deep","method":"ping","params":{"x":%s}}\n' % deep_json
        )
        await scene.connection.ping()


@case(GROUP, "answers", "a request of 10 MB is answered")
async def _(scene: Scene) -> None:
    answer = await scene.connection.request(
        "tools/call", {"name": "no_such_tool", "arguments": {"x": "y" * 10_000_000}}
    )
    check("error" in answer or answer["result"].get("isError"), "it is not an error")


@case(GROUP, "lists", "every listed tool has a unique name and an object schema")
async def _(scene: Scene) -> None:
    tools = (await scene.connection.request("tools/list"))["result"]["tools"]
    names = [tool["name"] for tool in tools]
    check(len(names) == len(set(names)), "a name is listed twice")
    wrong = [tool["name"] for tool in tools if object_at(tool, "inputSchema").get("type") != "object"]
    check(not wrong, f"these tools have a schema that is not of an object: {wrong[:3]}")


@case(GROUP, "output", "standard output carries only protocol messages", "pipes")
async def _(scene: Scene) -> None:
    check(not scene.connection.invalid_lines, f"it also printed {scene.connection.invalid_lines[:2]}")


async def with_new_server(scene: Scene, act: Callable[[Connection], object]) -> None:
    """Run `act` with a client of a server that has just started."""
    if scene.start is None:
        raise NotApplicableError("the runner did not start it")
    async with scene.start(None) as client:
        result = act(client)
        if asyncio.iscoroutine(result):
            await result


@case(GROUP, "handshake", "an unknown revision is answered with a supported one")
async def _(scene: Scene) -> None:
    async def act(client: Connection) -> None:
        greeting = await client.greet(revision="1900-01-01")
        check(str(greeting.get("protocolVersion")) in REVISIONS, f"it chose {greeting.get('protocolVersion')!r}")

    await with_new_server(scene, act)


REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@case(GROUP, "answers", "requests before the handshake do not crash the server")
async def _(scene: Scene) -> None:
    async def act(client: Connection) -> None:
        for method in ("tools/list", "tools/call", "resources/read"):
            await client.begin(method, {"name": "x", "uri": "x:"})
        await client.greet()
        await client.ping()

    await with_new_server(scene, act)


@case(GROUP, "end", "the server exits at end of input or SIGTERM, even during a call", "pipes")
async def _(scene: Scene) -> None:
    async def act(client: Connection) -> None:
        await client.greet()
        if scene.tools.has("shell"):
            arguments = scene.tools.arguments("shell", command="sleep 60", seconds=120)
            await client.begin("tools/call", {"name": scene.tools.name("shell"), "arguments": arguments})
        await asyncio.sleep(0.3)
        process = client.process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        for ask_again in (True, False):
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDS_WITHIN):
                    await process.wait()
            if ask_again and process.returncode is None:
                process.terminate()
        check(process.returncode is not None, f"it is still running {ENDS_WITHIN:.0f} s later")

    await with_new_server(scene, act)


def post(url: str, body: object, **headers: str) -> int:
    """Post a message as a program other than an MCP client would; return the status."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=10)
    default_headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    try:
        data = body if isinstance(body, bytes) else json.dumps(body)
        connection.request(
            "POST", parts.path or "/", data, {**default_headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        )
        return connection.getresponse().status
    finally:
        connection.close()


HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


@case(GROUP, "origin", "a foreign web page is refused, by its origin and by its host", "http")
async def _(scene: Scene) -> None:
    assert scene.url is not None
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        status = await asyncio.to_thread(post, scene.url, HELLO, **headers)
        check(400 <= status < 500, f"{headers} got status {status}")


@case(GROUP, "http", "invalid messages and unknown sessions are refused", "http")
async def _(scene: Scene) -> None:
    assert scene.url is not None
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for body, headers in ((b"{", {}), (b"\xff" * 100, {}), (b"[" * 100_000, {}), (ping, {"Mcp_Session_Id": "made-up"})):
        status = await asyncio.to_thread(post, scene.url, body, **headers)
        check(400 <= status < 500, f"{str(body)[:30]} got status {status}")
