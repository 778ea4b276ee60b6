"""`changes` and `undo`: list the changes that tools made in the workspace, and undo them at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager

from server.console import CommandFailure
from server.console.terminal import ask, diff_text, show, show_json
from server.requests.tool_services import LazyJournal
from server.settings import SettingsReport
from tools.contract.display import visible, visible_line
from tools.contract.tool_errors import ToolError
from tools.files.change.journal import Journal
from tools.files.change.revert import (
    NONE_KEPT,
    NOT_COVERED,
    carry_out,
    change_as_json,
    describe_changes,
    plan_for_person,
)
from tools.files.workspace import Workspace

MAX_LISTED = 1_000  # maximum number of listed changes


def show_changes(report: SettingsReport, *, as_json: bool) -> int:
    workspace = _workspace(report)
    with _journal(report) as journal:
        changes = journal.changes(None, workspace.roots, limit=MAX_LISTED)
    if as_json:
        show_json([change_as_json(change, "id") for change in changes])
        return 0
    lines = describe_changes(changes, workspace) or [f"There are no changes to undo in {', '.join(workspace.roots)}."]
    show(*map(visible_line, lines), "", NOT_COVERED)
    return 0


def undo(report: SettingsReport, number: int | None, *, is_sure: bool) -> int:
    """Show the difference, ask for consent, and undo a change, even to a file that is hidden from agents."""
    with _journal(report) as journal:
        plan = plan_for_person(journal, _workspace(report), number)
        confirmation = plan.confirmation("")
        show("", visible_line(confirmation.title), diff_text(visible(confirmation.file_diff)), stream=sys.stderr)
        if not is_sure:
            ask("Undo it?", "nothing was undone")
        result = carry_out(plan, journal)
    sys.stdout.write(f"{visible(str(result.llm_content))}\n")
    return 0


def forget(report: SettingsReport, *, is_sure: bool) -> int:
    with _journal(report) as journal:
        if not is_sure:
            ask("Delete everything that is kept to undo changes, for every workspace?", "nothing was deleted")
        journal.forget()
    sys.stdout.write("Everything that was kept to undo changes was deleted.\n")
    return 0


@contextmanager
def _journal(report: SettingsReport) -> Generator[Journal]:
    """Open the journal; a `ToolError` raised within the context ends the command with the error's message."""
    open_journal = LazyJournal(report).open
    if open_journal is None:
        raise CommandFailure(f"there are no changes to undo: {NONE_KEPT}.")
    with closing(open_journal()) as journal:
        try:
            yield journal
        except ToolError as error:
            raise CommandFailure(error.message) from None


def _workspace(report: SettingsReport) -> Workspace:
    """Return the folders in the settings, or else the working folder. Agent-ignore files do not apply to a person."""
    return Workspace(report.settings.workspace.roots or (os.getcwd(),), respect_agent_ignore=False)
