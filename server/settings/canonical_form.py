"""The canonical form of a layer: canonical keys, servers under their aliases, absolute paths, split command lines.

Qwen Code and Gemini CLI have flat keys (`coreTools`) and keys in sections (`tools.core`). Both are accepted in every
layer, except for keys that only the CLIs' own files may have (`gemini_and_qwen_files`). An unknown key is dropped with
a warning.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from server.settings.layers import Layer, SettingsScope
from server.settings.section_model import Diagnostics, KeyPath, Section, dotted, key_paths, keys_of
from server.settings.server_models import Settings
from server.settings.settings_files import Tree, home_folder, parent_at, pop_value, table_at, value_at
from server.settings.tool_models import MAX_COUNT
from server.settings.upstream_entries import ALIAS_RULE, alias_of
from tools.contract.call_options import MAX_COMMAND_TIMEOUT
from tools.web.search_settings import SEARCH_VARIABLES

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
"""Keys from the documentation and the older versions of Qwen Code and Gemini CLI, each with its canonical key."""

Converters = Mapping[tuple[str, ...], tuple[tuple[str, ...], Callable[[Any], Any]]]
"""For each CLI key whose value must be converted: its canonical key, and the function that converts the value."""
INVALID: Final = object()  # a converter's result for an invalid value


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _milliseconds(seconds: Any) -> Any:
    number = _number(seconds)
    return INVALID if number is None else int(max(0, min(number, MAX_COMMAND_TIMEOUT / 1000)) * 1000)


def _limit(value: Any) -> Any:
    """Convert a limit. Zero or a negative number, which means no limit in both CLIs, leaves the default in place."""
    number = _number(value)
    return INVALID if number is None else int(min(number, MAX_COUNT)) if number > 0 else None


_NUMBERS: Converters = {
    ("tools", "shell", "inactivityTimeout"): (("shell", "silenceTimeout"), _milliseconds),
    ("tools", "truncateToolOutputThreshold"): (("limits", "readChars"), _limit),
    ("truncateToolOutputThreshold",): (("limits", "readChars"), _limit),
    ("tools", "truncateToolOutputLines"): (("limits", "readLines"), _limit),
    ("truncateToolOutputLines",): (("limits", "readLines"), _limit),
}

_IGNORED_KEYS = key_paths("$schema $version tools.shell.enableInteractiveShell tools.shell.pager tools.shell.showColor")
"""Keys that editors or the CLIs write, and that have no meaning here."""
FOREIGN_KEYS = (*KEY_ALIASES, *_NUMBERS)  # CLI keys that are accepted in every settings file, not only in the CLIs' own
TRANSPORT_ALIASES: Mapping[str, str] = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http"}
"""Other clients' names for server types, each with the name used here."""
# The CLIs' names for approval modes, each with the name used here
MODE_ALIASES: Mapping[str, str] = {"auto_edit": "auto-edit", "autoEdit": "auto-edit"}
_COMMAND_LINES = (("tools", "discoveryCommand"), ("tools", "callCommand"), ("mcp", "serverCommand"))
"""Keys whose value may be a whole command line in one string. That string is split as a shell would split it."""
MEANT_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("disabledTools", "disabled_tools", "excludedTools"), "excludeTools"),
    **dict.fromkeys(("enabledTools", "enabled_tools", "allowedTools"), "includeTools"),
    "serverUrl": "url",
    "http_headers": "headers",
    "environment": "env",
}
"""Keys that other clients use in a server's entry, each with the key to suggest for it. The most similar key here could
have the opposite meaning.
"""
MAX_SUGGESTIONS = 20  # after this many warnings, no similar key is suggested, because each lookup takes time


