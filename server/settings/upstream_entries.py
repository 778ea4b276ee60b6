"""The servers in the settings: their aliases, which of them are used, and why an entry cannot work.

Also recognises entries that fetch a package without a pinned version, or that start or reach this program itself.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

from server.settings.layers import MergedLayers
from server.settings.section_model import Diagnostics, KeyPath, dotted, shown_name, wire_name
from server.settings.server_models import OAuthSettings, Settings, UpstreamSettings
from server.settings.settings_files import value_at
from server.settings.variable_expansion import HINT, SourceOf, VariableExpander

MAX_ALIAS = 24  # maximum length; `alias__tool` must stay short enough for clients that add a prefix
ALIAS_RULE = f"at most {MAX_ALIAS} letters, digits, hyphens and single underscores, with no underscore at either end"
ABOVE_VARIABLE = "CORETOOLS_MCP_SERVERS_ABOVE"  # tells a started program how many coretools-mcp servers precede it
# Keys of an entry whose values may contain variables.
EXPANDED_IN_SERVERS = ("command", "args", "env", "cwd", "url", "httpUrl", "headers", "oauth")
MAX_ENTRY_PROBLEMS = 20  # maximum number of problems reported for one entry
LIKELY_SECONDS = 1_000  # a smaller number of milliseconds was probably meant as seconds
# A server that this many coretools-mcp servers precede in a chain starts no upstream servers, because the chain is
# probably a loop.
MAX_ABOVE = 3
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a `token` (RFC 9110, 5.6.2)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # a `scope-token` (RFC 6749, 3.3)
_CLIENT_TEXTS = ("client_id", "client_secret", "client_metadata_url", "issuer", "private_key")  # keys of `oauth`


@dataclass(frozen=True, slots=True)
class UpstreamEntry:
    alias: str
    name: str  # the name as configured
    settings: UpstreamSettings  # with variables expanded; `enabled` is false if and only if the server is not used
    written: UpstreamSettings  # with variables unexpanded
    source: str
    left_out: str | None = None  # why the server is not used, as a sentence; `None` if it is used
    lacks_variable: bool = False  # whether the server is not used because an environment variable is not set
    problems: tuple[str, ...] = ()  # why the entry cannot work, in detail; each is also a warning
    is_switched_off: bool = False  # whether it is disabled or not selected, so its problems do no harm


def alias_of(name: str) -> str:
    """Return the alias for a configured name: the name itself if it is a valid alias, or else a similar one.

    An alias has at most 24 characters of `A-Z a-z 0-9 _ -`. It has no `__`, and no `_` at either end, so that
    `alias__tool` can be parsed only one way.
    """
    alias = re.sub(r"_{2,}|[^A-Za-z0-9_-]", "-", name)[:MAX_ALIAS]
    return re.sub(r"^_|_$", "-", alias)


def resolve_entries(
    settings: Settings,
    layers: MergedLayers,
    environ: Mapping[str, str],
    diagnostics: Diagnostics,
    starts_itself: Callable[[UpstreamSettings, str], bool],
    invalid_entries: Mapping[str, Mapping[KeyPath, str]],
) -> tuple[UpstreamEntry, ...]:
    """Decide which servers are used, expand their variables, and check that each can work.

    `starts_itself` returns whether an entry, given with its source, starts this program with the same settings.
    `invalid_entries` explains the invalid values of entries, keyed by alias.
    """
    names, source_of = layers.names, layers.source_of
    # A misspelled name in `mcp.excluded` would exclude nothing, and one in `mcp.allowed` would allow nothing.
    mcp, server_names = settings.mcp, {*names, *names.values()}
    for key, selection in (("allowed", mcp.allowed), ("excluded", mcp.excluded)):
        for name in selection or ():
            if name not in server_names:
                message = f"mcp.{key} names {json.dumps(name)}, which is not a server in mcpServers."
                diagnostics.warn(source_of(("mcp", key)), message)
    if mcp.allowed == () and names:
        diagnostics.warn(source_of(("mcp", "allowed")), "mcp.allowed is empty, so no server in mcpServers is used.")
    return tuple(
        _resolve_entry(alias, settings, layers, environ, diagnostics, starts_itself, invalid_entries.get(alias, {}))
        for alias in settings.mcp_servers
    )


def _resolve_entry(
    alias: str,
    settings: Settings,
    layers: MergedLayers,
    environ: Mapping[str, str],
    diagnostics: Diagnostics,
    starts_itself: Callable[[UpstreamSettings, str], bool],
    invalid_values: Mapping[KeyPath, str],
) -> UpstreamEntry:
    path, name, original = ("mcpServers", alias), layers.names[alias], settings.mcp_servers[alias]
    source_of, source, expander = layers.source_of, layers.source_of(path), VariableExpander(environ)
    problems = list(invalid_values.values())
    entry, is_switched_off = original, False
    # If a value in the entry is invalid, `original` has `enabled` set to false and defaults for all other keys.
    is_disabled = value_at(layers.data, (*path, "enabled")) is False
    mcp, names = settings.mcp, {alias, name}
    left_out = (
        f"It is disabled (mcpServers.{alias}.enabled is false)." if is_disabled
        else "It is in mcp.excluded." if names & {*mcp.excluded}
        else "It is not in mcp.allowed." if mcp.allowed is not None and not names & {*mcp.allowed}
        else None
    )  # fmt: skip
    if left_out is not None:
        is_switched_off = True
    elif invalid_values:
        left_out = f"{dotted(next(iter(invalid_values)))} is not valid."
    elif entry.transport == "stdio" and servers_above(environ) >= MAX_ABOVE:
        left_out = f"A chain of more than {MAX_ABOVE} coretools-mcp servers ends at this one, which looks like a loop."
    else:
        entry = expander.section(entry, ("args", "env", "headers", "command", "cwd", "url", "http_url"), path)
        if entry.oauth is not None:
            login = expander.section(entry.oauth, (*_CLIENT_TEXTS, "scopes"), (*path, "oauth"))
            entry = entry.model_copy(update={"oauth": login})
        if settings.proxy.prefix == "none":
            entry = entry.model_copy(update={"prefix": "none"})
        if expander.warn_of_missing(diagnostics, source_of, f"; the server {alias} is not used. {HINT}"):
            left_out = f"The environment variable {shown_name(expander.missing[0][1])} is not set."
        elif settings.proxy.require_pins and (package := unpinned_package_of(entry)) is not None:
            left_out = f"Its package {shown_name(package)} has no version, but proxy.requirePins requires one."
            message = f"{dotted(path)} has no version for its package {shown_name(package)}, but proxy.requirePins "
            diagnostics.warn(source, f"{message}requires one; the server is not used.")
        elif starts_itself(entry, source):
            reason = "would start this server itself again, with the same settings"
            left_out = f"It {reason}."
            diagnostics.warn(source, f"{dotted(path)} {reason}; it is not used.")
        elif sentences := list(_problems_of(entry, path, settings.proxy.name_budget)):
            left_out = sentences[0]
            problems = [f"{source}: {sentence}" for sentence in sentences]
        else:
            _warn_of_likely_mistakes(entry, path, source_of, diagnostics)
    if left_out is not None:
        entry = original.model_copy(update={"enabled": False})
    problems = [f"{problem} The server {alias} is not used." for problem in problems[:MAX_ENTRY_PROBLEMS]]
    diagnostics.warnings += problems
    lacks_variable = bool(expander.missing)
    return UpstreamEntry(
        alias, name, entry, original, source, left_out, lacks_variable, tuple(problems), is_switched_off
    )


def _warn_of_likely_mistakes(
    entry: UpstreamSettings, path: KeyPath, source_of: SourceOf, diagnostics: Diagnostics
) -> None:
    for key in ("timeout", "connect_timeout", "list_timeout"):
        if (duration := getattr(entry, key)) < LIKELY_SECONDS:
            key_path, description = (*path, wire_name(key)), f"{duration} ms, but some clients use seconds"
            message = f"{dotted(key_path)} is {description}; for {duration} s write {duration}000."
            diagnostics.warn(source_of(key_path), message)
    transports = {"command": entry.command, "url": entry.url, "httpUrl": entry.http_url}
    keys = [key for key, value in transports.items() if value is not None]
    if len(keys) > 1:
        message = f"{dotted(path)} has {' and '.join(keys)}; only {_transport_key(entry)} is used."
        diagnostics.warn(source_of(path), message)


def unpinned_package_of(entry: UpstreamSettings) -> str | None:
    """Return the first package that the server's command fetches without a pinned version; `None` if there is none."""
    return unpinned_package(entry.command, entry.args) if entry.transport == "stdio" else None


