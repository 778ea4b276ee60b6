"""Outcomes as lines for a terminal, and as tables for a page."""

from __future__ import annotations

from tests.hostile.any_server.run import FAILED, NOT_APPLICABLE, NOT_PROMISED, PASSED, Outcome, Report


def row(outcome: Outcome) -> str:
    """One line of the terminal: outcome, group, case, and what there is to know."""
    case = outcome.case
    promise = f" [{case.promise}: {outcome.where or 'no promise'}]" if outcome.outcome == FAILED else ""
    detail = f"\n{'':15}{outcome.detail}" if outcome.detail else ""
    return f"{outcome.outcome:15}{case.group}: {case.name}{promise}{detail}"


def summary(report: Report) -> str:
    """The end of a run; its last line is `N passed, N failed`."""
    apart = f"{report.count(NOT_PROMISED)} not promised, {report.count(NOT_APPLICABLE)} not applicable"
    server = f"{report.name} {report.version}, {report.seconds:.0f} s: {apart}"
    return f"\n{server}\n{report.count(PASSED)} passed, {report.count(FAILED)} failed"
