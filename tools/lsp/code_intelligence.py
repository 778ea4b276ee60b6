"""Manages language servers: one for each combination of workspace folder, language and client rights.

A server is started on first use and has its own cache folder. If a sandbox works, the server runs in it with a reading
view (`ViewKind.READING`) and without network access. Idle servers are stopped after a while. All language servers exit
when this server exits, even if it crashes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from tools.contract.command_views import UNCONFINED, CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.tool_errors import ExecutionDeniedError, ToolError, ToolErrorType
from tools.files.child_process import is_outside
from tools.files.path_opener import FileIdentity, identity_of
from tools.files.workspace import Location, Workspace, contains
from tools.lsp.language_server_session import (
    ConnectionEndedError,
    Diagnostic,
    Document,
    HiddenFilesSnapshot,
    LanguageServerSession,
    is_hidden,
    lines_of,
    new_errors,
    uri_of,
)
from tools.lsp.language_servers import LanguageServer, ServerPrograms, dependency_folders
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import Rights
from tools.shell.command_runner import start_confined
from tools.shell.private_folders import PrivateFolder, PrivateFolders
from tools.shell.process_spec import Confinement, ProcessSpec, ProcessStarter
from tools.shell.program_output import Output, OutputReader, newest_text
from tools.shell.resource_limits import default_limits
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)
IDLE_SECONDS = 600.0
MAX_RUNNING = 8
# How long a server may take to answer `shutdown`, then to exit, and then to exit after SIGTERM, before it is killed
EXIT_SECONDS = 1.0
AFTER_EDIT_SECONDS = 1.5
AFTER_EDIT_ERRORS = 5
CREATED, CHANGED, DELETED = 1, 2, 3  # the protocol's numbers for created, changed and deleted files
Key = tuple[str, str, Rights]


@dataclass(frozen=True, slots=True)
class ServerStart:
    key: Key
    server: LanguageServer
    argv: tuple[str, ...]
    workspace: Workspace
    engine: Engine
    hidden_files: HiddenFilesSnapshot
    program: FileIdentity  # identity of the program's file

    @property
    def state(self) -> str:
        """What consent covers: the command line, the program's file, the sandbox, the folder and the server."""
        return repr((self.argv, self.program, self.engine, self.key[:2]))

    @property
    def consent_reason(self) -> str:
        """The reason to ask for consent before the server starts; empty if there is none."""
        if self.engine is Engine.NONE:
            reason = "No sandbox confines the program: it can read, change and reach everything that this server can."
            if any(contains(root, self.argv[0]) for root in self.workspace.roots):
                reason += (
                    " The program is in the workspace, and files that it loads there may have changed since they were "
                    "trusted."
                )
            return reason
        hidden_files = self.hidden_files
        if hidden_files.problem or (hidden_files.restrictions.masked and self.engine is not Engine.BUBBLEWRAP):
            return (
                "The program may be able to read files that are hidden from agents. "
                "That cannot be fully prevented here."
            )
        return ""


