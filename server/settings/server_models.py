"""The keys of the settings, except those about tools (`tool_models`): types, defaults and bounds.

Keys are camelCase in files and snake_case here; durations are in milliseconds. The docstring of a field also appears in
docs/configuration.md. Building the validators takes milliseconds, so the defaults come from `model_construct`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, AnyUrl, BaseModel, BeforeValidator, ConfigDict, Field

from server.settings import tool_models
from server.settings.section_model import DAY, CommandLine, Duration, Expected, Section
from tools.contract.call_options import ApprovalMode, MediaHandling


class OAuthSettings(Section):
    """How this server logs in to an upstream server over HTTP (OAuth 2.1)."""

    enabled: bool = True
    """Whether to log in when the server asks for a login. An entry without oauth also logs in, unless its headers
    contain Authorization.
    """
    client_id: Annotated[str | None, Field(repr=False)] = None
    """The client id at the authorization server; null registers this server there, if registration is allowed.
    Variables are expanded.
    """
    client_secret: Annotated[str | None, Field(repr=False)] = None
    """The secret for clientId. Variables are expanded."""
    client_metadata_url: Annotated[str | None, Field(repr=False)] = None
    """The https address of a client metadata document, which serves as the client id at authorization servers that
    support it (Client ID Metadata Documents). Variables are expanded.
    """
    issuer: str | None = None
    """The only authorization server to log in to, by its exact issuer identifier. null uses the one that the server
    names; if clientId is set, the first authorization server used is the only one from then on, for everybody and even
    after a logout. Variables are expanded.
    """
    scopes: tuple[str, ...] | None = None
    """The scopes to request; null requests those that the server names. Variables are expanded."""
    grant: Literal["authorization-code", "client-credentials"] = "authorization-code"
    """Who logs in: a person in a browser (authorization-code), or this program itself with a secret or a key
    (client-credentials).
    """
    private_key: Annotated[str | None, Field(repr=False)] = None
    """The private key (PEM) to sign with instead of a clientSecret, only for client-credentials. Variables are
    expanded.
    """
    signing_algorithm: Literal[
        "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"
    ] = "ES256"
    """The algorithm to sign with privateKey."""
    assume_pkce: bool = False
    """Whether to use an authorization server that does not advertise PKCE with S256. PKCE is sent either way. If
    the authorization server ignores it, anyone who sees an authorization code can use it.
    """
    callback_port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    """The port on this machine for the browser's redirect; null uses proxy.loginPort."""
    shared: bool = False
    """Whether all clients over HTTP use the login of this machine's user, instead of one login per token."""


def _names_or_all(value: object) -> object:
    if isinstance(value, bool):
        return ("*",) if value else ()
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


_PUBLISHING = ("prefix", "rename", "include_tools", "exclude_tools", "description", "timeout", "trust", "always_load")


