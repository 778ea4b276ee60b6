"""The content of the dashboard's pages, as plain values; `site` replaces invisible characters when it renders them."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from server.administration.log import HISTORY
from server.administration.server_controls import RunningServer
from server.clients.client_request import principal_in
from server.requests.recent_calls import RecordedCall
from server.settings.section_model import dotted
from server.settings.settings_display import as_text, shown_value
from server.upstreams.catalog.blocked_tools import BlockedMCPTool
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.session.list_reader import in_turns
from tools.contract.confirmation import Choice, Decision, Question
from tools.contract.display import (
    CUT_HERE,
    MAX_BLOCK_CHARS,
    QuestionParts,
    question_parts,
    true_hosts,
    visible,
    visible_line,
)
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import line_counts
from tools.files.change.revert import NONE_KEPT
from tools.text.file_names import shown_path
from tools.text.secrets import redact

MAX_TOOLS = 200  # maximum number of tools on the page; the search finds the others
MAX_NAMED = 3  # maximum number of folders named in a page's header
MAX_CHANGES = 200  # maximum number of file changes listed
MAX_SEARCH_CHARS = 100  # maximum length of the search words
MAX_ABOUT_CHARS = 120  # maximum length of a tool's description


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


def about(running_server: RunningServer) -> str:
    folders = running_server.folders
    ellipsis = " ..." * (len(folders) > MAX_NAMED)
    return f"process {os.getpid()} in {', '.join(folders[:MAX_NAMED]) or 'no folder'}{ellipsis}"


def offered_choices(question: Question) -> list[Choice]:
    """Return the answers to offer; an action that is too long to show in full can only be denied.

    A truncated diff can still be approved, because it says that it is truncated.
    """
    is_whole = _is_whole(question_parts(question.details))
    return [choice for choice in question.choices if is_whole or choice.decision is Decision.DENY]


def _is_whole(parts: QuestionParts) -> bool:
    return len(parts.block) <= MAX_BLOCK_CHARS and (parts.language == "diff" or not parts.is_cut)


def _sender(client: str, principal: str) -> str:
    """Return a client's name and, if it has a token, the principal, as `coretools-mcp status` does."""
    return f"{client or 'a client without a name'} of {visible_line(principal)}" if principal else client


def questions(running_server: RunningServer) -> dict[str, Any]:
    """Return the open questions, each with the action, the reason for asking, and the answers to offer."""
    entries: list[dict[str, Any]] = []
    for pending in running_server.questions.all():
        question, parts = pending.question, question_parts(pending.question.details)
        notes = [*parts.before, *parts.after, *([CUT_HERE] if parts.is_cut else [])]
        notes += true_hosts(f"{parts.block}\n{question.description}\n{parts.purpose}")
        entries.append(
            {
                "id": pending.id,
                "client": _sender(pending.client, principal_in(pending.client_key)),
                "asked": _clock(pending.asked_at),
                "seconds_left": max(0, round(pending.seconds_left)),
                "action": question.description,
                "title": question.details.title.removeprefix("Confirm "),
                "purpose": visible_line(parts.purpose),
                "language": parts.language,
                # Only the beginning is rendered if the block is too long for the page.
                "lines": visible(parts.block[:MAX_BLOCK_CHARS]).rstrip("\n").split("\n"),
                "is_whole": _is_whole(parts),
                "more": notes,
                "reason": question.reason,
                "fingerprint": question.fingerprint,
                "choices": offered_choices(question),
            }
        )
    return {"questions": entries, "asks_here": running_server.asks_at_dashboard}


def calls(latest: Sequence[RecordedCall]) -> dict[str, Any]:
    """Return the calls, newest first. This is slow if many calls are new: their arguments must be summarised."""
    return {
        "calls": [
            {
                "at": _clock(call.began),
                "client": _sender(call.client, call.principal),
                "tool": call.tool,
                "arguments": call.arguments(),
                "outcome": call.outcome,
                "took": "" if call.seconds is None else f"{call.seconds * 1000:,.0f} ms",
                "result": "" if call.seconds is None else f"{call.size:,} characters",
            }
            for call in reversed(latest)
        ]
    }


def servers(running_server: RunningServer) -> dict[str, Any]:
    live = running_server.live
    defaults: dict[str, Any] = {"problem": "", "transport": "", "is_on": True}
    rows = [defaults | entry | {"state": str(entry["state"])} for entry in live.pool.report()]
    rows += [
        defaults | {"alias": alias, "state": "switched off", "tools": 0, "is_on": False} for alias in live.switched_off
    ]
    return {"servers": rows, "left_out": dict(live.pool.left_out)}


