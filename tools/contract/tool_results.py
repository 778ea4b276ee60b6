"""What a tool gives back: content for the model, a display for people.

The names are those of Qwen Code and Gemini CLI: `llmContent` (a `PartListUnion`), `returnDisplay`, `FileDiff`,
`FunctionCall`, `FunctionResponse`, `FunctionDeclaration`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.contract.tool_errors import ToolError, ToolErrorType


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class InlineDataPart:
    """Bytes with their MIME type: an image, a sound, a PDF."""

    mime_type: str  # for example `image/png`; decides the kind of content block
    data: bytes  # the raw bytes, not base64
    uri: str  # where they came from (`file://...`), for kinds that travel as an embedded resource


@dataclass(frozen=True, slots=True)
class FileDataPart:
    """A file by reference: the client fetches it if it wants to."""

    uri: str  # the file's URI
    name: str  # its name for people
    mime_type: str | None = None  # its type, where known
    size: int | None = None  # its size in bytes, where known


Part = TextPart | InlineDataPart | FileDataPart
# What `llm_content` may be: a string, a part, or a list that mixes both; order is kept
PartListUnion = str | Part | Sequence["str | Part"]


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A change of one file, for people."""

    file_name: str  # the file's base name
    file_diff: str  # a unified diff, cut where it is very long
    added: int  # lines added
    removed: int  # lines removed
    is_new_file: bool = False  # whether the file did not exist before
    truncated: bool = False  # whether the diff was cut


@dataclass(frozen=True, slots=True)
class TodoListDisplay:
    """A todo list, for people."""

    todos: tuple[Mapping[str, str], ...]  # for each todo its id, its content and its status, in order


# What a person is shown: a text (often Markdown), or an object that says more than the text
ReturnDisplay = str | FileDiff | TodoListDisplay


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Why a call failed, for the model and for programs."""

    code: ToolErrorType
    message: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one execution."""

    llm_content: PartListUnion = ""  # what goes into the model's history
    return_display: ReturnDisplay = ""  # what a person is shown
    structured: Mapping[str, Any] | None = None  # the `structuredContent`; complete by itself, or `None`
    # Small facts for programs, published under `_meta`
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: ToolFailure | None = None  # present exactly when the call failed; the model then reads `error.message`
    # A result that is in wire shape already (an upstream's) and passes through untouched
    verbatim: Mapping[str, Any] | None = None
    note: str = ""  # a line to be told after the content, also of a call that failed; not the tool's but the flow's

    @classmethod
    def failed(cls, error: ToolError) -> ToolResult:
        """The result that tells the model of a failure."""
        return cls(error=ToolFailure(error.code, error.message))


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What the model asks for: a tool's name and the arguments as they came."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FunctionResponse:
    """What goes back to the model for one call."""

    name: str  # the tool's registered name
    parts: tuple[Part, ...]  # the content in order; never empty
    error: ToolFailure | None = None  # why the call failed, or `None`


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """A tool as the model is told about it."""

    name: str
    description: str
    parameters_json_schema: Mapping[str, Any]
