"""Displays settings to people without control characters. Secrets are hidden unless that could hide what runs."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

from server.settings.section_model import KeyPath, dotted
from server.settings.server_models import UpstreamSettings
from server.settings.settings_files import Tree, leaves
from tools.contract.display import visible_line
from tools.text.secrets import HIDDEN, RANDOM, is_secret_name, redact

_ONLY_A_VARIABLE = re.compile(r"(?:(?:Bearer|Basic|token) )?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.IGNORECASE)
"""A value that only refers to an environment variable, so it contains no secret itself."""
# Matches a word that is itself an option, and so cannot be the value of the option before it
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=.*)?|-[A-Za-z]", re.DOTALL)
_ENDS_OF_WORDS = re.compile(r"[\"'\r\n]")  # characters that end a quoted word of a command line
_HEADER_TABLES = frozenset({"headers", "http_headers"})  # the second one is Codex's
_HEADER_OPTIONS = frozenset({"-H", "--header", "--headers", "--http-header"})  # their values are headers
_USER_AT_HOST = re.compile(r"\A(?P<user>[^\s:/@]+):[^\s/@]+@(?=[^\s@]+\Z)")  # `name:password@host`, without a scheme
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>[^\s\"'<>]+)")
_PARAMETER = re.compile(r"(?<![^&;#?])(?P<name>[^=&;#?]+)=(?P<value>[^&;#]*)")
_SIGNATURES = frozenset({"sig", "signature", "code", "sas", "hmac", "pwd"})  # names of parameters with credentials
_PART_OF_A_PATH = re.compile(r"(?<=/)[^/]+")


def shown_value(path: KeyPath, value: Any) -> Any:
    """Return a value without its secrets; the names in its path help to recognise them."""
    if isinstance(value, dict):
        return {key: shown_value((*path, key), item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        # An option says what the next item is, so each item is judged together with the previous one.
        items = cast("list[Any]", value)
        is_secret = _names_secret(path)
        first = items[0] if items else ""
        program = _shown_text(first) if isinstance(first, str) and not first.startswith("-") else ""
        shown_items: list[Any] = []
        previous = ""
        for item in items:
            if not isinstance(item, str):
                shown_items.append(shown_value((*path, ""), item))
                previous = ""
                continue
            if is_secret:
                shown_items.append(item if _ONLY_A_VARIABLE.fullmatch(item) else HIDDEN)
                continue
            option, equals, argument = item.partition("=") if item.startswith("-") else ("", "", item)
            word = f"{option}={_shown_argument(program, option, argument)}" if equals else _shown_text(item)
            if previous.startswith("-") and "=" not in previous and not _OPTION.fullmatch(item):
                word = _shown_argument(program, previous, word)
            shown_items.append(word)
            previous = item
        return shown_items
    if not isinstance(value, str) or _ONLY_A_VARIABLE.fullmatch(value):
        return value
    return HIDDEN if _names_secret(path) else _shown_text(value)


def _names_secret(path: KeyPath) -> bool:
    """Return whether the texts at a path are secret because of their name, or because they are HTTP headers."""
    name = str(path[-1])
    return is_secret_name(name) or name.lower() == "key" or bool(_HEADER_TABLES.intersection(path[:-1]))


def _shown_argument(program: str, option: str, value: str) -> str:
    """Return the value of an option without its secrets; the option's name helps to recognise them."""
    if not value or _ONLY_A_VARIABLE.fullmatch(value):
        return value
    name = option.lstrip("-")
    if is_secret_name(name) or name.lower() in {*_SIGNATURES, "key"}:
        return HIDDEN
    if option in _HEADER_OPTIONS:
        header, colon, content = value.partition(":")
        return value if not colon or _ONLY_A_VARIABLE.fullmatch(content.strip()) else f"{header}: {HIDDEN}"
    shown_text = _shown_text(value)
    start = f"{program} {option} '"
    plain = _ENDS_OF_WORDS.sub("_", shown_text)
    line = f"{start}{plain}'"
    redacted_line = redact(line)
    if redacted_line == line:
        return shown_text
    is_inside = plain == shown_text and redacted_line.startswith(start) and redacted_line.endswith("'")
    return redacted_line[len(start) : -1] if is_inside else HIDDEN


def _shown_text(text: str) -> str:
    if _ONLY_A_VARIABLE.fullmatch(text):
        return text
    return redact(_URL.sub(_shown_url, _USER_AT_HOST.sub(rf"\g<user>:{HIDDEN}@", text)))


