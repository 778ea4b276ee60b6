"""What a client gets from an upstream: readable results with published links, shortened if too long, and errors.

A result is adapted to the client's revision (`readable_result`), and its links get the URIs that clients know
(`with_links`); everything else in it is unchanged. If it is too long for a conversation, it is written to a private
file, and the client gets only its beginning (`LargeResults`). The file is stored with the long outputs of commands: no
other client can read it, and it is removed when its client is forgotten. JSON on one line is split into several lines,
so that `read_file` and `grep_search` can show it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, cast

import anyio
from pydantic_core import to_json

from server.clients.client_request import Exchange
from server.protocol.json_rpc import INTERNAL_ERROR, URL_ELICITATION_REQUIRED, Json, MCPError, as_list, as_mapping
from server.protocol.request_table import LINKS_SINCE, NEVER_CACHED
from server.upstreams.session.upstream_questions import labelled
from server.upstreams.wire.json_rpc_channel import RelayError, UnusableAnswerError, UpstreamError
from server.upstreams.wire.origin_meta import FACTS_KEY, chain_of
from tools.contract.call_options import Limits
from tools.contract.tool_errors import ExhaustedError, ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import Rights
from tools.shell.private_folders import OutputFile, PrivateFolder
from tools.text.file_names import shown_whole_path

MAX_SEARCHED_CHARS = 1_000  # characters to search in each content block of a failed result
_UNKNOWN = re.compile(
    r"unknown|unrecogni[sz]ed|no such|no tool|not (be )?(found|available|registered|exist)|n't exist", re.IGNORECASE
)
_BLOCKS = {"text": "TextContent", "image": "ImageContent", "audio": "AudioContent", "resource_link": "ResourceLink"}

_LINKS = {
    "tools/call": "content",
    "prompts/get": "messages",
    "resources/read": "contents",
    "resources/directory/read": "resources",
}
"""The result field with links or contents, by method."""

MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose result may be a question in the 2026-07-28 revision."""

_METHODS_OF_KIND = {"input_required": MAY_ASK, "task": frozenset({"tools/call"})}
_QUESTION_FIELDS, _CACHE_FIELDS = frozenset({"inputRequests", "requestState"}), frozenset(NEVER_CACHED)

RESULTS_URI = "coretools://results/"  # prefix of the links to saved results, for clients without file tools
# The `_meta` key in which a tool tells Claude Code the maximum length of its results; a request may also set it
CLAIMED_LIMIT_KEY = "anthropic/maxResultSizeChars"
CLAUDE_CODE = "claude-code"  # the client name of Claude Code
MAX_CLAIMED = 500_000  # Claude Code's own maximum
MAX_SHOWN = 2_048  # how many bytes of a saved result the client gets directly
WRITE_SECONDS = 10.0  # time limit for writing the file

LINE_CHARS = Limits().line_chars  # `read_file` and `grep_search` truncate lines at this length
GOOD_LINE_CHARS = 100  # when JSON is split, a shorter part stays on one line with the next part
_JSON_TOKEN = re.compile(r'[^",{\[]+|"(?:[^"\\]+|\\.)*"?|[,{\[]')


def checked_result(result: Json, method: str, *, is_modern: bool) -> Json:
    """Return a result of an upstream; if it is complete, without fields of other kinds of results or other revisions.

    Only a 2026-07-28 upstream (`is_modern`) may return questions and tasks. If an older one did, the client would take
    them for those of this server. Raises `UnusableAnswerError` if the upstream may not return such a result.
    """
    kind = result.get("resultType")
    if kind in (None, "complete"):
        removed_fields = _QUESTION_FIELDS if is_modern else _QUESTION_FIELDS | _CACHE_FIELDS
        removed_fields = removed_fields if kind == "complete" else removed_fields | {"resultType"}
        has_any = not removed_fields.isdisjoint(result)
        return {name: value for name, value in result.items() if name not in removed_fields} if has_any else result
    if not is_modern or not isinstance(kind, str) or method not in _METHODS_OF_KIND.get(kind, ()):
        raise UnusableAnswerError("its result has a type that its revision, or this request, does not allow")
    return result


