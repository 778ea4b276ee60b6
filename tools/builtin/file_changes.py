"""What the declarations of `write_file` and `edit` have in common; the work is done by a `Changer`.

Both refuse placeholders that a model writes where it left text out: in a file they would delete what they stand for.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from tools.builtin.path_parameters import path_subject
from tools.call.base_tool import BuiltinParamsT, BuiltinTool
from tools.call.context import ToolContext
from tools.contract.results import ToolResult
from tools.contract.subjects import Access, Kind, Subject

if TYPE_CHECKING:
    from tools.contract.confirmation import ConfirmationDetails
    from tools.files.change.changer import Changer


SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"

_OMISSION = re.compile(
    r"""[ \t]*
    (?://|\#|--|;|/\*|<!--)?[ \t]*                             # as a comment, or bare
    \(?[ \t]*
    (?:rest[ ]of(?:[ ](?:the[ ])?(?:methods?|code))?|unchanged[ ](?:code|methods?))
    [ \t]*\.\.\.\.*[ \t]*
    \)?[ \t]*(?:\*/|-->)?[ \t]*""",
    re.IGNORECASE | re.VERBOSE,
)
"""A whole line of the form "rest of code ..." (Gemini CLI's phrases)."""

_MAX_LINE = 80


class ChangingTool(BuiltinTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """A tool that writes one file.

    Subclasses name the `Changer` that does the work; it is imported with the first call.
    """

    kind = Kind.EDIT

    @abstractmethod
    def make_changer(self) -> Changer[BuiltinParamsT, Any]:
        """What does the work. Called once."""

    @cached_property
    def _changer(self) -> Changer[BuiltinParamsT, Any]:
        return self.make_changer()

    def subjects(self, params: BuiltinParamsT, context: ToolContext) -> Sequence[Subject]:
        """The file."""
        path = self._changer.aim(params).file_path
        context.workspace.refuse_to_write(context.workspace.locate(path))
        return (path_subject(context.workspace, path, Access.WRITE),)

    async def should_confirm_execute(self, params: BuiltinParamsT, context: ToolContext) -> ConfirmationDetails:
        """The change as a diff against what is there now; a change that cannot be made is not asked about."""
        return await self._changer.ask(params, context)

    async def execute(self, params: BuiltinParamsT, context: ToolContext) -> ToolResult:
        """Change the file, with other writers kept away."""
        return await self._changer.change(params, context)


def output_schema(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A schema in which every property is always there."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


COMMON_OUTPUT: dict[str, dict[str, Any]] = {
    "path": {"type": "string", "description": "Real path of the file."},
    "created": {"type": "boolean", "description": "The file did not exist before."},
    "added": {"type": "integer", "description": "Lines added."},
    "removed": {"type": "integer", "description": "Lines removed."},
    "bytes": {"type": "integer", "description": "Size of the file now."},
    "encoding": {"type": "string"},
    "eol": {"type": ["string", "null"], "description": "lf, crlf, cr or mixed; null without any line ending."},
    "sha256": {"type": "string", "description": "Digest of the file now; usable as expected_sha256."},
    "links_broken": {"type": "integer", "description": "Other names (hard links) that keep the old content."},
    "user_modified": {"type": "boolean", "description": "The user changed the text before it was written."},
    "notes": {"type": "array", "items": {"type": "string"}, "description": "What else to know."},
    "diff": {"type": "string", "description": "The final change where the user modified it, else empty."},
}
"""What the results of both tools have in common."""


def omissions(text: str) -> list[str]:
    """The lines that stand for text left out."""
    if "..." not in text:
        return []
    lines = (line.strip() for line in text.splitlines() if "..." in line and len(line) <= _MAX_LINE)
    return [line for line in lines if _OMISSION.fullmatch(line)]


def first_new_omission(text: str, known: str) -> str | None:
    """The first such line that is not in the text known before: what a file held already may be repeated."""
    found = omissions(text)
    if not found:
        return None
    held = set(omissions(known))
    return next((line for line in found if line not in held), None)