def _shown_url(url: re.Match[str]) -> str:
    """Return a URL with likely secrets hidden: user and password, parameters, and parts of its path."""

    def shown_parameter(parameter: re.Match[str]) -> str:
        name, value = parameter["name"], parameter["value"]
        is_secret = is_secret_name(name) or name.lower() in _SIGNATURES or RANDOM.search(value)
        return f"{name}={HIDDEN}" if is_secret and value and not _ONLY_A_VARIABLE.fullmatch(value) else parameter[0]

    rest = re.sub(r"\A[^/?#]*@", f"{HIDDEN}@", url["rest"])
    path_end = next((at for at, sign in enumerate(rest) if sign in "?#"), len(rest))
    path = _PART_OF_A_PATH.sub(lambda part: HIDDEN if RANDOM.search(part[0]) else part[0], rest[:path_end])
    parameters = rest[path_end : path_end + 1] + _PARAMETER.sub(shown_parameter, rest[path_end + 1 :])
    return f"{url['scheme']}{path}{parameters}"


def as_text(value: Any) -> str:
    return visible_line(json.dumps(value, ensure_ascii=False, default=str))  # TOML has dates


def command_text(words: Sequence[Any]) -> str:
    return visible_line(shlex.join(str(word) for word in words))


_TRANSPORT_KEYS = ("command", "url", "httpUrl", "type")
_PASSED_KEYS = ("env", "headers", "inheritEnv", "oauth")
_DESCRIBED = (*_TRANSPORT_KEYS, *_PASSED_KEYS, "args", "cwd", "trust", "enabled", "description")


def is_remote(entry: Mapping[str, Any]) -> bool:
    """Return whether a connection to the server would use an address rather than start a program."""
    return _settings(entry).transport in ("http", "sse", "detect")


def describe_entry(entry: Mapping[str, Any], *, hides: bool = True) -> str:
    """Return a server's address or whole command line, and everything else that affects what runs.

    Nothing in a command line is hidden, because what looks like a secret may be a program. If `hides` is true, secrets
    in the address, the environment, the headers and the login settings are hidden. Set `hides` only for
    the user's own entries: in others, something that a person must see could be disguised as a secret.
    """
    if is_remote(entry):
        endpoint = _settings(entry).endpoint or ""
        parts = [visible_line(str(shown_value(("url",), endpoint) if hides else endpoint))]
    else:
        args: Any = entry.get("args") or []
        words = cast("list[Any]", args) if isinstance(args, list) else [args]
        parts = [command_text([entry.get("command") or "", *words])]
    if passed_values := {key: entry[key] for key in _PASSED_KEYS if entry.get(key)}:
        parts.append(f"with {as_text(shown_value(('mcpServers',), passed_values) if hides else passed_values)}")
    if entry.get("cwd"):
        parts.append(f"in the folder {visible_line(str(entry['cwd']))}")
    if entry.get("trust"):
        parts.append("its tools run without a question (trust)")
    if entry.get("enabled") is False:
        parts.append("disabled")
    if entry.get("description"):
        parts.append(f"described to models as {as_text(entry['description'])}")
    extras = {key: value for key, value in entry.items() if key not in _DESCRIBED}
    if extras and not hides:
        parts.append(f"also {as_text(extras)}")
    return "; ".join(parts)


def _settings(entry: Mapping[str, Any]) -> UpstreamSettings:
    """Return the keys that determine the transport, unvalidated: values may still have the wrong type."""
    return UpstreamSettings.model_construct(**{key: entry[key] for key in _TRANSPORT_KEYS if key in entry})


def shown_difference(path: str, before: Tree | None, after: Tree | None) -> str:
    """Return the values that a change to a file adds (`+`) and removes (`-`), without secrets.

    `before` and `after` are the file's parsed contents; `None` means that the file does not exist.
    """
    old, new = (dict(leaves(side or {})) for side in (before, after))
    lines: list[str] = []
    for place in dict.fromkeys((*old, *new)):
        if place in old and place in new and as_text(old[place]) == as_text(new[place]):
            continue
        shown_place = dotted(tuple(_shown_text(step) if isinstance(step, str) else step for step in place))
        for sign, values in (("-", old), ("+", new)):
            if place in values:
                value = values[place]
                line = f"{sign}{shown_place} = {as_text(shown_value(place, value))}"
                items = cast("list[Any]", value) if isinstance(value, list) else [value]
                # `shown_value` finds secrets only in strings.
                lines.append(visible_line(line if all(isinstance(item, str) for item in items) else redact(line)))
    old_name, new_name = (visible_line(path if side is not None else os.devnull) for side in (before, after))
    return "\n".join([f"--- {old_name}", f"+++ {new_name}", *(lines or ["(only comments or layout)"])])