class UpstreamSettings(Section):
    """One entry of `mcpServers`."""

    command: Annotated[str | None, Field(repr=False)] = None
    """The program of a server that is started over stdio. Variables are expanded."""
    args: Annotated[tuple[str, ...], Field(repr=False)] = ()
    """Arguments of the command; no shell parses them. Variables are expanded."""
    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables for the command. Variables are expanded."""
    cwd: str | None = None
    """The command's working folder, relative to the first workspace folder; null means the first workspace folder
    itself, or an empty folder if there is no workspace. Variables are expanded.
    """
    inherit_env: tuple[str, ...] = ()
    """Names of variables from this server's environment to pass to the command in addition to the usual few (PATH,
    HOME, LANG, ...).
    """
    url: Annotated[str | None, Field(repr=False)] = None
    """Address of a remote server. Without a type, Streamable HTTP is tried first, then SSE. Variables are expanded."""
    http_url: Annotated[str | None, Field(repr=False)] = None
    """Address of a Streamable HTTP server, under the key that Qwen Code and Gemini CLI use. Variables are expanded."""
    type: Literal["stdio", "http", "sse"] | None = None
    """The transport; null derives it from the first of httpUrl, url and command that is set."""
    headers: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """HTTP headers for every request to a remote server. Variables are expanded."""
    oauth: OAuthSettings | None = None
    """How to log in to a remote server; null logs in if the server asks for it and headers has no Authorization."""
    enabled: bool = True
    """Whether the server is used."""
    description: str = ""
    """What the server is for; clients see this text in the instructions."""
    trust: bool = False
    """Whether the server's tools run without a question, and their annotations are published unchanged."""
    include_tools: tuple[str, ...] | None = None
    """The only tools to take from the server, by their own names or as alias__name; null takes all. A part in
    parentheses after a name is ignored, as in Qwen Code and Gemini CLI.
    """
    exclude_tools: tuple[str, ...] = ()
    """Tools not to take from the server, written as in includeTools; takes precedence over includeTools."""
    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    """The protocol era to use with the server: the client's if the server supports it (auto), the initialize handshake
    (legacy), or the 2026-07-28 revision (2026-07-28).
    """
    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 600_000
    """How long a call may run without progress."""
    connect_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 30_000
    """How long it may take to start the server, or connect to it, and initialize the session."""
    list_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 10_000
    """How long listing the server's tools, prompts or resources may take."""
    isolation: Literal["shared", "per-client"] = "per-client"
    """Whether each client over the network gets its own connection (per-client), or all share one (shared). On a shared
    connection, a question from the server reaches a client only while no other client has a call in progress.
    """
    max_sessions: Annotated[int, Field(ge=1, le=10_000)] = 16
    """The maximum number of simultaneous client connections, if each client has its own. To make room for another
    client, an idle connection is closed, or else a connection of a client that has more than half of the maximum.
    Otherwise the new client is refused.
    """
    max_concurrent: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """The maximum number of client requests that the server works on at once, including those that wait for an answer
    from their client. Further requests wait, but no longer than their timeout. null means no limit.
    """
    calls_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """The maximum number of calls per minute sent to the server, for all clients together; further calls are refused,
    and the refusal says when to retry. null means no limit.
    """
    prefix: Literal["alias", "none"] = "alias"
    """Whether tools are published as alias__tool (alias) or under their own names (none). Without the alias, a tool
    whose name is taken is hidden.
    """
    rename: Mapping[str, str] = Field(default_factory=dict[str, str])
    """New names for tools, keyed by the server's own names for them. The alias still precedes the new name, unless
    prefix is none.
    """

    always_load: Annotated[
        tuple[str, ...],
        BeforeValidator(_names_or_all, json_schema_input_type=bool | tuple[str, ...]),
        Expected("true, false or an array of strings"),
    ] = ()
    """Names of tools that are listed even if the others must be searched for (proxy.search); true means all. A tool of
    a trusted server may ask for this itself, with anthropic/alwaysLoad in its _meta.
    """

    def is_reached_like(self, other: UpstreamSettings) -> bool:
        """Return whether both entries use the same connection; how tools are published or called may differ."""
        return self.model_copy(update={name: getattr(other, name) for name in _PUBLISHING}) == other

    def reach_digest(self) -> str:
        """Return a digest of the settings that determine the connection; it is the same in all processes."""
        entry = {name: value for name, value in self if name not in _PUBLISHING}
        # Serialising with pydantic would take longer, because pydantic would first build the models' serialisers.
        return sha256(json.dumps(entry, sort_keys=True, default=dict).encode()).hexdigest()

    @property
    def transport(self) -> Literal["stdio", "http", "sse", "detect"] | None:
        """How the server is reached; `detect` tries Streamable HTTP, then SSE; `None` if the entry does not say how."""
        if self.type is not None:
            return self.type
        if self.http_url is not None:
            return "http"
        if self.url is not None:
            return "detect"
        return "stdio" if self.command is not None else None

    @property
    def endpoint(self) -> str | None:
        """The address of a remote server; `None` for a server over stdio, or if the address is missing."""
        if self.transport == "http" and self.http_url is not None:
            return self.http_url
        return self.url if self.transport in ("http", "sse", "detect") else None


