"""What is known of the protocol without its models is what they say."""

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
COPIED = ("_PROTOCOL_VERSIONS", "_HANDSHAKE_VERSION", "_META_KEY")  # ends of names that are copied from the SDK
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
def test_parameters_are_refused_where_the_models_of_the_protocol_refuse_them(method: str, version: str) -> None:
    for params in PARAMS:
        given: Any = params
        fields = cast("dict[str, Any]", params or {})
        meta: Any = fields.get("_meta") or {}
        if version == "2026-07-28" and isinstance(meta, dict):  # else it would be of no revision
            given = {**fields, "_meta": {**ENVELOPE, **cast("dict[str, Any]", meta)}}
        assert is_refused(method, version, given) is is_refused_by_models(method, version, given), params


@pytest.mark.requirement("protocol.parameters")
@each_of("name", [name for name in vars(revisions) if name.endswith(COPIED) and name != "SUBSCRIPTION_ID_META_KEY"])
def test_revisions_and_keys_are_those_of_the_sdk(name: str) -> None:
    assert getattr(revisions, name) == getattr(mcp_types, name, None) or getattr(mcp_types.version, name)


@pytest.mark.requirement("protocol.parameters")
@each_of("name", [name for name, value in vars(json_rpc).items() if isinstance(value, int) and value < 0])
def test_codes_are_those_of_the_sdk(name: str) -> None:
    assert getattr(json_rpc, name) == getattr(mcp_types, name)


@pytest.mark.requirement("protocol.parameters")
@each_of(
    "announced, known",
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
def test_of_capabilities_what_is_malformed_is_not_announced_and_what_is_unknown_does_not_pass(
    announced: Any, known: Any
) -> None:
    assert capabilities_of(announced) == known


@pytest.mark.requirement("protocol.parameters")
@each_of("value", ["plain", "", " edge", "übung", "=?base64?eA==?=", "a\nb", "a b"])
def test_what_a_header_cannot_hold_goes_through_it_in_base64(value: str) -> None:
    header = encode_header(value)
    assert header.isascii()
    assert header == header.strip()
    assert "\n" not in header
    assert decode_header(header) == value


@pytest.mark.requirement("protocol.parameters")
@each_of("header", [None, "=?base64?eB==?=", "=?base64?*?=", "=?base64?/w==?="])
def test_a_header_that_is_encoded_in_another_way_has_no_value(header: str | None) -> None:
    assert decode_header(header) is None


@pytest.mark.requirement("protocol.parameters")
@each_of("info, name", [(ABOUT, "t 1"), ({}, ""), ({"name": "t"}, ""), ({"name": ["t"] * 1_000, "version": "1"}, "")])
def test_a_client_whose_name_is_no_text_has_none(info: dict[str, Any], name: str) -> None:
    assert display_name(info) == name


@pytest.mark.requirement("project.start-imports")
def test_the_version_that_is_told_is_that_of_the_package() -> None:
    assert metadata.version("coretools-mcp") == VERSION
