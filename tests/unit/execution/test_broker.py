"""Programs started through the broker: what they see, and what the server learns about them."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from tests.processes import (
    BASH,
    CEILING,
    ENVIRONMENT,
    SharedBroker,
    bash,
    brokers_of,
    children_of,
    environment_with_mark,
    needs_proc,
    needs_root,
    read,
    read_line,
    run,
    until_no_process_has_mark,
)
from tools.shell import supervisor_pool
from tools.shell.broker import broker_messages
from tools.shell.broker.supervisor import MARK
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.process_spec import ExitStatus, ProcessSpec, ResourceLimits, StartFailedError
from tools.shell.supervisor_pool import MAX_IDLE, SupervisorHandle, launch_of

pytestmark = pytest.mark.anyio

VARIANTS = [
    pytest.param(BrokeredStarter, id="descendants"),
    pytest.param(partial(BrokeredStarter, by_group=True), id="group"),
    pytest.param(SharedBroker, id="services"),
]


@pytest.fixture(params=VARIANTS)
async def broker(request: pytest.FixtureRequest) -> AsyncGenerator[BrokeredStarter]:
    """A new broker, in each variant of tracking the processes that it starts."""
    starter = request.param()
    yield starter
    await starter.aclose()


@pytest.mark.requirement("process.exit")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", ExitStatus(0, None)),
        ("exit 7", ExitStatus(7, None)),
        ("exit 255", ExitStatus(255, None)),
        ("kill -TERM $$", ExitStatus(None, "SIGTERM")),
        ("kill -KILL $$", ExitStatus(None, "SIGKILL")),
        ("kill -40 $$", ExitStatus(None, "SIG40")),
    ],
)
async def test_the_exit_code_or_the_signal_is_reported(
    broker: BrokeredStarter, command: str, expected: ExitStatus
) -> None:
    assert await run(broker, bash(command)) == (expected, "")


@pytest.mark.requirement("process.exit")
async def test_several_callers_can_wait_for_the_end_even_repeatedly(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("read; exit 3"))
    with anyio.fail_after(CEILING):
        first, second = await asyncio.gather(process.wait(), process.wait())
        assert first == second == await process.wait() == ExitStatus(3, None)
        await process.wait_gone()
    assert await process.left_running() == ()
    await process.end(0.2)
    process.close()
    process.close()


@pytest.mark.requirement("process.exit")
async def test_both_streams_come_in_the_order_of_writing(broker: BrokeredStarter) -> None:
    command = "for n in 1 2 3; do echo out $n; echo err $n >&2; done"
    expected = "".join(f"out {n}\nerr {n}\n" for n in (1, 2, 3))
    assert await run(broker, bash(command)) == (ExitStatus(0, None), expected)


@pytest.mark.requirement("process.exit")
async def test_a_program_that_prints_after_its_output_was_closed_gets_sigpipe(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("exec yes"))
    assert await read_line(process) == "y"
    process.close()
    with anyio.fail_after(CEILING):
        assert await process.wait() == ExitStatus(None, "SIGPIPE")


@pytest.mark.requirement("process.environment")
async def test_the_environment_is_exactly_the_given_one(broker: BrokeredStarter) -> None:
    environment = {"EMPTY": "", "LINES": "a\nb=c", "NAME": "wört", "RAW": "\udcff"}
    spec = ProcessSpec(("/usr/bin/env", "-0"), "/", environment)
    process = await broker.start(spec)
    parts = [await read(process)]
    while parts[-1]:
        parts.append(await read(process))
    process.close()
    entries = [os.fsdecode(entry) for entry in b"".join(parts).split(b"\0") if entry]
    if isinstance(broker, SharedBroker):
        assert len(entries.pop(0)) == len(f"{os.fsdecode(MARK)}=") + 16
    assert sorted(entries) == sorted(f"{name}={value}" for name, value in environment.items())


@pytest.mark.requirement("process.environment")
async def test_the_arguments_arrive_as_they_are(broker: BrokeredStarter) -> None:
    arguments = ("", "two words", "new\nline", "*", "ü", "-x")
    spec = ProcessSpec(("/usr/bin/printf", "[%s]", *arguments), "/", ENVIRONMENT)
    assert (await run(broker, spec))[1] == "".join(f"[{argument}]" for argument in arguments)


@pytest.mark.requirement("process.environment")
async def test_a_program_runs_in_the_given_folder(broker: BrokeredStarter, tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "here"
    folder.mkdir()
    assert (await run(broker, bash("pwd -P", folder)))[1] == f"{folder}\n"


@needs_root
@pytest.mark.requirement("process.environment")
async def test_no_folder_stays_in_use_once_a_program_has_been_started_in_it(
    broker: BrokeredStarter, tmp_path: Path
) -> None:
    await run(broker, bash("true", tmp_path))
    for pid in children_of(brokers_of(os.getpid())[0]):
        assert os.readlink(f"/proc/{pid}/cwd") == "/"


@pytest.mark.requirement("process.start-failed")
@pytest.mark.parametrize(
    ("argv", "folder", "number"),
    [
        (("/nowhere/program",), "/", errno.ENOENT),
        (("/etc/passwd",), "/", errno.EACCES),
        (("/",), "/", errno.EACCES),
        ((BASH,), "/nowhere", errno.ENOENT),
        ((BASH,), "/etc/passwd", errno.ENOTDIR),
        ((BASH, "-c", "x" * 10_000_000), "/", errno.E2BIG),
        ((BASH, "-c", "a\0b"), "/", errno.EINVAL),
        ((BASH, "-c", "\ud800"), "/", errno.EINVAL),
        ((), "/", errno.EINVAL),
    ],
)
async def test_a_failed_start_says_why(
    broker: BrokeredStarter, argv: tuple[str, ...], folder: str, number: int
) -> None:
    with pytest.raises(StartFailedError) as error_info:
        await broker.start(ProcessSpec(argv, folder, ENVIRONMENT))
    assert error_info.value.number == number
    assert await run(broker, bash("echo next")) == (ExitStatus(0, None), "next\n")


@pytest.mark.requirement("process.start-failed")
@pytest.mark.parametrize(("name", "value"), [("A=B", ""), ("", "B"), ("A\0", ""), ("A", "\0")])
async def test_an_environment_that_cannot_be_passed_is_refused(broker: BrokeredStarter, name: str, value: str) -> None:
    with pytest.raises(StartFailedError) as error_info:
        await broker.start(bash("true", environment={name: value}))
    assert error_info.value.number == errno.EINVAL


@pytest.mark.requirement("process.start-failed")
@pytest.mark.parametrize(
    "spec",
    [
        bash("true", limits=ResourceLimits(file_bytes=1 << 63)),
        bash("true", limits=ResourceLimits(processes=-2)),
        ProcessSpec((BASH,), "/", ENVIRONMENT, attachments={1: b"x"}),
        ProcessSpec((BASH,), "/", ENVIRONMENT, descriptors={2: 0}),
        ProcessSpec((BASH,), "/", ENVIRONMENT, attachments={0: b"x"}, descriptors={0: 0}),
    ],
)
async def test_impossible_limits_and_attachments_are_refused(broker: BrokeredStarter, spec: ProcessSpec) -> None:
    with pytest.raises(StartFailedError) as error_info:
        await broker.start(spec)
    assert error_info.value.number == errno.EINVAL


@needs_proc
@pytest.mark.requirement("process.start-failed")
async def test_without_free_descriptors_starting_fails_and_keeps_none(broker: BrokeredStarter) -> None:
    await run(broker, bash("true"))
    sleeper = await broker.start(bash("exec sleep 600"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    numbers = [number for number in range(1000) if not os.path.lexists(f"/proc/self/fd/{number}")]
    spec = ProcessSpec((BASH, "-c", "true"), "/", ENVIRONMENT, attachments={3: b"x"})
    try:
        for free_count in range(5):
            resource.setrlimit(resource.RLIMIT_NOFILE, (numbers[free_count], hard))
            with pytest.raises(StartFailedError) as error_info:
                await broker.start(spec)
            assert error_info.value.number == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before
    assert (await run(broker, spec))[0] == ExitStatus(0, None)
    await sleeper.end(0)
    sleeper.close()


@pytest.mark.requirement("process.start-failed")
async def test_a_supervisor_that_cannot_be_forked_says_why_without_news_of_the_program() -> None:
    own_end, broker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    own_end.setblocking(False)
    pool = supervisor_pool.SupervisorPool(by_group=False, is_shared=False)
    connection = SupervisorHandle(own_end, ResourceLimits(), pool)
    with broker_end:
        broker_end.sendall(broker_messages.frame(broker_messages.FAILED, errno.EAGAIN))
    with launch_of(bash("true")) as launch, pytest.raises(StartFailedError) as error_info:
        await connection.run(launch)
    assert error_info.value.number == errno.EAGAIN
    connection.close()


@pytest.mark.requirement("process.exit")
@pytest.mark.parametrize("is_shared", [False, True])
async def test_with_by_group_nothing_is_looked_up_in_proc(
    is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in Path(supervisor_pool.SCRIPT).parent.glob("*.py"):
        (tmp_path / module.name).write_text(module.read_text().replace('"/proc', '"/none'))
    monkeypatch.setattr(supervisor_pool, "SCRIPT", str(tmp_path / "broker.py"))
    broker = BrokeredStarter(by_group=True, is_shared=is_shared)
    try:
        assert await run(broker, bash("echo ran; exit 3")) == (ExitStatus(3, None), "ran\n")
    finally:
        await broker.aclose()


@pytest.mark.requirement("process.start-failed")
async def test_a_script_that_is_not_executable_is_refused(broker: BrokeredStarter, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    spec = ProcessSpec((str(script),), "/", ENVIRONMENT)
    with pytest.raises(StartFailedError) as error_info:
        await broker.start(spec)
    assert error_info.value.number == errno.EACCES
    script.chmod(stat.S_IRWXU)
    assert (await run(broker, spec))[1] == "ran\n"


@pytest.mark.requirement("process.start-failed")
async def test_after_closing_nothing_is_started(broker: BrokeredStarter) -> None:
    await broker.aclose()
    with pytest.raises(StartFailedError):
        await broker.start(bash("true"))
    await broker.aclose()


@pytest.mark.requirement("process.descriptors")
async def test_attachments_are_read_from_their_descriptors(broker: BrokeredStarter) -> None:
    large_attachment = os.urandom(500_000).hex().encode()
    # The supervisor itself has descriptors of these numbers.
    attachments = {number: f"number {number}\n".encode() for number in range(19, 2, -1)} | {40: large_attachment}
    command = "for n in {19..3}; do cat <&$n; done; cat <&40"
    spec = ProcessSpec((BASH, "-c", command), "/", ENVIRONMENT, attachments=attachments)
    assert (await run(broker, spec))[1] == "".join(part.decode() for part in attachments.values())


@pytest.mark.requirement("process.descriptors")
async def test_a_passed_pipe_is_read_as_standard_input_until_it_is_closed(broker: BrokeredStarter) -> None:
    reading, writing = os.pipe()
    command = "read first; echo got $first; cat; echo end"
    process = await broker.start(ProcessSpec((BASH, "-c", command), "/", ENVIRONMENT, descriptors={0: reading}))
    os.close(reading)
    os.write(writing, b"one\n")
    assert await read_line(process) == "got one"
    os.write(writing, b"two\n")
    assert await read_line(process) == "two"
    os.close(writing)
    assert await read_line(process) == "end"
    with anyio.fail_after(CEILING):
        assert await process.wait() == ExitStatus(0, None)
    process.close()


@pytest.mark.requirement("process.environment")
async def test_a_request_larger_than_the_buffer_of_a_socket_arrives(broker: BrokeredStarter) -> None:
    environment = {f"V{number}": str(number % 10) * 100_000 for number in range(12)}
    spec = bash('for n in {0..11}; do v=V$n; echo "${#v} ${!v:0:3} ${#V0}"; done', environment=environment)
    assert (await run(broker, spec))[1].splitlines()[11] == "3 111 100000"


@contextmanager
def inherited_descriptors() -> Generator[None]:
    """Descriptors that a careless parent would pass on."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.set_inheritable(writing, True)
    try:
        yield
    finally:
        os.close(reading)
        os.close(writing)


