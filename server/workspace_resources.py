"""The files of the workspace as resources: one template, and what is read through it."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from server.exposure import encodable
from server.file_uris import FILE_TEMPLATE, MAX_URI_CHARS, UriRefusedError, path_of_uri
from tools.contract.errors import ToolErrorType
from tools.contract.result import FunctionCall, ToolFailure

READER = "read_file"
"""The tool whose rules hold for reading a resource."""

TEMPLATE: dict[str, Any] = {
    "uriTemplate": FILE_TEMPLATE,
    "name": "workspace-file",
    "title": "File of the workspace",
    "description": "A file by its absolute path. Texts come within the limits of read_file, other files as bytes.",
}

RESOURCE_NOT_FOUND = -32002
"""What the handshake revisions of the specification say of an unknown resource; 2026-07-28 says invalid params."""

_NOT_FOUND = frozenset(
    {
        ToolErrorType.FILE_NOT_FOUND,
        ToolErrorType.PATH_NOT_IN_WORKSPACE,
        ToolErrorType.PATH_IGNORED,
        ToolErrorType.TARGET_IS_DIRECTORY,
        ToolErrorType.READ_CONTENT_FAILURE,
    }
)
"""For this server there is no such resource, whatever is at the path."""

_OURS = frozenset({ToolErrorType.EXECUTION_FAILED, ToolErrorType.CANCELLED})


def call_of(uri: str) -> FunctionCall:
    """The call that reads a resource.

    Raises:
        MCPError: The URI means no file.
    """
    try:
        return FunctionCall(READER, {"absolute_path": path_of_uri(uri)})
    except UriRefusedError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": _shown(uri)}) from None


def read_error(uri: str, failure: ToolFailure, protocol_version: str) -> MCPError:
    """A failed read as the protocol says it; a resource has no result that tells of a failure."""
    code = types.INVALID_PARAMS
    if failure.code in _OURS:
        code = types.INTERNAL_ERROR
    elif failure.code in _NOT_FOUND and protocol_version not in MODERN_PROTOCOL_VERSIONS:
        code = RESOURCE_NOT_FOUND
    data = {"uri": _shown(uri), "type": failure.code.value}
    return MCPError(code=code, message=encodable(failure.message), data=data)


def _shown(uri: str) -> str:
    return encodable(uri[:MAX_URI_CHARS])
