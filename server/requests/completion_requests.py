"""Completes paths: for the `at` prompt, the last path in its line; for the file resource template, its `path`.

Each request lists the folder that contains the name being typed. Text without a folder, if longer than one character,
is also searched for in the names of files in all subfolders, for a limited time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from server.protocol.file_uris import ON_WINDOWS, template_value, typed_path
from tools.builtin.internal_file_tools import MAX_VALUES
from tools.contract.confirmation import Question
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.files.find.path_suggestions import last_typed, quoted_path

Runner = Callable[[FunctionCall], Awaitable[ToolResult | Question]]
"""Runs a call through the call flow, for the current client."""
LISTER = "list_directory"  # the tool whose rules apply to completing a path
MIN_BELOW = 2  # minimum length of text to search for in subfolders; a single character matches too much
MAX_LINE_CHARS = 16_384  # maximum length of the prompt's argument, or of text to complete: four times the longest path
_FOLDER_END = re.compile(r"[/\\]" if ON_WINDOWS else "/")


@dataclass(slots=True)
class Completion:
    """One completion: the values so far, without duplicates."""

    run: Runner
    value: Callable[[str], str | None]  # returns the value for a path; `None` if there is none
    values: list[str] = field(default_factory=list[str])  # at most `MAX_VALUES`
    total: int = 0  # the number of values found so far
    partial: bool = False  # whether there may be more values

    async def absolute(self, text: str, roots: Sequence[str]) -> None:
        """Find the roots that begin with the typed absolute path, and that path's completions inside the roots."""
        matching_roots = [
            root for root in (os.path.join(root, "") for root in roots) if root.startswith(text) and root != text
        ]
        self._add(matching_roots, len(matching_roots))
        folder, start = _split(text)
        await self._add_entries(folder, folder, start)

    async def relative(self, text: str, roots: Sequence[str], *, absolute_values: bool) -> None:
        folder, start = _split(text)
        for root in roots:
            prefix = os.path.join(root, folder) if absolute_values else folder
            await self._add_entries(os.path.join(root, folder), prefix, start)
        if folder or len(start) < MIN_BELOW:
            return
        for root in roots:
            if len(self.values) < MAX_VALUES:
                await self._add_entries(
                    root, os.path.join(root, "") if absolute_values else "", start, in_subfolders=True
                )

    async def _add_entries(self, folder: str, prefix: str, start: str, *, in_subfolders: bool = False) -> None:
        outcome = await self.run(FunctionCall(LISTER, {"path": folder, "start": start, "below": in_subfolders}))
        if isinstance(outcome, Question) or outcome.error is not None:
            # Propose nothing if the path is outside the workspace or not a folder, or if listing it needs consent.
            return
        facts = outcome.facts
        self._add([prefix + name for name in facts["names"]], facts["total"])
        self.partial = self.partial or facts["partial"]

    def _add(self, paths: Sequence[str], total: int) -> None:
        values = [value for path in paths if (value := self.value(path)) is not None]
        new_values = [value for value in dict.fromkeys(values) if value not in self.values]
        self.total += total - (len(paths) - len(new_values))
        self.values += new_values[: MAX_VALUES - len(self.values)]


async def complete_line(line: str, roots: Sequence[str], run: Runner) -> Completion:
    """Complete the last path in the prompt's line; each value is the whole completed line."""
    if len(line) > MAX_LINE_CHARS:
        return Completion(run, lambda _path: None)
    item = last_typed(line)
    head = line[: item.start] + ("@" if item.has_at else "")

    def value(path: str) -> str | None:
        try:
            path.encode()
        except UnicodeEncodeError:
            return None  # the line cannot contain a name that is not valid text
        # The prompt removes one @ from the start of a path: the user's, or else the one that `quoted_path` adds.
        return head + (quoted_path(path).removeprefix("@") if item.has_at else quoted_path(path))

    completion = Completion(run, value)
    if os.path.isabs(item.path):
        await completion.absolute(item.path, roots)
    else:
        await completion.relative(item.path, roots, absolute_values=False)
    return completion


async def complete_template(value: str, roots: Sequence[str], run: Runner) -> Completion:
    """Complete the template's `path`: an absolute path, or one relative to a root, which becomes absolute."""
    completion = Completion(run, template_value)
    if len(value) > MAX_LINE_CHARS:
        return completion
    text = typed_path(value)
    if ".." in _FOLDER_END.split(text):
        return completion  # a URI with `..` cannot be read
    await completion.absolute(text, roots)
    if not value.startswith("/"):
        await completion.relative(text if ON_WINDOWS else text[1:], roots, absolute_values=True)
    return completion


def _split(text: str) -> tuple[str, str]:
    """Return the folder with its trailing slash, and the start of a name in that folder."""
    end = max((match.end() for match in _FOLDER_END.finditer(text)), default=0)
    return text[:end], text[end:]