@needs_proc
@pytest.mark.requirement("process.descriptors")
async def test_no_other_descriptor_is_passed_on(broker: BrokeredStarter) -> None:
    spec = ProcessSpec(("/bin/ls", "/proc/self/fd"), "/", ENVIRONMENT)
    with inherited_descriptors():
        sleepers = [await broker.start(bash("sleep 600")) for _ in range(3)]
        # The last one is the folder that `ls` reads.
        assert (await run(broker, spec))[1].split() == ["0", "1", "2", "3"]
    spec_with_attachment = ProcessSpec(spec.argv, "/", ENVIRONMENT, attachments={9: b"x"})
    assert (await run(broker, spec_with_attachment))[1].split() == ["0", "1", "2", "3", "9"]
    for sleeper in sleepers:
        await sleeper.end(0)
        sleeper.close()


@pytest.mark.requirement("process.descriptors")
async def test_a_program_has_no_input_and_no_terminal(broker: BrokeredStarter) -> None:
    assert await run(broker, bash("cat; (: < /dev/tty) 2>/dev/null || echo none")) == (ExitStatus(0, None), "none\n")


@needs_proc
@pytest.mark.requirement("process.session")
async def test_no_signal_is_ignored_or_blocked(broker: BrokeredStarter) -> None:
    spec = ProcessSpec(("/bin/grep", "^Sig[BI]", "/proc/self/status"), "/", ENVIRONMENT)
    lines = (await run(broker, spec))[1].splitlines()
    # Signals 32 and 33 belong to the C library, which ignores them in the processes that it spawns.
    masks = {line.split()[0]: int(line.split()[1], 16) & ~(0b11 << 31) for line in lines}
    assert masks == {"SigBlk:": 0, "SigIgn:": 0}


