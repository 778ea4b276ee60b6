"""The keys about the servers behind this one: `mcpServers`, `mcp`, `proxy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from server.settings.section import DAY, CommandLine, Duration, Section


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
    """The only tools taken from the server, by their own names, also as name(...), or as alias__name; null takes \
all."""

    exclude_tools: tuple[str, ...] = ()
    """Tools not taken from the server, named likewise; wins over includeTools."""

    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    """The protocol era spoken with the server: the client's where the server knows it, the initialize handshake, or \
the 2026-07-28 revision."""

    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 600_000
    """How long a call may go on without progress."""

    connect_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 30_000
    """How long starting or reaching the server may take, until it has initialized."""

    list_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 10_000
    """How long listing its tools, prompts or resources may take."""

    isolation: Literal["shared", "per-client"] = "per-client"
    """Whether each client over the network gets a connection of its own, or all share one, where questions of the \
server reach a client only while no other has a call at work."""

    max_sessions: Annotated[int, Field(ge=1, le=10_000)] = 16
    """The most connections of clients at once, where each gets its own. For one more, one that nobody uses now is \
closed, else one of a client that has more than half of them; where there is none, the client is refused."""

    max_concurrent: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """The most requests of clients that the server works on at once, those included that wait for an answer of their \
client; others wait for at most their timeout. null is no limit."""

    prefix: Literal["alias", "none"] = "alias"
    """Whether tools are published as alias__tool or under their own names. Without the alias, a name that is taken \
hides the tool."""

    rename: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Other names for tools: the server's own name as the key, the new one as the value; the alias stays before it."""

    def is_reached_like(self, other: UpstreamSettings) -> bool:
        """Whether both mean the same connection: they differ at most in what of it is published, and in its calls."""
        return self.model_copy(update={name: getattr(other, name) for name in _ABOVE_THE_CONNECTION}) == other

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


_ABOVE_THE_CONNECTION = (
    "prefix", "rename", "include_tools", "exclude_tools", "description", "timeout", "trust",
)  # fmt: skip
"""What may change while a connection goes on."""


class McpSettings(Section):
    """`mcp`: which servers are used at all."""

    server_command: CommandLine = None
    """A command line that starts one more server, with the alias mcp. No shell reads it. Variables are expanded."""

    allowed: tuple[str, ...] | None = None
    """The only servers of mcpServers that are used, by name or alias; null allows all, an empty array none."""

    excluded: tuple[str, ...] = ()
    """Servers of mcpServers that are not used, by name or alias; wins over mcp.allowed."""


class ProxySettings(Section):
    """`proxy`: how upstream tools are published."""

    first_list_wait: Annotated[Duration, Field(ge=0, le=60_000)] = 3_000
    """How long the first list waits for upstreams that have not answered yet; later ones are announced."""

    name_budget: Annotated[int, Field(ge=16, le=128)] = 48
    """The most characters of the published name of a server's tool; longer ones are shortened. Clients may take 64, \
with what they put before it."""

    prefix: Literal["alias", "none"] = "alias"
    """With none, the tools of all servers are published under their own names, whatever the servers' prefix says."""
