"""The text of results about commands and jobs. Output comes last, so that it cannot imitate a label."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from os.path import basename, dirname, join, normpath, relpath
from pathlib import Path
from typing import Any, TypeVar

from tools.contract.call_options import MAX_COMMAND_TIMEOUT
from tools.contract.command_views import Engine, Network, ViewKind
from tools.contract.tool_results import FileDataPart, Part, TextPart
from tools.files.workspace import contains, is_inside
from tools.permissions.command_text import read_command
from tools.permissions.git_repositories import why_protected_at
from tools.permissions.known_commands import changes_by_git_alone
from tools.shell.command_runner import POSIX_SHELL, FinishedCommand
from tools.shell.job_table import MAX_RUNNING, Job, JobStatus
from tools.shell.process_spec import ExitStatus, SandboxChanges
from tools.shell.program_output import ShownOutput
from tools.shell.running_program import CommandRequest, Ending, RunningProgram
from tools.text.file_names import one_line, shown_path, shown_whole_path

_ItemT = TypeVar("_ItemT")
KILO = 1000
DISPLAY_CHARS = 4_000  # maximum characters of output to show to a person
MAX_NAMED = 10
# If a command takes at least this fraction of its time limit, the result says how to get more time (as in Qwen Code)
NEAR_THE_LIMIT = 0.5
# Messages from the kernel or resolver about things outside the view.
_WRITE_REFUSED = re.compile(r"read-only file system|\bEROFS\b|device or resource busy|\bEBUSY\b", re.IGNORECASE)
_CLOSED = re.compile(r"permission denied|\bEACCES\b", re.IGNORECASE)
_NO_LOCK = re.compile(r"Unable to create '(/[^'\n]+)\.lock': Read-only")  # what git says about a read-only repository
_FOREIGN = re.compile(r"dubious ownership")  # what git says about a repository of another user
_ABSENT = re.compile(r"no such file or directory|\bENOENT\b", re.IGNORECASE)
_CONNECTS = re.compile(r"connect", re.IGNORECASE)
_NO_SOCKET = re.compile(r"address family not supported|\bEAFNOSUPPORT\b", re.IGNORECASE)
_SOCKET = re.compile(r"\bunix:/|\.sock\b|\bsocket\b", re.IGNORECASE)
# Patterns of commands that stop or look up processes: the first for a command that failed, the second for one that
# succeeded
_ENDS_PROCESSES = (
    re.compile(r"\b(?:p?kill|killall)\b|\bps\s[^|;&\n]{0,40}?-?p\s{0,4}\d|\bwait\s+\d|/proc/\d"),
    re.compile(r"\b(?:pkill|killall)\b"),
)
_WORK = re.compile(r"/var/tmp\b|\bTMPDIR\b")  # noqa: S108 - only matched in text
_NO_REMOTE = re.compile(
    r"unable to create temporary object directory"
)  # what git says if it cannot write to a remote folder
_NO_REPOSITORY = re.compile(r"not a git repository", re.IGNORECASE)
_NO_VARIABLE = re.compile(
    r"unbound|(?:not|n't|never) (?:be )?(?:set|defined|found|provided|given)|unset|undefined|missing|required|KeyError"
    r"|environment variable|(?:can't|cannot) be (?:blank|empty)",
    re.IGNORECASE,
)
# What programs such as `vim` say without a terminal
_NO_TERMINAL = re.compile(r"(?:in|out)put is not (?:from|to) a terminal|must be run in a terminal", re.IGNORECASE)
_NO_PROCESS = re.compile(r"no such process|\bESRCH\b", re.IGNORECASE)
_NO_LISTENER = re.compile(
    r"connection refused|\bECONNREFUSED\b|failed to connect to (?:localhost|127\.|::1)|couldn't connect to server",
    re.IGNORECASE,
)
_LOOPBACK = re.compile(r"\blocalhost\b|\b127\.\d|::1\b")
_NO_NETWORK = re.compile(
    r"network is unreachable|\bENETUNREACH\b|temporary failure in name resolution|could not resolve host"
    r"|\bEAI_AGAIN\b|name or service not known",
    re.IGNORECASE,
)
# Messages about a missing or refused login.
_NO_LOGIN = re.compile(
    r"\b(?:E|HTTP(?:/[\d.]+)?[ :]+|status(?: code)?[ :]+|error[ :]+|code[ :]+)40[13]\b"
    r"|\b40[13]\b[ :]*(?:client error|error)|unauthori[sz]ed|forbidden|unauthenticated|authenticat|ENEEDAUTH"
    r"|access denied|permission denied \(|not logged in|log ?in (?:first|required|to )|no basic auth"
    r"|could not read (?:username|password)|credential|invalid (?:api |access )?(?:token|key)"
    r"|(?:token|password|api key|passphrase)[^\n]{0,40}(?:required|missing|not (?:found|set|provided|supplied))",
    re.IGNORECASE,
)
_NO_SETTINGS = re.compile(r"identity unknown|tell me who you are|unable to auto-detect|user\.(?:name|email)")


def size(count: int) -> str:
    if count < KILO:
        return f"{count} byte{'' if count == 1 else 's'}"
    for power, unit in enumerate(("kB", "MB"), 1):
        if count / KILO**power < KILO:
            return f"{count / KILO**power:.1f} {unit}"
    return f"{count / KILO**3:.1f} GB"


def code_and_signal(status: ExitStatus | None) -> tuple[int | None, str | None]:
    """Return the exit code and signal of a program. Both are `None` if it has not exited or was stopped at a limit."""
    return (status.code, status.signal) if status is not None else (None, None)


def program_facts(status: ExitStatus | None, *, seconds: float, total: int, file: str | None) -> dict[str, Any]:
    code, signal = code_and_signal(status)
    return {
        "exitCode": code,
        "signal": signal,
        "durationMs": round(seconds * 1000),
        "outputBytes": total,
        "outputFile": file,
    }


def run_content(command: FinishedCommand, directory: str | None) -> list[Part]:
    """Return the content that tells the model about a finished command. `directory` is the folder named in the call."""
    output, request = command.shown_output, command.request
    code, signal = code_and_signal(command.exit)
    lines: list[str] = []
    if directory is not None:
        lines.append(f"Directory: {shown_whole_path(directory)}")
    if code:
        lines.append(f"Exit Code: {code}")
    if signal is not None:
        lines.append(f"Signal: {signal}")
    if command.exit is not None and command.exit.is_lost:
        lines.append(
            "Note: the command was stopped, because the server's process that runs commands was killed. The next "
            "command starts a new one. Check what this command has already done before you run it again."
        )
    if command.left_running:
        pids = f"PIDs {_list_items(command.left_running, str)}"
        if command.job is None:
            reason = f"this client cannot have background jobs, or already has {MAX_RUNNING}"
            advice = "Let the command wait for them, or stop a job with stop_background_job first."
            lines.append(
                f"Note: the command left processes running ({pids}). They were stopped, because {reason}. {advice}"
            )
        else:
            lines.append(
                f"Background Jobs: {command.job.id} ({pids}), left running by the command. read_background_output "
                "shows the output, and stop_background_job ends the job."
            )
    # The arguments always end with the shell, -c and the command.
    if command.running.confined_command.spec.argv[-3] == POSIX_SHELL:
        lines.append(f"Note: bash is not installed; {POSIX_SHELL} ran the command.")
    if command.seconds >= max(1.0, request.timeout_seconds * NEAR_THE_LIMIT):
        lines.append(
            f"Note: the command used {command.seconds:.0f} s of its {request.timeout_seconds:g} s time limit. For "
            "longer work, set a larger timeout, or use is_background."
        )
    lines += _explanations(command)
    lines += sandbox_notes(command.running.changes)
    parts: list[Part] = []
    if output.is_cut or output.is_binary:
        description = "it is not text" if output.is_binary else "only its beginning and its end are shown"
        if output.file is None:
            location = (
                "It was not kept. To keep it, write it to a file in the workspace."
                if output.is_binary
                else "The rest was not kept. Print less, or write the output to a file in the workspace."
            )
        else:
            hint = "" if output.missing else "; a negative offset reads from the end"
            hint = "" if output.is_binary else f" Read it with read_file{hint}."
            location = f"{kept_part(output)}.{hint}"
        parts = kept_output(output, "output of the command")
        lines.append(f"Note: the output is {size(output.total)} long, and {description}. {location}")
    if output.note:
        lines.append(f"Note: {output.note}")
    lines.append(_output_block(output))
    return [TextPart("\n".join(lines)), *parts]


def _explanations(command: FinishedCommand) -> list[str]:
    """Return notes about what may have made a command fail: its view, hidden secrets, withheld variables."""
    confined_command, text = command.running.confined_command, command.shown_output.text
    notes: list[str] = []
    if confined_command.view is not ViewKind.UNCONFINED:
        # A failure does not show that the view was too small, because `grep`, `diff` and `test` return 1 in normal use.
        if hints := [*_file_hints(command), *_network_and_process_hints(command)]:
            network = "network access"
            if confined_command.network is not Network.HOST:
                has_loopback = confined_command.engine is not Engine.LANDLOCK
                network = f"no network access{' except to a loopback inside the sandbox' if has_loopback else ''}"
            notes.append(
                f"Note: the command ran in the {confined_command.view.value} view, with {network}. {' '.join(hints)}"
            )
        if command.has_failed and confined_command.withheld:
            words = set(re.findall(r"[\w-]+", f"{command.request.command}\n{text}".lower()))
            lacks_login = _NO_LOGIN.search(text) is not None
            # Without its settings, a program may contact other servers, or may not know who the user is.
            lacks_settings = (
                lacks_login or confined_command.network is Network.HOST or _NO_SETTINGS.search(text) is not None
            )
            causes = [
                path
                for path, place in confined_command.withheld.items()
                if (lacks_settings if place.is_settings else lacks_login) and not words.isdisjoint(place.programs)
            ]
            if causes:
                hidden_paths = _list_items(causes, shown_whole_path)
                notes.append(
                    f"Note: the command may have failed because the sandbox hides {hidden_paths} to protect secrets. "
                    "Ask the user to run the command, or ask the operator to add the paths that it needs to "
                    "shell.readable."
                )
    if "the editor 'false'" in text:
        notes.append("Note: no editor can open here. For git rebase -i, set GIT_SEQUENCE_EDITOR to a command.")
    if command.has_failed:
        # Variables that the output complains about, and that were withheld from the command.
        words = {word for line in text.splitlines() if _NO_VARIABLE.search(line) for word in re.findall(r"\w+", line)}
        words.update(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", text))
        if lacking := sorted(words & os.environ.keys() - confined_command.spec.environment.keys()):
            notes.append(
                f"Note: commands do not inherit {', '.join(lacking)} from the server's environment. The operator can "
                "set what they need in shell.env."
            )
    return notes


def _file_hints(command: FinishedCommand) -> list[str]:
    """Return how to get more access to files, if the output suggests that the view was too small."""
    confined_command, text, request = command.running.confined_command, command.shown_output.text, command.request
    lines = text.splitlines()
    is_reading, is_landlock = confined_command.view is ViewKind.READING, confined_command.engine is Engine.LANDLOCK
    hints: list[str] = []
    home = confined_command.spec.environment.get("HOME") or "~"
    owner = confined_command.foreign_owner
    if owner is not None and (_CLOSED.search(text) or _FOREIGN.search(text)):
        hints.append(
            f"The workspace belongs to user {owner}, but commands run as root, without root's rights to other "
            f"users' files. Tell the user that this server must run as user {owner}."
        )
    # Even if a rule allows the command, the user may be asked about a named path outside the view that the rule covers.
    ending = "; the user may then be asked" if is_reading else ' and set needs: "write"; the user may then be asked'
    if _WRITE_REFUSED.search(text):
        reasons = request.view.restrictions.why.items()
        names = set(re.split(r"[\s'\"`:/]+", text))
        rules = dict.fromkeys(reason for path, reason in reasons if path in request.roots or basename(path) in names)
        if is_reading:
            hints.append('Set needs: "write" to ask the user for a view in which the command can change files.')
        elif not rules and (lock := _NO_LOCK.search(text)) is not None and not is_inside(lock[1], request.roots):
            hints.append(
                "The repository is outside the workspace. This server asks the user about it if the command calls git "
                "directly. If the client asks the user instead, only the operator can add the repository, with "
                "--workspace."
            )
        elif not rules:
            hints += _hints_about_protected_files(command, lines, ending)
        if rules:
            rule_list = ", ".join(map(one_line, [*rules][:MAX_NAMED]))
            is_denied = all(map(_is_denial, rules))
            advice = "" if is_denied else f" To request access, name the file in the command{ending}."
            hints.append(f"Protected by {rule_list}.{advice}")
    if is_reading and _misses_unnamed_path(filter(_ABSENT.search, lines), request, home):
        hints.append("To request access to a path in the home folder, name it in the command; the user is then asked.")
    if request.view.has_new_tmp and any(_ABSENT.search(line) and "/tmp" in line for line in lines):  # noqa: S108
        hints.append(
            "The command ran in the reading view with network access, so its /tmp started empty. Set needs: "
            '"write" to ask the user for a view with the session\'s /tmp.'
            if is_reading
            else "A rule rather than the user allowed the command, so its /tmp started empty. To request access to the "
            "session's /tmp, write the file's path in the command; the user is then asked."
        )
    if is_reading and not is_landlock and _WORK.search(request.command):
        hints.append(
            "Files that other commands left in /var/tmp (their TMPDIR) are not in this view. read_file, grep_search "
            'and commands with needs: "write" find them under that path.'
        )
    if is_reading and re.search(r"\bprunable\b", text) and "worktree" in request.command:
        hints.append("Worktrees outside the workspace are not in this view, so git may call them prunable by mistake.")
    if is_reading and not is_landlock and not request.view.is_git and _NO_REPOSITORY.search(text):
        hints.append(
            "The repository that contains the workspace is not shown if rules hide files. Set needs: "
            '"write" to ask the user for a view in which git sees the repository.'
        )
    if owner is None or request.view.restrictions.masked:
        hints += _hints_about_closed_files(lines, request, ending)
    return hints


def _misses_unnamed_path(lines: Iterable[str], request: CommandRequest, home: str) -> bool:
    """Return True if the lines name a path in the home folder that the command neither names nor sees."""
    for place in _paths_in(lines, ""):
        path = f"{home}/{place[2:]}" if place.startswith("~/") else place
        spellings = (path, f"~{path[len(home) :]}")
        is_named = any(spelling in request.command for spelling in spellings) or is_inside(path, request.view.seen)
        if contains(home, path) and path != home and not is_named:
            return True
    return False


def _hints_about_closed_files(lines: Sequence[str], request: CommandRequest, ending: str) -> list[str]:
    reasons = {_why_closed(line, request) for line in lines if _CLOSED.search(line)}
    if None in reasons:
        return [
            f"To request access to a hidden file, or to a file outside the view, write its path in the command{ending}."
        ]
    denials = sorted(filter(None, reasons))
    return [f"Hidden by {', '.join(map(one_line, denials))}."] if denials else []


def _why_closed(line: str, request: CommandRequest) -> str | None:
    """Return the rule that denies access to a path in a line of output; `None` if no deny rule hides one of its paths.

    The result is empty if the line names a visible file of the workspace, which may merely not be executable.
    """
    masked = request.view.restrictions.masked
    for path in _paths_in([line], request.folder):
        reason = next((request.view.restrictions.why.get(place, "") for place in masked if contains(place, path)), None)
        if reason is not None:
            return reason if _is_denial(reason) else None
        if is_inside(path, request.roots) and os.path.lexists(path):
            return ""
    return None


def _is_denial(reason: str) -> bool:
    return reason.partition(" rule ")[0].endswith(("deny", "exclude"))


def _paths_in(lines: Iterable[str], folder: str) -> list[str]:
    """Return the words in lines of output as absolute paths. Relative ones start at `folder`, as in the command."""
    words = dict.fromkeys(word for line in lines for word in re.split(r"[\s'\"`:,()\[\]]+", line) if word)
    return [normpath(join(folder, word)) for word in words]


def _hints_about_protected_files(command: FinishedCommand, lines: Sequence[str], ending: str) -> list[str]:
    """Return how a command in the working view can change files that it could not change and no rule protects."""
    request = command.request
    refused_lines = [line for line in lines if _WRITE_REFUSED.search(line)]
    paths: dict[str, None] = {}
    for path in _paths_in(refused_lines, request.folder):
        root = next((root for root in request.roots if contains(root, path)), None)
        if root is not None and why_protected_at(path, root, is_written=False) and path not in request.view.writable:
            paths[path] = None
    if paths:
        names = _list_items([*paths], lambda path: shown_path(relpath(path, request.folder)))
        them, these_paths = ("them", "the paths") if len(paths) > 1 else ("it", "the path")
        hint = (
            f"Other programs execute or obey {names}. To change {them}, use write_file or edit, or name {these_paths} "
            f"in the command (touch PATH; ...){ending}."
        )
    elif not command.has_failed and "|" not in request.command:
        return []  # the program did without what it could not write
    else:
        hint = (
            "Commands can change files in /tmp and in the workspace (unless it is mounted read-only), so install "
            'packages there (python -m venv, npm without -g). With needs: "network", go, cargo and gradle '
            "download into private folders. Elsewhere commands can change only existing files and folders that they "
            "name or enter with cd, but not remove these. Workspace files that other programs execute or obey can be "
            "changed with write_file and edit, or by a command that names them, with consent."
        )
    hints = [hint]
    if not (request.view.is_git or request.view.is_asked) and changes_by_git_alone(read_command(request.command)):
        hints.append(
            "Git can change such files too, if the user has agreed to a command that runs only git. Set needs: "
            '"write" to ask; this does not work in approval mode yolo. Check git status: git may have changed only '
            "some of the files."
        )
    return hints


def _network_and_process_hints(command: FinishedCommand) -> list[str]:
    """Return how to reach the network and other programs, if the output suggests that the view was too small."""
    confined_command, text, request = command.running.confined_command, command.shown_output.text, command.request
    is_landlock = confined_command.engine is Engine.LANDLOCK
    hints: list[str] = []
    if not command.request.view.is_asked and _NO_REMOTE.search(text):
        hints.append(
            "A rule rather than the user allowed the command. To request access to the folder of the remote, set "
            'needs: "write"; the user may then be asked.'
        )
    if confined_command.network is not Network.HOST and _NO_NETWORK.search(text):
        hints.append('Set needs: "network" to ask the user for network access.')
    elif confined_command.network is not Network.HOST and command.online_jobs and command.has_failed:
        jobs = f"job{'s' if len(command.online_jobs) > 1 else ''} {_list_items(command.online_jobs, str)}"
        hints.append(f'Only a command with needs: "network" can reach the ports of {jobs}.')
    elif confined_command.network is not Network.HOST and not is_landlock and _NO_LISTENER.search(text):
        listener = "this command" if confined_command.network is Network.OWN_LOOPBACK else "a command of this session"
        hints.append(
            f"A port can be reached only if {listener} listens on it in the sandbox. To reach a port on the machine, "
            'or a port opened by a job with network access, set needs: "network".'
        )
    elif not is_landlock and _NO_LISTENER.search(text) and _LOOPBACK.search(f"{request.command}\n{text}"):
        hints.append(
            "With network access, a command uses the machine's loopback. A server that was started without network "
            "access can be reached only by commands without network access. To run such a command, name no other "
            "hosts in it, and do not set needs."
        )
    if not is_landlock and any(_CONNECTS.search(line) and _SOCKET.search(line) for line in text.splitlines()):
        hints.append(
            "Sockets of other programs, such as docker, are not in the sandbox. Ask the user to run the command."
        )
    if not is_landlock and _NO_SOCKET.search(text):
        hints.append(
            "Commands cannot create UNIX sockets, not even for their own processes (such as multiprocessing "
            "managers and fork servers, tmux, ssh-agent and gpg-agent). Use pipes or a port on 127.0.0.1, or ask the "
            "user to run the command."
        )
    ends = _ENDS_PROCESSES[not command.has_failed].search(request.command)
    if not is_landlock and (ends or _NO_PROCESS.search(text)):
        hints.append("A command can see and kill only its own processes. Use stop_background_job to stop a job.")
    return hints


def kept_part(output: ShownOutput) -> str:
    """Return the clause that says how much of the output is in its file, and in which."""
    kept = f"Only the first {size(output.total - output.missing)} are" if output.missing else "All of it is"
    return f"{kept} in {shown_whole_path(output.file or '')}"


def kept_output(output: ShownOutput, title: str) -> list[Part]:
    """Return a reference to the file with the whole output, if there is one."""
    if output.file is None:
        return []
    kind = "application/octet-stream" if output.is_binary else "text/plain"
    return [FileDataPart(Path(output.file).as_uri(), title, kind, output.total - output.missing)]


def sandbox_notes(changes: SandboxChanges) -> list[str]:
    """Describe what happened to auto-run files and to the client's `/tmp`."""
    notes: list[str] = []
    for is_renamed in (False, True):
        moves = [move for move in changes.moved if (dirname(move[0]) == dirname(move[1])) == is_renamed]
        if not moves:
            continue
        move_list = _list_items(moves, lambda move: f"{shown_whole_path(move[0])} (now {shown_whole_path(move[1])})")
        explanation = (
            f"they were renamed in place: {move_list}. They could not be moved out of the workspace, or are too "
            "large to copy to another file system (more than 100 MB, or 10,000 files and folders). Tell the user, who "
            "can rename the wanted files back and remove the others."
            if is_renamed
            else f"they were moved out of the workspace: {move_list}. They stay there after this session, until the "
            "system clears its temporary files. If you need them, write them with write_file, which asks the user, or "
            "ask the operator to add them to shell.writable."
        )
        notes.append(
            f"Note: the command created files that programs outside the sandbox would execute, so {explanation}"
        )
    if changes.unmovable:
        notes.append(
            "Note: the command created files that programs outside the sandbox execute, and they could not be moved: "
            f"{_list_items(changes.unmovable, shown_whole_path)}. Tell the user."
        )
    if changes.changed:
        notes.append(
            "Note: these files, which programs outside the sandbox execute, changed or vanished during the command: "
            f"{_list_items(changes.changed, shown_whole_path)}. Tell the user."
        )
    if changes.uncovered:
        notes.append(
            f"Note: {changes.uncovered} of the files and folders that programs outside the sandbox execute could not "
            "be write-protected, because there are too many. The command was able to change "
            f"{'it' if changes.uncovered == 1 else 'them'}. Less deeply nested ones are protected first."
        )
    if changes.not_lasting:
        notes.append(
            "Note: everything in /tmp outside the workspace was deleted after the command. Deleted: "
            f"{_list_items(changes.not_lasting, shown_whole_path)}. Keep what you need in the workspace."
        )
    if changes.is_unknown:
        notes.append(
            "Note: it is unknown whether the command created or changed files that programs outside the sandbox "
            "execute (.git/hooks, .vscode, .mcp.json and the like). Tell the user."
        )
    if changes.has_overfilled:
        notes.append(
            "Note: the command was stopped, because its temporary files exceeded the limit for their number, size or "
            "depth. Deleted files that it still had open count too. Write fewer temporary files, or set "
            'needs: "write" and write to the workspace.'
        )
    if changes.temporary_files:
        notes.append(
            "Note: the command's temporary files were removed, because there were too many, or they were too large or "
            f"too deeply nested. Size: {size(changes.temporary_bytes)}. Files and folders: {changes.temporary_files:,}."
        )
    return notes


