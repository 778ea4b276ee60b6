"""Formats outcomes: as lines for a terminal, as a file, and as a page with a column for each server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.hostile.any_server.promises import PROMISES, label_of
from tests.hostile.any_server.run import FAILED, NOT_APPLICABLE, NOT_PROMISED, PASSED, Outcome, Report
from tests.hostile.any_server.wire import Json

SHORT = {PASSED: "passed", FAILED: "**failed**", NOT_PROMISED: "-", NOT_APPLICABLE: ""}
HEAD = """# Hostile cases, against this server and others

<!-- Written by `make hostile-results`; the versions are in tests/hostile/any_server/results.py. -->

Each case is something that goes wrong in practice. `python -m tests.hostile --target COMMAND` runs the cases against
any MCP server, and `make hostile` against this one. Every server was started as shown below, on the same machine.

- **passed**: the server behaved as the promise says, whether or not it makes that promise.
- **failed**: it did not, although it makes the promise. The last table says where.
- A dash: it did not, and makes no such promise. This is not a defect: the server has another purpose.
- An empty cell: the case does not apply, because there is no such tool or mode.

The simulated user says yes, except in cases that test a refusal. DesktopCommander ran with one allowed folder and
the command `dd` blocked; its own README says that it is not a sandbox. FastMCP ran as a proxy, with only the protocol
and proxy cases. server-filesystem offers only files. If you think that a cell is unfair to a server, look at the case
in `tests/hostile/any_server/`.
"""


def row(outcome: Outcome) -> str:
    """Return a line for the terminal: outcome, group, case, and details."""
    case = outcome.case
    promise = f" [{case.promise}: {outcome.promised_in}]" if outcome.outcome == FAILED else ""
    detail = f"\n{'':15}{outcome.detail}" if outcome.detail else ""
    return f"{outcome.outcome:15}{case.group}: {case.name}{promise}{detail}"


def summary(report: Report) -> str:
    """Return the summary of a run; its last line is `N passed, N failed`."""
    other_counts = f"{report.count(NOT_PROMISED)} not promised, {report.count(NOT_APPLICABLE)} not applicable"
    server = f"{report.name} {report.version}, {report.seconds:.0f} s: {other_counts}"
    return f"\n{server}\n{report.count(PASSED)} passed, {report.count(FAILED)} failed"


def save(report: Report, command: str, version: str, path: Path) -> None:
    """Save a run for a page."""
    cases = [
        [
            outcome.case.group,
            outcome.case.promise,
            outcome.case.name,
            outcome.outcome,
            outcome.detail,
            outcome.promised_in,
        ]
        for outcome in report.outcomes
    ]
    facts = {"name": label_of(report.name), "version": version or report.version, "command": command}
    path.write_text(json.dumps({**facts, "date": f"{datetime.now(UTC):%Y-%m-%d}", "cases": cases}, indent=1))


def page(paths: Sequence[Path]) -> str:
    """Return a page of saved runs: a table of cases by server, the failures, and the promises of each server."""
    runs: list[Json] = [json.loads(path.read_text()) for path in paths]
    lines = [HEAD, "| server | version | date | command | passed | failed | not promised |", "| --- " * 7 + "|"]
    for run in runs:
        outcomes = [case[3] for case in run["cases"]]
        counts = " | ".join(str(outcomes.count(word)) for word in (PASSED, FAILED, NOT_PROMISED))
        lines.append(f"| {run['name']} | {run['version']} | {run['date']} | `{run['command']}` | {counts} |")
    names = " | ".join(run["name"] for run in runs)
    cases_by_key = [{tuple(case[:3]): case for case in run["cases"]} for run in runs]
    keys = list(dict.fromkeys(key for cases in cases_by_key for key in cases))
    group = ""
    for key in keys:
        if key[0] != group:
            group = key[0]
            lines += ["", f"## {group.capitalize()}", "", f"| case | {names} |", "| --- " * (len(runs) + 1) + "|"]
        cells = " | ".join(SHORT[cases[key][3]] if key in cases else "" for cases in cases_by_key)
        lines.append(f"| {_cell(key[2])} | {cells} |")
    lines += ["", "## What failed", ""]
    failures = [(run["name"], case) for run in runs for case in run["cases"] if case[3] == FAILED]
    lines += [f"- **{name}**, *{_cell(case[2])}*: {_cell(case[4])}. Promised: {case[5]}." for name, case in failures]
    lines += ["" if failures else "Nothing.", "## Who promises what", "", f"| promise | {names} |"]
    lines.append("| --- " * (len(runs) + 1) + "|")
    for promise in dict.fromkeys(key[1] for key in keys):
        sources = [next((case[5] for case in run["cases"] if case[1] == promise), "") for run in runs]
        lines.append(f"| {PROMISES[promise]} | {' | '.join(sources)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
