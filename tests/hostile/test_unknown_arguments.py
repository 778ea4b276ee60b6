"""Unknown arguments: refused by a tool that changes something, otherwise named briefly in the result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, MODERN, in_memory
from tests.hostile.every_tool import call, state_of
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
async def test_a_tool_that_changes_something_refuses_unknown_parameters_and_others_name_them(
    era: str, root: Path
) -> None:
    async with in_memory(era, root) as client:
        annotations = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        annotations.pop("lsp", None)  # it is listed only where a language server is installed
        assert annotations.keys() <= CALLS.keys()
        for tool, arguments in CALLS.items():
            state_before = state_of(root)
            answer = await call(client, tool, **arguments, nonsense_q=1)
            hints = annotations[tool]
            assert hints is not None
            if not hints.read_only_hint:
                assert answer.code == "invalid_tool_params", answer.text
                assert f"'nonsense_q' is not a parameter of {tool}." in answer.text
                assert state_of(root) == state_before
                continue
            assert answer.code == ("job_not_found" if tool == "read_background_output" else None), answer.text
            assert f"'nonsense_q' is not a parameter of {tool} and was ignored." in answer.text


@pytest.mark.requirement("params.unknown")
@pytest.mark.parametrize("depth", ["object", "text"])
async def test_a_misspelled_property_in_an_argument_is_reported_with_its_path(client: Client, depth: str) -> None:
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
    answer = await call(client, "todo_write", todos=todos if depth == "object" else json.dumps(todos))
    assert answer.code == "invalid_tool_params"
    assert "'todos[1].nonsense_q' is not a parameter of todo_write." in answer.text
    problem = "'todos[1].statuss' is not a parameter of todo_write; the parameter 'todos[1].status' was given"
    assert problem in answer.text
    assert "'todos[1].prioritty' is not a parameter of todo_write" in answer.text
    assert ".no'" not in answer.text
    answer = await call(client, "todo_write", todos=[{**todos[0], f"k{number}" * 99: 1} for number in range(900)])
    assert len(answer.text) < 4_000


@pytest.mark.requirement("params.unknown")
async def test_a_misspelled_parameter_next_to_the_right_one_is_reported_with_a_note_on_it(client: Client) -> None:
    answer = await call(client, "read_file", file_path="a.txt", limit=3, limits=2, path_of_file="b")
    assert not answer.result.is_error
    note = "'limits' is not a parameter of read_file and was ignored; the parameter 'limit' was given too."
    assert note in answer.text


@pytest.mark.requirement("params.unknown")
async def test_a_call_that_fails_names_unknown_parameters_too(client: Client) -> None:
    for answer in (
        await call(client, "read_file", file_path="none.txt", offsett=3),
        await call(client, "read_file", file="a.txt", offsett=3),
    ):
        assert answer.result.is_error
        assert "offsett" in answer.text


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
async def test_the_note_on_hostile_parameter_names_is_short_and_visible(client: Client, names: list[str]) -> None:
    for arguments in ({"file_path": "a.txt"}, {"file": "a.txt"}):
        answer = await call(client, "read_file", **arguments, **dict.fromkeys(names, 1))
        assert len(answer.text) < 1_500
        assert not UNSEEN.search(answer.text)
        assert len(re.findall("not a parameter", answer.text)) <= 5
