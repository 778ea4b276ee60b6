"""Lost streams of a session that the client resumes with `Last-Event-ID`, and answers without a stream."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interaction.network.test_ended_requests import open_session, wait_for_pid, waiting_call
from tests.interaction.network.wires import ACCEPT, Connection, Head, connection, modern, modern_headers, post, request
from tests.interaction.serving import SharedServers
from tests.interaction.test_conversation import UNASKED

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]


async def raw_event(wire: Connection, head: Head) -> dict[str, str]:
    """Read the next event of a stream; return its fields."""
    text = ""
    async for piece in wire.pieces(head):
        text += piece.decode().replace("\r\n", "\n")
        if text.endswith("\n\n"):
            break
    lines = [line.partition(":") for line in text.strip().split("\n")]
    return {name: value.strip() for name, _, value in lines}


@pytest.mark.requirement("http.resumption")
async def test_a_client_that_lost_the_stream_of_a_request_gets_its_answer_by_the_id_of_its_last_event(
    shared_servers: SharedServers, place: Path
) -> None:
    url = shared_servers.url(UNASKED)
    async with open_session(url, "2025-11-25") as (_, headers):
        async with connection(url) as call_wire:
            head = await post(call_wire, "/mcp", request(7, "tools/call", waiting_call(place)), headers)
            assert head.headers["content-type"] == "text/event-stream"
            first = await raw_event(call_wire, head)
            await wait_for_pid(place)
            call_wire.reset()
        (place / "go").touch()
        async with connection(url) as second_wire:
            resume_headers = {**ACCEPT, **headers, "Last-Event-ID": first["id"]}
            head = await second_wire.ask("GET", "/mcp", resume_headers)
            assert head.status == 200
            answers = [message async for message in second_wire.messages(head)]
        assert answers[-1]["id"] == 7
        assert not answers[-1]["result"].get("isError")
        async with connection(url) as late_wire:
            head = await late_wire.ask("GET", "/mcp", resume_headers)
            late_answers = [message async for message in late_wire.messages(head)]
            assert late_answers == answers, "an answer that was sent may not have arrived"
            head = await late_wire.ask("GET", "/mcp", {**resume_headers, "Last-Event-ID": "77/1"})
            assert head.status == 400
            assert [message async for message in late_wire.messages(head)]


@pytest.mark.requirement("http.resumption")
async def test_a_long_answer_waits_for_a_client_that_lost_its_stream(
    shared_servers: SharedServers, place: Path
) -> None:
    url = shared_servers.url(UNASKED)
    command = "echo $$ > began.new; mv began.new began; while [ ! -e go ]; do sleep 0.05; done; cat big"
    (place / "big").write_text("x" * 79 + "\n" + ("y" * 79 + "\n") * 5_000)
    call = {"name": "run_shell_command", "arguments": {"command": command, "directory": str(place)}}
    async with open_session(url, "2025-11-25") as (_, headers):
        async with connection(url) as call_wire:
            head = await post(call_wire, "/mcp", request(7, "tools/call", call), headers)
            first = await raw_event(call_wire, head)
            await wait_for_pid(place)
            call_wire.close()
        async with connection(url) as second_wire:
            # The client resumes before the answer exists; the answer must go to this connection, not to the lost one.
            head = await second_wire.ask("GET", "/mcp", {**ACCEPT, **headers, "Last-Event-ID": first["id"]})
            (place / "go").touch()
            answers = [message async for message in second_wire.messages(head)]
        assert answers[-1]["id"] == 7


@pytest.mark.requirement("http.json")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_call_that_ends_before_any_other_message_is_answered_as_json(
    shared_servers: SharedServers, place: Path, revision: str
) -> None:
    call = {"name": "list_directory", "arguments": {"path": str(place)}}
    url = shared_servers.url(UNASKED)
    async with open_session(url, "2025-06-18") as (wire, headers):
        message = request(3, "tools/call", call) if revision != "2026-07-28" else modern(3, "tools/call", call)
        request_headers = headers if revision != "2026-07-28" else modern_headers(message)
        head = await post(wire, "/mcp", message, request_headers)
        assert (head.status, head.headers["content-type"]) == (200, "application/json")
        (answer,) = [reply async for reply in wire.messages(head)]
        assert answer["id"] == 3
        assert not answer["result"].get("isError")
