"""The answer in the JSON that an agent prints: one object, an array of messages, or a line for each event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

_TEXT_KEYS = ("result", "response", "content", "text")
"""Where the last object holds the answer: Claude Code's key, that of Qwen Code and Gemini CLI, and the usual ones."""


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent says at last.

    Args:
        text: In its own words.
        is_error: Whether it says that it has failed.
    """

    text: str
    is_error: bool = False


def read_answer(printed: bytes, *, is_whole: bool) -> AgentAnswer | None:
    """The answer in the last object of what an agent has printed; `None` if there is none.

    Args:
        printed: The end of it, or all.
        is_whole: Whether it is all.
    """
    text = printed.decode("utf-8", "replace").strip()
    found = _parsed(text) if is_whole else None
    if found is None:
        found = _parsed(text.rpartition("\n")[2])
    if isinstance(found, list):
        messages = cast("list[Any]", found)
        found = messages[-1] if messages else None
    return _answer_of(cast("dict[str, Any]", found)) if isinstance(found, dict) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _answer_of(last: Mapping[str, Any]) -> AgentAnswer | None:
    error = last.get("error")
    if error:
        message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
        return AgentAnswer(message if isinstance(message, str) else json.dumps(error, ensure_ascii=False), True)
    text = next((text for key in _TEXT_KEYS if (text := _text_of(last.get(key)))), "")
    return AgentAnswer(text, last.get("is_error") is True) if text else None


def _text_of(value: Any) -> str:
    """A text, or the texts of blocks of content."""
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, list):
        return ""
    blocks = [cast("dict[str, Any]", block) for block in cast("list[Any]", value) if isinstance(block, dict)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts).strip()
