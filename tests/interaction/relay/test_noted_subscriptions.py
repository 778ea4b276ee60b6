"""What an upstream is told of subscriptions while it notes them slowly, refuses them, or is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from tests.harness import PEERS
from tests.interaction.relay.clients import AnswerError, Json, WireClient, proxied
from tests.interaction.relay.test_features import UPDATED

pytestmark = pytest.mark.anyio

URI = "test://text"
WATCHED: Json = {"uri": URI}


def noting(era: str, *keeps: str) -> Json:
    """An upstream that keeps requests of these methods."""
    return {"command": sys.executable, "args": [str(PEERS / "noting_upstream.py"), era, *keeps], "trust": True}


async def is_noted(client: WireClient) -> None:
    """Return once the client has subscribed, however often that takes."""
    while True:
        try:
            assert await client.request("resources/subscribe", WATCHED) == {}
        except AnswerError:
            await anyio.sleep(0.02)
        else:
            return


@pytest.mark.requirement("relay.subscriptions.again")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_what_is_watched_while_a_lost_upstream_still_ends_is_told_of_when_it_is_back(
    era: str, tmp_path: Path
) -> None:
    async with proxied(tmp_path, {"up": noting(era)}, "handshake") as client:
        await client.listed("resources")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - nobody tells of the loss
            await anyio.sleep(0.005)
        await is_noted(client)
        while UPDATED not in [method for method, _ in client.heard]:
            await client.call("up__touch")
            await anyio.sleep(0.02)


@pytest.mark.requirement("relay.subscriptions.again")
async def test_an_upstream_that_was_lost_and_still_ends_is_not_called_connected(tmp_path: Path) -> None:
    async with proxied(tmp_path, {"up": noting("handshake")}, "handshake") as client:
        await client.listed("tools")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - nobody tells of the loss
            await anyio.sleep(0.005)
        with pytest.raises(AnswerError) as raised:
            await client.request("resources/subscribe", WATCHED)
        assert "is not available now" in str(raised.value)
        assert "state connected" not in str(raised.value)
