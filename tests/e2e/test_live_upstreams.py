"""Upstreams of a running server, whose settings are edited while one of them is working on a call."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, connected, write_config
from tests.hostile.lying import CEILING, over_stdio

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("settings.live.upstreams")
async def test_only_changed_upstreams_are_restarted_and_a_running_call_continues(root: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    tales = {alias: tmp_path / f"tale-{alias}" for alias in ("slow", "same", "other", "named", "gone", "fresh")}

    def entry(alias: str, *deeds: str, **options: object) -> dict[str, object]:
        return over_stdio(*deeds, env={"TALE": str(tales[alias])}, **options)

    slow, same = entry("slow", f"wait:{go}"), entry("same", "honest")
    before = {"slow": slow, "same": same, "other": entry("other", "honest"), "gone": entry("gone", "honest")}
    before["named"] = entry("named", "honest")
    after = {
        "fresh": entry("fresh", "honest"),
        "same": same,
        "slow": slow,
        "other": entry("other", "honest", rename={"echo": "say"}, inheritEnv=["ANY"]),
        "named": entry("named", "honest", rename={"echo": "say"}),
    }
    config = write_config(tmp_path, {"mcpServers": before})
    answers: list[types.CallToolResult] = []
    with anyio.fail_after(CEILING):
        async with connected("stdio", HANDSHAKE, root, config) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                answers.append(await client.call_tool("slow__echo", {"text": "at last"}))

            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {f"{alias}__echo" for alias in before} <= names
            tasks.start_soon(call)
            while "call\n" not in tales["slow"].read_text():  # noqa: ASYNC110 - there is no event for a changed file
                await anyio.sleep(0.01)
            fresh = config.with_suffix(".new")
            fresh.write_text(json.dumps({"mcpServers": after, "proxy": {"firstListWait": 30_000}}))
            fresh.replace(config)
            while not {"fresh__echo", "other__say", "named__say"} <= names or "gone__echo" in names:
                await anyio.sleep(0.1)
                names = {tool.name for tool in (await client.list_tools()).tools}
            assert "other__echo" not in names
            assert answers == []
            go.touch()
    assert isinstance(answers[0].content[0], types.TextContent)
    assert answers[0].content[0].text == "at last"
    starts = {alias: tale.read_text().count("start\n") for alias, tale in tales.items()}
    assert starts == {"slow": 1, "same": 1, "other": 2, "named": 1, "gone": 1, "fresh": 1}