@dataclass(eq=False, repr=False)
class CodeIntelligence:
    """Starts, reuses and stops language servers."""

    programs: ServerPrograms
    starter: ProcessStarter  # starts the programs, and ensures that they exit when this server exits
    confinement: Confinement
    folders: PrivateFolders  # provides the private folders that the programs may write to
    environment: Callable[[], Mapping[str, str]]
    home: str
    # Returns what rules deny to a program that only reads, for a client with the given rights, and why this cannot be
    # fully enforced (empty if it can). Blocking.
    find_hidden: Callable[[Workspace, Rights], tuple[FileRestrictions, str]]
    after_edit: bool = True  # whether to report new errors after an edit

    def __post_init__(self) -> None:
        self._sessions: dict[Key, LanguageServerSession] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._start_locks: dict[Key, asyncio.Lock] = {}
        self._failed_starts: dict[Key, tuple[float, ToolError]] = {}  # time and error of the last failed start
        self._closing_tasks: dict[asyncio.Task[None], LanguageServerSession] = {}

    def find_running(self, key: Key) -> LanguageServerSession | None:
        """Return the session if its server is running, and restart the idle timer."""
        session = self._sessions.get(key)
        if session is None or session.connection.problem:
            return None
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, key)
        return session

    async def session_or_start(
        self, workspace: Workspace, rights: Rights, location: Location | None
    ) -> LanguageServerSession | ServerStart:
        """Return the session for a file, or the server to start for it.

        Without a file, return the latest session with an open file, because some servers load a project only then.
        Raises a `ToolError` if there is no suitable language server, or if a required sandbox does not work.
        """
        if location is None:
            keys = [key for key in self._timers if key[0] in workspace.roots and key[2] == rights]  # most recent last
            for key in reversed(keys):
                latest = self._sessions.get(key)
                is_used = latest is not None and latest.documents
                if is_used and (session := await self._current(key, workspace)) is not None:
                    return session
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER,
                "No language server has a file of this workspace open. Give a file as filePath: the server for its "
                "language is started if needed.",
            )
        server = self.programs.server_for(location.path)
        if server is None:
            extensions = dict.fromkeys(ending for candidate in self.programs.servers for ending in candidate.languages)
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER,
                f"No language server handles '{location.shown}'; the known servers handle {' '.join(extensions)}. Use "
                "grep_search.",
            )
        key = location.root, server.name, rights
        if (session := await self._current(key, workspace)) is not None:
            return session
        await self.confinement.make_ready((key[0],))
        return await THREADS.run(partial(self._find_server, key, server, workspace))

    def _find_server(self, key: Key, server: LanguageServer, workspace: Workspace) -> ServerStart:
        """Find the server to start. Blocking. Raises a `ToolError` if its program or a required sandbox is missing."""
        argv = self.programs.command(server, workspace.roots)
        if argv is None:
            names = one_line(" or ".join(command[0] for command in server.commands))
            has_path = any(os.path.dirname(command[0]) for command in server.commands)
            reason = f"{names} cannot be run" if has_path else f"the PATH outside the workspace has no {names}"
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER,
                f"There is no language server for {one_line(server.name)}: {reason}. The user can install it. A "
                "program in the workspace is used only after the user has run coretools-mcp trust there. Use "
                "grep_search until then.",
            )
        site = self.confinement.site((key[0],), self.environment().get("PATH", ""))
        if site.engine is Engine.NONE and site.is_required:
            raise ToolError(
                ToolErrorType.SANDBOX_UNAVAILABLE,
                f"No language server was started: shell.sandbox is 'required', but no sandbox works ({site.failure}). "
                "Tell the user, and use grep_search.",
            )
        program = identity_of(os.stat(argv[0]))
        hidden_files = self._find_hidden_files(workspace, key[2])
        return ServerStart(key, server, argv, workspace, site.engine, hidden_files, program)

    def _find_hidden_files(self, workspace: Workspace, rights: Rights) -> HiddenFilesSnapshot:
        files, problem = self.find_hidden(workspace, rights)
        identities: list[tuple[int, int] | None] = []
        for path in files.masked:
            try:
                info = os.lstat(path)
            except OSError:
                identities.append(None)
            else:
                identities.append((info.st_dev, info.st_ino))
        return HiddenFilesSnapshot(files, problem, tuple(identities))

    async def _current(self, key: Key, workspace: Workspace) -> LanguageServerSession | None:
        """Return the session if its server is running and still hides exactly the files that are hidden now.

        The masks of a running server are not updated when rules or files change.
        """
        session = self.find_running(key)
        if session is None:
            return None
        hidden_files = await THREADS.run(partial(self._find_hidden_files, workspace, key[2]))
        return session if session.hidden_files == hidden_files else None

    async def session(self, start: ServerStart, *, agreed_state: str, is_granted: bool) -> LanguageServerSession:
        """Start a server, as returned by `session_or_start`, unless it is already running.

        `agreed_state` is the `state` that the user agreed to for this start only, or an empty string. `is_granted` is
        true if a rule or the approval mode allows the start regardless of its `state`. Raises a `ToolError` if the
        server cannot be started, or needs consent that nobody has given.
        """
        key, started_at = start.key, asyncio.get_running_loop().time()
        async with self._start_locks.setdefault(key, asyncio.Lock()):
            if (session := await self._current(key, start.workspace)) is not None:
                return session
            failed_at, failure = self._failed_starts.get(key, (started_at, None))
            if failure is not None and failed_at > started_at:  # the start failed while this call waited
                raise failure
            start = await THREADS.run(partial(self._find_server, key, start.server, start.workspace))
            if start.consent_reason and not is_granted and agreed_state != start.state:
                raise ExecutionDeniedError(
                    "The language server was not started: it needs consent, and the user has not approved the "
                    "program in its current state. Repeat the call, and the user will be asked."
                )
            self._end(key)
            if len(self._timers) >= MAX_RUNNING:
                self._end(min(self._timers, key=lambda running_key: bool(self._sessions[running_key].active_calls)))
            try:
                self._sessions[key] = session = await self._start(start)
            except ToolError as error:
                self._failed_starts[key] = asyncio.get_running_loop().time(), error
                raise
            self.find_running(key)
            return session

    def _spec_and_view(
        self, start: ServerStart, folder: PrivateFolder, input_fd: int
    ) -> tuple[ProcessSpec, CommandView]:
        """Return the process specification, with `input_fd` as standard input, and the sandbox view. Blocking."""
        root, _, rights = start.key
        environment = {**self.environment(), **start.server.environment}
        # Omit workspace folders from `PATH`: even a server outside the workspace may run `node` or `python3` by name.
        entries, roots = environment.get("PATH", "").split(os.pathsep), start.workspace.roots
        search_path = (
            entry for entry in entries if os.path.isabs(entry) and is_outside(os.path.join(entry, "."), roots)
        )
        environment["PATH"] = os.pathsep.join((os.path.dirname(start.argv[0]), *search_path))
        view = UNCONFINED
        if start.engine is not Engine.NONE:
            # The server can see paths in the operator's arguments even if they are outside the workspace.
            path_arguments = (os.path.realpath(word) for word in start.argv[1:] if os.path.isabs(word))
            visible_paths = (*dependency_folders(os.environ, self.home), *filter(os.path.lexists, path_arguments))
            view = CommandView(
                start.engine,
                ViewKind.READING,
                Network.OWN_LOOPBACK,
                visible_paths,
                current_restrictions=lambda: self.find_hidden(start.workspace, rights)[0],
            )
        if start.engine is not Engine.BUBBLEWRAP:  # bubblewrap gives the server a `/tmp` of its own
            environment["XDG_CACHE_HOME"] = os.path.join(folder.make(), "landlock-tmp", "cache")
        spec = ProcessSpec(start.argv, root, environment, default_limits(), {}, {0: input_fd}, separates_errors=True)
        return spec, view

    async def _start(self, start: ServerStart) -> LanguageServerSession:
        server, (root, _, rights), program = start.server, start.key, os.path.basename(start.argv[0])
        program = server.name if server in self.programs.configured_servers else program
        folder = self.folders.folder(f"language server {server.name} {root} {hash(rights)}")
        assert folder is not None  # noqa: S101 - `folder` is set, because the name is not empty

        def refusal(error_number: int) -> ToolError:
            reason = os.strerror(error_number) if error_number else "the process that starts programs died"
            return ToolError(
                ToolErrorType.LSP_SERVER_FAILED,
                f"The language server {one_line(program)} could not be started: {reason}. Use grep_search. If the "
                "server keeps failing to start, tell the user.",
            )

        read_fd, write_fd = os.pipe()
        try:
            spec, view = await THREADS.run(lambda: self._spec_and_view(start, folder, read_fd))
            confined_process = await self.confinement.confine(spec, (root,), view, folder.make)
            process = await start_confined(self.starter, confined_process, refusal)
        except BaseException:
            os.close(write_fd)
            raise
        finally:
            os.close(read_fd)
        errors = Output(None)
        errors_reader = OutputReader(process.errors, errors)

        async def end_with_program() -> None:
            await process.wait()  # does not wait for the end of the output, which other processes may keep open
            session.connection.end("has ended")

        async def end_program() -> None:
            await session.connection.ended.wait()
            await process.end(EXIT_SECONDS)

        async def close() -> None:
            with anyio.CancelScope(shield=True):
                if not session.connection.problem:
                    with suppress(ConnectionEndedError, TimeoutError):
                        await session.connection.request("shutdown", None, EXIT_SECONDS)
                    session.connection.notify("exit")
                    with anyio.move_on_after(EXIT_SECONDS):
                        await session.connection.ended.wait()
                    session.connection.end("was stopped")
                watch.cancel()
                await ending
                errors_reader.stop()
                process.close()
                await confined_process.release()

        sees_hidden = view.kind is ViewKind.UNCONFINED or bool(start.consent_reason)
        session = LanguageServerSession(
            server, one_line(program), root, close, partial(newest_text, errors), sees_hidden, start.hidden_files
        )
        watch = asyncio.create_task(end_with_program(), name=f"end of {program}")
        ending = asyncio.create_task(end_program(), name=f"end {program} with its connection")
        try:
            await session.open(os.dup(process.output), write_fd)
        except BaseException:
            await close()
            raise
        logger.info("language server %s started in %s", program, root)
        return session

    def _end(self, key: Key) -> None:
        """Stop the server, if there is one, once its calls in progress have finished."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if (session := self._sessions.pop(key, None)) is not None:

            async def close_once_unused() -> None:
                await session.idle.wait()
                await session.close()

            task = asyncio.create_task(close_once_unused(), name="end of a language server")
            self._closing_tasks[task] = session
            task.add_done_callback(self._closing_tasks.pop)

    async def aclose(self) -> None:
        """Stop all servers, even with calls in progress."""
        for key in tuple(self._sessions):
            self._end(key)
        for session in self._closing_tasks.values():
            session.idle.set()
        await asyncio.gather(*self._closing_tasks, return_exceptions=True)

    async def before_change(self, workspace: Workspace, rights: Rights, location: Location) -> NewErrorReport | None:
        """Record a file's errors before a change. Return `None` if the file is hidden or has no running server."""
        server = self.programs.server_for(location.path)
        if server is None:
            return None
        session = await self._current((location.root, server.name, rights), workspace)
        if session is None or await THREADS.run(partial(is_hidden, workspace, location)):
            return None
        exists = await THREADS.run(partial(workspace.stat, location)) is not None
        report = NewErrorReport(session, workspace, location, exists, is_reported=self.after_edit)
        if self.after_edit and exists:
            report.earlier_errors = await report.errors()
        return report