@needs_proc
@pytest.mark.requirement("process.session")
async def test_a_program_leads_its_own_session(broker: BrokeredStarter) -> None:
    process = await broker.start(ProcessSpec(("/bin/cat", "/proc/self/stat"), "/", ENVIRONMENT))
    fields = (await read_line(process)).rpartition(")")[2].split()
    process.close()
    assert fields[2:4] == [str(process.pid)] * 2


@pytest.mark.requirement("process.session")
async def test_the_umask_is_that_of_the_server(broker: BrokeredStarter) -> None:
    previous = os.umask(0o027)
    try:
        assert (await run(broker, bash("umask")))[1] == "0027\n"
    finally:
        os.umask(previous)


@pytest.mark.requirement("process.limits")
@pytest.mark.parametrize("broker", VARIANTS[:2], indirect=True)
async def test_limits_hold_and_cannot_be_widened(broker: BrokeredStarter) -> None:
    command = "for kind in f u c; do ulimit -S$kind; ulimit -H$kind; done; ulimit -c"
    narrow = ResourceLimits(file_bytes=1 << 20, processes=5000, core_bytes=0)
    assert (await run(broker, bash(command, limits=narrow)))[1].split() == ["1024"] * 2 + ["5000"] * 2 + ["0"] * 3
    wide = ResourceLimits(file_bytes=1 << 21, processes=6000, core_bytes=0)
    assert (await run(broker, bash(command, limits=wide)))[1].split() == ["2048"] * 2 + ["6000"] * 2 + ["0"] * 3
    assert (await run(broker, bash("ulimit -Sf; ulimit -Sc")))[1].split() == ["unlimited", "0"]


