"""Texts of prompts, resources and templates, shown so that nothing hides in them.

Those of tools and of forms: `visible_schemas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from server.upstreams.listing import PROMPTS, Kind
from tools.display import visible, visible_line


def item_with_visible_texts(kind: Kind, item: Mapping[str, Any]) -> dict[str, Any]:
    """An item in which every character of what people and models read is seen.

    What names something in a request stays as it is, hence the name of an argument too. A resource is named by its URI,
    and its `name` is only read.

    Args:
        kind: The list that it is from: prompts, resources or templates.
        item: In wire shape.
    """
    shown = _with_visible(item)
    if kind is not PROMPTS:
        shown["name"] = visible_line(shown["name"])
    elif isinstance(arguments := shown.get("arguments"), list):
        shown["arguments"] = [_with_visible(each) for each in cast("list[dict[str, Any]]", arguments)]
    return shown


def _with_visible(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(item)
    if isinstance(title := shown.get("title"), str):
        shown["title"] = visible_line(title)
    if isinstance(description := shown.get("description"), str):
        shown["description"] = visible(description)
    return shown
