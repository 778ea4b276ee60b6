"""The settings files of Qwen Code and Gemini CLI: where they are, and what in them means something here.

Both know two shapes: flat keys (`coreTools`), and keys in sections (`tools.core`). The keys and shapes of all their
versions become ours, in any layer. What is about their own interface, their model or their account is passed over in
silence; what restricts, and has no counterpart here, is told.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from pydantic import ValidationError

from server.settings.files import home_folder
from server.settings.layers import REFUSING, Layer, SettingsScope
from server.settings.models import Settings, UpstreamSettings
from server.settings.section import Diagnostics, KeyPath, Section, dotted, key_paths, keys_of
from server.settings.tool_models import MAX_COUNT
from server.settings.tree import Tree, parent_at, pop_value, set_default, table_at, value_at
from server.settings.upstream_entries import EXPANDED_IN_SERVERS, MAX_ALIAS, alias_of
from server.settings.variable_expansion import VariableExpander
from tools.contract.limits import MAX_COMMAND_TIMEOUT, ApprovalMode

KEY_ALIASES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("toolDiscoveryCommand",): ("tools", "discoveryCommand"),
    ("tools", "toolDiscoveryCommand"): ("tools", "discoveryCommand"),
    ("toolCallCommand",): ("tools", "callCommand"),
    ("tools", "toolCallCommand"): ("tools", "callCommand"),
    ("mcpServerCommand",): ("mcp", "serverCommand"),
    ("mcp", "mcpServerCommand"): ("mcp", "serverCommand"),
    ("allowMCPServers",): ("mcp", "allowed"),
    ("excludeMCPServers",): ("mcp", "excluded"),
    ("coreTools",): ("tools", "core"),
    ("allowedTools",): ("tools", "allowed"),
    ("excludeTools",): ("tools", "exclude"),
    ("tools", "approvalMode"): ("approvalMode",),
    ("webSearch",): ("web", "search"),
    ("tavilyApiKey",): ("web", "search", "tavily", "apiKey"),
    ("advanced", "tavilyApiKey"): ("web", "search", "tavily", "apiKey"),
    ("contextFileName",): ("memory", "fileName"),
    ("context", "fileName"): ("memory", "fileName"),
}
"""Keys of Qwen Code and Gemini CLI, in their older versions and in their documentation, and ours for each."""

Converters = Mapping[tuple[str, ...], tuple[tuple[str, ...], Callable[[Any], Any]]]
"""Keys of theirs whose value has another unit or meaning: ours for each, and what makes the value ours."""
WRONG: Final = object()  # what a converter gives for a value that its key cannot have


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _milliseconds(seconds: Any) -> Any:
    number = _number(seconds)
    return WRONG if number is None else int(max(0, min(number, MAX_COMMAND_TIMEOUT / 1000)) * 1000)


def _limit(value: Any) -> Any:
    """A limit; there, zero or a negative number means no limit."""
    number = _number(value)
    return WRONG if number is None else int(min(number, MAX_COUNT)) if number > 0 else None


_NUMBERS: Converters = {
    ("tools", "shell", "inactivityTimeout"): (("shell", "silenceTimeout"), _milliseconds),
    ("tools", "truncateToolOutputThreshold"): (("limits", "readChars"), _limit),
    ("truncateToolOutputThreshold",): (("limits", "readChars"), _limit),
    ("tools", "truncateToolOutputLines"): (("limits", "readLines"), _limit),
    ("truncateToolOutputLines",): (("limits", "readLines"), _limit),
}

_MEANINGLESS = key_paths("$schema $version tools.shell.enableInteractiveShell tools.shell.pager tools.shell.showColor")
"""Keys that editors and both CLIs write, and that mean nothing here."""
FOREIGN_KEYS = (*KEY_ALIASES, *_NUMBERS)  # every key of theirs that is read here in any file
TRANSPORT_ALIASES: Mapping[str, str] = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http"}
"""How other clients write the type of a server, and what it is called here."""
MODE_ALIASES: Mapping[str, str] = {"auto_edit": "auto-edit", "autoEdit": "auto-edit"}  # as both CLIs write them
_COMMAND_LINES = (("tools", "discoveryCommand"), ("tools", "callCommand"), ("mcp", "serverCommand"))
"""Keys whose value may be one string that is split as a shell does it."""
MAX_SUGGESTIONS = 20  # after so many warnings none is made for an unknown key, since looking takes a while


def canonicalise(layer: Layer, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    """Bring a layer to canonical form, in place, and fill its `names`."""
    data, source = layer.data, layer.source
    for path in _MEANINGLESS:
        pop_value(data, path)
    for other, ours in KEY_ALIASES.items():
        parent = parent_at(data, other)
        if parent is None or other[-1] not in parent:
            continue
        value = pop_value(data, other)
        if other == ("webSearch",) and isinstance(value, dict):
            value = _providers_by_type(cast("Tree", value), source, diagnostics)
        target = parent_at(data, ours, create=True)
        # Where both are given, ours counts. Of a section that is not an object, validation tells.
        if target is not None and target.setdefault(ours[-1], value) != value:
            warn_of_difference(other, ours, source, diagnostics)
    convert_keys(data, _NUMBERS, data, source, diagnostics, "it is not a number")
    mode = data.get("approvalMode")
    if isinstance(mode, str):
        data["approvalMode"] = MODE_ALIASES.get(mode, mode)
    if data.get("approvalMode") == "yolo" and layer.scope is not SettingsScope.COMMAND_LINE:
        del data["approvalMode"]
        said = 'approvalMode "yolo" is ignored: it counts only on the command line, as --approval-mode yolo.'
        diagnostics.warn(source, said)
    rename_transports(data)
    for path in _COMMAND_LINES:
        parent, line = parent_at(data, path), value_at(data, path)
        if parent is None or not (isinstance(line, str) or line == []):
            continue
        import shlex  # noqa: PLC0415 - needed only where a command line is configured

        lexer = shlex.shlex(line or "", posix=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        if sys.platform == "win32":
            lexer.escape = ""  # paths have backslashes there
        try:
            parent[path[-1]] = list(lexer) or None
        except ValueError:
            diagnostics.refuse(source, f"{dotted(path)} has a quote, or a backslash at its end, that is never closed.")
            parent[path[-1]] = None
    memory_file = value_at(data, ("memory", "fileName"))
    if isinstance(memory_file, str):
        data["memory"]["fileName"] = [memory_file]
    if isinstance(data.get("mcpServers"), dict):
        data["mcpServers"] = _by_alias(layer, diagnostics)
    _drop_unknown_keys(data, Settings, (), source, diagnostics)
    for section, key in (("workspace", "roots"), ("shell", "readable")):
        paths: Any = value_at(data, (section, key))
        if isinstance(paths, list):
            named = f"{section}.{key}"
            absolute = [_absolute(path, named, layer, environ, diagnostics) for path in cast("list[Any]", paths)]
            data[section][key] = absolute
    memory = table_at(data, "memory")
    if "globalFolder" in memory:
        memory["globalFolder"] = _absolute(memory["globalFolder"], "memory.globalFolder", layer, environ, diagnostics)


def _providers_by_type(given: Tree, source: str, diagnostics: Diagnostics) -> Tree:
    """Qwen Code's `webSearch`, a list of providers that name their type, as one object by type."""
    listed = given.get("provider")
    if not isinstance(listed, list):
        return given
    found: Tree = {}
    for entry in cast("list[Any]", listed):
        provider = dict(cast("Tree", entry)) if isinstance(entry, dict) else {}
        kind = provider.pop("type", None)
        if kind in ("tavily", "brave", "google", "searxng"):
            found.setdefault(kind, provider)
        else:
            named = json.dumps(kind) if isinstance(kind, str) else "without a type"
            said = f"webSearch.provider {named} is not known and is ignored; known are tavily, brave, google, searxng."
            diagnostics.warn(source, said)
    default = given.get("default")
    return found | ({"default": default} if isinstance(default, str) and default in found else {})


