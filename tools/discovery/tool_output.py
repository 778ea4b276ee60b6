"""What a custom tool has printed, as its result: text as it stands, JSON also as such, MCP content as content."""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, cast

from tools.contract.names_on_one_line import shown_whole_path
from tools.contract.results import FileDataPart, Part, TextPart, ToolResult
from tools.shell.command import OUTPUT_CHARS, Shown
from tools.shell.runner import ProgramOutcome
from tools.shell.status_text import DISPLAY_CHARS, program_facts, size

MAX_BLOCKS = 1_000
"""Blocks of one result."""

_MEMBERS = frozenset({"content", "structuredContent", "isError", "_meta"})


def mcp_result(printed: Mapping[str, Any], rest: str) -> dict[str, Any] | None:
    """The result in wire shape, or `None` if it is an ordinary object.

    Text is cut where there is more of it than one result shows. Of each block only what the protocol names is kept.

    Args:
        printed: The object that the tool has printed.
        rest: Where the whole of it is, as a phrase; stands where text is cut.
    """
    content = printed.get("content")
    if not isinstance(content, list) or not printed.keys() <= _MEMBERS:
        return None
    structured, is_error = printed.get("structuredContent"), printed.get("isError", False)
    entries = cast("list[Any]", content)
    if not isinstance(is_error, bool) or not (structured is None or isinstance(structured, dict)):
        return None
    if len(entries) > MAX_BLOCKS or not (entries or structured):
        return None
    blocks = [_block(entry) for entry in entries]
    if None in blocks:
        return None
    _cut([block for block in blocks if block is not None], rest)
    result: dict[str, Any] = {"content": blocks}
    if is_error:
        result["isError"] = True
    elif structured is not None and len(json.dumps(structured)) <= OUTPUT_CHARS:
        result["structuredContent"] = structured
    return result


