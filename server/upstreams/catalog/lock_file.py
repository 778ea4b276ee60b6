"""Reads, writes and compares `mcp.lock.json`, the record of approved servers and tools.

The file has one hash per field, sorted, one per line, so that a reviewer sees which fields have changed. The number
`formula` in the file stands for the rules that define which fields are hashed, and how. If these rules change,
the number changes too, so that nobody mistakes the different hashes for changes by servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.protocol.json_rpc import Json, as_mapping
from server.settings import UpstreamSettings
from server.settings.document_editor import rewrite
from server.settings.load import MAX_LOCK_BYTES, LockContent
from server.settings.settings_files import LOCK_NAME, read_regular
from server.upstreams.catalog.stored_lists import program_and_address
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType

FORMULA = 1
COMMAND = "coretools-mcp lock"
MAX_PLACE_CHARS = 200  # maximum length, in a message, of a location in the file
MAX_EXECUTABLE_BYTES = 32 << 20  # maximum size of a program to hash

_FIELDS = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
# A change to one of these fields blocks the tool, because models rely on them.
_BLOCKING_FIELDS = frozenset({"description", "inputSchema", "outputSchema"})
WATCHED = ("title", *sorted(_BLOCKING_FIELDS))  # the fields of a tool that models see
_SEPARATE_FIELDS = frozenset({"name", "_meta", *_FIELDS})  # all other fields share one hash
_MERGE_MARK = re.compile(rb"^(?:<<<<<<<|=======|>>>>>>>)", re.MULTILINE)


def hash_of(value: Any) -> str:
    """Return the SHA-256, in hexadecimal, of the value as compact JSON with sorted keys and only ASCII."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def tool_entry(definition: Mapping[str, Any]) -> Json:
    """Return a tool's entry in the file: a hash for each field, and the hints among its annotations in plain text."""
    entry: Json = {name: hash_of(definition[name]) for name in _FIELDS if name in definition}
    meta = as_mapping(definition.get("_meta"))
    # A draft of MCP Apps used the key ui/resourceUri.
    ui = {key: value for key, value in meta.items() if key.partition("/")[0] == "ui"}
    if ui:
        entry["ui"] = hash_of(ui)
    other_fields = {key: value for key, value in definition.items() if key not in _SEPARATE_FIELDS}
    if other_meta := {key: value for key, value in meta.items() if key not in ui}:
        other_fields["_meta"] = other_meta
    if other_fields:
        entry["other"] = hash_of(other_fields)
    annotations = as_mapping(definition.get("annotations"))
    if hints := {hint: annotations[hint] for hint in _HINTS if isinstance(annotations.get(hint), bool)}:
        entry["hints"] = hints
    return entry


def server_entry(
    settings: UpstreamSettings, server_info: Mapping[str, Any], instructions: str, lists: Mapping[str, Iterable[Json]]
) -> Json:
    """Return a server's entry in the file, without the hash of its program.

    Variables in `settings` are unexpanded. `lists` has the server's lists, by their field names in results.
    """
    version = {key: server_info[key] for key in ("name", "version") if isinstance(server_info.get(key), str)}
    entry: Json = {"command": hash_of([settings.transport, *program_and_address(settings)])}
    entry |= {"version": version} if version else {}
    entry |= {"instructions": hash_of(instructions)} if instructions else {}
    sections = (("prompts", "prompts", "name"), ("templates", "resourceTemplates", "uriTemplate"))
    for section, kind, key in sections:
        if hashes := {item[key]: hash_of(item) for item in lists.get(kind, ())}:
            entry[section] = hashes
    return {**entry, "tools": {tool["name"]: tool_entry(tool) for tool in lists.get("tools", ())}}


