"""The only entry point for loading settings from files, the command line and the environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import takewhile
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from server.settings import workspace_trust
from server.settings.canonical_form import canonicalise
from server.settings.gemini_and_qwen_files import AGENT_CLIS, FILE, CliName, expand_variables, translate
from server.settings.layers import FileState, Layer, MergedLayers, SettingsFile, SettingsScope
from server.settings.section_model import (
    Diagnostics,
    KeyPath,
    Section,
    SettingsError,
    dotted,
    key_paths,
    keys_of,
    shown_name,
    wire_name,
)
from server.settings.server_models import Settings, UpstreamSettings
from server.settings.settings_files import (
    LOCK_NAME,
    Tree,
    home_folder,
    own_folder,
    parse,
    pop_value,
    read_regular,
    read_settings_file,
    real_path,
    state_folder,
    table_at,
    user_file,
    value_at,
)
from server.settings.tool_models import AgentSettings
from server.settings.upstream_entries import UpstreamEntry, own_options, resolve_entries
from server.settings.variable_expansion import HINT, SourceOf, VariableExpander
from tools.contract.display import visible_line
from tools.web.search_settings import SEARCH_VARIABLES

MAX_LOCK_BYTES = 16 << 20  # a lock file with ten thousand tools takes less than six million bytes
COMMAND_LINE = "command line"  # the source of values from command-line options
LIVE_RESTRICTIONS = (*workspace_trust.RESTRICTING, *key_paths("tools.include tools.profile proxy.requirePins"))
"""Keys that only restrict, and whose changes take effect at once."""


@dataclass(frozen=True, slots=True)
class SettingsInputs:
    """Everything that is needed to read the settings, at startup and whenever a running server reads them again."""

    config_files: Sequence[str]  # the files named on the command line, in the given order; each must exist
    overrides: Mapping[str, Any]  # the other options, in the form of a settings file
    environ: Mapping[str, str]
    cli: CliName | None  # the other CLI whose settings are also used, if any
    working_folder: str | None  # the workspace if no setting names another one
    # The content of each config file that can be read only once, such as a shell's `<(...)`, keyed by its path
    streams: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False, compare=False)
    # The real path at startup of each config file that is reached through links; later reads use it.
    links: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


@dataclass(frozen=True, slots=True)
class LockContent:
    path: str
    content: bytes | None = field(default=None, repr=False)  # `None` if there is no such file, or it cannot be used
    problem: str = ""  # why the file cannot be used, as the end of a sentence


class SettingValue(NamedTuple):
    """A value from the settings, as parsed from JSON."""

    path: KeyPath
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings, and where they came from."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    entries: tuple[UpstreamEntry, ...] = ()  # every server, used or not, in configuration order
    files: tuple[str, ...] = ()  # the files that were read, lowest precedence first
    user_file: str | None = None
    home: str = ""
    values: tuple[SettingValue, ...] = field(default=(), repr=False)
    candidates: tuple[SettingsFile, ...] = ()  # every possible settings file, and its state
    inputs: SettingsInputs | None = field(default=None, repr=False)
    lock: LockContent | None = None  # `None` if there is no place for a lock file
    # The restrictions from workspace files, kept in case these files are no longer trusted.
    restrictions: workspace_trust.Restrictions = field(default_factory=dict[str, Layer], repr=False)

    @property
    def own_folder(self) -> str | None:
        """The folder of the user's own settings and trust record, whether or not it exists."""
        return own_folder(self.inputs.environ) if self.inputs is not None else None

    @property
    def state_folder(self) -> str | None:
        """The real path of the server's private folder for state, whether or not it exists."""
        folder = state_folder(self.inputs.environ) if self.inputs is not None else None
        return os.path.realpath(folder) if folder is not None else None

    @property
    def command_options(self) -> str:
        """The options with which a terminal command uses the same settings files, each after a space."""
        import shlex  # noqa: PLC0415 - needed only in messages

        inputs = self.inputs
        options = "" if inputs is None or inputs.cli is None else f" --settings {inputs.cli}"
        for file in () if inputs is None else inputs.config_files:
            options += f" --config {shlex.quote(visible_line(os.path.abspath(file)))}"
        return options

    @property
    def upstreams(self) -> Mapping[str, UpstreamSettings]:
        """The servers to use, keyed by alias, in configuration order."""
        return {entry.alias: entry.settings for entry in self.entries if entry.left_out is None}

    @property
    def written(self) -> Mapping[str, UpstreamSettings]:
        """All servers, used or not, keyed by alias, with variables unexpanded."""
        return {entry.alias: entry.written for entry in self.entries}

    @property
    def left_out(self) -> Mapping[str, str]:
        return {entry.alias: entry.left_out for entry in self.entries if entry.left_out is not None}