@dataclass(slots=True)
class NewErrorReport:
    """Compares the errors in a file before and after a change."""

    session: LanguageServerSession
    workspace: Workspace
    location: Location
    existed: bool  # whether the file existed before the change
    is_reported: bool  # whether to report new errors
    earlier_errors: tuple[Diagnostic, ...] | None = ()  # earlier errors; `None` if they did not arrive in time
    remaining_seconds: float = AFTER_EDIT_SECONDS  # remaining time to wait for errors
    text: str = ""  # the file's text at the last request

    async def errors(self) -> tuple[Diagnostic, ...] | None:
        """Get the diagnostics for the file's current content, or `None` if they do not arrive in the remaining time."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        report = None
        with suppress(ToolError, TimeoutError):
            async with asyncio.timeout(self.remaining_seconds):
                document: Document | None = await self.session.sync(self.workspace, self.location)
                if document is not None:
                    self.text = document.text
                    report = await self.session.wait_for_report(document, self.remaining_seconds)
        self.remaining_seconds = max(self.remaining_seconds - (loop.time() - started_at), 0)
        return report.items if report is not None else None

    async def describe_new_errors(self) -> str:
        """Describe the errors that are new after the change; empty if there are none, or if none arrived in time."""
        exists = await THREADS.run(partial(self.workspace.stat, self.location)) is not None
        kind = DELETED if not exists else CHANGED if self.existed else CREATED
        change = {"uri": uri_of(self.location.path), "type": kind}
        self.session.connection.notify("workspace/didChangeWatchedFiles", {"changes": [change]})
        current_errors = await self.errors() if self.is_reported and self.earlier_errors is not None else None
        added_errors = new_errors(self.earlier_errors or (), current_errors or ())
        if not added_errors or self.session.connection.problem:
            return ""
        lines = lines_of(self.text)
        messages = [f"New error{'s' if len(added_errors) > 1 else ''} ({self.session.program}):"]
        for item in added_errors[: AFTER_EDIT_ERRORS - (len(added_errors) > AFTER_EDIT_ERRORS)]:
            line = lines[item.start.line] if item.start.line < len(lines) else ""
            column = self.session.characters(line, item.start.units) + 1
            messages.append(f"{item.start.line + 1}:{column}: {item.text()}")
        if len(added_errors) > AFTER_EDIT_ERRORS:
            messages.append(f"and {len(added_errors) - AFTER_EDIT_ERRORS + 1} more")
        return "\n".join(messages)