def _list_items(items: Sequence[_ItemT], format_item: Callable[[_ItemT], str]) -> str:
    """Join items for a sentence. Name only the first `MAX_NAMED`, and count the rest."""
    remainder = f" and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
    return ", ".join(map(format_item, items[:MAX_NAMED])) + remainder


def _output_block(output: ShownOutput) -> str:
    if output.is_binary:
        return f"Output: (binary, {size(output.total)})"
    return f"Output:\n{output.text}" if output.text else "Output: (empty)"


def run_display(command: FinishedCommand) -> str:
    """Return the text for a person: the end of the output. If the command printed nothing, return how it exited."""
    text, (code, signal) = command.shown_output.text, code_and_signal(command.exit)
    if command.shown_output.is_binary:
        return f"Binary output, {size(command.shown_output.total)}"
    if len(text) > DISPLAY_CHARS:
        _, _, whole_lines = text[-DISPLAY_CHARS:].partition("\n")
        return f"[...]\n{whole_lines or text[-DISPLAY_CHARS:]}"
    if text:
        return text
    if signal is not None:
        return f"Command was killed by {signal}"
    if code:
        return f"Command exited with code {code}"
    return f"Still running in the background: {command.job.id}" if command.job is not None else ""


def run_facts(command: FinishedCommand) -> dict[str, Any]:
    output = command.shown_output
    return {
        **_running_facts(command.running),
        **program_facts(command.exit, seconds=command.seconds, total=output.total, file=output.file),
        "timedOut": command.ending is not Ending.EXITED,
        "jobId": command.job.id if command.job is not None else None,
    }


