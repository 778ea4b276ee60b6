"""Arguments that a tool does not have: the result names them, briefly, whatever they are called."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.client import Client

from tests.harness import HANDSHAKE, MODERN, in_memory
from tests.hostile.every_tool import call
from tools.builtin.all_tools import builtin_tools
from tools.contract.file_names_in_text import UNSEEN

pytestmark = pytest.mark.anyio

CALLS: dict[str, dict[str, Any]] = {
    "read_file": {"file_path": "a.txt"},
    "list_directory": {"path": "."},
    "glob": {"pattern": "*"},
    "grep_search": {"pattern": "x"},
    "read_many_files": {"paths": ["a.txt"]},
    "write_file": {"file_path": "b.txt", "content": "new"},
    "edit": {"file_path": "a.txt", "old_string": "x", "new_string": "y"},
    "run_shell_command": {"command": "true"},
    "list_background_jobs": {},
    "todo_write": {"todos": []},
}


@pytest.fixture(autouse=True)
def files(root: Path) -> None:
    (root / "a.txt").write_text("x\n")


@pytest.mark.requirement("params.unknown")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_every_tool_names_what_it_does_not_have_and_works_as_without_it(era: str, root: Path) -> None:
    async with in_memory(era, root) as client:
        schemas = {tool.name: tool.output_schema for tool in builtin_tools()}
        for tool, arguments in CALLS.items():
            called = await call(client, tool, **arguments, nonsense_q=1)
            assert not called.result.is_error, called.text
            assert f"'nonsense_q' is not a parameter of {tool} and was ignored." in called.text
            if (schema := schemas[tool]) is not None:
                assert list(Draft202012Validator(dict(schema)).iter_errors(called.structured)) == []  # pyright: ignore[reportUnknownMemberType] - jsonschema


@pytest.mark.requirement("params.unknown")
async def test_a_misspelled_parameter_is_told_with_the_right_one(client: Client) -> None:
    schemas = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools}
    for tool, arguments in CALLS.items():
        for name in schemas[tool].keys() - arguments.keys() - {"absolute_path"}:
            for wrong in {f"{name}s", name.replace("_", "-").upper()} - schemas[tool].keys():
                called = await call(client, tool, **arguments, **{wrong: None})
                assert "not a parameter" not in called.text, "a null counts as absent"
                called = await call(client, tool, **arguments, **{wrong: "?"})
                if "not a parameter" in called.text:
                    assert f"'{wrong}' is not a parameter of {tool}" in called.text
                    assert "did you mean" in called.text, (tool, wrong)
                else:
                    assert "?" not in called.text or called.result.is_error, "an accepted spelling was used"


@pytest.mark.requirement("params.unknown")
@pytest.mark.parametrize("depth", ["object", "text"])
async def test_a_misspelled_property_within_an_argument_is_told_with_the_way_to_it(client: Client, depth: str) -> None:
    todos: Any = [
        {"id": "1", "content": "a", "status": "pending"},
        {
            "id": "2",
            "content": "b",
            "status": "pending",
            "prioritty": "high",
            "nonsense_q": 1,
            "statuss": 1,
            "no": None,
        },
    ]
    called = await call(client, "todo_write", todos=todos if depth == "object" else json.dumps(todos))
    assert not called.result.is_error, called.text
    assert "'todos[1].nonsense_q' is not a parameter of todo_write and was ignored." in called.text
    assert "'todos[1].statuss' is not a parameter of todo_write and was ignored; 'todos[1].status' is" in called.text
    assert "'todos[1].prioritty' is not a parameter of todo_write and was ignored" in called.text
    assert ".no'" not in called.text
    called = await call(client, "todo_write", todos=[{**todos[0], f"k{number}" * 99: 1} for number in range(900)])
    assert len(called.text) < 4_000


@pytest.mark.requirement("params.unknown")
async def test_a_misspelled_parameter_beside_the_right_one_is_told_with_that(client: Client) -> None:
    called = await call(client, "write_file", file_path="b.txt", content="new", contents="old", path_of_file="b")
    assert not called.result.is_error
    told = "'contents' is not a parameter of write_file and was ignored; 'content' is one, and its value was used."
    assert told in called.text


@pytest.mark.requirement("params.unknown")
async def test_accepted_spellings_are_used_in_silence(client: Client, root: Path) -> None:
    for tool, arguments in (
        ("read_file", {"absolute_path": str(root / "a.txt"), "start_line": 1, "end_line": 1}),
        ("list_directory", {"dir_path": ".", "respect_git_ignore": True}),
        (
            "glob",
            {"pattern": "*", "respect_gemini_ignore": True, "file_filtering_options": {"respect_git_ignore": False}},
        ),
        ("grep_search", {"pattern": "x", "include": "*.txt", "dir_path": "."}),
        ("read_many_files", {"include": ["a.txt"], "useDefaultExcludes": True}),
        (
            "edit",
            {"path": "a.txt", "old_string": "x", "new_string": "y", "instruction": "do", "expected_replacements": 1},
        ),
        ("run_shell_command", {"command": "true", "wait_for_previous": True}),
    ):
        called = await call(client, tool, **arguments)
        assert not called.result.is_error, called.text
        assert "not a parameter" not in called.text


@pytest.mark.requirement("params.unknown")
async def test_a_call_that_fails_names_them_too(client: Client) -> None:
    for called in (
        await call(client, "read_file", file_path="none.txt", offsett=3),
        await call(client, "read_file", file="a.txt", offsett=3),
    ):
        assert called.result.is_error
        assert "offsett" in called.text


@pytest.mark.requirement("params.unknown")
@pytest.mark.parametrize(
    "names",
    [
        [f"k{number}" for number in range(900)],
        ["x" * 1_000_000],
        ["a\nb", "\x1b[2J", "\u202egnp", "", " ", "\U000e0041", "a'b", "\ufe0f", "\ue000"],
        [f"{'file_pat' * 5_000}{number}" for number in range(50)],
    ],
    ids=["many", "long", "unseen", "alike"],
)
async def test_what_is_told_of_hostile_names_is_short_and_visible(client: Client, names: list[str]) -> None:
    for arguments in ({"file_path": "a.txt"}, {"file": "a.txt"}):
        called = await call(client, "read_file", **arguments, **dict.fromkeys(names, 1))
        assert len(called.text) < 1_500
        assert not UNSEEN.search(called.text)
        assert len(re.findall("not a parameter", called.text)) <= 5
