"""The lock file: what its hashes cover, which differences it reports, and which of them block a tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.settings import UpstreamSettings
from server.settings.load import MAX_LOCK_BYTES
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import (
    differences,
    executable_hash,
    lock_text,
    parse_lock,
    server_entry,
    tool_differences,
    tool_entry,
    write_approved,
)
from tools.contract.tool_errors import ToolError

TOOL: dict[str, Any] = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}


def stopping_fields(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the changed fields of a tool that block it."""
    found_differences = tool_differences("a", "t", tool_entry({**TOOL, **before}), tool_entry({**TOOL, **now}))
    return [difference.field for difference in found_differences if difference.stops]


@pytest.mark.requirement("lock.milder")
@pytest.mark.parametrize(
    ("before", "now", "stopping"),
    [
        ({}, {"readOnlyHint": True}, ["annotations.readOnlyHint"]),
        ({"readOnlyHint": False}, {"readOnlyHint": True}, ["annotations.readOnlyHint"]),
        ({"destructiveHint": True}, {"destructiveHint": False}, ["annotations.destructiveHint"]),
        ({"destructiveHint": True}, {"idempotentHint": True}, ["annotations.destructiveHint"]),
        ({"openWorldHint": True}, {"openWorldHint": False}, ["annotations.openWorldHint"]),
        ({"readOnlyHint": True}, {"readOnlyHint": False}, []),
        ({"destructiveHint": False}, {"destructiveHint": True}, []),
        ({"readOnlyHint": True, "destructiveHint": True}, None, []),
        ({"title": "One"}, {"title": "Another"}, []),
    ],
)
def test_changed_annotations_block_a_tool_only_if_they_become_milder(
    before: dict[str, Any], now: dict[str, Any] | None, stopping: list[str]
) -> None:
    old = {"annotations": before} if before else {}
    assert stopping_fields(old, {"annotations": now} if now is not None else {}) == stopping


@pytest.mark.requirement("lock.milder")
@pytest.mark.parametrize(
    ("change", "stopping"),
    [
        ({"description": "e"}, ["description"]),
        ({"inputSchema": {"type": "object", "required": []}}, ["inputSchema"]),
        ({"outputSchema": {"type": "object"}}, ["outputSchema"]),
        ({"title": "T"}, []),
        ({"icons": [{"src": "https://example.com"}]}, []),
        ({"_meta": {"ui": {"resourceUri": "ui://x"}}}, []),
        ({"_meta": {"anthropic/alwaysLoad": True}}, []),
        ({"execution": {"taskSupport": "optional"}}, []),
    ],
)
def test_changes_for_models_block_a_tool_and_changes_for_people_do_not(
    change: dict[str, Any], stopping: list[str]
) -> None:
    assert stopping_fields({}, change) == stopping
    assert list(tool_differences("a", "t", tool_entry(TOOL), tool_entry({**TOOL, **change})))


@pytest.mark.requirement("lock.content")
def test_no_value_of_a_variable_and_no_secret_influences_a_hash() -> None:
    def entry(key: str, token: str) -> dict[str, Any]:
        settings = UpstreamSettings(command="npx", args=("srv", f"--api-key={key}", "--token", token))
        return server_entry(settings, {"name": "s", "version": "1"}, "Use it.", {"tools": [TOOL]})

    assert entry("one", "two") == entry("three", "four")
    assert entry("one", "two")["version"] == {"name": "s", "version": "1"}


@pytest.mark.requirement("lock.content")
def test_a_lock_file_is_read_back_unchanged_and_has_one_hash_per_line() -> None:
    settings = UpstreamSettings(command="/bin/sh")
    server = server_entry(settings, {}, "", {"tools": [TOOL], "prompts": [{"name": "p"}]})
    text = lock_text({"b": server, "a": server})
    assert parse_lock(text) == {"a": server, "b": server}
    assert all(line.count(":") <= 1 for line in text.decode().splitlines())
    assert text.index(b'"a"') < text.index(b'"b"')
    assert list(differences("a", parse_lock(text)["a"], server)) == []


@pytest.mark.requirement("lock.content")
def test_the_program_of_a_command_is_hashed_only_if_the_command_is_a_path(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    by_path = executable_hash(UpstreamSettings(command=str(program)))
    assert len(by_path) == 64
    assert executable_hash(UpstreamSettings(command="program", env={"PATH": str(tmp_path)})) == "", (
        "a command without a path has no hash of a program, so that the entry is the same on all machines"
    )
    assert executable_hash(UpstreamSettings(command=str(tmp_path / "there-is-no-such"))) == ""
    assert executable_hash(UpstreamSettings(url="https://example.com/mcp")) == ""


@pytest.mark.requirement("lock.content")
def test_ten_thousand_tools_without_descriptions_can_be_written_and_read() -> None:
    tools = [{"name": f"t{number}"} for number in range(10_000)]
    server = server_entry(UpstreamSettings(command="x"), {}, "", {"tools": [*tools, {"name": "t0"}]})
    assert len(json.loads(lock_text({"a": server}))["servers"]["a"]["tools"]) == 10_000
    assert list(differences("a", parse_lock(lock_text({"a": server}))["a"], server)) == []


@pytest.mark.requirement("lock.command")
def test_a_lock_file_that_would_be_too_large_to_be_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / LOCK_NAME
    path.write_bytes(before := lock_text({"small": {"tools": {}}}))
    with pytest.raises(ToolError, match=r"would be longer than 16,777,216 bytes; the server large needs the most\."):
        write_approved(str(path), "large", {"n" * MAX_LOCK_BYTES: tool_entry(TOOL)})
    assert path.read_bytes() == before
