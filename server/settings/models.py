"""Every key of the settings: its type, its default, its bounds, and whether this version acts on it.

The keys are camelCase in files and snake_case in here. Every duration is an integer of milliseconds. The sentence
below a field is what docs/configuration.md says of it; a test keeps the two equal.

Building the validators takes several milliseconds, so it is put off until somebody gives a value: the defaults come
from `model_construct`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from server.settings.section import NOT_ENFORCED, NOT_USED, Duration, Expected, NotUsed, Section
from tools.contract.context import ApprovalMode, Limits, MediaHandling

DAY: Final = 86_400_000
"""Milliseconds of the longest duration that makes sense here (ours)."""

MAX_SHELL_TIMEOUT: Final = 600_000
"""Milliseconds a command may be given (Qwen Code's)."""

MAX_COUNT: Final = 10_000_000
"""The largest count of lines, characters, entries, matches or files that one call may return (ours)."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]

_LIMITS: Final = Limits()


class UpstreamSettings(Section):
    """One entry of `mcpServers`."""

    command: Annotated[str | None, Field(repr=False)] = None
    """The program of a server that is started over stdio. Variables are expanded."""

    args: Annotated[tuple[str, ...], Field(repr=False)] = ()
    """Arguments of the command; no shell reads them. Variables are expanded."""

    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables set for the command. Variables are expanded."""

    cwd: str | None = None
    """The command's working folder; null is our own. Variables are expanded."""

    inherit_env: tuple[str, ...] = ()
    """Names of our environment variables that the command gets besides the usual few (PATH, HOME, LANG, ...)."""

    url: Annotated[str | None, Field(repr=False)] = None
    """Address of a remote server. Without a type, Streamable HTTP is tried first, then SSE. Variables are expanded."""

    http_url: Annotated[str | None, Field(repr=False)] = None
    """Address of a server that speaks Streamable HTTP, as Qwen Code and Gemini CLI spell it. Variables are expanded."""

    type: Literal["stdio", "http", "sse"] | None = None
    """The transport; null takes it from which of httpUrl, url and command is given, in this order."""

    headers: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """HTTP headers sent with every request to a remote server. Variables are expanded."""

    enabled: bool = True
    """Whether the server is used."""

    description: str = ""
    """What the server is for; told to clients in our instructions."""

    trust: bool = False
    """Whether its tools run without a question and its annotations are published as they are."""

    include_tools: tuple[str, ...] | None = None
    """The only tools taken from the server, by their own names; null takes all."""

    exclude_tools: tuple[str, ...] = ()
    """Tools not taken from the server; wins over includeTools."""

    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    """The protocol era spoken with the server: tried out, the initialize handshake, or the 2026-07-28 revision."""

    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 600_000
    """How long a call may go on without progress."""

    connect_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 30_000
    """How long starting or reaching the server may take, until it has initialized."""

    list_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 10_000
    """How long listing its tools, prompts or resources may take."""

    isolation: Annotated[Literal["shared", "per-client"], NotUsed(same_as="shared")] = "per-client"
    """Whether each client gets its own connection. This version shares one connection among all clients."""

    max_sessions: Annotated[int, Field(ge=1, le=10_000), NOT_USED] = 16
    """The most connections opened at once where each client gets its own."""

    max_concurrent: Annotated[int | None, Field(ge=1, le=10_000), NOT_USED] = None
    """The most calls in flight at once; null is no limit."""

    prefix: Annotated[Literal["alias", "none"], NOT_USED] = "alias"
    """Whether tools are published as alias__tool or under their own names."""

    rename: Annotated[Mapping[str, str], NOT_USED] = Field(default_factory=dict[str, str])
    """Other names for tools: the server's own name as the key, the published one as the value."""

    @property
    def transport(self) -> Literal["stdio", "http", "sse", "detect"] | None:
        """How the server is reached; `detect` tries Streamable HTTP, then SSE; `None` where nothing says it."""
        if self.type is not None:
            return self.type
        if self.http_url is not None:
            return "http"
        if self.url is not None:
            return "detect"
        return "stdio" if self.command is not None else None

    @property
    def endpoint(self) -> str | None:
        """The address of a remote server, `None` for one over stdio."""
        match self.transport:
            case "http":
                return self.http_url if self.http_url is not None else self.url
            case "sse" | "detect":
                return self.url
            case _:
                return None


class McpSettings(Section):
    """`mcp`: which servers are used at all."""

    server_command: Annotated[str | None, Field(repr=False), NOT_USED] = None
    """A command line that starts one more server, with the alias mcp."""

    allowed: tuple[str, ...] | None = None
    """The only servers of mcpServers that are used, by name or alias; null allows all, an empty array none."""

    excluded: tuple[str, ...] = ()
    """Servers of mcpServers that are not used, by name or alias; wins over mcp.allowed."""


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


class ToolSettings(Section):
    """`tools`: which tools there are, in the older lists of Qwen Code and Gemini CLI."""

    discovery_command: Annotated[str | None, Field(repr=False), NOT_USED] = None
    """A command line that prints the declarations of custom tools."""

    call_command: Annotated[str | None, Field(repr=False), NOT_USED] = None
    """A command line that runs a custom tool."""

    core: tuple[str, ...] = ()
    """The only built-in tools offered; empty offers all."""

    allowed: tuple[str, ...] = ()
    """Tools that run without a question."""

    exclude: tuple[str, ...] = ()
    """Tools that are not offered."""

    confirmation_required: tuple[str, ...] = ()
    """Tools that always need an answer."""


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


class LimitSettings(Section):
    """`limits`: how much one call may return, and how large a request may be."""

    read_lines: Count = _LIMITS.read_lines
    """Lines of one read without an explicit limit."""

    read_chars: Count = _LIMITS.read_chars
    """Characters of one read."""

    list_entries: Count = _LIMITS.list_entries
    """Entries of one directory listing, and files of one glob."""

    grep_matches: Count = _LIMITS.grep_matches
    """Matching lines of one search."""

    read_many_files: Count = _LIMITS.read_many_files
    """Files of one read_many_files."""

    read_many_chars: Count = _LIMITS.read_many_chars
    """Characters of one read_many_files."""

    request_bytes: Annotated[int, Field(ge=1024, le=1_073_741_824)] = 16_777_216
    """Bytes of one request from a client."""

    def for_tools(self) -> Limits:
        """The limits as tools are given them."""
        return Limits(
            read_lines=self.read_lines,
            read_chars=self.read_chars,
            list_entries=self.list_entries,
            grep_matches=self.grep_matches,
            read_many_files=self.read_many_files,
            read_many_chars=self.read_many_chars,
        )


class ShellSettings(Section):
    """`shell`: how commands run."""

    sandbox: Literal["off", "auto", "required"] = "auto"
    """Whether commands run in a sandbox: never, where one works, or not at all without one."""

    network: Literal["host", "none"] = "host"
    """Whether sandboxed commands reach the network."""

    timeout: Annotated[Duration, Field(ge=1, le=MAX_SHELL_TIMEOUT)] = 120_000
    """How long a command may run, unless the call says otherwise."""

    silence_timeout: Annotated[Duration, Field(ge=0, le=MAX_SHELL_TIMEOUT)] = 0
    """How long a command may print nothing; 0 is off."""

    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables set for commands."""

    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 8
    """The most commands running at once."""


class WebSettings(Section):
    """`web`: what may be fetched, and who searches."""

    allow_private_hosts: tuple[str, ...] = ()
    """Hosts that may be fetched although their addresses are private."""

    allowed_ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (80, 443)
    """Ports that may be fetched from."""

    search: Annotated[Mapping[str, Any], Field(repr=False)] = Field(default_factory=dict[str, Any])
    """Search providers."""


class TokenSource(Section):
    """Where one HTTP token stands; never the token itself."""

    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the token."""

    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the token."""


class HttpSettings(Section):
    """`http`: how the network transports listen."""

    host: Annotated[str, Field(min_length=1), Expected("a host name or an address")] = "127.0.0.1"
    """The address to listen on."""

    port: Annotated[int, Field(ge=0, le=65_535)] = 8808
    """The port to listen on; 0 takes a free one."""

    tokens: Annotated[Mapping[str, TokenSource], Field(repr=False), NOT_ENFORCED] = Field(
        default_factory=dict[str, TokenSource]
    )
    """Tokens of clients, by a name for each client."""

    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted besides those of the address listened on."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that are accepted besides our own."""

    session_idle: Annotated[Duration, Field(ge=1, le=7 * DAY)] = 1_800_000
    """How long a session may be silent before it ends."""


class ProxySettings(Section):
    """`proxy`: how upstream tools are published."""

    first_list_wait: Annotated[Duration, Field(ge=0, le=60_000)] = 1_000
    """How long the first list waits for upstreams that have not answered yet; later ones are announced."""

    name_budget: Annotated[int, Field(ge=16, le=128), NOT_USED] = 48
    """The most characters of a published tool name."""


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
    """How much may happen without a question: plan changes nothing, auto-edit edits files unasked."""

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

    web: Annotated[WebSettings, NOT_USED] = Field(default_factory=WebSettings.model_construct)
    """What may be fetched, and who searches."""

    memory: Annotated[Mapping[str, Any], Field(repr=False), NOT_USED] = Field(default_factory=dict[str, Any])
    """Where memories are kept."""

    agents: Annotated[Mapping[str, Any], Field(repr=False), NOT_USED] = Field(default_factory=dict[str, Any])
    """Agents that tasks are given to."""

    http: HttpSettings = Field(default_factory=HttpSettings.model_construct)
    """How the network transports listen."""

    proxy: ProxySettings = Field(default_factory=ProxySettings.model_construct)
    """How upstream tools are published."""

    log: LogSettings = Field(default_factory=LogSettings.model_construct)
    """What is written to stderr."""
