"""An operator's commands that flood, hang, or declare thousands of tools, and names and arguments that mislead."""

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
    """Run a discovery, and return its state."""
    with anyio.fail_after(CEILING):
        return await tools.discovery.refresh()


@pytest.fixture
async def tools(root: Path, tmp_path: Path) -> AsyncGenerator[CustomTools]:
    """Custom tools with working commands."""
    async with custom_tools(root, tmp_path) as custom:
        yield custom


@pytest.mark.parametrize("redirection", ["", ">&2"])
@pytest.mark.requirement("discovered.start")
async def test_a_discovery_with_endless_output_is_ended_and_leaves_no_files(
    root: Path, tmp_path: Path, redirection: str
) -> None:
    command = ("sh", "-c", f"exec yes {redirection}")
    async with custom_tools(root, tmp_path, discovery_command=command) as tools:
        state = await state_of(tools)
        assert state.status is DiscoveryStatus.FAILED
        assert "printed more than the allowed 10 MiB" in state.problem
        assert tools.running() == []
        assert list(tmp_path.iterdir()) == [root]


@pytest.mark.requirement("discovered.start")
async def test_too_much_output_is_not_used_even_if_it_comes_quickly(tools: CustomTools) -> None:
    tools.file.write_bytes(b"[" + b" " * (10 << 20) + b"]")
    assert "printed more than the allowed 10 MiB" in (await state_of(tools)).problem


@pytest.mark.requirement("discovered.start")
async def test_millions_of_small_values_are_refused(tools: CustomTools) -> None:
    tools.file.write_text("[" + ",".join(["[]"] * 3_000_000) + "]")
    assert "it has more than 100,000 values" in (await state_of(tools)).problem


@pytest.mark.requirement("discovered.start")
async def test_of_ten_thousand_tools_a_thousand_are_used(tools: CustomTools) -> None:
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
    arguments: dict[str, Any] = {
        "text": '\'; touch made #\n"$(touch made)" `touch made`\x00\x1b[2J\u202e',
        "--option": "-x",
        "\n": [],
    }
    report = (await tools.call("tell", **arguments)).structured
    assert report is not None
    assert json.loads(report["given"]) == arguments
    assert report["argv"] == ["tell"]
    assert not any("touch" in name for name in report["environment"])
    assert list(root.iterdir()) == []


@pytest.mark.requirement("discovered.limits")
async def test_a_tool_that_reads_nothing_does_not_hold_up_its_call(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, call_command=("sh", "-c", "echo done")) as tools:
        result = await tools.call("deaf", text="x" * 5_000_000)
        assert isinstance(result.llm_content, list)
        assert getattr(result.llm_content[0], "text", "") == "done"


@pytest.mark.requirement("discovered.result.text")
async def test_a_tool_with_endless_output_is_ended_at_its_time_limit(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, call_command=("yes",), call_seconds=1.0) as tools:
        message = (await tools.error_of("one")).message
        assert "Error: it took longer than 1 s" in message
        assert len(message) < 45_000
        size = sum(file.stat().st_size for file in tmp_path.rglob("output-*"))
        assert 0 < size <= 64 << 20


@pytest.mark.requirement("discovered.result")
async def test_an_object_with_millions_of_values_stays_text(tools: CustomTools, root: Path) -> None:
    result = await tools.call("verdict", text='{"a": [' + "[]," * 1_000_000 + "1]}")
    assert result.structured is None
    assert isinstance(result.llm_content, list)


def doubling(levels: int) -> dict[str, Any]:
    """Return a small schema with two alternatives at each level, and so 2 ** `levels` ways to the last level."""
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**definitions, f"d{levels}": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


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
async def test_arguments_that_take_long_to_check_are_checked_before_the_tool_runs(tools: CustomTools) -> None:
    tool = await tools.tool("verdict", properties={"a": {"type": "array", "items": {"type": "integer"}}})
    arguments: dict[str, Any] = {"a": [*range(50_000), "x"], "text": "ran"}
    assert tool.validate_tool_params(arguments) == arguments
    with anyio.fail_after(CEILING), pytest.raises(ToolError, match=r"'a\.50000' must satisfy type"):
        await tool.execute(arguments, tools.context)


@pytest.mark.requirement("discovered.arguments")
def test_an_endless_check_is_given_up() -> None:
    check = ArgumentCheck(readable_schema(doubling(40)))
    assert check.problem_of({"a": "zz"}) is None
