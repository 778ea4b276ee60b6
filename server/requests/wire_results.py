"""Converts this server's tools and results to wire format. `protocol.request_table` adapts results to each revision."""

from __future__ import annotations

import base64
from typing import Any, Literal

from server.protocol.request_table import LINKS_SINCE
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.wire.origin_meta import FACTS_KEY
from tools.call.base_tool import BaseTool
from tools.contract.display import display_block, display_object
from tools.contract.tool_results import FileDataPart, InlineDataPart, Part, TextPart, ToolResult, package

DISPLAY_KEY = "coretools-mcp/display"
ERROR_KEY = "coretools-mcp/error"
AUDIO_SINCE = "2025-03-26"  # clients of older revisions get audio as an embedded resource
DisplayPlace = Literal["block", "meta"]


def tool_to_wire(tool: BaseTool[Any]) -> dict[str, Any]:
    if isinstance(tool, DiscoveredMCPTool):
        return tool.published()
    behaviour = tool.behaviour
    # Clients assume different defaults for missing hints, so hints that affect decisions are always present.
    hints = {"readOnlyHint": behaviour.read_only, "openWorldHint": behaviour.open_world}
    if not behaviour.read_only:  # the other hints mean nothing for read-only tools
        hints["destructiveHint"] = behaviour.destructive
        if behaviour.idempotent:
            hints["idempotentHint"] = True
    return {
        "name": tool.name,
        "title": tool.title or tool.display_name,
        "description": tool.description,
        "inputSchema": dict(tool.parameter_schema),
        "annotations": hints,
    }


def result_to_wire(name: str, result: ToolResult, display: DisplayPlace, protocol_version: str) -> dict[str, Any]:
    """Convert a result for `tools/call`: content for the model, a display for people, and data for programs."""
    if result.verbatim is not None:
        verbatim = dict(result.verbatim)
        if result.note:
            verbatim["content"] = [*verbatim.get("content", ()), {"type": "text", "text": result.note}]
        return verbatim
    response = package(name, result)
    content = [_block(part, protocol_version) for part in response.parts]
    wire: dict[str, Any] = {"content": content}
    if (error := response.error) is not None:
        meta = {ERROR_KEY: {"type": error.code.value, "message": error.message}}
        return {"content": content, "isError": True, "_meta": meta}
    meta: dict[str, Any] = {}
    if result.structured is not None:
        wire["structuredContent"] = result.structured
    if result.facts:
        meta[FACTS_KEY] = result.facts
    if result.return_display:
        meta[DISPLAY_KEY] = display_object(result.return_display)
        if display == "block" and (block := display_block(result.return_display)) is not None:
            content.append({"type": "text", "text": block, "annotations": {"audience": ["user"]}})
    if meta:
        wire["_meta"] = meta
    return wire


def prompt_to_wire(description: str, name: str, result: ToolResult, protocol_version: str) -> dict[str, Any]:
    """Convert a tool's result for `prompts/get`.

    A message has one block, and Qwen Code and Gemini CLI read only the first message, as text. The first message
    therefore contains all the text, with a line for each image or sound; the images and sounds follow in separate
    messages.
    """
    texts: list[str] = []
    blocks: list[dict[str, Any]] = []
    for part in package(name, result).parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
            continue
        if isinstance(part, InlineDataPart):
            texts.append(f"[{part.uri} ({part.mime_type}) is attached to this text.]\n\n")
        blocks.append(_block(part, protocol_version))
    blocks.insert(0, {"type": "text", "text": "".join(texts)})
    messages = [{"role": "user", "content": block} for block in blocks]
    meta = {"_meta": {FACTS_KEY: result.facts}} if result.facts else {}
    return {"description": description, "messages": messages, **meta}


def contents_to_wire(uri: str, result: ToolResult) -> dict[str, Any]:
    """Convert the result of reading one file for `resources/read`, as one part with text or bytes."""
    facts = dict(result.facts)
    text_type = facts.pop("mime_type", "text/plain")
    contents: dict[str, Any] = {"uri": uri, "_meta": {FACTS_KEY: facts}}
    parts = package("", result).parts
    data = next((part for part in parts if isinstance(part, InlineDataPart)), None)
    if data is not None:
        contents["mimeType"] = data.mime_type
        contents["blob"] = base64.b64encode(data.data).decode("ascii")
    else:
        contents["mimeType"] = text_type
        contents["text"] = "".join(part.text for part in parts if isinstance(part, TextPart))
    return {"contents": [contents]}


def _block(part: Part, protocol_version: str) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case InlineDataPart():
            data = base64.b64encode(part.data).decode("ascii")
            family = part.mime_type.partition("/")[0]
            if family == "image" or (family == "audio" and protocol_version >= AUDIO_SINCE):
                return {"type": family, "data": data, "mimeType": part.mime_type}
            return {"type": "resource", "resource": {"uri": part.uri, "mimeType": part.mime_type, "blob": data}}
        case FileDataPart():
            if protocol_version < LINKS_SINCE:
                return {"type": "text", "text": f"{part.name}: {part.uri}"}
            link: dict[str, Any] = {"type": "resource_link", "uri": part.uri, "name": part.name}
            if part.mime_type is not None:
                link["mimeType"] = part.mime_type
            if part.size is not None:
                link["size"] = part.size
            return link