class McpSettings(Section):
    server_command: CommandLine = None
    """A command line that starts one more server, with the alias mcp. No shell parses it. Variables are expanded."""
    allowed: tuple[str, ...] | None = None
    """The only servers of mcpServers to use, by name or alias; null allows all, an empty array none."""
    excluded: tuple[str, ...] = ()
    """Servers of mcpServers not to use, by name or alias; wins over mcp.allowed."""


class ProxySettings(Section):
    first_list_wait: Annotated[Duration, Field(ge=0, le=60_000)] = 3_000
    """How long the first list waits for upstreams and custom tools; what arrives later is announced."""
    name_budget: Annotated[int, Field(ge=16, le=64)] = 48
    """The maximum length in characters of the published name of a server's tool; longer names are shortened. Many
    clients accept at most 64, including their own prefix.
    """
    catalogue: bool = True
    """Whether to store the servers' lists of tools, prompts and resources, so that the first list of the next run does
    not wait for the servers.
    """
    prefix: Literal["alias", "none"] = "alias"
    """With none, the tools of all servers are published under their own names, regardless of the servers' prefix."""
    require_pins: bool = False
    """Whether to ignore a server whose command fetches a package (npx, uvx, ...) without a fixed version."""
    search: Literal["auto", "on", "off"] = "auto"
    """Whether clients see search_tools, describe_tool and call_tool instead of the servers' tools. With auto,
    they do if the servers' tools take up about 10,000 tokens or more, except for clients that defer tools themselves
    (Claude Code, Codex, Qwen Code, GitHub Copilot CLI, ECA).
    """
    environment_proxies: bool = True
    """Whether remote servers and their logins are reached through the proxies in the environment (HTTPS_PROXY,
    HTTP_PROXY, ALL_PROXY), except for the hosts in NO_PROXY and this machine.
    """
    login_port: Annotated[int, Field(ge=1, le=65_535)] = 18_809
    """The port on this machine for the browser's redirect after a login to a server."""
    token_storage: Literal["file", "keyring"] = "file"  # noqa: S105 - not a secret
    """Where the secrets of logins to servers are kept: in private files of the user's state folder (file), or in the
    system keyring (keyring), which needs the `keyring` extra.
    """


class PermissionSettings(Section):
    """`permissions`: rules in the form `Name` or `Name(specifier)`."""

    allow: tuple[str, ...] = ()
    """Calls that run without a question."""
    ask: tuple[str, ...] = ()
    """Calls that always need the user's consent."""
    deny: tuple[str, ...] = ()
    """Calls that never run."""


class ClientPermissionSettings(PermissionSettings):
    """`permissions`: rules in the form `Name` or `Name(specifier)`, and whether sandboxed commands need consent."""

    sandboxed_commands: Literal["ask", "allow"] = "ask"
    """Whether to ask about a shell command that changes files if the sandbox confines it to the workspace and blocks
    the network. The setting has no effect on a command that needs more than such a sandbox allows. A workspace's
    settings cannot set this.
    """


class ConfirmationSettings(Section):
    when_unavailable: Literal["client", "page", "deny"] | None = None
    """Who decides for a client that cannot be asked: its own approval dialog (client), the person on the page that
    coretools-mcp dashboard opens (page), or nobody, so that the call is refused (deny). page counts as deny if there is
    no dashboard: on Windows, or if the `dashboard` extra is not installed. null means client over stdio, and deny for
    agent frameworks and over HTTP.
    """
    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 300_000
    """How long a question waits for its answer. The question's state, and a call that waits for the answer, are kept
    for the same length of time.
    """
    style: Literal["form", "simple"] = "form"
    """How a question is shown: as a form with a decision (form), or, for clients that cannot show a form, as a plain
    yes or no (simple).
    """