def convert_keys(
    data: Tree, converters: Converters, target: Tree, source: str, diagnostics: Diagnostics, why_wrong: str
) -> None:
    """Move the values of other keys to ours, converted. Of several for one key of ours, the first given counts."""
    counting: dict[tuple[str, ...], tuple[str, ...]] = {}
    for other, (ours, convert) in converters.items():
        given = pop_value(data, other)
        value = convert(given) if given is not None else None
        if value is WRONG:
            diagnostics.warn(source, f"{dotted(other)} is ignored, because {why_wrong}.")
            continue
        parent = parent_at(target, ours, create=True) if value is not None else None
        if parent is None:
            continue
        if ours[-1] not in parent:
            parent[ours[-1]] = value
            counting[ours] = other
        elif parent[ours[-1]] != value:
            warn_of_difference(other, counting.get(ours, ours), source, diagnostics)


def warn_of_difference(
    other: tuple[str, ...], counting: tuple[str, ...], source: str, diagnostics: Diagnostics
) -> None:
    said = f"{dotted(other)} and {dotted(counting)} mean the same and differ; {dotted(counting)} counts."
    diagnostics.warn(source, said)


def rename_transports(data: Tree) -> None:
    for entry in table_at(data, "mcpServers").values():
        named: Any = cast("Tree", entry).get("type") if isinstance(entry, dict) else None
        if isinstance(named, str):
            entry["type"] = TRANSPORT_ALIASES.get(named, named)


