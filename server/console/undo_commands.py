"""`changes` and `undo`: what tools changed in the workspace, of every client, and taking it back at a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager

from server.console import CommandFailure
from server.console.terminal import diff_text, show
from server.console.terminal_questions import ask
from server.requests.tool_services import LazyJournal
from server.settings import SettingsReport
from tools.contract.display import visible, visible_line
from tools.contract.tool_errors import ToolError
from tools.files.change.journal import Journal
from tools.files.change.revert import NONE_KEPT, NOT_COVERED, carry_out, change_as_json, described, plan_for_person
from tools.files.workspace import Workspace

MAX_LISTED = 1_000  # changes that are listed


def show_changes(report: SettingsReport, *, as_json: bool) -> int:
    workspace = _workspace(report)
    with _journal(report) as journal:
        changes = journal.changes(None, workspace.roots, limit=MAX_LISTED)
    if as_json:
        listing = [change_as_json(change, "id") for change in changes]
        sys.stdout.write(f"{json.dumps(listing, indent=2)}\n")
        return 0
    lines = described(changes, workspace) or [f"No changes are kept of {', '.join(workspace.roots)}."]
    show(*map(visible_line, lines), "", NOT_COVERED)
    return 0


def undo(report: SettingsReport, number: int | None, *, is_sure: bool) -> int:
    """Take a change back, after a question with the difference. What is hidden from agents is not from a person."""
    with _journal(report) as journal:
        plan = plan_for_person(journal, _workspace(report), number)
        question = plan.question("")
        show("", visible_line(question.title), diff_text(visible(question.file_diff)), stream=sys.stderr)
        if not is_sure:
            ask("Undo it?", "nothing was undone")
        result = carry_out(plan, journal)
    sys.stdout.write(f"{visible(str(result.llm_content))}\n")
    return 0


def forget(report: SettingsReport, *, is_sure: bool) -> int:
    with _journal(report) as journal:
        if not is_sure:
            ask("Delete all that is kept to undo changes, of every workspace?", "nothing was deleted")
        journal.forget()
    sys.stdout.write("No change is kept any more.\n")
    return 0


@contextmanager
def _journal(report: SettingsReport) -> Generator[Journal]:
    """The journal of the settings, closed at the end; what a tool would be told, the person is."""
    opened = LazyJournal(report).open
    if opened is None:
        raise CommandFailure(f"no changes are kept: {NONE_KEPT}.")
    with closing(opened()) as journal:
        try:
            yield journal
        except ToolError as error:
            raise CommandFailure(error.message) from None


def _workspace(report: SettingsReport) -> Workspace:
    """The folders of the settings, else the working folder, as a person sees them."""
    return Workspace(report.settings.workspace.roots or (os.getcwd(),), respect_agent_ignore=False)
