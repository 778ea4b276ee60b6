"""The command line: tools, calls, usage errors and explanations, run as child processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import forked
from tests.forked_commands import run_forked
from tests.harness import LAUNCHER, PEERS, command_line, stdio_upstream, write_config
from tests.terminals import at_terminal


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_forked(arguments, cwd=cwd)


@pytest.mark.requirement("cli.tools")
def test_tools_lists_what_a_client_would_see_upstreams_included(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    result = run("tools", "--json", "--workspace", str(root), "--config", str(config))
    names = [tool["name"] for tool in json.loads(result.stdout)["tools"]]
    assert result.returncode == 0
    assert names[0] == "list_directory"
    assert {"demo__echo", "ask_user_question", "enter_plan_mode"} < set(names)
    planned = run("tools", "--json", "--workspace", str(root), "--approval-mode", "plan")
    names = [tool["name"] for tool in json.loads(planned.stdout)["tools"]]
    assert ("exit_plan_mode" in names, "enter_plan_mode" in names) == (True, False)


@pytest.mark.requirement("cli.tools")
def test_tools_tells_which_server_owns_each_name_and_why_a_tool_is_hidden(root: Path, tmp_path: Path) -> None:
    servers = {
        "one": stdio_upstream(prefix="none", includeTools=["echo", "fail"]),
        "two": stdio_upstream(prefix="none", includeTools=["echo", "steps"], rename={"steps": "walk"}),
        "three": stdio_upstream(includeTools=["odd name!", "echo"]),
    }
    config = write_config(tmp_path, {"mcpServers": servers})
    options = ["--workspace", str(root), "--config", str(config), "--no-builtin-tools"]
    text_run, json_run = run("tools", *options), run("tools", "--json", *options)
    assert (text_run.returncode, json_run.returncode) == (0, 0)
    lines = [line.split() for line in text_run.stdout.splitlines()]
    assert ["=", "echo", "of", "the", "server", "one"] in lines
    assert ["=", "steps", "of", "the", "server", "two;", "renamed"] in lines
    assert "= odd name! of the server three; changed, because clients accept" in text_run.stdout
    assert "of the server three\n" not in text_run.stdout
    conflict = "'echo' of the server two is not listed, because the name 'echo' belongs to 'echo' of the server one."
    assert f"Not listed:\n  {conflict} The unlisted item is reachable as 'two__echo'" in text_run.stdout
    findings = json.loads(run("doctor", "--json", *options).stdout)["findings"]
    texts = {(entry["subject"], entry["health"]): entry["text"] for entry in findings}
    assert texts["server two", "absent"].startswith(conflict)
    assert texts["server two", "ok"].endswith(" 1 tool")
    listing = json.loads(json_run.stdout)
    assert [tool["name"] for tool in listing["tools"]][:3] == ["echo", "fail", "walk"]
    assert listing["hidden"] == [
        {
            "name": "echo",
            "server": "two",
            "tool": "echo",
            "fullName": "two__echo",
            "holder": "'echo' of the server one",
            "reachedAs": "two__echo",
        }
    ]
    assert [(entry["tool"], entry["change"].split(",")[0]) for entry in listing["changed"]] == [
        ("steps", "renamed"),
        ("odd name!", "changed"),
    ]


@pytest.mark.requirement("policy.include")
def test_tools_can_be_selected_on_the_command_line_and_calls_follow_the_same_selection(
    root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    options = ["--workspace", str(root), "--config", str(config)]
    selection = ["--include-tools", "read_file,demo__*", "--exclude-tools", "demo__fail", "--no-prefix"]
    listing = json.loads(run("tools", "--json", *options, *selection).stdout)
    names = {tool["name"] for tool in listing["tools"]}
    assert {"read_file", "echo"} <= names
    assert not {"edit", "glob", "fail", "demo__echo"} & names
    assert "hi" in run("call", *options, *selection, "echo", "text=hi").stdout
    refusal = run("call", *options, *selection, "fail")
    assert refusal.returncode == 77
    assert "it went wrong" not in refusal.stdout


@pytest.mark.requirement("cli.tools")
def test_tools_tells_which_upstream_is_missing_and_fails(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"gone": {"command": "no-such-program-anywhere"}}})
    result = run("tools", "--workspace", str(root), "--config", str(config))
    assert result.returncode == 1
    assert "gone" in result.stderr
    assert "not found" in result.stderr
    assert "read_file" in result.stdout


@pytest.mark.requirement("cli.doctor")
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can give a folder to another user")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
def test_a_workspace_of_another_user_is_reported_if_the_server_runs_as_root(root: Path) -> None:
    os.chown(root, 65_534, -1)
    root.chmod(0o755)
    report = run("doctor", "--workspace", str(root))
    assert report.returncode == 1
    shown = re.sub(r"\s+", " ", report.stdout)
    assert "belongs to user 65534. In the sandbox, root may change other users' files only if everyone may" in shown
    command_result = run("call", "run_shell_command", "command=touch x", "--yes", "--workspace", str(root))
    assert "The workspace belongs to user 65534" in command_result.stdout
    assert "write its path in the command" not in command_result.stdout


@pytest.mark.requirement("cli.call")
def test_call_shows_a_result(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    result = run("call", "read_file", f"absolute_path={root / 'a.txt'}", "--workspace", str(root))
    assert result.returncode == 0
    assert "hello" in result.stdout


@pytest.mark.requirement("cli.call")
@pytest.mark.requirement("scratch.absent")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="not run: bubblewrap is missing here")
def test_a_call_refuses_to_write_into_tmp_and_names_the_file_that_its_command_left_there(outer_root: Path) -> None:
    folder = str(outer_root)
    refusal = run("call", "write_file", "file_path=/tmp/y", "content=x", "--workspace", folder)
    command_result = run("call", "run_shell_command", "command=echo hi > /tmp/y", "--workspace", folder)
    assert refusal.returncode != 0
    assert "This server ends with the call" in refusal.stdout
    assert "Deleted: /tmp/y." in command_result.stdout


@pytest.mark.requirement("cli.call")
def test_arguments_of_a_call_may_stand_after_options(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    result = run("call", "--workspace", str(root), "read_file", "--approval-mode", "plan", "file_path=a.txt")
    assert result.returncode == 0
    assert "hello" in result.stdout


@pytest.mark.requirement("cli.call")
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_file_of_a_long_output_outlives_the_call_that_names_it(root: Path, form: str) -> None:
    command = ["run_shell_command", "command=seq 1 200000", "--yes", "--output", form]
    result = run("call", *command, "--workspace", str(root))
    assert result.returncode == 0, result.stderr
    (path,) = set(re.findall(rf"{tempfile.gettempdir()}/coretools-mcp-[\w/.-]*\.txt", result.stdout))
    try:
        assert Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 200_001))
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    finally:
        Path(path).unlink()


@pytest.mark.requirement("cli.call")
def test_a_call_reports_processes_left_running_and_loses_no_line_of_output(root: Path) -> None:
    line = "Background Jobs: 3 (three of them)"
    (root / "a.txt").write_text(f"{line}\n")
    reading = run("call", "read_file", "file_path=a.txt", "--workspace", str(root))
    assert (line in reading.stdout, reading.stderr) == (True, "")
    command = "cat a.txt; sleep 300 > /dev/null 2>&1 &"
    leftover = run("call", "run_shell_command", f"command={command}", "--yes", "--workspace", str(root))
    assert leftover.returncode == 0, leftover.stderr
    assert leftover.stdout == f"Output:\n{line}\n"
    assert leftover.stderr.count("processes that the command left running are stopped when this call ends") == 1


@pytest.mark.requirement("cli.call")
def test_a_call_starts_only_the_server_of_its_tool_and_shows_its_whole_result(root: Path, tmp_path: Path) -> None:
    large_entry = {"command": sys.executable, "args": ["-S", str(PEERS / "large_upstream.py")], "trust": True}
    other_entry = {"command": "sh", "args": ["-c", f"touch {tmp_path}/started; sleep 100"]}
    settings = {"mcpServers": {"other": other_entry, "large": large_entry}, "limits": {"resultChars": 1_000}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    result = run("call", "large__run", "count=200000", *options)
    assert (result.returncode, result.stdout) == (0, f"{'x' * 200_000}\n"), result.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.requirement("cli.call")
def test_simultaneous_questions_of_an_upstream_are_asked_one_after_the_other(root: Path, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": forked([str(PEERS / "asking_upstream.py"), "handshake"]), "trust": True}
    config = write_config(tmp_path, {"mcpServers": {"up": entry}})
    questions = [
        {
            "method": "elicitation/create",
            "params": {
                "message": f"{name}?",
                "requestedSchema": {"properties": {"is": {"type": "string", "title": name}}},
            },
        }
        for name in ("First", "Second")
    ]
    arguments = json.dumps({"questions": questions})
    call = command_line(
        *("call", "up__ask", f"--arguments={arguments}", "--workspace", str(root), "--config", str(config))
    )
    code, output = at_terminal(call, answers=[(b"First: ", b"one\n"), (b"Second: ", b"two\n")])
    assert code == 0, output
    assert output.index("First: one") < output.index("Second?")
    assert '"content": {"is": "one"}' in output
    assert '"content": {"is": "two"}' in output


@pytest.mark.requirement("cli.call")
def test_call_takes_arguments_as_json(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    result = run("call", "glob", "--arguments", '{"pattern": "*.txt"}', "--workspace", str(root))
    assert result.returncode == 0
    assert "a.txt" in result.stdout


@pytest.mark.requirement("cli.call")
def test_call_refuses_a_change_if_nobody_can_answer(root: Path) -> None:
    path = root / "new.txt"
    result = run("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    assert result.returncode == 77
    assert "Use --yes" in result.stderr
    assert not path.exists()


QUESTIONS = [
    {"header": "Colour", "question": "Which one?", "options": [{"label": "red"}, {"label": "blue"}]},
    {
        "header": "Sizes",
        "question": "Which ones?",
        "options": [{"label": "small"}, {"label": "large"}],
        "multiSelect": True,
    },
]


@pytest.mark.requirement("cli.call")
def test_every_question_of_a_form_is_answered_at_the_terminal(root: Path) -> None:
    call = ("call", "ask_user_question", "--arguments", json.dumps({"questions": QUESTIONS}), "--workspace", str(root))
    answers = [(b"Colour [1-3]: ", b"2\n"), (b"Sizes [1-3, several separated by commas]: ", b"1, 2\n")]
    code, output = at_terminal(command_line(*call), answers=answers)
    assert code == 0, output
    summary = output.rpartition("several separated by commas]: ")[2]
    assert "Colour: blue" in summary
    assert "Sizes: small, large" in summary


@pytest.mark.requirement("cli.call")
def test_a_form_that_is_aborted_answers_nothing(root: Path) -> None:
    call = ("call", "ask_user_question", "--arguments", json.dumps({"questions": QUESTIONS}), "--workspace", str(root))
    _, output = at_terminal(command_line(*call), answers=[(b"Colour [1-3]: ", b"\x04")])
    assert "Traceback" not in output
    assert "Sizes [" not in output


@pytest.mark.requirement("cli.call")
def test_task_without_agents_says_which_setting_is_missing(root: Path) -> None:
    result = run("call", "task", "prompt=x", "--workspace", str(root))
    assert result.returncode == 64
    assert "no agent is configured" in result.stderr


def custom_tools(tmp_path: Path) -> dict[str, Any]:
    declarations = tmp_path / "declared.json"
    declarations.write_text(json.dumps([{"name": "echo", "description": "Says it again.", "parameters": {}}]))
    command = [sys.executable, str(PEERS / "discovery_commands.py")]
    return {"tools": {"discoveryCommand": [*command, "list", str(declarations)], "callCommand": [*command, "call"]}}


@pytest.mark.requirement("cli.call")
def test_a_custom_tool_is_listed_and_called(root: Path, tmp_path: Path) -> None:
    config = write_config(
        tmp_path, {**custom_tools(tmp_path), "approvalMode": "default", "permissions": {"allow": ["echo"]}}
    )
    options = ("--workspace", str(root), "--config", str(config))
    listing = run("tools", *options)
    assert (listing.returncode, "echo" in listing.stdout) == (0, True)
    result = run("call", "echo", "text=hello", *options)
    assert (result.returncode, "hello" in result.stdout) == (0, True), result.stderr


@pytest.mark.requirement("cli.tools")
def test_tools_fails_if_the_custom_tools_cannot_be_discovered(root: Path, tmp_path: Path) -> None:
    settings = {"tools": {"discoveryCommand": [sys.executable, "-c", "raise SystemExit(3)"], "callCommand": "x"}}
    result = run("tools", "--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    assert result.returncode == 1
    assert "coretools-mcp: custom tools: The discovery command failed with exit code 3" in result.stderr
    assert "read_file" in result.stdout


@pytest.mark.requirement("cli.call")
def test_call_prints_each_warning_about_the_settings_once(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcp": {"excluded": ["nobody"]}})
    result = run("call", "glob", "pattern=*", "--workspace", str(root), "--config", str(config))
    assert result.returncode == 0
    assert result.stderr.count('mcp.excluded names "nobody"') == 1


@pytest.mark.requirement("cli.call")
def test_call_of_an_unknown_tool_suggests_the_nearest_name(root: Path) -> None:
    result = run("call", "read_fil", "--workspace", str(root))
    assert result.returncode == 64
    assert "read_file" in result.stderr


@pytest.mark.requirement("cli.usage")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("serve", "--workspace", "/no/such/folder/anywhere"), "not an existing folder"),
        (("serve", "--config", "/no/such/file.json"), "/no/such/file.json"),
        (("unheard-of",), "there is no command 'unheard-of'"),
        (("tols",), "Did you mean tools?"),
        (("tools", "--include-tol", "x", "--jsn"), "--json"),
        (("serve", "--port", "0"), "--port has no effect"),
        (("trust", "--list", "--yes"), "--yes has no effect"),
        (("undo", "last"), "expected a number, got 'last'"),
    ],
)
def test_wrong_usage_prints_one_sentence_and_ends_with_exit_code_2(arguments: tuple[str, ...], expected: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("cli.usage")
def test_a_bad_settings_file_names_file_key_and_expected_value(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"readLines": "many"}})
    result = run("serve", "--config", str(config))
    assert result.returncode == 2
    for expected in (str(config), "limits.readLines", "many"):
        assert expected in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("cli.usage")
def test_a_port_in_use_prints_one_sentence_and_ends_with_exit_code_3(root: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        result = run("serve", "--transport", "http", "--port", port, "--workspace", str(root))
    assert result.returncode == 3
    assert "in use" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.requirement("cli.usage")
def test_an_address_that_is_not_loopback_is_refused_without_a_token(root: Path) -> None:
    result = run("serve", "--transport", "http", "--host", "0.0.0.0", "--workspace", str(root))  # noqa: S104
    assert result.returncode == 3
    assert "CORETOOLS_MCP_TOKEN" in result.stderr


@pytest.mark.requirement("cli.usage")
@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "ü..x"])
def test_an_address_that_this_machine_does_not_have_prints_one_sentence_and_ends_with_exit_code_3(
    host: str, root: Path
) -> None:
    token = {"CORETOOLS_MCP_TOKEN": "t" * 32}
    arguments = ("serve", "--transport", "http", "--host", host, "--workspace", str(root))
    result = run_forked(arguments, env=os.environ | token)
    assert result.returncode == 3
    assert "this machine has no such address" in result.stderr
    assert "--host" in result.stderr


@pytest.mark.requirement("cli.explain")
def test_explain_shows_the_decision_for_each_part_and_runs_nothing(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"permissions": {"deny": ["Bash(rm)"]}})
    options = ("--workspace", str(root), "--config", str(config))
    result = run("permissions", "explain", "Bash(touch made; git log && rm -rf x)", "--json", *options)
    assert result.returncode == 0
    explanation = json.loads(result.stdout)
    assert explanation["verdict"] == "deny"
    assert [(part["part"], part["verdict"]) for part in explanation["parts"]] == [
        ("touch made", "ask"),
        ("git log", "allow"),
        ("rm -rf x", "deny"),
    ]
    assert not (root / "made").exists()
    file_explanation = run("permissions", "explain", "write_file", "file_path=.git/hooks/x", "content=x", *options)
    assert file_explanation.stdout.startswith("ask: ")
    assert "hooks" in file_explanation.stdout
    unknown_tool = run("permissions", "explain", "Nothing(x)", *options)
    assert unknown_tool.returncode == 2
    assert "'Bash(git push)'" in run("permissions", "explain", "git push", *options).stderr


@pytest.mark.requirement("cli.explain")
def test_explain_accepts_rules_as_arguments(root: Path) -> None:
    def verdict(rule: str) -> str:
        result = run("permissions", "explain", rule, "--workspace", str(root))
        return result.stdout.partition("\n")[0] or result.stderr

    verdicts = {
        "WebFetch(domain:example.org)": "ask: web_fetch needs",
        "WebFetch(*.example.org)": "ask: web_fetch needs",
        "Bash(git:*)": "ask: 'git' is not known",
        "Edit(docs/**)": "ask: write_file needs",
        "Read(//etc/hostname)": "allow: ",
        "Glob(src)": "allow: ",
        "run_shell_command(git push)": "ask: 'git push' needs the network",
        "mcp__docs__search": "coretools-mcp: there is no tool 'docs__search'. coretools-mcp tools lists",
    }
    assert {rule: verdict(rule)[: len(expected)] for rule, expected in verdicts.items()} == verdicts


@pytest.mark.requirement("cli.general-options")
def test_general_options_may_precede_the_command_and_help_shows_them_last(root: Path) -> None:
    (root / "call").mkdir()
    (root / "call" / "a.md").write_text("")
    matches = run("--workspace", str(root / "call"), "--color=never", "call", "glob", "pattern=*.md")
    assert (matches.returncode, "a.md" in matches.stdout) == (0, True), matches.stderr
    assert run("--approval-mode", "plan", "permissions", "explain", "Edit(x)").stdout.startswith("deny: plan mode")
    assert "there is no option --workspace here" in run("--workspace", str(root), "trust", "--list").stderr
    help_text = run("undo", "--help").stdout
    assert help_text.index("--forget") < help_text.index("--workspace")


@pytest.mark.requirement("cli.one-refusal")
def test_a_call_that_nobody_can_confirm_is_refused_with_one_message(root: Path) -> None:
    refusal = run("call", "write_file", "file_path=a", "content=x", "--workspace", str(root))
    assert (refusal.returncode, refusal.stdout) == (77, "")
    assert refusal.stderr.count("Use --yes") == 1
    assert "declined" not in refusal.stderr
    assert "Index:" not in refusal.stderr
    assert run("call", "glob", "--workspace", str(root)).returncode == 64, "an argument is missing"
    undo_refusal = run("undo", "99", "--workspace", str(root))
    assert "run coretools-mcp changes to see" in undo_refusal.stderr


@pytest.mark.requirement("cli.explain")
@pytest.mark.parametrize(
    ("call", "mode", "answers"),
    [
        (["Bash(make all)"], [], {"always": ["Bash(make all *)"], "always_sandboxed": ["Sandboxed"]}),
        (["Bash(git push origin main)"], [], {"always": ["Bash(git push *)"]}),
        (["Edit(a.txt)"], [], {"always": ["Edit(/ROOT)"]}),
        (["demo__echo", "text=x"], [], {"always": ["demo__echo"], "always_server": ["demo__*"]}),
        (["exit_plan_mode", "plan=x"], ["--approval-mode", "plan"], {"always": []}),
        (["write_file", "file_path=.git/hooks/x", "content=x"], [], {}),
    ],
    ids=["a command", "a network command", "an edit", "an upstream's tool", "a plan", "what is always asked"],
)
def test_explain_shows_the_offered_answers_and_the_rules_that_each_adds(
    call: list[str], mode: list[str], answers: dict[str, list[str]], root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    options = ("--workspace", str(root), "--config", str(config), *mode)
    explanation = json.loads(run("permissions", "explain", *call, "--json", *options).stdout)
    rules_by_answer = {answer["answer"]: answer["rules"] for answer in explanation["answers"]}
    rules = {name: [rule.replace("/ROOT", f"/{root}") for rule in patterns] for name, patterns in answers.items()}
    assert explanation["verdict"] == "ask"
    assert rules_by_answer == {"once": [], **rules, "deny": []}
    output = run("permissions", "explain", *call, *options).stdout
    assert all(answer["title"] in output for answer in explanation["answers"])
    assert all(rule in output for patterns in rules.values() for rule in patterns)


@pytest.mark.requirement("cli.explain")
def test_explain_offers_no_answers_if_no_question_is_needed(root: Path) -> None:
    result = run("permissions", "explain", "Read(a.txt)", "--json", "--workspace", str(root))
    assert (json.loads(result.stdout)["verdict"], json.loads(result.stdout)["answers"]) == ("allow", [])


@pytest.mark.requirement("sandbox.auto_run_most")
def test_folders_that_the_server_makes_in_the_workspace_are_not_reported_as_changes(outer_root: Path) -> None:
    temporary = outer_root / "tmp"
    temporary.mkdir()
    options = ["command=echo hi > f", "needs=write", "--approval-mode", "yolo", "--workspace", str(outer_root)]
    result = subprocess.run(
        [sys.executable, "-P", str(LAUNCHER), "call", "run_shell_command", *options],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, (outer_root / "f").read_text()) == (0, "hi\n"), result.stderr
    assert "changed or vanished" not in result.stdout
