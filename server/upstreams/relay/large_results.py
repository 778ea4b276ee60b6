"""Writes a result that is too long for a conversation to a private file, and gives the client only its beginning.

The file is stored with the long outputs of commands: no other client can read it, and it is removed when its client is
forgotten. JSON on one line is split into several lines, so that `read_file` and `grep_search` can show it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
from pydantic_core import to_json

from server.clients.client_request import Exchange
from server.protocol.json_rpc import Json, as_mapping
from server.protocol.request_table import LINKS_SINCE, NEVER_CACHED
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.wire.own_meta import FACTS_KEY, chain_of
from tools.contract.limits import Limits
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import Rights
from tools.shell.private_folders import OutputFile, PrivateFolder
from tools.text.file_names import shown_whole_path

RESULTS_URI = "coretools://results/"  # prefix of the links to saved results, for clients without file tools
CLAIMED_LIMIT_KEY = "anthropic/maxResultSizeChars"
"""The `_meta` key in which a tool tells Claude Code the maximum length of its results. A request may set it too."""
CLAUDE_CODE = "claude-code"  # the client name of Claude Code
MAX_CLAIMED = 500_000  # Claude Code's own maximum
MAX_SHOWN = 2_048  # how many bytes of a saved result the client gets directly
WRITE_SECONDS = 10.0  # time limit for writing the file

LINE_CHARS = Limits().line_chars  # `read_file` and `grep_search` truncate lines at this length
GOOD_LINE_CHARS = 100  # a shorter part of split JSON shares its line with the next part
_JSON_TOKEN = re.compile(r'[^",{\[]+|"(?:[^"\\]+|\\.)*"?|[,{\[]')


@dataclass(frozen=True, slots=True)
class LargeResults:
    limit: int | None  # length in characters up to which a result is passed on in full; `None` means no limit
    folder_of: Callable[[str], PrivateFolder | None]  # returns the private folder of the client with this key
    has_file_tools: Callable[[Rights], bool]  # whether a client with these rights has tools that read files

    async def shortened(self, tool: DiscoveredMCPTool, result: Json, exchange: Exchange, client_name: str) -> Json:
        """Return the result, or, if it is too long, its beginning and the location of the whole text.

        Images and audio are not shortened, nor is structured content of a tool with an output schema. A higher limit
        applies if the request sets one, or if the client is Claude Code and the tool's definition sets one. A client
        that is itself a coretools-mcp server gets the whole result, and shortens it for its own client.
        """
        is_question = result.get("resultType", "complete") != "complete"
        if self.limit is None or is_question or chain_of(exchange.meta):
            return result
        is_told = client_name.startswith(CLAUDE_CODE)
        claims = (exchange.meta, as_mapping(tool.definition.get("_meta")) if is_told else {})
        claimed = [limit for meta in claims if isinstance(limit := meta.get(CLAIMED_LIMIT_KEY), int)]
        limit = max(self.limit, *(min(each, MAX_CLAIMED) for each in claimed), 0)
        blocks = cast("list[Json]", result.get("content", []))
        structured: Any = None if "outputSchema" in tool.definition else result.get("structuredContent")
        data = b"" if structured is None else to_json(structured, inf_nan_mode="constants")
        sizes = list(map(_chars_of, blocks))
        is_long = sum(sizes) > limit
        folder = self.folder_of(exchange.client_key) if is_long or len(data) > limit else None
        if folder is None:  # the result is short, or the client is unidentified and could not read the file
            return result
        shorter, texts, rest = dict(result), list[str](), blocks
        if is_long:
            texts = [_text_of(block) for block, size in zip(blocks, sizes, strict=True) if size]
            rest = [block for block, size in zip(blocks, sizes, strict=True) if not size]
        if len(data) > limit:
            texts.append(data.decode())
            del shorter["structuredContent"]
        content = await THREADS.run(partial(_in_lines, texts))
        file = folder.open()
        file.write(content)
        on_disk = 0
        with anyio.move_on_after(WRITE_SECONDS), suppress(OSError):
            await file.close()
            on_disk = file.kept
        reads_files = self.has_file_tools(exchange.rights)
        note = self._told(tool, file, content, on_disk, limit, reads_files=reads_files)
        answer: list[Json] = [{"type": "text", "text": note}]
        if not on_disk:
            folder.discard(file)
        elif not reads_files and exchange.version >= LINKS_SINCE:
            link = {"name": f"result of {tool.upstream_name}", "mimeType": "text/plain", "size": on_disk}
            answer.append({"type": "resource_link", "uri": RESULTS_URI + os.path.basename(file.path), **link})
        facts = {"outputBytes": len(content), "outputFile": file.path if on_disk else None}
        meta = {**as_mapping(result.get("_meta")), FACTS_KEY: facts}
        return {**shorter, "content": [*answer, *rest], "_meta": meta}

    def _told(
        self, tool: DiscoveredMCPTool, file: OutputFile, content: bytes, on_disk: int, limit: int, *, reads_files: bool
    ) -> str:
        from tools.shell.result_text import size  # noqa: PLC0415 - imported with the first large result

        shown = content[: MAX_SHOWN if on_disk else limit].decode("utf-8", "ignore")
        total, beginning = size(len(content)), size(len(shown.encode()))
        told = f"Note: the result of {tool.name} has {total}, of which the first {beginning} follow."
        if not on_disk:
            lost = "The rest is lost because it could not be written to a file (is the disk full?). Request less."
            return f"{told} {lost}\n\n{shown}"
        lacking = len(content) - on_disk
        part = f"All but the last {size(lacking)}" if lacking else "All of it"
        where = f"the resource {RESULTS_URI}{os.path.basename(file.path)}."
        if reads_files:
            path = shown_whole_path(file.path)
            where = f"{path}: read_file shows it by lines, and grep_search searches it."
        breaks = f"Lines longer than {LINE_CHARS} characters were split."
        return f"{told} {part} is in {where} {breaks}\n\n{shown}"

    async def read(self, uri: str, client_key: str) -> Json | None:
        """Return the saved result that a link names, in the format of `resources/read`; `None` if it is gone."""
        folder, name = self.folder_of(client_key), uri.removeprefix(RESULTS_URI)
        file = folder.files.get(os.path.join(folder.path, name)) if folder is not None else None
        if file is None:
            return None
        try:
            data = await THREADS.run(partial(file.read_at, 0, file.kept))
        except OSError:
            return None  # the file was deleted to make room for newer ones
        text = data.decode("utf-8", "replace")
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}], **NEVER_CACHED}


def _chars_of(block: Json) -> int:
    """Return the length of a content block in characters; images and audio do not count."""
    match block.get("type"):
        case "image" | "audio":
            return 0
        case "text":
            return len(text) if isinstance(text := block.get("text"), str) else 0
        case "resource":
            resource = as_mapping(block.get("resource"))
            return sum(len(each) for each in map(resource.get, ("text", "blob")) if isinstance(each, str))
        case _:
            return len(to_json(block, inf_nan_mode="constants"))


def _text_of(block: Json) -> str:
    if block.get("type") == "text":
        return str(block["text"])
    resource = as_mapping(block.get("resource"))
    if isinstance(text := resource.get("text"), str):
        return f"{resource.get('uri')}:\n{text}"
    return json.dumps(block, ensure_ascii=False)


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
                if token[0] in ",{[" and token.end() - start >= GOOD_LINE_CHARS:  # JSON allows a line break after these
                    lines += _cut(line[start : token.end()])
                    start = token.end()
            lines += _cut(line[start:])
    return "\n".join(lines).encode("utf-8", "replace")


def _cut(line: str) -> Iterator[str]:
    """Split a line into parts of at most `LINE_CHARS`, if possible after an escaped JSON line break or a space."""
    start = 0
    while len(line) - start > LINE_CHARS:
        end = start + LINE_CHARS
        for mark in ("\\n", " "):
            if (found := line.rfind(mark, start + LINE_CHARS // 2, end - len(mark))) >= 0:
                end = found + len(mark)
                break
        yield line[start:end]
        start = end
    yield line[start:]
