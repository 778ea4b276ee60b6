"""The tool `task`: how an agent is run, what it is given, and what the result says."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.people import Person
from tests.processes import CEILING, needs_proc, until_ended
from tests.tables import all_cases
from tests.waiting import until
from tools.agent_programs import DEPTH_VARIABLE, AgentCommand
from tools.builtin.task import MAX_PROMPT_CHARS, TaskTool, read_answer
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import AbortSignal, ApprovalMode
from tools.contract.confirmation import ExecConfirmation, Question, Unavailable
from tools.contract.display import render_question
from tools.contract.tool_errors import ExecutionDeniedError, InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import FileDataPart, FunctionCall, TextPart, ToolResult
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionPolicy
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_runner import ProgramRunner
from tools.shell.private_folders import PrivateFolders

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="not run: nothing is started here")]

SHELL = "/bin/sh"


def script(text: str, **options: Any) -> AgentCommand:
    """Return an agent that runs a shell script."""
    return AgentCommand(name="worker", command=SHELL, args=("-c", text), **options)


@dataclass
class Agents:
    """A client that gives tasks to agents.

    Args:
        context: The context of the tool's calls.
        runner: Runs the agents.
        folders: Stores long outputs.
        messages: The progress messages that the client has received.
        environment: The environment of the server.
    """

    context: ToolContext
    runner: ProgramRunner
    folders: PrivateFolders
    messages: list[str] = field(default_factory=list[str])
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.defpath, "HOME": "/"})

    def tool(self, *agents: AgentCommand) -> TaskTool:
        """Return the tool for these agents."""
        return TaskTool(agents, lambda: self.runner, self.environment)

    async def run(self, agent: AgentCommand, prompt: str = "Do it.") -> ToolResult:
        """Give a task to an agent, and return the result."""
        tool = self.tool(agent)
        with anyio.fail_after(CEILING):
            return await tool.execute(tool.validate_tool_params({"prompt": prompt}), self.context)

    async def text(self, agent: AgentCommand, prompt: str = "Do it.") -> str:
        """Give a task to an agent, and return the text for the model."""
        return text_of(await self.run(agent, prompt))

    async def error(self, agent: AgentCommand) -> ToolError:
        """Give a task to an agent that fails, and return the error."""
        with pytest.raises(ToolError) as error_info:
            await self.run(agent)
        return error_info.value


def text_of(result: ToolResult) -> str:
    assert isinstance(result.llm_content, list)
    (text,) = [part.text for part in result.llm_content if isinstance(part, TextPart)]
    return text


@asynccontextmanager
async def agents_in(context: ToolContext, folder: Path, **options: Any) -> AsyncGenerator[Agents]:
    starter, folders = BrokeredStarter(), PrivateFolders(str(folder))
    messages: list[str] = []

    async def progress(steps: float, total: float | None, message: str) -> None:
        assert total is None
        messages.append(message)

    try:
        yield Agents(replace(context, progress=progress), ProgramRunner(starter, folders, **options), folders, messages)
    finally:
        with anyio.fail_after(CEILING, shield=True):
            await folders.aclose()
            await starter.aclose()


@pytest.fixture
async def agents(context: ToolContext, tmp_path: Path) -> AsyncGenerator[Agents]:
    async with agents_in(context, tmp_path) as client:
        yield client


@pytest.mark.requirement("task.run")
async def test_an_agent_reads_the_task_and_its_output_is_the_answer(agents: Agents, root: Path) -> None:
    prompt = "Count: ä\n$(touch made) 'quoted'"
    result = await agents.run(script("cat; echo; pwd"), prompt)
    assert text_of(result) == f"{prompt}\n{root}"
    assert result.structured is None
    assert (result.facts["agent"], result.facts["exitCode"]) == ("worker", 0)
    assert list(root.iterdir()) == []


@pytest.mark.requirement("task.run")
@pytest.mark.parametrize(("prompt", "argument"), [("-rf $(x) 'y'", " -rf $(x) 'y'"), ("Do\nit", "Do\nit")])
async def test_an_agent_can_get_the_task_as_its_last_argument_but_never_as_an_option(
    prompt: str, argument: str, agents: Agents
) -> None:
    agent = AgentCommand(
        name="worker",
        command=SHELL,
        args=("-c", 'printf "[%s]" "$0" "$@"; cat', "name"),
        prompt="argument",
    )
    assert await agents.text(agent, prompt) == f"[name][{argument}]"


@pytest.mark.requirement("task.run")
async def test_a_program_is_found_on_the_path_but_not_in_the_workspace(agents: Agents, root: Path) -> None:
    workspace_program = root / "worker-program"
    workspace_program.write_text("#!/bin/sh\necho trap\n")
    workspace_program.chmod(0o755)
    agents.environment = {"PATH": f"{root}{os.pathsep}{os.defpath}"}
    assert await agents.text(AgentCommand(name="a", command="sh", args=("-c", "echo found"))) == "found"
    for command in ("worker-program", "./worker-program"):
        error = await agents.error(AgentCommand(name="a", command=command))
        assert error.code is ToolErrorType.EXECUTION_FAILED
        assert "'worker-program' does not exist" in error.message
        assert "agents.a.command" in error.message


@pytest.mark.requirement("task.environment")
async def test_an_agent_gets_the_listed_environment_and_its_depth_is_one_more(agents: Agents) -> None:
    agents.environment = {"PATH": os.defpath, "API_KEY": "s", "OTHER": "o", "LANG": "C", "HTTPS_PROXY": "http://p"}
    agent = script("env", env={"SET": "1"}, inherit_env=("API_KEY", "MISSING"))
    lines = (await agents.text(agent)).splitlines()
    assert {"API_KEY=s", "SET=1", "LANG=C", "HTTPS_PROXY=http://p", f"{DEPTH_VARIABLE}=1"} <= set(lines)
    assert not any(line.startswith(("OTHER=", "MISSING=")) for line in lines)


@pytest.mark.requirement("task.environment")
@pytest.mark.parametrize("depth", ["1", "9", "x", "-1", "00"])
async def test_a_server_that_an_agent_started_gives_no_tasks_to_agents(depth: str, agents: Agents, root: Path) -> None:
    agents.environment = {DEPTH_VARIABLE: depth}
    tool = agents.tool(script("touch made"))
    params = tool.validate_tool_params({"prompt": "x"})
    for step in (tool.should_confirm_execute, tool.execute):
        with pytest.raises(ExecutionDeniedError, match="Do the task yourself"):
            await step(params, agents.context)
    assert not (root / "made").exists()


@pytest.mark.requirement("task.environment")
@pytest.mark.parametrize("depth", ["", "0"])
async def test_a_server_that_no_agent_started_gives_tasks_to_agents(depth: str, agents: Agents) -> None:
    agents.environment = {DEPTH_VARIABLE: depth, "PATH": os.defpath}
    assert await agents.text(script(f"echo ${DEPTH_VARIABLE}")) == "1"


@pytest.mark.requirement("task.failed")
async def test_standard_error_is_progress_and_not_part_of_the_answer(agents: Agents, root: Path) -> None:
    os.mkfifo(root / "go")
    results: list[ToolResult] = []
    agent = script("echo looking >&2; cat go; echo done; echo more >&2")

    async def work() -> None:
        results.append(await agents.run(agent))

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await until(lambda: agents.messages)
        await anyio.to_thread.run_sync((root / "go").write_text, "")
    assert agents.messages[0] == "looking"
    assert text_of(results[0]) == "done"


@pytest.mark.requirement("task.failed")
@pytest.mark.parametrize(
    ("text", "message_parts"),
    [
        ("echo half; echo broken >&2; exit 3", ("failed with exit code 3", "broken")),
        ("echo half; exit 3", ("failed with exit code 3", "half")),
        ("kill -9 $$", ("was killed by SIGKILL",)),
        ("true", ("exited without an answer",)),
        ("echo note >&2", ("exited without an answer", "note")),
    ],
)
async def test_an_agent_without_an_answer_fails_and_the_error_quotes_its_last_output(
    text: str, message_parts: tuple[str, ...], agents: Agents
) -> None:
    error = await agents.error(script(text))
    assert error.code is ToolErrorType.EXECUTION_FAILED
    assert all(part in error.message for part in (*message_parts, "worker", "check them before you try again"))


@pytest.mark.requirement("task.failed")
async def test_the_error_for_a_program_that_cannot_be_started_does_not_contain_its_path(
    agents: Agents, tmp_path: Path
) -> None:
    program = tmp_path / "damaged"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    error = await agents.error(AgentCommand(name="worker", command=str(program)))
    assert "'damaged' was not started" in error.message
    assert str(tmp_path) not in error.message


@pytest.mark.requirement("task.failed")
async def test_the_error_for_a_missing_program_names_the_agent_and_the_setting(agents: Agents, tmp_path: Path) -> None:
    error = await agents.error(AgentCommand(name="worker", command=str(tmp_path / "nothing")))
    assert "The agent 'worker' was not started: its program 'nothing' does not exist" in error.message
    assert "agents.worker.command" in error.message
    assert str(tmp_path) not in error.message


@pytest.mark.requirement("task.ended")
@needs_proc
async def test_at_its_time_limit_an_agent_is_ended_with_all_its_processes(agents: Agents, root: Path) -> None:
    agent = script("trap '' TERM; sleep 600 & echo $! >child; echo $$ >self; echo stuck >&2; wait", timeout=1_000)
    error = await agents.error(agent)
    assert "took longer than 1 s" in error.message
    assert "agents.worker.timeout" in error.message
    assert "stuck" in error.message
    await until_ended(int((root / name).read_text()) for name in ("child", "self"))


@pytest.mark.requirement("task.ended")
@needs_proc
async def test_a_cancelled_call_ends_its_agent_with_all_its_processes(agents: Agents, root: Path) -> None:
    agent = script("setsid sleep 600 & echo $! >child; echo $$ >self.tmp; mv self.tmp self; wait")
    async with anyio.create_task_group() as group:
        group.start_soon(agents.run, agent)
        await until((root / "self").exists)
        group.cancel_scope.cancel()
    await until_ended(int((root / name).read_text()) for name in ("child", "self"))


@pytest.mark.requirement("task.ended")
@needs_proc
async def test_processes_that_an_agent_leaves_running_are_ended(agents: Agents, root: Path) -> None:
    assert await agents.text(script("setsid sleep 600 & echo $! >child; echo done")) == "done"
    await until_ended([int((root / "child").read_text())])


@pytest.mark.requirement("task.ended")
async def test_agents_wait_for_their_turn_but_not_longer_than_their_timeout(
    context: ToolContext, tmp_path: Path
) -> None:
    async with agents_in(context, tmp_path, max_concurrent=1) as agents, anyio.create_task_group() as group:
        os.mkfifo(tmp_path / "workspace" / "go")
        group.start_soon(agents.run, script("echo begun >&2; cat go; echo done"))
        await until(lambda: agents.messages)
        error = await agents.error(script("echo second", timeout=50))
        assert "too many other programs were running" in error.message
        await anyio.to_thread.run_sync((tmp_path / "workspace" / "go").write_text, "")


@pytest.mark.requirement("task.ended")
async def test_a_long_answer_is_cut_in_the_middle_and_saved_in_a_file(agents: Agents) -> None:
    result = await agents.run(script("seq 100000"))
    text = text_of(result)
    assert text.startswith("Note: the agent printed 588.9 kB. Only the beginning and end of its answer are shown.")
    assert "\n\n1\n2\n" in text
    assert text.endswith("\n100000")
    assert len(text) < 45_000
    assert isinstance(result.llm_content, list)
    (link,) = [part for part in result.llm_content if isinstance(part, FileDataPart)]
    assert link.uri.endswith(os.path.basename(result.facts["outputFile"]))
    whole_output = await anyio.Path(result.facts["outputFile"]).read_text()
    assert whole_output.split() == [str(number) for number in range(1, 100_001)]


OUTPUTS = [
    ('{"type": "result", "result": "yes", "is_error": false}', "yes"),
    ('{"response": "yes", "stats": {}}', "yes"),
    ('{"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}', "a\nb"),
    ('{\n "text": "yes"\n}', "yes"),
    ('[{"type": "system", "text": "no"}, {"type": "result", "result": "yes"}]', "yes"),
    ('{"type": "system", "text": "no"}\n{"type": "result", "result": "yes"}\n\n', "yes"),
    ('warming up\n{"result": "yes"}', "yes"),
    ('{"result": "", "response": "yes"}', "yes"),
    ('{"result": "yes"', '{"result": "yes"'),
    ('{"stats": {}}', '{"stats": {}}'),
    ("plain", "plain"),
    ("[]", "[]"),
]


@pytest.mark.requirement("task.json")
async def test_the_answer_is_taken_from_the_last_object_or_is_the_whole_output(
    agents: Agents,
) -> None:
    with all_cases() as case:
        for output, answer in OUTPUTS:
            with case(output):
                agent = AgentCommand(
                    name="worker", command=SHELL, args=("-c", 'printf "%s" "$0"', output), output="json"
                )
                assert await agents.text(agent) == answer
                assert await agents.text(replace(agent, output="text")) == output.strip("\n")


@pytest.mark.requirement("task.json")
@pytest.mark.parametrize(
    ("output", "message_part"),
    [
        ('{"result": "I could not.", "is_error": true}', "I could not."),
        ('{"error": {"message": "no quota", "code": 1}}', "no quota"),
        ('{"error": "no quota"}', "no quota"),
        ('{"error": [1]}', "[1]"),
        ('{"type": "result", "subtype": "error_max_turns", "is_error": true}', "error_max_turns"),
        ('{"result": "", "is_error": true}', '{"result": ""'),
    ],
)
async def test_an_agent_that_says_it_failed_has_failed(output: str, message_part: str, agents: Agents) -> None:
    agent = AgentCommand(name="worker", command=SHELL, args=("-c", 'printf "%s" "$0"', output), output="json")
    error = await agents.error(agent)
    assert "reported a failure" in error.message
    assert message_part in error.message


@pytest.mark.requirement("task.json")
async def test_a_long_stream_of_events_still_ends_in_its_answer(agents: Agents) -> None:
    text = 'i=0; while [ $i -lt 400 ]; do printf \'{"event": "%01000d"}\\n\' $i; i=$((i+1)); done; echo "$0"'
    answer = json.dumps({"result": "x" * 50_000 + " end"})
    agent = AgentCommand(name="worker", command=SHELL, args=("-c", text, answer), output="json")
    result = text_of(await agents.run(agent))
    assert result.endswith("x end")
    assert '"event"' not in result
    assert "[... output omitted here ...]" in result


@pytest.mark.requirement("task.json")
def test_very_deep_json_is_not_an_answer() -> None:
    assert read_answer(b"[" * 100_000, is_whole=True) is None
    assert read_answer(b'{"text": "\xff"}', is_whole=False) == ("\ufffd", False)


REVIEWER = AgentCommand(name="Reviewer", command="review", description="Reads code.")
TESTER = AgentCommand(name="tester", command="test")


def tool_of(*agents: AgentCommand) -> TaskTool:
    def no_runner() -> ProgramRunner:
        raise AssertionError("no program should run")

    return TaskTool(agents, no_runner, {})


@pytest.mark.requirement("task.agents")
def test_the_schema_names_the_agents_and_requires_one_only_if_there_are_several() -> None:
    two_agents, one_agent = tool_of(REVIEWER, TESTER), tool_of(REVIEWER)
    assert two_agents.parameter_schema["properties"]["subagent_type"]["enum"] == ["Reviewer", "tester"]
    assert two_agents.parameter_schema["required"] == ["prompt", "subagent_type"]
    assert one_agent.parameter_schema["required"] == ["prompt"]
    assert one_agent.validate_tool_params({"prompt": "x"}).subagent_type == "Reviewer"
    assert two_agents.description.endswith("Agents:\n- Reviewer: Reads code.\n- tester")


@pytest.mark.requirement("task.agents")
@pytest.mark.parametrize("arguments", [{"subagent_type": "reviewer"}, {"agent_name": " REVIEWER "}])
def test_an_agent_is_found_whatever_case_its_name_is_written_in(arguments: dict[str, str]) -> None:
    assert tool_of(REVIEWER, TESTER).validate_tool_params({"prompt": "x", **arguments}).subagent_type == "Reviewer"


@pytest.mark.requirement("task.agents")
def test_an_exact_name_is_preferred_to_one_in_another_case() -> None:
    tool = tool_of(REVIEWER, replace(TESTER, name="reviewer"))
    assert tool.validate_tool_params({"prompt": "x", "subagent_type": "reviewer"}).subagent_type == "reviewer"
    with pytest.raises(InvalidToolParamsError):
        tool.validate_tool_params({"prompt": "x", "subagent_type": "REVIEWER"})


@pytest.mark.requirement("task.agents")
@pytest.mark.parametrize(
    "arguments",
    [
        {"prompt": "x"},
        {"prompt": "x", "subagent_type": "writer"},
        {"prompt": "x", "subagent_type": ""},
        {"prompt": "x", "subagent_type": 5},
        {"prompt": " ", "subagent_type": "tester"},
        {"prompt": "a\0b", "subagent_type": "tester"},
        {"prompt": "x" * (MAX_PROMPT_CHARS + 1), "subagent_type": "tester"},
        {"subagent_type": "tester"},
    ],
    ids=lambda arguments: str(arguments)[:40],
)
def test_a_task_without_an_agent_or_a_prompt_is_refused(arguments: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidToolParamsError) as error_info:
        tool_of(REVIEWER, TESTER).validate_tool_params(arguments)
    if arguments.get("subagent_type", "") in ("", "writer") and arguments.get("prompt") == "x":
        assert "Reviewer, tester" in error_info.value.message


@pytest.mark.requirement("task.consent")
async def test_a_person_is_shown_the_agent_its_command_line_and_the_whole_task(context: ToolContext) -> None:
    agent = replace(REVIEWER, args=("--model", "big one", "--api-key=sk-ant-api03-abcdefghijklmnopqrstuvwxyz"))
    tool = tool_of(agent)
    params = tool.validate_tool_params({"prompt": "Look\u202e here.\nThen there.", "description": "Look around"})
    details = await tool.should_confirm_execute(params, context)
    text = render_question(Question(tool.get_description(params, context), details, ""))
    assert "The model says: Look around" in text
    assert "the agent Reviewer, which runs outside the sandbox" in text
    assert "review --model 'big one' --api-key=" in text
    assert "abcdefghijklmnopqrstuvwxyz" not in text
    assert "Look<U+202E> here.\nThen there.\n" in text


@pytest.mark.requirement("task.consent")
async def test_an_answer_is_bound_to_the_command_line_that_was_shown(context: ToolContext) -> None:
    params = tool_of(REVIEWER).validate_tool_params({"prompt": "x"})
    before = await tool_of(REVIEWER).should_confirm_execute(params, context)
    after = await tool_of(replace(REVIEWER, args=("--all",))).should_confirm_execute(params, context)
    assert isinstance(before, ExecConfirmation)
    assert before.state != after.state


@pytest.mark.requirement("task.consent")
@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (ApprovalMode.PLAN, ToolErrorType.EXECUTION_DENIED),
        (ApprovalMode.DEFAULT, ToolErrorType.EXECUTION_DENIED),
        (ApprovalMode.AUTO_EDIT, ToolErrorType.EXECUTION_DENIED),
        (ApprovalMode.YOLO, None),
    ],
)
async def test_a_task_needs_consent_unless_everything_is_allowed(
    mode: ApprovalMode, code: ToolErrorType | None, agents: Agents, root: Path
) -> None:
    registry = ToolRegistry()
    registry.register_tool(agents.tool(script("touch made; echo done")))
    context = replace(agents.context, client=ClientState("test", mode))

    nobody = Person(Unavailable(client_decides=False, way_out="Set this."))
    result = await ToolRunner(registry, PermissionPolicy()).run(FunctionCall("Task", {"prompt": "x"}), context, nobody)
    assert isinstance(result, ToolResult)
    assert (result.error.code if result.error is not None else None) is code
    assert (root / "made").exists() is (code is None)


@pytest.mark.requirement("task.run")
async def test_without_a_workspace_nothing_is_run(agents: Agents) -> None:
    agents.context = replace(agents.context, workspace=Workspace([]))
    assert (await agents.error(script("echo x"))).code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("task.ended")
async def test_a_call_that_is_cancelled_already_starts_nothing(agents: Agents, root: Path) -> None:
    signal = AbortSignal()
    signal.abort()
    agents.context = replace(agents.context, signal=signal)
    assert (await agents.error(script("touch made"))).code is ToolErrorType.CANCELLED
    assert not (root / "made").exists()
