"""What the discovery command prints, as declarations of tools. What is wrong with one leaves the others alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tools.contract.display import visible
from tools.contract.file_names_in_text import brief, one_line
from tools.discovery.argument_check import ArgumentCheck, load
from tools.discovery.json_text import UnreadableError, read_json, require_sendable
from tools.discovery.schema import NO_PARAMETERS, SchemaError, readable_schema


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """What is known of a custom tool."""

    name: str  # its name for clients
    called: str  # its name for the call command
    title: str  # its name for people
    description: str  # what it does; may be empty
    schema: Mapping[str, Any]  # JSON Schema of its parameters
    check: ArgumentCheck = field(compare=False, repr=False)  # holds arguments against the schema
    size: int  # characters that it takes in a list of tools


MAX_TOOLS = 1_000  # more tools than any model is helped by; that many are listed in a fraction of a second
MAX_NAME = 64  # characters of a published name: what the models' own interfaces take
MAX_DECLARATION_CHARS = 64_000  # characters of one tool's description and schema
MAX_LISTED_CHARS = 2_000_000  # the same for all tools together, since each list of tools holds them
MAX_WARNINGS = 20  # warnings that are kept; of further ones only the number
SHAPE = 'an array of function declarations, such as [{"name": "...", "description": "...", "parameters": {...}}]'
_HINT = "Let it print nothing but JSON on standard output; its messages belong on standard error."
_FULL = f"at most {MAX_TOOLS:,} tools and {MAX_LISTED_CHARS:,} characters are taken"
_WRAPPERS = ("function_declarations", "functionDeclarations")
# Where the schema may stand; the first that is there counts.
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters", "inputSchema", "input_schema")
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]|_(?=_)")
OF_SERVERS = "mcp_"
# How rules call the tools of other servers: `mcp_server_tool`, `mcp__server__tool`, `server__tool`. A custom tool of
# such a name would be taken for one of them.
BETWEEN = "__"

# What other coding agents call tools that they have built in, besides the names that those here answer to.
OF_CODING_AGENTS = frozenset(
    {"apply_patch", "exec_command", "KillBash", "local_shell", "NotebookEdit", "NotebookRead", "patch", "TodoRead"}
)


class DiscoveryError(Exception):
    """No tools could be discovered; `message` says why, and what to do, as sentences for the operator."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(slots=True)
