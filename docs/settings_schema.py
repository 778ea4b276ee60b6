"""Write the JSON Schema of settings files from the models. `--check` only checks that it is current."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast, get_args

from pydantic.json_schema import GenerateJsonSchema

from docs.settings_tables import docstrings
from server.settings import server_models
from server.settings.canonical_form import FOREIGN_KEYS
from server.settings.section_model import CommandLine, Section, keys_of

FILE = Path(server_models.__file__).with_name("settings.schema.json")
COMMAND_LINE: dict[str, Any] = {"type": ["string", "array", "null"], "items": {"type": "string"}}
FOREIGN = {"description": "A key of Qwen Code or Gemini CLI."}
NOT_IN_FILES = "yolo"  # an approval mode that only the command line can set


class _Generator(GenerateJsonSchema):
    """Omits the titles that pydantic derives from names."""

    def get_title_from_name(self, name: str) -> str:
        del name
        return ""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def schema() -> dict[str, Any]:
    """Return the schema, with field docstrings as descriptions."""
    root_schema = server_models.Settings.model_json_schema(schema_generator=_Generator)
    sentences = docstrings()
    definitions = cast("dict[str, dict[str, Any]]", root_schema.pop("$defs"))
    for section in sections(server_models.Settings):
        name = section.__name__
        target = root_schema if section is server_models.Settings else definitions[name]
        target.pop("description", None)
        target.pop("title", None)
        target["additionalProperties"] = False
        for (key, key_info), attribute in zip(keys_of(section).items(), section.model_fields, strict=True):
            property_schema = target["properties"][key]
            if key_info.field.annotation == get_args(CommandLine)[0]:
                property_schema = target["properties"][key] = dict(COMMAND_LINE)
            property_schema["description"] = sentences[name, attribute]
    definitions["UpstreamSettings"]["properties"]["disabled"] = {
        "type": "boolean",
        "description": "The opposite of enabled, as other clients write it.",
    }
    modes = definitions["ApprovalMode"]["enum"]
    definitions["ApprovalMode"] = {"enum": [mode for mode in modes if mode != NOT_IN_FILES]}
    properties = {
        "$schema": {"type": "string", "description": "Where editors find this schema."},
        **root_schema["properties"],
    }
    # Include the key names of Qwen Code and Gemini CLI, which an editor should not mark as errors.
    foreign: dict[str, Any] = {}
    for first, *rest in FOREIGN_KEYS:
        section = keys_of(server_models.Settings)[first].section if first in keys_of(server_models.Settings) else None
        keys = definitions[section.__name__]["properties"] if section is not None and rest else foreign
        keys.setdefault(rest[0] if section is not None and rest else first, dict(FOREIGN))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of coretools-mcp",
        "type": "object",
        "properties": {**foreign, **properties},
        "additionalProperties": False,
        "$defs": definitions,
    }


def sections(section: type[Section]) -> list[type[Section]]:
    """Return a section and all sections below it."""
    subsections = [key.section for key in keys_of(section).values() if key.section is not None]
    return [section, *(subsection for child in subsections for subsection in sections(child))]


def main(arguments: list[str]) -> int:
    """Bring the file up to date, or with `--check` return 1 if it is not."""
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if arguments == ["--check"]:
        return int(not FILE.exists() or FILE.read_text(encoding="utf-8") != text)
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
