"""The demo for `make demo`: a client talks to the installed server over the real stdio transport.

The client lists the tools, searches a small sample project, reads and edits one of its files, and calls a tool of
another MCP server through this one. It answers the questions itself, and prints them. Every step is checked: if one
fails, the script prints a message and exits with 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections import defaultdict
from pathlib import Path
from typing import cast

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client

COMMAND = Path(sys.executable).with_name("coretools-mcp")
UPSTREAM = Path(__file__).with_name("upstream.py")
DEADLINE_SECONDS = 60
"""Far longer than the demo takes; only ends a demo that hangs."""

SAMPLE = {
    "README.md": "# Greetings\n\nSays hello in the terminal.\n",
    "greet.py": 'def greet(name: str) -> str:\n    return f"Helo, {name}!"\n\n\nprint(greet("world"))\n',
    "tests/check.txt": "expected: Hello, world!\n",
}


class DemoError(Exception):
    """A step of the demo failed."""


def main() -> int:
    """Run the demo and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="coretools-demo-") as folder:
        # The real path, as the server will print it.
        place = Path(folder).resolve()
        log = place / "server.administration.log"
        try:
            anyio.run(_demo, place, log)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is told, and with it what the server logged
            print(f"\nThe demo failed: {_message_of(error)}", file=sys.stderr)
            print(log.read_text(encoding="utf-8") if log.exists() else "", file=sys.stderr)
            return 1
    return 0


def _message_of(error: BaseException) -> str:
    """Return a failed step's message, or any other error with its traceback."""
    if isinstance(error, BaseExceptionGroup):
        return _message_of(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return str(error) if isinstance(error, DemoError) else "".join(traceback.format_exception(error))


async def _demo(place: Path, log: Path) -> None:
    project = place / "project"
    for name, text in SAMPLE.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    config = place / "mcp.json"
    settings = {
        "mcpServers": {"demo": {"command": sys.executable, "args": ["-P", str(UPSTREAM)]}},
        # Usually the first list waits only briefly for other servers, and later ones are announced; the demo waits
        # longer.
        "proxy": {"firstListWait": 30_000},
        "tools": {"exclude": ["lsp"]},  # listed only if there is a language server
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    arguments = ["--workspace", str(project), "--config", str(config)]
    _say(f"$ {COMMAND.name} {' '.join(arguments)}")
    # A home of its own: with yours, the server would also start the servers in your settings.
    environment = {"HOME": str(place), "USERPROFILE": str(place), "APPDATA": str(place)}
    parameters = StdioServerParameters(command=str(COMMAND), args=arguments, cwd=str(place), env=environment)
    with log.open("w", encoding="utf-8") as errors, anyio.fail_after(DEADLINE_SECONDS):
        async with Client(stdio_client(parameters, errlog=errors), elicitation_callback=_answer) as client:
            await _story(client, project)


async def _story(client: Client, project: Path) -> None:
    _heading("The tools of this server and of the server behind it")
    tools = (await client.list_tools()).tools
    for group, names in _grouped(tools).items():
        _say(f"{group:<10} {', '.join(names)}")
    _expect({"grep_search", "read_file", "edit", "demo__add"} <= {tool.name for tool in tools}, "tools are missing")

    _heading("Search: who says Helo?")
    matches = await _call(client, "grep_search", {"pattern": "Helo"})
    _expect("greet.py" in matches, "the search did not find greet.py")

    _heading("Read the file")
    source = project / "greet.py"
    _expect("Helo" in await _call(client, "read_file", {"absolute_path": str(source)}), "the file was not read")

    _heading("Fix it: a person sees the change and is asked before anything is written")
    await _call(client, "edit", {"file_path": str(source), "old_string": "Helo", "new_string": "Hello"})

    _heading("The file after the edit")
    after = source.read_text(encoding="utf-8")
    _say(after)
    _expect(after == SAMPLE["greet.py"].replace("Helo", "Hello"), "the file does not contain the change")

    _heading("Call the server behind this one: the same question, the same answer")
    total = await _call(client, "demo__add", {"a": 40, "b": 2})
    _expect("42" in total, "the other server did not add")


def _grouped(tools: list[types.Tool]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        alias, separator, _ = tool.name.partition("__")
        groups[alias if separator else "built in"].append(tool.name)
    return groups


async def _call(client: Client, name: str, arguments: dict[str, object]) -> str:
    """Call a tool, print what the model gets, and return it as text."""
    _say(f"> {name} {json.dumps(arguments)}")
    result = await client.call_tool(name, arguments)
    for_model = [
        block.text
        for block in result.content
        if isinstance(block, types.TextContent) and not (block.annotations and block.annotations.audience == ["user"])
    ]
    text = "\n".join(for_model)
    _say(text)
    _expect(not result.is_error, f"{name} failed")
    return text


async def _answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Stand in for the person: show the question, and allow the action once."""
    del context
    print("\n    The server asks:")
    print("\n".join(f"    | {line}" for line in params.message.splitlines()))
    print("    The person answers: once\n")
    return types.ElicitResult(action="accept", content={"decision": "once"})


def _heading(text: str) -> None:
    print(f"\n== {text}\n")


def _say(text: str) -> None:
    print("\n".join(f"    {line}" for line in text.splitlines()))


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise DemoError(message)


if __name__ == "__main__":
    sys.exit(main())
