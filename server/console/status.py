"""`status`, `logs` and `dashboard`: query the user's running servers over their control sockets."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NotRequired, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from server.console import CommandFailure, UsageError
from server.console.terminal import note, open_in_browser, show, show_json, show_table
from server.console.upstream_messages import unapproved_text
from server.protocol.json_rpc import Json
from server.settings.settings_files import real_path
from tools.contract.display import visible_line
from tools.files.find.folder_walk import count
from tools.files.workspace import contains
from tools.text.secrets import redact

if sys.platform == "win32":
    raise ImportError("there is no control socket on Windows")

from server.console import EXIT_FAILED
from server.dashboard.control_socket import ask_server, ask_servers, link_file

NONE_RUNS = (
    "None of your servers is running. MCP clients start servers; run coretools-mcp install to list the clients "
    "that have coretools-mcp."
)
STUCK = "A server is not responding; its client can restart it."
UNKNOWN_RESPONSE = (
    "A server sent a response that this version of coretools-mcp does not understand. The server may be running "
    "another version."
)


class _ClientStatus(TypedDict):
    name: str
    principal: str | None
    protocolVersion: str
    folders: list[str]
    calls: int
    jobs: int
    silentSeconds: float


class _UpstreamStatus(TypedDict):
    alias: str
    state: str
    tools: int
    problem: NotRequired[str]
    approval: NotRequired[dict[str, int]]
    fromLastRun: NotRequired[list[str]]


class ServerStatus(TypedDict):
    pid: int
    version: str
    transport: str
    seconds: float
    approvalMode: str
    workspaces: list[str]
    settings: list[str]
    logLevel: str
    clients: list[_ClientStatus]
    servers: list[_UpstreamStatus]
    lock: NotRequired[str]
    leftOut: dict[str, str]
    customTools: str


class _ResponseLine(TypedDict, total=False):
    """A line of the response to a query other than `status`."""

    lines: list[str]
    link: str
    error: str


T = TypeVar("T")


def _validated(kind: type[T], value: object) -> T:
    """Check the response's fields and their types; unknown fields are kept."""
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        raise CommandFailure(UNKNOWN_RESPONSE) from None
    return cast("T", value)


def _query_servers(environ: Mapping[str, str]) -> tuple[list[tuple[str, ServerStatus]], list[str]]:
    """Return the socket and status of each server, and the problems of servers without a usable response."""
    servers: list[tuple[str, ServerStatus]] = []
    problems: list[str] = []
    for path, answer in ask_servers({"ask": "status"}, environ):
        try:
            servers += [(path, _validated(ServerStatus, line)) for line in answer]
        except CommandFailure as failure:
            problems.append(str(failure))
        problems += [] if answer else [STUCK]
    return servers, problems


@dataclass(frozen=True, slots=True)
class ServerSelection:
    """The user's selection among the running servers."""

    folder: str | None = None  # a folder that the server works in
    pid: int | None = None

    def fits(self, status: ServerStatus) -> bool:
        works_here = self.folder is None or works_in(status, real_path(self.folder))
        return works_here and self.pid in (None, status["pid"])

    @property
    def description(self) -> str:
        condition = f" works in {visible_line(real_path(self.folder))}" if self.folder is not None else " is running"
        return f"no server{f' with process ID {self.pid}' if self.pid is not None else ''}{condition}"


def works_in(status: ServerStatus, folder: str) -> bool:
    return any(contains(workspace, folder) for workspace in status["workspaces"])


def show_status(environ: Mapping[str, str], selection: ServerSelection, *, as_json: bool) -> int:
    """Print the clients and upstreams of each selected server. Return exit code 1 if none is selected."""
    servers, problems = _query_servers(environ)
    running = [status for _, status in servers]
    selected = [status for status in running if selection.fits(status)]
    if as_json:
        show_json(selected)
    for position, status in enumerate(selected):
        if not as_json:
            show(*[""][:position])
            _show_server(status)
    for problem in dict.fromkeys(problems):
        note(problem)
    if not selected and not as_json and (running or not problems):
        show(f"{selection.description}.{_server_list(running)}" if running else NONE_RUNS, stream=sys.stderr)
    return 0 if selected else EXIT_FAILED


def _server_list(running: Iterable[ServerStatus]) -> str:
    """Return a text that lists the running servers, each with the options that select it."""
    lines: list[str] = []
    statuses = list(running)
    first_folders = [status["workspaces"][:1] for status in statuses]
    for status, folders in zip(statuses, first_folders, strict=True):
        pid, folder = f"--pid {status['pid']}", visible_line("".join(folders)) or "no folder"
        if folders and first_folders.count(folders) == 1:
            lines.append(f"\n  --workspace {shlex.quote(folder)} (or {pid})")
        else:
            names = dict.fromkeys(visible_line(client["name"]) for client in status["clients"] if client["name"])
            lines.append(f"\n  {pid} (works in {folder}{''.join(f', for {name}' for name in names)})")
    return f" To select one:{''.join(lines)}" if lines else ""


