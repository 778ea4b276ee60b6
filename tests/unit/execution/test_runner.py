"""How commands end: by themselves, at a limit, cancelled; and how they wait for each other."""

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
async def test_a_command_that_takes_too_long_is_ended_and_the_way_out_is_told(shell: Shell) -> None:
    message = await shell.timed_out("echo started; sleep 600", 300)
    assert message.startswith("The command took longer than 0.3 s and was stopped with all its processes.")
    assert "at most 600000" in message
    assert "is_background" in message
    assert message.endswith("It had printed:\nstarted\n")
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_was_ended_without_output_says_so(shell: Shell) -> None:
    assert (await shell.timed_out("sleep 600", 100)).endswith("It had printed nothing.")


@pytest.mark.requirement("shell.limit.time")
async def test_of_a_long_output_before_the_limit_the_ends_are_told_and_the_file(shell: Shell) -> None:
    message = await shell.timed_out("seq 1 20000; sleep 600", 1000)
    assert len(message) < 5_000
    assert message.endswith("\n19999\n20000\n")
    path = message.partition("(all of it: ")[2].partition(")")[0]
    assert Path(path).read_text().endswith("\n20000\n")


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_ignores_sigterm_is_killed(shell: Shell) -> None:
    assert "ready" in await shell.timed_out(IGNORES_SIGTERM, 500)
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_a_command_that_has_stopped_itself_is_ended(shell: Shell) -> None:
    await shell.timed_out("kill -STOP $$", 300)
    assert shell.running() == []


@pytest.mark.requirement("shell.limit.time")
async def test_the_limit_of_the_settings_holds_where_the_call_names_none(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, timeout_seconds=0.2) as shell:
        error = await shell.error_of("sleep 600")
        assert "longer than 0.2 s" in error.message


@pytest.mark.requirement("shell.limit.time")
async def test_who_took_much_of_the_time_is_told_how_to_get_more(shell: Shell) -> None:
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
async def test_any_output_starts_the_silence_again(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, silence_seconds=2.0) as shell:
        assert output_of(await shell.run("for i in 1 2 3 4 5; do echo $i; sleep 0.5; done")) == "1\n2\n3\n4\n5"


@pytest.mark.requirement("shell.limit.time")
@pytest.mark.parametrize("command", ["sleep 600 & sleep 600", IGNORES_SIGTERM, "(sleep 600 &) ; sleep 600"])
async def test_a_cancelled_call_ends_the_command_with_all_it_started(shell: Shell, command: str) -> None:
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
    assert error.message.startswith("The command was not started: the command is too long for the operating system")


@pytest.mark.requirement("shell.start")
async def test_what_no_program_can_be_given_is_a_failure_that_says_what_to_write_instead(
    root: Path, tmp_path: Path
) -> None:
    async with shell_in(root, tmp_path, environment={"ODD": "a\0b"}) as shell:
        error = await shell.error_of("true")
    assert error.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert error.message.startswith("The command was not started: the command, its folder or one of its environment")
    assert "write that character as an escape" in error.message


@pytest.mark.requirement("shell.start")
async def test_a_refusal_of_the_sandbox_is_told_and_starts_nothing(root: Path, tmp_path: Path) -> None:
    class Broken(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, "No sandbox works here.")

    async with shell_in(root, tmp_path, confinement=Broken(), max_concurrent=1) as shell:
        for _ in range(3):
            assert (await shell.error_of("true", timeout=1000)).message == "No sandbox works here."
        assert (await shell.error_of("true", is_background=True)).message == "No sandbox works here."
        assert shell.starter.started == []
        assert shell.jobs.all() == ()


BOX = (Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK)


@dataclass
class Held(ConfinedCommand):
    """Something is held for the command, and tells of a file when it is given back."""

    released: list[str] = field(default_factory=list[str])
    is_over: Callable[[], bool] = lambda: True

    async def release(self) -> SandboxChanges:
        assert self.is_over()
        self.released.append(self.spec.folder)
        at = self.spec.folder
        return SandboxChanges(
            ((f"{at}/.mcp.json", "/private/mcp.json"),), (f"{at}/.vscode",), (f"{at}/.envrc",), 7, 3_000_000_000, 2_000
        )


