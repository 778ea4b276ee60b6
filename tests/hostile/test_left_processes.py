"""Programs that try to stay: whatever they do, and whichever process is killed, nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from tests.other_user import NOBODY
from tests.processes import (
    BASH,
    CEILING,
    ENVIRONMENT,
    SharedBroker,
    bash,
    brokers_of,
    children_of,
    descendants_of,
    environment_with_mark,
    is_running,
    needs_proc,
    needs_root,
    pids_with_mark,
    read_line,
    run,
    until_ended,
    until_no_process_has_mark,
)
from tests.variants import one_in
from tools.shell.broker import supervisor
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.process_spec import ExitStatus, Process, ProcessSpec, ResourceLimits, StartFailedError
from tools.shell.supervisor_pool import MAX_IDLE

pytestmark = [pytest.mark.anyio, needs_proc]

OWNER = Path(__file__).resolve().parents[1] / "peers" / "command_owner.py"


IGNORE_SIGNALS = "trap '' TERM INT HUP; while :; do sleep 0.05; done"

STAYING_COMMANDS = {
    "a child in the background": "sleep 600 & echo up",
    "a child in a session of its own": "setsid sleep 600 & echo up",
    "a daemon": "(setsid setsid bash -c 'sleep 600 & sleep 600' &); echo up",
    "one that ignores SIGTERM": f'(setsid bash -c "{IGNORE_SIGNALS}" &); echo up',
    "one that is stopped": "setsid bash -c 'kill -STOP $$; sleep 600' & until grep -q 'State:.T' /proc/$!/status; "
    "do sleep 0.01; done; echo up",
    "a shell that ignores SIGTERM": f"echo up; {IGNORE_SIGNALS}",
    "a shell that stops itself": "echo up; kill -STOP $$; sleep 600",
    "one that starts another when it is asked to end": "trap 'setsid sleep 600 & setsid sleep 600 &' TERM; echo up; "
    "while :; do sleep 0.01; done",
    "one that keeps replacing itself": "next() { (next &) ; }; echo up; next & while :; do sleep 0.01; done",
    "one that keeps replacing itself, alone": "next() { (next &) ; }; next & echo up",
}
"""Ways to stay. Each prints `up` when it has started."""

FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[600]).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""

AS_NOBODY = f"""
import os, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
os.execv({BASH!r}, [{BASH!r}, "-c", sys.argv[1]])
"""


@pytest.fixture(params=[BrokeredStarter, SharedBroker])
async def broker(request: pytest.FixtureRequest) -> AsyncGenerator[BrokeredStarter]:
    """A new broker, with one supervisor for each program or one for all."""
    broker = request.param()
    yield broker
    await broker.aclose()


@pytest.fixture
async def services() -> AsyncGenerator[SharedBroker]:
    """A new broker with one supervisor for all programs."""
    broker = SharedBroker()
    yield broker
    await broker.aclose()


@pytest.fixture
def mark() -> str:
    """An identifier that marks all processes of one test."""
    return uuid4().hex


async def start(broker: BrokeredStarter, command: str, mark: str = "") -> Process:
    """Start a command, and wait until it prints `up`."""
    process = await broker.start(bash(command, environment=environment_with_mark(mark)))
    assert await read_line(process) == "up"
    return process


def supervisors() -> list[int]:
    """Return the processes that supervise programs."""
    return [pid for parent in brokers_of(os.getpid()) for pid in children_of(parent)]


async def until_stopped(pid: int) -> None:
    """Wait until a process is stopped."""
    with anyio.fail_after(CEILING):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


@pytest.mark.requirement("process.nothing-left")
@pytest.mark.parametrize("command", one_in(2, STAYING_COMMANDS.values()), ids=STAYING_COMMANDS)
async def test_a_program_that_is_ended_leaves_nothing(broker: BrokeredStarter, command: str, mark: str) -> None:
    process = await start(broker, command, mark)
    for _ in range(20):
        assert await process.left_running() != ()
    with anyio.fail_after(CEILING):
        await process.end(0.1)
    assert await process.left_running() == ()
    # If a busy machine has delayed the supervisor so long that it was killed, the broker is still ending the processes.
    await until_no_process_has_mark(mark)
    process.close()


@pytest.mark.requirement("process.nothing-left")
@pytest.mark.parametrize("has_files", [True, False])
async def test_descendants_are_found_even_where_the_kernel_does_not_list_children(
    has_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_HAS_CHILDREN_FILES", has_files)
    program = await anyio.open_process([BASH, "-c", "sleep 600 & echo up; wait"], stderr=None)
    async with program:
        assert program.stdout is not None
        assert await program.stdout.receive() == b"up\n"
        assert {program.pid, *descendants_of(program.pid)} <= set(supervisor.Descendants().pids())
        assert program.pid not in supervisor.Descendants(excluded_pids=[program.pid]).pids()
        other_children = [pid for pid in children_of(os.getpid()) if pid != program.pid]
        supervisor.Descendants(excluded_pids=other_children).kill()
        assert await program.wait() == -signal.SIGKILL


@pytest.mark.requirement("process.nothing-left")
async def test_a_process_whose_first_thread_has_ended_is_found(broker: BrokeredStarter) -> None:
    spec = ProcessSpec((sys.executable, "-c", FIRST_THREAD_ENDS), "/", ENVIRONMENT)
    process = await broker.start(spec)
    assert await read_line(process) == "up"
    assert await process.left_running() == (process.pid,)
    with anyio.fail_after(CEILING):
        await process.end(0)
        assert await process.wait() == ExitStatus(None, "SIGKILL")
    assert not is_running(process.pid)
    process.close()


@pytest.mark.requirement("process.nothing-left")
async def test_a_stopped_program_is_asked_to_end_like_others(broker: BrokeredStarter) -> None:
    process = await start(broker, "echo up; kill -STOP $$; exit 1")
    await until_stopped(process.pid)
    with anyio.fail_after(CEILING):
        await process.end(10.0)
        assert await process.wait() == ExitStatus(None, "SIGTERM")
    process.close()


@pytest.mark.requirement("process.limits")
async def test_a_fork_bomb_is_limited_and_ended(broker: BrokeredStarter) -> None:
    bomb = "echo up; bomb() { bomb | bomb & }; bomb; sleep 600"
    limits = ResourceLimits(processes=_thread_count_of_bomber() + 60)
    spec = ProcessSpec((sys.executable, "-c", AS_NOBODY, bomb), "/", ENVIRONMENT, limits)
    process = await broker.start(spec)
    assert await read_line(process) == "up"
    with anyio.fail_after(CEILING):
        while len(await process.left_running()) < 20:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
        # The programs of a shared supervisor share one limit, which does not apply to root.
        if os.geteuid() == 0 or not isinstance(broker, SharedBroker):
            assert (await run(broker, bash("echo alive")))[1] == "alive\n"
        assert len(await process.left_running()) <= 62
        await process.end(0.1)
    assert await process.left_running() == ()
    process.close()


def _thread_count_of_bomber() -> int:
    """Return the number of threads of the user that runs the bomb, because they count towards the limit."""
    user = os.geteuid() or NOBODY
    count = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count


@asynccontextmanager
async def owner_of(mark: str, *commands: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process in place of the server, which has started these commands."""
    owner = await asyncio.create_subprocess_exec(
        sys.executable, str(OWNER), mark, *commands, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        with anyio.fail_after(CEILING):
            assert await owner.stdout.readline() == b"started\n"
        yield owner
    finally:
        if owner.returncode is None:
            owner.kill()
            await owner.wait()


@pytest.mark.requirement("process.nothing-left")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_when_the_server_is_killed_nothing_is_left(number: signal.Signals, mark: str) -> None:
    async with owner_of(mark, *STAYING_COMMANDS.values(), "echo up; exec yes > /dev/null") as owner:
        descendants = descendants_of(owner.pid)
        assert len(descendants) > 2 * len(STAYING_COMMANDS)
        owner.send_signal(number)
        with anyio.fail_after(CEILING):
            assert await owner.wait() == -number
        await until_ended(descendants)
        await until_no_process_has_mark(mark)


@pytest.mark.requirement("process.nothing-left")
@pytest.mark.parametrize("guard", ["supervisor", "broker"])
async def test_a_stopped_guard_goes_on_when_the_server_is_killed(guard: str, mark: str) -> None:
    command = {
        "supervisor": "echo up; while :; do kill -STOP $PPID; done",
        "broker": "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); echo up; sleep 600",
    }[guard]
    async with owner_of(mark, command) as owner:
        descendants = descendants_of(owner.pid)
        if guard == "broker":
            await until_stopped(brokers_of(owner.pid)[0])
        owner.kill()
        await owner.wait()
        await until_ended(descendants)


@pytest.mark.requirement("process.broker-killed")
async def test_when_the_broker_is_killed_nothing_is_left_and_the_next_start_works(
    broker: BrokeredStarter, mark: str
) -> None:
    processes = [await start(broker, command, mark) for command in STAYING_COMMANDS.values()]
    idle = await run(broker, bash("echo idle"))
    (parent,) = brokers_of(os.getpid())
    descendants = descendants_of(parent)
    os.kill(parent, signal.SIGKILL)
    await until_ended([parent])
    assert await run(broker, bash("echo next")) == (ExitStatus(0, None), "next\n")
    statuses: list[ExitStatus] = []
    with anyio.fail_after(CEILING):
        for process in processes:
            await process.wait_gone()
            statuses.append(await process.wait())
            process.close()
    # The statuses say that the programs were killed because the broker was lost. Programs that had ended before this
    # server noticed the loss are an exception.
    assert any(status.is_lost for status in statuses)
    assert all(status.signal for status in statuses if status.is_lost)
    await until_ended(descendants)
    await until_no_process_has_mark(mark)
    assert idle == (ExitStatus(0, None), "idle\n")
    with anyio.fail_after(CEILING):
        while parent in children_of(os.getpid()):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


@pytest.mark.requirement("process.broker-killed")
async def test_a_broker_that_is_killed_again_and_again_is_replaced(broker: BrokeredStarter) -> None:
    for number in range(5):
        assert await run(broker, bash(f"echo {number}")) == (ExitStatus(0, None), f"{number}\n")
        parents = brokers_of(os.getpid())
        for parent in parents:
            os.kill(parent, signal.SIGKILL)
        await until_ended(parents)
    assert (await run(broker, bash("echo last")))[1] == "last\n"


@pytest.mark.requirement("process.broker-killed")
async def test_a_request_to_end_meant_for_others_does_not_end_the_broker(broker: BrokeredStarter) -> None:
    process = await start(broker, "echo up; exec sleep 600")
    (parent,) = brokers_of(os.getpid())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(parent, number)
        os.kill(supervisors()[0], number)
    assert (await run(broker, bash("echo on")))[1] == "on\n"
    assert await process.left_running() == (process.pid,)
    assert brokers_of(os.getpid()) == [parent]
    await process.end(0)
    process.close()


@pytest.mark.requirement("process.broker-killed")
@pytest.mark.parametrize("command", one_in(2, STAYING_COMMANDS.values()), ids=STAYING_COMMANDS)
async def test_when_a_supervisor_is_killed_nothing_is_left(broker: BrokeredStarter, command: str, mark: str) -> None:
    process = await start(broker, command, mark)
    (supervisor,) = supervisors()
    os.kill(supervisor, signal.SIGKILL)
    with anyio.fail_after(CEILING):
        await process.wait()
        await process.wait_gone()
    assert pids_with_mark(mark) == []
    await until_no_process_has_mark(mark)
    assert await process.left_running() == ()
    await process.end(0.2)
    process.close()
    assert (await run(broker, bash("echo on")))[1] == "on\n"


@pytest.mark.requirement("process.broker-killed")
@pytest.mark.parametrize("broker", [BrokeredStarter], indirect=True)
async def test_when_a_supervisor_is_killed_the_others_go_on(broker: BrokeredStarter) -> None:
    first = await start(broker, "echo up; exec sleep 600")
    (supervisor,) = supervisors()
    second = await start(broker, "echo up; exec sleep 600")
    os.kill(supervisor, signal.SIGKILL)
    with anyio.fail_after(CEILING):
        await first.wait_gone()
    assert not is_running(first.pid)
    assert await second.left_running() == (second.pid,)
    await second.end(0)
    first.close()
    second.close()


@pytest.mark.requirement("process.broker-killed")
async def test_a_command_that_kills_its_supervisor_is_ended(broker: BrokeredStarter, tmp_path: Path, mark: str) -> None:
    go = tmp_path / "go"
    command = f"setsid sleep 600 & echo up; until [ -e {go} ]; do sleep 0.01; done; kill -KILL $PPID; sleep 600"
    process = await start(broker, command, mark)
    go.touch()
    with anyio.fail_after(CEILING):
        assert await process.wait() == ExitStatus(None, "SIGKILL")
        await process.wait_gone()
    assert pids_with_mark(mark) == []
    process.close()


@pytest.mark.requirement("process.broker-killed")
async def test_a_command_that_kills_its_supervisor_at_once_is_ended(broker: BrokeredStarter, mark: str) -> None:
    with suppress(StartFailedError), anyio.fail_after(CEILING):
        process = await broker.start(
            bash("setsid sleep 600 & kill -KILL $PPID; sleep 600", environment=environment_with_mark(mark))
        )
        assert await process.wait() == ExitStatus(None, "SIGKILL")
        await process.wait_gone()
        process.close()
    await until_no_process_has_mark(mark)


@pytest.mark.requirement("process.broker-killed")
@pytest.mark.parametrize("command", ["kill -STOP $PPID; sleep 600", "while :; do kill -STOP $PPID; done"])
async def test_a_command_that_stops_its_supervisor_is_ended(broker: BrokeredStarter, command: str, mark: str) -> None:
    with anyio.fail_after(CEILING):
        process = await broker.start(bash(command, environment=environment_with_mark(mark)))
        await process.end(0.1)
        assert (await process.wait()).code is None
    assert pids_with_mark(mark) == []
    process.close()


@pytest.mark.requirement("process.shared-supervisor")
async def test_services_share_one_supervisor_and_each_ends_without_the_others(services: SharedBroker) -> None:
    marks = [uuid4().hex for _ in STAYING_COMMANDS]
    processes = [
        await start(services, command, mark) for command, mark in zip(STAYING_COMMANDS.values(), marks, strict=True)
    ]
    assert len(supervisors()) == 1
    for process, own_mark in zip(processes, marks, strict=True):
        with anyio.fail_after(CEILING):
            await process.end(0.1)
        assert await process.left_running() == ()
        assert pids_with_mark(own_mark) == []
        process.close()
        for later_process in processes[marks.index(own_mark) + 1 :]:
            assert await later_process.left_running() != ()


@pytest.mark.requirement("process.shared-supervisor")
@pytest.mark.parametrize(
    "command", ["sleep 600 &", "(setsid sleep 600 &);", "(setsid setsid env -u MARK sleep 600 &);"]
)
async def test_what_a_service_leaves_is_ended_with_that_service_and_with_no_other(
    services: SharedBroker, command: str
) -> None:
    other_service = await start(services, "(setsid sleep 600 &); echo up; exec sleep 600")
    process = await start(services, f"{command} echo up")
    with anyio.fail_after(CEILING):
        assert await process.wait() == ExitStatus(0, None)
        while len(pids := await process.left_running()) > 1:
            pass  # the intermediate shells are ending
        await process.end(0)
    assert not is_running(*pids)
    process.close()
    assert len(await other_service.left_running()) == 2
    await other_service.end(0)
    other_service.close()


@pytest.mark.requirement("process.shared-supervisor")
@pytest.mark.parametrize("ending", ["in order", "the broker is killed", "the supervisor is killed"])
async def test_a_process_that_hides_its_service_ends_with_the_supervisor(
    services: SharedBroker, ending: str, mark: str
) -> None:
    command = "(setsid setsid env -i MARK=$MARK bash -c 'echo up; exec sleep 600' &)"
    process = await start(services, command, mark)
    with anyio.fail_after(CEILING):
        await process.wait()
        await process.end(0)
    process.close()
    assert len(pids_with_mark(mark)) == 1
    if ending != "in order":
        (guard,) = brokers_of(os.getpid()) if "broker" in ending else supervisors()
        os.kill(guard, signal.SIGKILL)
        await until_no_process_has_mark(mark)
        assert (await run(services, bash("echo on")))[1] == "on\n"
    await services.aclose()
    assert pids_with_mark(mark) == []


@needs_root
@pytest.mark.requirement("process.shared-supervisor")
async def test_services_that_come_and_go_leave_no_descriptors_in_the_broker(services: SharedBroker) -> None:
    lasting_services = [await start(services, "echo up; exec sleep 600") for _ in range(MAX_IDLE)]
    counts: list[int] = []
    for _ in range(3):
        passing_services = [await start(services, "echo up; exec sleep 600") for _ in range(3 * MAX_IDLE)]
        (parent,) = brokers_of(os.getpid())
        counts.append(len(os.listdir(f"/proc/{parent}/fd")))
        for process in passing_services:
            await process.end(0)
            process.close()
    assert counts[0] == counts[1] == counts[2]
    for process in lasting_services:
        await process.end(0)
        process.close()


@pytest.mark.requirement("process.broker-killed")
async def test_a_stopped_broker_goes_on_when_it_is_needed(broker: BrokeredStarter) -> None:
    processes = [await start(broker, "echo up; exec sleep 600") for _ in range(2)]
    (parent,) = brokers_of(os.getpid())
    for _ in range(3):
        os.kill(parent, signal.SIGSTOP)
        with anyio.fail_after(CEILING):
            processes.append(await start(broker, "echo up; exec sleep 600"))
    os.kill(parent, signal.SIGSTOP)
    with anyio.fail_after(CEILING):
        await broker.aclose()
    for process in processes:
        assert await process.wait() == ExitStatus(None, "SIGTERM")
        process.close()
    assert brokers_of(os.getpid()) == []
