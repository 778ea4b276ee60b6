"""Reduce the protocol's schemas to list items and content blocks, and write them where the server reads them.

python docs/item_schemas.py FOLDER      FOLDER contains each revision's schema, as REVISION.json

The schemas come from the specification, under the MIT licence, without descriptions. Clients also check what the
specification's text says about `lastModified`, so that becomes a format here. The JSON Schema keywords next to the
revisions are written by hand, and stay.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

TARGET = Path(__file__).resolve().parent.parent / "server/protocol/item_schemas.json"
ITEMS = ("Tool", "Prompt", "Resource", "ResourceTemplate")
# Content blocks of results in newer revisions
BLOCKS = ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")
BY_NAME = frozenset({"properties", "$defs", "definitions"})  # the keys in these are names, not keywords


def without_descriptions(node: Any, *, is_map: bool = False) -> Any:
    if isinstance(node, list):
        return [without_descriptions(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: without_descriptions(value, is_map=key in BY_NAME and not is_map)
        for key, value in cast("dict[str, Any]", node).items()
        if is_map or key != "description"
    }


def references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set[str]().union(*map(references, cast("list[Any]", node)))
    if not isinstance(node, dict):
        return set()
    fields = cast("dict[str, Any]", node)
    own = {fields["$ref"].rpartition("/")[2]} if isinstance(fields.get("$ref"), str) else set[str]()
    return own.union(*map(references, fields.values()))


def reduce_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions that items use."""
    definitions, needed_definitions = schema.get("$defs") or schema["definitions"], dict[str, Any]()
    names = [name for name in (*ITEMS, *BLOCKS) if name in definitions]
    while names:
        if (name := names.pop()) not in needed_definitions:
            needed_definitions[name] = without_descriptions(definitions[name])
            names.extend(references(needed_definitions[name]))
    if "Annotations" in needed_definitions and (
        last_modified := needed_definitions["Annotations"]["properties"].get("lastModified")
    ):
        last_modified["format"] = "date-time"
    return {name: needed_definitions[name] for name in sorted(needed_definitions)}


def main() -> None:
    schemas = sorted(Path(sys.argv[1]).glob("*.json"))
    if not schemas:
        sys.exit(f"there is no schema in {sys.argv[1]}")
    content = json.loads(TARGET.read_text("utf-8"))
    content["revisions"] = {path.stem: reduce_schema(json.loads(path.read_text("utf-8"))) for path in schemas}
    TARGET.write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