@pytest.mark.requirement("shell.queue")
@pytest.mark.parametrize(
    ("command", "said"),
    [("touch .envrc", "programs outside"), ("sleep 600", None), ("true " + "é" * 99_000, None)],
    ids=["finished", "timed out", "not started"],
)
async def test_what_is_held_for_a_command_is_given_back_once_all_of_it_has_ended(
    root: Path, tmp_path: Path, command: str, said: str | None
) -> None:
    released: list[str] = []
    shells: list[Shell] = []

    class Holding(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return Held(spec, *BOX, released=released, is_over=lambda: not shells[0].running())

    async with shell_in(root, tmp_path, confinement=Holding()) as shell:
        shells.append(shell)
        if said is not None:
            text = text_of(await shell.run(command))
            assert f"moved out of the workspace: {root}/.mcp.json (now /private/mcp.json)." in text
            assert f"{said} the sandbox execute, and they could not be moved: {root}/.vscode. Tell the user." in text
            assert (
                f"programs outside the sandbox execute, changed or vanished during the command: {root}/.envrc." in text
            )
            assert "Note: 7 of the files and folders" in text
            assert "The command was able to change them." in text
            assert "too deeply nested. Size: 3.0 GB. Files and folders: 2,000." in text
        else:
            await shell.error_of(command, timeout=300)
        assert released == [str(root)]
        await shell.run("sleep 600 & :")
        assert released == [str(root)]
        await shell.stop(shell.job)
        assert released == [str(root)] * 2
        assert "programs outside the sandbox execute" in text_of(await shell.read(shell.job))


@pytest.mark.requirement("shell.queue")
async def test_a_command_that_fails_in_a_sandbox_is_told_that_it_was_in_one(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        assert text_of(await shell.run("exit 1")) == "Exit Code: 1\nOutput: (empty)"
        assert text_of(await shell.run("true")) == "Output: (empty)"


READING, WORKING, OWN, HOST = ViewKind.READING, ViewKind.WORKING, Network.OWN_LOOPBACK, Network.HOST


@pytest.mark.requirement("sandbox.stopped")
@pytest.mark.parametrize(
    ("printed", "view", "network", "said"),
    [
        ("sh: x: Read-only file system", READING, HOST, 'needs: "write" to ask'),
        ("sh: x: Read-only file system", WORKING, HOST, "changed with write_file and edit, with"),
        (
            "cat: /home/me/x: No such file or directory",
            READING,
            HOST,
            "To request access to a path in the home folder",
        ),
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
        ("connect: Network is unreachable", WORKING, OWN, 'needs: "network" to ask'),
        ("Temporary failure in name resolution", WORKING, OWN, 'needs: "network" to ask'),
        ("connect: Network is unreachable", WORKING, HOST, None),
        ("cat: x: Permission denied", ViewKind.UNCONFINED, HOST, None),
        ("tail: /var/tmp/x.log: No such file", READING, OWN, "read_file, grep_search and"),
        ("tail: /var/tmp/x.log: No such file", WORKING, OWN, None),
    ],
)
async def test_what_a_view_seems_to_have_stopped_is_told_with_what_asks_for_more(
    root: Path, tmp_path: Path, printed: str, view: ViewKind, network: Network, said: str | None
) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, Engine.BUBBLEWRAP, view, network)

    async with shell_in(root, tmp_path, confinement=Box(), environment={**ENVIRONMENT, "HOME": "/home/me"}) as shell:
        text = text_of(await shell.run(f"echo '{printed}'"))
        if said is None:
            assert "Note:" not in text
        else:
            assert "Note: the command ran in the " in text
            assert said in text


@pytest.mark.requirement("sandbox.stopped")
async def test_one_long_line_costs_as_much_as_it_is_long(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, Engine.BUBBLEWRAP, READING, OWN)

    async with shell_in(root, tmp_path, confinement=Box()) as shell:

        async def cost(words: int) -> float:
            began = process_time()
            await shell.run(f"printf 'connect%.0s' {{1..{words}}}")
            return process_time() - began

        costs = [await cost(4_000) / await cost(400) for _ in range(ATTEMPTS)]
        assert min(costs) <= MAX_COST_RATIO, "what grows by the square costs a hundred times as much"


@pytest.mark.requirement("sandbox.stopped")
async def test_a_note_names_the_rules_that_stopped_a_command_and_what_ends_a_job(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    why = {f"{root}/docs": "permissions.deny rule Edit(/docs/**)", f"{root}/.env": "permissions.ask rule Read(.env)"}
    view = CommandView(*BOX, restrictions=FileRestrictions(why=why))
    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        held = replace(shell, context=replace(shell.context, view=view))

        async def said(command: str) -> str:
            return text_of(await held.run(command))

        docs = await said("echo touch: docs/a: Read-only file system")
        assert "Protected by permissions.deny rule Edit(/docs/**).\n" in docs
        assert "write_file" not in docs
        assert "by permissions.ask rule Read(.env). To request access, name the file in" in await said(
            "echo rm: o/.env: Device or resource busy"
        )
        plain = await said("echo touch: /x: Read-only file system")
        assert "write_file" in plain
        assert 'needs: "write"' not in plain
        of_git = await said("git --version; echo error: unable to unlink old .envrc: Read-only file system")
        assert 'needs: "write"' in of_git
        assert "git status" in of_git
        assert "stop_background_job to stop a job" in await said("kill %3")
        assert "stop_background_job to stop a job" in await said("pkill -f no.such.program || true")
        assert "stop_background_job to stop a job" in await said("kill 4194000; echo rc=$?")
        assert "stop_background_job" not in await said("kill -0 $$")
        for command in ("ps -o pid= -p 4194000", "wait 4194000", "ls /proc/4194000"):
            assert "A command can see and kill only" in await said(command)
        assert "started empty" not in await said("echo /tmp/m: No such file or directory")
        held = replace(shell, context=replace(shell.context, view=replace(view, has_new_tmp=True)))
        assert "its /tmp started empty" in await said("echo /tmp/m: No such file or directory")


@pytest.mark.requirement("shell.exit")
async def test_what_confines_a_command_is_told(root: Path, tmp_path: Path) -> None:
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
        assert [result.facts[name] for name in ("engine", "view", "network")] == [each.value for each in BOX]


@pytest.mark.requirement("shell.queue")
async def test_more_commands_than_places_run_in_the_order_of_arrival(root: Path, tmp_path: Path) -> None:
    log = root / "log"
    async with shell_in(root, tmp_path, max_concurrent=2) as shell, anyio.create_task_group() as tasks:
        with anyio.fail_after(CEILING):
            for number in range(20):
                script = f"echo start {number} >>log; ls -d /proc/[0-9]*/fd >/dev/null 2>&1; echo end {number} >>log"
                tasks.start_soon(shell.run, script)
                await anyio.lowlevel.checkpoint()
            await until(lambda: log.exists() and log.read_text().count("end") == 20)
    events = [line.split() for line in log.read_text().splitlines()]
    # What they write may come in another order: the system lets one that was started later run first.
    asked = [
        next(number for number in range(20) if f"start {number} " in f"{spec.argv}{spec.attachments}")
        for spec in shell.starter.asked
    ]
    # With two places only one command at a time can be overtaken, so each of the others comes at most one place early.
    assert sorted(asked) == list(range(20))
    assert all(number - place <= 1 for place, number in enumerate(asked))
    running = most = 0
    for what, _ in events:
        running += 1 if what == "start" else -1
        most = max(most, running)
    assert most <= 2


@pytest.mark.requirement("shell.queue")
async def test_the_time_in_the_queue_counts_and_its_end_is_told_as_such(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, max_concurrent=2) as shell, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(shell.run, "echo >>taken; while [ ! -e go ]; do sleep 0.01; done")
        await until(lambda: (root / "taken").exists() and (root / "taken").read_text() == "\n\n")
        message = await shell.timed_out("echo never >never", 300)
        assert message.startswith("The command was not started: it waited 0.3 s for one of 2 slots")
        (root / "go").touch()
    assert len(shell.starter.started) == 2


@pytest.mark.requirement("shell.queue")
async def test_a_place_is_free_again_whatever_became_of_its_command(root: Path, tmp_path: Path) -> None:
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
async def test_a_call_is_over_with_its_shell_though_a_child_holds_the_output(shell: Shell) -> None:
    with anyio.fail_after(CEILING):
        result = await shell.run("sleep 600 & echo $!")
    pid = int(output_of(result))
    job = shell.job
    assert f"Background Jobs: {job.id} (PIDs {pid}), left running by the command." in text_of(result)
    assert result.facts["jobId"] == job.id
    assert is_running(pid)
    listed = await shell.list()
    assert listed.structured is not None
    assert listed.structured["jobs"][0]["job_id"] == job.id
    await shell.stop(job)
    assert not is_running(pid)


@pytest.mark.requirement("shell.background")
async def test_what_is_left_running_may_go_on_printing_and_all_of_it_can_be_read(shell: Shell, root: Path) -> None:
    script = "(while [ ! -e go ]; do sleep 0.01; done; echo later; echo done >written) & echo first"
    assert output_of(await shell.run(script)) == "first"
    (root / "go").touch()
    with anyio.fail_after(CEILING):
        await shell.job.is_over.wait()
    assert (root / "written").read_text() == "done\n"
    assert text_of(await shell.read(shell.job)).endswith("Output:\nfirst\nlater")


@pytest.mark.requirement("shell.background")
async def test_what_is_left_running_is_known_though_it_holds_no_output(shell: Shell) -> None:
    result = await shell.run("sleep 600 >/dev/null 2>&1 & echo $!; exit 5")
    assert shell.job.status == "running"
    assert "Exit Code: 5" in text_of(result)
    os.kill(int(output_of(result)), signal.SIGKILL)
    with anyio.fail_after(CEILING):
        await shell.job.is_over.wait()
    assert shell.job.status == "failed"


@pytest.mark.requirement("shell.background")
async def test_what_ends_a_moment_after_the_shell_is_no_job(shell: Shell) -> None:
    with anyio.fail_after(CEILING):
        while True:
            result = await shell.run("sleep 0.02 >/dev/null 2>&1 & :")
            if text_of(result) == "Output: (empty)":
                break
    assert result.facts["jobId"] is None


@pytest.mark.requirement("shell.background")
async def test_what_was_printed_before_the_shell_ended_is_all_there(shell: Shell) -> None:
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
async def test_a_client_is_told_while_a_command_prints_and_the_numbers_only_grow(shell: Shell) -> None:
    await shell.run(r"for i in 1 2 3 4 5 6 7 8 9; do printf '\033[31mline %d\033[0m\n' $i; sleep 0.3; done")
    counts = [count for count, _ in shell.told]
    assert 2 <= len(counts) <= 4
    assert counts == sorted(set(counts))
    first, last = shell.told[0][1], shell.told[-1][1]
    assert first.startswith("line 1")
    assert last.startswith("line 1\nline 2\nline 3\n")


@pytest.mark.requirement("shell.live")
async def test_nothing_is_told_while_nothing_is_printed(shell: Shell) -> None:
    await shell.run("echo once; sleep 2.5")
    assert [message for _, message in shell.told] == ["once"]


@pytest.mark.requirement("shell.live")
async def test_a_client_that_takes_nothing_delays_neither_the_limit_nor_the_result(root: Path, tmp_path: Path) -> None:
    async def stuck(done: float, total: float | None, message: str) -> None:
        await anyio.sleep_forever()

    folders = PrivateFolders(str(tmp_path))
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(shell.starter, NoSandbox(), ShellOptions(ENVIRONMENT), folders)
        request = CommandRequest("while :; do echo x; sleep 0.1; done", str(root), (str(root),), "test", 0.6)
        with anyio.fail_after(CEILING):
            finished = await runner.run(request, None, stuck)
    assert finished.ending == "timed_out"


@pytest.mark.requirement("shell.start")
async def test_the_reason_of_the_operating_system_is_told_in_words(root: Path, tmp_path: Path) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    async with shell_in(root, tmp_path) as shell:
        for number, confinement, said in (
            (errno.ENOENT, NoSandbox(), "the folder, the shell or the sandbox's program does not exist"),
            (errno.ENOEXEC, NoSandbox(), "refused to start it"),
            (errno.ENOEXEC, Box(), "refused to start the sandbox's program"),
        ):
            runner = CommandRunner(Short(number), confinement, ShellOptions(ENVIRONMENT), shell.folders)
            request = CommandRequest("true", str(root), (str(root),), "test", 5)
            with pytest.raises(ToolError, match=said) as refusal:
                await runner.run(request, None, shell.context.progress)
            assert refusal.value.code is ToolErrorType.SHELL_EXECUTE_ERROR


@dataclass
class Short:
    """A starter of a system that is short of something, until there is more.

    Args:
        number: The error that tells so.
        starter: Starts what there is enough for.
        tries: How many starts have failed.
        one_by_one: Held while one starts.
    """

    number: int
    starter: RecordingStarter | None = None
    tries: int = 0
    one_by_one: anyio.Lock = field(default_factory=anyio.Lock)

    async def start(self, spec: ProcessSpec) -> Process:
        async with self.one_by_one:
            if self.starter is None or any(map(is_running, (process.pid for process in self.starter.started))):
                self.tries += 1
                raise StartFailedError(self.number)
            return await self.starter.start(spec)


SHORT = [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM]


@pytest.mark.requirement("scarcity.refused")
@pytest.mark.parametrize("number", SHORT)
async def test_a_command_for_which_there_is_too_little_is_refused_with_the_code_that_says_so(
    root: Path, tmp_path: Path, number: int
) -> None:
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(Short(number), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("true", str(root), (str(root),), "test", 600)
        with anyio.fail_after(CEILING), pytest.raises(ToolError, match="the server's limits") as refusal:
            await runner.run(request, None, shell.context.progress)
        with pytest.raises(ToolError) as of_a_job:
            await runner.start_job(request, shell.jobs)
        assert refusal.value.code is of_a_job.value.code is ToolErrorType.RESOURCES_EXHAUSTED


@pytest.mark.requirement("scarcity.refused")
async def test_a_command_that_found_no_process_is_refused_however_that_shows_and_the_jobs_are_named(
    root: Path, tmp_path: Path
) -> None:
    class Box(NoSandbox):
        async def confine(self, spec: ProcessSpec, workspace_roots: object, *terms: object) -> ConfinedCommand:
            return ConfinedCommand(spec, *BOX)

    said = 'echo "bwrap: Can\'t fork for pid 1: Resource temporarily unavailable"; exit 1'
    async with shell_in(root, tmp_path, confinement=Box()) as shell:
        alone = await shell.error_of(said)
        assert alone.code is ToolErrorType.RESOURCES_EXHAUSTED
        assert "stop_background_job" not in alone.message
        await shell.run("sleep 600", is_background=True)
        short = CommandRunner(Short(errno.EAGAIN), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("true", str(root), (str(root),), "test", 0.3)
        with pytest.raises(ToolError) as refused:
            await short.run(request, shell.jobs, shell.context.progress)
        for error in (refused.value, await shell.error_of(said), await shell.error_of(said, is_background=True)):
            assert error.code is ToolErrorType.RESOURCES_EXHAUSTED
            assert f"stop it with stop_background_job. Running: {shell.jobs.running()[0].id}." in error.message
        assert output_of(await shell.run(f"echo first; {said}")).startswith("first")
        await shell.stop(shell.jobs.running()[0])


@pytest.mark.requirement("scarcity.turns")
@pytest.mark.parametrize("number", SHORT)
async def test_a_command_for_which_there_is_too_little_waits_for_the_end_of_another_one(
    root: Path, tmp_path: Path, number: int
) -> None:
    async with shell_in(root, tmp_path) as shell:
        short = Short(number, shell.starter)
        runner = CommandRunner(short, NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders)
        request = CommandRequest("cat go", str(root), (str(root),), "test", 600)
        os.mkfifo(root / "go")
        with anyio.fail_after(CEILING):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(runner.run, request, None, shell.context.progress)
                for started in range(1, 4):
                    await until(lambda started=started: len(shell.starter.started) == started)
                    await until(lambda started=started, tries=short.tries: started == 3 or short.tries > tries)
                    await anyio.to_thread.run_sync((root / "go").write_text, "")
        assert shell.running() == []


@pytest.mark.requirement("scarcity.turns")
async def test_a_command_waits_no_longer_than_its_time_for_the_end_of_another_one(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path) as shell:
        runner = CommandRunner(
            Short(errno.EMFILE, shell.starter), NoSandbox(), ShellOptions(ENVIRONMENT), shell.folders
        )
        job = await runner.start_job(CommandRequest("sleep 600", str(root), (str(root),), "test", 600), shell.jobs)
        with anyio.fail_after(CEILING), pytest.raises(ToolError) as refusal:
            await runner.run(CommandRequest("true", str(root), (str(root),), "test", 0.3), None, shell.context.progress)
        assert refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED
        await shell.jobs.stop(job)
