"""How the discovery runs: when it starts, when the registry changes, and what the settings change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.processes import until_ended
from tests.unit.discovery.custom_tools import PEER, RESERVED, CustomTools, custom_tools
from tests.unit.execution.shell import CEILING
from tests.waiting import until
from tools.builtin.discovered_tools import DiscoveryState, DiscoveryStatus

pytestmark = pytest.mark.anyio

ONE, TWO = {"name": "one"}, {"name": "two"}


def names_of(tools: CustomTools) -> list[str]:
    """Return the names of the tools in the registry."""
    return [tool.name for tool in tools.registry.get_all_tools()]


async def problem_of(tools: CustomTools) -> str:
    """Run a discovery that fails, and return its problem."""
    with anyio.fail_after(CEILING):
        state = await tools.discovery.refresh()
    assert state.status is DiscoveryStatus.FAILED
    assert tools.discovery.finished.is_set()
    return state.problem


@pytest.mark.requirement("discovered.start")
async def test_nothing_runs_before_the_discovery_is_started(tools: CustomTools) -> None:
    tools.declare(ONE)
    assert tools.discovery.state == DiscoveryState(DiscoveryStatus.WAITING)
    assert not tools.discovery.finished.is_set()
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as tasks:
            await tools.discovery.wait_for_first_list()
            assert tools.starter.processes == []
            tools.discovery.start(tasks)
            tools.discovery.start(tasks)
            await tools.registry.discover_all_tools()
    assert len(tools.starter.processes) == 1
    assert names_of(tools) == ["one"]
    assert tools.discovery.state.tools == ("one",)


@pytest.mark.requirement("discovered.start")
async def test_without_a_command_there_is_nothing_to_wait_for(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, discovery_command=None) as tools:
        with anyio.fail_after(CEILING):
            await tools.registry.discover_all_tools()
            state = await tools.discovery.refresh()
        assert state == DiscoveryState(DiscoveryStatus.OFF, seconds=state.seconds)
        assert tools.starter.processes == []


@pytest.mark.requirement("discovered.start")
async def test_a_first_list_does_not_wait_for_a_command_that_hangs(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with custom_tools(root, tmp_path, discovery_command=(*PEER, "hang", str(file))) as tools:
        with anyio.fail_after(CEILING):
            async with anyio.create_task_group() as tasks:
                tools.discovery.start(tasks)
                await tools.discovery.wait_for_first_list()
                assert not tools.discovery.finished.is_set()
                assert tools.discovery.state.status is DiscoveryStatus.RUNNING
                tasks.cancel_scope.cancel()


@pytest.mark.requirement("discovered.refresh")
async def test_the_registry_changes_only_if_tools_differ(tools: CustomTools) -> None:
    await tools.discover(ONE, TWO)
    assert len(tools.changes) == 1
    await tools.discover(ONE, TWO)
    assert len(tools.changes) == 1
    await tools.discover(ONE, {**TWO, "description": "Other words."})
    assert len(tools.changes) == 2
    await tools.discover(TWO)
    assert names_of(tools) == ["two"]
    assert len(tools.changes) == 3


@pytest.mark.requirement("discovered.refresh")
async def test_a_refresh_that_fails_keeps_what_was_found_before(tools: CustomTools) -> None:
    await tools.discover(ONE)
    tools.file.write_text("no JSON")
    assert "it is not JSON" in await problem_of(tools)
    assert names_of(tools) == ["one"]
    assert tools.discovery.state.tools == ("one",)
    assert (await tools.discover(TWO)).status is DiscoveryStatus.DONE
    assert names_of(tools) == ["two"]


@pytest.mark.requirement("discovered.clash")
async def test_names_of_built_in_tools_are_left_out_with_a_warning(tools: CustomTools) -> None:
    state = await tools.discover(*({"name": name} for name in sorted(RESERVED)), ONE)
    assert names_of(tools) == ["one"]
    assert len(state.warnings) == len(RESERVED)


@pytest.mark.requirement("discovered.refresh")
async def test_another_call_command_replaces_the_tools_and_other_limits_do_not(tools: CustomTools) -> None:
    await tools.discover(ONE)
    first = tools.registry.get_tool("one")
    async with anyio.create_task_group() as tasks:
        tools.discovery.start(tasks)
        await until(lambda: len(tools.starter.processes) == 2)
    async with anyio.create_task_group() as tasks:
        tools.discovery.change(replace(tools.settings, discovery_seconds=30.0), tasks)
    assert len(tools.starter.processes) == 3
    assert tools.registry.get_tool("one") == first
    assert len(tools.changes) == 1
    async with anyio.create_task_group() as tasks:
        tools.discovery.change(replace(tools.settings, call_command=("other",)), tasks)
    assert tools.registry.get_tool("one") != first
    assert len(tools.changes) == 2


@pytest.mark.requirement("discovered.refresh")
async def test_without_the_command_its_tools_are_gone(tools: CustomTools) -> None:
    async with anyio.create_task_group() as tasks:
        tools.declare(ONE)
        tools.discovery.start(tasks)
    async with anyio.create_task_group() as tasks:
        tools.discovery.change(replace(tools.settings, discovery_command=None), tasks)
    assert names_of(tools) == []
    assert tools.discovery.state.status is DiscoveryStatus.OFF


@pytest.mark.requirement("discovered.refresh")
async def test_a_new_command_that_fails_removes_the_tools_of_the_old_one(tools: CustomTools) -> None:
    async with anyio.create_task_group() as tasks:
        tools.declare(ONE)
        tools.discovery.start(tasks)
    async with anyio.create_task_group() as tasks:
        tools.discovery.change(replace(tools.settings, discovery_command=("/no/such/program",)), tasks)
    assert tools.discovery.state.status is DiscoveryStatus.FAILED
    assert names_of(tools) == []


@pytest.mark.requirement("discovered.refresh")
async def test_a_change_of_limits_alone_loses_no_tools_even_if_the_discovery_then_fails(tools: CustomTools) -> None:
    async with anyio.create_task_group() as tasks:
        tools.declare(ONE)
        tools.discovery.start(tasks)
    tools.file.unlink()
    async with anyio.create_task_group() as tasks:
        tools.discovery.change(replace(tools.settings, discovery_seconds=20.0), tasks)
    assert tools.discovery.state.status is DiscoveryStatus.FAILED
    assert names_of(tools) == ["one"]


@pytest.mark.requirement("discovered.refresh")
async def test_settings_that_change_while_a_command_hangs_take_effect_at_once(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with custom_tools(root, tmp_path, discovery_command=(*PEER, "hang", str(file))) as tools:
        with anyio.fail_after(CEILING):
            async with anyio.create_task_group() as tasks:
                tools.discovery.start(tasks)
                await until(lambda: file.exists() and file.read_text().endswith("\n"))
                tools.declare(ONE)
                working_command = (*PEER, "list", str(tools.file))
                tools.discovery.change(replace(tools.settings, discovery_command=working_command), tasks)
                await tools.discovery.finished.wait()
        assert names_of(tools) == ["one"]
        await until_ended([int(file.read_text())])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"call_command": None}, "tools.callCommand, which runs the tools, is not. Set both."),
        (
            {"discovery_command": ("no-such-program",)},
            "'no-such-program', set in tools.discoveryCommand, was not found on the PATH",
        ),
        (
            {"discovery_command": ("bin/none",)},
            "The program 'bin/none', set in tools.discoveryCommand, was not found at that path",
        ),
        (
            {"discovery_command": ("sh", "-c", "echo '[]'; echo token=abcdefgh >&2; exit 4")},
            "failed with exit code 4. Run it by hand to see why. Its last output: token=[hidden]",
        ),
        ({"discovery_command": ("sh", "-c", "kill -9 $$")}, "The discovery command was killed by SIGKILL."),
        ({"discovery_command": ("true",)}, "The discovery command printed nothing. Make it print an array"),
        ({"discovery_command": ("echo", "hello")}, "it is not JSON: Expecting value in line 1, column 1."),
    ],
)
@pytest.mark.requirement("discovered.failed")
async def test_a_discovery_that_fails_says_why_and_what_to_do(
    root: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    async with custom_tools(root, tmp_path, **settings) as tools:
        assert message in await problem_of(tools)
        assert names_of(tools) == []


@pytest.mark.requirement("discovered.failed")
async def test_a_command_that_takes_too_long_is_ended(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = (*PEER, "hang", str(file))
    async with custom_tools(root, tmp_path, discovery_command=command, discovery_seconds=0.5) as tools:
        assert "took longer than 0.5 s and was stopped" in await problem_of(tools)
        assert tools.running() == []


@pytest.mark.requirement("discovered.declarations")
async def test_multibyte_characters_survive_wherever_a_read_ends(tools: CustomTools) -> None:
    tools.file.write_text(f'[{{"name": "one", "description": "{"aäß€𝄞" * 5_000}"}}]', encoding="utf-8")
    with anyio.fail_after(CEILING):
        await tools.discovery.refresh()
    assert tools.registry.get_tool("one").description.startswith("aäß€𝄞" * 5_000 + "\n\n")
