"""Calls the tools of any server: finds them by their usual names, and their parameters by their schemas."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.hostile.any_server.wire import WAIT, Connection, Json, answer_of, object_at

NAMES: dict[str, tuple[str, ...]] = {
    "read": ("read_text_file", "read_file", "read", "view_file", "view", "cat", "open_file"),
    "list": ("list_directory", "list_dir", "list_files", "ls", "directory_tree"),
    "write": ("write_file", "write_to_file", "write", "create_file", "save_file"),
    "edit": ("edit_file", "edit", "replace", "edit_block", "str_replace", "search_replace", "replace_in_file"),
    "find": ("glob", "search_files", "find_files", "file_search", "find", "start_search"),
    "grep": ("grep_search", "search_file_content", "grep", "search_code", "ripgrep", "search_content", "start_search"),
    "shell": (
        "run_shell_command", "start_process", "bash", "shell", "run_command", "execute_command", "shell_execute",
        "exec", "terminal",
    ),
    "fetch": ("web_fetch", "fetch", "fetch_url", "read_url", "read_file"),
    "make folder": ("create_directory", "make_directory", "mkdir"),
    "move": ("move_file", "rename_file", "move"),
}  # fmt: skip
"""Uses of tools, each with the names that such tools have, the most usual one first."""

PATHS = ("absolute_path", "file_path", "filepath", "path", "filename", "file", "dir_path", "directory")
CONTENTS = ("content", "contents", "text", "file_text", "data")
OLD = ("old_string", "oldText", "old_text", "old_str", "search", "find", "old")
NEW = ("new_string", "newText", "new_text", "new_str", "replace", "replacement", "new")
PATTERNS = ("pattern", "query", "regex", "search", "name")
COMMANDS = ("command", "cmd", "script", "commandLine")
URLS = ("url", "uri")
TIMES = ("timeout_ms", "timeout")
GATHERING = 12
"""How often to ask for more of a search result, if the server gives it bit by bit."""


@dataclass(frozen=True)
class Answer:
    """A server's answer to a call.

    Args:
        message: The whole answer.
    """

    message: Json

    @property
    def result(self) -> Json:
        """The result, empty where there is none."""
        return self.message.get("result") or {}

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return "error" in self.message or bool(self.result.get("isError"))

    @property
    def text(self) -> str:
        """What a model reads."""
        if "error" in self.message:
            return str(self.message["error"].get("message", ""))
        return "\n".join(str(object_at(block).get("text", "")) for block in list[Any](self.result.get("content") or []))

    @property
    def says_no(self) -> bool:
        """Whether the answer says that the call did not do what was asked."""
        return self.is_error or bool(re.search("not|error|fail|reject|refus|expected|empty", self.text, re.IGNORECASE))

    @property
    def everything(self) -> str:
        """The whole answer as JSON."""
        return json.dumps(self.message)


class Tools:
    """The tools of a server, by their uses.

    Args:
        tools: The list that `tools/list` returned.
    """

    def __init__(self, tools: Iterable[Json]) -> None:
        self.by_name = {str(tool.get("name")): tool for tool in tools}
        self._by_use = {use: name for use, names in NAMES.items() if (name := self._find(use, names)) is not None}

    def _find(self, use: str, names: Sequence[str]) -> str | None:
        exact = [name for name in names if name in self.by_name]
        # A proxy puts the name of the server before that of the tool.
        prefixed = [tool_name for name in names for tool_name in self.by_name if tool_name.endswith(f"_{name}")]
        return next((name for name in (*exact, *prefixed) if self._fits(use, name)), None)

    def _fits(self, use: str, name: str) -> bool:
        """Whether a tool's parameters suit a use; for example, `read_file` can fetch if it has a switch for URLs."""
        properties = self.properties(name)
        parameters = {
            "shell": COMMANDS, "fetch": ("isUrl", *URLS, "prompt"), "find": PATTERNS, "grep": PATTERNS,
            "move": ("source",),
        }.get(use, PATHS)  # fmt: skip
        return any(key in properties for key in parameters)

    def properties(self, name: str) -> Json:
        """Return the properties of a tool's input schema."""
        return object_at(self.by_name[name], "inputSchema", "properties")

    def has(self, use: str) -> bool:
        """Whether there is a tool for a use."""
        return use in self._by_use

    def name(self, use: str) -> str:
        """Return the name of the tool for a use."""
        return self._by_use[use]

    def arguments(self, use: str, **values: Any) -> Json:
        """Return the arguments of a call, under the names that the tool's schema uses.

        Args:
            use: The use of the tool.
            values: What it needs of `path`, `content`, `old`, `new`, `pattern`, `command`, `url`, `seconds`, `to`.
        """
        name = self.name(use)
        properties = self.properties(name)
        spellings = {
            "path": ("source", *PATHS) if use == "move" else PATHS,
            "content": CONTENTS, "old": OLD, "new": NEW, "pattern": PATTERNS, "command": COMMANDS, "url": URLS,
            "to": ("destination", "target", "new_path"), "seconds": TIMES,
        }  # fmt: skip

        arguments: Json = {}
        if use == "edit" and "edits" in properties:
            inner = object_at(properties["edits"], "items", "properties")
            arguments["edits"] = [{_first(OLD, inner): values.pop("old"), _first(NEW, inner): values.pop("new")}]
        if use == "fetch" and "isUrl" in properties:
            arguments |= {"isUrl": True, "path": values.pop("url")}
        elif use == "fetch" and "url" not in properties and "prompt" in properties:
            arguments["prompt"] = f"Fetch {values.pop('url')}"
        if "searchType" in properties:
            arguments["searchType"] = "content" if use == "grep" else "files"
        if use == "write" and "rewrite" in str(properties.get("mode")):
            arguments["mode"] = "rewrite"
        if use == "shell" and "timeout_ms" in properties:
            values.setdefault("seconds", 8)
        for meaning, value in values.items():
            key = _first(spellings[meaning], properties)
            if key is None:
                continue
            is_milliseconds = meaning == "seconds" and (key.endswith("_ms") or "illisecond" in str(properties[key]))
            arguments[key] = value * 1000 if is_milliseconds else value
        return arguments