class UnusableSettingsError(SettingsError):
    """The settings were read but are not valid; `report` contains the valid part of them."""

    def __init__(self, report: SettingsReport, problems: Sequence[str]) -> None:
        super().__init__(problems, report.warnings)
        self.report = report


def working_folder() -> str | None:
    """Return the working folder of this process; `None` if it no longer exists."""
    try:
        return os.getcwd()
    except OSError:
        return None


def why_no_dashboard() -> str | None:
    """Return why this server cannot open a dashboard, and what to do; `None` if it can."""
    if sys.platform == "win32":
        return "there is no dashboard on Windows; choose client or deny"
    if find_spec("jinja2") is None:
        from tools.machine.installation import install_command  # noqa: PLC0415 - needed only if jinja2 is missing

        return f"the `dashboard` extra is not installed. Run: {install_command('dashboard')}"
    return None


def load_settings(
    config_files: Sequence[str],
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    cli: CliName | None = None,
    folder: str | None = None,
) -> SettingsReport:
    """Read and merge the user's files, the workspace's files, the files on the command line, and the options.

    If several of these set a value, the last one wins, except that the system-wide overrides of another CLI take
    precedence over the workspace's files. The workspace is `folder`, or else the working folder, unless a setting names
    another one. If the server cannot start with these settings, the `SettingsError` lists all problems.
    """
    workspace_folder = folder if folder is not None else working_folder()
    streams: dict[str, bytes] = {}
    links: dict[str, str] = {}  # a link's target may change while the server runs
    for path in config_files:
        if os.path.isfile(path):
            real = real_path(path)
            links |= {path: real} if real != os.path.abspath(path) else {}
        elif os.path.exists(path):
            streams[path] = read_settings_file(path, is_stream=True) or b""
    return read_settings(SettingsInputs(config_files, overrides, environ, cli, workspace_folder, streams, links))


