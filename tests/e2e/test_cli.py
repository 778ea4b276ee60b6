"""The command as a person uses it: a child process, its output and its exit code."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.forked_commands import run_forked
from tests.harness import LAUNCHER, PEERS, command_line, stdio_upstream, write_config
from tests.terminals import at_terminal


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_forked(arguments, cwd=cwd)


@pytest.mark.requirement("cli.tools")
def test_tools_lists_what_a_client_would_see_upstreams_included(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    done = run("tools", "--json", "--workspace", str(root), "--config", str(config))
    names = [tool["name"] for tool in json.loads(done.stdout)["tools"]]
    assert done.returncode == 0
    assert names[0] == "list_directory"
    assert {"demo__echo", "ask_user_question", "enter_plan_mode"} < set(names)
    planned = run("tools", "--json", "--workspace", str(root), "--approval-mode", "plan")
    names = [tool["name"] for tool in json.loads(planned.stdout)["tools"]]
    assert ("exit_plan_mode" in names, "enter_plan_mode" in names) == (True, False)


@pytest.mark.requirement("cli.tools")
def test_tools_tells_whose_tool_a_name_is_and_what_is_hidden_and_why(root: Path, tmp_path: Path) -> None:
    servers = {
        "one": stdio_upstream(prefix="none", includeTools=["echo", "fail"]),
        "two": stdio_upstream(prefix="none", includeTools=["echo", "steps"], rename={"steps": "walk"}),
        "three": stdio_upstream(includeTools=["odd name!", "echo"]),
    }
    config = write_config(tmp_path, {"mcpServers": servers})
    options = ["--workspace", str(root), "--config", str(config), "--no-builtin-tools"]
    shown, as_json = run("tools", *options), run("tools", "--json", *options)
    assert (shown.returncode, as_json.returncode) == (0, 0)
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["=", "echo", "of", "the", "server", "one"] in lines
    assert ["=", "steps", "of", "the", "server", "two;", "renamed"] in lines
    assert "= odd name! of the server three; changed, because clients accept" in shown.stdout
    assert "of the server three\n" not in shown.stdout
    hidden = "'echo' of the server two is not listed, because the name 'echo' belongs to 'echo' of the server one."
    assert f"Not listed:\n  {hidden} The unlisted item is reachable as 'two__echo'" in shown.stdout
    found = json.loads(run("doctor", "--json", *options).stdout)["findings"]
    texts = {(entry["subject"], entry["health"]): entry["text"] for entry in found}
    assert texts["server two", "absent"].startswith(hidden)
    assert texts["server two", "ok"].endswith(" 1 tool")
    told = json.loads(as_json.stdout)
    assert [tool["name"] for tool in told["tools"]][:3] == ["echo", "fail", "walk"]
    assert told["hidden"] == [
        {
            "name": "echo",
            "server": "two",
            "tool": "echo",
            "fullName": "two__echo",
            "holder": "'echo' of the server one",
            "reachedAs": "two__echo",
        }
    ]
    assert [(entry["tool"], entry["change"].split(",")[0]) for entry in told["changed"]] == [
        ("steps", "renamed"),
        ("odd name!", "changed"),
    ]


@pytest.mark.requirement("policy.include")
def test_tools_are_chosen_on_the_command_line_and_calls_go_by_the_same_choice(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    options = ["--workspace", str(root), "--config", str(config)]
    chosen = ["--include-tools", "read_file,demo__*", "--exclude-tools", "demo__fail", "--no-prefix"]
    told = json.loads(run("tools", "--json", *options, *chosen).stdout)
    names = {tool["name"] for tool in told["tools"]}
    assert {"read_file", "echo"} <= names
    assert not {"edit", "glob", "fail", "demo__echo"} & names
    assert "hi" in run("call", *options, *chosen, "echo", "text=hi").stdout
    refused = run("call", *options, *chosen, "fail")
    assert refused.returncode == 77
    assert "it went wrong" not in refused.stdout


@pytest.mark.requirement("cli.tools")
def test_tools_tells_which_upstream_is_missing_and_fails(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"gone": {"command": "no-such-program-anywhere"}}})
    done = run("tools", "--workspace", str(root), "--config", str(config))
    assert done.returncode == 1
    assert "gone" in done.stderr
    assert "not found" in done.stderr
    assert "read_file" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_shows_a_result(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "read_file", f"absolute_path={root / 'a.txt'}", "--workspace", str(root))
    assert done.returncode == 0
    assert "hello" in done.stdout


@pytest.mark.requirement("cli.call")
def test_arguments_of_a_call_may_stand_after_options(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "--workspace", str(root), "read_file", "--approval-mode", "plan", "file_path=a.txt")
    assert done.returncode == 0
    assert "hello" in done.stdout


@pytest.mark.requirement("cli.call")
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_file_of_a_long_output_outlives_the_call_that_names_it(root: Path, form: str) -> None:
    command = ["run_shell_command", "command=seq 1 200000", "--yes", "--output", form]
    done = run("call", *command, "--workspace", str(root))
    assert done.returncode == 0, done.stderr
    (path,) = set(re.findall(rf"{tempfile.gettempdir()}/coretools-mcp-[\w/.-]*\.txt", done.stdout))
    try:
        assert Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 200_001))
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    finally:
        Path(path).unlink()


@pytest.mark.requirement("cli.call")
def test_what_a_command_leaves_running_is_told_and_no_line_of_another_text_is_lost(root: Path) -> None:
    line = "Background Jobs: 3 (three of them)"
    (root / "a.txt").write_text(f"{line}\n")
    read = run("call", "read_file", "file_path=a.txt", "--workspace", str(root))
    assert (line in read.stdout, read.stderr) == (True, "")
    command = "cat a.txt; sleep 300 > /dev/null 2>&1 &"
    left = run("call", "run_shell_command", f"command={command}", "--yes", "--workspace", str(root))
    assert left.returncode == 0, left.stderr
    assert left.stdout == f"Output:\n{line}\n"
    assert left.stderr.count("processes that the command left running are stopped when this call ends") == 1


@pytest.mark.requirement("cli.call")
def test_call_takes_arguments_as_json(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "glob", "--arguments", '{"pattern": "*.txt"}', "--workspace", str(root))
    assert done.returncode == 0
    assert "a.txt" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_refuses_a_change_where_nobody_can_answer(root: Path) -> None:
    path = root / "new.txt"
    done = run("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    assert done.returncode == 77
    assert "Use --yes" in done.stderr
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
    code, seen = at_terminal(command_line(*call), answers=answers)
    assert code == 0, seen
    told = seen.rpartition("several separated by commas]: ")[2]
    assert "Colour: blue" in told
    assert "Sizes: small, large" in told


@pytest.mark.requirement("cli.call")
def test_a_form_that_is_left_answers_nothing(root: Path) -> None:
    call = ("call", "ask_user_question", "--arguments", json.dumps({"questions": QUESTIONS}), "--workspace", str(root))
    _, seen = at_terminal(command_line(*call), answers=[(b"Colour [1-3]: ", b"\x04")])
    assert "Traceback" not in seen
    assert "Sizes [" not in seen


@pytest.mark.requirement("cli.call")
def test_task_without_agents_says_which_setting_is_missing(root: Path) -> None:
    done = run("call", "task", "prompt=x", "--workspace", str(root))
    assert done.returncode == 64
    assert "no agent is configured" in done.stderr


def custom_tools(tmp_path: Path) -> dict[str, Any]:
    declared = tmp_path / "declared.json"
    declared.write_text(json.dumps([{"name": "echo", "description": "Says it again.", "parameters": {}}]))
    command = [sys.executable, str(PEERS / "discovery_commands.py")]
    return {"tools": {"discoveryCommand": [*command, "list", str(declared)], "callCommand": [*command, "call"]}}


@pytest.mark.requirement("cli.call")
def test_a_custom_tool_is_listed_and_called(root: Path, tmp_path: Path) -> None:
    config = write_config(
        tmp_path, {**custom_tools(tmp_path), "approvalMode": "default", "permissions": {"allow": ["echo"]}}
    )
    options = ("--workspace", str(root), "--config", str(config))
    listed = run("tools", *options)
    assert (listed.returncode, "echo" in listed.stdout) == (0, True)
    done = run("call", "echo", "text=hello", *options)
    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stderr


@pytest.mark.requirement("cli.tools")
def test_tools_fails_where_the_custom_tools_cannot_be_found(root: Path, tmp_path: Path) -> None:
    broken = {"tools": {"discoveryCommand": [sys.executable, "-c", "raise SystemExit(3)"], "callCommand": "x"}}
    done = run("tools", "--workspace", str(root), "--config", str(write_config(tmp_path, broken)))
    assert done.returncode == 1
    assert "coretools-mcp: custom tools: The discovery command failed with exit code 3" in done.stderr
    assert "read_file" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_tells_each_warning_of_the_settings_once(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcp": {"excluded": ["nobody"]}})
    done = run("call", "glob", "pattern=*", "--workspace", str(root), "--config", str(config))
    assert done.returncode == 0
    assert done.stderr.count('mcp.excluded names "nobody"') == 1


@pytest.mark.requirement("cli.call")
def test_call_of_an_unknown_tool_proposes_the_nearest(root: Path) -> None:
    done = run("call", "read_fil", "--workspace", str(root))
    assert done.returncode == 64
    assert "read_file" in done.stderr


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
def test_wrong_usage_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.usage")
def test_a_bad_settings_file_names_file_key_and_expected_value(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"readLines": "many"}})
    done = run("serve", "--config", str(config))
    assert done.returncode == 2
    for expected in (str(config), "limits.readLines", "many"):
        assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.usage")
def test_a_port_in_use_is_a_sentence_and_exit_code_3(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", "--transport", "http", "--port", port, "--workspace", str(root))
    assert done.returncode == 3
    assert "in use" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.requirement("cli.usage")
def test_an_address_that_is_not_loopback_is_refused_without_a_token(root: Path) -> None:
    done = run("serve", "--transport", "http", "--host", "0.0.0.0", "--workspace", str(root))  # noqa: S104
    assert done.returncode == 3
    assert "CORETOOLS_MCP_TOKEN" in done.stderr


@pytest.mark.requirement("cli.explain")
def test_explain_tells_what_would_be_decided_part_by_part_and_runs_nothing(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"permissions": {"deny": ["Bash(rm)"]}})
    options = ("--workspace", str(root), "--config", str(config))
    done = run("permissions", "explain", "Bash(touch made; git log && rm -rf x)", "--json", *options)
    assert done.returncode == 0
    explained = json.loads(done.stdout)
    assert explained["verdict"] == "deny"
    assert [(part["part"], part["verdict"]) for part in explained["parts"]] == [
        ("touch made", "ask"),
        ("git log", "allow"),
        ("rm -rf x", "deny"),
    ]
    assert not (root / "made").exists()
    shown = run("permissions", "explain", "write_file", "file_path=.git/hooks/x", "content=x", *options)
    assert shown.stdout.startswith("ask: ")
    assert "hooks" in shown.stdout
    wrong = run("permissions", "explain", "Nothing(x)", *options)
    assert wrong.returncode == 2
    assert "'Bash(git push)'" in run("permissions", "explain", "git push", *options).stderr


@pytest.mark.requirement("cli.explain")
def test_explain_takes_what_rules_say(root: Path) -> None:
    def judged(rule: str) -> str:
        done = run("permissions", "explain", rule, "--workspace", str(root))
        return done.stdout.partition("\n")[0] or done.stderr

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
    assert {rule: judged(rule)[: len(told)] for rule, told in verdicts.items()} == verdicts


@pytest.mark.requirement("cli.general-options")
def test_options_of_all_commands_may_stand_before_the_command_and_help_shows_them_last(root: Path) -> None:
    (root / "call").mkdir()
    (root / "call" / "a.md").write_text("")
    listed = run("--workspace", str(root / "call"), "--color=never", "call", "glob", "pattern=*.md")
    assert (listed.returncode, "a.md" in listed.stdout) == (0, True), listed.stderr
    assert run("--approval-mode", "plan", "permissions", "explain", "Edit(x)").stdout.startswith("deny: plan mode")
    assert "there is no option --workspace here" in run("--workspace", str(root), "trust", "--list").stderr
    shown = run("undo", "--help").stdout
    assert shown.index("--forget") < shown.index("--workspace")


@pytest.mark.requirement("cli.one-refusal")
def test_a_call_that_nobody_can_be_asked_about_is_refused_once(root: Path) -> None:
    refused = run("call", "write_file", "file_path=a", "content=x", "--workspace", str(root))
    assert (refused.returncode, refused.stdout) == (77, "")
    assert refused.stderr.count("Use --yes") == 1
    assert "declined" not in refused.stderr
    assert "Index:" not in refused.stderr
    assert run("call", "glob", "--workspace", str(root)).returncode == 64, "an argument is missing"
    undone = run("undo", "99", "--workspace", str(root))
    assert "run coretools-mcp changes to see" in undone.stderr


@pytest.mark.requirement("cli.explain")
@pytest.mark.parametrize(
    ("call", "more", "answers"),
    [
        (["Bash(git push origin main)"], [], {"always": ["Bash(git push *)"], "always_sandboxed": ["Sandboxed"]}),
        (["Edit(a.txt)"], [], {"always": ["Edit(/ROOT)"]}),
        (["demo__echo", "text=x"], [], {"always": ["demo__echo"], "always_server": ["demo__*"]}),
        (["exit_plan_mode", "plan=x"], ["--approval-mode", "plan"], {"always": []}),
        (["write_file", "file_path=.git/hooks/x", "content=x"], [], {}),
    ],
    ids=["a command", "an edit", "an upstream's tool", "a plan", "what is always asked"],
)
def test_explain_tells_which_answers_are_offered_and_the_rules_that_each_adds(
    call: list[str], more: list[str], answers: dict[str, list[str]], root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    options = ("--workspace", str(root), "--config", str(config), *more)
    explained = json.loads(run("permissions", "explain", *call, "--json", *options).stdout)
    offered = {answer["answer"]: answer["rules"] for answer in explained["answers"]}
    rules = {name: [rule.replace("/ROOT", f"/{root}") for rule in added] for name, added in answers.items()}
    assert explained["verdict"] == "ask"
    assert offered == {"once": [], **rules, "deny": []}
    shown = run("permissions", "explain", *call, *options).stdout
    assert all(answer["title"] in shown for answer in explained["answers"])
    assert all(rule in shown for added in rules.values() for rule in added)


@pytest.mark.requirement("cli.explain")
def test_explain_offers_no_answer_to_what_is_not_asked(root: Path) -> None:
    done = run("permissions", "explain", "Read(a.txt)", "--json", "--workspace", str(root))
    assert (json.loads(done.stdout)["verdict"], json.loads(done.stdout)["answers"]) == ("allow", [])


@pytest.mark.requirement("sandbox.auto_run_most")
def test_folders_of_the_server_inside_the_workspace_are_not_called_changes_by_a_command(outer_root: Path) -> None:
    temporary = outer_root / "tmp"
    temporary.mkdir()
    options = ["command=echo hi > f", "needs=write", "--approval-mode", "yolo", "--workspace", str(outer_root)]
    done = subprocess.run(
        [sys.executable, "-P", str(LAUNCHER), "call", "run_shell_command", *options],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, (outer_root / "f").read_text()) == (0, "hi\n"), done.stderr
    assert "changed or vanished" not in done.stdout