def _show_server(status: ServerStatus) -> None:
    mode = f"approval mode {status['approvalMode']}"
    since = _duration_text(status["seconds"])
    version, transport = status["version"], status["transport"]
    show(visible_line(f"process {status['pid']}, version {version}, over {transport} for {since}, {mode}"))
    for folder in status["workspaces"]:
        show(f"  workspace: {visible_line(folder)}")
    for path in status["settings"]:
        show(f"  settings: {visible_line(path)}")
    for client in status["clients"]:
        name = visible_line(client["name"]) or "a client without a name"
        name += f" of {visible_line(client['principal'])}" if client["principal"] else ""
        work = [count(client["calls"], "call")] if client["calls"] else []
        work += [count(client["jobs"], "background job")] if client["jobs"] else []
        activity = f"{' and '.join(work)} running" if work else f"silent for {_duration_text(client['silentSeconds'])}"
        show(f"  client: {name} ({client['protocolVersion']}), {activity}")
        for folder in client["folders"] or ["no folder"]:
            show(f"    works in {visible_line(folder)}")
    if status["customTools"] not in ("none", "found"):
        show(f"  custom tools: {visible_line(status['customTools'])}")
    if "lock" in status:
        show(f"  lock file: {visible_line(status['lock'])}")
    rows = [
        (
            f"  {visible_line(upstream['alias'])}",
            visible_line(upstream["state"]),
            f"{upstream['tools']}{' from the last run' if 'tools' in upstream.get('fromLastRun', ()) else ''}",
            visible_line(upstream.get("problem", "")) or unapproved_text(upstream.get("approval", {})),
        )
        for upstream in status["servers"]
    ]
    for alias, reason in status["leftOut"].items():
        rows.append((f"  {visible_line(alias)}", "not used", "", visible_line(reason)))
    if rows:
        show_table(("  server", "state", "tools", "why"), rows)


def _duration_text(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_logs(environ: Mapping[str, str], alias: str | None, selection: ServerSelection, *, follows: bool) -> int:
    """Print the latest log lines of a server, or those about one upstream. With `follows`, keep printing new lines."""
    path, status = _select_server(environ, selection)
    aliases = [upstream["alias"] for upstream in status["servers"]]
    if alias is not None and alias not in aliases:
        hint = f"It has {', '.join(aliases)}." if aliases else "It has none."
        raise UsageError(f"the running server has no upstream '{alias}'. {hint}")
    has_response = False
    for line in ask_server(path, {"ask": "logs", "server": alias, "follow": follows}):
        record = _validated(_ResponseLine, line)
        if "error" in record:
            raise CommandFailure(visible_line(record["error"]))
        lines = [visible_line(redact(line)) for line in record.get("lines", ())]
        if lines:
            show(*lines)
            sys.stdout.flush()
        elif not has_response:
            note(f"nothing has been logged so far (log.level is {status['logLevel']})")
        has_response = True
    if not has_response:
        raise CommandFailure(STUCK)
    if follows:
        note("the server has ended")
    return 0


def open_dashboard(environ: Mapping[str, str], selection: ServerSelection, *, opens_browser: bool) -> int:
    """Print a sign-in link to the dashboard of a running server, and open it if `opens_browser` is true."""
    socket, status = _select_server(environ, selection)
    answer = _validated(_ResponseLine, next(ask_server(socket, {"ask": "dashboard"}), Json()))
    if "link" not in answer:
        raise CommandFailure(visible_line(answer.get("error", STUCK)))
    sys.stdout.write(f"{answer['link']}\n")
    sys.stdout.flush()
    folders = ", ".join(map(visible_line, status["workspaces"])) or "no folder"
    title = f"The dashboard of process {status['pid']}, which works in {folders}."
    hint = "The link signs in one browser, works once, and expires after a minute."
    show(f"{title} {hint} The dashboard stays open until the server shuts down.", stream=sys.stderr)
    if opens_browser and not open_in_browser(answer["link"], link_file(socket)):
        note("no browser could be started here; open the link yourself")
    return 0


def _select_server(environ: Mapping[str, str], selection: ServerSelection) -> tuple[str, ServerStatus]:
    """Return the socket and status of the only selected server, or of the only one that works in the working folder.

    Fail if no server is selected, if the user may have meant one that does not respond, or if the choice is ambiguous.
    """
    servers, problems = _query_servers(environ)
    selected = [server for server in servers if selection.fits(server[1])]
    in_working_folder = [server for server in selected if works_in(server[1], real_path(os.getcwd()))]
    if problems and not (selected if selection != ServerSelection() else in_working_folder):
        raise CommandFailure(f"{problems[0]} It may be the server that you mean; --pid selects another.")
    if len(selected) > 1:
        selected = in_working_folder or selected
    if len(selected) == 1:
        return selected[0]
    if not servers:
        raise CommandFailure(NONE_RUNS)
    several = f"several servers are running{' there' if selection.folder is not None else ''}"
    message = several if selected else selection.description
    raise UsageError(f"{message}.{_server_list(status for _, status in selected or servers)}")