def canonicalise(layer: Layer, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    """Convert a layer to canonical form, in place, and fill its `names`."""
    data, source = layer.data, layer.source
    for path in _IGNORED_KEYS:
        pop_value(data, path)
    for alias, canonical in KEY_ALIASES.items():
        parent = parent_at(data, alias)
        if parent is None or alias[-1] not in parent:
            continue
        value = pop_value(data, alias)
        if alias == ("webSearch",) and isinstance(value, dict):
            value = _providers_by_type(cast("Tree", value), source, diagnostics)
        target = parent_at(data, canonical, create=True)
        # If the canonical key is set too, it wins. The validation reports a section that is not an object.
        if target is not None and target.setdefault(canonical[-1], value) != value:
            warn_of_difference(alias, canonical, source, diagnostics)
    convert_keys(data, _NUMBERS, data, source, diagnostics, "it is not a number")
    mode = data.get("approvalMode")
    if isinstance(mode, str):
        data["approvalMode"] = MODE_ALIASES.get(mode, mode)
    if data.get("approvalMode") == "yolo" and layer.scope is not SettingsScope.COMMAND_LINE:
        del data["approvalMode"]
        message = 'approvalMode "yolo" is ignored: it is accepted only on the command line, as --approval-mode yolo.'
        diagnostics.warn(source, message)
    adapt_servers(data)
    for path in _COMMAND_LINES:
        parent, line = parent_at(data, path), value_at(data, path)
        if parent is None or not (isinstance(line, str) or line == []):
            continue
        import shlex  # noqa: PLC0415 - needed only if a command line is configured

        lexer = shlex.shlex(line or "", posix=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        if sys.platform == "win32":
            lexer.escape = ""  # Windows paths contain backslashes
        try:
            parent[path[-1]] = list(lexer) or None
        except ValueError:
            diagnostics.refuse(source, f"{dotted(path)} has an unclosed quote, or a backslash at its end.")
            parent[path[-1]] = None
    memory_file = value_at(data, ("memory", "fileName"))
    if isinstance(memory_file, str):
        data["memory"]["fileName"] = [memory_file]
    if isinstance(data.get("mcpServers"), dict):
        data["mcpServers"] = _by_alias(layer, diagnostics)
    _drop_unknown_keys(data, Settings, (), source, diagnostics)
    _make_paths_absolute(layer, environ, diagnostics)


def _make_paths_absolute(layer: Layer, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    def absolute(path: Any, place: KeyPath) -> Any:
        if not isinstance(path, str):
            return path
        if not path.strip() or "\0" in path:
            message = "is blank or contains a NUL character; give a valid path."
            diagnostics.refuse(layer.source, f"{dotted(place)} {message}")
            return path
        if path == "~" or path.startswith(("~/", "~" + os.sep)):
            path = os.path.join(home_folder(environ), path[2:])
        try:
            return os.path.abspath(os.path.join(layer.folder, path))
        except OSError:
            message = "is a relative path, but the working folder no longer exists."
            diagnostics.refuse(layer.source, f"{dotted(place)} {message}")
            return path

    lists: list[tuple[str, ...]] = [("workspace", "roots"), ("shell", "readable")]
    for table in (("http", "tokens"), ("http", "oauth", "principals")):
        principals = value_at(layer.data, table)
        names = cast("Tree", principals) if isinstance(principals, dict) else ()
        lists += [(*table, name, "workspace") for name in names]
    for place in lists:
        parent, paths = parent_at(layer.data, place), value_at(layer.data, place)
        if parent is not None and isinstance(paths, list):
            parent[place[-1]] = [absolute(path, (*place, index)) for index, path in enumerate(cast("list[Any]", paths))]
    memory = table_at(layer.data, "memory")
    if "globalFolder" in memory:
        memory["globalFolder"] = absolute(memory["globalFolder"], ("memory", "globalFolder"))


def _providers_by_type(search: Tree, source: str, diagnostics: Diagnostics) -> Tree:
    """Convert Qwen Code's `webSearch`, with a list `provider` of objects with a `type`, to an object keyed by type."""
    entries = search.get("provider")
    if not isinstance(entries, list):
        return search
    providers: Tree = {}
    for entry in cast("list[Any]", entries):
        provider = dict(cast("Tree", entry)) if isinstance(entry, dict) else {}
        kind = provider.pop("type", None)
        if isinstance(kind, str) and kind in SEARCH_VARIABLES:
            providers.setdefault(kind, provider)
        else:
            description = json.dumps(kind) if isinstance(kind, str) else "without a type"
            known_types = ", ".join(SEARCH_VARIABLES)
            message = f"webSearch.provider {description} is not known and is ignored; the known ones are {known_types}."
            diagnostics.warn(source, message)
    default = search.get("default")
    return providers | ({"default": default} if isinstance(default, str) and default in providers else {})


def convert_keys(
    data: Tree, converters: Converters, target: Tree, source: str, diagnostics: Diagnostics, reason: str
) -> None:
    """Convert the values of the keys in `converters`, and move them to their canonical keys in `target`.

    A value that `target` already has wins. If several keys map to the same canonical key, the first that is set wins.
    """
    winners: dict[tuple[str, ...], tuple[str, ...]] = {}
    for alias, (canonical, convert) in converters.items():
        raw_value = pop_value(data, alias)
        value = convert(raw_value) if raw_value is not None else None
        if value is INVALID:
            diagnostics.warn(source, f"{dotted(alias)} is ignored: {reason}.")
            continue
        parent = parent_at(target, canonical, create=True) if value is not None else None
        if parent is None:
            continue
        if canonical[-1] not in parent:
            parent[canonical[-1]] = value
            winners[canonical] = alias
        elif parent[canonical[-1]] != value:
            warn_of_difference(alias, winners.get(canonical, canonical), source, diagnostics)


def warn_of_difference(alias: tuple[str, ...], winner: tuple[str, ...], source: str, diagnostics: Diagnostics) -> None:
    message = f"{dotted(alias)} and {dotted(winner)} mean the same thing but have different values"
    diagnostics.warn(source, f"{message}; {dotted(winner)} is used.")


def adapt_servers(data: Tree) -> None:
    """In each server, replace another client's name for a `type`, and split `oauth.scopes` if it is one string."""
    for entry in table_at(data, "mcpServers").values():
        server_type: Any = cast("Tree", entry).get("type") if isinstance(entry, dict) else None
        if isinstance(server_type, str):
            entry["type"] = TRANSPORT_ALIASES.get(server_type, server_type)
        scopes: Any = value_at(cast("Tree", entry), ("oauth", "scopes")) if isinstance(entry, dict) else None
        if isinstance(scopes, str):
            entry["oauth"]["scopes"] = scopes.split()


def _by_alias(layer: Layer, diagnostics: Diagnostics) -> Tree:
    """Return the servers of a layer, keyed by alias, and fill `layer.names`. Two servers with one alias are refused."""
    source, entries = layer.source, dict[str, Any]()
    for name, entry in table_at(layer.data, "mcpServers").items():
        alias, display_path = alias_of(name), dotted(("mcpServers", name))
        if not alias:
            diagnostics.refuse(source, "a server in mcpServers has an empty name; give it one.")
            continue
        if alias in entries:
            pair = f"{dotted(('mcpServers', layer.names[alias]))} and {display_path}"
            diagnostics.refuse(source, f"{pair} would both be called {alias}; rename one, using {ALIAS_RULE}.")
            continue
        if alias != name:
            diagnostics.warn(source, f"{display_path} is called {alias} here: a name has {ALIAS_RULE}.")
        if isinstance(entry, dict) and "disabled" in entry:
            # Other clients write `disabled: true`; such a server must not start here either. A value that is not a
            # boolean is moved to `enabled` unchanged, and the validation refuses it there.
            is_disabled: Any = cast("Tree", entry).pop("disabled")
            if not isinstance(is_disabled, bool):
                meaning = "it is the opposite of enabled"
                diagnostics.warn(source, f"{display_path}.disabled must be true or false; {meaning}.")
            if isinstance(is_disabled, bool) and cast("Tree", entry).get("enabled") is is_disabled:
                message = (
                    f"{display_path} has disabled and enabled, which contradict each other; the server is not used."
                )
                diagnostics.warn(source, message)
            if is_disabled is not False or "enabled" not in entry:
                entry["enabled"] = not is_disabled if isinstance(is_disabled, bool) else is_disabled
        entries[alias], layer.names[alias] = entry, name
    return entries


def _drop_unknown_keys(
    data: Tree, section: type[Section], path: KeyPath, source: str, diagnostics: Diagnostics
) -> None:
    keys = keys_of(section)
    for name in list(data):
        key_path = (*path, name)
        if name not in keys:
            del data[name]
            suggestion = ""
            if len(diagnostics.warnings) < MAX_SUGGESTIONS:
                import difflib  # noqa: PLC0415 - needed only if something is misspelled

                by_lower = {key.lower(): key for key in keys}
                matches = difflib.get_close_matches(name[:60].lower(), by_lower, n=1)
                meant = MEANT_KEYS.get(name, "")
                if meant not in keys:
                    meant = by_lower[matches[0]] if matches else ""
                suggestion = f" Did you mean {dotted((*path, meant))}?" if meant in keys else ""
            diagnostics.warn(source, f"{dotted(key_path)} is not a known key and is ignored.{suggestion}")
            continue
        for section_path, entry, subsection in keys[name].sections_in(data[name], key_path):
            _drop_unknown_keys(entry, subsection, section_path, source, diagnostics)
