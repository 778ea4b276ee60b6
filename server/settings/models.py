"""The keys of the settings, but for those about tools (`tool_models`): types, defaults and bounds.

The keys are camelCase in files and snake_case in here; durations are milliseconds. What stands below a field is in
docs/configuration.md too. Building the validators takes milliseconds, so the defaults come from `model_construct`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, AnyUrl, BaseModel, BeforeValidator, ConfigDict, Field

from server.settings import tool_models
from server.settings.section_model import DAY, CommandLine, Duration, Expected, Section
from tools.contract.limits import ApprovalMode, MediaHandling


def _as_browsers_say_it(address: str | None) -> str | None:
    """In small letters, and without the usual port: it is compared with what browsers and other servers say."""
    return None if address is None else str(AnyUrl(address)).rstrip("/")


class OAuthSettings(Section):
    """How we log in to a server that is reached by its address (OAuth 2.1)."""

    enabled: bool = True
    """Whether we log in where the server wants it. Without oauth we do, unless headers has Authorization."""
    client_id: Annotated[str | None, Field(repr=False)] = None
    """The id by which the authorization server knows us; null registers us where it lets us. Variables are expanded."""
    client_secret: Annotated[str | None, Field(repr=False)] = None
    """The secret that goes with clientId. Variables are expanded."""
    client_metadata_url: Annotated[str | None, Field(repr=False)] = None
    """The https address of a document about us, which is our id for authorization servers that read it (Client ID \
Metadata Documents). Variables are expanded."""
    issuer: str | None = None
    """The only authorization server that we log in at, as it calls itself; null takes the one that the server names, \
and with a clientId no other one after that. Variables are expanded."""
    scopes: tuple[str, ...] | None = None
    """What we ask for; null is what the server says. Variables are expanded."""
    grant: Literal["authorization-code", "client-credentials"] = "authorization-code"
    """Who logs in: a person in a browser, or this program by itself with a secret or a key."""
    private_key: Annotated[str | None, Field(repr=False)] = None
    """The private key (PEM) that we sign with in place of a clientSecret, for client-credentials alone. Variables are \
expanded."""
    signing_algorithm: Literal[
        "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"
    ] = "ES256"
    """How we sign with privateKey."""
    assume_pkce: bool = False
    """Whether we log in at an authorization server, too, that does not say that it supports PKCE with S256, which we \
send in either case: for those that do without saying so. Where it does not, a code counts for anyone who sees it."""
    callback_port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    """The port of this machine to which the browser is sent back; null is proxy.loginPort."""
    shared: bool = False
    """Whether all clients over HTTP use the login of the person of this machine, and not each the one of its token."""


def _names_or_all(given: object) -> object:
    if isinstance(given, bool):
        return ("*",) if given else ()
    return tuple(cast("list[object]", given)) if isinstance(given, list) else given


_OF_PUBLISHING = (
    *("prefix", "rename", "include_tools", "exclude_tools", "description", "timeout", "trust"),
    "always_load",
)


class UpstreamSettings(Section):
    """One entry of `mcpServers`."""

    command: Annotated[str | None, Field(repr=False)] = None
    """The program of a server that is started over stdio. Variables are expanded."""
    args: Annotated[tuple[str, ...], Field(repr=False)] = ()
    """Arguments of the command; no shell reads them. Variables are expanded."""
    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables set for the command. Variables are expanded."""
    cwd: str | None = None
    """The command's working folder, read from the first workspace folder; null is that folder itself, or an empty one \
where there is no workspace. Variables are expanded."""
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
    oauth: OAuthSettings | None = None
    """How we log in to a remote server; null logs in where the server wants it and headers has no Authorization."""
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
    calls_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """The most calls in a minute that the server is sent, of all clients together; more are refused with the time to \
come again. null is no limit."""
    prefix: Literal["alias", "none"] = "alias"
    """Whether tools are published as alias__tool or under their own names. Without the alias, a name that is taken \
hides the tool."""
    rename: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Other names for tools: the server's own name as the key, the new one as the value; the alias stays before it."""

    always_load: Annotated[
        tuple[str, ...],
        BeforeValidator(_names_or_all, json_schema_input_type=bool | tuple[str, ...]),
        Expected("true, false or an array of strings"),
    ] = ()
    """Tools that are listed also where the others are searched for (proxy.search), by their names; true stands for \
all. A tool of a trusted server may say so itself, by anthropic/alwaysLoad in its _meta."""

    def is_reached_like(self, other: UpstreamSettings) -> bool:
        """Whether both mean the same connection: they differ at most in what of it is published, and in its calls."""
        return self.model_copy(update={name: getattr(other, name) for name in _OF_PUBLISHING}) == other

    def reach_digest(self) -> str:
        """What differs where another connection is meant, and is the same in each process with the same entry."""
        entry = {name: value for name, value in self if name not in _OF_PUBLISHING}
        # Not by pydantic, which would build what writes models first.
        return sha256(json.dumps(entry, sort_keys=True, default=dict).encode()).hexdigest()

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
    server_command: CommandLine = None
    """A command line that starts one more server, with the alias mcp. No shell reads it. Variables are expanded."""
    allowed: tuple[str, ...] | None = None
    """The only servers of mcpServers that are used, by name or alias; null allows all, an empty array none."""
    excluded: tuple[str, ...] = ()
    """Servers of mcpServers that are not used, by name or alias; wins over mcp.allowed."""


