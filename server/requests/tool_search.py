"""Tool search: three tools replace the upstreams' tools in the list, if listing them all would cost too much.

`search_tools` finds tools, `describe_tool` describes one, and `call_tool` calls it. The tool list does not change with
the search results, because prompt caches depend on it. `ToolRequests.dispatch` first turns a `call_tool` into a call to
the tool that it names, so the rules, questions and limits of that tool apply. A client that decides in its own dialog
sees `call_tool` there, annotated as the most dangerous kind of tool. If a person always allows `call_tool` in that
dialog, every tool that `call_tool` can call is allowed. `tools.call.consent.require_consent` lets the dialog decide
about a `call_tool` only if it may decide about the tool that is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import anyio

from server.protocol.json_rpc import Json, as_list, as_mapping
from server.protocol.request_table import RequestContext
from server.upstreams.catalog.published_names import MAX_NAME, SEARCH_NAMES
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool, is_for
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.connections.tool_owner import owner_of, owner_of_tool, wait_for_owner
from server.upstreams.session.list_reader import in_turns
from server.upstreams.wire.origin_meta import chain_of
from tools.call.base_tool import REMARKS, BaseTool
from tools.call.consent import refuse
from tools.call.tool_registry import ToolRegistry
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType, ToolNotRegisteredError
from tools.contract.tool_parameters import about_unknown, coerce, object_schema
from tools.contract.tool_results import ToolResult
from tools.discovery.discovery_commands import UnusableError, require_sendable
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import ALL_RIGHTS, PermissionPolicy, Rights
from tools.permissions.verdict import Permission

if TYPE_CHECKING:
    from server.upstreams.catalog.tool_index import ToolIndex

SEARCH, DESCRIBE, CALL = SEARCH_NAMES
LARGE_CHARS = 40_000
"""In mode `auto`, tool search is used only if the definitions to hide have at least this many characters of JSON.
That is about 10,000 tokens, or 5 % of a context of 200,000 tokens, or some 50 tools, above which models are said to
make worse choices.
"""
SEARCHING_CLIENTS = ("claude-code", "codex", "qwen-cli-mcp-client", "github-copilot-developer", "eca ")
"""Lower-case prefixes of the names of clients that defer tools and have their own search."""
DEFAULT_RESULTS, MAX_RESULTS = 5, 20  # default and maximum for `limit`, the number of tools to find, as in Qwen Code
MAX_SERVER_CHARS = 3_600  # length above which the server list in the description is truncated
MAX_ABOUT_CHARS = 100  # length above which a server's description in that list is truncated; less with many servers
MAX_LINE_CHARS = 200  # length above which the description of each tool that is found is truncated
MAX_ARGUMENTS = 8  # maximum number of arguments named for each tool that is found


@dataclass(slots=True)
class ToolSearch:
    """Decides which tools are hidden from which client's list, and provides the three search tools."""

    mode: Literal["auto", "on", "off"]
    registry: ToolRegistry
    policy: PermissionPolicy
    pool: UpstreamPool
    _is_large: bool | None = None  # whether the lists are too large for clients; never reset once true
    _version: int = 0  # the number of changes to the tools or their rules
    _index: tuple[ToolIndex, list[DiscoveredMCPTool]] | None = None  # the index at `_version`, and the indexed tools
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    def changed(self) -> None:
        """Record that the tools, or the rules about them, have changed."""
        self._version += 1
        self._index = None  # drop the last references to the old tools
        self._is_large = self._is_large or None

    def is_on(self, ctx: RequestContext, *, is_call: bool = False) -> bool:
        """Return whether a request's client uses this server's tool search. Another coretools-mcp never does.

        `is_call` means that the client calls a search tool, which it may know from an earlier run.
        """
        if self.mode == "off" or not self.pool.upstreams or chain_of(as_mapping(as_mapping(ctx.params).get("_meta"))):
            return False
        if self.mode == "on":
            return True
        if ctx.connection.client_name.lower().startswith(SEARCHING_CLIENTS):
            return False
        if is_call and not self.pool.is_settled:
            return True
        if self._is_large is None:
            chars = 0
            for tool in self.registry.get_all_tools():
                if self.is_hidden(tool) and self._is_callable(tool, ALL_RIGHTS):
                    chars += len(json.dumps(tool.definition, ensure_ascii=False, separators=(",", ":")))
                    if chars >= LARGE_CHARS:
                        break
            self._is_large = chars >= LARGE_CHARS
        return self._is_large

    def is_hidden(self, tool: BaseTool[Any] | None) -> TypeGuard[DiscoveredMCPTool]:
        """Return whether tool search hides a tool. Tools that only apps may call stay visible to hosts."""
        if not isinstance(tool, DiscoveredMCPTool) or not is_for("model", tool.definition):
            return False
        owner = owner_of_tool(self.pool, tool)
        if owner is None or owner.is_login_offered:
            return owner is None
        always_load = owner.entry.always_load
        is_always_loaded = (
            owner.entry.trust and as_mapping(tool.definition.get("_meta")).get("anthropic/alwaysLoad") is True
        )
        return not is_always_loaded and {"*", tool.upstream_name, tool.name}.isdisjoint(always_load)

    def _is_callable(self, tool: BaseTool[Any] | None, rights: Rights) -> TypeGuard[DiscoveredMCPTool]:
        """Return whether a model may call a tool of an upstream, even if tool search hides the tool."""
        if not isinstance(tool, DiscoveredMCPTool) or not is_for("model", tool.definition):
            return False
        return self.policy.why_not_offered(tool.traits, rights) is None

    def _denial(self, tool: BaseTool[Any] | None, rights: Rights) -> Permission | None:
        """Return why a client may not call a tool of a server that it may otherwise use. Direct calls say it too."""
        if not isinstance(tool, DiscoveredMCPTool) or not is_for("model", tool.definition):
            return None
        if self.policy.why_server_not_offered(tool.alias, rights):
            return None
        return self.policy.why_not_offered(tool.traits, rights)

    def tool_entries(self, rights: Rights) -> list[Json]:
        search = (
            f"Find tools of other servers, which are not in your list of tools. Servers: {self._server_list(rights)}."
        )
        describe = "The whole definition of a tool that search_tools found, with the schema of its arguments."
        about_query = "What the tool does, e.g. 'refund a payment'; or names: 'select:a,b'. +word: must occur."
        query = {"type": "string", "description": about_query}
        limit = {"type": "integer", "default": DEFAULT_RESULTS, "minimum": 1, "maximum": MAX_RESULTS}
        name = {"type": "string", "description": "The name from search_tools."}
        arguments = {"type": "object", "description": "The tool's own arguments."}
        reads = {"readOnlyHint": True, "openWorldHint": False}
        calls = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
        entries: Sequence[tuple[str, str, str, Json, Json]] = (
            (SEARCH, "Search tools", search, {"query": query, "limit": limit}, reads),
            (DESCRIBE, "Describe tool", describe, {"name": name}, reads),
            (CALL, "Call tool", "Call a tool that search_tools found.", {"name": name, "arguments": arguments}, calls),
        )
        return [
            {
                "name": tool_name,
                "title": title,
                "description": description,
                "inputSchema": {**object_schema(properties), "required": [next(iter(properties))]},
                "annotations": annotations,
            }
            for tool_name, title, description, properties, annotations in entries
        ]

    def _server_list(self, rights: Rights) -> str:
        """Return the names of the servers, with the operator's descriptions, as far as they fit."""
        entries = [(upstream.alias, visible_line(upstream.entry.description)) for upstream in self.pool.upstreams]
        entries = [entry for entry in entries if not self.policy.why_server_not_offered(entry[0], rights)]
        # An entry may also have a comma, two spaces, two brackets and an ellipsis, which together are 6 characters.
        room = (MAX_SERVER_CHARS - sum(len(alias) + 6 for alias, _ in entries)) // max(len(entries), 1)
        room = min(room, MAX_ABOUT_CHARS)
        servers = [
            f"{alias} ({_truncate(description, room)})" if description and room > 10 else alias
            for alias, description in entries
        ]
        text = ", ".join(servers) or "none"
        return text if len(text) <= MAX_SERVER_CHARS else f"{text[:MAX_SERVER_CHARS].rpartition(', ')[0]} and more"

    async def answer(
        self, name: str, arguments: Json, definition_of: Callable[[DiscoveredMCPTool], Json], rights: Rights
    ) -> ToolResult:
        """Return the result of `search_tools` or `describe_tool`. `definition_of` returns what clients see of a tool.

        Raises `ToolError` if there is no such tool, or the arguments are invalid.
        """
        await self.pool.wait_for_first_list()
        await self.pool.before_list("tools")
        if name == DESCRIBE:
            return await self._describe(arguments, definition_of, rights)
        return await self._search(arguments, rights)

    async def _search(self, arguments: Json, rights: Rights) -> ToolResult:
        from server.upstreams.catalog.tool_index import MAX_QUERY_CHARS  # noqa: PLC0415 - loaded with the first search

        query = arguments.get("query")
        limit = arguments.get("limit") or DEFAULT_RESULTS  # some models send 0 for "not set"
        if not isinstance(query, str) or not query.strip():
            raise _invalid(SEARCH, "query must be a string that says what the tool does.")
        if len(query) > MAX_QUERY_CHARS:
            raise _invalid(SEARCH, f"the query has {len(query)} characters; the maximum is {MAX_QUERY_CHARS}.")
        if not query.isprintable() and not "".join(query.split()).isprintable():
            raise _invalid(SEARCH, "the query has control characters; search for words.")
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_RESULTS:
            raise _invalid(SEARCH, f"limit must be a whole number from 1 to {MAX_RESULTS}.")
        index, tools = await self._load_index()
        # A denied server may have thousands of tools, and asking the policy about each of them would take too long.
        aliases = [upstream.alias for upstream in self.pool.upstreams]
        permitted = {alias for alias in aliases if not self.policy.why_server_not_offered(alias, rights)}
        numbers = index.find(
            query, limit, lambda number: tools[number].alias in permitted and self._is_current(tools[number], rights)
        )
        matches, near_matches = ([tools[number] for number in part] for part in numbers)
        lines: list[str] = []
        for tool in matches or near_matches:  # each with its arguments, required ones first
            required, names = as_list(tool.parameter_schema.get("required")), list(_parameters_of(tool))
            parameters = [name for name in names if name in required]
            parameters += [f"{name}?" for name in names if name not in required]
            ellipsis = ", …" if len(parameters) > MAX_ARGUMENTS else ""
            arguments_text = (
                f" Arguments: {visible_line(', '.join(parameters[:MAX_ARGUMENTS]))}{ellipsis}." if parameters else ""
            )
            lines.append(f"{tool.name}: {_first_line(tool)}{arguments_text}")
        hint = f"Use {DESCRIBE} to see the whole definition of one, and {CALL} to call it."
        if matches:
            return ToolResult("\n".join([*lines, hint]), structured={"tools": list(map(_summary, matches))})
        message = (
            f"No tool matches '{visible_line(query[:100])}' well. Say in other words what the tool does, and to what. "
            f"The servers are: {self._server_list(rights)}."
        )
        words = query.casefold().split()
        for upstream in self.pool.upstreams:
            if upstream.alias in permitted and upstream.alias.casefold() in words:
                message += f"\n{await self._about_server(upstream, tools, rights)}"
        if near_matches:
            message = "\n".join([message, "The closest tools, which may do something else:", *lines, hint])
        return ToolResult(message, structured={"tools": [], "nearest": list(map(_summary, near_matches))})

    async def _about_server(self, server: Upstream, tools: Sequence[DiscoveredMCPTool], rights: Rights) -> str:
        """Return why a server has no tools now, or else the names of its tools, for a query that names the server."""
        if server.live_session is None:
            return server.unavailable().message
        own_tools = in_turns([tool for tool in tools if tool.alias == server.alias])
        names = [tool.name async for tool in own_tools if self._is_current(tool, rights)]
        ellipsis = ", …" if len(names) > MAX_RESULTS else ""
        return f"The tools of {server.alias} ({len(names)}): {', '.join(names[:MAX_RESULTS]) or 'none'}{ellipsis}."

    async def _describe(
        self, arguments: Json, definition_of: Callable[[DiscoveredMCPTool], Json], rights: Rights
    ) -> ToolResult:
        name = arguments.get("name")
        if not isinstance(name, str) or not name:
            raise _invalid(DESCRIBE, "name must be the name of a tool from search_tools.")
        tool = self.registry.find(name)
        if tool is None:
            index, tools = await self._load_index()
            matches = [
                tools[number]
                for number in index.named_tools(name[:MAX_NAME])
                if self._is_current(tools[number], rights)
            ]
            tool = matches[0] if len(matches) == 1 else None
        if (denial := self._denial(tool, rights)) is not None:
            refuse(denial)
        if not self._is_callable(tool, rights):
            raise self._unknown(name, rights)
        definition = definition_of(tool)
        return ToolResult(json.dumps(definition, ensure_ascii=False), structured=definition)

    def _is_current(self, tool: DiscoveredMCPTool, rights: Rights) -> bool:
        """Return whether an indexed tool is still registered under its name and may be called."""
        return self.registry.find(tool.name) is tool and self._is_callable(tool, rights)

    async def _load_index(self) -> tuple[ToolIndex, list[DiscoveredMCPTool]]:
        from server.upstreams.catalog.tool_index import SearchText, ToolIndex  # noqa: PLC0415 - loaded on first use

        async with self._lock:
            if (index := self._index) is None:
                version = self._version
                tools: list[DiscoveredMCPTool] = []
                async for tool in in_turns(self.registry.get_all_tools()):
                    owner = owner_of_tool(self.pool, tool)
                    # Login tools are omitted, because they are always in the client's own tool list.
                    if self._is_callable(tool, ALL_RIGHTS) and not (owner is not None and owner.is_login_offered):
                        tools.append(tool)

                def text_of(tool: DiscoveredMCPTool) -> SearchText:
                    hint = as_mapping(tool.definition.get("_meta")).get("anthropic/searchHint")
                    return SearchText(
                        tool.name,
                        tool.alias,
                        tool.upstream_name,
                        tool.display_name if tool.definition.get("title") else "",
                        hint if isinstance(hint, str) else "",
                        tool.description,
                        _parameters_of(tool),
                    )

                index = await THREADS.run(lambda: ToolIndex(map(text_of, tools))), tools
                if version == self._version:
                    self._index = index
            return index

    async def unwrap(self, params: Mapping[str, Any], rights: Rights) -> Json:
        """Convert the parameters of `call_tool` to those of the call that it describes.

        Raises:
            ToolError: The tool does not exist, models may not call it, or the arguments of `call_tool` are invalid.
        """
        call_arguments = as_mapping(params.get("arguments"))
        name, arguments = call_arguments.get("name"), coerce(call_arguments.get("arguments"), {"type": "object"})
        arguments = None if arguments in ("", []) else arguments
        if not isinstance(name, str) or not name:
            raise _refusal(
                "call_tool needs the name of a tool, so nothing was called. Use one that search_tools finds."
            )
        if not isinstance(arguments, dict | None):
            raise _refusal(f"The arguments for '{_display_name(name)}' must be an object, so nothing was called.")
        try:
            require_sendable(arguments if isinstance(call_arguments.get("arguments"), str) else None)
        except UnusableError as error:
            raise _refusal(
                f"The arguments for '{_display_name(name)}' cannot be sent, so nothing was called: {error}."
            ) from None
        schema = object_schema({"name": {}, "arguments": {}})
        if problem := about_unknown(CALL, call_arguments, schema, {}, REMARKS, is_refused=True):
            raise _refusal(f"Nothing was called: {problem} Put the tool's own arguments into 'arguments'.")
        tool = self.registry.find(name)
        if name in SEARCH_NAMES or (tool is not None and not isinstance(tool, DiscoveredMCPTool)):
            raise _refusal(
                f"'{_display_name(name)}' is one of this server's own tools, so call_tool does not call it: "
                "call it directly."
            )
        owner = owner_of(self.pool, name)
        # A list from the last run does not show whether models may call the tool now.
        if owner is not None and not owner.tried.is_set() and (tool is None or self._is_callable(tool, rights)):
            owner = await wait_for_owner(self.pool, name, owner)
            tool = self.registry.find(name)
        # If the tool's server is unavailable, or a rule denies the tool, the error is the same as for a direct call.
        is_denied = self._denial(tool, rights) is not None
        if not is_denied and not self._is_callable(tool, rights) and (tool is not None or owner is None):
            raise self._unknown(name, rights)
        other_params = {key: value for key, value in params.items() if key != "arguments"}
        return {**other_params, "name": name} | ({} if arguments is None else {"arguments": arguments})

    def _unknown(self, name: str, rights: Rights) -> ToolNotRegisteredError:
        """Return the error for a name that no callable tool has. The error suggests only callable tools."""
        nearest = self.registry.not_registered(name, lambda tool: self._is_callable(tool, rights)).nearest
        return ToolNotRegisteredError(_display_name(name), nearest)