class ResultSettings(Section):
    display: Literal["block", "meta"] = "block"
    """Where to put text for people, such as a diff: only in _meta (meta), or also in a small text block (block)."""


class WorkspaceSettings(Section):
    roots: tuple[str, ...] = ()
    """The workspace folders. A relative path starts from the folder of its settings file or, on the command line, from
    the working folder; ~ is the home folder. Empty uses the client's roots, or else the working folder.
    """
    client_roots: Literal["fallback", "intersect"] = "fallback"
    """Whether the client's roots are ignored if workspace.roots is set (fallback), or narrow the workspace (intersect).
    Without workspace.roots, this setting has no effect.
    """
    respect_git_ignore: bool = True
    """Whether listing and searching skip what git ignores."""
    respect_agent_ignore: bool = True
    """Whether .qwenignore, .geminiignore and .coretoolsignore apply."""


class PrincipalSettings(Section):
    """Settings for one client: the bearer of a configured token, or the subject of access tokens."""

    workspace: tuple[str, ...] = ()
    """The client's own workspace folders, which replace workspace.roots, in the same form."""
    profile: Literal["core", "full"] = "full"
    """Which built-in tools to offer to the client, as in tools.profile."""
    rules: PermissionSettings = Field(default_factory=PermissionSettings.model_construct)
    """The client's own rules, in addition to permissions; a deny rule always wins."""


class TokenSource(PrincipalSettings):
    """The place where one HTTP token is stored (never the token itself), and the settings for its client."""

    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds only the token, readable only by its owner (mode 0600)."""
    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the token."""


class IntrospectionSettings(Section):
    url: str = ""
    """The issuer's introspection endpoint (RFC 7662); it must use https unless it is on this machine. Without an
    endpoint, a token must be a JWT.
    """
    client_id: str = ""
    """This server's client id at the issuer."""
    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the secret for clientId, readable only by its owner (mode 0600)."""
    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the secret."""


class IssuerSettings(Section):
    """The issuer whose access tokens are accepted, in addition to `http.tokens` (OAuth 2.1 resource server)."""

    issuer: str = ""
    """The issuer's identifier, exactly as in its metadata and in the iss claim of its tokens; https is required unless
    it is on this machine. If this and `resource` are empty, only `http.tokens` are accepted.
    """
    resource: str = ""
    """The address of /mcp, exactly as clients write it; tokens must be issued for it."""
    audience: tuple[str, ...] = ()
    """Other values accepted in the aud claim of a token, for issuers that do not write the resource there."""
    jwks_uri: str | None = None
    """The address of the issuer's keys; null takes it from the issuer's metadata."""
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = ("RS256", "PS256", "ES256", "EdDSA")
    """The signature algorithms that are accepted for tokens."""
    scopes: tuple[str, ...] = ()
    """The scopes that clients should request, as the issuer spells them; empty means read, write, run, upstream:*, each
    with scopePrefix in front.
    """
    required_scopes: tuple[str, ...] = ()
    """Scopes that every token must have."""
    default_scopes: tuple[str, ...] = ()
    """The scopes granted to a token that has none of this server's scopes (read, write, run, upstream:ALIAS,
    upstream:*).
    """
    scope_prefix: str = ""
    """The issuer's prefix for this server's scopes: with "tools.", a token has tools.read instead of read."""
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """The claims that may contain a token's scopes, as an array or a space-separated string."""
    introspection: IntrospectionSettings = Field(default_factory=IntrospectionSettings.model_construct)
    """How tokens that are not JWTs are checked."""
    principals: Mapping[str, PrincipalSettings] = Field(default_factory=dict[str, PrincipalSettings])
    """Settings for people and programs, keyed by the subject (sub) of their tokens."""

    @property
    def is_configured(self) -> bool:
        return bool(self.issuer or self.resource)