class ProxySettings(Section):
    first_list_wait: Annotated[Duration, Field(ge=0, le=60_000)] = 3_000
    """How long the first list waits for upstreams that have not answered yet; later ones are announced."""
    name_budget: Annotated[int, Field(ge=16, le=64)] = 48
    """The most characters of the published name of a server's tool; longer ones are shortened. Clients may take 64, \
with what they put before it."""
    catalogue: bool = True
    """Whether what servers list is kept for the next run, whose first list need not wait for them then."""
    prefix: Literal["alias", "none"] = "alias"
    """With none, the tools of all servers are published under their own names, whatever the servers' prefix says."""
    require_pins: bool = False
    """Whether a server is left out whose command fetches a package (npx, uvx, ...) without naming its version."""
    search: Literal["auto", "on", "off"] = "auto"
    """Whether clients list search_tools, describe_tool and call_tool in place of the tools of servers. auto: where \
those take about 10,000 tokens or more, but for clients that keep tools back by themselves (Claude Code, Codex, Qwen \
Code, GitHub Copilot CLI, ECA)."""
    environment_proxies: bool = True
    """Whether remote servers and their logins are reached by the proxies that our environment names (HTTPS_PROXY, \
HTTP_PROXY, ALL_PROXY, but for what NO_PROXY names and this machine)."""
    login_port: Annotated[int, Field(ge=1, le=65_535)] = 18_809
    """The port of this machine to which the browser is sent back after a login to a server."""
    token_storage: Literal["file", "keyring"] = "file"  # noqa: S105 - no secret
    """Where the secrets of logins to servers are kept: in private files of the user's state folder, or in the keyring \
of the system, for which the extra keyring is needed."""


class PermissionSettings(Section):
    """`permissions`: rules in the form `Name` or `Name(specifier)`."""

    allow: tuple[str, ...] = ()
    """Calls that run without a question."""
    ask: tuple[str, ...] = ()
    """Calls that always need an answer."""
    deny: tuple[str, ...] = ()
    """Calls that never run."""


class ClientPermissionSettings(PermissionSettings):
    """`permissions`: rules in the form `Name` or `Name(specifier)`, and what needs none."""

    sandboxed_commands: Literal["ask", "allow"] = "ask"
    """Whether a shell command that changes files is asked about where the sandbox holds it to the workspace and gives \
it no network; what needs more is asked about in either case. A workspace's settings cannot set it."""


class ConfirmationSettings(Section):
    when_unavailable: Literal["client", "page", "deny"] | None = None
    """Who decides for a client that cannot be asked: its own approval dialog, the person at the page that \
coretools-mcp dashboard opens, or nobody, so that the call is refused. page counts as deny where there is no \
dashboard: on Windows, and without the extra dashboard. \
null is client over stdio, but for agent frameworks, and deny for those and over HTTP."""
    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 300_000
    """How long a question waits for its answer, and how long its state, or a call that waits for it, is kept."""
    style: Literal["form", "simple"] = "form"
    """A form with a decision, or a bare yes or no for clients that render no form."""


class ResultSettings(Section):
    display: Literal["block", "meta"] = "block"
    """Where the display for people (a diff, for example) travels: also as a small text block, or in _meta only."""


class WorkspaceSettings(Section):
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


class PrincipalSettings(Section):
    """What is set apart for the bearer of one token."""

    workspace: tuple[str, ...] = ()
    """Its own workspace folders, in place of workspace.roots; written as those are."""
    profile: Literal["core", "full"] = "full"
    """Which of the built-in tools it has, as in tools.profile."""
    rules: PermissionSettings = Field(default_factory=PermissionSettings.model_construct)
    """Rules of its own beside those of permissions; a rule that denies wins wherever it stands."""


class TokenSource(PrincipalSettings):
    """Where one HTTP token stands, never the token itself; and what is set apart for its client."""

    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the token and nothing else; nobody but its owner may read it (mode 0600)."""
    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the token."""