def _by_alias(layer: Layer, diagnostics: Diagnostics) -> Tree:
    """The servers of a layer under their aliases. Two that would have the same one are refused."""
    source, renamed = layer.source, dict[str, Any]()
    for name, entry in table_at(layer.data, "mcpServers").items():
        alias, shown = alias_of(name), dotted(("mcpServers", name))
        if not alias:
            diagnostics.refuse(source, "a server in mcpServers has an empty name; give it one.")
            continue
        if alias in renamed:
            both = f"{dotted(('mcpServers', layer.names[alias]))} and {shown}"
            said = f"{both} would both be called {alias}; rename one, with letters, digits, - and single _ only."
            diagnostics.refuse(source, said)
            continue
        if alias != name:
            fits = f"a name has letters, digits, - and single _ inside, at most {MAX_ALIAS}"
            diagnostics.warn(source, f"{shown} is called {alias} here: {fits}.")
        if isinstance(entry, dict) and "disabled" in entry:
            # Other clients write `disabled: true`; such a server must not start here.
            disabled: Any = cast("Tree", entry).pop("disabled")
            if not isinstance(disabled, bool):
                path = dotted(("mcpServers", alias, "disabled"))
                diagnostics.refuse(source, f"{path} has to be true or false.")
            elif disabled or "enabled" not in entry:
                entry["enabled"] = not disabled
        renamed[alias], layer.names[alias] = entry, name
    return renamed


def _drop_unknown_keys(
    data: Tree, section: type[Section], path: KeyPath, source: str, diagnostics: Diagnostics
) -> None:
    keys = keys_of(section)
    for name in list(data):
        here = (*path, name)
        if name not in keys:
            del data[name]
            suggestion = ""
            if len(diagnostics.warnings) < MAX_SUGGESTIONS:
                import difflib  # noqa: PLC0415 - needed only where something is misspelled

                by_lower = {key.lower(): key for key in keys}
                close = difflib.get_close_matches(name[:60].lower(), by_lower, n=1)
                suggestion = f" Did you mean {dotted((*path, by_lower[close[0]]))}?" if close else ""
            diagnostics.warn(source, f"{dotted(here)} is not a known key and is ignored.{suggestion}")
            continue
        key, value = keys[name], data[name]
        if key.section is not None and isinstance(value, dict):
            below = cast("Tree", value)
            entries = {(*here, chosen): entry for chosen, entry in below.items()} if key.is_table else {here: below}
            for where, entry in entries.items():
                if isinstance(entry, dict):
                    _drop_unknown_keys(cast("Tree", entry), key.section, where, source, diagnostics)


def _absolute(path: Any, key: str, layer: Layer, environ: Mapping[str, str], diagnostics: Diagnostics) -> Any:
    if not isinstance(path, str):
        return path
    if not path.strip() or "\0" in path:
        diagnostics.refuse(layer.source, f"{key} holds a path that no folder has; name a folder.")
        return path
    if path == "~" or path.startswith(("~/", "~" + os.sep)):
        path = os.path.join(home_folder(environ), path[2:])
    try:
        return os.path.abspath(os.path.join(layer.folder, path))
    except OSError:
        said = f"{key} holds a relative path, and the working folder does not exist any more."
        diagnostics.refuse(layer.source, said)
        return path


