"""The keys of the settings: each its type, its default, its bounds, and whether this version acts on it.

The keys about the tools stand in `tool_models`, those about the servers behind us in `proxy_models`.

The keys are camelCase in files and snake_case in here. Every duration is an integer of milliseconds. The sentence
below a field is what docs/configuration.md says of it; a test keeps the two equal.

Building the validators takes several milliseconds, so it is put off until somebody gives a value: the defaults come
from `model_construct`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from server.settings.proxy_models import McpSettings, ProxySettings, UpstreamSettings
from server.settings.section import DAY, Duration, Expected, Section
from server.settings.tool_models import (
    AgentSettings,
    LimitSettings,
    MemorySettings,
    ShellSettings,
    ToolSettings,
    WebSettings,
)
from tools.contract.context import ApprovalMode, MediaHandling


class PermissionSettings(Section):
    """`permissions`: rules in the form `Name` or `Name(specifier)`."""

    allow: tuple[str, ...] = ()
    """Calls that run without a question."""

    ask: tuple[str, ...] = ()
    """Calls that always need an answer."""

    deny: tuple[str, ...] = ()
    """Calls that never run."""


class ConfirmationSettings(Section):
    """`confirmation`: how a person is asked."""

    when_unavailable: Literal["client", "deny"] | None = None
    """Who decides for a client that cannot be asked: its own approval dialog, or nobody, so that the call is refused. \
null is client over stdio and deny over HTTP."""

    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 300_000
    """How long an answer counts."""

    style: Literal["form", "simple"] = "form"
    """A form with a decision, or a bare yes or no for clients that render no form."""


class ResultSettings(Section):
    """`results`: how results are shown."""

    display: Literal["block", "meta"] = "block"
    """Where the display for people (a diff, for example) travels: also as a small text block, or in _meta only."""


class WorkspaceSettings(Section):
    """`workspace`: the folders that tools may touch."""

    roots: tuple[str, ...] = ()
    """The folders. A relative one starts from the folder of its settings file, on the command line from the working \
folder; ~ is the home folder. Empty takes the client's roots, else the working folder."""

    client_roots: Literal["fallback", "intersect"] = "fallback"
    """What the client's roots do where workspace.roots are given: nothing, or narrow them. Without workspace.roots \
they are the workspace either way."""

    respect_git_ignore: bool = True
    """Whether listing and searching leave out what git ignores."""

    respect_agent_ignore: bool = True
    """Whether .qwenignore, .geminiignore and .coretoolsignore count."""


class TokenSource(Section):
    """Where one HTTP token stands; never the token itself."""

    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the token and nothing else; nobody but its owner may read it (mode 0600)."""

    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the token."""


class HttpSettings(Section):
    """`http`: how the network transports listen."""

    host: Annotated[str, Field(min_length=1), Expected("a host name or an address")] = "127.0.0.1"
    """The address to listen on."""

    port: Annotated[int, Field(ge=0, le=65_535)] = 8808
    """The port to listen on; 0 takes a free one."""

    tokens: Annotated[Mapping[str, TokenSource], Field(repr=False)] = Field(default_factory=dict[str, TokenSource])
    """Tokens of clients, by a name for each client; with one, nobody is let in without. Where none is named, the one \
of the variable CORETOOLS_MCP_TOKEN counts, if that is set."""

    tls_cert: str | None = None
    """The file with the certificate to serve HTTPS with, and with those above it (PEM)."""

    tls_key: str | None = None
    """The file with its private key (PEM); null where that stands in the same file."""

    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted besides those of the address listened on."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that are accepted besides our own."""

    session_idle: Annotated[Duration, Field(ge=1, le=7 * DAY)] = 1_800_000
    """How long a session may be silent before it ends."""


class LogSettings(Section):
    """`log`: what is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The least severity written."""

    audit: str | None = None
    """The file that every decision on a call is appended to, as JSON lines; null keeps them in the log alone. ~ is \
the home folder."""


class Settings(Section):
    """All settings."""

    mcp_servers: Mapping[str, UpstreamSettings] = Field(default_factory=dict[str, UpstreamSettings])
    """The servers behind this one: alias to entry, in the order of the configuration."""

    mcp: McpSettings = Field(default_factory=McpSettings.model_construct)
    """Which of them are used."""

    approval_mode: Annotated[
        ApprovalMode, Expected('one of "plan", "default", "auto-edit" ("yolo" only on the command line)')
    ] = ApprovalMode.DEFAULT
    """How much may happen without a question: plan changes nothing, auto-edit edits files, fetches and searches the \
web unasked."""

    permissions: PermissionSettings = Field(default_factory=PermissionSettings.model_construct)
    """Rules for single calls."""

    confirmation: ConfirmationSettings = Field(default_factory=ConfirmationSettings.model_construct)
    """How a person is asked."""

    results: ResultSettings = Field(default_factory=ResultSettings.model_construct)
    """How results are shown."""

    media: MediaHandling = MediaHandling.INLINE
    """What becomes of images, sounds and other media: sent inline, as a link, or named only."""

    tools: ToolSettings = Field(default_factory=ToolSettings.model_construct)
    """Which tools there are."""

    workspace: WorkspaceSettings = Field(default_factory=WorkspaceSettings.model_construct)
    """The folders that tools may touch."""

    limits: LimitSettings = Field(default_factory=LimitSettings.model_construct)
    """How much one call may return."""

    shell: ShellSettings = Field(default_factory=ShellSettings.model_construct)
    """How commands run."""

    web: WebSettings = Field(default_factory=WebSettings.model_construct)
    """What may be fetched, and who searches."""

    memory: MemorySettings = Field(default_factory=MemorySettings.model_construct)
    """Where memories are kept."""

    agents: Mapping[str, AgentSettings] = Field(default_factory=dict[str, AgentSettings])
    """Programs that take tasks: name to entry."""

    http: HttpSettings = Field(default_factory=HttpSettings.model_construct)
    """How the network transports listen."""

    proxy: ProxySettings = Field(default_factory=ProxySettings.model_construct)
    """How upstream tools are published."""

    log: LogSettings = Field(default_factory=LogSettings.model_construct)
    """What is written to stderr."""