class Declarations:
    """What was declared."""

    # By the names under which they are published, in the order of the declarations.
    tools: dict[str, DeclaredTool] = field(default_factory=dict[str, DeclaredTool])
    warnings: list[str] = field(default_factory=list[str])  # what was left out or changed, and why
    unnamed_warnings: int = 0  # how many more warnings there were

    def warn(self, warning: str) -> None:
        """Keep a warning."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(warning)
        else:
            self.unnamed_warnings += 1


class _LeftOutError(Exception):
    """A declaration is left out; the message says why, as the end of a sentence."""


def read_declarations(printed: bytes, reserved: frozenset[str]) -> Declarations:
    """The tools that a text declares. Blocking: it checks each schema.

    Args:
        printed: What the discovery command has printed.
        reserved: Names that other tools have, or that rules give them. Nobody tells names apart by their case, so
            they are taken in every spelling of it.

    Raises:
        DiscoveryError: It is not a list of declarations.
    """
    text = printed.decode("utf-8-sig", "replace").strip()
    if not text:
        raise DiscoveryError(f"The discovery command printed nothing. Let it print {SHAPE}.")
    try:
        value: Any = read_json(text)
    except UnreadableError as error:
        raise DiscoveryError(f"What the discovery command printed cannot be used: {error}. {_HINT}") from None
    if isinstance(value, dict) and any(key in value for key in _WRAPPERS):
        value = cast("list[Any]", [value])
    if not isinstance(value, list):
        raise DiscoveryError(f"The discovery command printed JSON that is not an array. Let it print {SHAPE}.")
    found = Declarations()
    declarations: list[Any] = []
    for number, entry in enumerate(cast("list[Any]", value), start=1):
        fields: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        wrapper = next((key for key in _WRAPPERS if key in fields), None)
        if wrapper is None:
            declarations.append(entry)
        elif isinstance(fields[wrapper], list):
            declarations += cast("list[Any]", fields[wrapper])
        else:
            found.warn(f"Entry {number} is left out: its {wrapper} is not an array.")
    taken = frozenset(name.casefold() for name in (*reserved, *OF_CODING_AGENTS))
    chars_left = MAX_LISTED_CHARS
    for number, declaration in enumerate(declarations, start=1):
        fields = cast("dict[str, Any]", declaration) if isinstance(declaration, dict) else {}
        called: Any = fields.get("name")
        try:
            if len(found.tools) == MAX_TOOLS:
                raise _LeftOutError(_FULL)  # noqa: TRY301 - before it is looked at, which takes a while
            tool = _read(declaration, taken)
            if tool.name in found.tools:
                raise _LeftOutError("another one before it has this name")  # noqa: TRY301 - as the others
            if tool.size > chars_left:
                raise _LeftOutError(_FULL)  # noqa: TRY301 - as the others
        except _LeftOutError as reason:
            which = f" ('{brief(called)}')" if isinstance(called, str) else ""
            found.warn(f"Declaration {number}{which} is left out: {reason}.")
            continue
        chars_left -= tool.size
        found.tools[tool.name] = tool
        if tool.name != tool.called:
            found.warn(
                f"'{brief(tool.called)}' is published as '{tool.name}': names hold A-Z a-z 0-9 _ . -, no {BETWEEN}, "
                f"and at most {MAX_NAME}."
            )
    if found.tools:
        load()
    return found


def _read(declaration: Any, taken: frozenset[str]) -> DeclaredTool:
    """One tool; `taken` holds names in small letters."""
    if not isinstance(declaration, dict):
        raise _LeftOutError("it is not an object")
    fields = cast("dict[str, Any]", declaration)
    called = fields.get("name")
    if not isinstance(called, str) or not called:
        raise _LeftOutError("it has no name")
    if called.startswith("-"):
        raise _LeftOutError("the call command would take its name for an option")
    if not called.isprintable():
        raise _LeftOutError("its name has characters that cannot be seen")
    name = called
    if not _NAME.fullmatch(called) or BETWEEN in called:
        # A short hash keeps the published name the same, whatever else is declared.
        digest = hashlib.sha256(called.encode()).hexdigest()[:8]
        name = f"{_NOT_IN_NAMES.sub('-', called)[: MAX_NAME - len(digest) - 1]}-{digest}"
    if name.casefold() in taken or called.casefold() in taken:
        raise _LeftOutError("a built-in tool has this name in some spelling, or rules or models call built-in tools so")
    if called.casefold().startswith(OF_SERVERS):
        raise _LeftOutError(f"rules call the tools of servers so; give it a name that does not begin with {OF_SERVERS}")
    texts = {key: text for key in ("title", "description") if isinstance(text := fields.get(key), str)}
    description = visible(texts.get("description", ""))
    key = next((key for key in _SCHEMAS if fields.get(key) is not None), None)
    raw: Any = NO_PARAMETERS if key is None else fields[key]
    if not isinstance(raw, dict):
        raise _LeftOutError(f"its {key} is not an object")
    try:
        require_sendable(raw)
        schema = readable_schema(cast("dict[str, Any]", raw))
    except (SchemaError, UnreadableError) as error:
        raise _LeftOutError(str(error)) from None
    size = len(name) + len(description) + len(json.dumps(schema, ensure_ascii=False))
    if size > MAX_DECLARATION_CHARS:
        raise _LeftOutError(f"it has more than {MAX_DECLARATION_CHARS:,} characters")
    title = one_line(texts.get("title") or called)[:MAX_NAME]
    return DeclaredTool(name, called, title, description, schema, ArgumentCheck(schema), size)
