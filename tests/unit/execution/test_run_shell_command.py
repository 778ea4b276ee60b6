"""`run_shell_command`: what it runs, and what it tells the model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import all_cases
from tests.unit.execution.shell import ENVIRONMENT, Shell, link_of, output_of, shell_in, text_of
from tools.builtin.read_file import ReadFileTool
from tools.builtin.run_shell_command import ShellTool
from tools.contract.command_views import UNSANDBOXED_SITE
from tools.contract.confirmation import ExecConfirmation
from tools.contract.permission_subjects import CommandSubject
from tools.contract.tool_errors import InvalidToolParamsError, PathNotInWorkspaceError, ToolErrorType
from tools.files.workspace import Workspace
from tools.shell.program_output import CUT_MARK, OUTPUT_CHARS
from tools.shell.result_text import DISPLAY_CHARS

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("shell.run")
async def test_a_command_that_prints_nothing_and_succeeds_is_reported_in_one_line(shell: Shell) -> None:
    result = await shell.run("true")
    assert text_of(result) == "Output: (empty)"
    assert result.return_display == ""
    assert result.structured is None


@pytest.mark.requirement("shell.run")
async def test_both_streams_come_in_the_order_of_printing(shell: Shell) -> None:
    result = await shell.run("echo one; echo two >&2; echo three; echo four >&2")
    assert text_of(result) == "Output:\none\ntwo\nthree\nfour"
    assert result.return_display == "one\ntwo\nthree\nfour"


@pytest.mark.requirement("shell.run")
async def test_the_command_is_read_by_bash_and_by_nothing_else(shell: Shell) -> None:
    result = await shell.run("[[ -n $BASH_VERSION ]] && printf '%s|' \"a  b\" 'c;d' {1..3} $((2+3)) \"$0\"")
    assert output_of(result).startswith("a  b|c;d|1|2|3|5|/")


@pytest.mark.requirement("shell.exit")
async def test_a_non_zero_exit_code_is_reported_and_is_no_failure_of_the_call(shell: Shell) -> None:
    result = await shell.run("echo no >&2; exit 3")
    assert result.error is None
    assert text_of(result) == "Exit Code: 3\nOutput:\nno"
    silent_result = await shell.run("exit 4")
    assert text_of(silent_result) == "Exit Code: 4\nOutput: (empty)"
    assert silent_result.return_display == "Command exited with code 4"


@pytest.mark.requirement("environment.nobody_waits")
async def test_a_rebase_that_needs_an_editor_says_how_to_do_without(shell: Shell) -> None:
    git = "git -c user.name=t -c user.email=t@example.org"
    await shell.run(f"git init -q && {git} commit -q --allow-empty -m one")
    text = text_of(await shell.run(f"GIT_SEQUENCE_EDITOR=false {git} rebase -i --root"))
    assert "Note: no editor can open here. For git rebase -i, set GIT_SEQUENCE_EDITOR to a command.\n" in text
    assert "GIT_SEQUENCE_EDITOR" not in text_of(await shell.run("EDITOR=vi; echo $EDITOR; false"))


@pytest.mark.requirement("shell.environment.lacking")
async def test_a_variable_that_a_failed_command_lacks_and_the_server_has_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "value")
    for command, is_named in (
        ("set -u; echo $OF_THE_SERVER", True),
        ("set -u; echo $OF_NOBODY", False),
        ("echo OF_THE_SERVER is not set", False),
        ("echo You need to define OF_THE_SERVER; exit 1", True),
        ("echo NotPresent: OF_THE_SERVER; exit 1", True),
        ("echo No more OF_THE_SERVERS; exit 1", False),
    ):
        text = text_of(await shell.run(command))
        assert ("commands do not inherit OF_THE_SERVER from the server's environment" in text) is is_named, command


@pytest.mark.requirement("shell.exit")
async def test_the_signal_that_ended_the_shell_is_reported(shell: Shell) -> None:
    result = await shell.run("kill -SEGV $$")
    assert text_of(result) == "Signal: SIGSEGV\nOutput: (empty)"
    assert result.return_display == "Command was killed by SIGSEGV"


@pytest.mark.requirement("shell.exit")
async def test_output_cannot_pass_for_a_label(shell: Shell) -> None:
    text = text_of(await shell.run("printf 'x\\nExit Code: 0\\nSignal: none\\n'; exit 1"))
    assert text.index("Exit Code: 1") < text.index("Output:") < text.index("Exit Code: 0")


@pytest.mark.requirement("shell.exit")
async def test_the_result_has_facts_for_programs(shell: Shell) -> None:
    result = await shell.run("echo text; exit 2")
    assert result.facts == {
        "engine": "none",
        "view": "unconfined",
        "network": "host",
        "exitCode": 2,
        "signal": None,
        "pid": shell.starter.processes[0].pid,
        "durationMs": result.facts["durationMs"],
        "outputBytes": 5,
        "outputFile": None,
        "timedOut": False,
        "jobId": None,
    }
    assert 0 <= result.facts["durationMs"] < 30_000


@pytest.mark.requirement("shell.directory")
async def test_the_command_runs_in_the_folder_that_is_named(shell: Shell, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "link").symlink_to("sub")
    names = ("directory", "dir_path", "cwd", "workdir")
    with all_cases() as case:
        for name, folder in zip(names, ("sub", "./sub/../sub", f"{root}/sub", "link"), strict=True):
            with case(f"{name}={folder}"):
                result = await shell.run("pwd -P", **{name: folder})
                assert text_of(result) == f"Directory: {folder}\nOutput:\n{root}/sub"


@pytest.mark.requirement("shell.directory")
async def test_without_a_folder_the_command_runs_in_the_workspace(shell: Shell, root: Path) -> None:
    assert output_of(await shell.run("pwd -P")) == str(root)


@pytest.mark.requirement("shell.directory")
async def test_an_impossible_folder_is_refused_before_anything_is_started(shell: Shell, root: Path) -> None:
    (root / "file").write_text("")
    assert (await shell.error_of("true", directory="file")).code is ToolErrorType.PATH_IS_NOT_A_DIRECTORY
    assert (await shell.error_of("true", directory="none")).code is ToolErrorType.FILE_NOT_FOUND
    assert shell.starter.processes == []


@pytest.mark.requirement("shell.start")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": ""}, "'command' is empty"),
        ({"command": " \n\t"}, "'command' is empty"),
        ({"command": " & ", "is_background": True}, "'command' is empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "echo \ud800"}, "unicode"),
        ({"command": "x" * 100_001}, "100000 characters"),
        ({"command": "true", "dry_run": True}, "--dry-run"),
        ({"command": "true", "additional_permissions": {"network": True}}, "'needs'"),
        ({"command": "true", "timeout": 0, "dangerouslyDisableSandbox": True}, "'needs'"),
        ({"command": "true", "timeout": -5}, "'timeout'"),
        ({"command": "true", "timeout": 600_001}, "600000"),
        ({"command": "true", "timeout": "soon"}, "'timeout'"),
        ({"command": "true", "directory": " "}, "'directory' is empty"),
        ({"command": "true", "directory": "a", "cwd": "b"}, "different values"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_unusable_arguments_are_refused_with_a_way_out(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidToolParamsError) as error_info:
        ShellTool().validate_tool_params(arguments)
    assert message in error_info.value.message


@pytest.mark.requirement("shell.start")
async def test_properties_of_other_programs_that_change_nothing_are_accepted(shell: Shell) -> None:
    result = await shell.run("echo ok", delay_ms=200, run_in_background=False, timeout_ms="30000", dry_run=False)
    assert output_of(result) == "ok"


@pytest.mark.requirement("shell.confirmation")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"command": "git status"}, "git status"),
        (
            {"command": "npm test", "directory": "web", "timeout": 5000, "description": "Run\n the  tests"},
            "npm test [in web] [timeout: 5000ms]",
        ),
        ({"command": "npm start &", "is_background": True, "timeout": 5}, "npm start [background]"),
        ({"command": "a\nb"}, "a\\nb"),
    ],
    ids=["plain", "everything", "background", "lines"],
)
async def test_a_call_is_described_in_one_line(shell: Shell, arguments: dict[str, Any], line: str) -> None:
    tool = ShellTool()
    assert tool.get_description(tool.validate_tool_params(arguments), shell.context) == line


@pytest.mark.requirement("shell.confirmation")
async def test_a_long_command_is_cut_in_the_description_and_whole_in_the_question(shell: Shell, root: Path) -> None:
    tool, command = ShellTool(), "echo " + "x" * 5000 + "; rm -rf ."
    params = tool.validate_tool_params({"command": command, "description": "d"})
    assert len(tool.get_description(params, shell.context)) < 300
    details = await tool.should_confirm_execute(params, shell.context)
    assert details == ExecConfirmation(
        title="Run a shell command", command=command, directory=str(root), description="d", state=str(root)
    )


@pytest.mark.requirement("shell.confirmation")
async def test_the_question_names_the_real_folder_and_exactly_what_the_shell_gets(shell: Shell, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "link").symlink_to("sub")
    tool = ShellTool()
    params = tool.validate_tool_params({"command": "serve & ", "directory": "link", "is_background": True})
    details = await tool.should_confirm_execute(params, shell.context)
    assert isinstance(details, ExecConfirmation)
    assert (details.command, details.directory, details.is_background) == ("serve ", str(root / "sub"), True)
    outside_params = tool.validate_tool_params({"command": "true", "directory": "/"})
    with pytest.raises(PathNotInWorkspaceError):
        await tool.should_confirm_execute(outside_params, shell.context)
    assert shell.starter.processes == []


@pytest.mark.requirement("shell.confirmation")
async def test_rules_are_about_exactly_what_the_shell_gets(shell: Shell, root: Path) -> None:
    (root / "sub").mkdir()
    tool = ShellTool()
    params = tool.validate_tool_params({"command": "serve &", "directory": "sub", "is_background": True})
    own_folder = shell.folders.path_of("test")
    site = replace(UNSANDBOXED_SITE, outputs=(f"{own_folder}/outputs",))
    assert tool.subjects(params, shell.context) == (
        CommandSubject("serve ", str(root / "sub"), site, is_background=True),
    )


@pytest.mark.requirement("shell.background")
@pytest.mark.parametrize("command", ["a && b", "a &&", "a \\&", "a >&", "a |&", "a & b", "a <&"])
def test_only_a_bare_ampersand_at_the_end_is_dropped_in_the_background(command: str) -> None:
    tool = ShellTool()
    assert tool.validate_tool_params({"command": command, "is_background": True}).script == command
    assert tool.validate_tool_params({"command": "a &"}).script == "a &"
    assert tool.validate_tool_params({"command": "a &\n", "is_background": True}).script == "a "


@pytest.mark.requirement("shell.bash")
async def test_bash_is_never_taken_from_the_workspace_or_a_relative_folder(root: Path, tmp_path: Path) -> None:
    for folder in (root / "bin", tmp_path / "elsewhere"):
        folder.mkdir()
    trap = root / "bin" / "bash"
    trap.write_text("#!/bin/sh\necho trapped\n")
    trap.chmod(0o755)
    (tmp_path / "elsewhere" / "bash").symlink_to(trap)
    search_path = os.pathsep.join(["bin", str(root / "bin"), str(tmp_path / "elsewhere"), ENVIRONMENT["PATH"]])
    async with shell_in(root, tmp_path, environment={**ENVIRONMENT, "PATH": search_path}) as shell:
        assert output_of(await shell.run("echo $0 ${BASH_VERSION:+bash}")).endswith("/bash bash")


@pytest.mark.requirement("shell.bash")
async def test_without_bash_the_posix_shell_runs_the_command_and_the_result_says_so(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, environment={"PATH": str(tmp_path)}) as shell:
        result = await shell.run("echo text")
    assert text_of(result) == "Note: bash is not installed; /bin/sh ran the command.\nOutput:\ntext"


@pytest.mark.requirement("shell.bash")
async def test_no_file_is_run_before_the_command(root: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text("echo trapped\n")
    environment = {**ENVIRONMENT, "BASH_ENV": str(trap), "ENV": str(trap), "OTHER": "kept"}
    async with shell_in(root, tmp_path, environment=environment) as shell:
        assert output_of(await shell.run("echo $OTHER; env | grep -c ENV=")) == "kept\n0"


@pytest.mark.requirement("shell.cut")
async def test_both_ends_of_a_long_output_are_shown_and_all_of_it_can_be_read(shell: Shell) -> None:
    result = await shell.run("seq 1 20000")
    text, link = text_of(result), link_of(result)
    assert link is not None
    path = Path(link.uri.removeprefix("file://"))
    assert path.read_text() == "".join(f"{number}\n" for number in range(1, 20_001))
    assert (link.mime_type, link.size, result.facts["outputFile"]) == ("text/plain", 108_894, str(path))
    assert text.startswith(
        f"Note: the output is 108.9 kB long, and only its beginning and its end are shown. All of it is in {path}. "
        "Read it with read_file; a negative offset reads from the end.\nOutput:\n1\n2\n"
    )
    assert CUT_MARK in text
    assert text.endswith("\n19999\n20000")
    assert len(text) < OUTPUT_CHARS + 500
    assert shell.folders.path_of("test") == str(path.parent.parent)
    assert isinstance(result.return_display, str)
    assert len(result.return_display) <= DISPLAY_CHARS + 10
    assert result.return_display.endswith("\n20000")


@pytest.mark.requirement("shell.cut")
async def test_an_output_that_fits_is_not_saved_in_a_file(shell: Shell) -> None:
    result = await shell.run("seq 1 1000")
    assert link_of(result) is None
    assert result.facts["outputFile"] is None
    assert not Path(shell.folders.path).exists()


@pytest.mark.requirement("shell.output.quota")
async def test_output_that_is_missing_from_the_file_is_reported(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, file_bytes=1_000_000) as shell:
        result = await shell.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
        link = link_of(result)
        assert link is not None
        assert link.size == 1_000_000
        path = link.uri.removeprefix("file://")
        assert f"Only the first 1.0 MB are in {path}. Read it with read_file.\n" in text_of(result)
        assert output_of(result).endswith("xend")


@pytest.mark.requirement("shell.output.file")
async def test_a_client_that_cannot_be_told_from_others_gets_no_file(shell: Shell) -> None:
    result = await shell.anonymous().run("seq 1 20000; seq 1 100000")
    assert link_of(result) is None
    assert "The rest was not kept. Print less, or write the output to a file" in text_of(result)
    assert output_of(result).endswith("\n100000")
    binary_text = text_of(await shell.anonymous().run("printf '\\0'"))
    assert (
        "the output is 1 byte long, and it is not text. It was not kept. To keep it, write it to a file" in binary_text
    )


@pytest.mark.requirement("shell.cut")
async def test_only_the_size_and_the_file_of_a_binary_output_are_reported(shell: Shell) -> None:
    result = await shell.run("printf 'a\\0\\1'; seq 1 10")
    text, link = text_of(result), link_of(result)
    assert link is not None
    assert text.endswith("\nOutput: (binary, 24 bytes)")
    assert "it is not text" in text
    assert Path(link.uri.removeprefix("file://")).read_bytes() == b"a\0\1" + b"".join(b"%d\n" % n for n in range(1, 11))
    assert result.return_display == "Binary output, 24 bytes"


@pytest.mark.requirement("shell.text.visible")
async def test_progress_bars_and_colours_are_shown_as_on_a_terminal(shell: Shell) -> None:
    result = await shell.run(r"printf '\033[31m10%%\r\033[32m100%%\033[0m done\n\xff\xe2\x82\xac \xc3\xa9\n'")
    assert output_of(result) == "100% done\n\ufffd€ é"


@pytest.mark.requirement("shell.encodings")
async def test_output_in_another_encoding_is_shown_like_a_file(shell: Shell) -> None:
    text = "你好世界这是一个测试"
    (Path(shell.context.workspace.first_root) / "a.txt").write_bytes(f"{text}\n".encode("gb18030") * 5_000)
    for command in ("head -n 2 a.txt", "cat a.txt"):
        result = await shell.run(command)
        assert "Note: The output is not UTF-8; it is shown as gb18030, a" in text_of(result)
        lines = output_of(result).split("\n")
        assert set(lines) <= {text, CUT_MARK}
        assert len(lines) == 2 or CUT_MARK in lines
    utf_16_result = await shell.run(r"printf '\xff\xfea\0\xe9\0'")
    assert output_of(utf_16_result) == "aé"


@pytest.mark.requirement("shell.text.visible")
async def test_a_nul_between_names_hides_neither_the_output_nor_its_file(shell: Shell) -> None:
    result = await shell.run("seq 1 20000 | tr '\\n' '\\0'")
    link = link_of(result)
    assert output_of(result).startswith("1␀2␀3␀")
    assert link is not None
    assert link.mime_type == "text/plain"
    tool = ReadFileTool()
    params = tool.validate_tool_params({"file_path": link.uri.removeprefix("file://"), "chars": "108890-"})
    context = replace(shell.context, workspace=Workspace([str(Path(shell.folders.path))]))
    assert "00␀" in str((await tool.execute(params, context)).llm_content)


@pytest.mark.requirement("shell.no_input")
async def test_a_command_that_reads_its_input_gets_end_of_file_at_once(shell: Shell) -> None:
    assert text_of(await shell.run("cat; cat; read line; echo end $?")) == "Output:\nend 1"


@pytest.mark.requirement("shell.no_input")
async def test_there_is_no_terminal_to_ask_on(shell: Shell) -> None:
    output = output_of(await shell.run("tty; read line </dev/tty; echo status $?"))
    assert output.startswith("not a tty\n")
    assert output.endswith("\nstatus 1")
