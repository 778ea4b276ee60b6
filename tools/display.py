"""The one renderer of text for people: questions, displays, and characters that would otherwise not be seen.

What a person decides by must look like what it is: control characters, text that changes its direction and
characters without a shape are replaced by visible marks before anything is shown.
"""

from __future__ import annotations

import json
import re

from tools.contract.confirmation import EditConfirmation, McpConfirmation, Question
from tools.contract.result import FileDiff, ReturnDisplay

MAX_QUESTION_CHARS = 32_000
"""A longer diff or argument text is cut in a question, and the cut is told. Clients cut far earlier or not at all."""

MAX_BLOCK_BYTES = 4_096
"""A display shown beside the result for the model stays this small: most clients give every block to the model."""

MAX_META_DIFF_CHARS = 64_000
"""A diff in `_meta` is cut here."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""C0 and C1 but tab and line feed, soft hyphen, bidi controls, zero-width and filler characters, variation
selectors but the emoji one, tags, lone surrogates."""

_CONTROL_PICTURES = 0x2400
_LAST_C0 = 0x1F


def visible(text: str) -> str:
    """Replace every character that a person would not see, or would see wrongly, by a mark."""
    return _UNSEEN.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(_CONTROL_PICTURES + code) if code <= _LAST_C0 else f"<U+{code:04X}>"


def render_question(question: Question) -> str:
    """The whole action as text, for the message of an elicitation form or a terminal."""
    details = question.details
    lines = [visible(question.description), "", visible(details.title)]
    match details:
        case EditConfirmation():
            lines.append(f"File: {visible(details.file_path)} (+{details.added} -{details.removed} lines)")
            lines.append(_fenced(details.file_diff or "(no content)", "diff"))
        case McpConfirmation():
            lines.append(f"Server: {visible(details.server_name)}, tool: {visible(details.tool_name)}")
            arguments = json.dumps(dict(details.arguments), indent=2, ensure_ascii=False, default=str)
            lines.append(_fenced(arguments, "json"))
    return "\n".join(lines)


def _fenced(text: str, language: str) -> str:
    shown = visible(text).rstrip("\n")
    if len(shown) > MAX_QUESTION_CHARS:
        left_out = shown.count("\n", MAX_QUESTION_CHARS)
        shown = f"{shown[:MAX_QUESTION_CHARS]}\n[cut here: {left_out} more lines are not shown]"
    longest = max((len(run) for run in re.findall(r"`{3,}", shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def render_display(display: ReturnDisplay) -> str:
    """A return display as text."""
    if isinstance(display, FileDiff):
        return visible(display.file_diff)
    return visible(display)


def display_block(display: ReturnDisplay) -> str | None:
    """The display as a small block beside the result, where it says more than the text for the model does."""
    if not isinstance(display, FileDiff) or not display.file_diff:
        return None
    text = render_display(display)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_BLOCK_BYTES:
        return text
    head = encoded[: MAX_BLOCK_BYTES - 80].decode("utf-8", "ignore")
    return f"{head.rpartition(chr(10))[0]}\n[the diff goes on: +{display.added} -{display.removed} lines in all]"


def display_object(display: ReturnDisplay) -> dict[str, object] | str | None:
    """The display for programs, as it travels under `_meta`: never a whole file, `None` where there is nothing."""
    if not isinstance(display, FileDiff):
        return display or None
    is_cut = len(display.file_diff) > MAX_META_DIFF_CHARS
    return {
        "type": "file_diff",
        "fileName": display.file_name,
        "fileDiff": display.file_diff[:MAX_META_DIFF_CHARS],
        "truncated": is_cut,
        "added": display.added,
        "removed": display.removed,
        "isNewFile": display.is_new_file,
    }