def read_settings(inputs: SettingsInputs, previous: SettingsReport | None = None) -> SettingsReport:
    """Read all settings now. A running server passes the `previous` ones.

    With `previous`, a file that had values and is now empty, or had restrictions and is now missing, is refused.
    """
    diagnostics, environ = Diagnostics(), inputs.environ
    operators, candidates = _operator_layers(inputs, previous, diagnostics)
    operator_paths = {real_path(inputs.links.get(file.path, file.path)) for file in candidates}
    trusted_folders = workspace_trust.read_trust(workspace_trust.trust_file(environ), diagnostics)
    clis = [AGENT_CLIS[inputs.cli]] if inputs.cli is not None else []
    layers = list(operators)
    earlier: workspace_trust.Restrictions = previous.restrictions if previous is not None else {}
    for folder in _workspace_folders(inputs, operators):
        workspace_files = workspace_trust.find_files(folder, clis)
        files = [file for file in workspace_files if real_path(file.path) not in operator_paths]
        trusted_layers, file_states = workspace_trust.read_trusted(files, trusted_folders, diagnostics)
        candidates += file_states
        for layer in trusted_layers:
            _canonicalise(layer, environ, diagnostics)
        trusted_layers += workspace_trust.retained_restrictions(earlier, file_states, diagnostics)
        for layer in trusted_layers:
            workspace_trust.sanitise(layer, operators, diagnostics)
        layers += trusted_layers
    # A change of workspace takes effect at the next start. Until then, the restrictions of the old one still apply.
    read = {file.path for file in candidates}
    others = [SettingsFile(path, layer.scope, FileState.ABSENT) for path, layer in earlier.items() if path not in read]
    for layer in workspace_trust.retained_restrictions(earlier, others, diagnostics):
        workspace_trust.sanitise(layer, operators, diagnostics)
        layers.append(layer)
    restrictions = workspace_trust.restrictions_of(layers[len(operators) :])
    layers.sort(key=lambda layer: layer.scope)
    all_layers = MergedLayers(layers)
    _add_server_of_command(all_layers, diagnostics)
    values = tuple(_values_of(all_layers, all_layers.data, Settings, ()))
    settings, invalid_entries = _validated(all_layers, diagnostics)
    settings = _resolve(settings, environ, all_layers.source_of, diagnostics)
    workspace_paths = {file.path for file in candidates if file.is_in_workspace}
    entries = resolve_entries(
        settings, all_layers, environ, diagnostics, partial(_starts_itself, inputs, workspace_paths), invalid_entries
    )
    own_file = user_file(environ)
    files_read = [
        layer.source for layer in layers if SettingsScope.CLI_DEFAULTS < layer.scope < SettingsScope.COMMAND_LINE
    ]
    report = SettingsReport(
        settings=settings.model_copy(update={"mcp_servers": {entry.alias: entry.settings for entry in entries}}),
        warnings=tuple(diagnostics.warnings),
        entries=entries,
        files=tuple(files_read),
        user_file=own_file if own_file in files_read else None,
        home=home_folder(environ),
        values=values,
        candidates=tuple(candidates),
        inputs=inputs,
        lock=_read_lock(inputs, previous.lock if previous is not None else None),
        restrictions=restrictions,
    )
    if diagnostics.problems:
        raise UnusableSettingsError(report, diagnostics.problems)
    return report


def _add_server_of_command(all_layers: MergedLayers, diagnostics: Diagnostics) -> None:
    command, alias = workspace_trust.SERVER_COMMAND, workspace_trust.COMMAND_ALIAS
    line: Any = value_at(all_layers.data, command)
    words = cast("list[Any]", line) if isinstance(line, list) else []
    if not words or not all(isinstance(word, str) for word in words):  # validation reports any other value
        return
    source = all_layers.source_of(command)
    if alias in table_at(all_layers.data, "mcpServers"):
        server_key = dotted(("mcpServers", alias))
        diagnostics.warn(source, f"{dotted(command)} is not used: {server_key} already has the alias {alias}.")
        return
    server = {"mcpServers": {alias: {"command": words[0], "args": words[1:]}}}
    all_layers.add(Layer(SettingsScope.CONFIG, source, server, names={alias: alias}))


def _validated(all_layers: MergedLayers, diagnostics: Diagnostics) -> tuple[Settings, dict[str, dict[KeyPath, str]]]:
    """Return the settings, and what is wrong with the servers that are not valid, keyed by alias.

    If anything else is wrong, return the valid part of the settings, so that all problems are reported at once.
    """
    if not all_layers.data:
        return Settings.model_construct(), {}  # The defaults need no validator, and building it takes time.
    data = dict(all_layers.data)
    roots: Any = value_at(data, ("workspace", "roots"))
    # JSON cannot contain the name of a folder that is not UTF-8, so the validator is given `/` instead.
    root_list = cast("list[Any]", roots) if isinstance(roots, list) else []
    strings = {index: root for index, root in enumerate(root_list) if isinstance(root, str)}
    undecodable = {at: root for at, root in strings.items() if root.encode(errors="ignore").decode() != root}
    if undecodable:
        valid_roots = [os.sep if index in undecodable else root for index, root in enumerate(root_list)]
        data["workspace"] = data["workspace"] | {"roots": valid_roots}
    text = json.dumps(data)
    invalid_entries: dict[str, dict[KeyPath, str]] = {}
    try:
        settings = Settings.model_validate_json(text)
    except ValidationError as error:
        from server.settings.invalid_values import explain, shortened  # noqa: PLC0415 - needed only if something is wrong

        problems: list[str] = []
        valid_data = json.loads(text)
        for path, sentence in explain(error, all_layers.source_of).items():
            keys = tuple(takewhile(lambda step: isinstance(step, str), path))
            if keys[:1] == ("mcpServers",) and keys[1:]:
                invalid_entries.setdefault(str(keys[1]), {})[path] = sentence
                valid_data["mcpServers"][keys[1]] = {"enabled": False}
                continue
            problems.append(sentence)
            if keys:
                pop_value(valid_data, keys[:2] if keys[0] == "agents" else keys)
        try:
            settings = Settings.model_validate_json(json.dumps(valid_data))
        except ValidationError as other_error:
            settings = Settings.model_construct()
            problems = problems or list(explain(other_error, all_layers.source_of).values())
        diagnostics.problems += shortened(problems)
    if undecodable and len(settings.workspace.roots) == len(root_list):
        valid = tuple(undecodable.get(index, root) for index, root in enumerate(settings.workspace.roots))
        settings = settings.model_copy(update={"workspace": settings.workspace.model_copy(update={"roots": valid})})
    return settings, invalid_entries


