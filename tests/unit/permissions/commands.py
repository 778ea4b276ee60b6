"""Judges shell commands for tests, with a given approval mode, sandbox engine and set of rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.contract.call_options import ApprovalMode
from tools.contract.command_views import CommandSite, Engine, Network, ViewKind
from tools.contract.permission_subjects import CommandSubject, Needs
from tools.contract.tool_errors import ToolError
from tools.files.workspace import Workspace
from tools.permissions.command_policy import PolicyRequest, judge_command
from tools.permissions.hidden_files import HiddenFileScanner
from tools.permissions.permission_rules import read_rules
from tools.permissions.protected_files import GuardedPaths
from tools.permissions.verdict import Permission, Verdict


def judge(
    root: Path,
    command: str,
    mode: ApprovalMode = ApprovalMode.DEFAULT,
    *,
    site: CommandSite | None = None,
    home: Path | None = None,
    is_sandboxed: bool = False,
    needs: Needs | None = None,
    is_background: bool = False,
    **lists: Sequence[str],
) -> Permission:
    """Return the verdict on a command. Rules are passed as lists: `deny=[...]`."""
    home = home or root.parent
    rules, warnings = read_rules({f"permissions.{key}": texts for key, texts in lists.items()}, str, str(home))
    assert not warnings
    site = site or CommandSite(Engine.BUBBLEWRAP)
    subject = CommandSubject(command, str(root), site, needs, is_background)
    workspace, scanner = Workspace([str(root)]), HiddenFileScanner()
    request = PolicyRequest(subject, lambda: rules, mode, workspace, GuardedPaths(), scanner, str(home), is_sandboxed)
    return judge_command(request)


def abbreviation(permission: Permission) -> str:
    """Abbreviate a verdict and its view to a few characters.

    `X` is a refusal and `?` a question. `r` is the reading view, `w` the working view, and `o` no sandbox. `n` is the
    network, and `+` means that the view includes additional paths.
    """
    if permission.verdict is Verdict.DENY:
        return "X"
    view = permission.view
    assert view is not None
    kind = {ViewKind.READING: "r", ViewKind.WORKING: "w", ViewKind.UNCONFINED: "o"}[view.kind]
    network = "n" if view.network is Network.HOST and view.kind is not ViewKind.UNCONFINED else ""
    additions = "+" if view.seen or view.writable else ""
    return f"{'?' if permission.verdict is Verdict.ASK else ''}{kind}{network}{additions}"


def outcome(root: Path, command: str, mode: ApprovalMode = ApprovalMode.DEFAULT, **options: object) -> str:
    """Judge a command and abbreviate the verdict. `!` is a refusal by an error with its own message."""
    try:
        return abbreviation(judge(root, command, mode, **options))  # pyright: ignore[reportArgumentType] - passed on as given
    except ToolError:
        return "!"