def readable_result(result: Json, *, is_modern: bool) -> Json:
    """Return a tool result that every client accepts: with content, and without null for missing values.

    An invalid content block becomes text, and no block is lost. Structured content that is not an object is only for
    2026-07-28 clients. Raises `UnusableAnswerError` if `result` is not the result of a tool call.
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
            blocks.append(_text_block(block))
    if not is_modern and not isinstance(structured_content := result.get("structuredContent", {}), dict):
        del result["structuredContent"]
        blocks = blocks or [_text_block(structured_content)]
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
    return {**result, "content": blocks}


def _without_nulls(value: Any) -> Json:
    return {name: item for name, item in as_mapping(value).items() if item is not None}


def _text_block(value: Any) -> Json:
    return {"type": "text", "text": value if isinstance(value, str) else to_json(value, inf_nan_mode="null").decode()}


def says_unknown(name: str, result: Json) -> bool:
    """Return whether the text of a failed result says that the tool does not exist."""
    blocks = as_list(result.get("content"))[:3]
    text = " ".join(str(block.get("text", ""))[:MAX_SEARCHED_CHARS] for block in blocks)
    return (name in text or "tool" in text.lower()) and _UNKNOWN.search(text) is not None


def with_links(method: str, result: Json, published_uri: Callable[[str], str]) -> Json:
    """Return a result with published URIs in its links, or `result` itself if no link changes."""
    name = _LINKS.get(method, "")
    old_items = as_list(result.get(name))
    cache: dict[str, str] = {}

    def with_published_uri(item: Json) -> Json:
        uri = item.get("uri")
        if not isinstance(uri, str):
            return item
        if uri not in cache:
            cache[uri] = published_uri(uri)
        return item if cache[uri] == uri else {**item, "uri": cache[uri]}

    new_items: list[Any] = []
    for item in old_items:
        fields = as_mapping(item)
        block = as_mapping(fields.get("content")) if name == "messages" else fields
        new_block, kind = block, block.get("type")
        if name in ("contents", "resources") or kind == "resource_link":
            new_block = with_published_uri(block)
        elif kind == "resource":
            resource = as_mapping(block.get("resource"))
            if (new_resource := with_published_uri(resource)) is not resource:
                new_block = {**block, "resource": new_resource}
        if new_block is block:
            new_items.append(item)
        else:
            new_items.append({**fields, "content": new_block} if name == "messages" else new_block)
    return result if all(map(is_, old_items, new_items)) else {**result, name: new_items}


@dataclass(frozen=True, slots=True)
class CalledTool:
    """The tool that returned a result."""

    name: str  # the name that the client knows
    upstream_name: str
    definition: Mapping[str, Any]  # empty if the upstream no longer lists it


@dataclass(frozen=True, slots=True)
class LargeResults:
    limit: int | None  # length in characters up to which a result is passed on in full; `None` means no limit
    folder_of: Callable[[str], PrivateFolder | None]  # returns the private folder of the client with this key
    has_file_tools: Callable[[Rights], bool]  # whether a client with these rights has tools that read files

    async def shortened(self, tool: CalledTool, result: Json, exchange: Exchange, client_name: str) -> Json:
        """Return the result, or, if it is too long, its beginning and the location of the whole text.

        Images and audio are not shortened, nor is structured content of a tool with an output schema. A higher limit
        applies if the request sets one, or if the client is Claude Code and the tool's definition sets one. A client
        that is itself a coretools-mcp server gets the whole result, and shortens it for its own client.
        """
        is_question = result.get("resultType", "complete") != "complete"
        if self.limit is None or is_question or chain_of(exchange.meta):
            return result
        limit = self.limit
        is_claude_code = client_name.startswith(CLAUDE_CODE)
        for meta in (exchange.meta, as_mapping(tool.definition.get("_meta")) if is_claude_code else {}):
            if isinstance(claimed_limit := meta.get(CLAIMED_LIMIT_KEY), int):
                limit = max(limit, min(claimed_limit, MAX_CLAIMED))
        blocks = cast("list[Json]", result.get("content", []))
        structured_content: Any = None if "outputSchema" in tool.definition else result.get("structuredContent")
        data = b"" if structured_content is None else to_json(structured_content, inf_nan_mode="constants")
        sizes = list(map(_chars_of, blocks))
        is_long = sum(sizes) > limit
        folder = self.folder_of(exchange.client_key) if is_long or len(data) > limit else None
        if folder is None:  # the result is short, or the client is unidentified and could not read the file
            return result
        shorter, texts, other_blocks = dict(result), list[str](), list[Json]()
        for block, size in zip(blocks, sizes, strict=True):
            if not (is_long and size):
                other_blocks.append(block)
            elif block.get("type") == "text":
                texts.append(str(block["text"]))
            elif isinstance(text := as_mapping(block.get("resource")).get("text"), str):
                texts.append(f"{block['resource'].get('uri')}:\n{text}")
            else:
                texts.append(json.dumps(block, ensure_ascii=False))
        if len(data) > limit:
            texts.append(data.decode())
            del shorter["structuredContent"]
        content = await THREADS.run(partial(_in_lines, texts))
        file = await _saved_file(folder, content)
        reads_files = self.has_file_tools(exchange.rights)
        answer: list[Json] = [{"type": "text", "text": self._note(tool, file, content, limit, reads_files=reads_files)}]
        if file is not None and not reads_files and exchange.version >= LINKS_SINCE:
            link = {"name": f"result of {tool.upstream_name}", "mimeType": "text/plain", "size": file.kept_bytes}
            answer.append({"type": "resource_link", "uri": RESULTS_URI + os.path.basename(file.path), **link})
        facts = {"outputBytes": len(content), "outputFile": None if file is None else file.path}
        meta = {**as_mapping(result.get("_meta")), FACTS_KEY: facts}
        return {**shorter, "content": [*answer, *other_blocks], "_meta": meta}

    def _note(self, tool: CalledTool, file: OutputFile | None, content: bytes, limit: int, *, reads_files: bool) -> str:
        from tools.shell.result_text import size  # noqa: PLC0415 - imported with the first large result

        excerpt = content[: limit if file is None else MAX_SHOWN].decode("utf-8", "ignore")
        total, beginning = size(len(content)), size(len(excerpt.encode()))
        summary = f"Note: the result of {tool.name} is {total} long; its first {beginning} follow."
        if file is None:
            hint = "The rest is lost because it could not be written to a file (is the disk full?). Request less."
            return f"{summary} {hint}\n\n{excerpt}"
        missing_bytes = len(content) - file.kept_bytes
        part = f"All but the last {size(missing_bytes)}" if missing_bytes else "All of it"
        location = f"the resource {RESULTS_URI}{os.path.basename(file.path)}."
        if reads_files:
            path = shown_whole_path(file.path)
            location = f"{path}: read_file shows its lines, and grep_search searches it."
        breaks = f"Lines longer than {LINE_CHARS} characters were split."
        return f"{summary} {part} is in {location} {breaks}\n\n{excerpt}"

    async def read(self, uri: str, client_key: str) -> Json | None:
        """Return the saved result that a link names, in the format of `resources/read`; `None` if it is gone."""
        folder, name = self.folder_of(client_key), uri.removeprefix(RESULTS_URI)
        file = folder.files.get(os.path.join(folder.outputs, name)) if folder is not None else None
        if file is None:
            return None
        try:
            data = await THREADS.run(partial(file.read_at, 0, file.kept_bytes))
        except OSError:
            return None  # the file was deleted to make room for newer ones
        text = data.decode("utf-8", "replace")
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}], **NEVER_CACHED}


async def _saved_file(folder: PrivateFolder, content: bytes) -> OutputFile | None:
    """Save a result in its client's folder. Returns the file, or `None` if nothing could be written."""
    # A client may fetch the result of a task several times, so the newest file of the same size may have this content.
    same_size_files = [file for file in folder.files.values() if file.is_complete and file.kept_bytes == len(content)]
    for file in same_size_files[-1:]:
        with suppress(OSError, ExhaustedError):  # the file may have been removed or replaced
            is_same = await THREADS.run(partial(file.read_at, 0, len(content))) == content
            if is_same and folder.files.pop(file.path, None) is file:
                folder.files[file.path] = file  # now the newest, because the oldest file is removed first
                return file
    file = folder.open()
    file.write(content)
    with anyio.move_on_after(WRITE_SECONDS), suppress(OSError):
        await file.close()
        if file.kept_bytes:
            return file
    folder.discard(file)
    return None


