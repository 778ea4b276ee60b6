"""Checks of the protocol that work without the SDK's models agree with these models."""

from __future__ import annotations

from importlib import metadata
from typing import Any, cast

import mcp_types
import mcp_types.version
import pytest
from mcp_types.methods import CLIENT_REQUESTS, validate_client_request

from server import VERSION
from server.protocol import json_rpc, revisions
from server.protocol.json_rpc import MCPError
from server.protocol.request_table import capabilities_of, check_params, display_name
from server.protocol.revisions import decode_header, encode_header
from tests.tables import each_of

ABOUT = {"name": "t", "version": "1"}
COPIED_SUFFIXES = (
    "_PROTOCOL_VERSIONS",
    "_HANDSHAKE_VERSION",
    "_META_KEY",
)  # suffixes of constants that are copied from the SDK
ENVELOPE: dict[str, Any] = {
    revisions.PROTOCOL_VERSION_META_KEY: "2026-07-28",
    revisions.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}, "roots": {"listChanged": True}},
    revisions.CLIENT_INFO_META_KEY: ABOUT,
}
PARAMS: list[Any] = [
    None,
    {},
    {"cursor": "x"},
    {"cursor": 1},
    {"cursor": None},
    {"name": "x"},
    {"name": 1},
    {"name": "x", "arguments": {"a": 1}},
    {"name": "x", "arguments": None},
    {"name": "x", "arguments": []},
    {"name": "x", "_meta": {}},
    {"name": "x", "_meta": None},
    {"name": "x", "_meta": []},
    {"name": "x", "_meta": {"progressToken": True}},
    {"name": "x", "_meta": {"progressToken": 1.5}},
    {"name": "x", "_meta": {"progressToken": "t"}},
    {"name": "x", "_meta": ENVELOPE},
    {"name": "x", "_meta": {**ENVELOPE, revisions.LOG_LEVEL_META_KEY: "loud"}},
    {"name": "x", "_meta": {**ENVELOPE, revisions.CLIENT_INFO_META_KEY: {"name": "x"}}},
    {"name": "x", "_meta": {**ENVELOPE, revisions.CLIENT_CAPABILITIES_META_KEY: {"roots": {"listChanged": "yes"}}}},
    {"name": "x", "_meta": {**ENVELOPE, revisions.CLIENT_CAPABILITIES_META_KEY: {"roots": True}}},
    {"name": "x", "_meta": {**ENVELOPE, revisions.CLIENT_CAPABILITIES_META_KEY: {"unknown": 1}}},
    {"uri": "file:///x"},
    {"uri": 3},
    {"uri": "x", "more": 1},
    {"_meta": ENVELOPE},
    {"_meta": ENVELOPE, "name": "x", "inputResponses": {"a": 1}},
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {"tools": {}}}, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": {"roots": {"listChanged": 1}}, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": []}, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": None, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": 1}},
    {"protocolVersion": 3, "capabilities": {}, "clientInfo": ABOUT},
    {"capabilities": {}, "clientInfo": ABOUT},
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": ABOUT, "_meta": 1},
]


def is_refused_by_models(method: str, version: str, params: Any) -> bool:
    try:
        validate_client_request(method, version, params)
    except ValueError:
        return True
    return False


def is_refused(method: str, version: str, params: Any) -> bool:
    try:
        check_params(method, version, params)
    except MCPError:
        return True
    return False


@pytest.mark.requirement("protocol.parameters")
@each_of("method, version", sorted(CLIENT_REQUESTS))
def test_parameters_are_refused_exactly_if_the_models_of_the_sdk_refuse_them(method: str, version: str) -> None:
    for params in PARAMS:
        request_params: Any = params
        fields = cast("dict[str, Any]", params or {})
        meta: Any = fields.get("_meta") or {}
        if version == "2026-07-28" and isinstance(meta, dict):  # otherwise the request has no revision
            request_params = {**fields, "_meta": {**ENVELOPE, **cast("dict[str, Any]", meta)}}
        assert is_refused(method, version, request_params) is is_refused_by_models(method, version, request_params), (
            params
        )


@pytest.mark.requirement("protocol.parameters")
@each_of(
    "name", [name for name in vars(revisions) if name.endswith(COPIED_SUFFIXES) and name != "SUBSCRIPTION_ID_META_KEY"]
)
def test_revisions_and_keys_are_those_of_the_sdk(name: str) -> None:
    assert getattr(revisions, name) == (getattr(mcp_types, name, None) or getattr(mcp_types.version, name))


@pytest.mark.requirement("protocol.parameters")
@each_of("name", [name for name, value in vars(json_rpc).items() if isinstance(value, int) and value < 0])
def test_codes_are_those_of_the_sdk(name: str) -> None:
    assert getattr(json_rpc, name) == getattr(mcp_types, name)


@pytest.mark.requirement("protocol.parameters")
@each_of(
    "capabilities, expected",
    [
        ({"elicitation": {}}, {"elicitation": {}}),
        ({"elicitation": {}, "unknown": {}}, {"elicitation": {}}),
        ({"elicitation": {}, "tasks": {}}, {"elicitation": {}}),
        ({"elicitation": None, "roots": {"listChanged": True}}, {"roots": {"listChanged": True}}),
        ({"elicitation": 3}, None),
        (None, None),
        ([], None),
    ],
)
def test_malformed_and_unknown_capabilities_are_ignored(capabilities: Any, expected: Any) -> None:
    assert capabilities_of(capabilities) == expected


@pytest.mark.requirement("protocol.parameters")
@each_of("value", ["plain", "", " edge", "übung", "=?base64?eA==?=", "a\nb", "a b"])
def test_values_that_a_header_cannot_contain_are_encoded_in_base64(value: str) -> None:
    header = encode_header(value)
    assert header.isascii()
    assert header == header.strip()
    assert "\n" not in header
    assert decode_header(header) == value


@pytest.mark.requirement("protocol.parameters")
@each_of("header", [None, "=?base64?eB==?=", "=?base64?*?=", "=?base64?/w==?="])
def test_a_header_with_an_invalid_encoding_has_no_value(header: str | None) -> None:
    assert decode_header(header) is None


@pytest.mark.requirement("protocol.parameters")
@each_of("info, name", [(ABOUT, "t 1"), ({}, ""), ({"name": "t"}, ""), ({"name": ["t"] * 1_000, "version": "1"}, "")])
def test_a_client_with_an_invalid_name_has_no_display_name(info: dict[str, Any], name: str) -> None:
    assert display_name(info) == name


@pytest.mark.requirement("project.start-imports")
def test_the_version_constant_is_that_of_the_package() -> None:
    assert metadata.version("coretools-mcp") == VERSION
