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
from server.console.upstream_waits import not_approved
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
STUCK = "A server does not answer; its client can restart it."
NONSENSE = "A server answered its control socket in a way that this version does not understand. Is it another version?"


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
    """A running server's response to `status`."""

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


class _Said(TypedDict, total=False):
    """A line of the response to a query other than `status`."""

    lines: list[str]
    link: str
    error: str


T = TypeVar("T")


def _checked(kind: type[T], said: object) -> T:
    """Check the types of the response's required fields; other fields are kept."""
    try:
        TypeAdapter(kind).validate_python(said, strict=True)
    except ValidationError:
        raise CommandFailure(NONSENSE) from None
    return cast("T", said)


def _running(environ: Mapping[str, str]) -> tuple[list[tuple[str, ServerStatus]], list[str]]:
    """Return the socket and status of each server, and the problems of those that did not respond."""
    found: list[tuple[str, ServerStatus]] = []
    problems: list[str] = []
    for path, answer in ask_servers({"ask": "status"}, environ):
        try:
            found += [(path, _checked(ServerStatus, said)) for said in answer]
        except CommandFailure as failure:
            problems.append(str(failure))
        problems += [] if answer else [STUCK]
    return found, problems


@dataclass(frozen=True, slots=True)
class Which:
    """The user's selection among the running servers."""

    folder: str | None = None  # a folder that the server works in
    pid: int | None = None

    def fits(self, about: ServerStatus) -> bool:
        works_here = self.folder is None or works_in(about, real_path(self.folder))
        return works_here and self.pid in (None, about["pid"])

    @property
    def said(self) -> str:
        where = f" works in {visible_line(real_path(self.folder))}" if self.folder is not None else " is running"
        return f"no server{where}{f' with process ID {self.pid}' if self.pid is not None else ''}"


def works_in(about: ServerStatus, folder: str) -> bool:
    return any(contains(each, folder) for each in about["workspaces"])


def show_status(environ: Mapping[str, str], which: Which, *, as_json: bool) -> int:
    """Print the clients and upstreams of each selected server. Return exit code 1 if there is none."""
    found, problems = _running(environ)
    running = [about for _, about in found]
    fitting = [each for each in running if which.fits(each)]
    if as_json:
        show_json(fitting)
    for at, each in enumerate(fitting):
        if not as_json:
            show(*[""][:at])
            _show_server(each)
    for problem in dict.fromkeys(problems):
        note(problem)
    if not fitting and not as_json and (running or not problems):
        show(f"{which.said}.{_listed(running)}" if running else NONE_RUNS, stream=sys.stderr)
    return 0 if fitting else EXIT_FAILED


def _listed(running: Iterable[ServerStatus]) -> str:
    """Return the running servers, each with the options that select it."""
    lines: list[str] = []
    for about in running:
        folders = "".join(f" --workspace {shlex.quote(visible_line(folder))}" for folder in about["workspaces"][:1])
        lines.append(f"\n {folders or ' (no folder)'} (or --pid {about['pid']})")
    return f" Running:{''.join(lines)}" if lines else ""


