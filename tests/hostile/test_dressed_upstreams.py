"""Upstreams that say something under keys of ours: clients hear under these from us alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.harness import PEERS
from tests.interaction.relay.clients import AnswerError, Json, answer_with, proxy_client
from tests.interaction.relay.eras import by_era
from tests.interaction.relay.questions import ANSWERS, ROOTS_RESULT, SAMPLING_RESULT

pytestmark = pytest.mark.anyio

CLAIMED: Json = {
    f"coretools-mcp/{name}": {"server": "good"}
    for name in ("display", "facts", "error", "upstream", "claimedAnnotations", "chain", "of-tomorrow", "")
} | {"Coretools-MCP/facts": 1, "CORETOOLS-MCP/": 1, "coretools-mcp": 1, "Coretools-Mcp": 1}
KEPT: Json = {"example.org/kept": 1, "coretools-mcp.example/kept": 1}
OURS: Json = {"coretools-mcp/upstream": {"server": "up"}}


def metas(value: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every `_meta` with the place where it stands."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from metas(item, path)
    elif isinstance(value, dict):
        for name, item in cast("Json", value).items():
            if name == "_meta":
                yield path, item
            else:
                yield from metas(item, f"{path}/{name}")


@pytest.mark.requirement("relay.claims")
@by_era
@pytest.mark.parametrize("trust", [True, False])
async def test_nothing_that_an_upstream_says_holds_a_key_of_ours(era: str, trust: bool, tmp_path: Path) -> None:
    meta = json.dumps({**CLAIMED, **KEPT})
    entry = {"command": sys.executable, "args": [str(PEERS / "dressed_upstream.py"), meta], "trust": trust}
    settings = {"permissions": {"allow": ["mcp__up"]}}
    answer = answer_with(elicitation=ANSWERS["accept"], sampling=SAMPLING_RESULT, roots=ROOTS_RESULT)
    async with proxy_client(tmp_path, {"up": entry}, era, answer=answer, settings=settings) as client:
        heard: Json = {
            method: await client.request(method)
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
        }
        token = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"}
        heard["tools/call"] = await client.call("up__act", {}, token)
        heard["prompts/get"] = await client.request("prompts/get", {"name": "up__say"})
        heard["resources/read"] = await client.request("resources/read", {"uri": "x://one"})
        ref = {"ref": {"type": "ref/prompt", "name": "up__say"}, "argument": {"name": "who", "value": ""}}
        heard["completion/complete"] = await client.request("completion/complete", ref)
        with pytest.raises(AnswerError) as refusal:
            await client.request("prompts/get", {"name": "up__fail"})
        heard["refused"] = refusal.value.error
        heard["asked"], heard["told"] = (
            [list(each) for each in client.questions],
            [list(each) for each in client.messages],
        )
    found = list(metas(heard))
    for place, meta in found:
        ours = {name: value for name, value in meta.items() if name.lower().split("/")[0] == "coretools-mcp"}
        claimed = ours.pop("coretools-mcp/claimedAnnotations", None)
        assert claimed is None or (not trust and claimed["title"] == "Act"), place
        assert ours in ({}, OURS, {"coretools-mcp/upstream": {"server": "up", "tool": "act"}}), place
        if "io.modelcontextprotocol/serverInfo" not in meta:
            assert KEPT.items() <= meta.items() or meta == OURS, place
    # Every message came, and what is data of a tool is as it was otherwise.
    assert {method for method, _ in client.questions} == {"elicitation/create", "sampling/createMessage", "roots/list"}
    assert {"notifications/progress", "notifications/message"} <= {method for method, _ in client.messages}
    assert heard["tools/call"]["structuredContent"] == {"rows": [{"a": 1, "_meta": KEPT}], "_meta": KEPT}
    assert heard["refused"]["data"] == {"deep": [{"_meta": KEPT}], "_meta": KEPT}
    assert len(found) > 40
