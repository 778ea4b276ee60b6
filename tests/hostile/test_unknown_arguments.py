"""Arguments that a tool does not have: refused where something would change, else named, briefly, in the result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.client import Client

from tests.harness import HANDSHAKE, MODERN, in_memory
from tests.hostile.every_tool import call, state_of
from tools.builtin.all_tools import builtin_tools
from tools.text.file_names import UNSEEN

pytestmark = pytest.mark.anyio

CALLS: dict[str, dict[str, Any]] = {
    "read_file": {"file_path": "a.txt"},
    "list_directory": {"path": "."},
    "glob": {"pattern": "*"},
    "grep_search": {"pattern": "x"},
    "read_many_files": {"paths": ["a.txt"]},
    "write_file": {"file_path": "b.txt", "content": "new"},
    "edit": {"file_path": "a.txt", "old_string": "x", "new_string": "y"},
    "notebook_edit": {"notebook_path": "n.ipynb", "cell_id": "x", "new_source": "y"},
    "run_shell_command": {"command": "touch ran"},
    "list_background_jobs": {},
    "read_background_output": {"job_id": "bg_1"},
    "stop_background_job": {"job_id": "bg_1"},
    "list_changes": {},
    "undo_change": {},
    "web_fetch": {"url": "http://127.0.0.1:9/"},
    "save_memory": {"fact": "The sky is blue."},
    "todo_write": {"todos": []},
}


@pytest.fixture(autouse=True)
def files(root: Path) -> None:
    (root / "a.txt").write_text("x\n")


@pytest.mark.requirement("params.unknown")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_what_a_tool_does_not_have_is_refused_if_it_changes_something_and_else_named(
    era: str, root: Path
) -> None:
    async with in_memory(era, root) as client:
        listed = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        listed.pop("lsp", None)  # it is there only where a language server is
        assert listed.keys() <= CALLS.keys()
        schemas = {tool.name: tool.output_schema for tool in builtin_tools()}
        for tool, arguments in CALLS.items():
            before = state_of(root)
            called = await call(client, tool, **arguments, nonsense_q=1)
            hints = listed[tool]
            assert hints is not None
            if not hints.read_only_hint:
                assert called.code == "invalid_tool_params", called.text
                assert f"'nonsense_q' is not a parameter of {tool}." in called.text
                assert state_of(root) == before
                continue
            assert called.code == ("job_not_found" if tool == "read_background_output" else None), called.text
            assert f"'nonsense_q' is not a parameter of {tool} and was ignored." in called.text
            if not called.result.is_error and (schema := schemas[tool]) is not None:
                assert list(Draft202012Validator(dict(schema)).iter_errors(called.structured)) == []  # pyright: ignore[reportUnknownMemberType] - jsonschema


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
    assert called.code == "invalid_tool_params"
    assert "'todos[1].nonsense_q' is not a parameter of todo_write." in called.text
    assert "'todos[1].statuss' is not a parameter of todo_write; the parameter 'todos[1].status' was given" in called.text
    assert "'todos[1].prioritty' is not a parameter of todo_write" in called.text
    assert ".no'" not in called.text
    called = await call(client, "todo_write", todos=[{**todos[0], f"k{number}" * 99: 1} for number in range(900)])
    assert len(called.text) < 4_000


@pytest.mark.requirement("params.unknown")
async def test_a_misspelled_parameter_beside_the_right_one_is_told_with_that(client: Client) -> None:
    called = await call(client, "read_file", file_path="a.txt", limit=3, limits=2, path_of_file="b")
    assert not called.result.is_error
    told = "'limits' is not a parameter of read_file and was ignored; the parameter 'limit' was given too."
    assert told in called.text


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
