"""Remote servers that are odd or unreachable: a call arrives exactly once, or fails with its cause in plain words."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import anyio
import pytest

from server.network.outbound_http import proxy_of
from server.upstreams.wire.http_upstream import Event, events_in
from server.upstreams.wire.json_rpc_channel import MAX_TOGETHER
from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.hostile.lying import PATIENT, check_message, scene_with, scene_with_all
from tests.hostile.odd_server import EVENTS, JSON, Answer, Json, OddServer, odd_server
from tests.tables import all_cases, each_of
from tests.unit.web.certificates import authority_for
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

BOM = b"\xef\xbb\xbf"


def entry_of(url: str, **options: Any) -> Json:
    """Return the settings of a remote server."""
    return {"url": url, "type": "http", "trust": True, **PATIENT, **options}


@pytest.mark.requirement("proxy.sessions.lost")
@pytest.mark.parametrize("status", [400, 404])
async def test_a_call_in_a_session_that_the_server_has_lost_is_sent_again_in_a_new_one(
    status: int, root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:
        odd.unknown_status = status
        config = write_config(tmp_path, {"tools": {"builtIn": False}, "mcpServers": {"far": entry_of(odd.url)}})
        command = [sys.executable, *forked(server_arguments(None, config, "--transport", "http", "--port", "0"))]
        with background_server(command, r"serving MCP at (http://\S+?),") as inner:
            bad = {"near": entry_of(odd.url), "chain": entry_of(f"{inner}/mcp")}
            async with scene_with_all(tmp_path, root, bad) as scene:
                await scene.names()
                for number, tool in enumerate(("near__echo", "chain__far__echo")):
                    assert await scene.call(tool, text="before") == "before"
                    odd.session = f"again {number}"
                    assert await scene.call(tool, text="after") == "after"


@pytest.mark.requirement("proxy.sessions.lost")
async def test_a_lost_session_is_noticed_even_if_a_header_contains_the_name_of_this_server(
    root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:
        entry = entry_of(f"{odd.url}?mark=unusable", headers={"X-Client": "coretools-mcp"})
        async with scene_with(tmp_path, root, entry) as scene:
            await scene.names()
            odd.session = "another"
            assert await scene.call(text="after") == "after"


@pytest.mark.requirement("proxy.causes")
async def test_an_error_is_reported_even_if_a_header_contains_the_name_of_a_field(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        odd.override = lambda message, _: (500, {}, b"down") if message["method"] == "tools/call" else None
        entry = entry_of(odd.url, headers={"X-Kind": "message"}, timeout=5_000)
        async with scene_with(tmp_path, root, entry) as scene:
            await scene.names()
            assert 'HTTP status 500, with the [hidden] "down"' in await scene.call()


@pytest.mark.requirement("proxy.causes")
async def test_a_status_that_is_neither_success_nor_error_is_reported(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        odd.override = lambda message, _: (304, JSON, b"") if message["method"] == "tools/call" else None
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert "it answered with HTTP status 304" in await scene.call()


@pytest.mark.requirement("proxy.odd-answers")
@pytest.mark.parametrize("coding", ["", "Identity"])
async def test_an_answer_that_says_that_it_is_not_compressed_is_read(coding: str, root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:

        def override(message: Json, _: dict[str, str]) -> Answer | None:
            body = json.dumps(odd.usual(message)).encode() if message["method"] == "tools/call" else b""
            return (200, {**JSON, "content-encoding": coding}, body) if body else None

        odd.override = override
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert await scene.call(text="plain") == "plain"


@pytest.mark.requirement("proxy.sessions.lost")
async def test_a_call_that_is_refused_alone_is_not_sent_again(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        odd.override = lambda message, _: (400, {}, b"bad arguments") if message["method"] == "tools/call" else None
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert 'HTTP status 400, with the message "bad arguments"' in await scene.call()
            assert odd.count("tools/call") == 1
            assert odd.count("initialize") == 1
            # The next call is refused in every session.
            odd.override = lambda message, _: (404, {}, b"") if message["method"] in ("tools/call", "ping") else None
            assert "no longer knows the session" in await scene.call()
            assert odd.count("tools/call") == 3


def failure(message: Json, text: str) -> bytes:
    error = {"code": -32603, "message": text}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()


@pytest.mark.requirement("proxy.sessions.lost")
@pytest.mark.parametrize("headers", [JSON, EVENTS], ids=["JSON", "events"])
async def test_a_call_whose_error_status_comes_with_an_answer_is_not_sent_again(
    headers: dict[str, str], root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:

        def override(message: Json, _: dict[str, str]) -> Answer | None:
            body = failure(message, "the card was charged") if "id" in message else b""
            body = b"data: " + body if headers is EVENTS else body
            return (404, headers, body) if message["method"] in ("tools/call", "ping") else None

        odd.override = override
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert "the card was charged" in await scene.call()
            # The next answer has no id, and only the ping shows that the server still knows the session.
            odd.override = lambda message, _: (
                (404, {}, b"no") if message["method"] == "tools/call" else override(message, _)
            )
            assert "HTTP status 404" in await scene.call()
    assert (odd.count("tools/call"), odd.count("initialize")) == (2, 1)


@pytest.mark.requirement("proxy.faults.http")
async def test_only_the_first_thousand_events_of_an_error_are_searched_for_an_answer(
    root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            for count, text in ((MAX_TOGETHER - 1, "no card"), (MAX_TOGETHER, "HTTP status 500")):

                def override(message: Json, _: dict[str, str], count: int = count) -> Answer | None:
                    is_call = message["method"] == "tools/call"
                    return (
                        (500, EVENTS, b"data: [\n" * count + b"data: " + failure(message, "no card"))
                        if is_call
                        else None
                    )

                odd.override = override
                assert text in await scene.call()


@pytest.mark.requirement("proxy.sessions.lost")
async def test_all_calls_that_meet_a_lost_session_are_sent_again_in_one_new_session(root: Path, tmp_path: Path) -> None:
    texts: list[str] = []
    with odd_server() as odd:
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene, anyio.create_task_group() as tasks:
            await scene.names()
            odd.session = "another"

            async def call(text: str) -> None:
                texts.append(await scene.call(text=text))

            for number in range(20):
                tasks.start_soon(call, f"call {number}")
    assert sorted(texts) == sorted(f"call {number}" for number in range(20))
    assert odd.count("initialize") == 2


@pytest.mark.requirement("proxy.odd-answers")
async def test_an_answer_goes_to_the_request_whose_id_it_has(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        calls: list[Json] = []
        arrivals = Barrier(2)

        def override(message: Json, _: dict[str, str]) -> Answer | None:
            if message["method"] != "tools/call":
                return None
            calls.append(message)
            arrivals.wait(CEILING)
            other_call, own_call = sorted(calls, key=lambda call: call is message)
            return 200, EVENTS, _event(odd, other_call) + _event(odd, own_call)

        odd.override = override
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene, anyio.create_task_group() as tasks:
            await scene.names()

            async def call(text: str) -> None:
                assert await scene.call(text=text) == text

            for text in ("one", "two"):
                tasks.start_soon(call, text)


@pytest.mark.requirement("proxy.faults.http")
async def test_calls_that_hang_leave_room_for_others_and_their_connections_end_with_them(
    root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:
        odd.keeps_open = lambda body: b"hang" in body and b"tools/call" in body
        endless = {**EVENTS, "content-length": "1000"}
        odd.override = lambda message, _: (200, endless, b"") if "hang" in json.dumps(message.get("params")) else None
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene, anyio.create_task_group() as tasks:
            await scene.names()
            for _ in range(101):
                tasks.start_soon(partial(scene.call, text="hang"))
            await until(lambda: odd.count("tools/call") == 101)
            assert await scene.call(text="hi") == "hi"
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await until(lambda: odd.count("left") == 101)


@pytest.mark.requirement("proxy.faults.http")
async def test_a_faulty_answer_does_not_end_the_session(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odd_server() as odd, caplog.at_level(logging.INFO):
        odd.keeps_open = lambda body: b"redirect" in body
        faults: dict[str, tuple[Answer, str]] = {
            "a length that is none": ((200, {**JSON, "content-length": "x"}, b""), "its answer is not HTTP"),
            "a redirect with an endless body": (
                (307, {**EVENTS, "location": "/elsewhere", "content-length": "1000000000"}, b""),
                "same address",
            ),
            "a redirect to itself": ((307, {"location": "/mcp"}, b""), "same address"),
            "events that are junk": ((200, EVENTS, b"data: [\n\n" * 1_000), "not valid JSON-RPC"),
            "an event of very many lines": ((200, EVENTS, b"data\n" * 1_000_000), "too long"),
        }
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            with all_cases() as case:
                for name, (fault, problem) in faults.items():
                    odd.override = lambda message, _, fault=fault: fault if message["method"] == "tools/call" else None
                    with case(name):
                        answer = await scene.call(text=name)
                        assert problem in answer
                        check_message(answer)
            odd.override = lambda _message, _headers: None
            assert await scene.call(text="hi") == "hi"
    assert (odd.count("initialize"), odd.count("tools/call")) == (1, 1 + 2 + 4)
    assert odd.targets.count("/elsewhere") == 1
    assert caplog.text.count("other than a JSON-RPC message") == 1


@pytest.mark.requirement("proxy.faults.http")
async def test_status_401_asks_for_a_login_even_if_it_comes_with_a_json_rpc_error(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        refusal: Answer = (401, JSON, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "who?"}}')
        odd.override = lambda _message, _headers: refusal
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert scene.report()["state"] == "needs authentication"


@pytest.mark.requirement("proxy.odd-answers")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
async def test_events_are_parsed_wherever_the_stream_is_split(end: bytes) -> None:
    lines = "\ufeffid: 1|data: a||: word||id: \u00e9|event: end|data:b|data|retry: 7||id||"
    stream = lines.encode().replace(b"|", end)
    for size in (1, 2, 3, len(stream)):

        async def pieces(size: int = size) -> AsyncIterator[bytes]:
            for start in range(0, len(stream), size):
                yield stream[start : start + size]

        events = [event async for event in events_in(pieces(), 1_000)]
        assert events == [Event("", b"a", "1"), Event("end", b"b\n", None, 7), Event("", b"", "")]


@pytest.mark.requirement("proxy.sessions.get")
async def test_a_stream_that_ends_at_once_is_opened_less_and_less_often(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    is_enough, sleep = anyio.Event(), anyio.sleep

    async def record_pause(seconds: float) -> None:
        caller = inspect.stack(0)[1].frame
        if caller.f_globals["__name__"] != "server.upstreams.wire.http_upstream":
            return await sleep(seconds)
        pauses.append(seconds)
        if len(pauses) < 9:
            return await sleep(0)
        is_enough.set()
        return await sleep(CEILING)

    monkeypatch.setattr(anyio, "sleep", record_pause)
    with odd_server() as odd, caplog.at_level(logging.WARNING):
        note = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}'
        odd.answer_to_get = 200, EVENTS, b"id: 1\ndata: " + note + b"\n\n"
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            await is_enough.wait()
            assert await scene.call(text="hi") == "hi"
            assert scene.report()["state"] == "connected"
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert "bad" not in caplog.text


def _answer_with(
    change: Callable[[OddServer, Json], bytes], headers: dict[str, str]
) -> Callable[[OddServer, Json], Answer]:
    return lambda odd, message: (200, headers, change(odd, message))


def _event(odd: OddServer, message: Json) -> bytes:
    return f"data: {json.dumps(odd.usual(message))}\n\n".encode()


ODD_ANSWERS: dict[str, Callable[[OddServer, Json], Answer]] = {
    "a BOM before JSON": _answer_with(lambda odd, message: BOM + json.dumps(odd.usual(message)).encode(), JSON),
    "a BOM before events": _answer_with(lambda odd, message: BOM + _event(odd, message), EVENTS),
    "event: error": _answer_with(lambda odd, message: b"event: error\n" + _event(odd, message), EVENTS),
    "data: ping": _answer_with(lambda odd, message: b"data: ping\n\ndata: {}\n\n" + _event(odd, message), EVENTS),
    "Application/JSON": _answer_with(
        lambda odd, message: json.dumps(odd.usual(message)).encode(),
        {"Content-Type": "Application/JSON; charset=UTF-8"},
    ),
    "Text/Event-Stream": _answer_with(_event, {"Content-Type": "Text/Event-Stream"}),
    "events in hex": _answer_with(_event, {"Content-Type": "text/event-stream; charset=hex"}),
    "JSON in UTF-16": _answer_with(
        lambda odd, message: json.dumps(odd.usual(message)).encode(),
        {"Content-Type": "application/json; charset=utf-16"},
    ),
    "another id": _answer_with(lambda odd, message: _event(odd, {**message, "id": 1 << 40}), EVENTS),
}


@pytest.mark.requirement("proxy.odd-answers")
async def test_an_answer_in_an_odd_form_is_an_answer(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            with all_cases() as case:
                for name, answer in ODD_ANSWERS.items():
                    odd.override = lambda message, _, answer=answer: answer(odd, message) if "id" in message else None
                    with case(name):
                        assert await scene.call(text=name) == name
            error = {"code": "E_NO_FISH", "message": "no fish today"}
            odd.override = lambda message, _: (
                (200, JSON, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
                if message["method"] == "tools/call"
                else None
            )
            assert "no fish today" in await scene.call()


@pytest.mark.requirement("proxy.odd-answers")
async def test_a_server_of_revision_2024_10_07_is_treated_like_one_of_2024_11_05(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odd_server() as odd, caplog.at_level(logging.WARNING):
        odd.revision, odd.capabilities = "2024-10-07", {"tools": {}, "prompts": {}, "resources": {}}
        async with scene_with(tmp_path, root, entry_of(odd.url)) as scene:
            await scene.names()
            assert await scene.call(text="hi") == "hi"
            assert scene.report()["protocolVersion"] == "2024-11-05"
    assert " failed (" not in caplog.text, "a list that the server does not know is not a failure"


LEAKING_BLOCK = {"type": "text", "text": "bad s3cr3t-t0ken-0815"}
REFUSALS: dict[str, tuple[Answer, tuple[str, ...]]] = {
    "429": ((429, {"retry-after": "7"}, b"slow\x1b[2J down"), ("status 429", "Retry-After: 7", "slow", "down")),
    "429 in JSON-RPC": (
        (429, {"retry-after": "7", **JSON}, b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"slow"}}'),
        ("status 429", "Retry-After: 7", "slow"),
    ),
    "403": ((403, JSON, b'{"detail": "not on this plan"}'), ("status 403", "not on this plan")),
    "413": ((413, JSON, b'{"detail": "at most 5 MB"}'), ("status 413", "at most 5 MB")),
    "500": ((500, {}, b"x" * 10_000), ("status 500", "x" * 200 + " [...]")),
    "a token": ((500, {}, b"who is s3cr3t-t0ken-0815?"), ("status 500", "who is [hidden]?")),
    "a token in an error": (
        (
            200,
            JSON,
            b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"bad s3cr3t-t0ken-0815","data":["T0KEN0815"]}}',
        ),
        ("bad [hidden]",),
    ),
    "a token in an error with a status": (
        (400, JSON, b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"bad s3cr3t-t0ken-0815"}}'),
        ("bad [hidden]",),
    ),
    "a token in an event": (
        (200, EVENTS, b'data: {"jsonrpc":"2.0","id":99999,"error":{"code":1,"message":"bad s3cr3t-t0ken-0815"}}\n\n'),
        ("bad [hidden]",),
    ),
    "a token in the error of a tool": (
        (
            200,
            JSON,
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"isError": True, "content": [LEAKING_BLOCK]}}).encode(),
        ),
        ("[hidden]",),
    ),
    "the token of the address": ((404, {}, b"Cannot POST /mcp?key=t0ken0815"), ("key=[hidden]",)),
    "a redirect": ((307, {"location": "https://login.example/start?state=x"}, b""), ("https://login.example/start",)),
    "a redirect to a file": ((307, {"location": "file:///etc/passwd"}, b""), (": file:///etc/passwd",)),
}


@pytest.mark.requirement("proxy.causes")
async def test_the_message_of_an_error_status_is_reported_safely(root: Path, tmp_path: Path) -> None:
    with odd_server() as odd:
        entry = entry_of(f"{odd.url}?key=t0ken0815", headers={"X-Api-Key": "s3cr3t-t0ken-0815"}, protocol="legacy")
        async with scene_with(tmp_path, root, entry) as scene:
            await scene.names()
            with all_cases() as case:
                for name, (refusal, texts) in REFUSALS.items():
                    odd.override = lambda message, _, refusal=refusal: (
                        refusal if message["method"] == "tools/call" else None
                    )
                    with case(name):
                        answer = await scene.call()
                        assert [text for text in texts if text not in answer] == [], answer
                        assert not [text for text in ("\x1b", "s3cr3t", "state=x", "T0KEN") if text in answer]
                        assert len(answer) < 500
                        check_message(answer)


@pytest.mark.requirement("proxy.causes")
async def test_a_failed_connection_is_reported_with_its_cause(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown_authority = authority_for("127.0.0.1", tmp_path)
    expired_authority = authority_for("localhost", tmp_path, ends=dt.timedelta(hours=-1))
    other_authority = authority_for("other.example", tmp_path)

    def trust() -> ssl.SSLContext:
        context = ssl.create_default_context()
        for authority in (expired_authority, other_authority):
            context.load_verify_locations(cadata=authority.pem)
        return context

    monkeypatch.setattr("server.network.outbound_http._tls_context", trust)
    with (
        odd_server() as plain_server,
        odd_server(unknown_authority.server) as unknown_server,
        odd_server(expired_authority.server) as expired_server,
        odd_server(other_authority.server) as misnamed_server,
    ):
        causes = {
            f"https://localhost:{expired_server.port}/mcp": "its certificate has expired",
            f"https://localhost:{misnamed_server.port}/mcp": "its certificate is for another host name",
            f"https://localhost:{unknown_server.port}/mcp": "its certificate is self-signed",
            f"https://localhost:{plain_server.port}/mcp": "its address says https",
            f"http://localhost:{unknown_server.port}/mcp": "its address says http",
            "http://no-such-host.invalid/mcp": "its host name was not found (DNS)",
            "http://127.0.0.1:9/mcp": "the connection was refused",
        }
        bad = {f"bad{number}": entry_of(url) for number, url in enumerate(causes)}
        async with scene_with_all(tmp_path, root, bad) as scene:
            await scene.names()
            with all_cases() as case:
                for alias, (url, cause) in zip(bad, causes.items(), strict=True):
                    with case(url):
                        assert cause in scene.report(alias)["problem"]
                        answer = await scene.call(f"{alias}__echo")
                        assert cause in answer
                        check_message(answer)


@pytest.mark.requirement("proxy.causes")
async def test_a_server_whose_revision_is_set_and_that_fails_is_reported_with_its_error(
    root: Path, tmp_path: Path
) -> None:
    with odd_server() as odd:
        odd.unknown_status = 503
        async with scene_with(tmp_path, root, entry_of(odd.url, protocol="2026-07-28")) as scene:
            await scene.names()
            assert "HTTP status 503" in scene.report()["problem"]


@pytest.mark.requirement("proxy.causes")
async def test_a_plain_url_needs_a_login_or_reports_its_error_even_if_the_server_has_no_sse(
    root: Path, tmp_path: Path
) -> None:
    reports: list[tuple[str, str]] = []
    with odd_server() as odd:
        for status, status_of_get in ((401, 405), (401, 403), (503, 405)):
            odd.override = lambda _message, _headers, status=status: (status, {}, b"")
            odd.answer_to_get = status_of_get, {}, b""
            async with scene_with(tmp_path, root, {"url": odd.url, **PATIENT}) as scene:
                await scene.names()
                reports.append((scene.report()["state"], scene.report()["problem"]))
    over_http, over_sse = (f"it gave no usable answer: it answered with HTTP status {status}" for status in (503, 405))
    assert reports == [
        *[("needs authentication", "it requires a token or a login: HTTP status 401")] * 2,
        ("failed", f"{over_http}; over SSE, {over_sse}"),
    ]


@pytest.mark.requirement("proxy.environment")
async def test_remote_servers_are_reached_through_the_proxies_of_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with odd_server() as odd:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{odd.port}")
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{odd.port}")
        monkeypatch.setenv("no_proxy", "direct.invalid")
        bad = {
            "bad": entry_of("http://odd.example/mcp"),
            "sse": {**entry_of("http://odd.example/sse"), "type": "sse"},
            "tls": entry_of("https://odd.example/mcp"),
            "direct": entry_of("http://direct.invalid/mcp"),
            "here": entry_of(odd.url),
        }
        async with scene_with_all(tmp_path, root, bad) as scene:
            await scene.names()
            assert await scene.call(text="hi") == "hi"
            assert await scene.call("here__echo", text="hi") == "hi"
            assert "which refused (HTTP status 403)" in scene.report("tls")["problem"]
            assert "(DNS)" in scene.report("direct")["problem"]
        assert {"http://odd.example/mcp", "http://odd.example/sse", "odd.example:443", "/mcp"} <= set(odd.targets)
        odd.targets.clear()
        bad = {"bad": entry_of("http://odd.invalid/mcp")}
        async with scene_with_all(tmp_path, root, bad, proxy={"environmentProxies": False}) as scene:
            await scene.names()
            assert "(DNS)" in scene.report()["problem"]
        assert odd.targets == []


VARIABLES = {"http_proxy": "http://p:1", "https_proxy": "p:2", "all_proxy": ""}


@pytest.mark.requirement("proxy.environment")
@each_of(
    "exempt, address, proxy",
    [
        ("", "http://a.example/mcp", "http://p:1"),
        ("", "https://a.example/mcp", "http://p:2"),
        ("*", "https://a.example/mcp", None),
        ("example", "https://a.example/mcp", None),
        (".example", "https://a.example/mcp", None),
        ("*.a.example, b.example", "https://a.example/mcp", None),
        ("b.example a.example", "https://a.example/mcp", None),
        ("a.example", "https://ba.example/mcp", "http://p:2"),
        ("A.EXAMPLE:443", "https://a.example/mcp", None),
        ("a.example:8443", "https://a.example/mcp", "http://p:2"),
        ("10.0.0.0/8,fd00::/8", "https://10.1.2.3/mcp", None),
        ("10.0.0.0/8,fd00::/8", "https://[fd00::1]/mcp", None),
        ("[2001:db8::1]", "https://[2001:db8::1]/mcp", None),
        ("2001:db8::1", "https://[2001:db8::2]/mcp", "http://p:2"),
        ("", "https://localhost/mcp", None),
        ("", "http://127.3.2.1:8/mcp", None),
        ("", "http://[::1]:8/mcp", None),
        ("", "http://LocalHost./mcp", None),
        ("", "http://a.localhost/mcp", None),
        ("", "http://127.1/mcp", None),
        ("", "http://127.0.0.1./mcp", None),
        ("", "http://2130706433/mcp", None),
        ("", "http://0x7f000001/mcp", None),
        ("", "http://0177.0.0.1/mcp", None),
        ("", "http://0.0.0.0/mcp", None),
        ("", "http://[::]/mcp", None),
        ("", "http://[::ffff:127.0.0.1]/mcp", None),
        ("", "http://[::1%25lo]/mcp", None),
        ("", f"http://{socket.gethostname().upper()}:8/mcp", None),
        ("", "http://notlocalhost/mcp", "http://p:1"),
        ("", "http://128.1/mcp", "http://p:1"),
        ("10.0.0.0/8", "http://10.1/mcp", None),
        ("example.org", "https://a.example.org./mcp", None),
        ("example.org.", "https://a.example.org/mcp", None),
    ],
)
def test_proxy_variables_are_read_as_other_programs_read_them(
    exempt: str, address: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**VARIABLES, "no_proxy": exempt}.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(address) == proxy
