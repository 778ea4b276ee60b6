"""Values of the settings as a person is shown them: everything but the secrets, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from server.settings.errors import KeyPath
from tools.display import visible_line
from tools.secrets import HIDDEN, is_secret_name, redact

_ONLY_A_VARIABLE = re.compile(r"(?:(?:Bearer|Basic|token) )?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.IGNORECASE)
"""A text that names where a secret is, and is none itself."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>[^\s\"'<>]+)")
_PARAMETER = re.compile(r"(?<![^&;#?])(?P<name>[^=&;#?]+)=(?P<value>[^&;#]*)")
_SIGNATURES = frozenset({"sig", "signature", "code", "sas", "hmac", "pwd"})
"""Names of parameters that stand for a right to come in, besides those that are secret by their words."""

_PART_OF_A_PATH = re.compile(r"(?<=/)[^/]+")
_RANDOM = re.compile(
    r"(?=[A-Za-z]{0,99}[0-9])(?=[0-9]{0,99}[A-Za-z])[A-Za-z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
"""Letters and digits that nobody would think up: a token, or a UUID. Names of things have shorter words."""


def shown_value(path: KeyPath, value: Any) -> Any:
    """A value without its secrets.

    Args:
        path: Its key; the names in it say whether it is a secret.
        value: As it came from JSON.
    """
    name = str(path[-1])
    if isinstance(value, dict):
        return {key: shown_value((*path, key), item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return _shown_list(path, cast("list[Any]", value))
    if not isinstance(value, str) or _ONLY_A_VARIABLE.fullmatch(value):
        return value
    if is_secret_name(name) or "headers" in path[:-1]:
        return HIDDEN
    return redact(without_secrets_of_urls(value))


def _shown_list(path: KeyPath, items: Sequence[Any]) -> list[Any]:
    """The items; one that follows an option which takes a secret is one."""
    shown: list[Any] = []
    before: Any = ""
    for item in items:
        after_option = isinstance(before, str) and before.startswith("-") and "=" not in before
        is_secret = after_option and is_secret_name(cast("str", before).lstrip("-"))
        is_option = isinstance(item, str) and item.startswith("-")
        shown.append(_shown_item((*path[:-1], "--secret" if is_secret and not is_option else ""), item))
        before = item
    return shown


def _shown_item(path: KeyPath, item: Any) -> Any:
    """An item; of one like `--pass=...` the value is hidden."""
    if isinstance(item, str) and item.startswith("-"):
        option, equals, value = item.partition("=")
        if value and is_secret_name(option.lstrip("-")) and not _ONLY_A_VARIABLE.fullmatch(value):
            return f"{option}{equals}{HIDDEN}"
    return shown_value(path, item)


def without_secrets_of_urls(text: str) -> str:
    """The text, with what looks like a secret hidden in each URL: who asks, parameters, and parts of its path."""
    return _URL.sub(_without_secrets, text) if "://" in text else text


def _without_secrets(url: re.Match[str]) -> str:
    rest = re.sub(r"\A[^/?#]*@", f"{HIDDEN}@", url["rest"])
    path, mark, parameters = re.match(r"([^?#]*)([?#]?)(.*)", rest, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess] - fits anything
    path = _PART_OF_A_PATH.sub(lambda part: HIDDEN if _RANDOM.search(part[0]) else part[0], path)
    return f"{url['scheme']}{path}{mark}{_PARAMETER.sub(_shown_parameter, parameters)}"


def _shown_parameter(found: re.Match[str]) -> str:
    is_secret = is_secret_name(found["name"]) or found["name"].lower() in _SIGNATURES or _RANDOM.search(found["value"])
    if not is_secret or not found["value"] or _ONLY_A_VARIABLE.fullmatch(found["value"]):
        return found[0]
    return f"{found['name']}={HIDDEN}"


def leaves(tree: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of a tree that is no object, with its key."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(cast("dict[str, Any]", value), (*path, key))
        else:
            yield (*path, key), value


def as_text(value: Any) -> str:
    """A value on one line."""
    return visible_line(json.dumps(value, ensure_ascii=False))


def command_text(words: Sequence[Any]) -> str:
    """A command line on one line, as a shell would take it."""
    import shlex  # noqa: PLC0415 - only needed where there is one

    return visible_line(shlex.join(str(word) for word in words))
