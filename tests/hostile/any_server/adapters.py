"""How the tools of a server are called, whatever they are named: by their names, and by what their schemas ask for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.hostile.any_server.wire import WAIT, Connection, Json, answer_of, inside

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
"""What a tool is for, and the names that such tools have, the usual one first."""

PATHS = ("absolute_path", "file_path", "filepath", "path", "filename", "file", "dir_path", "directory")
CONTENTS = ("content", "contents", "text", "file_text", "data")
OLD = ("old_string", "oldText", "old_text", "old_str", "search", "find", "old")
NEW = ("new_string", "newText", "new_text", "new_str", "replace", "replacement", "new")
PATTERNS = ("pattern", "query", "regex", "search", "name")
COMMANDS = ("command", "cmd", "script", "commandLine")
URLS = ("url", "uri")
TIMES = ("timeout_ms", "timeout")
GATHERING = 12
"""How often more of the result of a search or a process is asked for, where a server gives it bit by bit."""


@dataclass(frozen=True)
class Answer:
    """What a server gave back for a call.

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
        return "\n".join(str(inside(block).get("text", "")) for block in list[Any](self.result.get("content") or []))

    @property
    def says_no(self) -> bool:
        """Whether it tells that the call did not do what was asked."""
        return self.is_error or bool(re.search("not|error|fail|reject|refus|expected|empty", self.text, re.IGNORECASE))

    @property
    def everything(self) -> str:
        """All that came back."""
        return json.dumps(self.message)


class Tools:
    """The tools of a server, by what they are for.

    Args:
        listed: What `tools/list` gave.
    """

    def __init__(self, listed: Iterable[Json]) -> None:
        self.listed = {str(tool.get("name")): tool for tool in listed}
        self._by_use = {use: found for use, names in NAMES.items() if (found := self._find(use, names)) is not None}

    def _find(self, use: str, names: Sequence[str]) -> str | None:
        exact = [name for name in names if name in self.listed]
        # A proxy puts the name of the server before that of the tool.
        behind = [listed for name in names for listed in self.listed if listed.endswith(f"_{name}")]
        return next((name for name in (*exact, *behind) if self._fits(use, name)), None)

    def _fits(self, use: str, name: str) -> bool:
        """Whether its parameters are those of such a tool; `read_file` fetches where it has a switch for URLs."""
        has = self.properties(name)
        needed = {
            "shell": COMMANDS, "fetch": ("isUrl", *URLS, "prompt"), "find": PATTERNS, "grep": PATTERNS,
            "move": ("source",),
        }.get(use, PATHS)  # fmt: skip
        return any(key in has for key in needed)

    def properties(self, name: str) -> Json:
        """The parameters of a tool."""
        return inside(self.listed[name], "inputSchema", "properties")

    def has(self, use: str) -> bool:
        """Whether there is a tool for it."""
        return use in self._by_use

    def name(self, use: str) -> str:
        """The tool for it."""
        return self._by_use[use]

    def arguments(self, use: str, **given: Any) -> Json:
        """The arguments of a call, from what every such call has to tell.

        Args:
            use: What the tool is for.
            given: Of `path`, `content`, `old`, `new`, `pattern`, `command`, `url`, `seconds`, `to` what is needed.
        """
        name = self.name(use)
        has = self.properties(name)
        spelled = {
            "path": ("source", *PATHS) if use == "move" else PATHS,
            "content": CONTENTS, "old": OLD, "new": NEW, "pattern": PATTERNS, "command": COMMANDS, "url": URLS,
            "to": ("destination", "target", "new_path"), "seconds": TIMES,
        }  # fmt: skip
        values = dict(given)
        made: Json = {}
        if use == "edit" and "edits" in has:
            inner = inside(has["edits"], "items", "properties")
            made["edits"] = [{_first(OLD, inner): values.pop("old"), _first(NEW, inner): values.pop("new")}]
        if use == "fetch" and "isUrl" in has:
            made |= {"isUrl": True, "path": values.pop("url")}
        elif use == "fetch" and "url" not in has and "prompt" in has:
            made["prompt"] = f"Fetch {values.pop('url')}"
        if "searchType" in has:
            made["searchType"] = "content" if use == "grep" else "files"
        if use == "write" and "rewrite" in str(has.get("mode")):
            made["mode"] = "rewrite"
        if use == "shell" and "timeout_ms" in has:
            values.setdefault("seconds", 8)
        for what, value in values.items():
            key = _first(spelled[what], has)
            if key is None:
                continue
            is_short = what == "seconds" and (key.endswith("_ms") or "illisecond" in str(has[key]))
            made[key] = value * 1000 if is_short else value
        return made


def _first(spellings: Iterable[str], has: Json) -> str | None:
    return next((spelling for spelling in spellings if spelling in has), None)


async def call(connection: Connection, tools: Tools, use: str, given: Json, wait: float = WAIT) -> Answer:
    """Call the tool for something, and gather what it gives bit by bit."""
    answer = await call_named(connection, tools.name(use), tools.arguments(use, **given), wait)
    return await _gather(connection, tools, use, answer)


async def call_named(connection: Connection, name: str, arguments: Json, wait: float = WAIT) -> Answer:
    """Call a tool by its name."""
    future = await connection.begin("tools/call", {"name": name, "arguments": arguments})
    return Answer(await answer_of(future, f"a call of {name}", wait))


async def _gather(connection: Connection, tools: Tools, use: str, answer: Answer) -> Answer:
    """The rest of what a search gives under its number."""
    more, found = "get_more_search_results", re.search(r"[Ss]ession(?: ID)?:?\s*(\S+)", answer.text)
    if use not in ("find", "grep") or more not in tools.listed or found is None:
        return answer
    text = answer.text
    for _ in range(GATHERING):
        page = await call_named(connection, more, {"sessionId": found.group(1), "offset": 0})
        text = f"{answer.text}\n{page.text}"
        if page.is_error or re.search("COMPLETED|completed|finished", page.text):
            break
        await asyncio.sleep(0.25)
    return Answer({"result": {"content": [{"type": "text", "text": text}]}})