def job_facts(job: Job) -> dict[str, Any]:
    output = job.running.output
    facts = program_facts(job.exit, seconds=job.seconds, total=output.total, file=output.file_path)
    return {**_running_facts(job.running), **facts, "jobId": job.id, "status": job.status.value}


def _running_facts(running: RunningProgram) -> dict[str, Any]:
    confined_command = running.confined_command
    return {
        "engine": confined_command.engine.value,
        "view": confined_command.view.value,
        "network": confined_command.network.value,
        "pid": running.process.pid,
    }


def timed_out_message(command: FinishedCommand, silence_seconds: float) -> str:
    """Return the message that tells the model about a command that was stopped at a limit."""
    output, seconds = command.shown_output, command.request.timeout_seconds
    if command.ending is Ending.SILENT:
        limit, advice = (
            f"printed nothing for {silence_seconds:g} s (shell.silenceTimeout)",
            "Make it print its progress",
        )
    else:
        limit = f"took longer than {seconds:g} s"
        longer_timeout = f"Give it more time with the timeout parameter (milliseconds, at most {MAX_COMMAND_TIMEOUT})"
        advice = "Split it" if seconds * 1000 >= MAX_COMMAND_TIMEOUT else longer_timeout
    if _NO_TERMINAL.search(output.text):
        advice = (
            "It seems to have waited for a person at a terminal, which commands do not have. Change files with edit or "
            "write_file, and use options that make a program exit on its own (top -b -n 1)."
        )
    else:
        advice += ", or run it with is_background: true and read its output with read_background_output."
    sentence = f"The command {limit} and was stopped with all its processes. {advice}"
    if output.is_binary:
        return f"{sentence} It had printed {size(output.total)} of binary data."
    if not output.text:
        return f"{sentence} It had printed nothing."
    location = ""
    if output.file is not None:
        kept = f"only the first {size(output.total - output.missing)}" if output.missing else "all of it"
        location = f" {size(output.total)} ({kept}: {shown_whole_path(output.file)})"
    return f"{sentence} It had printed{location}:\n{output.text}\n"


