"""How the tools treat parameters of other agents' tools, and calls of frameworks that send every parameter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import each_of
from tools.agent_programs import AgentCommand
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import BuiltinTool
from tools.contract.tool_errors import InvalidToolParamsError
from tools.shell.command_runner import ProgramRunner


def no_runner() -> ProgramRunner:
    raise NotImplementedError("nothing is run here")


TOOLS: dict[str, BuiltinTool[Any]] = {
    tool.name: tool
    for tool in builtin_tools(agents=[AgentCommand(name="reviewer", command="r", description="")], programs=no_runner)
    if isinstance(tool, BuiltinTool)
}
WRITE = {"file_path": "a.md", "content": "x\n"}
EDIT = {"file_path": "a.md", "old_string": "x", "new_string": "y"}
RUN = {"command": "true"}
TODO = {"id": "1", "content": "a", "status": "pending"}


@pytest.mark.requirement("params.unknown")
@each_of(
    "tool, arguments, advice",
    [
        ("write_file", {**WRITE, "append": True}, "To append, use edit"),
        ("write_file", {**WRITE, "append": "true"}, "To append, use edit"),
        ("write_file", {**WRITE, "mode": "append"}, "To append, use edit"),
        ("write_file", {**WRITE, "mode": "a"}, "To append, use edit"),
        ("write_file", {**WRITE, "mode": "x"}, "an empty old_string"),
        ("write_file", {**WRITE, "overwrite": False}, "an empty old_string"),
        ("write_file", {**WRITE, "createOnly": True}, "an empty old_string"),
        ("write_file", {**WRITE, "insert_line": 3}, "give the lines at that place as old_string"),
        ("write_file", {**WRITE, "create_dirs": False}, "Missing folders are created"),
        ("write_file", {**WRITE, "dry_run": True}, "There is no dry run"),
        ("write_file", {**WRITE, "expectedSha": "0"}, "did you mean 'expected_sha256'?"),
        ("write_file", {**WRITE, "append": 1}, "To append, use edit"),
        ("write_file", {**WRITE, "appendMode": True}, "To append, use edit"),
        ("write_file", {**WRITE, "is_append": "yes"}, "To append, use edit"),
        ("write_file", {**WRITE, "append-mode": True}, "To append, use edit"),
        ("write_file", {**WRITE, "flag": "a"}, "To append, use edit"),
        ("write_file", {**WRITE, "overwrite": 0}, "an empty old_string"),
        ("edit", {**EDIT, "use_regex": True}, "old_string is literal text"),
        ("run_shell_command", {**RUN, "timeout": 5, "timeout_seconds": 5}, "was given too"),
        ("run_shell_command", {**RUN, "wait": False}, "is_background"),
        ("edit", {**EDIT, "dryRun": True}, "There is no dry run"),
        ("edit", {**EDIT, "start_line": 1, "replace_all": True}, "give the lines at that place as old_string"),
        ("edit", {**EDIT, "regex": True}, "old_string is literal text"),
        ("edit", {**EDIT, "edits": [{"old_string": "b"}]}, "once for each"),
        ("edit", {**EDIT, "occurrence": 2}, "Accepted: file_path, old_string"),
        ("run_shell_command", {**RUN, "dry_run": True}, "such as --dry-run"),
        ("run_shell_command", {**RUN, "env": {"A": "b"}}, "NAME=value"),
        ("run_shell_command", {**RUN, "with_escalated_permissions": True}, "Set 'needs'"),
        ("save_memory", {"fact": "a", "dry_run": True}, "There is no dry run"),
        ("undo_change", {"preview": True}, "There is no dry run"),
        ("undo_change", {"path": "a.md"}, "Accepted: change_id"),
        ("stop_background_job", {"job_id": "bg_1", "signal": "INT"}, "Accepted: job_id"),
        ("todo_write", {"todos": [TODO], "merge": True}, "give all todos"),
        ("todo_write", {"todos": [{**TODO, "due": "now"}]}, "'todos[0].due' is not a parameter"),
        ("task", {"prompt": "a", "run_in_background": True}, "waits for the agent's answer"),
        ("web_fetch", {"url": "https://a.example/", "method": "POST"}, "Only GET"),
        ("web_search", {"query": "a", "allowed_domains": ["a.example"]}, "Accepted: query"),
        ("exit_plan_mode", {"plan": "a", "mode": "yolo"}, "Accepted: plan"),
        ("enter_plan_mode", {"plan": "a"}, "Accepted: nothing."),
    ],
)
def test_a_parameter_that_could_limit_a_change_is_refused_with_advice(
    tool: str, arguments: dict[str, Any], advice: str
) -> None:
    with pytest.raises(InvalidToolParamsError) as error:
        TOOLS[tool].validate_tool_params(arguments)
    assert "nothing was done" in error.value.message
    assert f"is not a parameter of {tool}" in error.value.message
    assert advice in error.value.message


@pytest.mark.requirement("params.unknown")
@each_of(
    "tool, arguments, equivalent",
    [
        ("write_file", {**WRITE, "append": False, "overwrite": True, "dry_run": False, "mode": "w"}, WRITE),
        ("write_file", {**WRITE, "append": "False", "create_dirs": True, "wait_for_previous": True}, WRITE),
        ("write_file", {**WRITE, "description": "why", "explanation": "why", "create_only": None}, WRITE),
        ("write_file", {**WRITE, "append": 0, "dry_run": 0, "overwrite": 1, "expected_sha256": 0}, WRITE),
        ("write_file", {**WRITE, "security_risk": "LOW", "summary": "a", "toolCallId": "a"}, WRITE),
        ("edit", {**EDIT, "replace_all": 0}, EDIT),
        ("edit", {**EDIT, "replace_all": 1}, {**EDIT, "replace_all": True}),
        ("edit", {**EDIT, "use_regex": False}, EDIT),
        ("read_file", {"path": "a", "pages": 0}, {"path": "a"}),
        ("list_directory", {"path": ".", "ignore": 0, "file_filtering_options": 0}, {"path": "."}),
        ("run_shell_command", {**RUN, "background": True}, {**RUN, "is_background": True}),
        ("run_shell_command", {**RUN, "shell": "bash", "blocking": True, "interactive": None}, RUN),
        ("run_shell_command", {**RUN, "timeout_seconds": 5}, {**RUN, "timeout": 5000}),
        ("run_shell_command", {**RUN, "timeoutSeconds": "0.5"}, {**RUN, "timeout": 500}),
        ("stop_background_job", {"job_id": "bg_1", "force": True}, {"job_id": "bg_1"}),
        ("todo_write", {"todos": [{**TODO, "priority": "high"}]}, {"todos": [TODO]}),
        ("write_file", {"filePath": "a.md", "content": "x\n"}, WRITE),
        ("write_file", {"path": "a.md", "file_text": "x\n"}, WRITE),
        ("edit", {**EDIT, "instruction": "do", "expected_replacements": 1}, {**EDIT, "expected_replacements": 1}),
        ("edit", {"path": "a.md", "oldText": "x", "newText": "y", "dryRun": False}, EDIT),
        ("edit", {"path": "a.md", "old_str": "x", "new_str": "y"}, EDIT),
        ("edit", {"filePath": "a.md", "oldString": "x", "newString": "y", "replaceAll": False}, EDIT),
        ("run_shell_command", {**RUN, "run_in_background": True}, {**RUN, "is_background": True}),
        ("run_shell_command", {**RUN, "timeout_ms": 5, "wait_for_previous": True}, {**RUN, "timeout": 5}),
        ("run_shell_command", {**RUN, "justification": "a", "dangerouslyDisableSandbox": False}, RUN),
        ("save_memory", {"fact": "a", "modified_by_user": True, "modified_content": "b"}, {"fact": "a"}),
        ("todo_write", {"todos": [{**TODO, "activeForm": "doing"}], "merge": False}, {"todos": [TODO]}),
        ("todo_write", {"todos": [{"description": "a", "status": "pending"}]}, {"todos": [TODO]}),
        ("web_fetch", {"url": "https://a.example/", "raw": False, "method": "GET"}, {"url": "https://a.example/"}),
        ("read_file", {"path": "a", "start_line": 2, "end_line": 3}, {"path": "a", "offset": 1, "limit": 2}),
        ("read_file", {"path": "a", "pages": 4}, {"path": "a", "pages": "4"}),
        ("list_directory", {"dir_path": "."}, {"path": "."}),
        ("glob", {"pattern": "*", "respect_gemini_ignore": True}, {"pattern": "*", "respect_agent_ignore": True}),
        (
            "read_many_files",
            {"include": ["a"], "use_default_excludes": False},
            {"paths": ["a"], "useDefaultExcludes": 0},
        ),
        ("grep_search", {"pattern": "a", "-A": 1, "-B": 2}, {"pattern": "a", "after": 1, "before": 2}),
        ("grep_search", {"pattern": "a", "-C": 3, "head_limit": 4}, {"pattern": "a", "context": 3, "limit": 4}),
        (
            "grep_search",
            {"pattern": "a", "-n": True, "-i": True, "multiline": False, "head_limit": 0},
            {"pattern": "a"},
        ),
    ],
)
def test_other_spellings_and_requests_for_normal_behaviour_are_accepted_silently(
    tool: str, arguments: dict[str, Any], equivalent: dict[str, Any]
) -> None:
    tested_tool = TOOLS[tool]
    equivalent = {name: bool(value) if name == "useDefaultExcludes" else value for name, value in equivalent.items()}
    assert tested_tool.validate_tool_params(arguments) == tested_tool.validate_tool_params(equivalent)
    assert tested_tool.about_ignored(arguments) == ""


@pytest.mark.requirement("params.unknown")
@each_of(
    "tool, arguments, hint",
    [
        ("grep_search", {"pattern": "a", "type": "py"}, "Give glob: '*.py'."),
        ("grep_search", {"pattern": "a", "-i": False}, "case_sensitive"),
        ("read_file", {"path": "a", "offsett": 1}, "did you mean 'offset'?"),
        ("list_directory", {"path": ".", "file_filtering_options": {"respect": True}}, "respect' is not a parameter"),
    ],
)
def test_a_read_only_tool_says_which_parameters_it_ignored(tool: str, arguments: dict[str, Any], hint: str) -> None:
    TOOLS[tool].validate_tool_params(arguments)
    assert "was ignored" in TOOLS[tool].about_ignored(arguments)
    assert hint in TOOLS[tool].about_ignored(arguments)


@pytest.mark.requirement("params.unknown")
@each_of(
    "tool, arguments",
    [
        ("write_file", {**WRITE, "backup": False}),
        ("edit", {**EDIT, "fuzzy": "false"}),
        ("run_shell_command", {**RUN, "restart": 0}),
        ("run_shell_command", {**RUN, "requires_approval": False}),
    ],
)
def test_an_unknown_parameter_with_a_false_value_is_ignored_with_a_note(tool: str, arguments: dict[str, Any]) -> None:
    TOOLS[tool].validate_tool_params(arguments)
    assert f"'{list(arguments)[-1]}' is not a parameter of {tool} and was ignored" in TOOLS[tool].about_ignored(
        arguments
    )


@pytest.mark.requirement("params.unknown")
@each_of(
    "tool, arguments",
    [("read_file", {"path": "a"}), ("grep_search", {"pattern": "a"}), ("write_file", WRITE), ("edit", EDIT)],
)
def test_a_misspelled_parameter_gets_a_suggestion(tool: str, arguments: dict[str, Any]) -> None:
    tested_tool = TOOLS[tool]
    for name in tested_tool.parameter_schema["properties"].keys() - arguments.keys():
        for misspelling in (f"{name}s", f"the_{name}"):
            if tested_tool.behaviour.read_only:
                message = tested_tool.about_ignored({**arguments, misspelling: "?"})
            else:
                with pytest.raises(InvalidToolParamsError) as error:
                    tested_tool.validate_tool_params({**arguments, misspelling: "?"})
                message = error.value.message
            assert f"'{misspelling}' is not a parameter of {tool}" in message
            assert "did you mean" in message or "was given too" in message, message


@pytest.mark.requirement("params.empty")
@each_of(
    "tool, required_arguments",
    [
        ("list_directory", {"path": "."}),
        ("read_file", {"absolute_path": "/a"}),
        ("write_file", {"file_path": "a", "content": ""}),
        ("edit", {"file_path": "a", "old_string": "", "new_string": ""}),
        ("undo_change", {}),
        ("glob", {"pattern": "*"}),
        ("grep_search", {"pattern": "a"}),
        ("read_many_files", {"paths": ["a"]}),
        ("run_shell_command", RUN),
        ("read_background_output", {"job_id": "bg_1"}),
        ("web_fetch", {"url": "https://a.example/"}),
        ("web_search", {"query": "a"}),
        ("save_memory", {"fact": "a"}),
        ("task", {"prompt": "a"}),
    ],
)
def test_a_framework_may_send_every_parameter_with_an_empty_value(
    tool: str, required_arguments: dict[str, Any]
) -> None:
    tested_tool = TOOLS[tool]
    plain = tested_tool.validate_tool_params(required_arguments)
    properties = tested_tool.parameter_schema["properties"]
    assert set(tested_tool.parameter_schema.get("required", ())) <= required_arguments.keys()
    by_type: dict[str, Any] = {"string": "", "integer": 0, "array": [], "object": {}, "boolean": None}
    for blank_values in (
        {name: by_type[schema["type"]] for name, schema in properties.items()},
        dict.fromkeys(properties, ""),
    ):
        arguments = {**blank_values, **required_arguments}
        params = tested_tool.validate_tool_params(arguments)
        # Falsy values do not count: where 0 is valid, it is the default, except for the offset of a job's output.
        assert {name: value for name, value in params if value} == {name: value for name, value in plain if value}
        assert tested_tool.about_ignored(arguments) == ""


@pytest.mark.requirement("params.schema")
def test_every_object_in_a_published_schema_is_closed() -> None:
    def objects(schema: Any) -> list[Any]:
        inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
        return [
            *([schema] if schema.get("type") == "object" else []),
            *(inner_object for part in inner for inner_object in objects(part)),
        ]

    for tool in TOOLS.values():
        assert all(part["additionalProperties"] is False for part in objects(tool.parameter_schema)), tool.name