class IntrospectionSettings(Section):
    url: str = ""
    """The introspection endpoint of the issuer (RFC 7662), https or on this machine; without it a token has to be a \
JWT."""
    client_id: str = ""
    """The id by which the issuer knows this server there."""
    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the secret that goes with clientId; nobody but its owner may read it (mode 0600)."""
    env: Annotated[str | None, Field(repr=False)] = None
    """The environment variable that holds the secret."""


class IssuerSettings(Section):
    """Whose access tokens are accepted, beside those of `http.tokens` (OAuth 2.1 resource server)."""

    issuer: str = ""
    """The issuer of the tokens, exactly as it calls itself; https, or on this machine. Empty accepts none."""
    resource: str = ""
    """The address by which clients reach /mcp, exactly as they write it; tokens must be made for it."""
    audience: tuple[str, ...] = ()
    """What may stand in the aud of a token in place of the resource, for issuers that write something else there."""
    jwks_uri: str | None = None
    """Where the keys of the issuer are; null takes the address from its metadata."""
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = ("RS256", "PS256", "ES256", "EdDSA")
    """How tokens may be signed."""
    scopes: tuple[str, ...] = ()
    """The scopes that clients are told to ask for, as the issuer spells them; empty is read, write, run, upstream:*."""
    required_scopes: tuple[str, ...] = ()
    """Scopes without which a token is refused."""
    default_scopes: tuple[str, ...] = ()
    """What a token gives that names none of our scopes: read, write, run, upstream:ALIAS or upstream:*."""
    scope_prefix: str = ""
    """What the issuer puts before our scopes: with "tools." a token names tools.read."""
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """Where a token names its scopes, as a text with blanks between or an array."""
    introspection: IntrospectionSettings = Field(default_factory=IntrospectionSettings.model_construct)
    """Where tokens are asked about that are no JWT."""
    principals: Mapping[str, PrincipalSettings] = Field(default_factory=dict[str, PrincipalSettings])
    """What is set apart for people and programs, by the subject (sub) of their tokens."""

    @property
    def is_given(self) -> bool:
        return bool(self.issuer or self.resource)


class StateKey(BaseModel):
    """Where one key stands, never the key itself."""

    model_config = ConfigDict(frozen=True, strict=True)

    file: Annotated[str | None, Field(repr=False)] = None
    env: Annotated[str | None, Field(repr=False)] = None


class HttpSettings(Section):
    host: Annotated[str, Field(min_length=1), Expected("a host name or an address")] = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8808
    """The port to listen on; 0 takes a free one."""
    tokens: Annotated[Mapping[str, TokenSource], Field(repr=False)] = Field(default_factory=dict[str, TokenSource])
    """Tokens of clients, by a name for each client; with one, nobody is let in without. Where none is named, the one \
of the variable CORETOOLS_MCP_TOKEN counts, if that is set."""
    oauth: IssuerSettings = Field(default_factory=IssuerSettings.model_construct)
    """Whose access tokens are accepted too, such as those of a company's authorization server."""
    tls_cert: str | None = None
    """The file with the certificate to serve HTTPS with, and with those above it (PEM)."""
    tls_key: str | None = None
    """The file with its private key (PEM); null where that stands in the same file."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted besides those of the address listened on."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that are accepted besides our own; they may read the answers (CORS)."""
    root_path: Annotated[
        str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$"), Expected('a path that begins with "/" and has none at its end')
    ] = ""
    """The path below which a proxy before us publishes this server, such as "/tools", whether or not the proxy \
takes it away. Clients over SSE are sent there with their messages."""
    trusted_proxies: tuple[str, ...] = ()
    """The addresses of proxies before us whose header X-Forwarded-Prefix counts in place of rootPath."""
    public_url: Annotated[
        str | None,
        Field(
            pattern=r"^(https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?"
            r"(/[A-Za-z0-9._~-]+)*/?$"
        ),
        AfterValidator(_as_browsers_say_it),
        Expected("an address that begins with https:// (with http:// only on this machine), without a query, or null"),
    ] = None
    """The address at which people reach this server, without /mcp at its end. With it they log in to servers behind \
this one by a page that is served there, on whatever machine they are."""
    state_keys: Annotated[
        tuple[StateKey, ...], Field(repr=False), Expected("an array of objects, each with one of file and env")
    ] = ()
    """Where keys stand that replicas of this server share, each a text of at least 32 characters that is known to \
nobody else: a file (mode 0600) or an environment variable. With them each replica goes on with what another one has \
asked, and with its logins to other servers. The first one seals, all of them open. Empty makes a key that ends with \
the process."""
    session_idle: Annotated[Duration, Field(ge=1, le=7 * DAY)] = 1_800_000
    """How long a session may be silent before it ends."""
    drain: Annotated[Duration, Field(ge=0, le=3_600_000)] = 0
    """How long requests are still taken when the server is told to end (SIGTERM), while /readyz answers 503 already: \
long enough for a balancer to see that and send them elsewhere."""
    grace: Annotated[Duration, Field(ge=0, le=3_600_000)] = 3_000
    """How long open calls and streams may go on after that, when nobody is let in any more."""
    metrics: bool = False
    """Whether /metrics shows counters in the text format of Prometheus, to those who show a token where one is \
needed."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches us."""
        return self.host in ("127.0.0.1", "localhost", "::1")