def _chars_of(block: Json) -> int:
    """Return the length of a content block in characters; images and audio do not count."""
    match block.get("type"):
        case "image" | "audio":
            return 0
        case "text":
            return len(text) if isinstance(text := block.get("text"), str) else 0
        case "resource":
            resource = as_mapping(block.get("resource"))
            return sum(len(content) for content in map(resource.get, ("text", "blob")) if isinstance(content, str))
        case _:
            return len(to_json(block, inf_nan_mode="constants"))


def _in_lines(texts: Sequence[str]) -> bytes:
    """Join the texts, and split each line that the file tools would truncate.

    This runs in a thread, in steps short enough for other threads to run in between.
    """
    lines: list[str] = []
    for text in texts:
        is_json = (text[:1], text[-1:]) in (("{", "}"), ("[", "]"))
        for line in text.split("\n"):
            if len(line) <= LINE_CHARS:
                lines.append(line)
                continue
            start = 0
            for token in _JSON_TOKEN.finditer(line) if is_json else ():
                if token[0] in ",{[" and token.end() - start >= GOOD_LINE_CHARS:  # JSON allows a line break there
                    lines += _split_line(line[start : token.end()])
                    start = token.end()
            lines += _split_line(line[start:])
    return "\n".join(lines).encode("utf-8", "replace")


