"""Negotiates the protocol revision with an upstream once per connection, and adds it to every later request.

Of the protocol's extensions (SEP-2133), only those that are relayed are declared to clients and upstreams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio

from server.protocol.json_rpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Json,
    as_list,
    as_mapping,
)
from server.protocol.request_table import our_name
from server.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    encode_header,
)
from server.upstreams.wire.json_rpc_channel import JsonRpcChannel, RelayError, UnusableAnswerError, UpstreamError
from server.upstreams.wire.origin_meta import OF_THIS_SERVER

# How long `server/discover` may take if the handshake can be tried next, or was refused (the SDK's value). The time is
# limited because some servers do not respond to unknown methods; it is at most two thirds of the time that remains.
PROBE_SECONDS = 10.0
_TREATED_AS = {"2024-10-07": "2024-11-05"}  # maps an older revision to the known revision that it is treated as

ENVELOPE_KEYS = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY}
)
"""Keys of `_meta` that only describe a single connection and are never relayed."""

_NAME_PARAMETERS: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Maps each method to the parameter that the `Mcp-Name` header repeats (Streamable HTTP in the 2026-07-28 revision)."""

APPS = "io.modelcontextprotocol/ui"  # SEP-1865
SKILLS = "io.modelcontextprotocol/skills"  # SEP-2640
TASKS = "io.modelcontextprotocol/tasks"  # SEP-2663: a call may return a task, whose result is fetched later

ANNOUNCED_EXTENSIONS: Mapping[str, Json] = {APPS: {}, SKILLS: {"directoryRead": True}, TASKS: {}}
"""The relayed extensions with their settings, as declared to clients."""

DECLARED_EXTENSIONS: Json = {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}, SKILLS: {}, TASKS: {}}
"""The same extensions, as declared to upstreams in a listing session that is not for a single client."""


@dataclass(frozen=True, slots=True)
class EraChoice:
    """The era to try first with an upstream, and whether it is the only era to try."""

    is_modern: bool
    is_only: bool = False


def era_choice_for(protocol: Literal["auto", "legacy", "2026-07-28"], *, client_is_modern: bool) -> EraChoice:
    """Choose the operator's era if one is configured, otherwise the client's.

    A server that supports both eras may have fewer features in one of them (questions during a call, log messages). A
    client gets the most features if its own era is used with the server too.
    """
    if protocol == "auto":
        return EraChoice(client_is_modern)
    return EraChoice(protocol != "legacy", is_only=True)


class IncompatibleError(Exception):
    """The upstream has no revision in common with this server."""


@dataclass(frozen=True, slots=True)
class Era:
    """The revision in use with an upstream, and what the upstream declares about itself, unchanged."""

    version: str
    capabilities: Json
    server_info: Json = field(default_factory=dict[str, Any])
    instructions: str = ""
    is_modern: bool = field(kw_only=True)

    def announces(self, *path: str) -> bool:
        """Return whether a capability is declared: the value at the path exists, and is neither null nor false."""
        value: Any = self.capabilities
        for name in path:
            if not isinstance(value, Mapping):
                return False
            value = cast("Mapping[str, Any]", value).get(name)
        return value is not None and value is not False


async def negotiate(channel: JsonRpcChannel, choice: EraChoice, capabilities: Json) -> Era:
    """Negotiate the revision. Raises an `IncompatibleError` if none is shared, or a `RelayError` if a request fails."""
    version = MODERN_PROTOCOL_VERSIONS[-1]
    if not choice.is_modern:
        try:
            return await _handshake(channel, capabilities)
        except (UpstreamError, UnusableAnswerError) as error:
            if choice.is_only:
                raise
            refusal = error
        try:
            with anyio.fail_after(_probe_seconds()):
                return await _discover(channel, _common_version(_supported_versions(refusal)) or version, capabilities)
        except (RelayError, TimeoutError) as error:
            has_failed = isinstance(error, UpstreamError | UnusableAnswerError) and not _is_unknown_method(error)
            # The first error is more informative than one about the other era, unless the server lacks the handshake.
            raise error if has_failed and _is_unknown_method(refusal) else refusal from None
    # Try `server/discover`, and fall back to the handshake.
    failure: Exception | None = None
    for attempt in range(2):
        try:
            with anyio.fail_after(None if choice.is_only else _probe_seconds()):
                return await _discover(channel, version, capabilities)
        except (UpstreamError, UnusableAnswerError) as error:
            failure = None if _is_unknown_method(error) else error
            supported_versions = _supported_versions(error)
            mutual = _common_version(supported_versions)
            if mutual is not None and attempt == 0:
                version = mutual
                continue
            if choice.is_only and (isinstance(error, UnusableAnswerError) or error.code == INTERNAL_ERROR):
                raise  # this error is more informative
            has_handshake = any(revision in HANDSHAKE_PROTOCOL_VERSIONS for revision in supported_versions)
            if choice.is_only or (supported_versions and not has_handshake):
                raise IncompatibleError from None
        except IncompatibleError as error:
            if choice.is_only:
                raise
            failure = error
        except TimeoutError:
            pass
        try:
            return await _handshake(channel, capabilities)
        except UpstreamError as error:
            # The upstream may have chosen its era when it got the probe, even if its response was too late.
            mutual = _common_version(_supported_versions(error))
            if mutual is None or attempt > 0:
                raise failure if failure is not None and _is_unknown_method(error) else error from None
            version = mutual
    raise IncompatibleError


