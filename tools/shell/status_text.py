"""What results tell of background jobs, in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tools.contract.names_on_one_line import one_line, shown_whole_path
from tools.shell.jobs import Job, JobStatus

if TYPE_CHECKING:
    from tools.shell.confinement import Confined, SandboxChanges
    from tools.shell.process import ExitStatus


KILO = 1000

DISPLAY_CHARS = 4_000
"""Characters of an output that a person is shown beside the result for the model."""

MOST_NAMED = 10
"""Files that are named."""


def size(count: int) -> str:
    """A number of bytes for people and models."""
    if count < KILO:
        return f"{count} bytes"
    for unit in ("kB", "MB"):
        count_in_unit = count / (KILO if unit == "kB" else KILO**2)
        if count_in_unit < KILO:
            return f"{count_in_unit:.1f} {unit}"
    return f"{count / KILO**3:.1f} GB"


def command_line(command: str, longest: int) -> str:
    """A command on one line; a long one is cut."""
    line = one_line(command.strip()[: longest + 1])
    return line if len(line) <= longest else f"{line[:longest]}..."


def code_and_signal(status: ExitStatus | None) -> tuple[int | None, str | None]:
    """How a program ended; neither where it has not ended by itself."""
    return (status.code, status.signal) if status is not None else (None, None)


def program_facts(status: ExitStatus | None, *, seconds: float, total: int, file: str | None) -> dict[str, Any]:
    """What programs are told of a program that was run.

    Args:
        status: How it ended, if it has.
        seconds: How long it ran.
        total: Bytes of its output.
        file: Where that is kept.
    """
    code, signal = code_and_signal(status)
    return {
        "exitCode": code,
        "signal": signal,
        "durationMs": round(seconds * 1000),
        "outputBytes": total,
        "outputFile": file,
    }


def command_facts(
    confined: Confined, status: ExitStatus | None, *, pid: int, seconds: float, total: int, file: str | None
) -> dict[str, Any]:
    """What programs are told of a command.

    Args:
        confined: Where it ran.
        status: How its shell ended, if it has.
        pid: Its process id.
        seconds: How long it ran.
        total: Bytes of its output.
        file: Where that is kept.
    """
    return {
        "sandbox": confined.sandbox,
        "network": confined.network.value,
        "pid": pid,
        **program_facts(status, seconds=seconds, total=total, file=file),
    }


def sandbox_notes(changes: SandboxChanges) -> list[str]:
    """What happened to files that programs outside the sandbox obey, and to the client's `/tmp`."""
    notes: list[str] = []
    if changes.moved:
        places = ", ".join(
            f"{shown_whole_path(old)} (now {shown_whole_path(new)})" for old, new in changes.moved[:MOST_NAMED]
        )
        more = f" and {len(changes.moved) - MOST_NAMED} more" if len(changes.moved) > MOST_NAMED else ""
        notes.append(
            "Note: these are new since the command began, and programs outside the sandbox run what they say, so they "
            f"were moved out of the workspace: {places}{more}. If they are wanted, write them with write_file, which "
            "asks the user, or ask the operator to name them in shell.writable."
        )
    if changes.unmovable:
        notes.append(
            "Note: new since the command began, and obeyed by programs outside the sandbox; they could not be moved: "
            f"{named_paths(changes.unmovable)}. Tell the user."
        )
    if changes.changed:
        notes.append(
            "Note: changed, replaced or gone since the command began, and obeyed by programs outside the sandbox: "
            f"{named_paths(changes.changed)}. Tell the user."
        )
    if changes.uncovered:
        notes.append(
            f"Note: {changes.uncovered} of the files and folders that programs outside the sandbox obey were not kept "
            "as they are, since there are too many; the command could change those that lie deepest."
        )
    if changes.is_unknown:
        notes.append(
            "Note: it could not be seen whether the command made or changed files that programs outside the sandbox "
            "obey (.git/hooks, .vscode, .mcp.json and the like). Tell the user."
        )
    if changes.temporary_bytes:
        notes.append(f"Note: /tmp held {size(changes.temporary_bytes)}, which is too much, and was emptied.")
    return notes


def named_paths(paths: Sequence[str]) -> str:
    """Paths for a sentence; of many the first ones."""
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(map(shown_whole_path, paths[:MOST_NAMED])) + more


JOB_PROPERTIES: Mapping[str, Any] = {
    "job_id": {"type": "string"},
    "status": {"enum": [status.value for status in JobStatus]},
    "exit_code": {"type": ["integer", "null"]},
    "signal": {"type": ["string", "null"]},
}
"""JSON Schema of what `structured_job` tells."""


def structured_job(job: Job) -> dict[str, Any]:
    """How a job stands, as structured content."""
    code, signal = code_and_signal(job.exit)
    return {"job_id": job.id, "status": job.status.value, "exit_code": code, "signal": signal}


def job_facts(job: Job) -> dict[str, Any]:
    """What programs are told of it."""
    running, spill = job.running, job.running.output.spill
    file = spill.path if spill is not None and spill.kept else None
    pid, total = running.process.pid, running.output.total
    facts = command_facts(running.confined, job.exit, pid=pid, seconds=job.seconds, total=total, file=file)
    return {**facts, "jobId": job.id, "status": job.status.value}


def status_text(job: Job) -> str:
    """A job's status with how its shell ended."""
    if job.exit is None:
        return job.status.value
    ended = f"exit code {job.exit.code}" if job.exit.signal is None else f"signal {job.exit.signal}"
    if job.status is JobStatus.RUNNING:
        return f"running; its shell has ended, {ended}"
    return f"{job.status.value}, {ended}"
