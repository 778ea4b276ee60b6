"""The SDK's server as every transport serves it: what it announces, and what it says of itself."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from server.clients import RequestContext
from server.sdk_seams import connection_of
from server.settings import SettingsReport

INSTRUCTIONS = (
    "Tools for the files of the workspace: list_directory, glob and grep_search find, read_file and read_many_files "
    "read, edit and write_file change, run_shell_command runs commands, in the background too. web_search and "
    "web_fetch reach the web, save_memory keeps facts for later conversations, todo_write the plan of this one. Paths "
    "may be absolute or relative to the first workspace folder. Large results are cut, and say how to get the rest. "
    "What changes something or leaves this machine may be shown to the user for consent first; a refused call had no "
    "effect and should not be repeated unchanged."
)


class CoreServer(Server[dict[str, Any]]):
    """The SDK's server; what it announces is the same on every transport."""

    has_upstreams = False
    """Whether there are servers behind us, which may offer everything."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce that the tool list may change; over HTTP the SDK gives no other way to say so."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Announce what there is. For 2026-07-28 the SDK would promise every change that its stream can carry."""
        capabilities = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        if self.has_upstreams:
            # What is not there now may come with an upstream, and nothing can be announced later.
            capabilities.tools = types.ToolsCapability(list_changed=True)
            capabilities.prompts = types.PromptsCapability(list_changed=True)
            capabilities.resources = types.ResourcesCapability(subscribe=True, list_changed=True)
            capabilities.completions = types.CompletionsCapability()
            capabilities.logging = types.LoggingCapability()
            return capabilities
        if capabilities.prompts is not None:
            capabilities.prompts = types.PromptsCapability(list_changed=False)
        if capabilities.resources is not None:
            capabilities.resources = types.ResourcesCapability(subscribe=False, list_changed=False)
        return capabilities


def is_open(ctx: RequestContext) -> bool:
    """Whether this is a request of a client that has introduced itself; others are refused by the SDK."""
    return ctx.request_id is not None and connection_of(ctx.session).initialize_accepted


def instructions(report: SettingsReport) -> str | None:
    """Our own text, and for each server behind us what the operator says it is for; `None` for nothing at all."""
    own = [INSTRUCTIONS] if report.settings.tools.built_in else []
    lines = [
        f"{alias}__*: {entry.description}" if entry.prefix == "alias" else f"{alias}: {entry.description}"
        for alias, entry in report.upstreams.items()
        if entry.description
    ]
    return "\n".join([*own, *(["Tools of other servers:", *lines] if lines else [])]) or None
