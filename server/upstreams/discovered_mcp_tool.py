"""A tool of an upstream server as a tool of ours, under `alias__tool`."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from mcp.shared.inbound import x_mcp_header_map

from server.json_rpc import as_mapping
from server.upstreams.definitions import Known
from server.upstreams.origin import with_origin
from server.upstreams.spelling import full_name, rule_name
from server.upstreams.visible_schemas import with_visible_texts
from tools.contract.base import BaseTool, Behaviour, Kind
from tools.contract.confirmation import ConfirmationDetails, McpConfirmation
from tools.contract.context import ToolContext
from tools.contract.result import ToolResult
from tools.display import visible
from tools.permissions.tool_names import BETWEEN, names_of_server, names_of_upstream_tool

logger = logging.getLogger(__name__)

CLAIMED_KEY = "coretools-mcp/claimedAnnotations"
"""Under this `_meta` key stand the annotations that an untrusted upstream claims for itself."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
"""A token (RFC 9110, 5.6.2); the limit is ours."""

Arguments = Mapping[str, Any]


class DiscoveredMCPTool(BaseTool[Arguments]):
    """Calls one tool of one upstream. The arguments are the upstream's to validate.

    Args:
        alias: The upstream's name in our configuration.
        exposed_name: The name we publish.
        definition: The tool as the upstream lists it, in wire shape.
        trusted: The operator trusts this upstream: no question, and its annotations are published as they are.
        call: Sends the call.
        known: What it was before, and who has agreed to what; `None` for one that was never another. This tool is
            what it is now, and stays that when the upstream changes it.
        shown: The definition with texts that hide nothing, where that is known.
    """

    kind = Kind.OTHER

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        definition: Mapping[str, Any],
        *,
        trusted: bool,
        call: UpstreamCall,
        known: Known | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        self.alias = alias
        self.upstream_name: str = definition["name"]
        self.name = exposed_name
        full = full_name(alias, self.upstream_name)
        self.aliases = () if full == exposed_name else (full,)
        self._shown = with_visible_texts(definition) if shown is None else shown
        self.display_name = self._shown.get("title") or f"{self.upstream_name} ({alias})"
        self.description = self._shown.get("description") or f"Tool {self.upstream_name} of the server {alias}."
        self.definition = definition
        self._known = known
        self._digest = known.now if known is not None else ""
        self.version = f"{known.serial}-{known.now}" if known is not None else ""
        self._trusted = trusted
        self._call = call
        claimed: Mapping[str, Any] = definition.get("annotations") or {}
        self.behaviour = (
            _claimed_behaviour(claimed)
            if trusted
            else Behaviour(read_only=False, destructive=True, idempotent=False, open_world=True)
        )

    def __eq__(self, other: object) -> bool:
        """Equal when a client would see and get the same."""
        return (
            isinstance(other, DiscoveredMCPTool)
            and (self.name, self._trusted) == (other.name, other._trusted)
            and self.definition == other.definition
        )

    def __hash__(self) -> int:
        """By name; definitions are not hashable."""
        return hash(self.name)

    def is_of(self, definition: Mapping[str, Any], call: UpstreamCall, known: Known, *, trusted: bool) -> bool:
        """Whether one that is made of all this would be the same."""
        is_same = self.definition is definition and self._call is call and self._trusted == trusted
        return is_same and self._known is known and self._digest == known.now

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The full name, what it is published as with the alias before it, and how the CLIs call both."""
        names = [rule_name(self.alias, self.upstream_name), *names_of_upstream_tool(self.alias, self.upstream_name)]
        prefix = f"{self.alias}{BETWEEN}"
        if self.name.startswith(prefix):
            names += names_of_upstream_tool(self.alias, self.name.removeprefix(prefix))
        return tuple(dict.fromkeys((*names, *names_of_server(self.alias))))

    @property
    def loose_rule_names(self) -> tuple[str, ...]:
        """What it is published as without the alias: whose name that is changes with what is listed."""
        return () if self.name in self.rule_names else (self.name,)

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """The upstream's own schema; only texts for people may have marks for what is not seen."""
        return self._shown.get("inputSchema") or {"type": "object", "properties": {}}

    @cached_property
    def repeated(self) -> Mapping[tuple[str, ...], str]:
        """Arguments that it wants in HTTP headers too (`x-mcp-header`, 2026-07-28); looked for at the first call."""
        wanted = x_mcp_header_map(as_mapping(self.definition.get("inputSchema")))
        fit = {path: name for path, name in wanted.items() if _HEADER_NAME.fullmatch(name)}
        if len(fit) < len(wanted):
            logger.warning(
                "the tool %s wants arguments in headers under names that HTTP does not allow: these are left out",
                visible(self.upstream_name),
            )
        return fit

    def published(self) -> dict[str, Any]:
        """The tool in wire shape: the upstream's definition under our name."""
        wire = with_origin(self._shown, self.alias, tool=self.upstream_name)
        wire["name"] = self.name
        wire["inputSchema"] = dict(self.parameter_schema)
        if not self._trusted:
            claimed = dict(wire.get("annotations") or {})
            if claimed:
                wire["_meta"][CLAIMED_KEY] = claimed
            wire["annotations"] = {
                **({"title": claimed["title"]} if isinstance(claimed.get("title"), str) else {}),
                "readOnlyHint": False,
                "destructiveHint": True,
                "idempotentHint": False,
                "openWorldHint": True,
            }
        return wire

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> Arguments:
        """Leave the arguments as they are: the upstream validates them."""
        return arguments

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        """Name the server, the tool and the arguments' names."""
        del context
        names = ", ".join(params) or "no arguments"
        return f"Call {self.upstream_name} of the server {self.alias} ({names[:200]})"

    def why_asked_anew(self, client_key: str) -> str:
        """Asked once more after the upstream has changed what models are told of it."""
        if self._known is None or not self._known.is_new_to(client_key, self._digest):
            return ""
        return (
            f"the server {self.alias} has changed this tool (its description or its schema) since it was first listed"
        )

    def consented(self, client_key: str) -> None:
        """This counts as known, whatever the upstream has made of it since."""
        if self._known is not None:
            self._known.agree(client_key, self._digest)

    def why_outdated(self) -> str:
        """Outdated once its upstream has changed it, or is another one."""
        if self._known is None or self._known.now == self._digest:
            return ""
        if not self._known.now:
            return f"the operator has changed the entry of the server {self.alias} since"
        return f"the server {self.alias} has changed this tool since (its description or its schema)"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        """Ask unless the operator trusts the server, and it is as it was."""
        if self._trusted and not self.why_asked_anew(context.client.key):
            return None
        return McpConfirmation(
            title=f"Confirm a call of the MCP server {self.alias}",
            server_name=self.alias,
            tool_name=self.upstream_name,
            arguments=params,
        )

    async def execute(self, params: Arguments, context: ToolContext) -> ToolResult:
        """Send the call to the upstream."""
        return await self._call(self, params, context)


UpstreamCall = Callable[[DiscoveredMCPTool, Arguments, ToolContext], Awaitable[ToolResult]]
"""Sends a call: the tool, the arguments, and what the call acts in."""


def _claimed_behaviour(claimed: Mapping[str, Any]) -> Behaviour:
    read_only = claimed.get("readOnlyHint") is True
    return Behaviour(
        read_only=read_only,
        destructive=not read_only and claimed.get("destructiveHint") is not False,
        idempotent=claimed.get("idempotentHint") is True,
        open_world=claimed.get("openWorldHint") is not False,
    )
