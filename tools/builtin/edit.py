"""`edit`: one text in a file replaced by another, every other byte untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tools.builtin.file_changes import COMMON_OUTPUT, SHA256_PATTERN, ChangeParams, ChangingTool
from tools.builtin.path_parameters import FILE_ALIASES, shown
from tools.call.base_tool import Behaviour
from tools.call.context import ToolContext
from tools.contract.file_names_in_text import one_line
from tools.contract.parameters import coerce, object_schema

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


MAX_DESCRIBED_CHARS = 30  # characters of each text in the description of an edit (as Qwen Code and Gemini CLI do)


class EditParams(ChangeParams):
    old_string: str = Field(
        description="The exact text to replace, with enough lines around it. Empty creates a new file."
    )
    new_string: str = Field(description="The text in its place. Empty deletes, whole lines entirely.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")
    expected_sha256: str | None = Field(
        default=None,
        pattern=SHA256_PATTERN,
        description="Edit only if the file's SHA-256 (hex) is this.",
    )
    encoding: str | None = Field(
        default=None,
        max_length=40,
        description="Of a file neither UTF-8 nor marked, such as 'shift_jis', to put other than ASCII into it.",
    )
    expected_replacements: SkipJsonSchema[int | None] = Field(default=None, ge=1)


class EditTool(ChangingTool[EditParams]):
    name = "edit"
    title = "Edit file"
    display_name = "Edit"
    aliases = ("replace", "EditTool", "Edit")
    description = (
        "Edit a file: replace old_string by new_string (search and replace, sed; insert or delete lines). old_string "
        "must be unique unless replace_all is set: copy it exactly, white space included, without line numbers. All "
        "else, encoding and line endings too, stays."
    )
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = EditParams
    text_parameter = "new_string"
    unused_parameters = frozenset({"instruction"})
    parameter_aliases = {**FILE_ALIASES, "allow_multiple": "replace_all"}  # noqa: RUF012 - declared as a Mapping
    output_schema = object_schema(
        {
            **COMMON_OUTPUT,
            "replacements": {"type": "integer", "description": "How many places were changed; 0 for a new file."},
            "strategy": {
                "type": ["string", "null"],
                "description": "How old_string was matched: exact, or what had to be forgiven; null for a new file.",
            },
            "lines": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "Line numbers, before the edit, where the replaced texts began; at most 100.",
            },
            "regions": {
                "type": "array",
                "items": object_schema(
                    {"first": {"type": "integer"}, "last": {"type": "integer"}, "text": {"type": "string"}}
                ),
                "description": "The changed places with the lines around them, as the file is now.",
            },
        }
    )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the older count of expected replacements as an assertion; more than one means all."""
        expected = coerce(arguments.get("expected_replacements"), {"type": "integer"})
        if isinstance(expected, int) and not isinstance(expected, bool):
            arguments["expected_replacements"] = expected
            if expected > 1:
                arguments.setdefault("replace_all", True)
        return arguments

    def get_description(self, params: EditParams, context: ToolContext) -> str:
        path = shown(params.file_path, context.workspace)
        if not params.old_string:
            return f"Create {path}"
        if params.old_string == params.new_string:
            return f"No file changes to {path}"
        brief: list[str] = []
        for text in (params.old_string, params.new_string):
            short = text.strip().partition("\n")[0].rstrip()[:MAX_DESCRIBED_CHARS]
            brief.append(one_line(short if short == text else f"{short}..."))
        return f"Edit {path}: {' => '.join(brief)}"

    def plan(self, params: EditParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.text_edit import plan_edit  # noqa: PLC0415 - with the first call

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
