"""The protocol's revisions, and how a message names its revision and its sender: in `_meta`, and in HTTP headers.

In the 2026-07-28 revision, headers also repeat parameter values, in base64 if necessary. The revisions and the reserved
keys are copied from `mcp_types`, whose import takes a third of a second; a test compares the copies.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable

HANDSHAKE_PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`, oldest first."""
MODERN_PROTOCOL_VERSIONS = ("2026-07-28",)
"""The revisions without a handshake: each request names its revision and its sender."""
KNOWN_PROTOCOL_VERSIONS = HANDSHAKE_PROTOCOL_VERSIONS + MODERN_PROTOCOL_VERSIONS
LATEST_HANDSHAKE_VERSION = HANDSHAKE_PROTOCOL_VERSIONS[-1]

PROTOCOL_VERSION_META_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META_KEY = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_META_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_META_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_META_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_META_KEY = "io.modelcontextprotocol/subscriptionId"

REVISION_HEADER = b"mcp-protocol-version"
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def negotiated_revision(requested: object) -> str:
    """Return the revision of a session: the requested one if it has a handshake, otherwise the latest that has one."""
    return next((version for version in HANDSHAKE_PROTOCOL_VERSIONS if version == requested), LATEST_HANDSHAKE_VERSION)


def header_of(headers: Iterable[tuple[bytes, bytes]], header: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == header), None)


def is_of_handshake_era(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    revision = header_of(headers, REVISION_HEADER)
    return revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS


def encode_header(value: str) -> str:
    if _PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_header(header: str | None) -> str | None:
    """Return a header's value, decoded if it is encoded; `None` if the header is missing or cannot be decoded."""
    match = _ENCODED.fullmatch(header or "")
    if header is None or match is None:
        return header
    try:
        value = base64.b64decode(match[1], validate=True)
        return value.decode() if base64.b64encode(value).decode() == match[1] else None
    except ValueError:
        return None