@pytest.mark.requirement("process.limits")
async def test_a_file_that_grows_too_large_ends_its_writer(broker: BrokeredStarter, tmp_path: Path) -> None:
    spec = bash("exec head -c 100000 /dev/zero > file", tmp_path, limits=ResourceLimits(file_bytes=1000))
    assert (await run(broker, spec))[0] == ExitStatus(None, "SIGXFSZ")
    assert (tmp_path / "file").stat().st_size == 1000


@pytest.mark.requirement("process.left-running")
async def test_processes_that_a_shell_leaves_running_are_known_and_ended(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("sleep 600 & echo $!"))
    sleeper = int(await read_line(process))
    with anyio.fail_after(CEILING):
        assert await process.wait() == ExitStatus(0, None)
    pids = await process.left_running()
    assert pids in ((sleeper,), (process.pid,))  # with `by_group`, only the group leader is known
    with anyio.move_on_after(0.02) as scope:
        await process.wait_gone()
    assert scope.cancelled_caught
    with anyio.fail_after(CEILING):
        await process.end(5.0)
    assert await process.left_running() == ()
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
    process.close()


@pytest.mark.requirement("process.left-running")
async def test_a_running_program_counts_itself(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("exec sleep 600"))
    assert await process.left_running() == (process.pid,)
    await process.end(5.0)
    assert await process.wait() == ExitStatus(None, "SIGTERM")
    process.close()


@pytest.mark.requirement("process.left-running")
async def test_a_cancelled_wait_stops_nothing(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("echo up; exec sleep 600"))
    await read_line(process)
    with anyio.move_on_after(0.01) as scope:
        await process.wait()
    assert scope.cancelled_caught
    assert await process.left_running() == (process.pid,)
    await process.end(0)
    assert await process.wait() == ExitStatus(None, "SIGKILL")
    process.close()


@pytest.mark.requirement("process.left-running")
async def test_ending_goes_on_when_it_is_cancelled(broker: BrokeredStarter) -> None:
    process = await broker.start(bash("trap '' TERM; echo up; while :; do sleep 0.01; done"))
    await read_line(process)
    with anyio.move_on_after(0):
        await process.end(0.1)
    assert await process.left_running() == ()
    assert (await process.wait()).signal == "SIGKILL"
    process.close()