class StateKey(BaseModel):
    """The place where one key is stored (never the key itself)."""

    model_config = ConfigDict(frozen=True, strict=True)

    file: Annotated[str | None, Field(repr=False)] = None
    env: Annotated[str | None, Field(repr=False)] = None


class HttpSettings(Section):
    host: Annotated[str, Field(min_length=1), Expected("a host name or an address")] = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8808
    """The port to listen on; 0 picks a free one."""
    tokens: Annotated[Mapping[str, TokenSource], Field(repr=False)] = Field(default_factory=dict[str, TokenSource])
    """Tokens of clients, each under a name for the client. If there are any, every client needs one. If there are none,
    the token in the variable CORETOOLS_MCP_TOKEN is used, if it is set.
    """
    oauth: IssuerSettings = Field(default_factory=IssuerSettings.model_construct)
    """The issuer whose access tokens are also accepted, such as a company's authorization server."""
    tls_cert: str | None = None
    """The file with the certificate for HTTPS and its chain (PEM)."""
    tls_key: str | None = None
    """The file with the certificate's private key (PEM); null if the key is in the same file."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted in addition to those of the listening address."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages accepted in addition to this server's own; they may read responses (CORS)."""
    root_path: Annotated[
        str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$"), Expected('a path that begins with "/" and does not end with it')
    ] = ""
    """The path under which a reverse proxy publishes this server, such as "/tools", whether or not the proxy strips the
    path. Clients over SSE send their messages to addresses under this path.
    """
    trusted_proxies: tuple[str, ...] = ()
    """The addresses of reverse proxies whose X-Forwarded-Prefix header replaces rootPath."""
    public_url: Annotated[
        str | None,
        Field(
            pattern=r"^(https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?"
            r"(/[A-Za-z0-9._~-]+)*/?$"
        ),
        AfterValidator(lambda address: None if address is None else str(AnyUrl(address)).rstrip("/")),
        Expected("an address that begins with https:// (with http:// only on this machine), without a query, or null"),
    ] = None
    """The public address of this server, without /mcp at the end. If it is set, people can log in to upstream servers
    from any machine, on a page that this server provides.
    """
    state_keys: Annotated[
        tuple[StateKey, ...], Field(repr=False), Expected("an array of objects, each with one of file and env")
    ] = ()
    """The keys that replicas of this server share: for each, a file (mode 0600) or an environment variable that holds
    a secret of at least 32 characters. With the same keys, a replica can accept the answers to questions that other
    replicas asked, and use their logins. The first key encrypts, and all of them decrypt. If the list is empty, a
    random key is used, which is lost when the process ends.
    """
    session_idle: Annotated[Duration, Field(ge=1, le=7 * DAY)] = 1_800_000
    """How long a session, or a client with a token, may be silent before the server closes or forgets it."""
    drain: Annotated[Duration, Field(ge=0, le=3_600_000)] = 0
    """How long the server still accepts requests after SIGTERM, while /readyz already answers 503. Set a time that is
    long enough for a load balancer to notice and route requests elsewhere.
    """
    grace: Annotated[Duration, Field(ge=0, le=3_600_000)] = 3_000
    """How long open calls and streams may continue after http.drain, while no new ones are accepted."""
    metrics: bool = False
    """Whether /metrics serves counters in the Prometheus text format; it needs a token whenever clients need one."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("127.0.0.1", "localhost", "::1")


class StorePassword(Section):
    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds only the password, readable only by its owner (mode 0600)."""
    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the password."""


class StoreSettings(Section):
    url: Annotated[
        str,
        Field(
            repr=False,  # people put passwords there
            pattern=r"^(memory:|sqlite:.+|valkeys?://([^/?#@:]+@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[0-9]{1,3})?)$",
        ),
        Expected('"memory:", "sqlite:PATH", or "valkey://USER@HOST:PORT/DB" without a password in it'),
    ] = "memory:"
    """Where replicas keep what they share: which answers have been used, what users allowed in all sessions of a token,
    approved tools of other servers, logins to them, and the call rates of clients. memory: means this process alone.
    sqlite:PATH is a file for several processes on one machine, with an absolute path. valkey://USER@HOST:PORT/DB is a
    Valkey or Redis server (valkeys:// with TLS), which needs the `valkey` extra. A server over stdio does not use the
    store. Without http.stateKeys, replicas share only call rates and notifications of changed lists.
    """
    password: StorePassword = Field(default_factory=StorePassword.model_construct)
    """The password of the Valkey server."""
    replica: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$"), Expected("a name of letters, digits and ._-")] = (
        ""
    )
    """The name of this replica in messages and in the log; empty means the host name."""


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The lowest severity to write."""
    audit: str | None = None
    """The file to which every decision on a call is appended, as JSON lines; null writes decisions only to the log. ~
    is the home folder.
    """


class Settings(Section):
    mcp_servers: Mapping[str, UpstreamSettings] = Field(default_factory=dict[str, UpstreamSettings])
    """The upstream servers, keyed by alias, in configuration order."""
    mcp: McpSettings = Field(default_factory=McpSettings.model_construct)
    """Which of the upstream servers are used."""
    approval_mode: Annotated[
        ApprovalMode, Expected('one of "plan", "default", "auto-edit" ("yolo" only on the command line)')
    ] = ApprovalMode.DEFAULT
    """How much may happen without a question: plan allows no changes; auto-edit allows editing files, fetching pages
    and searching the web without a question.
    """
    permissions: ClientPermissionSettings = Field(default_factory=ClientPermissionSettings.model_construct)
    """Rules for individual calls."""
    confirmation: ConfirmationSettings = Field(default_factory=ConfirmationSettings.model_construct)
    """How a person is asked."""
    results: ResultSettings = Field(default_factory=ResultSettings.model_construct)
    """How results are shown."""
    media: MediaHandling = MediaHandling.INLINE
    """How images, sounds and other media are sent: with their content (inline), as a link (resource_link), or by name
    only (notice).
    """
    tools: tool_models.ToolSettings = Field(default_factory=tool_models.ToolSettings.model_construct)
    """Which tools are offered."""
    workspace: WorkspaceSettings = Field(default_factory=WorkspaceSettings.model_construct)
    """The folders that tools may use."""
    limits: tool_models.LimitSettings = Field(default_factory=tool_models.LimitSettings.model_construct)
    """Limits on results, requests and calls."""
    shell: tool_models.ShellSettings = Field(default_factory=tool_models.ShellSettings.model_construct)
    """How commands run."""
    web: tool_models.WebSettings = Field(default_factory=tool_models.WebSettings.model_construct)
    """What may be fetched, and the search provider."""
    memory: tool_models.MemorySettings = Field(default_factory=tool_models.MemorySettings.model_construct)
    """Where memories are kept."""
    undo: tool_models.UndoSettings = Field(default_factory=tool_models.UndoSettings.model_construct)
    """How file changes can be undone."""
    lsp: tool_models.LspSettings = Field(default_factory=tool_models.LspSettings.model_construct)
    """The language servers."""
    agents: Mapping[str, tool_models.AgentSettings] = Field(default_factory=dict[str, tool_models.AgentSettings])
    """The agents, keyed by name: programs that run tasks."""
    http: HttpSettings = Field(default_factory=HttpSettings.model_construct)
    """How the network transports listen."""
    store: StoreSettings = Field(default_factory=StoreSettings.model_construct)
    """What replicas share."""
    proxy: ProxySettings = Field(default_factory=ProxySettings.model_construct)
    """How upstream tools are published."""
    log: LogSettings = Field(default_factory=LogSettings.model_construct)
    """What is written to stderr and to the audit file."""
