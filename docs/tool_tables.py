"""Write docs/tools.md from the tools themselves. `--check` only checks that the page is current."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from docs.result_schemas import RESULT_SCHEMAS
from tools.agent_programs import AgentCommand
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import BaseTool, BuiltinTool

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "tools.md"

HEAD = """# Tools

<!-- Written by docs/tool_tables.py from the tools themselves. -->

Each tool is listed under the name that clients call. *Also called* lists names from Qwen Code and Gemini CLI that calls
and rules may use; they are not published. A parameter may also be named in camelCase, or as listed under *Also
accepted*; these names are not published either. An optional parameter that is empty (`null`, `""`, `[]`, or 0 where 0
means nothing) counts as omitted. A tool that changes something refuses unknown parameters, because they may be meant to
limit the change. It accepts unknown ones that ask for its normal behaviour (`append: false`, `overwrite: 1`). A tool
that only reads ignores unknown parameters and says so. A truncated result says how to get the rest; an error has a
stable code and says what to do. Structured results are always complete. Their schemas are documented only here: in the
tool list, they would cost every client tokens.

`task` is offered if the settings define `agents`, `web_search` if there is a provider, `lsp` if there is a language
server, and `skill` if there is a [skill](skills-and-code.md#skills). `ask_user_question` is for clients that show
forms, `enter_plan_mode` for clients whose user can be asked. `--profile core` offers only files, search and commands.
"""


def main(arguments: list[str]) -> int:
    """Bring the page up to date, or with `--check` return 1 if it is not."""
    current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments == ["--check"]:
        return int(page() != current)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def tools() -> list[BaseTool[Any]]:
    """Return every built-in tool; `task` as it is with one configured agent."""
    agents = [AgentCommand(name="reviewer", command="reviewer", description="Reviews changes.")]
    return builtin_tools(agents=agents, programs=_nobody)


def _nobody() -> Any:
    raise NotImplementedError("this page runs no programs")


def table() -> str:
    """Return a Markdown table of the tools: a one-sentence description, and whether a person is asked first."""
    rows = ["| tool | what it does | asked first |", "| --- | --- | --- |"]
    for tool in tools():
        sentence = _cell(re.split(r"(?<=[.:])\s", tool.description.strip(), maxsplit=1)[0].rstrip(".:"))
        rows.append(f"| [`{tool.name}`](#{tool.name}) | {sentence} | {'yes' if tool.asks else 'no'} |")
    return "".join(f"{row}\n" for row in rows)


def page() -> str:
    """Return the whole page: every tool with its parameters, annotations and result."""
    return "\n".join([HEAD, table(), *("\n".join(_section(tool)) for tool in tools())])


def _section(tool: BaseTool[Any]) -> Iterator[str]:
    yield f"## `{tool.name}`\n"
    yield f"{' '.join(tool.description.split())}\n"
    also = ", ".join(f"`{alias}`" for alias in tool.aliases)
    yield f"- Title: {tool.title}. Display name: {tool.display_name}." + (f" Also called: {also}." if also else "")
    yield f"- {_annotations(tool)}"
    yield (
        "- A person is asked first, unless a rule or the approval mode says otherwise."
        if tool.asks
        else ("- Runs without asking, unless a rule says otherwise.")
    )
    spellings: Mapping[str, str] = tool.parameter_aliases if isinstance(tool, BuiltinTool) else {}
    if spellings:
        yield (
            "- Also accepted: " + ", ".join(f"`{spelling}` for `{ours}`" for spelling, ours in spellings.items()) + "."
        )
    yield ""
    yield from _rows(tool.parameter_schema, "parameter")
    if tool.name in RESULT_SCHEMAS:
        yield "Structured result:\n"
        yield from _rows(RESULT_SCHEMAS[tool.name], "field")


def _annotations(tool: BaseTool[Any]) -> str:
    behaviour = tool.behaviour
    parts = [
        "Read-only" if behaviour.read_only else "Changes something",
        *(["may destroy data"] if behaviour.destructive else []),
        *(["changes nothing more if repeated"] if behaviour.idempotent and not behaviour.read_only else []),
        *(["reaches beyond this machine"] if behaviour.open_world else []),
    ]
    return f"{', '.join(parts)}."


def _rows(schema: Mapping[str, Any], kind: str) -> Iterator[str]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    if not properties:
        yield f"No {kind}s.\n"
        return
    required = set(schema.get("required", ()))
    yield f"| {kind} | type | {'required' if kind == 'parameter' else 'always present'} | description |"
    yield "| --- | --- | --- | --- |"
    for name, value in properties.items():
        default = f" Default: `{value['default']}`." if value.get("default") not in (None, "", []) else ""
        description = _cell(str(value.get("description", "")))
        yield f"| `{name}` | {_type(value)} | {'yes' if name in required else 'no'} | {description}{default} |"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(str(option) for option in cast("list[object]", kind) if option != "null")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