def job_content(job: Job, output: ShownOutput) -> str:
    """Return the content that tells the model about a command that was started in the background."""
    lines = [f"Background Job: {job.id} ({status_text(job)})", f"PID: {job.running.process.pid}"]
    if job.status is JobStatus.RUNNING:
        confined_command = job.running.confined_command
        lines.append(
            "It continues after this call. read_background_output shows its output, and stop_background_job ends it."
        )
        if confined_command.network is Network.SESSION_LOOPBACK:
            lines.append(
                "Only commands of this session, such as curl, can reach the ports that it opens. For the user's "
                'browser or web_fetch, start it with needs: "network".'
            )
        elif job.request.view.network is Network.SESSION_LOOPBACK:  # the loopback could not be created
            lines.append('No other program can reach the ports that it opens. If one must, set needs: "network".')
        elif confined_command.network is Network.HOST and confined_command.view is not ViewKind.UNCONFINED:
            lines.append('Only commands with needs: "network" can reach the ports that it opens.')
    return "\n".join([*lines, _output_block(output)])


def status_text(job: Job) -> str:
    """Return a job's status and how its shell exited."""
    if job.exit is None:
        return job.status.value
    exit_text = f"exit code {job.exit.code}" if job.exit.signal is None else f"signal {job.exit.signal}"
    if job.status is JobStatus.RUNNING:
        return f"running; its shell has exited ({exit_text})"
    return f"{job.status.value}, {exit_text}"