class StorePassword(Section):
    file: Annotated[str | None, Field(repr=False)] = None
    """The file that holds the password and nothing else; nobody but its owner may read it (mode 0600)."""
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
    """Where replicas keep what they share: which answers have counted, what users allow from then on, which tools of \
other servers people have approved, logins to these, and how often each client has called. memory: is this process \
alone; sqlite:PATH is a file for several processes of one machine, by an absolute path; valkey://USER@HOST:PORT/DB a \
Valkey or Redis server (valkeys:// over TLS), for which the extra valkey is needed. Only a server on the network uses \
it. Without http.stateKeys it holds no more than how often clients call, and which lists have changed."""
    password: StorePassword = Field(default_factory=StorePassword.model_construct)
    """The password of the Valkey server."""
    replica: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$"), Expected("a name of letters, digits and ._-")] = (
        ""
    )
    """What this replica is called in messages and in the log; empty is the name of the host."""


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The least severity written."""
    audit: str | None = None
    """The file that every decision on a call is appended to, as JSON lines; null keeps them in the log alone. ~ is \
the home folder."""


class Settings(Section):
    mcp_servers: Mapping[str, UpstreamSettings] = Field(default_factory=dict[str, UpstreamSettings])
    """The servers behind this one: alias to entry, in the order of the configuration."""
    mcp: McpSettings = Field(default_factory=McpSettings.model_construct)
    """Which of them are used."""
    approval_mode: Annotated[
        ApprovalMode, Expected('one of "plan", "default", "auto-edit" ("yolo" only on the command line)')
    ] = ApprovalMode.DEFAULT
    """How much may happen without a question: plan changes nothing, auto-edit edits files, fetches and searches the \
web unasked."""
    permissions: ClientPermissionSettings = Field(default_factory=ClientPermissionSettings.model_construct)
    """Rules for single calls."""
    confirmation: ConfirmationSettings = Field(default_factory=ConfirmationSettings.model_construct)
    """How a person is asked."""
    results: ResultSettings = Field(default_factory=ResultSettings.model_construct)
    """How results are shown."""
    media: MediaHandling = MediaHandling.INLINE
    """What becomes of images, sounds and other media: sent inline, as a link, or named only."""
    tools: tool_models.ToolSettings = Field(default_factory=tool_models.ToolSettings.model_construct)
    """Which tools there are."""
    workspace: WorkspaceSettings = Field(default_factory=WorkspaceSettings.model_construct)
    """The folders that tools may touch."""
    limits: tool_models.LimitSettings = Field(default_factory=tool_models.LimitSettings.model_construct)
    """How much one call may return."""
    shell: tool_models.ShellSettings = Field(default_factory=tool_models.ShellSettings.model_construct)
    """How commands run."""
    web: tool_models.WebSettings = Field(default_factory=tool_models.WebSettings.model_construct)
    """What may be fetched, and who searches."""
    memory: tool_models.MemorySettings = Field(default_factory=tool_models.MemorySettings.model_construct)
    """Where memories are kept."""
    undo: tool_models.UndoSettings = Field(default_factory=tool_models.UndoSettings.model_construct)
    """How changes of files can be undone."""
    lsp: tool_models.LspSettings = Field(default_factory=tool_models.LspSettings.model_construct)
    """Which language servers there are."""
    agents: Mapping[str, tool_models.AgentSettings] = Field(default_factory=dict[str, tool_models.AgentSettings])
    """Programs that take tasks: name to entry."""
    http: HttpSettings = Field(default_factory=HttpSettings.model_construct)
    """How the network transports listen."""
    store: StoreSettings = Field(default_factory=StoreSettings.model_construct)
    """What replicas share."""
    proxy: ProxySettings = Field(default_factory=ProxySettings.model_construct)
    """How upstream tools are published."""
    log: LogSettings = Field(default_factory=LogSettings.model_construct)
    """What is written to stderr."""