def _is_unknown_method(error: Exception) -> bool:
    return isinstance(error, UpstreamError) and error.code == METHOD_NOT_FOUND


def _probe_seconds() -> float:
    return min(PROBE_SECONDS, (anyio.current_effective_deadline() - anyio.current_time()) * 2 / 3)


async def _discover(channel: JsonRpcChannel, version: str, capabilities: Json) -> Era:
    params = {"_meta": {**OF_THIS_SERVER, **envelope(version, capabilities)}}
    headers = {"mcp-protocol-version": version, "mcp-method": "server/discover"}
    result = await channel.request("server/discover", params, headers)
    if (mutual := _common_version(as_list(result.get("supportedVersions")))) is None:
        raise IncompatibleError
    return _era(mutual, result, as_mapping(result.get("_meta")).get(SERVER_INFO_META_KEY), is_modern=True)


async def _handshake(channel: JsonRpcChannel, capabilities: Json) -> Era:
    params = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": with_relayed_extensions(capabilities),
        "clientInfo": our_name(),
        "_meta": OF_THIS_SERVER,
    }
    result = await channel.request("initialize", params)
    version = _TREATED_AS.get(str(result.get("protocolVersion")), result.get("protocolVersion"))
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise IncompatibleError
    era = _era(str(version), result, result.get("serverInfo"), is_modern=False)
    await channel.notify("notifications/initialized", None, {"mcp-protocol-version": era.version})
    return era


def _era(version: str, result: Json, server_info: Any, *, is_modern: bool) -> Era:
    raw_instructions = result.get("instructions")
    instructions = raw_instructions if isinstance(raw_instructions, str) else ""
    capabilities = as_mapping(result.get("capabilities"))
    return Era(version, capabilities, as_mapping(server_info), instructions, is_modern=is_modern)


def envelope(version: str, capabilities: Json) -> Json:
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: our_name(),
        CLIENT_CAPABILITIES_META_KEY: with_relayed_extensions(capabilities),
    }


def headers_of(era: Era, method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that a request needs over Streamable HTTP."""
    headers = {"mcp-protocol-version": era.version}
    if era.is_modern:
        headers["mcp-method"] = method
        name = params.get(_NAME_PARAMETERS.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = encode_header(name)
    return headers


def with_relayed_extensions(capabilities: Json) -> Json:
    """Return a client's capabilities, without extensions that are not relayed."""
    if "extensions" not in capabilities:
        return capabilities
    extensions = as_mapping(capabilities["extensions"])
    relayed_extensions = {name: extensions[name] for name in extensions if name in ANNOUNCED_EXTENSIONS}
    other_capabilities = {name: capabilities[name] for name in capabilities if name != "extensions"}
    return {**other_capabilities, "extensions": relayed_extensions} if relayed_extensions else other_capabilities


def declares(capabilities: Mapping[str, Any], extension: str) -> bool:
    return extension in as_mapping(capabilities.get("extensions"))


def _common_version(versions: list[Any]) -> str | None:
    """Return the newest revision that both sides support and that has no handshake; `None` if there is none."""
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in versions), None)


def _supported_versions(error: RelayError) -> list[Any]:
    if not isinstance(error, UpstreamError) or error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return []
    return as_list(as_mapping(error.error.get("data")).get("supported"))
