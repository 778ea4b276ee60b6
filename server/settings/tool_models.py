"""The keys of the settings about tools: lists of tools, limits, commands, the web, memory, undo, lsp and agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from server.settings.section_model import DAY, CommandLine, Duration, Expected, Section, wire_name
from tools.contract.call_options import MAX_COMMAND_TIMEOUT, Limits
from tools.memory.memory_files import MemoryFiles
from tools.web.search_settings import SEARCH_VARIABLES, ProviderName, ProviderSettings, SearchSettings

if TYPE_CHECKING:
    from tools.agent_programs import AgentCommand
    from tools.discovery.discovery_commands import DiscoverySettings
    from tools.lsp.language_servers import LanguageServer
    from tools.web.address_guard import WebRules

MAX_COUNT: Final = 10_000_000
"""The largest possible limit on lines, characters, entries, matches or files for one call."""
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Secret = Annotated[str | None, Field(repr=False)]
_LIMITS: Final = Limits()


class ToolSettings(Section):
    """`tools`: which tools are offered, and the commands of custom tools."""

    discovery_command: CommandLine = None
    """A command line that prints declarations of custom tools. No shell parses it. Variables are expanded."""
    call_command: CommandLine = None
    """A command line that runs a custom tool: the tool's name is appended, and its arguments are JSON on standard
    input. No shell parses the command line. Variables are expanded.
    """
    discovery_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 60_000
    """How long the discovery command may run."""
    call_timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 600_000
    """How long a custom tool may run."""
    strict: bool = False
    """Whether a call to a custom tool fails if the tool writes to standard error, as in Qwen Code and Gemini CLI."""
    built_in: bool = True
    """Whether to offer built-in tools at all, with their prompts and resources."""
    profile: Literal["core", "full"] = "full"
    """Which built-in tools to offer: all (full), or those for files, search, commands and background jobs (core)."""
    include: tuple[str, ...] = ()
    """The only tools to offer: built-in ones, custom ones and those of other servers; empty offers all."""
    core: tuple[str, ...] = ()
    """The only built-in tools to offer; empty offers all."""
    allowed: tuple[str, ...] = ()
    """Tools that run without a question."""
    exclude: tuple[str, ...] = ()
    """Tools not to offer."""
    confirmation_required: tuple[str, ...] = ()
    """Tools whose calls always need the user's consent."""

    def for_tools(self) -> DiscoverySettings:
        from tools.discovery.discovery_commands import DiscoverySettings  # noqa: PLC0415 - needed only with commands

        limits = (self.discovery_timeout / 1000, self.call_timeout / 1000)  # in seconds
        return DiscoverySettings(self.discovery_command, self.call_command, *limits, self.strict)


class LimitSettings(Section):
    """`limits`: how much one call may return, how large a request may be, and how many requests are allowed."""

    read_lines: Count = _LIMITS.read_lines
    """The maximum number of lines in one read, unless the call sets a limit."""
    read_chars: Count = _LIMITS.read_chars
    """The maximum number of characters in one read."""
    list_entries: Count = _LIMITS.list_entries
    """The maximum number of entries in one directory listing, or of files in one glob, unless the call sets a limit."""
    grep_matches: Count = _LIMITS.grep_matches
    """The maximum number of matching lines in the result of one search, unless the call sets a limit."""
    read_many_files: Count = _LIMITS.read_many_files
    """The maximum number of files in the result of one read_many_files call."""
    read_many_chars: Count = _LIMITS.read_many_chars
    """The maximum number of characters in the result of one read_many_files call."""
    result_chars: Count | None = 100_000
    """Up to this length in characters, a result of a server's tool is passed on in full. A longer result is saved to a
    file that the client can read. null passes everything on.
    """
    request_bytes: Annotated[int, Field(ge=1024, le=1_073_741_824)] = 16_777_216
    """The maximum size of one request from a client, in bytes."""
    calls_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """The maximum number of calls per minute from one client, including requests for prompts, resources and completion;
    further calls are refused, and the refusal says when to retry. A client is a token, or else a session; clients with
    neither share the limit. null means no limit.
    """
    calls_at_once: Annotated[int | None, Field(ge=1, le=256)] = None
    """The maximum number of calls that one client may have in progress at once, including those that wait for a
    person; further calls are refused. Calls and clients are counted as for callsPerMinute. null means 256 over the
    network.
    """

    def for_tools(self) -> Limits:
        return Limits(**{name: value for name, value in self if hasattr(_LIMITS, name)})


