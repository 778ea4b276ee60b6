"""What the server says of itself to clients and their models, once: what its tools are for and what holds for all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from server.settings import SettingsReport
from server.settings.models import WorkspaceSettings
from server.settings.tool_models import ShellSettings
from tools.contract.file_names_in_text import shown_path
from tools.contract.limits import ApprovalMode

MAX_SHOWN_ROOTS = 5  # folders of the operator that are named; others are counted

_CORE = (
    "Tools for the files of the workspace: list_directory, glob and grep_search find, read_file and read_many_files "
    "read, edit and write_file change; run_shell_command runs commands, in the background too."
)
_BEYOND = "save_memory keeps facts for later conversations, todo_write the plan of this one."
_RESULTS = "Large results are cut, and say how to get the rest."
_ASKED: Mapping[ApprovalMode, str] = {
    ApprovalMode.PLAN: "only reading and searching are possible",
    ApprovalMode.DEFAULT: "what changes something or leaves this machine may be shown to the user for consent first",
    ApprovalMode.AUTO_EDIT: "commands may be shown to the user for consent first, edits and the web are not",
    ApprovalMode.YOLO: "the user is asked for next to nothing",
}
_REFUSED = "A refused call had no effect and should not be repeated unchanged."
_CONFINED = (
    "change nothing outside the workspace but their own /tmp, which lasts as long as this session, and do not see "
    "secrets."
)


def instructions(report: SettingsReport) -> str | None:
    """Our own text, and for each server behind us what the operator says it is for; `None` if there is neither."""
    settings, texts = report.settings, list[str]()
    if settings.tools.built_in:
        mode = settings.approval_mode
        sentences = [_CORE]
        if settings.tools.profile == "full":
            has_search = bool(settings.web.search.configured)
            sentences += [
                "web_search and web_fetch reach the web." if has_search else "web_fetch reads the web.",
                _BEYOND,
            ]
        sentences += [_workspace(settings.workspace), _RESULTS]
        sentences += [f"Approval mode {mode}: {_ASKED[mode]}. {_REFUSED}", _commands(settings.shell)]
        texts.append(" ".join(filter(None, sentences)))
    about = [
        f"{alias}__*: {entry.description}" if entry.prefix == "alias" else f"{alias}: {entry.description}"
        for alias, entry in report.upstreams.items()
        if entry.description
    ]
    if about:
        texts += ["Tools of other servers:", *about]
    return "\n".join(texts) or None


def _workspace(settings: WorkspaceSettings) -> str:
    roots = [shown_path(root) for root in settings.roots[:MAX_SHOWN_ROOTS]]
    if not roots:
        which = "the folders that the client opens (its roots), else the one that the server was started in"
    else:
        more = len(settings.roots) - len(roots)
        which = ", ".join(roots) + (f" and {more} more" if more else "")
        if settings.client_roots == "intersect":
            which += ", as far as the client opens them"
    return f"The workspace: {which}. Paths are absolute or relative to its first folder."


def _commands(shell: ShellSettings) -> str:
    """Whether commands run confined. The sandbox is tried out with the first one, so where it may be it is a may."""
    if shell.sandbox == "required":
        return f"Commands run confined: they {_CONFINED}"
    # Where bubblewrap is looked for; that no workspace holds it is seen to before it is run.
    path = f"/usr/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    is_likely = shell.sandbox == "auto" and shutil.which("bwrap", path=path) is not None
    return f"Commands may run confined: then they {_CONFINED}" if is_likely else ""