def servers_above(environ: Mapping[str, str]) -> int:
    """Return how many coretools-mcp servers precede this one in a chain in which each server started the next."""
    count = environ.get(ABOVE_VARIABLE, "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < len("1000") else 0


def _transport_key(entry: UpstreamSettings) -> str:
    if entry.transport == "stdio":
        return "command"
    return "httpUrl" if entry.transport == "http" and entry.http_url is not None else "url"


def _problems_of(entry: UpstreamSettings, path: KeyPath, name_budget: int) -> Iterator[str]:
    entry_path = dotted(path)
    budget = max(name_budget - (len(f"{path[-1]}__") if entry.prefix == "alias" else 0), 0)
    owners: dict[str, str] = {}
    for name, new_name in entry.rename.items():
        subject = f"{entry_path}.rename: the new name of {json.dumps(name)}"
        if not _TOOL_NAME.fullmatch(new_name):
            yield f"{subject} must consist of letters, digits, _ and - only, and not be empty."
        elif len(new_name) > budget:
            problem = f"{subject} has {len(new_name)} characters, but proxy.nameBudget leaves only {budget}"
            yield f"{problem}; use a shorter name or a larger budget."
        elif new_name in owners:
            yield f"{subject} is already used for {json.dumps(owners[new_name])}; give each tool a different new name."
        owners.setdefault(new_name, name)
    if entry.transport is None:
        yield f"{entry_path} has no command, no url and no httpUrl; add one of them."
    elif entry.transport == "stdio":
        if not (entry.command or "").strip():
            yield f"{entry_path}.command is missing or empty; name the program that starts the server."
    elif entry.endpoint is None:
        yield f'{entry_path} has the type "{entry.transport}" but no url; add the address of the server.'
    else:
        try:
            parts = urlsplit(entry.endpoint)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            expected = "an address that begins with http:// or https:// and names a host"
            yield f"{entry_path}.{_transport_key(entry)} must be {expected}."
    texts: dict[KeyPath, str] = {("args", index): arg for index, arg in enumerate(entry.args)}
    texts |= {("env", name): text for name, text in entry.env.items()}
    texts |= {("command",): entry.command or "", ("cwd",): entry.cwd or ""}
    for key_path, text in texts.items():
        if "\0" in text:
            yield f"{dotted((*path, *key_path))} contains a NUL character, which cannot be passed to a process."
    for name in entry.env:
        if not name or "=" in name or "\0" in name:
            yield f"{dotted((*path, 'env', name))} is not a valid environment variable name."
    for name, value in entry.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield f"{dotted((*path, 'headers', name))} is not a valid HTTP header name."
        elif not _HEADER_VALUE.fullmatch(value):
            yield f"{dotted((*path, 'headers', name))} must be printable ASCII on one line."
    if entry.oauth is not None and entry.oauth.enabled:
        yield from _problems_of_login(entry.oauth, f"{entry_path}.oauth", is_remote=entry.transport != "stdio")


def _problems_of_login(oauth: OAuthSettings, place: str, *, is_remote: bool) -> Iterator[str]:
    if not is_remote:
        yield f"{place} is only for a server that is reached at an address; pass credentials to a program in env."
    texts: dict[str, str | None] = {key: getattr(oauth, key) for key in _CLIENT_TEXTS}
    for key, text in texts.items():
        if text is not None and not text.strip():
            yield f"{place}.{wire_name(key)} is empty; set it or remove it."
    is_for_person = oauth.grant == "authorization-code"
    if oauth.client_id is None and (oauth.client_secret is not None or not is_for_person):
        dependent = "clientSecret" if oauth.client_secret is not None else 'the "client-credentials" grant'
        yield f"{place}.clientId is missing, but {dependent} needs it; the authorization server issues it."
    if oauth.private_key is not None and is_for_person:
        yield f'{place}.privateKey is only for the "client-credentials" grant; set grant to that, or remove the key.'
    if not is_for_person and oauth.private_key is None and oauth.client_secret is None:
        yield f'{place} has neither clientSecret nor privateKey, but the "client-credentials" grant needs one of them.'
    try:
        parts = urlsplit(oauth.client_metadata_url or "https://host/path")
        is_document = parts.scheme == "https" and bool(parts.hostname) and len(parts.path) > 1 and parts.port != 0
        is_document = is_document and "@" not in parts.netloc and not parts.fragment
    except ValueError:
        is_document = False
    if not is_document:
        yield f"{place}.clientMetadataUrl must be an address that begins with https:// and names a host and a path."
    for index, scope in enumerate(oauth.scopes or ()):
        if not _SCOPE.fullmatch(scope):
            yield f"{place}.scopes[{index}] must be one scope: printable ASCII without spaces, quotes or backslashes."


# A package without a pinned version may change between two starts.

_VERSION = re.compile(r"v?\d+(?:\.\d+)+(?:[-+.]?[0-9A-Za-z]+)*")  # one version: no range, tag or wildcard
_COMMIT = re.compile(r"[#@][0-9a-f]{40}$")
_PLACE = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|file:")  # the start of a local path, so nothing is downloaded
_ADDRESS = re.compile(r"[a-z+]+://|(?:git|github|gitlab|gist|bitbucket):|[\w.-]+/[\w.-]+$")
_ENDINGS = re.compile(r"\.(?:cmd|exe|bat|ps1)$", re.IGNORECASE)

_NPM_OPTIONS = frozenset(("-c", "--call", "--registry", "--cache", "--userconfig", "--prefix", "-w", "--workspace"))
_UV_OPTIONS = frozenset(
    {"-p", "--python", "--with", "--with-editable", "--with-requirements", "-i", "--index-url", "--index"}
    | {"--extra-index-url", "--default-index", "--find-links", "-f", "--directory", "--env-file", "-c"}
)
# For each command that fetches a package: the options that name the package, and the other options that take a value.
_RUNNERS: dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]] = {
    **dict.fromkeys(
        (("npx",), ("pnpx",), ("bunx",), ("npm", "exec"), ("npm", "x"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x")),
        (frozenset(("-p", "--package")), _NPM_OPTIONS),
    ),
    **dict.fromkeys((("uvx",), ("uv", "tool", "run")), (frozenset(("--from",)), _UV_OPTIONS)),
    ("pipx", "run"): (frozenset(("--spec",)), frozenset(("--python", "-i", "--index-url", "--pip-args", "--with"))),
}


def unpinned_package(command: str | None, args: Sequence[str]) -> str | None:
    """Return the first package that a command fetches without a pinned version; `None` if there is none."""
    words = [_ENDINGS.sub("", re.split(r"[\\/]", command or "")[-1]).lower(), *args]
    if words[0] in ("cmd", "env"):  # these run another program, named in their arguments
        rest = words[1:]
        while rest and (rest[0].startswith(("/", "-")) or "=" in rest[0]):
            rest.pop(0)
        return unpinned_package(rest[0], rest[1:]) if rest else None
    runner = next((runner for runner in _RUNNERS if tuple(words[: len(runner)]) == runner), None)
    if runner is None:
        return None
    package_options, value_options = _RUNNERS[runner]
    packages: list[str] = []
    rest = words[len(runner) :]
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            packages = packages or [word]  # if options have named the package, this word is a command in it
            break
        if option in package_options and (equals or rest):
            packages.append(value if equals else rest.pop(0))
        elif option in value_options and not equals and rest:
            rest.pop(0)
    for package in packages:
        _, separator, version = package[1:].replace("==", "@", 1).rpartition("@")
        has_version = bool(separator) and _VERSION.fullmatch(version) is not None
        is_address = not package.startswith("@") and _ADDRESS.match(package)
        if not (_PLACE.match(package) or _COMMIT.search(package)) and (is_address or not has_version):
            return package
    return None


# An entry that starts or reaches this program itself, however it is spelled.

PROGRAM = "coretools-mcp"
DEFAULT_PORT = 8808  # the value of `http.port` if the settings do not set it
_DEFAULT_VALUE = re.compile(r"\$\{\w+:-([^{}]*)\}")  # the default in `${NAME:-default}`
_NAMES = frozenset({PROGRAM, "coretools_mcp"})
_PROGRAM_ENDINGS = re.compile(r"\.(?:exe|cmd|bat|ps1|py|pyw)\Z")
_BEFORE_NAME = re.compile(r"[/\\#]|\A-[A-Za-z]*?[mS](?=coretools)")  # `python -Pmcoretools_mcp`, `env -Scoretools-mcp`
_REPOSITORY_OPTION = re.compile(r"--?repo(?:sitory)?(?==|\Z)")
# An address from which no runner installs or starts a program
_OTHER_ADDRESS = re.compile(r"(?!git\+|docker:|oci:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def own_options(command: Any, args: Any) -> list[str] | None:
    """Return the options that a command line passes to this program, even indirectly.

    `None` means that the command line does not start this program.

    A word with this program's name counts as the program wherever the word is, unless it names a folder, a repository
    or an address. An entry that is mistaken for this program is only left out, but one that is overlooked could start a
    loop.
    """
    if not isinstance(command, str):
        return None
    words = [command, *(map(str, cast("list[Any]", args)) if isinstance(args, list) else ())]
    for index, word in enumerate(words):
        if index and _names_elsewhere(word):
            continue
        parts = _words_in(word)
        for position, part in enumerate(parts):
            before = parts[position - 1] if position else words[index - 1] if index else ""
            is_elsewhere = word != command and (_names_elsewhere(part) or _REPOSITORY_OPTION.fullmatch(before))
            is_link = os.path.islink(part) and not os.path.isdir(part)
            names = {_name_of(part), _name_of(os.path.realpath(part)) if is_link else ""}
            if not is_elsewhere and names & _NAMES:
                return [*parts[position + 1 :], *words[index + 1 :]]
    return None


def _names_elsewhere(word: str) -> bool:
    """Return whether a word names a folder, a mounted folder, a repository or an address: nothing that is started."""
    if not re.search(r"[/\\]", word):
        return False
    if _OTHER_ADDRESS.match(word) or _REPOSITORY_OPTION.match(word):
        return True
    text = os.path.expandvars(os.path.expanduser(word) if word.startswith("~/") else word)
    parts = [text, text.partition("=")[2], *([] if re.search(r"\s", text) else re.split(r"[=,:]", text))]
    return any(os.path.isdir(part) for part in parts if _name_of(part) in _NAMES and re.search(r"[/\\]", part))


def _words_in(text: str) -> list[str]:
    """Return the words of a text that may be a shell command line with this program's name; else the text itself."""
    if not re.search(r"[\s;&|()<>`]", text) or "coretools" not in text.casefold():
        return [text]
    import shlex  # noqa: PLC0415 - needed only for a shell command line

    lexer = shlex.shlex(text.replace("\\", "/").replace("`", " ` "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        return text.split()
    # A word may be a command line too, as for `eval`.
    return [part for word in words for part in (_words_in(word) if len(word) < len(text) else [word])]


def _name_of(word: str) -> str:
    """Return the name of a program or package in lower case, without folders, file extension, version or extras."""
    name = _PROGRAM_ENDINGS.sub("", _BEFORE_NAME.split(word.strip().rstrip("/\\"))[-1].casefold())
    name = re.split(r"[\[@=<>~!:]", name)[0]
    return name.removesuffix(".git") if word.startswith("git+") else name


def is_own(entry: Mapping[str, Any], ports: Sequence[int]) -> bool:
    """Return whether an entry, in any client's format, starts this program or connects to it on one of these ports."""
    command, args = entry.get("command"), entry.get("args")
    if isinstance(command, dict):  # the format of older versions of Zed
        program = cast("dict[str, Any]", command)
        command, args = program.get("path"), program.get("args")
    elif isinstance(command, list) and command:  # the whole command in one list
        command, *args = cast("list[Any]", command)
    # A bridge program receives the address as an argument.
    addresses = [entry.get(key) for key in ("url", "httpUrl", "serverUrl")]
    for arguments in (entry.get("args"), args):
        addresses += cast("list[Any]", arguments) if isinstance(arguments, list) else []
    if own_options(command, args) is not None:
        return True
    for address in addresses:
        try:
            parts = urlsplit(_DEFAULT_VALUE.sub(r"\1", address.strip()) if isinstance(address, str) else "")
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            continue
        host = (parts.hostname or "").rstrip(".")
        is_local = host == "localhost"
        with suppress(OSError, ValueError):
            # `inet_aton` also accepts other spellings of an address, such as `127.1` and `2130706433`, as clients do.
            ip = ip_address(host if ":" in host else socket.inet_ntoa(socket.inet_aton(host)))
            ip = getattr(ip, "ipv4_mapped", None) or ip
            is_local = ip.is_loopback or ip.is_unspecified
        is_mcp_path = parts.path.rstrip("/") in ("/mcp", "/sse")
        if parts.scheme in ("http", "https") and is_local and port in ports and is_mcp_path:
            return True
    return False