class ShellSettings(Section):
    sandbox: Literal["off", "auto", "required"] = "auto"
    """Whether commands run in a sandbox: never (off), if the sandbox works (auto), or always (required)."""
    network: Literal["host", "none"] = "host"
    """Whether sandboxed commands can reach the network (host) or not (none)."""
    timeout: Annotated[Duration, Field(ge=1, le=MAX_COMMAND_TIMEOUT)] = 120_000
    """How long a command may run, unless the call says otherwise."""
    silence_timeout: Annotated[Duration, Field(ge=0, le=MAX_COMMAND_TIMEOUT)] = 0
    """How long a command may run without output; 0 means no limit."""
    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables for commands."""
    readable: tuple[str, ...] = ()
    """Files and folders that sandboxed commands can see although they are known to contain secrets, such as ~/.npmrc or
    ~/.ssh/known_hosts. A relative path starts from the folder of its settings file; ~ is the home folder.
    """
    writable: tuple[str, ...] = ()
    """Files and folders of the workspace, such as .vscode, that sandboxed commands may create and change although other
    programs act on their content. A relative path applies to every folder of the workspace.
    """
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 8
    """The maximum number of commands running at once, not counting background jobs."""


class TavilySettings(Section):
    api_key: Secret = None
    """The key for Tavily; null uses the variable TAVILY_API_KEY. Variables are expanded."""
    url: str | None = None
    """The address to send searches to; null means Tavily's own. Variables are expanded."""


class BraveSettings(Section):
    api_key: Secret = None
    """The key for Brave Search; null uses the variable BRAVE_API_KEY. Variables are expanded."""
    url: str | None = None
    """The address to send searches to; null means Brave's own. Variables are expanded."""


class GoogleSettings(Section):
    api_key: Secret = None
    """The key for Google's Custom Search; null uses the variable GOOGLE_API_KEY. Variables are expanded."""
    search_engine_id: str | None = None
    """The id of the search engine; null uses the variable GOOGLE_SEARCH_ENGINE_ID. Variables are expanded."""
    url: str | None = None
    """The address to send searches to; null means Google's own. Variables are expanded."""


class SearxngSettings(Section):
    url: str | None = None
    """The address of a SearXNG instance that answers in JSON. Variables are expanded."""


class WebSearchSettings(Section):
    """`web.search`: the search providers. A provider is available if all its required keys have values."""

    default: ProviderName | None = None
    """The provider for calls that do not name one; null means the first available one in the order listed here."""
    tavily: TavilySettings = Field(default_factory=TavilySettings.model_construct)
    """Tavily."""
    brave: BraveSettings = Field(default_factory=BraveSettings.model_construct)
    """Brave Search."""
    google: GoogleSettings = Field(default_factory=GoogleSettings.model_construct)
    """Google's Custom Search."""
    searxng: SearxngSettings = Field(default_factory=SearxngSettings.model_construct)
    """SearXNG."""

    @property
    def configured(self) -> tuple[str, ...]:
        """The providers with all required values, in order of preference."""
        return tuple(
            name
            for name, required_keys in SEARCH_VARIABLES.items()
            if all(value for attribute, value in getattr(self, name) if wire_name(attribute) in required_keys)
        )

    def for_tools(self) -> SearchSettings:
        providers = [
            ProviderSettings(name, **{key: value for key, value in getattr(self, name) if value is not None})
            for name in self.configured
        ]
        return SearchSettings(tuple(providers), self.default)


class WebSettings(Section):
    allow_private_hosts: tuple[str, ...] = ()
    """Hosts that may be fetched from although their addresses are private. Each is a name, `*.example` for all names
    under `example`, an address, or a network such as `10.1.0.0/16`. With a port, as in `localhost:3000`, a name or
    address is allowed only on that port, which need not be in `web.allowedPorts`.
    """
    allowed_ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (80, 443)
    """Ports that may be fetched from."""
    search: WebSearchSettings = Field(default_factory=WebSearchSettings.model_construct)
    """The search providers."""

    def for_tools(self) -> WebRules:
        from tools.web.address_guard import WebRules  # noqa: PLC0415 - loaded with the first fetch

        return WebRules(self.allow_private_hosts, self.allowed_ports)