def executable_hash(entry: UpstreamSettings) -> str:
    """Return the SHA-256 of a program given by its absolute path. Does blocking I/O.

    Returns an empty string if the entry has no absolute path, or if the file is unreadable or too large. A name such as
    `node` is not hashed, because it means a different program on each machine.
    """
    with suppress(OSError, ValueError):
        if entry.transport == "stdio" and entry.command and os.path.isabs(entry.command):
            content = read_regular(entry.command, MAX_EXECUTABLE_BYTES)
            return hashlib.sha256(content).hexdigest() if len(content) <= MAX_EXECUTABLE_BYTES else ""
    return ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a server and its approved state."""

    server: str
    tool: str  # empty if the difference concerns the server itself
    field: str  # empty if the difference concerns the whole tool or the whole server
    change: Literal["new", "gone", "changed", "milder"]
    stops: bool = False  # whether the difference blocks calls to the tool

    def __str__(self) -> str:
        subject = f"{self.server}: " + (f"tool {self.tool}" if self.tool else "the server itself")
        return f"{subject}{f', {self.field}' if self.field else ''}: {self.change}"


def tool_differences(alias: str, name: str, approved: Json | None, now: Json | None) -> Iterator[Difference]:
    """Yield the differences between a tool and its approved state.

    If `approved` is `None`, the tool is not approved; if `now` is `None`, the tool is no longer listed.
    """
    if approved is None or now is None:
        yield Difference(alias, name, "", "gone" if now is None else "new", stops=approved is None)
        return
    for key in sorted(approved.keys() | now.keys()):
        if key != "hints" and approved.get(key) != now.get(key):
            yield Difference(alias, name, key, _change(key, approved, now), stops=key in _BLOCKING_FIELDS)
    before, after = as_mapping(approved.get("hints")), as_mapping(now.get("hints"))
    for hint in _HINTS:
        old_hint, new_hint = before.get(hint), after.get(hint)
        if old_hint is not new_hint:
            # Servers sometimes omit all annotations, for example after a reconnect. This does not block the tool,
            # because the defaults for missing annotations never lead to fewer requests for consent.
            milder = "annotations" in now and {
                "readOnlyHint": new_hint is True,
                "destructiveHint": new_hint is False or old_hint is True,
                "openWorldHint": new_hint is False,
            }.get(hint, False)
            yield Difference(alias, name, f"annotations.{hint}", "milder" if milder else "changed", stops=milder)


def differences(alias: str, approved: Json | None, now: Json | None) -> Iterator[Difference]:
    """Yield the differences between a server and its approved state.

    If `approved` is `None`, the server is not approved; if `now` is `None`, the server is no longer in the settings.
    """
    if approved is None or now is None:
        yield Difference(alias, "", "", "gone" if now is None else "new")
    before, after = approved or Json(), now or Json()
    for key in sorted((before.keys() | after.keys()) - {"tools", "prompts", "templates"}):
        if approved is not None and now is not None and before.get(key) != after.get(key):
            yield Difference(alias, "", key, _change(key, before, after))
    for section in ("prompts", "templates"):
        old, new = as_mapping(before.get(section)), as_mapping(after.get(section))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield Difference(alias, "", f"{section}.{name}", _change(name, old, new))
    old, new = as_mapping(before.get("tools")), as_mapping(after.get("tools"))
    for name in sorted(old.keys() | new.keys()):
        yield from tool_differences(alias, name, old.get(name), new.get(name))


def _change(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Literal["new", "gone", "changed"]:
    return "new" if key not in before else "gone" if key not in after else "changed"


_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class _Hints(_Entry):
    readOnlyHint: bool | None = None  # noqa: N815 - the protocol's name, here and below
    destructiveHint: bool | None = None  # noqa: N815
    idempotentHint: bool | None = None  # noqa: N815
    openWorldHint: bool | None = None  # noqa: N815


class _Tool(_Entry):
    title: _Hash | None = None
    description: _Hash | None = None
    inputSchema: _Hash | None = None  # noqa: N815
    outputSchema: _Hash | None = None  # noqa: N815
    annotations: _Hash | None = None
    icons: _Hash | None = None
    ui: _Hash | None = None
    other: _Hash | None = None
    hints: _Hints | None = None


class _Server(_Entry):
    command: _Hash | None = None
    executable: _Hash | None = None
    version: dict[Literal["name", "version"], str] | None = None
    instructions: _Hash | None = None
    prompts: dict[str, _Hash] | None = None
    templates: dict[str, _Hash] | None = None
    tools: dict[str, _Tool]


class _LockFile(_Entry):
    formula: Literal[1]
    servers: dict[str, _Server]


@dataclass(frozen=True, slots=True)
class Lock:
    """The approvals in the lock file, and any that replicas share. If the file cannot be used, nothing is approved."""

    path: str
    servers: Mapping[str, Json] = field(default_factory=dict[str, Json])
    problem: str = ""  # why the file cannot be used, as the end of a sentence
    digest: str = ""  # digest of a valid file's content
    options: str = field(default="", compare=False)  # the options with which the command uses this file

    def tool(self, alias: str, name: str) -> Json | None:
        return as_mapping(as_mapping(self.servers.get(alias)).get("tools")).get(name)

    @property
    def command(self) -> str:
        return f"{COMMAND}{self.options}"

    @property
    def why_closed(self) -> str:
        """Why no upstream tool is offered, and what to do, in sentences; empty if the file is valid."""
        if not self.problem:
            return ""
        return (
            f"{LOCK_NAME}, next to the settings, lists the approved tools of other servers, but cannot be used: "
            f"{self.problem}. So no tools from other servers are offered. Ask the user to restore the file, or to "
            f"write it again with `{self.command}` in a terminal."
        )


def read_lock(source: LockContent | None, options: str = "") -> Lock | None:
    """Parse the content of a lock file, or return `None` if there is no file. Slow for large files.

    `options` are the command-line options with which `coretools-mcp lock` uses this file.
    """
    if source is None or (source.content is None and not source.problem):
        return None
    if source.content is None:
        return Lock(source.path, problem=source.problem, options=options)
    try:
        digest = hashlib.sha256(source.content).hexdigest()
        return Lock(source.path, parse_lock(source.content), digest=digest, options=options)
    except ValueError as error:
        return Lock(source.path, problem=str(error), options=options)


def parse_lock(content: bytes) -> dict[str, Json]:
    """Parse the servers of a lock file.

    Raises `ValueError` if the file is not valid. The message gives the reason, worded as the end of a sentence.
    """
    try:
        parsed: Any = json.loads(
            content.decode(),
            object_pairs_hook=_without_repetition,
            # Read long numbers as floats, because Python rejects integers with thousands of digits.
            parse_int=lambda digits: int(digits) if len(digits) < 20 else float(digits),
        )
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        if _MERGE_MARK.search(content):
            raise ValueError("it contains merge conflict markers") from None
        position = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"it is not JSON{position}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    formula = as_mapping(parsed).get("formula")
    if isinstance(formula, int | float) and formula != FORMULA:
        raise ValueError(f"its formula ({formula}) differs from the one that this version uses ({FORMULA})")
    try:
        _LockFile.model_validate(parsed)
    except ValidationError as error:
        location = visible_line(".".join(str(key) for key in error.errors()[0]["loc"])[:MAX_PLACE_CHARS])
        raise ValueError(f"the value at {location or 'the top level'} is missing or wrong") from None
    return cast("dict[str, Json]", parsed["servers"])


def _without_repetition(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    # If a name has two values, a reviewer may notice only the first, but the last would be used.
    if len(members) < len(pairs):
        raise ValueError("an object has the same name twice")
    return members


def lock_text(servers: Mapping[str, Json]) -> bytes:
    """Return the content of the file.

    Raises `ValueError` if the file would be too large to read back. The message is worded as the end of a sentence.
    """
    text = f"{json.dumps({'formula': FORMULA, 'servers': servers}, indent=2, sort_keys=True)}\n".encode()
    if len(text) > MAX_LOCK_BYTES:
        largest = max(servers, key=lambda alias: len(json.dumps(servers[alias])))
        raise ValueError(f"it would be longer than {MAX_LOCK_BYTES:,} bytes; the server {largest} needs the most")
    return text


def with_approved(servers: Mapping[str, Json], approvals: Mapping[str, Json]) -> dict[str, Json]:
    """Return `servers` with the tools in `approvals` added or replaced; everything else is unchanged."""
    merged = dict(servers)
    for alias, server in approvals.items():
        entry = servers.get(alias, {"tools": {}})
        merged[alias] = {**entry, "tools": {**entry["tools"], **server["tools"]}}
    return merged


def write_approved(path: str, alias: str, tools: Mapping[str, Json]) -> Lock:
    """Approve these tools of a server in the file; everything else in it is unchanged. Does blocking I/O.

    Raises `ToolError` if the file cannot be used or written.
    """
    servers: dict[str, Json] = {}
    new_content = b""

    def add_approvals(content: bytes) -> bytes:
        nonlocal servers, new_content
        servers = with_approved(parse_lock(content), {alias: {"tools": tools}})
        new_content = lock_text(servers)
        return new_content

    try:
        rewrite(path, add_approvals)
    except ValueError as error:
        reason = str(error)
    except (ToolError, OSError):
        reason = "it cannot be written"
    else:
        return Lock(path, servers, digest=hashlib.sha256(new_content).hexdigest())
    raise ToolError(
        ToolErrorType.FILE_WRITE_FAILURE,
        f"The approval was not saved in {LOCK_NAME} (next to the settings): {reason}. Fix that, then approve again.",
    )
