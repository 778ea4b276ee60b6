"""The three keys for commands, on a running server: every spelling gives the same registry and the same results."""

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
"""Each command with three spellings of its key: in a section, flat, and as the tools' documentation spells it."""

SECTIONS, FLAT, DOCUMENTED = range(3)
PRINT_PROGRAM = "import sys; print(open(sys.argv[1]).read())"
CALL_PROGRAM = "import sys; print(sys.argv[1].upper(), sys.stdin.read())"
DECLARATIONS = [
    {"name": "shout", "description": "Shouts.", "parametersJsonSchema": {"properties": {"what": {"type": "string"}}}}
]


@dataclass(frozen=True)
class Observation:
    """The tools of one server, and its answers to two calls."""

    definitions: Sequence[tuple[str, str, Any]]
    kinds: Mapping[str, type]
    listed_tools: Sequence[types.Tool]
    answers: Sequence[str]


def write_settings(folder: Path, spellings: Mapping[str, int]) -> Path:
    """Write a settings file with the three commands, each with one of its spellings."""
    declarations = folder / "declared tools.json"
    declarations.write_text(json.dumps(DECLARATIONS))
    upstream = stdio_upstream()
    lines = {
        "discovery": [sys.executable, "-c", PRINT_PROGRAM, str(declarations)],
        "call": [sys.executable, "-c", CALL_PROGRAM],
        "server": [upstream["command"], *upstream["args"]],
    }
    tree: dict[str, Any] = {}
    for command, words in lines.items():
        *sections, key = SPELLINGS[command][spellings[command]]
        section_values = tree
        for section in sections:
            section_values = section_values.setdefault(section, {})
        section_values[key] = shlex.join(words)
    return write_config(folder, tree)


async def accept(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context, params
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def observe(root: Path, config: Path) -> Observation:
    """Serve these settings to a client that lists all tools and calls two that are not built in."""
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state(), folder=str(root))
    assert report.warnings == ()
    app = App(report, "stdio")
    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(in_process(app), mode=HANDSHAKE, cache=None, elicitation_callback=accept) as client,
        ):
            listed_tools = (await client.list_tools()).tools
            results = [
                await client.call_tool("shout", {"what": "hello"}),
                await client.call_tool("mcp__echo", {"text": "hello"}),
            ]
            return Observation(
                [(tool.name, tool.description, tool.parameter_schema) for tool in app.registry.get_all_tools()],
                {tool.name: type(tool) for tool in app.registry.get_all_tools()},
                listed_tools,
                [str(result.content) for result in results],
            )


@pytest.mark.requirement("settings.commands")
@pytest.mark.parametrize("command", SPELLINGS)
async def test_every_spelling_of_a_command_gives_the_same_registry(command: str, root: Path, tmp_path: Path) -> None:
    defaults = dict.fromkeys(SPELLINGS, SECTIONS)
    observation, *other_observations = [
        await observe(root, write_settings(tmp_path, {**defaults, command: spelling}))
        for spelling in (SECTIONS, FLAT, DOCUMENTED)
    ]
    built_in = [tool.name for tool in builtin_tools()]
    names = [name for name, _, _ in observation.definitions]
    assert names[: len(built_in)] == built_in
    assert {"shout", "mcp__echo", "mcp__picture"} <= set(names)
    assert {name: kind for name, kind in observation.kinds.items() if name not in built_in} == {
        name: DiscoveredTool if name == "shout" else DiscoveredMCPTool for name in names[len(built_in) :]
    }
    (schema,) = [schema for name, _, schema in observation.definitions if name == "shout"]
    assert schema["properties"] == {"what": {"type": "string"}}
    assert {"shout", "mcp__echo"} <= {tool.name for tool in observation.listed_tools}
    assert "SHOUT" in observation.answers[0]
    assert '"what": "hello"' in observation.answers[0]
    assert "hello" in observation.answers[1]
    assert other_observations == [observation, observation]
