"""Tools that the lock file does not approve: why each is blocked, and the placeholder that asks for its approval."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from server.protocol.json_rpc import Json, as_list, as_mapping
from server.settings.load import why_no_dashboard
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import COMMAND, Difference, Lock, hash_of
from server.upstreams.catalog.upstream_tool import Arguments, DiscoveredMCPTool, UpstreamCall
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import ApprovalConfirmation, ConfirmationDetails
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType

MAX_DATA_CHARS = 100  # how much of an icon's `data:` address a person sees before an approval
# The fields of a tool that have their own headings in the text that a person sees before an approval
_SHOWN_SEPARATELY = frozenset({"name", "description", "inputSchema", "outputSchema", "annotations"})


@dataclass(frozen=True, slots=True, eq=False)
class ToolBlock:
    """Why a tool is blocked, and the definition of the placeholder that clients see instead."""

    definition: Mapping[str, Any]  # the placeholder's definition, in this server's words
    visible_definition: Mapping[str, Any]  # the tool's definition, with invisible characters marked
    entry: Json  # the entry that the lock file gets if this version is approved
    standing: str  # "new", "changed" with the fields, or "closed" if the lock file cannot be used
    lock_problem: str  # why nothing can be approved, and what to do; empty if the lock file can be used
    version: str  # a hash of the server's alias, the tool's name, the entry and the reason


def block_of(
    alias: str, visible_definition: Mapping[str, Any], entry: Json, changes: Iterable[Difference], lock: Lock
) -> ToolBlock | None:
    """Return the reason why a tool is blocked, with its placeholder, or `None` if the tool is approved."""
    # Apart from the name, no text in the placeholder comes from the server.
    name = visible_definition["name"]
    blocking = [change for change in changes if change.stops]
    if not blocking and not lock.problem:
        return None
    fields = ", ".join(change.field for change in blocking)
    reason = f"offers this tool, but nobody has approved it ({LOCK_NAME})"
    if fields:
        reason = f"has changed this tool ({fields}) since it was approved ({LOCK_NAME})"
    description = (
        f"The server {alias} {reason}. Calling it, without arguments, asks the user to approve its current version; "
        "its description and arguments are listed after that."
    )
    definition: Json = {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}
    visibility: Any = as_mapping(as_mapping(visible_definition.get("_meta")).get("ui")).get("visibility")
    if visibility in (["app"], ["model"], ["app", "model"], ["model", "app"]):
        definition["_meta"] = {"ui": {"visibility": visibility}}
    standing = "closed" if lock.problem else "new" if not fields else f"changed ({fields})"
    version = f"lock-{hash_of([alias, name, entry, standing, lock.problem])}"
    return ToolBlock(definition, visible_definition, entry, standing, lock.why_closed, version)


class BlockedMCPTool(DiscoveredMCPTool):
    """The placeholder for a blocked tool: a call to it asks for approval, and does not reach the server.

    Args:
        approve: Approves the tool as it was shown; called instead of the upstream.
        is_current: Returns whether the version with this alias, name and hash is still blocked.
        options: The options with which `coretools-mcp lock` uses the lock file. `None` if approvals go into the store:
            a change to the file invalidates them, so the command is not suggested.
    """

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        block: ToolBlock,
        bare_name: str,
        approve: UpstreamCall,
        is_current: Callable[[str, str, str], bool],
        options: str | None,
    ) -> None:
        super().__init__(alias, exposed_name, block.definition, trusted=False, call=approve, bare_name=bare_name)
        self.block = block
        self.version = block.version
        self._is_current = is_current
        self._options = options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockedMCPTool) and self.version == other.version and super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        del params, context
        return f"Approve the current version of {self.upstream_name} of the server {self.alias}"

    def why_asked_again(self, client_key: str) -> str:
        del client_key
        if self.block.lock_problem:
            return f"{LOCK_NAME} cannot be used"
        if self.block.standing == "new":
            return f"nobody has approved this tool of the server {self.alias} ({LOCK_NAME})"
        return f"the server {self.alias} has changed this tool since it was approved ({LOCK_NAME})"

    def record_consent(self, client_key: str) -> None:
        """Do nothing: an approval applies to everybody, so nothing is recorded per client."""

    def why_outdated(self) -> str:
        if self._is_current(self.alias, self.upstream_name, self.version):
            return ""
        return f"the server {self.alias} has changed this tool in the meantime, or somebody has approved it"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        del params, context
        if self.block.lock_problem:
            raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, self.block.lock_problem)
        ways: list[str] = []
        if self._options is not None:
            ways.append(f"with `{COMMAND} --approve {shlex.quote(self.name)}{self._options}` in a terminal")
        if why_no_dashboard() is None:
            ways.append("on the dashboard (`coretools-mcp dashboard`)")
        return ApprovalConfirmation(
            title=f"Approve a tool of the MCP server {self.alias}",
            prompt=self.words,
            way_out=f"The user can approve it {', or '.join(ways)}." if ways else "",
        )

    @property
    def words(self) -> str:
        """A description of the tool's current version, for the person who approves it."""
        definition = self.block.visible_definition
        parts = [f"Server: {visible_line(self.alias)}", f"Tool: {visible_line(self.upstream_name)}"]
        # Indent the description, so that none of its lines looks like a heading of this text.
        description = textwrap.indent(str(definition.get("description") or "(none)"), "  ")
        parts += [f"State: {self.block.standing}", "Its description now:", description]
        parts += ["Its arguments now:", json.dumps(definition.get("inputSchema"), indent=1, ensure_ascii=False)]
        if "outputSchema" in definition:
            parts += ["Its results now:", json.dumps(definition["outputSchema"], indent=1, ensure_ascii=False)]
        if "annotations" in definition:
            parts.append(f"Its annotations now: {json.dumps(definition['annotations'], ensure_ascii=False)}")
        other_fields = {key: value for key, value in definition.items() if key not in _SHOWN_SEPARATELY}
        icons: list[Any] = []
        for icon in as_list(other_fields.get("icons")):
            source = as_mapping(icon).get("src")
            if isinstance(source, str) and len(source) > MAX_DATA_CHARS and source[:5].lower() == "data:":
                # Nobody can read the content of a `data:` address.
                icons.append({**icon, "src": f"{source[:MAX_DATA_CHARS]}... ({len(source)} characters)"})
            else:
                icons.append(icon)
        if icons:
            other_fields["icons"] = icons
        if other_fields:
            parts.append(f"Its other fields now: {json.dumps(other_fields, ensure_ascii=False)}")
        parts.append("Later, only changes to the description, arguments or results, or a claim of less risk, block it.")
        return "\n".join(parts)
