"""Adapts upstream results and errors to the client's revision, and leaves everything else in them unchanged."""

from __future__ import annotations

import re
from typing import Any, cast

from pydantic_core import to_json

from server.clients.client_request import is_web_address
from server.protocol.json_rpc import INTERNAL_ERROR, URL_ELICITATION_REQUIRED, Json, MCPError, as_mapping
from server.upstreams.session.upstream_questions import labelled
from server.upstreams.wire.json_rpc_channel import RelayError, UnusableAnswerError, UpstreamError
from tools.contract.tool_errors import ToolError, ToolErrorType

MAX_SAID = 1_000  # characters to search in each content block of a failed result
_UNKNOWN = re.compile(
    r"unknown|unrecogni[sz]ed|no such|no tool|not (be )?(found|available|registered|exist)|n't exist", re.IGNORECASE
)
_BLOCKS = {"text": "TextContent", "image": "ImageContent", "audio": "AudioContent", "resource_link": "ResourceLink"}


class NoAnswerError(RelayError):
    """The upstream sent neither a result nor progress in time, so the call was cancelled."""


class TooManyRoundsError(RelayError):
    """The upstream has asked questions in too many rounds."""


class SuspendedCallGoneError(RelayError):
    """The call that the client wants to continue no longer exists."""


class BusyError(RelayError):
    """A call timed out before it was sent, because the maximum number of calls was in progress."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most


def readable_result(result: Json, *, is_modern: bool) -> Json:
    """Return a tool result that every client accepts: with content, and without null for missing values.

    An invalid content block becomes text, and no block is lost. Structured content that is not an object is only for
    2026-07-28 clients.

    Raises:
        UnusableAnswerError: `result` is not the result of a tool call.
    """
    from server.protocol.item_schemas import UnfitError, fitted  # noqa: PLC0415 - imported with the first list

    result = _without_nulls(result)
    if result.get("resultType", "complete") != "complete":
        return result
    content: Any = result.get("content", [] if "structuredContent" in result else None)
    if not isinstance(content, list) or not isinstance(result.get("isError", False), bool):
        raise UnusableAnswerError("its answer is not the result of a tool call")
    blocks: list[Json] = []
    for block in cast("list[Any]", content):
        if block is None:
            continue
        fields = _without_nulls(block)
        name = _BLOCKS.get(str(fields.get("type")), "EmbeddedResource")
        try:
            if name == "EmbeddedResource":
                resource = _without_nulls(fields.get("resource"))
                kind = "TextResourceContents" if isinstance(resource.get("text"), str) else "BlobResourceContents"
                fields["resource"] = fitted(kind, resource)[0]
            blocks.append(fitted(name, fields)[0])
        except UnfitError:
            blocks.append(_as_text(block))
    if not is_modern and not isinstance(structured := result.get("structuredContent", {}), dict):
        del result["structuredContent"]
        blocks = blocks or [_as_text(structured)]
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
    return {**result, "content": blocks}


def _without_nulls(value: Any) -> Json:
    return {name: each for name, each in as_mapping(value).items() if each is not None}


def _as_text(value: Any) -> Json:
    return {"type": "text", "text": value if isinstance(value, str) else to_json(value, inf_nan_mode="null").decode()}


def says_unknown(name: str, result: Json) -> bool:
    """Return whether the text of a failed result says that the tool does not exist."""
    content: Any = result.get("content")
    if result.get("isError") is not True or not isinstance(content, list):
        return False
    text = " ".join(str(block.get("text", ""))[:MAX_SAID] for block in cast("list[Json]", content[:3]))
    return (name in text or "tool" in text.lower()) and _UNKNOWN.search(text) is not None


def protocol_error(error: Json, alias: str = "") -> MCPError:
    """Convert a JSON-RPC error. Addresses for people to open are labelled with the alias, as in questions."""
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    code = code if isinstance(code, int) else INTERNAL_ERROR
    if code == URL_ELICITATION_REQUIRED:
        asked = as_mapping(data).get("elicitations")
        links = map(as_mapping, cast("list[Any]", asked) if isinstance(asked, list) else [])
        open_to = [labelled(alias, "elicitation/create", link) for link in links if is_web_address(link.get("url"))]
        data = {**as_mapping(data), "elicitations": open_to}
    return MCPError(code, message if isinstance(message, str) else "", data)


def protocol_error_for(error: RelayError | ToolError | TimeoutError, alias: str) -> MCPError:
    """Return the error to send to the client for a failed request. An upstream's own error is relayed completely."""
    if isinstance(error, UpstreamError):
        return protocol_error(error.error, alias)
    as_tool_error = tool_error_for(error, alias, "the request")
    return MCPError(INTERNAL_ERROR, as_tool_error.message, {"type": as_tool_error.code.value})


def tool_error_for(error: RelayError | ToolError | TimeoutError, alias: str, what: str) -> ToolError:
    unknown = "It is unknown whether the request had an effect."
    match error:
        case ToolError():
            return error
        case UpstreamError():
            what = f"{error.method} with error" if error.method else "with error"
            said = f"The server {alias} answered {what} {error.code}: {error.error.get('message', '')}"
            return ToolError(ToolErrorType.MCP_TOOL_ERROR, said)
        case NoAnswerError() | TimeoutError():
            told = (
                f"The server {alias} sent neither a result nor progress for {what} in time "
                f"(mcpServers.{alias}.timeout), so the request was cancelled. {unknown}"
            )
        case BusyError(most=most):
            told = (
                f"The server {alias} is busy: its maximum of {most} calls at once (mcpServers.{alias}.maxConcurrent) "
                f"was in use until {what} timed out (mcpServers.{alias}.timeout). The request was not sent, so it had "
                "no effect; try again later."
            )
        case UnusableAnswerError(why=why):
            told = f"The server {alias} gave no usable answer to {what}: {why}. {unknown}"
        case TooManyRoundsError():
            told = f"The server {alias} kept asking questions during {what}, so the request was abandoned. {unknown}"
        case SuspendedCallGoneError():
            told = (
                f"The server {alias} waited for an answer before completing {what}, but the answer arrived too late, "
                f"or the server was restarted. {unknown} Call again if that is safe."
            )
        case _:
            told = (
                f"The connection to the server {alias} was lost during {what}. {unknown} The connection is restored "
                "automatically."
            )
    return ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, told)