FILE = "settings.json"
DEFAULTS_FILE = "system-defaults.json"
CliName = Literal["qwen", "gemini"]


@dataclass(frozen=True, slots=True)
class AgentCli:
    """One of the two CLIs."""

    title: str
    folder: str  # the name of its folder in a home and in a project
    memory_file: str
    memory_section: str  # the heading that it keeps memories below
    system: Mapping[str, str]  # its folder for this machine, by `sys.platform`; on Windows below that of program data
    variable: str  # what the names of its environment variables for the files of this machine begin with
    home_variable: str
    home_is_folder: bool  # whether that one names the folder itself, and not what it lies in

    def user_folder(self, environ: Mapping[str, str]) -> str:
        other = environ.get(self.home_variable, "")
        if other and self.home_is_folder:
            return other
        return os.path.join(other or home_folder(environ), self.folder)

    def system_files(self, environ: Mapping[str, str], platform: str = sys.platform) -> tuple[str, str]:
        """Its files for this machine: what users may change, and what they may not."""
        folder = self.system.get(platform, self.system["linux"])
        if platform == "win32":
            folder = os.path.join(environ.get("ProgramData", "C:\\ProgramData"), folder)
        overrides = environ.get(f"{self.variable}_SYSTEM_SETTINGS_PATH") or os.path.join(folder, FILE)
        beside = os.path.join(os.path.dirname(overrides), DEFAULTS_FILE)
        return environ.get(f"{self.variable}_SYSTEM_DEFAULTS_PATH") or beside, overrides

    def defaults(self, environ: Mapping[str, str]) -> Tree:
        """What is different from our own defaults where its settings are read."""
        folder = self.user_folder(environ)
        return {"memory": {"fileName": [self.memory_file], "globalFolder": folder, "section": self.memory_section}}


AGENT_CLIS: Mapping[CliName, AgentCli] = {
    "qwen": AgentCli(
        title="Qwen Code",
        folder=".qwen",
        memory_file="QWEN.md",
        memory_section="Qwen Added Memories",
        system={"linux": "/etc/qwen-code", "darwin": "/Library/Application Support/QwenCode", "win32": "qwen-code"},
        variable="QWEN_CODE",
        home_variable="QWEN_HOME",
        home_is_folder=True,
    ),
    "gemini": AgentCli(
        title="Gemini CLI",
        folder=".gemini",
        memory_file="GEMINI.md",
        memory_section="Gemini Added Memories",
        system={"linux": "/etc/gemini-cli", "darwin": "/Library/Application Support/GeminiCli", "win32": "gemini-cli"},
        variable="GEMINI_CLI",
        home_variable="GEMINI_CLI_HOME",
        home_is_folder=False,
    ),
}
"""Where their documentation says that their files are."""

_SAME_KEYS = key_paths("""
    mcpServers mcp.serverCommand mcp.allowed mcp.excluded
    tools.discoveryCommand tools.callCommand tools.core tools.allowed tools.exclude tools.confirmationRequired
    permissions.allow permissions.ask permissions.deny
""")
"""Keys that have the same name and the same meaning here."""

_EMPTY_IS_ALL = {("mcp", "allowed"), ("allowMCPServers",)}  # lists that leave nothing out there where they are empty


def _mode(value: Any) -> Any:
    mode = MODE_ALIASES.get(value, value) if isinstance(value, str) else ""
    return mode if mode in list(ApprovalMode) else WRONG


_MODES: Converters = dict.fromkeys(  # where the approval mode stands in their versions
    key_paths("tools.approvalMode approvalMode general.defaultApprovalMode"), (("approvalMode",), _mode)
)
_SWITCHES: Converters = {
    (*section, theirs): (("workspace", ours), lambda value: value if isinstance(value, bool) else WRONG)
    for theirs, ours in (
        ("respectGitIgnore", "respectGitIgnore"),
        ("respectQwenIgnore", "respectAgentIgnore"),
        ("respectGeminiIgnore", "respectAgentIgnore"),
    )
    for section in (("context", "fileFiltering"), ("fileFiltering",))
}
"""Keys of their files alone that are true or false."""

_SANDBOX = 'commands run in our own sandbox where it works, and shell.sandbox "required" insists on it'

