"""The three command keys on a running server: whatever way they are spelled, the registry and the results are equal."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from server.app import App
from server.settings import load_settings
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tests.harness import HANDSHAKE, own_state, stdio_upstream, write_config
from tests.in_process import in_process
from tests.waiting import CEILING
from tools.builtin.all_tools import builtin_tools
from tools.builtin.discovered_tools import DiscoveredTool

pytestmark = pytest.mark.anyio

KeyPath = tuple[str, ...]

SPELLINGS: Mapping[str, tuple[KeyPath, KeyPath, KeyPath]] = {
    "discovery": (("tools", "discoveryCommand"), ("toolDiscoveryCommand",), ("tools", "toolDiscoveryCommand")),
    "call": (("tools", "callCommand"), ("toolCallCommand",), ("tools", "toolCallCommand")),
    "server": (("mcp", "serverCommand"), ("mcpServerCommand",), ("mcp", "mcpServerCommand")),
}
"""Each command, and its key in sections, flat, and as the documentation of the tools has it."""

SECTIONS, FLAT, DOCUMENTED = range(3)
PRINT = "import sys; print(open(sys.argv[1]).read())"
CALLED = "import sys; print(sys.argv[1].upper(), sys.stdin.read())"
DECLARED = [
    {"name": "shout", "description": "Shouts.", "parametersJsonSchema": {"properties": {"what": {"type": "string"}}}}
]


@dataclass(frozen=True)
class Served:
    """What one server holds and answers."""

    declared: Sequence[tuple[str, str, Any]]
    kinds: Mapping[str, type]
    listed: Sequence[types.Tool]
    answers: Sequence[str]


def written(folder: Path, spelled: Mapping[str, int]) -> Path:
    """A settings file with the three commands, each spelled in one of its ways."""
    declared = folder / "declared tools.json"
    declared.write_text(json.dumps(DECLARED))
    upstream = stdio_upstream()
    lines = {
        "discovery": [sys.executable, "-c", PRINT, str(declared)],
        "call": [sys.executable, "-c", CALLED],
        "server": [upstream["command"], *upstream["args"]],
    }
    tree: dict[str, Any] = {}
    for command, words in lines.items():
        *sections, last = SPELLINGS[command][spelled[command]]
        holder = tree
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = shlex.join(words)
    return write_config(folder, tree)


async def accept(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context, params
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def served(root: Path, config: Path) -> Served:
    """Serve these settings to a client that lists all and calls what is not built in."""
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state(), folder=str(root))
    assert report.warnings == ()
    app = App(report, "stdio")
    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(in_process(app), mode=HANDSHAKE, cache=None, elicitation_callback=accept) as client,
        ):
            listed = (await client.list_tools()).tools
            results = [
                await client.call_tool("shout", {"what": "hello"}),
                await client.call_tool("mcp__echo", {"text": "hello"}),
            ]
            return Served(
                [(tool.name, tool.description, tool.parameter_schema) for tool in app.registry.get_all_tools()],
                {tool.name: type(tool) for tool in app.registry.get_all_tools()},
                listed,
                [str(result.content) for result in results],
            )


@pytest.mark.requirement("settings.commands")
@pytest.mark.parametrize("command", SPELLINGS)
async def test_every_spelling_of_a_command_gives_the_same_registry(command: str, root: Path, tmp_path: Path) -> None:
    plain = dict.fromkeys(SPELLINGS, SECTIONS)
    first, *others = [
        await served(root, written(tmp_path, {**plain, command: way})) for way in (SECTIONS, FLAT, DOCUMENTED)
    ]
    built_in = [tool.name for tool in builtin_tools()]
    names = [name for name, _, _ in first.declared]
    assert names[: len(built_in)] == built_in
    assert {"shout", "mcp__echo", "mcp__picture"} <= set(names)
    assert {name: kind for name, kind in first.kinds.items() if name not in built_in} == {
        name: DiscoveredTool if name == "shout" else DiscoveredMCPTool for name in names[len(built_in) :]
    }
    (schema,) = [schema for name, _, schema in first.declared if name == "shout"]
    assert schema["properties"] == {"what": {"type": "string"}}
    assert {"shout", "mcp__echo"} <= {tool.name for tool in first.listed}
    assert "SHOUT" in first.answers[0]
    assert '"what": "hello"' in first.answers[0]
    assert "hello" in first.answers[1]
    assert others == [first, first]
