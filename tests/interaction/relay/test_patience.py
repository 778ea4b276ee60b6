"""Progress notifications during long waits."""

from __future__ import annotations

import itertools
from pathlib import Path

import anyio
import pytest

from server.requests.progress_reports import ProgressOutbound
from tests.interaction.relay.clients import PROGRESS, Json, WireClient, proxy_client, stdio_entry, wait_for_file
from tests.interaction.relay.questions import FORM

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("protocol.patience")]


@pytest.fixture(autouse=True)
def shorten_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgressOutbound, "pulse_seconds", 0.01)


def progress_of(client: WireClient) -> list[Json]:
    return [params for method, params in client.messages if method == PROGRESS]


async def wait_for_progress(client: WireClient, message: str, count: int = 3) -> None:
    for number in itertools.count(1):
        progress = await client.wait_for_notifications(PROGRESS, number)
        if sum(params.get("message") == message for params in progress) >= count:
            return


def assert_increasing(client: WireClient) -> None:
    values = [params["progress"] for params in progress_of(client)]
    assert all(previous < current for previous, current in itertools.pairwise(values)), values
    assert {params["progressToken"] for params in progress_of(client)} == {"of mine"}


@pytest.mark.parametrize("origin", ["ours", "an upstream's"])
async def test_a_client_is_told_that_a_person_is_being_asked(origin: str, root: Path, tmp_path: Path) -> None:
    clients: list[WireClient] = []

    async def answer(method: str, _: Json) -> Json:
        assert method == "elicitation/create"
        await wait_for_progress(clients[0], "Waiting for the user to answer a question")
        return {"action": "accept", "content": {"decision": "once", "name": "Ada"}}

    settings = {"tools": {"builtIn": True}, "workspace": {"roots": [str(root)]}}
    servers = {"up": stdio_entry("handshake")}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings, answer=answer) as client:
        clients.append(client)
        if origin == "ours":
            arguments = {"file_path": str(root / "a.txt"), "content": "x"}
            await client.call("write_file", arguments, {"progressToken": "of mine"})
            assert (root / "a.txt").read_text() == "x"
        else:
            await client.call("up__ask", {"questions": [FORM]}, {"progressToken": "of mine"})
        assert_increasing(client)


async def test_a_client_is_told_that_a_server_works_only_if_it_gave_a_token(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": stdio_entry("handshake")}, "handshake") as client:
        for meta in ({"progressToken": "of mine"}, {}):
            client.messages.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "up__wait", {"mark": str(tmp_path / "mark")}, meta)
                if meta:
                    await wait_for_progress(client, "up__wait is in progress")
                else:
                    await wait_for_file(tmp_path / "mark.began")
                    await client.call("up__echo", {})
                tasks.cancel_scope.cancel()
            assert_increasing(client) if meta else None
            assert bool(progress_of(client)) is bool(meta)
