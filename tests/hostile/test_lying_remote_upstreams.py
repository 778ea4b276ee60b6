"""Upstreams over HTTP and SSE that lie: only the affected request fails, with a clear message, and others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import httpx2
import pytest

from server.upstreams.wire.http_upstream import CarefulTransport, RefusedError
from tests.hostile.lying import (
    FLOODS,
    Scene,
    all_over_http,
    by_alias,
    check_message,
    over_http,
    scene_with,
    scene_with_all,
    with_flood_counts,
)
from tests.tables import all_cases

pytestmark = pytest.mark.anyio

CONNECTION_REFUSED = "nothing is listening at its address: the connection was refused"
LOST = "The connection to the server {alias} was lost during the call to echo"


@pytest.mark.requirement("proxy.faults.http")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_lets_nobody_in_needs_authentication(transport: str, root: Path, tmp_path: Path) -> None:
    deeds = ("status:401@any", "status:403@any")
    async with all_over_http(transport, deeds) as bad, scene_with_all(tmp_path, root, bad) as scene:
        await scene.names()
        with all_cases() as case:
            for alias, deed in by_alias(deeds).items():
                with case(deed):
                    assert scene.report(alias)["state"] == "needs authentication"
                    answer = await scene.call(f"{alias}__echo")
                    assert "needs authentication" in answer
                    assert "Authorization" in answer
                    check_message(answer)
        await scene.check_others(root)


FAILING_OVER_HTTP = {
    "status:401": "needs authentication (HTTP status 401)",
    "status:404": "HTTP status 404",
    "status:500": "HTTP status 500",
    "redirect": "another address",
    "redirect-here": "to the same address",
    "type:text/html": "neither JSON nor an event stream",
    "bad-json": "not valid JSON-RPC",
    "json-list": "not valid JSON-RPC",
    "break-off": "ended its answer too early",
    "break-off-json": "incomplete",
    "end": "ended its answer too early",
    "long-json": "too long",
    "long": "too long",
    "bomb": "compressed",
    "header-flood": "its answer is not HTTP",
    "no-http": "could not be reached",
    "null": "not valid JSON-RPC",
    "deep": "not valid JSON-RPC",
    "odd-result": "not the result of a tool",
}
FAILING_OVER_SSE = {
    "status:500": "HTTP status 500",
    "redirect": "another address",
    "null": "not valid JSON-RPC",
    "deep": "not valid JSON-RPC",
    "long": LOST,
    "odd-result": "not the result of a tool",
}


@pytest.mark.requirement("proxy.faults.http")
@pytest.mark.parametrize(
    ("transport", "faults"),
    [
        ("http", dict(list(FAILING_OVER_HTTP.items())[::3])),
        pytest.param("http", FAILING_OVER_HTTP, marks=pytest.mark.long),
        pytest.param("sse", FAILING_OVER_SSE, marks=pytest.mark.long),
    ],
    ids=["some over http", "http", "sse"],
)
async def test_a_call_that_gets_no_answer_fails_at_once_and_says_why(
    transport: str, faults: dict[str, str], root: Path, tmp_path: Path
) -> None:
    async with all_over_http(transport, faults) as bad, scene_with_all(tmp_path, root, bad) as scene:
        names = await scene.names()
        with all_cases() as case:
            for alias, (deed, cause) in by_alias(faults.items()).items():
                with case(deed):
                    assert f"{alias}__echo" in names
                    answer = await scene.call(f"{alias}__echo", text="hi")
                    assert answer.startswith("error: ")
                    # Over HTTP, the connection may be given up at the same moment.
                    may_be_lost = transport == "http" and LOST.format(alias=alias) in answer
                    assert cause.format(alias=alias) in answer or may_be_lost
                    assert "SECRET" not in answer
                    check_message(answer)
                    await scene.check_others(root)


async def check_answers(scene: Scene, deeds: Sequence[str]) -> None:
    """Check that the honest answer of each liar is found, and that the liar stays connected."""
    names = await scene.names()
    with all_cases() as case:
        for alias, deed in by_alias(deeds).items():
            with case(deed):
                assert f"{alias}__echo" in names
                assert await scene.call(f"{alias}__echo", text="the truth") == "the truth"
                assert scene.report(alias)["state"] == "connected"


@pytest.mark.requirement("proxy.faults.http")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_honest_answer_is_found_among_the_other_messages_of_a_liar(
    transport: str, root: Path, tmp_path: Path
) -> None:
    deeds = ("", "twice", "drip", "no-get@get", "garbage")
    async with all_over_http(transport, deeds) as bad, scene_with_all(tmp_path, root, bad) as scene:
        await check_answers(scene, deeds)
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.http")
@pytest.mark.parametrize("count", FLOODS)
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("deed", ["flood:progress", "flood:log", "flood:list"])
async def test_an_honest_answer_is_found_in_a_flood(
    transport: str, deed: str, count: int, root: Path, tmp_path: Path
) -> None:
    async with over_http(transport, *with_flood_counts([deed], count)) as bad, scene_with(tmp_path, root, bad) as scene:
        assert "bad__echo" in await scene.names()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.check_others, root)
            assert await scene.call(text="the truth") == "the truth"
        assert scene.report()["state"] == "connected"


@pytest.mark.requirement("proxy.faults.http")
async def test_an_answer_on_the_wrong_stream_is_accepted(root: Path, tmp_path: Path) -> None:
    async with over_http("http", "wrong-stream", "stream@get") as bad, scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        assert await scene.call() == "done"


@pytest.mark.requirement("proxy.faults.http")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_large_result_arrives_complete(transport: str, root: Path, tmp_path: Path) -> None:
    async with over_http(transport) as bad, scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        assert await scene.call(text="x" * 5_000_000) == "x" * 5_000_000


@pytest.mark.requirement("proxy.faults.start")
@pytest.mark.parametrize(("transport", "deed"), [("http", "hang"), ("http", "endless"), ("sse", "hang")])
async def test_a_call_over_http_without_an_answer_times_out(
    transport: str, deed: str, root: Path, tmp_path: Path
) -> None:
    async with over_http(transport, deed, timeout=500) as bad, scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        answer = await scene.call()
        assert "sent neither a result nor progress" in answer
        check_message(answer)
        await scene.check_others(root)


@pytest.mark.requirement("proxy.faults.http")
async def test_a_server_that_never_accepts_a_notification_blocks_no_call_for_ever(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.wire.http_upstream.ACCEPT_SECONDS", 0.2)
    liar = over_http("http", "hang-once", "hang@cancelled", timeout=500)
    async with liar as bad, scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        assert "sent neither a result nor progress" in await scene.call()
        # The server does not accept the cancellation of this call, which is sent before the next call.
        assert await scene.call(text="hi") == "hi"


@pytest.mark.requirement("proxy.faults.start")
async def test_a_refused_connection_is_reported(root: Path, tmp_path: Path) -> None:
    bad = {"url": "http://127.0.0.1:9/mcp", "trust": True}
    async with scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        assert scene.report().get("problem") == f"it could not be reached: {CONNECTION_REFUSED}"
        answer = await scene.call()
        assert CONNECTION_REFUSED in answer
        assert "127.0.0.1" not in answer
        await scene.check_others(root)


@pytest.mark.requirement("upstream.stdio.garbage")
async def test_answers_over_sse_may_come_together_and_with_ids_written_as_fractions(root: Path, tmp_path: Path) -> None:
    deeds = ("together", "fraction-id")
    async with (
        over_http("sse", "together@list", "together") as batch_liar,
        over_http("sse", "fraction-id@list", "fraction-id") as fraction_liar,
        scene_with_all(tmp_path, root, by_alias((batch_liar, fraction_liar))) as scene,
    ):
        await check_answers(scene, deeds)


@pytest.mark.requirement("proxy.faults.headers")
async def test_an_argument_is_not_repeated_under_an_invalid_header_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tale = tmp_path / "tale"
    monkeypatch.setenv("TALE", str(tale))
    async with over_http("http", "headers@list") as bad, scene_with(tmp_path, root, bad) as scene:
        assert "bad__echo" in await scene.names()
        for _ in range(2):
            assert await scene.call(fine="a", text="hi", blank="b", line="c", none="d") == "hi"
        assert scene.report()["state"] == "connected"
    headers = [line.lower() for line in tale.read_text().splitlines() if line.lower().startswith("mcp-param")]
    assert headers == ["mcp-param-fine: a"] * 2
    assert caplog.text.count("whose names are not valid in HTTP") == 1


@pytest.mark.requirement("proxy.faults.headers")
async def test_a_request_that_http_does_not_allow_fails_alone_and_proves_nothing_about_the_server() -> None:
    doubts: list[bool] = []
    transport = CarefulTransport(lambda: doubts.append(True))
    async with over_http("http") as honest, httpx2.AsyncClient(transport=transport) as client:
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        with pytest.raises(RefusedError) as error_info:
            await client.post(honest["url"], json=message, headers={"a b": "c"})
    assert error_info.value.reason == "the request is not valid HTTP"
    assert doubts == []
    assert transport.challenge is None, "the failure proves nothing about the server"
    assert not transport.unreachable, "the failure proves nothing about the server"