def _block(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    match given.get("type"):
        case "text":
            return _with_texts(given, ("text",), ())
        case "image" | "audio":
            return _with_texts(given, ("data", "mimeType"), ()) if _is_base64(given.get("data")) else None
        case "resource_link":
            return _with_texts(given, ("uri", "name"), ("title", "description", "mimeType"))
        case "resource":
            return _resource(given.get("resource"))
        case _:
            return None


def _with_texts(given: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any] | None:
    """The type and these members, or `None` if one of them is no text."""
    named = [key for key in (*needed, *optional) if key in needed or given.get(key) is not None]
    if not all(isinstance(given.get(key), str) for key in named):
        return None
    return {key: given[key] for key in ("type", *named) if key in given}


def _resource(entry: Any) -> dict[str, Any] | None:
    given: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    body = "text" if isinstance(given.get("text"), str) else "blob"
    if body == "blob" and not _is_base64(given.get("blob")):
        return None
    resource = _with_texts(given, ("uri", body), ("mimeType",))
    return None if resource is None else {"type": "resource", "resource": resource}


def _is_base64(data: Any) -> bool:
    if not isinstance(data, str):
        return False
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True


def _cut(blocks: list[dict[str, Any]], rest: str) -> None:
    """Keep all text together within what one result shows."""
    room = OUTPUT_CHARS
    for block in blocks:
        holder: dict[str, Any] = block.get("resource", block)
        text = holder.get("text")
        if not isinstance(text, str):
            continue
        if len(text) > room:
            holder["text"] = f"{text[:room]}\n[... cut here, {rest} ...]"
        room = max(room - len(text), 0)


MAX_VALUES = 100_000
"""Values in one text; reading more would hold up everything else for longer than 50 milliseconds."""

MAX_DEPTH = 50
"""Arrays and objects inside of each other; not every reader takes more."""


class UnreadableError(ValueError):
    """A text is not taken as JSON; the message says why, as the end of a sentence."""


def read_json(text: str) -> Any:
    """The value that a text stands for. Whether it can be sent on is not looked at.

    Raises:
        UnreadableError: It is no JSON, or is too long to be read quickly.
    """
    # Each value but the first follows one of these. Those in strings count too, which does no harm.
    if text.count(",") + text.count("[") + text.count("{") >= MAX_VALUES:
        raise UnreadableError(f"it has more than {MAX_VALUES:,} values")
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError("it has a number with thousands of digits") from None


def _refuse(constant: str) -> Any:
    raise UnreadableError(f"{constant} is no JSON")


def require_sendable(value: Any) -> None:
    """See to it that a value that was read can be sent on.

    Raises:
        UnreadableError: It holds what JSON cannot, although Python reads it, or is nested deeply.
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                members = cast("dict[str, Any]", each)
                below += members
                below += members.values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
            elif isinstance(each, float) and not math.isfinite(each):
                raise UnreadableError("it has a number that is too large")
            elif isinstance(each, str) and not _is_text(each):
                raise UnreadableError("it has half of a surrogate pair, which is no text")
        if not below:
            return
        level = below
    raise UnreadableError(f"it is nested more than {MAX_DEPTH} deep")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


STRUCTURED_CHARS = 8_000
"""A longer JSON object is sent as text only: never is much sent twice."""


def result_of(outcome: ProgramOutcome) -> ToolResult:
    """The result of a tool that has succeeded. Blocking: it may read some megabytes of JSON."""
    shown = outcome.shown
    parsed = _object_in(outcome)
    if parsed is not None:
        verbatim = mcp_result(parsed, _whereabouts(shown))
        if verbatim is not None:
            return ToolResult(verbatim=verbatim)
    text = shown.text
    return ToolResult(
        llm_content=_content(outcome),
        return_display=text if len(text) <= DISPLAY_CHARS else f"[...]\n{text[-DISPLAY_CHARS:]}",
        structured=parsed if parsed is not None and len(outcome.tail) <= STRUCTURED_CHARS else None,
        facts=program_facts(outcome.exit, seconds=outcome.seconds, total=shown.total, file=shown.file),
    )


def _object_in(outcome: ProgramOutcome) -> dict[str, Any] | None:
    """The JSON object that was printed, if it was one and nothing else."""
    if not outcome.is_whole or outcome.shown.is_binary:
        return None
    text = outcome.tail.decode("utf-8-sig", "replace").strip()
    if not text.startswith("{"):
        return None
    try:
        value = cast("dict[str, Any]", read_json(text))
        require_sendable(value)
    except UnreadableError:
        return None
    return value


def _content(outcome: ProgramOutcome) -> list[Part]:
    shown = outcome.shown
    if not shown.total and outcome.errors:
        # Some tools tell everything on standard error.
        return [TextPart(f"Stdout: (empty)\nStderr: {outcome.errors}")]
    if not shown.is_cut and not shown.is_binary:
        return [TextPart(shown.text)]
    parts: list[Part] = [TextPart("\n\n".join(filter(None, (_note(shown), shown.text))))]
    if shown.file is not None:
        from pathlib import Path  # noqa: PLC0415 - most outputs are short

        kind = "application/octet-stream" if shown.is_binary else "text/plain"
        parts.append(FileDataPart(Path(shown.file).as_uri(), "output of the tool", kind, shown.total - shown.missing))
    return parts


def _whereabouts(shown: Shown) -> str:
    return f"all that the tool printed is in {_path(shown)}" if shown.file is not None else "the rest is not kept"


def _path(shown: Shown) -> str:
    return shown_whole_path(shown.file or "")


def _note(shown: Shown) -> str:
    what = "it is no text" if shown.is_binary else "only its beginning and its end are shown"
    if shown.file is None:
        return f"Note: the output has {size(shown.total)}; {what}. The rest is not kept."
    lacking = f" (without the last {size(shown.missing)}, which are not kept)" if shown.missing else ""
    how = "" if shown.is_binary else "; read_file shows it by lines"
    return f"Note: the output has {size(shown.total)}; {what}. All of it{lacking} is in {_path(shown)}{how}."