def _show_server(about: ServerStatus) -> None:
    mode = f"approval mode {about['approvalMode']}"
    since = _lasting(about["seconds"])
    version, transport = about["version"], about["transport"]
    show(visible_line(f"process {about['pid']}, version {version}, over {transport} for {since}, {mode}"))
    for folder in about["workspaces"]:
        show(f"  workspace: {visible_line(folder)}")
    for path in about["settings"]:
        show(f"  settings: {visible_line(path)}")
    for client in about["clients"]:
        name = visible_line(client["name"]) or "a client without a name"
        name += f" of {visible_line(client['principal'])}" if client["principal"] else ""
        work = [count(client["calls"], "call")] if client["calls"] else []
        work += [count(client["jobs"], "background job")] if client["jobs"] else []
        doing = f"{' and '.join(work)} running" if work else f"silent for {_lasting(client['silentSeconds'])}"
        show(f"  client: {name} ({client['protocolVersion']}), {doing}")
        for folder in client["folders"] or ["no folder"]:
            show(f"    works in {visible_line(folder)}")
    if about["customTools"] not in ("none", "found"):
        show(f"  custom tools: {visible_line(about['customTools'])}")
    if "lock" in about:
        show(f"  lock file: {visible_line(about['lock'])}")
    rows = [
        (
            f"  {visible_line(each['alias'])}",
            visible_line(each["state"]),
            f"{each['tools']}{' from the last run' if 'tools' in each.get('fromLastRun', ()) else ''}",
            visible_line(each.get("problem", "")) or not_approved(each.get("approval", {})),
        )
        for each in about["servers"]
    ]
    rows += [(f"  {visible_line(alias)}", "not used", "", visible_line(why)) for alias, why in about["leftOut"].items()]
    if rows:
        show_table(("  server", "state", "tools", "why"), rows)


def _lasting(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_logs(environ: Mapping[str, str], alias: str | None, which: Which, *, follows: bool) -> int:
    """Print the latest log lines of a server, or those about one upstream. With `follows`, keep printing new lines."""
    path, about = _chosen(environ, which)
    servers = [each["alias"] for each in about["servers"]]
    if alias is not None and alias not in servers:
        there = f"It has {', '.join(servers)}." if servers else "It has none."
        raise UsageError(f"the running server has no upstream '{alias}'. {there}")
    is_empty = True
    for answered in ask_server(path, {"ask": "logs", "server": alias, "follow": follows}):
        record = _checked(_Said, answered)
        if "error" in record:
            raise CommandFailure(visible_line(record["error"]))
        lines = [visible_line(redact(line)) for line in record.get("lines", ())]
        if lines:
            show(*lines)
            sys.stdout.flush()
        elif is_empty:
            note(f"nothing has been logged so far (log.level is {about['logLevel']})")
        is_empty = False
    if follows:
        note("the server has ended")
    return 0


def open_dashboard(environ: Mapping[str, str], which: Which, *, opens_browser: bool) -> int:
    """Print the link that signs in one browser, and open the dashboard of a running server with it."""
    socket, about = _chosen(environ, which)
    answer = _checked(_Said, next(ask_server(socket, {"ask": "dashboard"}), Json()))
    if "link" not in answer:
        raise CommandFailure(visible_line(answer.get("error", STUCK)))
    sys.stdout.write(f"{answer['link']}\n")
    sys.stdout.flush()
    where = ", ".join(map(visible_line, about["workspaces"])) or "no folder"
    whose = f"The dashboard of process {about['pid']}, which works in {where}."
    how = "The link signs in one browser, once, within a minute. The dashboard stays open until the server shuts down."
    show(f"{whose} {how}", stream=sys.stderr)
    if opens_browser and not open_in_browser(answer["link"], link_file(socket)):
        note("no browser could be started here; open the link yourself")
    return 0


def _chosen(environ: Mapping[str, str], which: Which) -> tuple[str, ServerStatus]:
    """Return the socket and status of the selected server: the only one, or the only one in the working folder.

    Raises:
        CommandFailure: No server is running, or the selected one may be one that does not respond.
        UsageError: The selection is ambiguous.
    """
    found, problems = _running(environ)
    fitting = [each for each in found if which.fits(each[1])]
    here = [each for each in fitting if works_in(each[1], real_path(os.getcwd()))]
    if problems and not (fitting if which != Which() else here):
        raise CommandFailure(f"{problems[0]} It may be the server that you mean; --pid selects another.")
    if len(fitting) > 1:
        fitting = here or fitting
    if len(fitting) == 1:
        return fitting[0]
    if not found:
        raise CommandFailure(NONE_RUNS)
    said = which.said if not fitting else "several servers are running" + (" there" if which.folder is not None else "")
    raise UsageError(f"{said}.{_listed(about for _, about in fitting or found)}")
