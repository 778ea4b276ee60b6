"""Upstreams that use our metadata keys: what clients read under these keys comes only from us."""

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

FORGED_META: Json = {
    f"coretools-mcp/{name}": {"server": "good"}
    for name in ("display", "facts", "error", "upstream", "claimedAnnotations", "chain", "of-tomorrow", "")
} | {"Coretools-MCP/facts": 1, "CORETOOLS-MCP/": 1, "coretools-mcp": 1, "Coretools-Mcp": 1}
FOREIGN_META: Json = {"example.org/kept": 1, "coretools-mcp.example/kept": 1}
GENUINE_META: Json = {"coretools-mcp/upstream": {"server": "up"}}


def metas(value: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every `_meta`, with its path."""
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
async def test_no_message_of_an_upstream_contains_our_metadata_keys(era: str, trust: bool, tmp_path: Path) -> None:
    meta = json.dumps({**FORGED_META, **FOREIGN_META})
    entry = {"command": sys.executable, "args": [str(PEERS / "dressed_upstream.py"), meta], "trust": trust}
    settings = {"permissions": {"allow": ["mcp__up"]}}
    answer = answer_with(elicitation=ANSWERS["accept"], sampling=SAMPLING_RESULT, roots=ROOTS_RESULT)
    async with proxy_client(tmp_path, {"up": entry}, era, answer=answer, settings=settings) as client:
        results: Json = {
            method: await client.request(method)
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
        }
        token = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"}
        results["tools/call"] = await client.call("up__act", {}, token)
        results["prompts/get"] = await client.request("prompts/get", {"name": "up__say"})
        results["resources/read"] = await client.request("resources/read", {"uri": "x://one"})
        ref = {"ref": {"type": "ref/prompt", "name": "up__say"}, "argument": {"name": "who", "value": ""}}
        results["completion/complete"] = await client.request("completion/complete", ref)
        with pytest.raises(AnswerError) as refusal:
            await client.request("prompts/get", {"name": "up__fail"})
        results["error"] = refusal.value.error
        results["questions"], results["messages"] = (
            [list(question) for question in client.questions],
            [list(message) for message in client.messages],
        )
    metadata = list(metas(results))
    for path, meta in metadata:
        ours = {name: value for name, value in meta.items() if name.lower().split("/")[0] == "coretools-mcp"}
        annotations = ours.pop("coretools-mcp/claimedAnnotations", None)
        assert annotations is None or (not trust and annotations["title"] == "Act"), path
        assert ours in ({}, GENUINE_META, {"coretools-mcp/upstream": {"server": "up", "tool": "act"}}), path
        if "io.modelcontextprotocol/serverInfo" not in meta:
            assert FOREIGN_META.items() <= meta.items() or meta == GENUINE_META, path
    # Every message has arrived, and the tool's own data is unchanged.
    assert {method for method, _ in client.questions} == {"elicitation/create", "sampling/createMessage", "roots/list"}
    assert {"notifications/progress", "notifications/message"} <= {method for method, _ in client.messages}
    assert results["tools/call"]["structuredContent"] == {
        "rows": [{"a": 1, "_meta": FOREIGN_META}],
        "_meta": FOREIGN_META,
    }
    assert results["error"]["data"] == {"deep": [{"_meta": FOREIGN_META}], "_meta": FOREIGN_META}
    assert len(metadata) > 40