class MemorySettings(Section):
    file_name: Annotated[tuple[str, ...], Field(min_length=1), Expected("a file name, or an array of them")] = (
        "AGENTS.md",
    )
    """The name of the memory file, a Markdown file (.md); if several names are given, the first is used."""
    project_file_name: str | None = None
    """The name of the memory file in the workspace; null means memory.fileName. If a trusted settings file of a
    workspace sets memory.fileName, that value is used for this key.
    """
    global_folder: str | None = None
    """The folder of the memory for all projects; null means the folder of the user's own settings. A relative path
    starts from the folder of its settings file; ~ is the home folder.
    """
    section: Annotated[str, Field(min_length=1)] = "Added Memories"
    """The heading above memories."""

    def for_tools(self, own_folder: str | None) -> MemoryFiles:
        folder = self.global_folder or own_folder
        return MemoryFiles(self.file_name[0], folder, self.section, self.project_file_name)


class UndoSettings(Section):
    """`undo`: which old contents of changed files are kept, so that changes can be undone."""

    enabled: bool = True
    """Whether old contents are kept at all. If so, list_changes and undo_change are offered, and changes by commands
    are reported.
    """
    max_bytes: Annotated[int, Field(ge=1_000_000, le=1_000_000_000_000)] = 256_000_000
    """The maximum size in bytes of everything that is kept to undo changes, for all workspaces together; the oldest
    changes are deleted first.
    """
    max_days: Annotated[int, Field(ge=1, le=3_650)] = 30
    """How many days a change can be undone. Older records and contents are deleted at the next change."""
    max_file_bytes: Annotated[int, Field(ge=0, le=64_000_000)] = 10_000_000
    """The size in bytes of the largest file whose old content is kept; changes to a larger file cannot be undone."""


class LanguageServerSettings(Section):
    """One entry of `lsp.servers`: a language server program."""

    command: Annotated[str, Field(repr=False)] = ""
    """The program: its absolute path, or a name that is searched for on the PATH outside the workspace."""
    args: Annotated[tuple[str, ...], Field(repr=False)] = ()
    """Arguments of the program; no shell parses them."""
    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables for the program."""
    extension_to_language: Mapping[str, str] = Field(default_factory=dict[str, str])
    """File name extensions, each with its language id in the Language Server Protocol, such as ".rb": "ruby". For these
    files, the program takes precedence over the language servers known by default.
    """


class LspSettings(Section):
    """`lsp`: the language servers behind the lsp tool."""

    servers: Mapping[str, LanguageServerSettings] = Field(default_factory=dict[str, LanguageServerSettings])
    """Additional language servers, by name."""
    after_edit: bool = True
    """Whether edits report new errors while a language server runs for the file."""

    def for_tools(self) -> tuple[LanguageServer, ...]:
        from tools.lsp.language_servers import LanguageServer  # noqa: PLC0415 - loaded with the first list

        def language_server(name: str, entry: LanguageServerSettings) -> LanguageServer:
            languages = {
                f".{extension.lstrip('.').lower()}": language_id
                for extension, language_id in entry.extension_to_language.items()
            }
            return LanguageServer(name, languages, ((entry.command, *entry.args),), environment=entry.env)

        return tuple(language_server(name, entry) for name, entry in self.servers.items() if entry.command)


class AgentSettings(Section):
    """One entry of `agents`: a program that runs a task."""

    command: Annotated[str | None, Field(repr=False)] = None
    """The program. Variables are expanded."""
    args: Annotated[tuple[str, ...], Field(repr=False)] = ()
    """Arguments of the program; no shell parses them. Variables are expanded."""
    env: Annotated[Mapping[str, str], Field(repr=False)] = Field(default_factory=dict[str, str])
    """Environment variables for the program. Variables in their values are expanded."""
    inherit_env: tuple[str, ...] = ()
    """Names of variables from this server's environment to pass to the program in addition to the usual few (PATH,
    HOME, ...).
    """
    prompt: Literal["stdin", "argument"] = "stdin"
    """How the program receives the task: on standard input (stdin), or as its last argument (argument)."""
    output: Literal["text", "json"] = "text"
    """The form of the program's output: the answer as text (text), or JSON that contains the answer (json)."""
    timeout: Annotated[Duration, Field(ge=1, le=DAY)] = 600_000
    """How long the program may run."""
    description: str = ""
    """What the agent is good at; models see this."""

    def for_tools(self, name: str) -> AgentCommand:
        from tools.agent_programs import AgentCommand  # noqa: PLC0415 - needed only if there are agents

        values: dict[str, Any] = dict(self)
        values["command"] = self.command or ""
        return AgentCommand(name=name, **values)