def _first(spellings: Iterable[str], properties: Json) -> str | None:
    return next((spelling for spelling in spellings if spelling in properties), None)


async def call(connection: Connection, tools: Tools, use: str, values: Json, wait: float = WAIT) -> Answer:
    """Call the tool for a use; if it gives its result bit by bit, gather it."""
    answer = await call_named(connection, tools.name(use), tools.arguments(use, **values), wait)
    return await _gather(connection, tools, use, answer)


async def call_named(connection: Connection, name: str, arguments: Json, wait: float = WAIT) -> Answer:
    """Call a tool by its name."""
    future = await connection.begin("tools/call", {"name": name, "arguments": arguments})
    return Answer(await answer_of(future, f"a call of {name}", wait))


async def _gather(connection: Connection, tools: Tools, use: str, answer: Answer) -> Answer:
    """Return the answer to a search, with the results that the server hands out by session ID."""
    follow_up, session = "get_more_search_results", re.search(r"[Ss]ession(?: ID)?:?\s*(\S+)", answer.text)
    if use not in ("find", "grep") or follow_up not in tools.by_name or session is None:
        return answer
    text = answer.text
    for _ in range(GATHERING):
        page = await call_named(connection, follow_up, {"sessionId": session.group(1), "offset": 0})
        text = f"{answer.text}\n{page.text}"
        if page.is_error or re.search("COMPLETED|completed|finished", page.text):
            break
        await asyncio.sleep(0.25)
    return Answer({"result": {"content": [{"type": "text", "text": text}]}})
