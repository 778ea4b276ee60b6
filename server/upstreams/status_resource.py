"""The resource that tells how every server behind us stands."""

from __future__ import annotations

import json
from typing import Any

from server.json_rpc import Json
from tools.display import visible

STATUS_URI = "coretools://upstreams"

_JSON = "application/json"

STATUS: Json = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "title": "Servers behind this one",
    "description": "The state of each: how it is reached, what it offers, its latest error, and what is not listed.",
    "mimeType": _JSON,
}
"""As it is listed."""


def status_contents(report: list[dict[str, Any]]) -> Json:
    """What is read of it.

    Args:
        report: How every upstream stands.
    """
    # Its instructions, name and version are a server's own words.
    text = visible(json.dumps({"upstreams": report}, ensure_ascii=False, indent=2))
    return {"contents": [{"uri": STATUS_URI, "mimeType": _JSON, "text": text}]}
