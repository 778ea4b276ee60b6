"""Commands of an operator that flood, hang, or tell of thousands of tools; names and arguments made to be misread."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.processes import until_ended
from tests.unit.discovery.custom_tools import CustomTools, custom_tools
from tests.unit.execution.shell import CEILING
from tests.variants import one_in
from tests.waiting import until
from tools.builtin.discovered_tools import DiscoveryState, DiscoveryStatus
from tools.contract.tool_errors import ToolError
from tools.discovery.custom_tool_declarations import ArgumentCheck, readable_schema

pytestmark = pytest.mark.anyio


async def state_of(tools: CustomTools) -> DiscoveryState:
    """What comes of a discovery."""
    with anyio.fail_after(CEILING):
        return await tools.discovery.refresh()


@pytest.fixture
async def tools(root: Path, tmp_path: Path) -> AsyncGenerator[CustomTools]:
    """A discovery with working commands."""
    async with custom_tools(root, tmp_path) as made:
        yield made


@pytest.mark.parametrize("redirection", ["", ">&2"])
@pytest.mark.requirement("discovered.start")
async def test_output_without_end_is_ended_and_kept_nowhere(root: Path, tmp_path: Path, redirection: str) -> None:
    command = ("sh", "-c", f"exec yes {redirection}")
    async with custom_tools(root, tmp_path, discovery_command=command) as tools:
        state = await state_of(tools)
        assert state.status is DiscoveryStatus.FAILED
        assert "printed more than the allowed 10 MiB" in state.problem
        assert tools.running() == []
        assert list(tmp_path.iterdir()) == [root]


@pytest.mark.requirement("discovered.start")
async def test_more_than_the_most_is_not_used_even_if_it_came_quickly(tools: CustomTools) -> None:
    tools.file.write_bytes(b"[" + b" " * (10 << 20) + b"]")
    assert "printed more than the allowed 10 MiB" in (await state_of(tools)).problem


@pytest.mark.requirement("discovered.start")
async def test_millions_of_small_values_are_not_read(tools: CustomTools) -> None:
    tools.file.write_text("[" + ",".join(["[]"] * 3_000_000) + "]")
    assert "it has more than 100,000 values" in (await state_of(tools)).problem


@pytest.mark.requirement("discovered.start")
async def test_of_ten_thousand_tools_a_thousand_are_taken(tools: CustomTools) -> None:
    state = await tools.discover(*({"name": f"tool_{number}"} for number in range(10_000)))
    assert state.status is DiscoveryStatus.DONE
    assert len(tools.registry.get_all_tools()) == 1_000
    assert state.warnings[-1] == "Further declarations that were left out or changed: 8,980."


@pytest.mark.requirement("discovered.limits")
async def test_a_discovery_that_hides_from_signals_and_sessions_leaves_nothing(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; echo $$ >> {file}; exec sleep 600' & sleep 600"
    async with custom_tools(root, tmp_path, discovery_command=("sh", "-c", script)) as tools:
        with anyio.fail_after(CEILING):
            async with anyio.create_task_group() as tasks:
                tools.discovery.start(tasks)
                await until(lambda: file.exists() and file.read_text().endswith("\n"))
                tasks.cancel_scope.cancel()
        await until_ended([int(file.read_text())])
        assert tools.running() == []


@pytest.mark.parametrize(
    "name",
    one_in(
        2,
        ["$(touch made)", "; touch made", "`touch made`", "| touch made", "a' ; touch made '", "../../etc/passwd", "*"],
    ),
)
@pytest.mark.requirement("discovered.call")
async def test_a_name_is_one_argument_whatever_it_looks_like(root: Path, tmp_path: Path, name: str) -> None:
    command = ("sh", "-c", 'printf "%s %s" "$#" "$1"', "call")
    async with custom_tools(root, tmp_path, call_command=command) as tools:
        tool = await tools.tool(name)
        result = await tool.execute({}, tools.context)
        assert isinstance(result.llm_content, list)
        assert getattr(result.llm_content[0], "text", "") == f"1 {name}"
        assert list(root.iterdir()) == []


@pytest.mark.requirement("discovered.call")
async def test_arguments_are_on_standard_input_only(tools: CustomTools, root: Path) -> None:
    given: dict[str, Any] = {
        "text": '\'; touch made #\n"$(touch made)" `touch made`\x00\x1b[2J\u202e',
        "--option": "-x",
        "\n": [],
    }
    said = (await tools.call("tell", **given)).structured
    assert said is not None
    assert json.loads(said["given"]) == given
    assert said["argv"] == ["tell"]
    assert not any("touch" in name for name in said["environment"])
    assert list(root.iterdir()) == []


@pytest.mark.requirement("discovered.limits")
async def test_a_tool_that_reads_nothing_does_not_hold_up_its_call(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, call_command=("sh", "-c", "echo done")) as tools:
        result = await tools.call("deaf", text="x" * 5_000_000)
        assert isinstance(result.llm_content, list)
        assert getattr(result.llm_content[0], "text", "") == "done"


@pytest.mark.requirement("discovered.result.text")
async def test_a_tool_that_prints_without_end_is_ended_at_its_time(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, call_command=("yes",), call_seconds=1.0) as tools:
        message = (await tools.error_of("one")).message
        assert "Error: it took longer than 1 s" in message
        assert len(message) < 45_000
        kept = sum(file.stat().st_size for file in tmp_path.rglob("output-*"))
        assert 0 < kept <= 64 << 20


@pytest.mark.requirement("discovered.result")
async def test_an_object_with_millions_of_values_stays_text(tools: CustomTools, root: Path) -> None:
    result = await tools.call("verdict", text='{"a": [' + "[]," * 1_000_000 + "1]}")
    assert result.structured is None
    assert isinstance(result.llm_content, list)


def doubling(levels: int) -> dict[str, Any]:
    """A small schema that has two ways to each level, so that the ways to the last are countless."""
    ways: dict[str, Any] = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$defs": {**ways, f"d{levels}": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


@pytest.mark.requirement("discovered.arguments")
async def test_a_check_that_would_never_end_is_left_to_the_tool(tools: CustomTools) -> None:
    tool = await tools.tool("verdict", **doubling(40))
    arguments = {"a": "zz", "text": "ran"}
    with anyio.fail_after(CEILING):
        assert tool.validate_tool_params(arguments) == arguments
        result = await tool.execute(arguments, tools.context)
    assert isinstance(result.llm_content, list)
    assert getattr(result.llm_content[0], "text", "") == "ran"


@pytest.mark.requirement("discovered.arguments")
async def test_what_takes_long_is_checked_before_the_tool_runs(tools: CustomTools) -> None:
    tool = await tools.tool("verdict", properties={"a": {"type": "array", "items": {"type": "integer"}}})
    arguments: dict[str, Any] = {"a": [*range(50_000), "x"], "text": "ran"}
    assert tool.validate_tool_params(arguments) == arguments
    with anyio.fail_after(CEILING), pytest.raises(ToolError, match=r"'a\.50000' must satisfy type"):
        await tool.execute(arguments, tools.context)


@pytest.mark.requirement("discovered.arguments")
def test_a_check_without_end_is_given_up() -> None:
    check = ArgumentCheck(readable_schema(doubling(40)))
    assert check.problem_of({"a": "zz"}) is None
