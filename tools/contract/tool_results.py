"""The results of tools: content for the model, and a display for people.

The names are those of Qwen Code and Gemini CLI: `llmContent` (a `PartListUnion`), `returnDisplay`, `FileDiff`,
`FunctionCall`, `FunctionResponse`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.contract.tool_errors import ToolError, ToolErrorType


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class InlineDataPart:
    """Bytes with their MIME type, for example an image, a sound or a PDF."""

    mime_type: str  # for example `image/png`; determines the kind of content block
    data: bytes  # the raw bytes, not base64
    uri: str  # the URI of the source (`file://...`), for kinds that are sent as an embedded resource


@dataclass(frozen=True, slots=True)
class FileDataPart:
    """A reference to a file, which the client may fetch."""

    uri: str  # the file's URI
    name: str  # the file's name, for people
    mime_type: str | None = None  # the file's MIME type, if known
    size: int | None = None  # the file's size in bytes, if known


Part = TextPart | InlineDataPart | FileDataPart
# A string, a part, or a sequence of strings and parts
PartListUnion = str | Part | Sequence["str | Part"]


def line_counts(added: int, removed: int | None) -> str:
    """Return, for example, `+2 -1`, or only `+2` if the number of removed lines is hidden."""
    return f"+{added}" if removed is None else f"+{added} -{removed}"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A change to one file, for people."""

    file_name: str  # the file's base name
    file_diff: str  # a unified diff, truncated if it is very long
    added: int  # lines added
    removed: int | None  # lines removed; `None` if the old content is hidden
    is_new_file: bool = False  # whether the file did not exist before
    truncated: bool = False  # whether the diff was truncated


@dataclass(frozen=True, slots=True)
class TodoListDisplay:
    """A todo list, for people."""

    todos: tuple[Mapping[str, str], ...]  # the id, content and status of each todo, in order


# What a person sees: text (often Markdown), or an object with more detail
ReturnDisplay = str | FileDiff | TodoListDisplay


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Why a call failed, for the model and for programs."""

    code: ToolErrorType
    message: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one execution."""

    llm_content: PartListUnion = ""  # what the model reads
    return_display: ReturnDisplay = ""  # what a person sees
    structured: Mapping[str, Any] | None = None  # the complete `structuredContent`, or `None`
    # Small facts for programs, published under `_meta`
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: ToolFailure | None = None  # set if and only if the call failed; the model then reads `error.message`
    # A result that is already in wire format (from an upstream or a custom tool) and is passed on unchanged
    verbatim: Mapping[str, Any] | None = None
    note: str = ""  # lines from the runner that follow the content, even if the call failed

    @classmethod
    def failed(cls, error: ToolError) -> ToolResult:
        """Return the result that reports a failure to the model."""
        return cls(error=ToolFailure(error.code, error.message))


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A model's call: a tool's name and the arguments as received."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FunctionResponse:
    """The response to the model for one call."""

    name: str  # the tool's registered name
    parts: tuple[Part, ...]  # the content in order; never empty
    error: ToolFailure | None = None  # why the call failed, or `None`


def package(name: str, result: ToolResult) -> FunctionResponse:
    """Return the content for the model, which is never empty. For a failed call, it is only the error and the note."""
    note = (TextPart(result.note),) if result.note else ()
    if result.error is not None:
        failure = TextPart(f"{result.error.message} [{result.error.code}]")
        return FunctionResponse(name, (failure, *note), result.error)
    content = result.llm_content
    items = [content] if isinstance(content, str | Part) else content
    parts = [TextPart(item) if isinstance(item, str) else item for item in items]
    return FunctionResponse(name, (*parts, *note) or (TextPart(""),))