def log_of(alias: str) -> dict[str, Any]:
    _, lines = HISTORY.since(0, alias)
    return {"alias": alias, "lines": [redact(line) for line in lines]}


async def tools(running_server: RunningServer, query: str) -> dict[str, Any]:
    """Return the tools that match the search, grouped by the decision about their calls and the reason for it."""
    words, catalog = query[:MAX_SEARCH_CHARS].casefold().split(), running_server.live.pool.catalog
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    shown_count = hidden_count = 0
    async for tool in in_turns(running_server.live.registry.get_all_tools()):
        if not tool.is_listed or not all(word in f"{tool.name} {tool.description}".casefold() for word in words):
            continue
        if shown_count == MAX_TOOLS:
            hidden_count += 1
            continue
        shown_count += 1
        permission = await running_server.permission_of(tool)
        verdict = {"allow": "Allowed", "ask": "Ask first", "deny": "Refused"}[permission.verdict]
        groups.setdefault((verdict, permission.reason.removeprefix(f"{tool.name} ")), []).append(
            {
                "name": tool.name,
                "about": textwrap.shorten(tool.description[: 4 * MAX_ABOUT_CHARS], MAX_ABOUT_CHARS, placeholder=" ..."),
                "is_on": tool.name not in running_server.switched_off,
                "standing": catalog.standing(tool.alias, tool.upstream_name)
                if isinstance(tool, DiscoveredMCPTool)
                else "",
                "words": tool.words if isinstance(tool, BlockedMCPTool) else "",
                "version": tool.version,
            }
        )
    lock = catalog.lock
    by_reason = [{"verdict": verdict, "reason": reason, "tools": group} for (verdict, reason), group in groups.items()]
    return {
        "groups": by_reason,
        "query": query,
        "more": hidden_count,
        "closed": lock.why_closed if lock is not None else "",
    }


def jobs(running_server: RunningServer) -> dict[str, Any]:
    from tools.shell.program_output import newest_text  # noqa: PLC0415 - loaded on first use
    from tools.shell.result_text import status_text  # noqa: PLC0415

    return {
        "jobs": [
            {
                "id": job.id,
                "client": client.name,
                "status": status_text(job),
                "started": _clock(time.time() - time.monotonic() + job.running.started_at),
                "lasted": f"; it ran for {job.seconds:,.0f} s" if job.ended_at is not None else "",
                "command": job.request.command,
                "folder": job.request.folder_name or job.request.folder,
                "output": newest_text(job.running.output),
                "runs": job.ended_at is None,
            }
            for client in running_server.clients.all()
            for job in reversed(client.state.jobs.all() if client.state.jobs is not None else ())
        ]
    }


async def memory(running_server: RunningServer) -> dict[str, Any]:
    return {"memories": await running_server.memories()}


def changes(running_server: RunningServer) -> dict[str, Any]:
    """Return the kept file changes of every client. This call blocks."""
    if running_server.journal.open is None:
        return {"changes": [], "problem": f"No file changes are kept: {NONE_KEPT}."}
    workspace = running_server.workspace_of_person()
    try:
        entries = running_server.journal.open().changes(None, workspace.roots, limit=MAX_CHANGES)
    except ToolError as error:
        return {"changes": [], "problem": error.message}
    return {
        "changes": [
            {
                "id": change.id,
                "at": datetime.fromtimestamp(change.time, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                "tool": change.tool,
                "path": shown_path(change.path),
                "lines": line_counts(change.added, change.removed),
                "state": "undone" if change.is_undone else f"undoes {change.undoes}" if change.undoes else "",
                "is_undone": bool(change.is_undone),
            }
            for change in entries
        ],
        "problem": "",
    }


def audit(latest: Sequence[Callable[[], dict[str, Any]]], file: str | None) -> dict[str, Any]:
    """Return the decisions, newest first. This is slow, because secrets are removed from each decision."""
    records = [record() for record in reversed(latest)]
    for record in records:
        record["at"] = _clock(datetime.fromisoformat(record["time"]).timestamp())
    return {"records": records, "file": file}


def settings(running_server: RunningServer) -> dict[str, Any]:
    report = running_server.live.report
    rows = [
        (dotted(setting.path), as_text(shown_value(setting.path, setting.value)), setting.source)
        for setting in report.values
    ]
    return {"rows": rows, "files": list(report.files), "warnings": list(report.warnings)}