_RESTRICTIONS: Mapping[tuple[str, ...], str] = {
    ("tools", "sandbox"): _SANDBOX,
    ("sandbox",): _SANDBOX,
    ("security", "disableYoloMode"): "yolo counts only on the command line here, whatever this key says",
    ("security", "disableAlwaysAllow"): "answers of always are still offered",
    ("security", "environmentVariableRedaction", "blocked"): "commands get a short list of variables here",
    ("context", "fileFiltering", "customIgnoreFilePaths"): "these files hide nothing here; .coretoolsignore does",
    ("hooks",): "hooks do not run here, so none of them can refuse a call",
    ("policyPaths",): "policy files are not read; rules stand in permissions",
    ("adminPolicyPaths",): "policy files are not read; rules stand in permissions",
    ("admin",): "what an administrator forbids there is not forbidden here",
}
"""Keys that restrict, with what there is here in their place."""


def translated(data: Tree, source: str, diagnostics: Diagnostics) -> Tree:
    """What in such a file means something here, under our keys or aliases that we know; it is taken out of `data`."""
    result: Tree = {}
    for path in (*_SAME_KEYS, *(alias for alias in FOREIGN_KEYS if alias not in _MODES)):
        value = value_at(data, path)
        if value is not None and not (value == [] and path in _EMPTY_IS_ALL):
            set_default(result, path, value)
    rename_transports(result)
    for name, entry in list(table_at(result, "mcpServers").items()):
        # Theirs know transports and keys that ours does not, and one server must not keep the others from starting.
        why = _why_unusable(entry)
        if why:
            diagnostics.warn(source, f"{dotted(('mcpServers', name))} is left out, because {why}.")
            del result["mcpServers"][name]
    # Their modes come and go with their versions.
    convert_keys(data, _MODES, result, source, diagnostics, "this server does not know that mode")
    if value_at(data, ("yolo",)) is True:
        set_default(result, ("approvalMode",), "yolo")
    convert_keys(data, _SWITCHES, result, source, diagnostics, "it is neither true nor false")
    for path, instead in _RESTRICTIONS.items():
        if value_at(data, path):
            diagnostics.warn(source, f"{dotted(path)} restricts, and is not known here: {instead}.")
    return result


def _why_unusable(entry: Any) -> str:
    """The end of a sentence, without any value, which may be a secret; empty where the entry can be used."""
    try:
        settings = UpstreamSettings.model_validate_json(json.dumps(entry))
    except ValidationError as error:
        where: tuple[str | int, ...] = error.errors(include_url=False, include_input=False)[0]["loc"]
        return f"this server cannot read its {dotted(where)}" if where else "it is not an object"
    if settings.transport is None or (settings.transport != "stdio" and settings.endpoint is None):
        return "it names no command and no address that this server knows"
    if settings.transport == "stdio" and not (settings.command or "").strip():
        return "it names no command"
    return ""


_EXPANDED_LATER = key_paths("tools.discoveryCommand tools.callCommand mcp.serverCommand web.search agents")
_ALLOWING = key_paths("permissions.allow tools.allowed tools.core")


def expand_variables(data: Tree, source: str, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    """Expand the variables in the texts of a layer that nothing expands later, in place: both CLIs expand every text.

    Rules are different: a dollar sign in them may also be that of a command. One that allows stays as it is written;
    one that asks or refuses counts in both readings.
    """
    expander = VariableExpander(environ)

    def expanded(value: Any, path: KeyPath) -> Any:
        if path in _ALLOWING or path in _EXPANDED_LATER:
            return value
        if len(path) == 3 and path[0] == "mcpServers" and path[2] in EXPANDED_IN_SERVERS:
            return value
        if isinstance(value, dict):
            return {key: expanded(item, (*path, key)) for key, item in cast("Tree", value).items()}
        if isinstance(value, list):
            written = cast("list[Any]", value)
            items = [expanded(item, (*path, index)) for index, item in enumerate(written)]
            if path in REFUSING:  # an empty text would be a rule about every tool
                return [item for item in items if item != ""] + [item for item in written if item not in items]
            return items
        return expander.text(value, path) if isinstance(value, str) else value

    for key in list(data):
        data[key] = expanded(data[key], (key,))
    expander.warn_of_missing(diagnostics, lambda _: source, ", so it stays as it is written.")
