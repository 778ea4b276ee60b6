"""What all results tell of commands, in the same words: sizes, command lines, facts, what a sandbox saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tools.contract.names import one_line, shown_whole_path

if TYPE_CHECKING:
    from tools.execution.confinement import Confined, SandboxChanges
    from tools.execution.process import ExitStatus

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