def _split_line(line: str) -> Iterator[str]:
    """Split a line into parts of at most `LINE_CHARS`, if possible after an escaped JSON line break or a space."""
    start = 0
    while len(line) - start > LINE_CHARS:
        end = start + LINE_CHARS
        for separator in ("\\n", " "):
            if (position := line.rfind(separator, start + LINE_CHARS // 2, end - len(separator))) >= 0:
                end = position + len(separator)
                break
        yield line[start:end]
        start = end
    yield line[start:]


class NoAnswerError(RelayError):
    """The upstream sent neither a result nor progress in time, so the call was cancelled."""


class TooManyRoundsError(RelayError):
    """The upstream has asked questions in too many rounds."""


class SuspendedCallGoneError(RelayError):
    """The call that the client wants to continue no longer exists."""


class BusyError(RelayError):
    """A call timed out before it was sent, because the maximum number of calls was in progress."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit


def protocol_error(error: Json, alias: str = "", exchange: Exchange | None = None) -> MCPError:
    """Convert a JSON-RPC error.

    Addresses for people to open are labelled with the alias, and removed if the client cannot be asked to open them.
    """
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    code = code if isinstance(code, int) else INTERNAL_ERROR
    if code == URL_ELICITATION_REQUIRED:
        links = [{**as_mapping(link), "mode": "url"} for link in as_list(as_mapping(data).get("elicitations"))]
        links_to_open = [
            labelled(alias, "elicitation/create", link)
            for link in links
            if exchange is not None and exchange.can_be_asked("elicitation/create", link)
        ]
        data = {**as_mapping(data), "elicitations": links_to_open}
    return MCPError(code, _with_way_out(message, alias) if isinstance(message, str) else "", data)


def _with_way_out(message: str, alias: str) -> str:
    """If a server's SDK says that the server cannot ask in this revision, add the setting that lets the server ask."""
    if alias and "no back-channel for server-initiated requests" in message:
        message += f' To let the server ask, set "protocol": "legacy" in its entry (mcpServers.{alias}).'
    return message


def protocol_error_for(error: RelayError | ToolError | TimeoutError, alias: str, exchange: Exchange) -> MCPError:
    """Return the error to send to the client for a failed request."""
    if isinstance(error, UpstreamError):
        return protocol_error(error.error, alias, exchange)
    as_tool_error = tool_error_for(error, alias, "the request")
    return MCPError(INTERNAL_ERROR, as_tool_error.message, {"type": as_tool_error.code.value})


def tool_error_for(error: RelayError | ToolError | TimeoutError, alias: str, call: str) -> ToolError:
    unknown = "It is unknown whether the request had an effect."
    match error:
        case ToolError():
            return error
        case UpstreamError():
            answered_what = f"{error.method} with error" if error.method else "with error"
            message = _with_way_out(str(error.error.get("message", "")), alias)
            error_text = f"The server {alias} answered {answered_what} {error.code}: {message}"
            return ToolError(ToolErrorType.MCP_TOOL_ERROR, error_text)
        case NoAnswerError() | TimeoutError():
            message = (
                f"The server {alias} sent neither a result nor progress for {call} in time "
                f"(mcpServers.{alias}.timeout), so the request was cancelled. {unknown}"
            )
        case BusyError(limit=limit):
            message = (
                f"The server {alias} is busy: its limit on concurrent requests (mcpServers.{alias}.maxConcurrent: "
                f"{limit}) was reached, and {call} timed out before its turn (mcpServers.{alias}.timeout). The request "
                "was not sent, so it had no effect; try again later."
            )
        case UnusableAnswerError(reason=reason):
            message = f"The server {alias} gave no usable answer to {call}: {reason}. {unknown}"
        case TooManyRoundsError():
            message = f"The server {alias} kept asking questions during {call}, so the request was abandoned. {unknown}"
        case SuspendedCallGoneError():
            message = (
                f"The server {alias} waited for an answer before completing {call}, but the answer arrived too late, "
                f"or the server was restarted. {unknown} Call again if that is safe."
            )
        case _:
            message = (
                f"The connection to the server {alias} was lost during {call}. {unknown} The connection will be "
                "restored automatically."
            )
    return ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, message)
