"""Private parts of the SDK are used in only one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

INNER_PARTS = {"server/upstreams/wire/http_upstream.py": {"mcp.shared._httpx_utils"}}
"""The modules that use private modules or private attributes of the SDK, and which."""

INNER_MODULES = ("mcp.server.connection", "mcp.server.runner", "mcp.shared.jsonrpc_dispatcher")


def inner_parts(tree: ast.Module) -> Iterator[str]:
    """Yield the private parts of the SDK that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("mcp."):
            if node.module in INNER_MODULES or "._" in node.module:
                yield node.module
        elif (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and ast.unparse(node.value).endswith("session")
        ):
            yield node.attr


@pytest.mark.requirement("sdk.seams")
def test_private_parts_of_the_sdk_are_used_only_in_the_known_places() -> None:
    parts_by_module = {
        path.relative_to(ROOT).as_posix(): parts
        for path in (ROOT / "server").rglob("*.py")
        if (parts := set(inner_parts(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert parts_by_module == INNER_PARTS
