"""Calls of custom tools: what the call command receives, and how its output becomes the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.peers.discovery_commands import IMAGE
from tests.processes import until_ended
from tests.tables import all_cases
from tests.unit.discovery.custom_tools import CALL, CustomTools, custom_tools, text_of
from tests.unit.execution.shell import CEILING, ENVIRONMENT
from tests.waiting import until
from tools.contract.confirmation import InfoConfirmation
from tools.contract.tool_errors import InvalidToolParamsError, ToolErrorType
from tools.contract.tool_results import FileDataPart
from tools.discovery.custom_tool_call import FAILED

pytestmark = pytest.mark.anyio

AWKWARD_NAME = "größe 'n\" $(x)"
"""A tool name that a shell would change."""


@pytest.mark.requirement("discovered.call")
async def test_the_name_is_the_last_argument_and_the_arguments_are_json_on_standard_input(tools: CustomTools) -> None:
    arguments = {"text": 'it\'s "two"\nlines; $(rm -rf x)', "n": 1.5, "list": [None, {"ä": True}]}
    report = (await tools.call("tell", **arguments)).structured
    assert report is not None
    assert report["argv"] == ["tell"]
    assert json.loads(report["given"]) == arguments


@pytest.mark.requirement("discovered.call")
async def test_the_command_is_given_the_name_as_it_was_declared(tools: CustomTools) -> None:
    report = (await tools.call(AWKWARD_NAME)).structured
    assert report is not None
    assert report["argv"] == [AWKWARD_NAME]
    assert report["given"] == "{}"


@pytest.mark.requirement("discovered.call")
async def test_a_command_runs_in_the_operators_folder_with_the_environment_of_commands(
    tools: CustomTools, root: Path
) -> None:
    report = (await tools.call("tell")).structured
    assert report is not None
    assert report["folder"] == str(root)
    assert set(report["environment"]) <= {*ENVIRONMENT, "LC_CTYPE"}


@pytest.mark.requirement("discovered.call")
async def test_half_of_a_surrogate_pair_is_passed_as_an_escape(tools: CustomTools) -> None:
    assert text_of(await tools.call("echo", text="a\ud800")) == '{"text": "a\\ud800"}'


@pytest.mark.requirement("discovered.call.program")
async def test_a_relative_path_of_a_program_starts_from_the_operators_folder(root: Path, tmp_path: Path) -> None:
    program = root / "bin" / "call"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$2 of $1"\n')
    program.chmod(0o755)
    async with custom_tools(root, tmp_path, call_command=("bin/call", "ours")) as tools:
        assert text_of(await tools.call("one")) == "one of ours"


@pytest.mark.requirement("discovered.call.program")
async def test_a_program_named_alone_is_not_taken_from_the_workspace(root: Path, tmp_path: Path) -> None:
    program = root / "my-call"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = {"PATH": f"{root}:{ENVIRONMENT['PATH']}"}
    async with custom_tools(root, tmp_path, environment=environment, call_command=("my-call",)) as tools:
        error = await tools.error_of("one")
        assert error.code is ToolErrorType.DISCOVERED_TOOL_EXECUTION_ERROR
        assert "The program 'my-call', set in tools.callCommand, was not found on the PATH outside" in error.message
        assert "Exit Code: (none)" in error.message


@pytest.mark.requirement("discovered.call.program")
async def test_a_program_that_the_system_cannot_start_is_reported(root: Path, tmp_path: Path) -> None:
    program = root / "call"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    async with custom_tools(root, tmp_path, call_command=("./call",)) as tools:
        message = (await tools.error_of("one")).message
        assert "Error: The program 'call' was not started" in message
        assert "\nStdout: (empty)\nStderr: (empty)\n" in message


@pytest.mark.requirement("discovered.result.text")
async def test_the_output_of_a_tool_is_its_result(tools: CustomTools) -> None:
    result = await tools.call("verdict", text="plain\n  text [1]")
    assert text_of(result) == "plain\n  text [1]"
    assert result.structured is None
    assert result.facts["exitCode"] == 0


@pytest.mark.requirement("discovered.result.text")
async def test_standard_error_is_shown_if_standard_output_is_empty(tools: CustomTools) -> None:
    assert text_of(await tools.call("whisper")) == "Stdout: (empty)\nStderr: all is well"


@pytest.mark.requirement("discovered.result")
async def test_a_json_object_is_structured_content_too(tools: CustomTools) -> None:
    result = await tools.call("verdict", text='{"a": [1, "ä"]}')
    assert result.structured == {"a": [1, "ä"]}
    assert text_of(result) == '{"a": [1, "ä"]}'


TEXTS = ("[1, 2]", '{"a": NaN}', '{"a": 1e999}', '{"a": 1} more', '{"a": "\\ud800"}', '{"a":' * 60 + "1" + "}" * 60)


@pytest.mark.requirement("discovered.result")
async def test_output_that_is_no_object_or_cannot_be_passed_on_stays_text(tools: CustomTools) -> None:
    with all_cases() as case:
        for text in TEXTS:
            with case(text):
                result = await tools.call("verdict", text=text)
                assert text_of(result) == text
                assert result.structured is None
                assert result.verbatim is None


@pytest.mark.requirement("discovered.result")
async def test_a_long_object_is_not_sent_twice(tools: CustomTools) -> None:
    text = json.dumps({"a": "x" * 8_000})
    result = await tools.call("verdict", text=text)
    assert text_of(result) == text
    assert result.structured is None


@pytest.mark.requirement("discovered.result")
async def test_mcp_content_passes_through(tools: CustomTools) -> None:
    result = await tools.call("mixed")
    assert result.verbatim == {
        "content": [{"type": "text", "text": "see:"}, {"type": "image", "data": IMAGE, "mimeType": "image/png"}],
        "structuredContent": {"count": 2},
    }


@pytest.mark.requirement("discovered.result")
async def test_an_mcp_error_result_stays_an_error(tools: CustomTools) -> None:
    output = {"content": [{"type": "text", "text": "no such ticket", "extra": 1}], "isError": True}
    result = await tools.call("verdict", text=json.dumps(output))
    assert result.verbatim == {"content": [{"type": "text", "text": "no such ticket"}], "isError": True}


NEAR_CONTENT: list[Any] = [
    {"content": "a string"},
    {"content": []},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "video", "data": IMAGE}]},
    {"content": [{"type": "image", "data": "not base64!", "mimeType": "image/png"}]},
    {"content": [{"type": "resource", "resource": {"uri": "x:y"}}]},
    {"content": [{"type": "text", "text": "a"}], "isError": "no"},
    {"content": [{"type": "text", "text": "a"}], "title": "an article"},
]


@pytest.mark.requirement("discovered.result")
async def test_an_object_that_only_looks_like_mcp_content_is_an_object(tools: CustomTools) -> None:
    with all_cases() as case:
        for output in NEAR_CONTENT:
            with case(output):
                result = await tools.call("verdict", text=json.dumps(output))
                assert result.verbatim is None
                assert result.structured == output


@pytest.mark.requirement("discovered.result.text")
async def test_both_ends_of_a_long_output_are_shown_with_the_file(tools: CustomTools) -> None:
    result = await tools.call("lines", count=10_000)
    assert isinstance(result.llm_content, list)
    link = result.llm_content[1]
    assert isinstance(link, FileDataPart)
    text = text_of(result)
    assert text.startswith(
        "Note: the output is 98.9 kB long, and only its beginning and its end are shown. All of it is in "
    )
    assert text.endswith("\nline 9999")
    assert len(text) < 41_000
    assert Path(result.facts["outputFile"]).read_text().startswith("line 0\nline 1\n")


@pytest.mark.requirement("discovered.result.text")
async def test_long_text_in_mcp_content_is_cut_and_the_file_is_named(tools: CustomTools) -> None:
    blocks = [{"type": "text", "text": "x" * 30_000}, {"type": "text", "text": "y" * 30_000}]
    result = await tools.call("verdict", text=json.dumps({"content": blocks}))
    assert result.verbatim is not None
    first, second = result.verbatim["content"]
    assert first["text"] == "x" * 30_000
    assert second["text"].startswith("y" * 10_000 + "\n[... cut here, the whole output is in /")


@pytest.mark.requirement("discovered.result.text")
async def test_binary_output_is_not_shown(tools: CustomTools) -> None:
    result = await tools.call("bytes")
    assert "it is not text" in text_of(result)
    assert Path(result.facts["outputFile"]).read_bytes() == bytes(range(256)) * 4


@pytest.mark.requirement("discovered.failure")
async def test_a_failure_is_reported_in_five_labelled_lines(tools: CustomTools) -> None:
    error = await tools.error_of("fail")
    assert error.code is ToolErrorType.DISCOVERED_TOOL_EXECUTION_ERROR
    assert error.message.splitlines()[1:] == [
        "Stdout: half done",
        "Stderr: no more room",
        f"Error: {FAILED}",
        "Exit Code: 3",
        "Signal: (none)",
    ]


@pytest.mark.requirement("discovered.failure")
async def test_a_signal_is_reported(tools: CustomTools) -> None:
    message = (await tools.error_of("kill")).message
    assert message.endswith(f"Stdout: (empty)\nStderr: (empty)\nError: {FAILED}\nExit Code: (none)\nSignal: SIGKILL")


@pytest.mark.requirement("discovered.failure")
async def test_output_on_standard_error_is_a_failure_only_in_strict_mode(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, strict=True) as tools:
        message = (await tools.error_of("verdict", text="fine")).message
        assert "Stdout: fine\nStderr: a word beside\nError: it wrote to standard error" in message
        assert "Exit Code: 0" in message
        assert text_of(await tools.call("echo")) == "{}"


@pytest.mark.requirement("discovered.limits")
async def test_a_tool_that_takes_too_long_is_ended_with_all_its_processes(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with custom_tools(root, tmp_path, call_seconds=1.0) as tools:
        message = (await tools.error_of("linger", file=str(file))).message
        assert "Error: it took longer than 1 s (tools.callTimeout) and was stopped" in message
        await until_ended(map(int, file.read_text().split()))


@pytest.mark.requirement("discovered.limits")
async def test_a_cancelled_call_ends_all_its_processes(tools: CustomTools, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    tool = await tools.tool("linger")
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as group:
            group.start_soon(tool.execute, {"file": str(file)}, tools.context)
            await until(lambda: file.exists() and file.read_text().endswith("\n"))
            group.cancel_scope.cancel()
    await until_ended(map(int, file.read_text().split()))


@pytest.mark.requirement("discovered.limits")
async def test_processes_that_a_tool_leaves_behind_are_ended(tools: CustomTools) -> None:
    await until_ended([int(text_of(await tools.call("leave")))])


@pytest.mark.requirement("discovered.failure")
async def test_lines_on_standard_error_are_progress(tools: CustomTools, tmp_path: Path) -> None:
    file = tmp_path / "go"
    tool = await tools.tool("steps")
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as group:
            group.start_soon(tool.execute, {"file": str(file)}, tools.context)
            await until(lambda: "step one" in tools.progress_messages)
            file.touch()


@pytest.mark.requirement("discovered.arguments")
async def test_arguments_are_checked_against_the_schema(tools: CustomTools) -> None:
    tool = await tools.tool(
        "echo",
        type="object",
        properties={"count": {"type": "integer", "maximum": 9}, "kind": {"enum": ["a", "b"]}},
        required=["count"],
        additionalProperties=False,
    )
    for arguments, problem in (
        ({}, "'count' is a required property."),
        ({"count": 10}, "'count' must satisfy maximum 9, got 10."),
        ({"count": "many"}, '\'count\' must satisfy type "integer", got "many".'),
        ({"count": 1, "kind": "c"}, '\'kind\' must satisfy enum ["a", "b"], got "c".'),
        ({"count": 1, "other": 1}, "Additional properties are not allowed ('other' was unexpected)."),
    ):
        with pytest.raises(InvalidToolParamsError) as refusal:
            tool.validate_tool_params(arguments)
        assert refusal.value.message.endswith(f"nothing was done: {problem} Accepted: count, kind.")


@pytest.mark.requirement("discovered.arguments")
async def test_values_written_as_text_are_converted_to_the_types_of_the_schema(tools: CustomTools) -> None:
    types = {"n": "integer", "b": "boolean", "o": "object", "s": "string", "l": "array"}
    tool = await tools.tool("echo", type="object", properties={name: {"type": kind} for name, kind in types.items()})
    arguments = {"n": "7", "b": "true", "o": '{"a": 1}', "s": "5", "l": None}
    assert tool.validate_tool_params(arguments) == {"n": 7, "b": True, "o": {"a": 1}, "s": "5"}


@pytest.mark.requirement("discovered.arguments")
async def test_very_many_values_are_checked_before_anything_runs(tools: CustomTools) -> None:
    tool = await tools.tool("echo", type="object", properties={"rows": {"items": {"type": "integer"}}})
    rows: list[Any] = [*range(5_000), "x"]
    params = tool.validate_tool_params({"rows": rows})
    process_count = len(tools.starter.processes)
    with pytest.raises(InvalidToolParamsError, match=r"'rows\.5000' must satisfy type"):
        await tool.execute(params, tools.context)
    assert len(tools.starter.processes) == process_count
    assert json.loads(text_of(await tool.execute({"rows": rows[:100]}, tools.context))) == {"rows": rows[:100]}


@pytest.mark.requirement("discovered.consent")
async def test_the_question_shows_the_command_the_tool_and_all_arguments(tools: CustomTools) -> None:
    tool = await tools.tool("echo")
    details = await tool.should_confirm_execute({"path": "a\nb"}, tools.context)
    assert isinstance(details, InfoConfirmation)
    assert f"Command: {' '.join(CALL)} echo\n" in details.prompt
    assert '"path": "a\\nb"' in details.prompt
    assert tool.get_description({"path": 1}, tools.context) == "Run the custom tool echo (path)"


@pytest.mark.requirement("discovered.consent")
async def test_secrets_in_the_command_are_not_shown(root: Path, tmp_path: Path) -> None:
    async with custom_tools(root, tmp_path, call_command=("curl", "--token", "abcdefgh12345678")) as tools:
        tool = await tools.tool("echo")
        details = await tool.should_confirm_execute({}, tools.context)
        assert isinstance(details, InfoConfirmation)
        assert "abcdefgh" not in details.prompt
        assert "abcdefgh" not in tool.description


@pytest.mark.requirement("discovered.consent")
async def test_clients_are_told_that_a_custom_tool_may_do_anything(tools: CustomTools) -> None:
    tool = await tools.tool("echo")
    behaviour = tool.behaviour
    assert (behaviour.read_only, behaviour.destructive, behaviour.idempotent, behaviour.open_world) == (
        False,
        True,
        False,
        True,
    )
    assert set(tool.rule_names) == {"echo", "discovered_tool_echo", "DiscoveredTool"}
    assert tool.description.startswith("A tool.\n\nThis is a custom tool")
