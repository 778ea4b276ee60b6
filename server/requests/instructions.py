"""The server's instructions for clients and models: the purpose of the tools, and rules that apply to all of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence

from server.settings import SettingsReport
from tools.contract.limits import ApprovalMode
from tools.permissions.permission_policy import READ, RUN, WRITE, Rights
from tools.text.file_names import shown_path

MAX_SHOWN_ROOTS = 5  # maximum number of the operator's folders to name; the others are counted

_FOR_FILES: Mapping[str, Sequence[str]] = {
    "find": ("list_directory", "glob", "grep_search"),
    "read": ("read_file", "read_many_files"),
    "change": ("edit", "write_file"),
}
_COMMANDS = "run_shell_command"
_ASKED: Mapping[ApprovalMode, str] = {
    ApprovalMode.PLAN: "only reading and searching are possible",
    ApprovalMode.DEFAULT: "anything that changes something or leaves this machine may need the user's consent",
    ApprovalMode.AUTO_EDIT: "commands may need the user's consent; edits and the web do not",
    ApprovalMode.YOLO: "the user is asked almost nothing",
}
_CONFINED = (
    "change nothing outside the workspace except /tmp (private to this session, shared with file tools), see no "
    "secrets, and have no network unless the user allows it: commands that only read run without a question, others "
    "may need one."
)


def instructions(report: SettingsReport, offered: Collection[str], rights: Rights) -> str | None:
    """Return the server's own text and the operator's descriptions of upstreams; `None` if there is neither.

    Args:
        report: The settings.
        offered: The names of the tools that clients see; no others are mentioned.
        rights: The rights of the client.
    """
    settings, texts = report.settings, list[str]()
    # Without built-in tools there is no workspace.
    if settings.tools.built_in and (rights.scopes is None or rights.scopes & {READ, WRITE, RUN}):
        mode = settings.approval_mode
        folders = rights.roots or settings.workspace.roots
        roots = [shown_path(root) for root in folders[:MAX_SHOWN_ROOTS]]
        if not roots:
            which = "the folders that the client opens (its roots), or else the folder that the server was started in"
        else:
            more = len(folders) - len(roots)
            which = ", ".join(roots) + (f" and {more} more" if more else "")
            if settings.workspace.client_roots == "intersect":
                which += ", as far as the client opens them"
        sentences = [
            *_purposes(offered),
            f"The workspace: {which}. Paths are absolute or relative to its first folder.",
            "Large results are cut, and say how to get the rest.",
            f"Approval mode {mode}: {_ASKED[mode]}. A refused call had no effect; do not repeat it unchanged.",
        ]
        if _COMMANDS in offered and settings.shell.sandbox == "required":
            sentences.append(f"Commands run confined: they {_CONFINED}")
        elif _COMMANDS in offered and settings.shell.sandbox == "auto":
            # The sandbox is tested only when the first command runs. Until then, an installed bubblewrap means that it
            # probably works. Before bubblewrap runs, another check excludes programs inside a workspace.
            path = f"/usr/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            if shutil.which("bwrap", path=path) is not None:
                sentences.append(f"Commands may run confined: then they {_CONFINED}")
        texts.append(" ".join(sentences))
    about = [
        f"{alias}__*: {entry.description}" if entry.prefix == "alias" else f"{alias}: {entry.description}"
        for alias, entry in report.upstreams.items()
        if entry.description and not rights.missing_for_server(alias)
    ]
    if about:
        texts += ["Tools of other servers:", *about]
    return "\n".join(texts) or None


def _purposes(offered: Collection[str]) -> Iterator[str]:
    """Yield a sentence about each kind of tool."""
    names = {verb: [name for name in named if name in offered] for verb, named in _FOR_FILES.items()}
    parts = [f"{_listed(found)} {verb if len(found) > 1 else f'{verb}s'}" for verb, found in names.items() if found]
    if parts:
        yield f"Tools for workspace files: {', '.join(parts)}."
    if _COMMANDS in offered:
        yield f"{_COMMANDS} runs commands, also in the background."
    web = [name for name in ("web_search", "web_fetch") if name in offered]
    if web:
        yield f"{_listed(web)} {'reach' if len(web) > 1 else 'reaches'} the web."
    kept = {"save_memory": "facts for later conversations", "todo_write": "the plan of this one"}
    keeps = [f"{name} keeps {what}" for name, what in kept.items() if name in offered]
    if keeps:
        yield f"{', '.join(keeps)}."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
