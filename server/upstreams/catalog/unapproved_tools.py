"""The placeholder for a tool whose current version is not approved: calling it asks for approval."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from server.protocol.json_rpc import Json, as_mapping
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import COMMAND, Difference, Lock, hash_of
from server.upstreams.catalog.upstream_tool import Arguments, Definition, DiscoveredMCPTool, UpstreamCall
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import ApprovalConfirmation, ConfirmationDetails
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    """The reason why a tool is blocked, and its placeholder."""

    definition: Definition  # the placeholder's definition, in this server's words
    shown: Definition  # the tool's definition, with invisible characters marked
    entry: Json  # the entry that the lock file gets if this version is approved
    standing: str  # "new", "changed" with the fields, or "closed" if the lock file cannot be used
    closed: str  # why nothing can be approved, and what to do; empty if the lock file can be used
    version: str  # a hash of the tool, its entry and the reason


def stop_of(alias: str, shown: Definition, entry: Json, found: Iterable[Difference], lock: Lock) -> Stop | None:
    """Return the block on a tool, or `None` if the tool is approved.

    Apart from the name, no text in the placeholder comes from the server.
    """
    name = shown["name"]
    stopping = [each for each in found if each.stops]
    if not stopping and not lock.problem:
        return None
    fields = ", ".join(each.field for each in stopping)
    told = f"has added this tool since its tools were approved ({LOCK_NAME})"
    if fields:
        told = f"has changed this tool ({fields}) since it was approved ({LOCK_NAME})"
    description = (
        f"The server {alias} {told}. Calling it, without arguments, asks the user to approve its current version; "
        "its description and arguments are listed after that."
    )
    definition: Json = {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}
    visibility: Any = as_mapping(as_mapping(shown.get("_meta")).get("ui")).get("visibility")
    if visibility in (["app"], ["model"], ["app", "model"], ["model", "app"]):
        definition["_meta"] = {"ui": {"visibility": visibility}}
    standing = "closed" if lock.problem else "new" if not fields else f"changed ({fields})"
    version = f"lock-{hash_of([alias, name, entry, standing, lock.problem])}"
    return Stop(definition, shown, entry, standing, lock.why_closed, version)


class StoppedMCPTool(DiscoveredMCPTool):
    """The placeholder for a blocked tool: calling it asks for approval, and does not reach the server.

    Args:
        approve: Approves the tool as it was shown; runs instead of a call.
        is_current: Returns whether the tool is still blocked for the same reason.
        in_file: Whether approvals go into the lock file. If they go into the store, the command that writes
            approvals to the file is not suggested, because a change to the file invalidates the approvals in the store.
    """

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        stop: Stop,
        bare_name: str,
        approve: UpstreamCall,
        is_current: Callable[[str, str, str], bool],
        *,
        in_file: bool = True,
    ) -> None:
        super().__init__(alias, exposed_name, stop.definition, trusted=False, call=approve, bare_name=bare_name)
        self.stop = stop
        self.version = stop.version
        self._is_current = is_current
        self._in_file = in_file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoppedMCPTool) and self.version == other.version and super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        del params, context
        return f"Approve the current version of {self.upstream_name} of the server {self.alias}"

    def why_asked_again(self, client_key: str) -> str:
        del client_key
        if self.stop.closed:
            return f"{LOCK_NAME} cannot be used"
        what = "added" if self.stop.standing == "new" else "changed"
        return f"the server {self.alias} has {what} this tool since its tools were approved in {LOCK_NAME}"

    def consented(self, client_key: str) -> None:
        """Do nothing: an approval applies to everybody, so nothing is recorded per client."""

    def why_outdated(self) -> str:
        if self._is_current(self.alias, self.upstream_name, self.version):
            return ""
        return f"the server {self.alias} has changed this tool since, or it was approved in the meantime"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        del params, context
        if self.stop.closed:
            raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, self.stop.closed)
        command = f"with `{COMMAND} --approve {shlex.quote(self.name)}` in a terminal, or " if self._in_file else ""
        return ApprovalConfirmation(
            title=f"Approve a tool of the MCP server {self.alias}",
            prompt=self.words,
            way_out=f"The user can approve it {command}on the dashboard (`coretools-mcp dashboard`), but nowhere else.",
        )

    @property
    def words(self) -> str:
        """The current version of the tool, for the person who approves it."""
        shown = self.stop.shown
        parts = [f"Server: {visible_line(self.alias)}", f"Tool: {visible_line(self.upstream_name)}"]
        # Indent the description, so that none of its lines looks like a heading of this text.
        description = textwrap.indent(str(shown.get("description") or "(none)"), "  ")
        parts += [f"State: {self.stop.standing}", "Its description now:", description]
        parts += ["Its arguments now:", json.dumps(shown.get("inputSchema"), indent=1, ensure_ascii=False)]
        if "outputSchema" in shown:
            parts += ["Its results now:", json.dumps(shown["outputSchema"], indent=1, ensure_ascii=False)]
        if "annotations" in shown:
            parts.append(f"Its annotations now: {json.dumps(shown['annotations'], ensure_ascii=False)}")
        return "\n".join(parts)