@needs_proc
@pytest.mark.requirement("process.left-running")
@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_cancelled_leaves_nothing(broker: BrokeredStarter, turns: int) -> None:
    await run(broker, bash("true"))
    before = len(os.listdir("/proc/self/fd"))
    mark = uuid4().hex
    sleeper = bash("exec sleep 600", environment=environment_with_mark(mark))
    start_tasks = [asyncio.ensure_future(broker.start(sleeper)) for _ in range(5)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in start_tasks:
        task.cancel()
    for result in await asyncio.gather(*start_tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            assert isinstance(result, asyncio.CancelledError)
        else:
            await result.end(0)
            result.close()
    await until_no_process_has_mark(mark)
    assert await run(broker, bash("echo on")) == (ExitStatus(0, None), "on\n")
    assert len(os.listdir("/proc/self/fd")) <= before + MAX_IDLE


@pytest.mark.long
@needs_proc
@pytest.mark.requirement("process.start-failed")
async def test_two_hundred_concurrent_programs_leave_neither_descriptors_nor_processes() -> None:
    before = len(os.listdir("/proc/self/fd"))
    broker = BrokeredStarter()
    commands = [bash(f"echo {number}; exit {number % 7}") for number in range(200)]
    results = await asyncio.gather(*(run(broker, command) for command in commands))
    assert results == [(ExitStatus(number % 7, None), f"{number}\n") for number in range(200)]
    (parent,) = brokers_of(os.getpid())
    with anyio.fail_after(CEILING):
        while len(children_of(parent)) > MAX_IDLE:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)
    assert [child for supervisor in children_of(parent) for child in children_of(supervisor)] == []
    await broker.aclose()
    assert len(os.listdir("/proc/self/fd")) == before
    assert brokers_of(os.getpid()) == []


@needs_proc
@pytest.mark.requirement("process.broker")
async def test_one_broker_is_started_with_the_first_program() -> None:
    broker = BrokeredStarter()
    assert brokers_of(os.getpid()) == []
    for _ in range(3):
        await run(broker, bash("true"))
    (parent,) = brokers_of(os.getpid())
    assert len(children_of(parent)) == 1
    await broker.aclose()
    assert brokers_of(os.getpid()) == []


@needs_proc
@needs_root
@pytest.mark.requirement("process.broker")
async def test_the_broker_does_not_hold_the_output_of_the_server(broker: BrokeredStarter) -> None:
    await run(broker, bash("true"))
    (parent,) = brokers_of(os.getpid())
    assert os.readlink(f"/proc/{parent}/fd/1") == "/dev/null"


@needs_proc
@pytest.mark.requirement("process.broker")
async def test_closing_ends_everything_in_order() -> None:
    broker = BrokeredStarter()
    obedient_process = await broker.start(bash("exec sleep 600"))
    stubborn_process = await broker.start(bash("trap '' TERM; echo up; while :; do sleep 0.01; done"))
    await read_line(stubborn_process)
    with anyio.fail_after(CEILING):
        await broker.aclose()
        assert await obedient_process.wait() == ExitStatus(None, "SIGTERM")
        assert await stubborn_process.wait() == ExitStatus(None, "SIGKILL")
        await stubborn_process.wait_gone()
    obedient_process.close()
    stubborn_process.close()
    assert brokers_of(os.getpid()) == []


@pytest.mark.requirement("process.start-failed")
async def test_without_a_python_to_run_the_broker_starting_fails(broker: BrokeredStarter) -> None:
    python = sys.executable
    try:
        sys.executable = "/nowhere/python"
        with pytest.raises(StartFailedError) as error_info:
            await broker.start(bash("true"))
    finally:
        sys.executable = python
    assert error_info.value.number == errno.ENOENT
    assert await run(broker, bash("echo on")) == (ExitStatus(0, None), "on\n")


@pytest.mark.long
@pytest.mark.requirement("process.start-failed")
async def test_many_short_programs_at_once_all_start(broker: BrokeredStarter) -> None:
    slots = anyio.Semaphore(8)
    codes: list[int | None] = []

    async def run_one() -> None:
        async with slots:
            process = await broker.start(bash("true"))
            codes.append((await process.wait()).code)
            process.close()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(400):
                group.start_soon(run_one)
    assert codes == [0] * 400