def _truncate(text: str, room: int) -> str:
    """Truncate text to as many whole words as fit."""
    return text if len(text) <= room else f"{text[:room].rpartition(' ')[0] or text[:room]}…"


def _display_name(name: str) -> str:
    return visible_line(name[:MAX_NAME])


def _summary(tool: DiscoveredMCPTool) -> Json:
    title = {"title": tool.display_name} if tool.definition.get("title") else {}  # a title without hidden characters
    return {"name": tool.name, **title, "description": _first_line(tool), "server": tool.alias}


def _first_line(tool: DiscoveredMCPTool) -> str:
    line = next((line for line in map(str.strip, str(tool.description).splitlines()) if line), "")
    return _truncate(visible_line(line), MAX_LINE_CHARS)


def _parameters_of(tool: DiscoveredMCPTool) -> dict[str, str]:
    """Return the names of a tool's parameters, with their descriptions."""
    properties = as_mapping(tool.parameter_schema.get("properties"))
    descriptions = {name: as_mapping(schema).get("description") for name, schema in properties.items()}
    return {name: text if isinstance(text, str) else "" for name, text in descriptions.items()}


def _invalid(tool: str, reason: str) -> ToolError:
    return ToolError(ToolErrorType.INVALID_TOOL_PARAMS, f"{tool} found nothing: {reason}")


def _refusal(message: str) -> ToolError:
    return ToolError(ToolErrorType.INVALID_TOOL_PARAMS, message)
