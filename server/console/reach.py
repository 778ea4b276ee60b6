"""How a server or an agent of the settings is reached, for a person who decides about it: what really runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from server.console.shown import as_text, command_text, shown_value
from server.settings.models import UpstreamSettings
from tools.display import visible_line

_WAY = ("command", "url", "httpUrl", "type")
_WITH = ("env", "headers", "inheritEnv")
_TOLD = (*_WAY, *_WITH, "args", "cwd", "trust", "enabled", "description")


def is_remote(entry: Mapping[str, Any]) -> bool:
    """Whether the server is reached by its address, as what connects to it decides; else a program is started."""
    return _settings(entry).transport in ("http", "sse", "detect")


def reached_by(entry: Mapping[str, Any], *, hides: bool = True) -> str:
    """The address, or the whole command line, and all else that has a say in what runs.

    Nothing of a command line is hidden: what stands where a secret could stand may be a program.

    Args:
        entry: Of `mcpServers` or of `agents`.
        hides: Whether secrets in the address, the environment and the headers are hidden. A program can stand there
            too, so nothing is of an entry that is somebody else's.
    """
    if is_remote(entry):
        endpoint = _settings(entry).endpoint or ""
        way = visible_line(str(shown_value(("url",), endpoint) if hides else endpoint))
    else:
        args: Any = entry.get("args") or []
        way = command_text(
            [entry.get("command") or "", *(cast("list[Any]", args) if isinstance(args, list) else [args])]
        )
    return "; ".join((way, *_further(entry, hides=hides)))


def _further(entry: Mapping[str, Any], *, hides: bool) -> list[str]:
    """What else there is to know."""
    said: list[str] = []
    given = {key: entry[key] for key in _WITH if entry.get(key)}
    if given:
        said.append(f"with {as_text(shown_value(('mcpServers',), given) if hides else given)}")
    if entry.get("cwd"):
        said.append(f"in the folder {visible_line(str(entry['cwd']))}")
    if entry.get("trust"):
        said.append("its tools run without a question (trust)")
    if entry.get("enabled") is False:
        said.append("not enabled")
    if entry.get("description"):
        said.append(f"described to models as {as_text(entry['description'])}")
    others = {key: value for key, value in entry.items() if key not in _TOLD}
    if others and not hides:
        said.append(f"further {as_text(others)}")
    return said


def _settings(entry: Mapping[str, Any]) -> UpstreamSettings:
    """What decides the way: values may be of a wrong type yet, so nothing is checked."""
    return UpstreamSettings.model_construct(**{key: entry[key] for key in _WAY if key in entry})
