"""What a tool gives back: content for the model, a display for people.

The names are those of Qwen Code and Gemini CLI: `llmContent` (a `PartListUnion`), `returnDisplay`, `FileDiff`,
`FunctionCall`, `FunctionResponse`, `FunctionDeclaration`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.contract.errors import ToolError, ToolErrorType


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class InlineDataPart:
    """Bytes with their MIME type: an image, a sound, a PDF.

    Args:
        mime_type: For example `image/png`; decides the kind of content block.
        data: The raw bytes, not base64.
        uri: Where they came from (`file://...`), for kinds that travel as an embedded resource.
    """

    mime_type: str
    data: bytes
    uri: str


@dataclass(frozen=True, slots=True)
class FileDataPart:
    """A file by reference: the client fetches it if it wants to.

    Args:
        uri: The file's URI.
        name: Its name for people.
        mime_type: Its type, where known.
        size: Its size in bytes, where known.
    """

    uri: str
    name: str
    mime_type: str | None = None
    size: int | None = None


Part = TextPart | InlineDataPart | FileDataPart
PartListUnion = str | Part | Sequence["str | Part"]
"""What `llm_content` may be: a string, a part, or a list that mixes both; order is kept."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A change of one file, for people.

    Args:
        file_name: The file's base name.
        file_diff: A unified diff, cut where it is very long.
        added: Lines added.
        removed: Lines removed.
        is_new_file: Whether the file did not exist before.
        truncated: Whether the diff was cut.
    """

    file_name: str
    file_diff: str
    added: int
    removed: int
    is_new_file: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TodoListDisplay:
    """A todo list, for people.

    Args:
        todos: For each todo its id, its content and its status, in order.
    """

    todos: tuple[Mapping[str, str], ...]


ReturnDisplay = str | FileDiff | TodoListDisplay
"""What a person is shown: a text (often Markdown), or an object that says more than the text."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Why a call failed, for the model and for programs."""

    code: ToolErrorType
    message: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one execution.

    Args:
        llm_content: What goes into the model's history.
        return_display: What a person is shown.
        structured: The `structuredContent`; complete by itself, or `None`.
        facts: Small facts for programs, published under `_meta`.
        error: Present exactly when the call failed; the model then reads `error.message`.
        verbatim: A result that is in wire shape already (an upstream's) and passes through untouched.
        note: A line to be told after the content, also of a call that failed; not the tool's but the flow's.
    """

    llm_content: PartListUnion = ""
    return_display: ReturnDisplay = ""
    structured: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: ToolFailure | None = None
    verbatim: Mapping[str, Any] | None = None
    note: str = ""

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
    """What goes back to the model for one call.

    Args:
        name: The tool's registered name.
        parts: The content in order; never empty.
        error: Why the call failed, or `None`.
    """

    name: str
    parts: tuple[Part, ...]
    error: ToolFailure | None = None


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters_json_schema: Mapping[str, Any]
