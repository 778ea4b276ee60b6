"""What results tell of commands. What a command printed stands last, so nothing in it can pass for a label."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tools.contract.names_on_one_line import shown_whole_path
from tools.contract.results import FileDataPart, Part, TextPart
from tools.shell.command import POSIX_SHELL, CommandRequest, Ending, Finished, Shown
from tools.shell.confinement import NetworkAccess
from tools.shell.jobs import MAX_RUNNING, Job, JobStatus
from tools.shell.status_text import DISPLAY_CHARS, command_facts, named_paths, sandbox_notes, size, status_text
from tools.shell.time_limit import MAX_TIMEOUT

if TYPE_CHECKING:
    from tools.shell.process import ExitStatus


NEAR_THE_LIMIT = 0.5
"""A command that took this much of its time is told how to get more (Qwen Code's share)."""


_EMPTY = "Output: (empty)"

_WORDS = re.compile(r"[\w-]+")

_STOPPED = re.compile(r"read-only file system|\bEROFS\b|device or resource busy|\bEBUSY\b", re.IGNORECASE)
"""How programs say that they could not write what the sandbox keeps as it is."""

_LACKS_LOGIN = (
    r"\b(?:E|HTTP(?:/[\d.]+)?[ :]+|status(?: code)?[ :]+|error[ :]+|code[ :]+)40[13]\b"
    r"|\b40[13]\b[ :]*(?:client error|error)|unauthori[sz]ed|forbidden|unauthenticated|authenticat|ENEEDAUTH"
    r"|access denied|permission denied \(|not logged in|log ?in (?:first|required|to )|no basic auth"
    r"|could not read (?:username|password)|credential|invalid (?:api |access )?(?:token|key)"
    r"|(?:token|password|api key|passphrase)[^\n]{0,40}(?:required|missing|not (?:found|set|provided|supplied))"
)
"""How programs say that they have no login, or none that is let in."""


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
    shown = finished.shown
    return {
        **command_facts(
            finished.confined,
            finished.exit,
            pid=finished.pid,
            seconds=finished.seconds,
            total=shown.total,
            file=shown.file,
        ),
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
        why = f"took longer than {request.timeout_seconds:g} s and was ended, with all it had started. "
        more = f"Give it more time with the parameter timeout (milliseconds, at most {MAX_TIMEOUT})"
        why += "Split it" if request.timeout_seconds * 1000 >= MAX_TIMEOUT else more
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
        why = f"this client can have no background jobs, or {MAX_RUNNING} run already"
        then = "Let the command wait for them, or end a job with stop_background_job first."
        return [f"Note: it left processes running ({pids}). They were ended, since {why}. {then}"]
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
    is_sandboxed = finished.confined.sandbox != "none"
    has_failed = finished.exit is None or finished.exit.code != 0
    if is_sandboxed and _STOPPED.search(finished.shown.text):
        notes.append(
            "Note: the sandbox seems to have stopped a write. Commands can change files in the workspace only, and "
            "none that other programs obey (git hooks and settings, settings of editors and agents); a command that is "
            "nothing but git can. write_file and edit can write such files with the user's consent."
        )
    elif is_sandboxed and has_failed:
        network = ", and reaches no network" if finished.confined.network is NetworkAccess.NONE else ""
        notes.append(f"Note: it ran in a sandbox, where it can change little but the workspace{network}.")
    if is_sandboxed and has_failed:
        notes += _login_notes(finished, request)
    notes += sandbox_notes(finished.changes)
    notes += _file_notes(finished.shown)
    return notes


def _login_notes(finished: Finished, request: CommandRequest) -> list[str]:
    """What the sandbox kept from a command that seems to have lacked a login, if anything."""
    withheld = finished.confined.withheld
    text = finished.shown.text
    if not withheld or re.search(_LACKS_LOGIN, text, re.IGNORECASE) is None:
        return []
    words = set(_WORDS.findall(f"{request.command}\n{text}".lower()))
    causes = [place for place in withheld if not words.isdisjoint(place.programs)]
    if not causes:
        return []
    hidden = [place.path for place in causes if not place.is_copy]
    copies = [place.path for place in causes if place.is_copy]
    parts = [f"hides {named_paths(hidden)}"] if hidden else []
    parts += [f"shows {named_paths(copies)} without the secret values"] if copies else []
    then = "Ask the user to run it, or the operator to name what it needs in shell.readable."
    return [f"Note: it may have failed for want of a login: the sandbox {' and '.join(parts)}. {then}"]


def _file_notes(shown: Shown) -> list[str]:
    """Where the whole output is, if it is not here."""
    if not shown.is_cut and not shown.is_binary:
        return []
    what = "it is no text" if shown.is_binary else "only its beginning and its end are shown"
    if shown.file is None:
        then = "The rest is not kept: print less, or write it to a file in the workspace."
        return [f"Note: the output has {size(shown.total)}; {what}. {then}"]
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
