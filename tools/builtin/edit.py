"""`edit`: replaces text in a file and leaves every other byte unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tools.builtin.changing_tool import COMMON_OUTPUT, FOREIGN_PARAMETERS, SHA256_PATTERN, ChangeParams, ChangingTool
from tools.builtin.path_parameters import FILE_ALIASES, shown
from tools.call.base_tool import Behaviour, ToolContext
from tools.contract.tool_parameters import UNPUBLISHED, coerce, foreign, object_schema
from tools.text.file_names import one_line

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


MAX_DESCRIBED_CHARS = 30  # characters of each text in a call's description (as in Qwen Code and Gemini CLI)


class EditParams(ChangeParams):
    old_string: str = Field(description="The exact text to replace, with enough context. Empty creates a new file.")
    new_string: str = Field(description="The replacement. Empty deletes the text, and line breaks of whole lines.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")
    expected_sha256: str | None = Field(
        default=None, pattern=SHA256_PATTERN, description="Edit only if the file's SHA-256 is this."
    )
    encoding: str | None = Field(
        default=None, max_length=40, description="For non-ASCII text in a non-Unicode file: 'shift_jis'."
    )
    expected_replacements: int | None = Field(default=None, ge=1, json_schema_extra=UNPUBLISHED)


class EditTool(ChangingTool[EditParams]):
    name = "edit"
    title = "Edit file"
    display_name = "Edit"
    aliases = ("replace", "EditTool", "Edit")
    description = (
        "Edit a file: replace old_string with new_string (search and replace, sed; insert or delete lines). old_string "
        "must be unique unless replace_all is set. Copy it exactly, including white space, without line numbers. All "
        "else stays, including encoding and line endings."
    )
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = EditParams
    text_parameter = "new_string"
    parameter_aliases: Mapping[str, str] = {
        **FILE_ALIASES, "allow_multiple": "replace_all",
        "old_str": "old_string", "old_text": "old_string", "new_str": "new_string", "new_text": "new_string",
    }  # fmt: skip
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        **FOREIGN_PARAMETERS,
        "edits": foreign(way="Each call makes one replacement; call edit once for each."),
        "regex": foreign("false", way="old_string is literal text; copy the text to replace."),
    }
    output_schema = object_schema(
        {
            **COMMON_OUTPUT,
            "replacements": {"type": "integer", "description": "Number of changed places; 0 for a new file."},
            "strategy": {
                "type": ["string", "null"],
                "description": "How old_string matched: exact, or the difference that was ignored; null for a new "
                "file.",
            },
            "lines": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "Line numbers where replaced texts began; only the first 100.",
            },
            "regions": {
                "type": "array",
                "items": object_schema(
                    {"first": {"type": "integer"}, "last": {"type": "integer"}, "text": {"type": "string"}}
                ),
                "description": "The changed places with the lines around them, after the edit.",
            },
        }
    )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept the older `expected_replacements` parameter. A count above one implies `replace_all`."""
        expected = coerce(arguments.get("expected_replacements"), {"type": "integer"})
        if isinstance(expected, int) and expected > 1:
            arguments.setdefault("replace_all", True)
        return arguments

    def get_description(self, params: EditParams, context: ToolContext) -> str:
        path = shown(params.file_path, context.workspace)
        if not params.old_string:
            return f"Create {path}"
        if params.old_string == params.new_string:
            return f"No changes to {path}"
        brief: list[str] = []
        for text in (params.old_string, params.new_string):
            short = text.strip().partition("\n")[0].rstrip()[:MAX_DESCRIBED_CHARS]
            brief.append(one_line(short if short == text else f"{short}..."))
        return f"Edit {path}: {' => '.join(brief)}"

    def plan(self, params: EditParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.text_edit import plan_edit  # noqa: PLC0415 - loaded on first use

        return plan_edit(
            target,
            params.old_string,
            text,
            replace_all=params.replace_all,
            expected_replacements=params.expected_replacements,
            expected_sha256=params.expected_sha256,
            encoding=params.encoding,
            is_users=is_users,
        )
