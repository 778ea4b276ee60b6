"""What results tell of commands and jobs. What a command printed stands last, so nothing in it can pass for a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tools.contract.names import one_line, shown_whole_path
from tools.contract.result import FileDataPart, Part, TextPart
from tools.execution.command import POSIX_SHELL, CommandRequest, Ending, Finished, Shown
from tools.execution.jobs import Job, JobStatus

if TYPE_CHECKING:
    from tools.execution.process import ExitStatus

DISPLAY_CHARS = 4_000
"""Characters of an output that a person is shown beside the result for the model; the end counts."""

NEAR_THE_LIMIT = 0.5
"""A command that took this much of its time is told how to get more (Qwen Code's share)."""

MOST_STEERING = 10
"""Files that are named."""

KILO = 1000
_EMPTY = "Output: (empty)"


def size(count: int) -> str:
    """A number of bytes for people and models."""
    if count < KILO:
        return f"{count} bytes"
    for unit in ("kB", "MB"):
        count_in_unit = count / (KILO if unit == "kB" else KILO**2)
        if count_in_unit < KILO:
            return f"{count_in_unit:.1f} {unit}"
    return f"{count / KILO**3:.1f} GB"


def run_content(finished: Finished, request: CommandRequest, directory: str | None) -> list[Part]:
    """What a model is told of a command that has run.

    Args:
        finished: What became of it.
        request: What was asked for.
        directory: The folder as it was given, if it was.
    """
    lines: list[str] = []
    if directory is not None:
        lines.append(f"Directory: {shown_whole_path(directory)}")
    lines += _exit_lines(finished.exit)
    lines += _left_lines(finished)
    lines += _notes(finished, request)
    lines.append(_output_block(finished.shown))
    parts: list[Part] = [TextPart("\n".join(lines))]
    if (link := _link(finished.shown)) is not None:
        parts.append(link)
    return parts


def run_facts(finished: Finished) -> dict[str, Any]:
    """What programs are told of it."""
    status = finished.exit
    return {
        "sandbox": finished.confined.sandbox,
        "network": finished.confined.network,
        "exitCode": status.code if status is not None else None,
        "signal": status.signal if status is not None else None,
        "pid": finished.pid,
        "durationMs": round(finished.seconds * 1000),
        "outputBytes": finished.shown.total,
        "outputFile": finished.shown.file,
        "timedOut": finished.ending is not Ending.EXITED,
        "jobId": finished.job.id if finished.job is not None else None,
    }


def run_display(finished: Finished) -> str:
    """What a person is shown: the end of the output, else how it ended, else nothing."""
    text = finished.shown.text
    if finished.shown.is_binary:
        return f"Binary output, {size(finished.shown.total)}"
    if len(text) > DISPLAY_CHARS:
        _, _, whole_lines = text[-DISPLAY_CHARS:].partition("\n")
        return f"[...]\n{whole_lines or text[-DISPLAY_CHARS:]}"
    if text:
        return text
    status = finished.exit
    if status is not None and status.signal is not None:
        return f"Command was ended by {status.signal}"
    if status is not None and status.code:
        return f"Command exited with code {status.code}"
    return f"Still running in the background: {finished.job.id}" if finished.job is not None else ""


def timed_out_message(finished: Finished, request: CommandRequest, silence_seconds: float) -> str:
    """What a model is told of a command that was ended at a limit."""
    if finished.ending is Ending.SILENT:
        why = (
            f"printed nothing for {silence_seconds:g} s (shell.silenceTimeout) and was ended, with all it had started. "
            "Let it print its progress"
        )
    else:
        why = (
            f"took longer than {request.timeout_seconds:g} s and was ended, with all it had started. "
            "Give it more time with the parameter timeout (milliseconds, at most 600000)"
        )
    shown = finished.shown
    sentence = f"The command {why}, or run it with is_background: true and read its output with read_background_output."
    if shown.is_binary:
        return f"{sentence} It had printed {size(shown.total)} of binary data."
    if not shown.text:
        return f"{sentence} It had printed nothing."
    where = f" {size(shown.total)} (all of it: {shown_whole_path(shown.file)})" if shown.file is not None else ""
    return f"{sentence} It had printed{where}:\n{shown.text}\n"


def job_content(job: Job, shown: Shown) -> str:
    """What a model is told of a command that was started in the background."""
    lines = [f"Background Job: {job.id} ({status_text(job)})", f"PID: {job.running.process.pid}"]
    if job.status is JobStatus.RUNNING:
        lines.append(
            "It goes on after this call. read_background_output shows what it prints, stop_background_job ends it."
        )
    lines.append(_output_block(shown))
    return "\n".join(lines)


def job_facts(job: Job) -> dict[str, Any]:
    """What programs are told of it."""
    spill = job.running.output.spill
    status = job.exit
    return {
        "sandbox": job.running.confined.sandbox,
        "network": job.running.confined.network,
        "jobId": job.id,
        "status": job.status.value,
        "exitCode": status.code if status is not None else None,
        "signal": status.signal if status is not None else None,
        "pid": job.running.process.pid,
        "durationMs": round(job.seconds * 1000),
        "outputBytes": job.running.output.total,
        "outputFile": spill.path if spill is not None and spill.kept else None,
    }


def status_text(job: Job) -> str:
    """A job's status with how its shell ended."""
    if job.exit is None:
        return job.status.value
    ended = f"exit code {job.exit.code}" if job.exit.signal is None else f"signal {job.exit.signal}"
    if job.status is JobStatus.RUNNING:
        return f"running; its shell has ended, {ended}"
    return f"{job.status.value}, {ended}"


def _exit_lines(status: ExitStatus | None) -> list[str]:
    lines: list[str] = []
    if status is not None and status.code:
        lines.append(f"Exit Code: {status.code}")
    if status is not None and status.signal is not None:
        lines.append(f"Signal: {status.signal}")
    return lines


def _left_lines(finished: Finished) -> list[str]:
    """What goes on after the command."""
    if not finished.left_running:
        return []
    pids = f"PIDs {', '.join(map(str, finished.left_running))}"
    if finished.job is None:
        return [f"Note: it left processes running ({pids}). They were ended: no background job can be made of them."]
    said = f"Background Jobs: {finished.job.id} ({pids}), left running by the command."
    return [f"{said} read_background_output shows what it prints, stop_background_job ends it."]


def _notes(finished: Finished, request: CommandRequest) -> list[str]:
    notes: list[str] = []
    if finished.shell == POSIX_SHELL:
        notes.append(f"Note: there is no bash here; {POSIX_SHELL} ran the command.")
    if finished.seconds >= max(1.0, request.timeout_seconds * NEAR_THE_LIMIT):
        notes.append(
            f"Note: it took {finished.seconds:.0f} s of {request.timeout_seconds:g} s. For longer work give a larger "
            "timeout, or use is_background."
        )
    if finished.confined.sandbox != "none" and (finished.exit is None or finished.exit.code != 0):
        network = ", and reaches no network" if finished.confined.network == "none" else ""
        notes.append(f"Note: it ran in a sandbox, where it can change little but the workspace{network}.")
    notes += steering_notes(finished.steering)
    notes += _file_notes(finished.shown)
    return notes


def steering_notes(paths: Sequence[str]) -> list[str]:
    """That files are there which programs outside the sandbox will obey."""
    if not paths:
        return []
    shown = ", ".join(map(shown_whole_path, paths[:MOST_STEERING]))
    more = f" and {len(paths) - MOST_STEERING} more" if len(paths) > MOST_STEERING else ""
    return [
        f"Note: new since the command began, and obeyed by programs outside the sandbox: {shown}{more}. Tell the user."
    ]


def _file_notes(shown: Shown) -> list[str]:
    """Where the whole output is, if it is not here."""
    if not shown.is_cut and not shown.is_binary:
        return []
    what = "it is no text" if shown.is_binary else "only its beginning and its end are shown"
    if shown.file is None:
        return [f"Note: the output has {size(shown.total)}; {what}. The rest is not kept."]
    how = "" if shown.is_binary else "; read_file shows it by lines, from its end with a negative offset"
    lacking = f" (without the last {size(shown.missing)}, which are not kept)" if shown.missing else ""
    where = f"All of it{lacking} is in {shown_whole_path(shown.file)}{how}."
    return [f"Note: the output has {size(shown.total)}; {what}. {where}"]


def _output_block(shown: Shown) -> str:
    if shown.is_binary:
        return f"Output: (binary, {size(shown.total)})"
    return f"Output:\n{shown.text}" if shown.text else _EMPTY


def _link(shown: Shown) -> FileDataPart | None:
    """The whole output for clients, where it is not all in the text."""
    if shown.file is None or not (shown.is_cut or shown.is_binary):
        return None
    from pathlib import Path  # noqa: PLC0415 - it takes a while, and most outputs are short

    kind = "application/octet-stream" if shown.is_binary else "text/plain"
    return FileDataPart(Path(shown.file).as_uri(), "output of the command", kind, shown.total - shown.missing)


def command_line(command: str, longest: int) -> str:
    """A command on one line; a long one is cut."""
    line = one_line(command.strip()[: longest + 1])
    return line if len(line) <= longest else f"{line[:longest]}..."
