"""How commands end (by themselves, at a limit, by cancellation), and how they wait for each other."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time

import anyio
import pytest

from tests.linear_time import ATTEMPTS, MAX_COST_RATIO
from tests.processes import NoSandbox, is_running
from tests.unit.execution.shell import (
    CEILING,
    ENVIRONMENT,
    RecordingStarter,
    Shell,
    output_of,
    shell_in,
    text_of,
)
from tests.waiting import until
from tools.contract.command_views import CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.shell.command_runner import CommandRunner, ShellOptions
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import ConfinedCommand, Process, ProcessSpec, SandboxChanges, StartFailedError
from tools.shell.running_program import CommandRequest

pytestmark = pytest.mark.anyio

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 1; done"


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_takes_too_long_is_stopped_and_the_message_names_a_way_out(shell: Shell) -> None:
    message = await shell.timed_out("echo started; sleep 600", 300)
    assert message.startswith("The command took longer than 0.3 s and was stopped with all its processes.")
    assert "at most 600000" in message
    assert "is_background" in message
    assert message.endswith("It had printed:\nstarted\n")
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_a_program_that_waits_for_a_person_at_a_terminal_gets_no_advice_to_take_longer(shell: Shell) -> None:
    message = await shell.timed_out("echo 'Vim: Warning: Input is not from a terminal'; sleep 600", 300)
    assert "It seems to have waited for a person at a terminal, which commands do not have." in message
    assert "more time" not in message
    assert "is_background" not in message


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_was_ended_without_output_says_so(shell: Shell) -> None:
    assert (await shell.timed_out("sleep 600", 100)).endswith("It had printed nothing.")


@pytest.mark.requirement("shell.limit.time")
async def test_a_timeout_message_shows_both_ends_of_a_long_output_and_names_its_file(shell: Shell) -> None:
    message = await shell.timed_out("seq 1 20000; sleep 600", 1000)
    assert len(message) < 5_000
    assert message.endswith("\n19999\n20000\n")
    path = message.partition("(all of it: ")[2].partition(")")[0]
    assert Path(path).read_text().endswith("\n20000\n")


@pytest.mark.requirement("shell.limit.time")
async def test_a_timeout_message_says_which_part_of_the_output_is_not_in_the_file(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, file_bytes=100_000) as shell:
        message = await shell.timed_out("seq 1 20000; sleep 600", 1000)
    assert " 108.9 kB (only the first 100.0 kB: /" in message


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_ignores_sigterm_is_killed(shell: Shell) -> None:
    assert "ready" in await shell.timed_out(IGNORES_SIGTERM, 500)
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_has_suspended_itself_is_ended(shell: Shell) -> None:
    await shell.timed_out("kill -STOP $$", 300)
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_the_time_limit_of_the_settings_applies_if_the_call_names_none(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, timeout_seconds=0.2) as shell:
        error = await shell.error_of("sleep 600")
        assert "longer than 0.2 s" in error.message


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_used_much_of_its_time_limit_gets_a_note(shell: Shell) -> None:
    assert re.search(
        r"the command used [12] s of its 2 s time limit\.", text_of(await shell.run("sleep 1.1", timeout=2000))
    )


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_prints_nothing_for_too_long_is_ended(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, silence_seconds=0.5) as shell:
        error = await shell.error_of("echo one; sleep 600")
        assert error.code is ToolErrorType.SHELL_TIMED_OUT
        assert "printed nothing for 0.5 s (shell.silenceTimeout)" in error.message
        assert error.message.endswith("\none\n")


@pytest.mark.requirement("shell.limit.time")
async def test_any_output_restarts_the_silence_timeout(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, silence_seconds=2.0) as shell:
        assert output_of(await shell.run("for i in 1 2 3 4 5; do echo $i; sleep 0.5; done")) == "1\n2\n3\n4\n5"


@pytest.mark.requirement("shell.limit.time")
@pytest.mark.parametrize("command", ["sleep 600 & sleep 600", IGNORES_SIGTERM, "(sleep 600 &) ; sleep 600"])
async def test_a_cancelled_call_ends_the_command_with_all_its_processes(shell: Shell, command: str) -> None:
    with anyio.fail_after(CEILING), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.run, command)
            await until(shell.running)
            scope.cancel()
    assert scope.cancelled_caught
    assert shell.running() == []
    assert output_of(await shell.run("echo next")) == "next"


@pytest.mark.requirement("shell.start")
async def test_a_command_that_cannot_be_started_is_a_failure_with_the_reason(shell: Shell) -> None:
    error = await shell.error_of("true " + "\U0001f600" * 90_000)
    assert error.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert error.message.startswith(f"The command was not started: {os.strerror(errno.E2BIG)}. Give")
    assert "put a long command into a script" in error.message


@pytest.mark.requirement("shell.start")
async def test_a_nul_character_is_a_failure_that_says_what_to_write_instead(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, environment={"ODD": "a\0b"}) as shell:
        error = await shell.error_of("true")
    assert error.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert error.message.startswith(f"The command was not started: {os.strerror(errno.EINVAL)}. Give")
    assert "write unusual characters as escapes" in error.message


@pytest.mark.requirement("shell.start")
async def test_a_refusal_by_the_sandbox_is_reported_and_starts_nothing(root: Path, tmp_path: Path) -> None:
    class BrokenSandbox(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, "No sandbox works here.")

    async with shell_in(root, tmp_path, confinement=BrokenSandbox(), max_concurrent=1) as shell:
        for _ in range(3):
            assert (await shell.error_of("true", timeout=1000)).message == "No sandbox works here."
        assert (await shell.error_of("true", is_background=True)).message == "No sandbox works here."
        assert shell.starter.processes == []
        assert shell.jobs.all() == ()


BOX = (Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK)


@dataclass
class HeldCommand(ConfinedCommand):
    """A command whose resources may be released only when it is over. The release reports changed files."""

    releases: list[str] = field(default_factory=list[str])
    is_over: Callable[[], bool] = lambda: True

    async def release(self) -> SandboxChanges:
        assert self.is_over()
        self.releases.append(self.spec.folder)
        at = self.spec.folder
        return SandboxChanges(
            ((f"{at}/.mcp.json", "/private/mcp.json"),), (f"{at}/.vscode",), (f"{at}/.envrc",), 7, 3_000_000_000, 2_000
        )


@pytest.mark.requirement("shell.queue")
@pytest.mark.parametrize(
    ("command", "reason"),
    [("touch .envrc", "programs outside"), ("sleep 600", None), ("true " + "é" * 99_000, None)],
    ids=["finished", "timed out", "not started"],
)
async def test_a_commands_resources_are_released_once_all_its_processes_have_ended(
    root: Path, tmp_path: Path, command: str, reason: str | None
) -> None:
    releases: list[str] = []
    shells: list[Shell] = []

    class HoldingSandbox(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return HeldCommand(spec, *BOX, releases=releases, is_over=lambda: not shells[0].running())

    async with shell_in(root, tmp_path, confinement=HoldingSandbox()) as shell:
        shells.append(shell)
        if reason is not None:
            text = text_of(await shell.run(command))
            assert f"moved out of the workspace: {root}/.mcp.json (now /private/mcp.json)." in text
            assert f"{reason} the sandbox execute, and they could not be moved: {root}/.vscode. Tell the user." in text
            assert (
                f"programs outside the sandbox execute, changed or vanished during the command: {root}/.envrc." in text
            )
            assert "Note: 7 of the files and folders" in text
            assert "The command was able to change them." in text
            assert "too deeply nested. Size: 3.0 GB. Files and folders: 2,000." in text
        else:
            await shell.error_of(command, timeout=300)
        assert releases == [str(root)]
        await shell.run("sleep 600 & :")
        assert releases == [str(root)]
        await shell.stop(shell.job)
        assert releases == [str(root)] * 2
        assert "programs outside the sandbox execute" in text_of(await shell.read(shell.job))


@pytest.mark.requirement("shell.queue")
async def test_a_failure_in_a_sandbox_gets_no_note_without_a_sign_that_the_sandbox_caused_it(
    root: Path, tmp_path: Path
) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        assert text_of(await shell.run("exit 1")) == "Exit Code: 1\nOutput: (empty)"
        assert text_of(await shell.run("true")) == "Output: (empty)"


READING, WORKING, OWN, HOST = ViewKind.READING, ViewKind.WORKING, Network.OWN_LOOPBACK, Network.HOST


@pytest.mark.requirement("sandbox.stopped")
@pytest.mark.parametrize(
    ("output", "view", "network", "note"),
    [
        ("sh: x: Read-only file system", READING, HOST, 'needs: "write" to ask'),
        ("sh: x: Read-only file system", WORKING, HOST, "changed with write_file and edit, or by"),
        (
            "Unable to create \\x27/r/.git/index.lock\\x27: Read-only file system",
            WORKING,
            HOST,
            "The repository is outside",
        ),
        ("unable to create temporary object directory", WORKING, OWN, "access to the folder of the remote"),
        (
            "cat: /home\\x2fme/x: No such file or directory",
            READING,
            HOST,
            "To request access to a path in the home folder",
        ),
        ("cat: /home/me/x: No such file or directory", READING, HOST, None),  # the command has named the path
        ("cat: ~/x: No such file or directory", READING, HOST, None),
        ("cat: /home/me/x: No such file or directory", WORKING, HOST, None),
        ("cat: here: No such file or directory", READING, HOST, None),
        ("cat: .env: Permission denied", READING, HOST, "write its path in the command"),
        ("connect: Connection refused", READING, OWN, "reached only if this command listens on it"),
        (
            "connect: Connection refused",
            READING,
            Network.SESSION_LOOPBACK,
            "only if a command of this session listens on it",
        ),
        ("connect to localhost port 1: Connection refused", WORKING, HOST, "the machine's loopback"),
        ("connect to example.org: Connection refused", WORKING, HOST, None),
        ("connect to localhost port 1: Connection refused", ViewKind.UNCONFINED, HOST, None),
        ("Cannot connect to the Docker daemon at unix:///x.sock", WORKING, OWN, "Sockets of other programs"),
        (
            "listen EAFNOSUPPORT: address family not supported /tmp/x",
            WORKING,
            OWN,
            "Commands cannot create UNIX sockets",
        ),
        ("git worktree list: /w 1a2b prunable", READING, OWN, "git may call them prunable by mistake"),
        ("git worktree list: /w 1a2b prunable", WORKING, OWN, None),
        ("connect: Network is unreachable", WORKING, OWN, 'needs: "network" to ask'),
        ("Temporary failure in name resolution", WORKING, OWN, 'needs: "network" to ask'),
        ("connect: Network is unreachable", WORKING, HOST, None),
        ("cat: x: Permission denied", ViewKind.UNCONFINED, HOST, None),
        ("tail: /var/tmp/x.log: No such file", READING, OWN, "read_file, grep_search and"),
        ("tail: /var/tmp/x.log: No such file", WORKING, OWN, None),
    ],
)
async def test_a_note_says_what_a_view_seems_to_have_stopped_and_how_to_ask_for_more(
    root: Path, tmp_path: Path, output: str, view: ViewKind, network: Network, note: str | None
) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, Engine.BUBBLEWRAP, view, network)

    async with shell_in(root, tmp_path, confinement=Box(), environment={**ENVIRONMENT, "HOME": "/home/me"}) as shell:
        text = text_of(await shell.run(f"printf '{output}'; false"))
        if note is None:
            assert "Note:" not in text
        else:
            assert "Note: the command ran in the " in text
            assert note in text


@pytest.mark.requirement("sandbox.stopped")
async def test_the_cost_of_one_long_line_grows_linearly(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, Engine.BUBBLEWRAP, READING, OWN)

    async with shell_in(root, tmp_path, confinement=Box()) as shell:

        async def cost(words: int) -> float:
            began = process_time()
            await shell.run(f"printf 'connect%.0s' {{1..{words}}}")
            return process_time() - began

        costs = [await cost(4_000) / await cost(400) for _ in range(ATTEMPTS)]
        assert min(costs) <= MAX_COST_RATIO, "quadratic growth would cost a hundred times as much"


@pytest.mark.requirement("sandbox.stopped")
async def test_a_failed_command_without_network_access_is_told_of_a_job_that_has_it(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            network = (
                HOST if "online" in spec.argv[-1] else OWN if "alone" in spec.argv[-1] else Network.SESSION_LOOPBACK
            )
            return ConfinedCommand(spec, Engine.BUBBLEWRAP, WORKING, network)

    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        text = text_of(await shell.run(": online; sleep 600", is_background=True))
        assert 'Only commands with needs: "network" can reach the ports that it opens.' in text
        note = f'Only a command with needs: "network" can reach the ports of job {shell.job.id}.'
        assert note in text_of(await shell.run("exit 7"))
        assert note in text_of(await shell.run("echo curl: Connection refused; exit 7"))
        assert "Note" not in text_of(await shell.run("true"))
        assert "Note" not in text_of(await shell.run(": online; exit 7"))
        await shell.stop(shell.job)
        assert "Note" not in text_of(await shell.run("exit 7"))

        view = CommandView(Engine.BUBBLEWRAP, WORKING, Network.SESSION_LOOPBACK)
        in_session = replace(shell, context=replace(shell.context, view=view))
        text = text_of(await in_session.run("sleep 600", is_background=True))
        assert "Only commands of this session, such as curl, can reach the ports that it opens." in text
        text = text_of(await in_session.run(": alone; sleep 600", is_background=True))
        assert "No other program can reach the ports that it opens." in text


@pytest.mark.requirement("sandbox.stopped")
async def test_a_note_names_the_rules_that_stopped_a_command_and_what_ends_a_job(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    rules = {
        f"{root}/docs": "permissions.deny rule Edit(/docs/**)",
        f"{root}/.env": "permissions.ask rule Read(.env)",
        f"{root}/.key": "permissions.deny rule Read(.key)",
    }
    (root / "script.sh").touch()
    view = CommandView(*BOX, restrictions=FileRestrictions(masked=(f"{root}/.key", f"{root}/.env"), why=rules))
    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        confined_shell = replace(shell, context=replace(shell.context, view=view))

        async def result_text(command: str) -> str:
            return text_of(await confined_shell.run(command))

        docs_text = await result_text("echo touch: docs/a: Read-only file system")
        assert "Protected by permissions.deny rule Edit(/docs/**).\n" in docs_text
        assert "write_file" not in docs_text
        assert "by permissions.ask rule Read(.env). To request access, name the file in" in await result_text(
            "echo rm: o/.env: Device or resource busy"
        )
        assert "Note" not in await result_text("./script.sh")
        key_text = await result_text("echo cat: .key: Permission denied")
        assert "Hidden by permissions.deny rule Read(.key).\n" in key_text
        assert "the user may then be asked" in await result_text("echo cat: .env: Permission denied")
        assert "the user may then be asked" in await result_text("echo cat: /x: Permission denied")
        (root / "sub").mkdir()
        hook_text = await result_text("cd sub; echo \"OSError: Read-only file system: '.git/hooks/pre-commit'\"; false")
        assert "Other programs execute or obey .git/hooks/pre-commit. To change it, use write_file or edit" in hook_text
        assert 'or name the path in the command (touch PATH; ...) and set needs: "write"; the user may' in hook_text
        warning = "echo /root/.config/matplotlib is not writable: Read-only file system"
        assert "Note" not in await result_text(warning)
        assert "Elsewhere commands can change only existing" in await result_text(f"{warning} | tail")
        plain_text = await result_text("echo touch: /x: Read-only file system; false")
        assert "write_file" in plain_text
        assert 'needs: "write"' not in plain_text
        git_text = await result_text("git --version; echo error: unable to unlink old .envrc: Read-only file system")
        assert 'needs: "write"' in git_text
        assert "git status" in git_text
        assert "stop_background_job to stop a job" in await result_text("kill %3")
        assert "stop_background_job to stop a job" in await result_text("pkill -f no.such.program || true")
        assert "stop_background_job to stop a job" in await result_text("kill 4194000; echo rc=$?")
        assert "stop_background_job" not in await result_text("kill -0 $$")
        for command in ("ps -o pid= -p 4194000", "wait 4194000", "ls /proc/4194000"):
            assert "A command can see and kill only" in await result_text(command)
        assert "started empty" not in await result_text("echo /tmp/m: No such file or directory")
        confined_shell = replace(shell, context=replace(shell.context, view=replace(view, has_new_tmp=True)))
        assert "its /tmp started empty" in await result_text("echo /tmp/m: No such file or directory")


@pytest.mark.requirement("shell.exit")
async def test_the_facts_say_what_confines_a_command(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            assert workspace_roots == (str(root),)
            return ConfinedCommand(
                ProcessSpec(("/usr/bin/env", "BOX=1", *spec.argv), spec.folder, spec.environment),
                *BOX,
            )

    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        result = await shell.run("echo $BOX")
        assert output_of(result) == "1"
        assert [result.facts[name] for name in ("engine", "view", "network")] == [value.value for value in BOX]


@pytest.mark.requirement("shell.queue")
async def test_more_commands_than_slots_run_in_the_order_of_arrival(root: Path, tmp_path: Path) -> None:
    log = root / "log"
    async with shell_in(root, tmp_path, max_concurrent=2) as shell, anyio.create_task_group() as tasks:
        with anyio.fail_after(CEILING):
            for number in range(20):
                script = f"echo start {number} >>log; ls -d /proc/[0-9]*/fd >/dev/null 2>&1; echo end {number} >>log"
                tasks.start_soon(shell.run, script)
                await anyio.lowlevel.checkpoint()
            await until(lambda: log.exists() and log.read_text().count("end") == 20)
    events = [line.split() for line in log.read_text().splitlines()]
    # The log may have another order: the system may let a command that was started later run first.
    start_order = [
        next(number for number in range(20) if f"start {number} " in f"{spec.argv}{spec.attachments}")
        for spec in shell.starter.specs
    ]
    # With two slots, only one command at a time can be overtaken, so each other command starts at most one place early.
    assert sorted(start_order) == list(range(20))
    assert all(number - place <= 1 for place, number in enumerate(start_order))
    running = most_running = 0
    for event, _ in events:
        running += 1 if event == "start" else -1
        most_running = max(most_running, running)
    assert most_running <= 2


@pytest.mark.requirement("shell.queue")
async def test_the_time_in_the_queue_counts_and_the_message_says_so(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, max_concurrent=2) as shell, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(shell.run, "echo >>taken; while [ ! -e go ]; do sleep 0.01; done")
        await until(lambda: (root / "taken").exists() and (root / "taken").read_text() == "\n\n")
        message = await shell.timed_out("echo never >never", 300)
        start = "The command was not started: it waited 0.3 s, but the maximum number of commands (2) was running."
        assert message.startswith(start)
        (root / "go").touch()
    assert len(shell.starter.processes) == 2


@pytest.mark.requirement("shell.queue")
async def test_a_slot_is_free_again_however_its_command_ended(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, max_concurrent=1) as shell:
        await shell.timed_out("sleep 600", 100)
        await shell.error_of("true " + "\U0001f600" * 90_000)
        await shell.run("sleep 600 &")
        with anyio.move_on_after(0.2):
            await shell.run("sleep 600")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.run, "while [ ! -e go ]; do sleep 0.01; done")
            with anyio.move_on_after(0.1):
                await shell.run("sleep 600")
            (root / "go").touch()
        assert output_of(await shell.run("echo free", timeout=10_000)) == "free"


@pytest.mark.requirement("shell.background")
async def test_a_call_ends_with_its_shell_even_if_a_child_holds_the_output(shell: Shell) -> None:
    with anyio.fail_after(CEILING):
        result = await shell.run("sleep 600 & echo $!")
    pid = int(output_of(result))
    job = shell.job
    assert f"Background Jobs: {job.id} (PIDs {pid}), left running by the command." in text_of(result)
    assert result.facts["jobId"] == job.id
    assert is_running(pid)
    listing = await shell.list()
    assert listing.structured is not None
    assert listing.structured["jobs"][0]["job_id"] == job.id
    await shell.stop(job)
    assert not is_running(pid)


@pytest.mark.requirement("shell.background")
async def test_processes_left_running_may_continue_to_print_and_all_output_can_be_read(
    shell: Shell, root: Path
) -> None:
    script = "(while [ ! -e go ]; do sleep 0.01; done; echo later; echo done >written) & echo first"
    assert output_of(await shell.run(script)) == "first"
    (root / "go").touch()
    with anyio.fail_after(CEILING):
        await shell.job.is_over.wait()
    assert (root / "written").read_text() == "done\n"
    assert text_of(await shell.read(shell.job)).endswith("Output:\nfirst\nlater")


@pytest.mark.requirement("shell.background")
async def test_processes_left_running_are_known_even_if_they_hold_no_output(shell: Shell) -> None:
    result = await shell.run("sleep 600 >/dev/null 2>&1 & echo $!; exit 5")
    assert shell.job.status == "running"
    assert "Exit Code: 5" in text_of(result)
    os.kill(int(output_of(result)), signal.SIGKILL)
    with anyio.fail_after(CEILING):
        await shell.job.is_over.wait()
    assert shell.job.status == "failed"


@pytest.mark.requirement("shell.background")
async def test_a_process_that_ends_a_moment_after_the_shell_is_no_job(shell: Shell) -> None:
    with anyio.fail_after(CEILING):
        while True:
            result = await shell.run("sleep 0.02 >/dev/null 2>&1 & :")
            if text_of(result) == "Output: (empty)":
                break
    assert result.facts["jobId"] is None


@pytest.mark.requirement("shell.background")
async def test_all_output_from_before_the_end_of_the_shell_is_there(shell: Shell) -> None:
    for size in (1, 60_000, 500_000):
        result = await shell.run(f"sleep 600 & head -c {size} /dev/zero | tr '\\0' x; printf end")
        assert result.facts["outputBytes"] == size + 3
        assert output_of(result).endswith("xend")


@pytest.mark.requirement("shell.background")
async def test_a_client_without_jobs_leaves_nothing_running(shell: Shell) -> None:
    result = await shell.anonymous().run("sleep 600 & echo $!")
    assert "They were stopped, because this client cannot have background jobs" in text_of(result)
    assert not is_running(int(output_of(result)))


@pytest.mark.requirement("shell.live")
async def test_progress_is_reported_while_a_command_prints_and_its_numbers_only_grow(shell: Shell) -> None:
    await shell.run(r"for i in 1 2 3 4 5 6 7 8 9; do printf '\033[31mline %d\033[0m\n' $i; sleep 0.3; done")
    counts = [count for count, _ in shell.progress_reports]
    assert 2 <= len(counts) <= 4
    assert counts == sorted(set(counts))
    first, last = shell.progress_reports[0][1], shell.progress_reports[-1][1]
    assert first.startswith("line 1")
    assert last.startswith("line 1\nline 2\nline 3\n")


@pytest.mark.requirement("shell.live")
async def test_no_progress_is_reported_while_nothing_is_printed(shell: Shell) -> None:
    await shell.run("echo once; sleep 2.5")
    assert [message for _, message in shell.progress_reports] == ["once"]


@pytest.mark.requirement("shell.live")
async def test_a_client_that_accepts_no_progress_delays_neither_the_time_limit_nor_the_result(
    root: Path, tmp_path: Path
) -> None:
    async def stuck(byte_count: float, total: float | None, message: str) -> None:
        await anyio.sleep_forever()

    folders = PrivateFolders(str(tmp_path))
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(shell.starter, NoSandbox(), ShellOptions(ENVIRONMENT), folders)
        request = CommandRequest("while :; do echo x; sleep 0.1; done", str(root), (str(root),), "test", 0.6)
        with anyio.fail_after(CEILING):
            result = await runner.run(request, None, stuck)
    assert result.ending == "timed_out"


@pytest.mark.requirement("shell.start")
async def test_a_command_that_the_operating_system_does_not_start_fails_with_its_reason_and_what_to_do(
    root: Path, tmp_path: Path
) -> None:
    async with shell_in(root, tmp_path) as shell:
        for number, message in (
            (errno.EACCES, f"{os.strerror(errno.EACCES)}. Give an existing directory"),
            (errno.ENOSYS, "commands cannot run on this system. Use the file tools"),
        ):
            runner = CommandRunner(ScarceStarter(number), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
            request = CommandRequest("true", str(root), (str(root),), "test", 5)
            with pytest.raises(ToolError, match=f"The command was not started: {message}") as refusal:
                await runner.run(request, None, shell.context.progress)
            assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR


@dataclass
class ScarceStarter:
    """A starter on a system where a resource is scarce: it can start a program only while no other one is running.

    Args:
        number: The error number of a failed start.
        starter: Starts the programs. Without it, every start fails.
        tries: How many starts have failed.
        one_by_one: Held during each start, so that only one program starts at a time.
    """

    number: int
    starter: RecordingStarter | None = None
    tries: int = 0
    one_by_one: anyio.Lock = field(default_factory=anyio.Lock)

    async def start(self, spec: ProcessSpec) -> Process:
        async with self.one_by_one:
            if self.starter is None or any(map(is_running, (process.pid for process in self.starter.processes))):
                self.tries += 1
                raise StartFailedError(self.number)
            return await self.starter.start(spec)


SCARCITY_ERRORS = [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM]


@pytest.mark.requirement("scarcity.refused")
@pytest.mark.parametrize("number", SCARCITY_ERRORS)
async def test_a_command_that_lacks_a_resource_is_refused_with_the_code_for_that(
    root: Path, tmp_path: Path, number: int
) -> None:
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(ScarceStarter(number), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("true", str(root), (str(root),), "test", 600)
        with anyio.fail_after(CEILING), pytest.raises(ToolError, match="the server's limits") as refusal:
            await runner.run(request, None, shell.context.progress)
        with pytest.raises(ToolError) as job_refusal:
            await runner.start_job(request, shell.jobs)
        assert refusal.value.code is job_refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED


@pytest.mark.requirement("scarcity.refused")
async def test_a_command_that_cannot_fork_is_refused_and_the_error_names_the_jobs(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    failing_command = 'echo "bwrap: Can\'t fork for pid 1: Resource temporarily unavailable"; exit 1'
    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        error_without_jobs = await shell.error_of(failing_command)
        assert error_without_jobs.code is ToolErrorType.RESOURCES_EXHAUSTED
        assert "stop_background_job" not in error_without_jobs.message
        await shell.run("sleep 600", is_background=True)
        runner = CommandRunner(ScarceStarter(errno.EAGAIN), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("true", str(root), (str(root),), "test", 0.3)
        with pytest.raises(ToolError) as refusal:
            await runner.run(request, shell.jobs, shell.context.progress)
        for error in (
            refusal.value,
            await shell.error_of(failing_command),
            await shell.error_of(failing_command, is_background=True),
        ):
            assert error.code is ToolErrorType.RESOURCES_EXHAUSTED
            assert f"stop it with stop_background_job. Running: {shell.jobs.running()[0].id}." in error.message
        assert output_of(await shell.run(f"echo first; {failing_command}")).startswith("first")
        await shell.stop(shell.jobs.running()[0])


@pytest.mark.requirement("scarcity.turns")
@pytest.mark.parametrize("number", SCARCITY_ERRORS)
async def test_a_command_that_lacks_a_resource_waits_for_another_one_to_end(
    root: Path, tmp_path: Path, number: int
) -> None:
    async with shell_in(root, tmp_path) as shell:
        starter = ScarceStarter(number, shell.starter)
        runner = CommandRunner(starter, NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("cat go", str(root), (str(root),), "test", 600)
        os.mkfifo(root / "go")
        with anyio.fail_after(CEILING):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(runner.run, request, None, shell.context.progress)
                for count in range(1, 4):
                    await until(lambda count=count: len(shell.starter.processes) == count)
                    await until(lambda count=count, tries=starter.tries: count == 3 or starter.tries > tries)
                    await anyio.to_thread.run_sync((root / "go").write_text, "")
        assert shell.running() == []


@pytest.mark.requirement("scarcity.turns")
async def test_a_command_waits_for_another_one_to_end_no_longer_than_its_time_limit(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(
            ScarceStarter(errno.EMFILE, shell.starter), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders
        )
        job = await runner.start_job(CommandRequest("sleep 600", str(root), (str(root),), "test", 600), shell.jobs)
        with anyio.fail_after(CEILING), pytest.raises(ToolError) as refusal:
            await runner.run(CommandRequest("true", str(root), (str(root),), "test", 0.3), None, shell.context.progress)
        assert refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED
        await shell.jobs.stop(job)
