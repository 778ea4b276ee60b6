"""Background jobs, which their client starts, lists, reads and stops, and which end with the client."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio
import pytest

from tests.unit.execution.shell import CEILING, Shell, shell_in, text_of
from tests.waiting import until
from tools.builtin.background_jobs import ListJobsTool, ReadOutputTool, StopJobTool
from tools.call.base_tool import READS, Behaviour
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.shell.job_table import MAX_KEPT, MAX_RUNNING, Job
from tools.shell.program_output import TAIL_BYTES, WINDOW_BYTES

pytestmark = pytest.mark.anyio


async def start_job(shell: Shell, command: str, **arguments: object) -> Job:
    result = await shell.run(command, is_background=True, **arguments)
    job = shell.jobs.all()[-1]
    assert result.facts["jobId"] == job.id
    return job


async def until_over(job: Job) -> None:
    with anyio.fail_after(CEILING):
        await job.is_over.wait()


def output_text(result: ToolResult) -> str:
    return text_of(result).partition("Output:\n")[2]


def next_offset(result: ToolResult) -> int:
    match = re.search(r"ontinue with offset (\d+)", text_of(result))
    assert match is not None
    assert int(match[1]) == result.facts["nextOffset"]
    return int(match[1])


@pytest.mark.requirement("jobs.start")
async def test_a_background_command_continues_after_its_call(shell: Shell) -> None:
    result = await shell.run("echo ready; sleep 600", is_background=True)
    job = shell.job
    assert re.fullmatch(r"bg_[0-9a-f]{8}", job.id)
    assert text_of(result) == (
        f"Background Job: {job.id} (running)\nPID: {job.running.process.pid}\n"
        "It continues after this call. read_background_output shows its output, and stop_background_job ends it.\n"
        "Output:\nready"
    )
    assert result.return_display == f"Background job {job.id}: running"
    assert (result.facts["jobId"], result.facts["status"], result.facts["exitCode"]) == (job.id, "running", None)
    assert shell.running()


@pytest.mark.requirement("jobs.start")
async def test_a_background_command_that_fails_at_once_is_reported_at_once(shell: Shell) -> None:
    with anyio.fail_after(CEILING):
        while True:
            result = await shell.run("echo no such thing >&2; exit 7", is_background=True)
            if "running" not in text_of(result):
                break
    assert "(failed, exit code 7)" in text_of(result)
    assert text_of(result).endswith("Output:\nno such thing")
    assert "It continues" not in text_of(result)


@pytest.mark.requirement("jobs.start")
async def test_jobs_take_no_slot_of_other_commands_and_have_no_time_limit(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, max_concurrent=1, timeout_seconds=5, silence_seconds=0.3) as shell:
        job = await start_job(shell, "sleep 1; echo end; sleep 600", timeout=100)
        assert output_text(await shell.run("echo other")) == "other"
        await until(lambda: job.running.output.total == 4)
        assert job.status == "running"


@pytest.mark.requirement("jobs.start")
@pytest.mark.parametrize(
    ("command", "status", "ending"),
    [
        ("true", "completed", "completed, exit code 0"),
        ("exit 2", "failed", "failed, exit code 2"),
        ("kill -KILL $$", "failed", "failed, signal SIGKILL"),
    ],
)
async def test_a_job_that_has_ended_says_how(shell: Shell, command: str, status: str, ending: str) -> None:
    job = await start_job(shell, command)
    await until_over(job)
    assert job.status == status
    assert f"Status: {ending}\n" in text_of(await shell.read(job))
    assert f"{job.id}: {ending};" in text_of(await shell.list())


@pytest.mark.requirement("jobs.start")
async def test_a_job_runs_as_long_as_any_of_its_processes(shell: Shell, root: Path) -> None:
    job = await start_job(shell, "(while [ ! -e go ]; do sleep 0.01; done) & exit 3")
    await until(lambda: job.exit is not None)
    assert "running; its shell has exited (exit code 3" in text_of(await shell.list())
    (root / "go").touch()
    await until_over(job)
    assert job.status == "failed"


@pytest.mark.requirement("jobs.list")
async def test_jobs_are_listed_with_the_newest_first(shell: Shell, root: Path) -> None:
    assert text_of(await shell.list()) == "There are no background jobs."
    (root / "sub").mkdir()
    first_job = await start_job(shell, "echo 12345; exit 1", directory="sub", description="the\nfirst")
    await until_over(first_job)
    second_job = await start_job(shell, "sleep 600")
    result = await shell.list()
    assert result.structured is not None
    newest, oldest = result.structured["jobs"]
    assert (newest["job_id"], newest["status"], newest["exit_code"]) == (second_job.id, "running", None)
    assert oldest == {
        "job_id": first_job.id,
        "status": "failed",
        "exit_code": 1,
        "signal": None,
        "pid": first_job.running.process.pid,
        "command": "echo 12345; exit 1",
        "description": "the\\nfirst",
        "directory": str(root / "sub"),
        "duration_ms": oldest["duration_ms"],
        "output_bytes": 6,
    }
    head, newest_line, oldest_line = text_of(result).split("\n")
    assert head == "Background jobs: 2 (1 running)"
    assert newest_line.startswith(f"{second_job.id}: running; PID ")
    assert oldest_line.endswith(f"6 bytes printed: echo 12345; exit 1 [in {root / 'sub'}]")
    assert result.return_display == "Background jobs: 2 (1 running)"


@pytest.mark.requirement("jobs.list")
async def test_the_folder_in_a_list_of_jobs_can_be_sent_back_even_if_its_name_is_not_utf_8(
    shell: Shell, root: Path
) -> None:
    os.mkdir(os.fsencode(root) + b"/w\xff")
    await until_over(await start_job(shell, "true", directory='"w\\xff"'))
    result = await shell.list()
    assert result.structured is not None
    (job,) = result.structured["jobs"]
    assert job["directory"] == f'{root}/"w\\xff"'
    await until_over(await start_job(shell, "true", directory=job["directory"]))


@pytest.mark.requirement("jobs.list")
async def test_the_text_of_a_long_list_stays_small(shell: Shell) -> None:
    for number in range(60):
        await until_over(await start_job(shell, f": {number} " + "é" * 300))
    result = await shell.list()
    assert len(text_of(result).encode()) < 8_000
    assert re.search(r"\nOlder jobs not shown: \d+$", text_of(result))
    assert result.structured is not None
    assert len(result.structured["jobs"]) == 60


@pytest.mark.requirement("jobs.read")
async def test_the_last_lines_are_shown_and_then_only_what_is_new(shell: Shell, root: Path) -> None:
    job = await start_job(
        shell, "seq 1 500; while [ ! -e go ]; do sleep 0.01; done; echo new; printf partial; sleep 600"
    )
    await until(lambda: job.running.output.total == 1892)
    last_lines = await shell.read(job)
    assert output_text(last_lines).split("\n") == [str(number) for number in range(401, 501)]
    assert "Bytes 1492-1892 of 1892;" in text_of(last_lines)
    assert output_text(await shell.read(job, lines=2)) == "499\n500"
    unchanged_result = await shell.read(job, offset=next_offset(last_lines))
    assert "Nothing new. Bytes printed so far: 1892. Continue with offset 1892.\nOutput: (empty)" in text_of(
        unchanged_result
    )
    (root / "go").touch()
    await until(lambda: job.running.output.total == 1903)
    assert output_text(await shell.read(job, offset=next_offset(unchanged_result))) == "new\npartial"


@pytest.mark.requirement("jobs.read")
async def test_reading_repeatedly_from_the_beginning_gives_all_output(shell: Shell) -> None:
    job = await start_job(shell, "seq 1 60000; printf '\\xe2\\x82'; sleep 0.1; printf '\\xac\\nend'")
    pieces: list[str] = []
    offset = 0
    with anyio.fail_after(CEILING):
        while True:
            is_over = job.status != "running"
            result = await shell.read(job, offset=offset, lines=777)
            if result.facts["nextOffset"] > offset:
                pieces.append(output_text(result))
                assert pieces[-1].count("\n") < 777
            elif is_over:
                break
            offset = next_offset(result)
    assert job.running.output.total > TAIL_BYTES
    assert "\n".join(pieces) == "\n".join([*(str(number) for number in range(1, 60_001)), "€", "end"])


@pytest.mark.requirement("jobs.read")
async def test_an_answer_stays_bounded_even_without_line_endings(shell: Shell) -> None:
    job = await start_job(shell, "head -c 1000000 /dev/zero | tr '\\0' x")
    await until_over(job)
    for arguments in ({}, {"offset": 0}, {"offset": 500_000}):
        result = await shell.read(job, **arguments)
        assert len(output_text(result)) == WINDOW_BYTES
    tail = await shell.read(job, offset=999_990)
    assert output_text(tail) == "x" * 10


@pytest.mark.requirement("jobs.read")
async def test_output_that_is_not_kept_is_skipped_with_a_note(root: Path, tmp_path: Path) -> None:
    async with shell_in(root, tmp_path, file_bytes=100_000) as shell:
        job = await start_job(shell, "seq 1 200000; sleep 600")
        await until(lambda: job.running.output.total == 1_288_895)
        result = await shell.read(job, offset=100_000)
        start = job.running.output.tail_start
        assert f"Bytes {start}-" in text_of(result)
        assert f"Note: the preceding {(start - 100_000) / 1000:.1f} kB of output is no longer kept." in text_of(result)
        assert output_text(await shell.read(job, offset=0, lines=3)) == "1\n2\n3"


@pytest.mark.requirement("jobs.read")
@pytest.mark.parametrize("arguments", [{}, {"offset": 0}], ids=["the end", "from an offset"])
async def test_escape_sequences_and_characters_split_between_two_reads_are_whole(
    shell: Shell, root: Path, arguments: dict[str, int]
) -> None:
    script = r"printf 'a\033[3'; %s; printf '1mb\033[0m\xe2\x82'; %s; printf '\xac'; sleep 600"
    job = await start_job(shell, script % tuple(f"while [ ! -e {name} ]; do sleep 0.01; done" for name in ("go", "on")))
    await until(lambda: job.running.output.total == 4)
    first = await shell.read(job, **arguments)
    (root / "go").touch()
    await until(lambda: job.running.output.total == 13)
    second = await shell.read(job, offset=next_offset(first))
    (root / "on").touch()
    await until(lambda: job.running.output.total == 14)
    third = await shell.read(job, offset=next_offset(second))
    assert (output_text(first), output_text(second), output_text(third)) == ("a", "b", "€")


@pytest.mark.requirement("jobs.read")
async def test_only_the_size_and_the_file_of_a_binary_output_are_reported(shell: Shell) -> None:
    job = await start_job(shell, "printf '\\1\\0b'")
    await until_over(job)
    assert job.running.output.file is not None
    path = job.running.output.file.path
    assert text_of(await shell.read(job)).endswith(f"\nOutput: (binary, 3 bytes, saved in {path})")


@pytest.mark.requirement("jobs.read")
async def test_an_offset_past_the_end_is_refused(shell: Shell) -> None:
    job = await start_job(shell, "echo")
    await until_over(job)
    with pytest.raises(InvalidToolParamsError, match="Bytes printed so far: 1"):
        await shell.read(job, offset=2)


@pytest.mark.requirement("jobs.start")
async def test_stopping_ends_a_job_with_all_its_processes(shell: Shell) -> None:
    job = await start_job(shell, "trap 'echo saved; exit 0' TERM; sleep 600 & sleep 600 & wait; wait")
    await until(lambda: len(shell.running()) == 3)
    result = await shell.stop(job)
    assert shell.running() == []
    fields = {"job_id": job.id, "status": "stopped", "was_running": True, "exit_code": 0, "signal": None}
    assert result.structured == fields
    assert text_of(result).startswith(f"Job {job.id} was ended (stopped, exit code 0): trap ")
    assert output_text(await shell.read(job)) == "saved"
    second_result = await shell.stop(job)
    assert second_result.structured == {**fields, "was_running": False}


@pytest.mark.requirement("jobs.start")
async def test_stopping_kills_a_job_that_ignores_sigterm(shell: Shell) -> None:
    job = await start_job(shell, "trap '' TERM; echo ready; while :; do sleep 1; done")
    await until(lambda: job.running.output.total)
    await shell.stop(job)
    assert shell.running() == []
    assert job.status == "stopped"


@pytest.mark.requirement("jobs.start")
async def test_a_client_may_stop_its_job_without_a_question(shell: Shell) -> None:
    job = await start_job(shell, "sleep 600")
    tool = StopJobTool()
    params = tool.validate_tool_params({"task_id": job.id})
    assert await tool.should_confirm_execute(params, shell.context) is None
    assert tool.get_description(params, shell.context) == f"Stop background job {job.id}"
    assert job.status == "running"


@pytest.mark.requirement("jobs.list")
async def test_the_error_for_an_unknown_job_names_the_known_ones(shell: Shell) -> None:
    with pytest.raises(ToolError, match=r"no background job 'bg_0'\. There are no jobs\.$"):
        await shell.call(StopJobTool(), job_id="bg_0")
    with pytest.raises(ToolError, match=r"'bg_01234567'\. There are no jobs\. A job ends with the server or "):
        await shell.call(StopJobTool(), job_id="bg_01234567")
    job = await start_job(shell, "sleep 600")
    for tool in (ReadOutputTool(), StopJobTool()):
        with pytest.raises(ToolError, match=f"no background job 'bg_0'. Known jobs: {job.id}") as error_info:
            await shell.call(tool, job_id="bg_0")
        assert error_info.value.code is ToolErrorType.JOB_NOT_FOUND


@pytest.mark.requirement("jobs.owner")
async def test_a_client_that_cannot_be_told_from_others_has_no_jobs(shell: Shell) -> None:
    anonymous = shell.anonymous()
    error = await anonymous.error_of("sleep 600", is_background=True)
    assert error.code is ToolErrorType.SHELL_EXECUTE_ERROR
    assert error.message.startswith("This client cannot have background jobs")
    with pytest.raises(ToolError):
        await anonymous.list()
    assert shell.starter.processes == []


@pytest.mark.requirement("jobs.owner")
async def test_more_jobs_than_may_run_are_refused_and_one_that_ends_makes_room(shell: Shell) -> None:
    errors: list[ToolError] = []

    async def start() -> None:
        try:
            await shell.run("sleep 600", is_background=True)
        except ToolError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_RUNNING + 3):
            tasks.start_soon(start)
    assert len(shell.jobs.running()) == MAX_RUNNING
    assert [error.message.startswith("16 background jobs are running") for error in errors] == [True] * 3
    text = text_of(await shell.run("sleep 600 &"))
    assert "They were stopped, because" in text
    assert "already has 16" in text
    await shell.stop(shell.jobs.running()[0])
    await start_job(shell, "sleep 600")


@pytest.mark.requirement("jobs.owner")
async def test_the_oldest_of_many_ended_jobs_are_forgotten_with_their_files(shell: Shell) -> None:
    running_job = await start_job(shell, "sleep 600")
    first_job = await start_job(shell, "echo first")
    await until_over(first_job)
    assert first_job.running.output.file is not None
    file = Path(first_job.running.output.file.path)
    assert file.read_text() == "first\n"
    for _ in range(MAX_KEPT - 2):
        await until_over(await start_job(shell, "true"))
    assert first_job in shell.jobs.all()
    await start_job(shell, "true")
    assert len(shell.jobs.all()) == MAX_KEPT
    assert running_job in shell.jobs.all()
    assert first_job not in shell.jobs.all()
    await until(lambda: not file.exists())


@pytest.mark.requirement("jobs.owner")
async def test_cancelling_a_call_leaves_the_jobs_running(shell: Shell) -> None:
    job = await start_job(shell, "sleep 600")
    with anyio.move_on_after(0.3):
        await shell.run("sleep 600")
    assert job.status == "running"
    assert len(shell.running()) == 1


@pytest.mark.requirement("jobs.owner")
async def test_all_jobs_end_with_their_client(shell: Shell) -> None:
    jobs = [await start_job(shell, "sleep 600 & sleep 600") for _ in range(3)]
    await shell.jobs.aclose()
    assert shell.running() == []
    assert [job.status for job in jobs] == ["stopped"] * 3
    assert "The server is shutting down" in (await shell.error_of("true", is_background=True)).message


@pytest.mark.requirement("jobs.list")
def test_the_behaviour_of_the_job_tools_is_declared() -> None:
    assert ListJobsTool.behaviour == READS
    assert ReadOutputTool.behaviour == READS
    assert StopJobTool.behaviour == Behaviour(read_only=False, destructive=True, idempotent=True)
