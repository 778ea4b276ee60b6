"""Clients of 2026-07-28 without a token cannot be told apart, so the server keeps no personal state for them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import MODERN, Route
from tests.interaction.serving import Connect, by_route
from tests.interaction.test_conversation import UNASKED, text_of

ANONYMOUS = by_route([Route("http", MODERN), Route("sse", MODERN)])

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("network.anonymous")]


class Person:
    """Answers each question with `once`, and records the choices that were offered."""

    def __init__(self) -> None:
        self.offers: list[list[str]] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        choices = params.requested_schema["properties"]["decision"]["oneOf"]
        self.offers.append([choice["const"] for choice in choices])
        return types.ElicitResult(action="accept", content={"decision": "once"})


@ANONYMOUS
async def test_an_answer_counts_only_for_its_own_call(connect: Connect, place: Path) -> None:
    person = Person()
    async with connect(elicitation_callback=person) as client:
        for name in ("a.txt", "b.txt"):
            result = await client.call_tool("write_file", {"file_path": str(place / name), "content": "x"})
            assert not result.is_error
    assert person.offers == [["once", "deny"], ["once", "deny"]]


@ANONYMOUS
async def test_reads_are_not_remembered_but_a_digest_is_compared_with_the_file(connect: Connect, place: Path) -> None:
    file = place / "a.txt"
    file.write_text("one\n")
    edit = {"file_path": str(file), "old_string": "one", "new_string": "two"}
    async with connect(UNASKED) as client:
        await client.call_tool("read_file", {"file_path": str(file)})
        file.write_text("one and more\n")
        stale_edit = {**edit, "expected_sha256": sha256(b"one\n").hexdigest()}
        refusal = await client.call_tool("edit", stale_edit)
        assert refusal.is_error
        assert "[file_changed_since_read]" in text_of(refusal)
        fresh_edit = {**edit, "expected_sha256": sha256(b"one and more\n").hexdigest()}
        assert not (await client.call_tool("edit", fresh_edit)).is_error
        file.write_text("one again\n")
        assert not (await client.call_tool("edit", edit)).is_error
    assert file.read_text() == "two again\n"


@ANONYMOUS
async def test_there_are_no_background_jobs_and_the_refusal_says_why(connect: Connect, place: Path) -> None:
    command = {"command": "touch made", "directory": str(place), "is_background": True}
    async with connect(UNASKED) as client:
        refusal = await client.call_tool("run_shell_command", command)
        assert refusal.is_error
        assert "it has no session" in text_of(refusal)
        jobs = await client.call_tool("list_background_jobs", {})
        assert "touch made" not in text_of(jobs)
    assert not (place / "made").exists()


@ANONYMOUS
async def test_plan_mode_cannot_be_left(connect: Connect, place: Path) -> None:
    async with connect({"approvalMode": "plan"}, elicitation_callback=Person()) as client:
        assert "exit_plan_mode" not in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("exit_plan_mode", {"plan": "1. Write."})).is_error
        assert (await client.call_tool("write_file", {"file_path": str(place / "a"), "content": "x"})).is_error
    assert list(place.iterdir()) == []


@ANONYMOUS
async def test_no_todo_list_is_kept(connect: Connect) -> None:
    todos = [{"id": "1", "content": "Read", "status": "pending"}]
    async with connect() as client:
        result = await client.call_tool("todo_write", {"todos": todos})
        assert (result.structured_content or {})["kept"] is False
        assert "todo://list" not in {resource.uri for resource in (await client.list_resources()).resources}