def _read_lock(inputs: SettingsInputs, previous: LockContent | None) -> LockContent | None:
    """Read the lock file next to the last settings file on the command line, or else next to the user's own."""
    paths = [path for path in inputs.config_files if path not in inputs.streams]
    settings_path = paths[-1] if paths else user_file(inputs.environ)
    if settings_path is None:
        return None
    path = os.path.join(os.path.dirname(os.path.abspath(settings_path)), LOCK_NAME)
    try:
        content = read_regular(path, MAX_LOCK_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        was_there = previous is not None and (previous.content is not None or previous.problem)
        problem = "it existed before and is now missing" if was_there else ""
        present = path  # the part of the path that exists, even if it is only a link
        while not os.path.lexists(present):
            present = os.path.dirname(present)
        return LockContent(path, problem=problem if os.path.exists(present) else "its path has a dangling link")
    except (OSError, ValueError):
        return LockContent(path, problem="it cannot be read, or is not a regular file")
    if len(content) > MAX_LOCK_BYTES:
        return LockContent(path, problem=f"it is larger than {MAX_LOCK_BYTES:,} bytes")
    return LockContent(path, content)


def _operator_layers(
    inputs: SettingsInputs, previous: SettingsReport | None, diagnostics: Diagnostics
) -> tuple[list[Layer], list[SettingsFile]]:
    """Return the operator's own layers in canonical form, and the files that were read or are missing."""
    environ = inputs.environ
    layers: list[Layer] = []
    files: list[SettingsFile] = []
    optional = [(user_file(environ), SettingsScope.USER)]
    if inputs.cli is not None:
        cli = AGENT_CLIS[inputs.cli]
        defaults, overrides = cli.system_files(environ)
        layers.append(Layer(SettingsScope.CLI_DEFAULTS, f"--settings {inputs.cli}", cli.defaults(environ)))
        optional.append((defaults, SettingsScope.SYSTEM_DEFAULTS))
        optional.append((os.path.join(cli.user_folder(environ), FILE), SettingsScope.CLI_USER))
        optional.append((overrides, SettingsScope.SYSTEM_OVERRIDES))
    for path, scope in (*optional, *((path, SettingsScope.CONFIG) for path in inputs.config_files)):
        if path is None:
            continue
        content = inputs.streams.get(path)
        try:
            if content is None:
                is_optional = scope is not SettingsScope.CONFIG
                content = read_settings_file(inputs.links.get(path, path), is_optional=is_optional)
            files.append(SettingsFile(path, scope, FileState.ABSENT if content is None else FileState.READ))
            data = parse(content, path, diagnostics) if content is not None else {}
        except SettingsError as error:
            diagnostics.problems += error.problems  # the other files are still read
            continue
        # A source names one or more files, joined by " and ". One file's name may be part of another's.
        earlier_values = previous.values if previous is not None else ()
        values = [value for value in earlier_values if f" and {path} and " in f" and {value.source} and "]
        restricts = any(value.path[:2] in LIVE_RESTRICTIONS for value in values)
        is_blank = content is not None and b"{" not in content  # any other valid file contains an object
        if (restricts and content is None) or (values and is_blank):
            # Another program may be about to write this file, or the folder may be unavailable for a while. Until the
            # file is back, its previous rules must stay in effect.
            state = "missing" if content is None else "empty"
            diagnostics.refuse(path, f"this file is now {state}; write {{}} into it if that is intended.")
            continue
        if content is None:
            continue
        if scope.is_of_agent_cli:
            data = translate(data, path, diagnostics)
        layers.append(Layer(scope, path, data, os.path.dirname(path)))
    options = json.loads(json.dumps(dict(inputs.overrides)))  # a copy, because the layer is changed later
    layers.append(Layer(SettingsScope.COMMAND_LINE, COMMAND_LINE, options))
    for layer in layers:
        _canonicalise(layer, environ, diagnostics)
    return layers, files


def _canonicalise(layer: Layer, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    canonicalise(layer, environ, diagnostics)
    if layer.scope.is_of_agent_cli:
        expand_variables(layer.data, layer.source, environ, diagnostics)


def _workspace_folders(inputs: SettingsInputs, operators: Sequence[Layer]) -> list[str]:
    """Return the folders whose settings files may be used: the operator's `workspace.roots`, or the working folder.

    The client's roots are never used, and neither is a working folder that is the home folder or the root of a disk.
    """
    for layer in sorted(operators, key=lambda layer: layer.scope, reverse=True):
        roots: Any = value_at(layer.data, ("workspace", "roots"))
        if roots == []:
            break  # the list replaces those of lower layers
        if isinstance(roots, list):
            paths = [root for root in cast("list[Any]", roots) if isinstance(root, str) and "\0" not in root]
            return list(dict.fromkeys(real_path(root) for root in paths))
    if inputs.working_folder is None:
        return []
    folder = real_path(inputs.working_folder)
    is_project = folder not in (os.path.dirname(folder), real_path(home_folder(inputs.environ)))
    return [folder] if is_project else []


def _resolved_agents(
    entries: Mapping[str, AgentSettings], environ: Mapping[str, str], source_of: SourceOf, diagnostics: Diagnostics
) -> dict[str, AgentSettings]:
    """Return the agents that can be used, with variables expanded."""
    agents: dict[str, AgentSettings] = {}
    for name, agent in entries.items():
        path = ("agents", name)
        if not (agent.command or "").strip():
            message = f"{dotted(path)}.command is missing or empty; name the program that runs the tasks."
            diagnostics.refuse(source_of(path), message)
            continue
        expander = VariableExpander(environ)
        expanded_agent = expander.section(agent, ("command", "args", "env"), path)
        consequence = f"; the agent {shown_name(name)} is not used. {HINT}"
        if not expander.warn_of_missing(diagnostics, source_of, consequence):
            agents[name] = expanded_agent
    return agents


def _resolve(settings: Settings, environ: Mapping[str, str], source_of: SourceOf, diagnostics: Diagnostics) -> Settings:
    """Expand the variables in `tools`, `web.search` and `agents`, and report settings that cannot take effect."""
    folders: dict[KeyPath, str] = {
        **{("workspace", "roots", index): root for index, root in enumerate(settings.workspace.roots)},
        **{("shell", "readable", index): path for index, path in enumerate(settings.shell.readable)},
    }
    if settings.memory.global_folder is not None:
        folders["memory", "globalFolder"] = settings.memory.global_folder
    for path, folder in folders.items():
        try:
            os.path.realpath(folder)
        except OSError:  # the link's target is unknown
            message = f"{dotted(path)} leads through a link that this server may not follow; name another folder."
            diagnostics.refuse(source_of(path), message)
        except ValueError:
            pass  # the path contains NUL, which was already reported when the layer was converted
    updates: dict[str, Any] = {}
    confirmation, tools = settings.confirmation, settings.tools
    if confirmation.when_unavailable == "page" and (reason := why_no_dashboard()) is not None:
        path = ("confirmation", "whenUnavailable")
        consequence = "Until then it counts as deny: calls that would need consent are refused."
        diagnostics.warn(source_of(path), f"{dotted(path)} is page, but {reason}. {consequence}")
        updates["confirmation"] = confirmation.model_copy(update={"when_unavailable": "deny"})
    commands = {"discovery_command": tools.discovery_command, "call_command": tools.call_command}
    if any(commands.values()):
        usable_commands: dict[str, tuple[str, ...] | None] = {}
        for name, command in commands.items():
            expander = VariableExpander(environ)
            line = expander.texts(command or (), ("tools", wire_name(name)))
            is_missing = expander.warn_of_missing(diagnostics, source_of, f"; the command is not used. {HINT}")
            usable_commands[name] = None if is_missing else line or None
        updates["tools"] = tools.model_copy(update=usable_commands)
    search, providers = settings.web.search, dict[str, Any]()
    for name, variables in SEARCH_VARIABLES.items():
        provider: Section = getattr(search, name)
        values: dict[str, str | None] = {}
        expander = VariableExpander(environ)
        for attribute, raw in provider:
            key = wire_name(attribute)
            text = expander.text(raw, ("web", "search", name, key)) if raw else environ.get(variables.get(key, ""))
            values[attribute] = text if raw or text else None
        if expander.warn_of_missing(diagnostics, source_of, f"; {name} is not used. {HINT}"):
            values = dict.fromkeys(values)  # otherwise, searches could go to the provider's usual address
        if any(getattr(provider, attribute) != value for attribute, value in values.items()):
            providers[name] = provider.model_copy(update=values)
    if providers:
        search = search.model_copy(update=providers)
        updates["web"] = settings.web.model_copy(update={"search": search})
    if search.default is not None and search.default not in search.configured:
        message = (
            f"web.search.default is {search.default}, which cannot be used: a key or address that it needs is missing."
        )
        diagnostics.warn(source_of(("web", "search", "default")), message)
    for name, server in settings.lsp.servers.items():
        path = ("lsp", "servers", name)
        missing = "" if server.extension_to_language else "extensionToLanguage"
        if missing := missing if server.command else "command":
            diagnostics.warn(source_of(path), f"{dotted(path)} has no {missing}; add one.")
    if settings.agents:
        updates["agents"] = _resolved_agents(settings.agents, environ, source_of, diagnostics)
    return settings.model_copy(update=updates) if updates else settings


def _starts_itself(inputs: SettingsInputs, workspace_paths: Set[str], entry: UpstreamSettings, source: str) -> bool:
    """Return whether an entry starts this program with the same settings.

    An entry that starts it with other settings is used as an upstream.
    """
    options = own_options(entry.command, list(entry.args)) if entry.transport == "stdio" else None
    variables = {"HOME", "XDG_CONFIG_HOME", "APPDATA"}.intersection(entry.env)
    if options is None or any(entry.env[name] != inputs.environ.get(name) for name in variables):
        return False
    files: list[str] = []
    cli: str | None = None
    words = iter(options)
    for word in words:
        option, equals, value = word.partition("=")
        if option in ("--config", "--settings", "--workspace"):
            value = value if equals else next(words, "")
            if option == "--config":
                value = os.path.expanduser(value) if value.startswith("~/") else value
                files.append(real_path(os.path.join(entry.cwd or inputs.working_folder or "", value)))
            elif option == "--settings":
                cli = value
            elif source in workspace_paths:
                return False  # another workspace has other settings
    return cli == inputs.cli and files == [real_path(path) for path in inputs.config_files]


def _values_of(all_layers: MergedLayers, data: Tree, section: type[Section], path: KeyPath) -> Iterator[SettingValue]:
    for name, value in data.items():
        value_path, key = (*path, name), keys_of(section)[name]
        if key.section is None or not isinstance(value, dict):
            yield SettingValue(value_path, value, all_layers.source_of(value_path))
        for section_path, entry, subsection in key.sections_in(value, value_path):
            yield from _values_of(all_layers, entry, subsection, section_path)
