"""Checks whether the parameters of a request match the protocol's schema.

Nearly all parameters have one of a few simple forms, which are recognized here. All others are validated with the
models of `mcp_types`, whose import takes longer than all the other work for a first tool list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from server.protocol.json_rpc import Json, as_mapping
from server.protocol.protocol_errors import invalid_params
from server.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LISTED: Mapping[str, type] = {"cursor": str}
_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "tools/call": {"name": str},
    "prompts/get": {"name": str},
    "resources/read": {"uri": str},
}
_OPTIONAL: Mapping[str, Mapping[str, type]] = {
    "ping": {},
    "server/discover": {},
    "tools/list": _LISTED,
    "prompts/list": _LISTED,
    "resources/list": _LISTED,
    "resources/templates/list": _LISTED,
    "tools/call": {"arguments": dict},
    "prompts/get": {},
    "resources/read": {},
}
_KNOWN_CAPABILITIES = frozenset({"elicitation", "sampling", "roots", "experimental", "extensions"})
_FLAGS = frozenset({"listChanged"})  # the boolean capabilities; all others are objects


def check_params(method: str, version: str, params: Json | None) -> None:
    """Raise `MCPError` if the parameters of a request do not match its schema in the revision `version`."""
    fields = params or {}
    if method == "initialize":
        if (
            fields.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
            and isinstance(fields.get("protocolVersion"), str)
            and _is_plain_name(fields.get("clientInfo"))
            and _are_plain_capabilities(fields.get("capabilities"))
            and _is_plain_meta(fields.get("_meta", {}))
        ):
            return
    elif (optional := _OPTIONAL.get(method)) is not None:
        required = _REQUIRED.get(method, {})
        for name, value in fields.items():
            kind = required.get(name) or optional.get(name)
            # Compare the exact type, because `bool` is a subclass of `int`.
            if type(value) is not kind and not (name == "_meta" and _is_plain_meta(value)):
                break
        else:
            if fields.keys() >= required.keys():
                return
    from mcp_types.methods import validate_client_request  # noqa: PLC0415 - not loaded for simple parameters

    try:
        validate_client_request(method, version, params)
    except (ValueError, KeyError):
        raise invalid_params() from None


def capabilities_of(announced: Any) -> Json | None:
    """Return the known capabilities among those that a client declares; `None` if they are malformed."""
    if not _are_plain_capabilities(announced):
        from mcp_types import ClientCapabilities  # noqa: PLC0415 - not loaded for simple capabilities

        try:
            model = ClientCapabilities.model_validate(announced, by_name=False)
        except ValueError:
            return None
        announced = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    # `tasks` is omitted, because the tasks of revision 2025-11-25 are not relayed.
    return {name: value for name, value in announced.items() if name in _KNOWN_CAPABILITIES}


def elicits(capabilities: Json | None, mode: str) -> bool:
    """Return whether a client supports an elicitation mode, `form` or `url`. If it names no mode, it supports forms."""
    announced = (capabilities or {}).get("elicitation")
    if not isinstance(announced, dict):
        return False
    modes = cast("Json", announced)
    has_url = modes.get("url") is not None
    return has_url if mode == "url" else mode == "form" and (modes.get("form") is not None or not has_url)


def progress_token(params: Any) -> str | int | None:
    """Return the progress token of a request, if any."""
    token = as_mapping(as_mapping(params).get("_meta")).get("progressToken")
    return token if type(token) in (str, int) else None


def _is_plain_meta(meta: Any) -> bool:
    if type(meta) is not dict:
        return False
    fields = cast("Json", meta)
    return (
        type(fields.get("progressToken", "")) in (str, int)
        and isinstance(fields.get(PROTOCOL_VERSION_META_KEY, ""), str)
        and (CLIENT_INFO_META_KEY not in fields or _is_plain_name(fields[CLIENT_INFO_META_KEY]))
        and _are_plain_capabilities(fields.get(CLIENT_CAPABILITIES_META_KEY, {}))
        and fields.get(LOG_LEVEL_META_KEY, LEVELS[0]) in LEVELS
    )


def _is_plain_name(about: Any) -> bool:
    """Return whether client info consists of a name, a version and possibly a title."""
    if type(about) is not dict:
        return False
    fields = cast("Json", about)
    return {"name", "version"} <= fields.keys() <= {"name", "version", "title"} and all(
        isinstance(value, str) for value in fields.values()
    )


def _are_plain_capabilities(announced: Any) -> bool:
    if type(announced) is not dict:
        return False
    fields = cast("Json", announced)
    return fields.keys() <= _KNOWN_CAPABILITIES and all(
        type(value) is dict
        and all(type(part) is (bool if name in _FLAGS else dict) for name, part in cast("Json", value).items())
        for value in fields.values()
    )
