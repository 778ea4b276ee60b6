"""Manages language servers, which are started on first use: one per workspace folder, language and client rights.

If a sandbox works, each server runs in a reading view, without a network and with its own cache folder. Idle servers
are stopped after a while. All language servers exit when this server exits, even if it crashes.
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
from tools.files.find.folder_walk import DEFAULT_EXCLUDED_FOLDERS
from tools.files.path_opener import FileIdentity, identity_of
from tools.files.workspace import Location, Workspace, contains
from tools.lsp.language_server_session import (
    AnswerError,
    Diagnostic,
    Document,
    EndedError,
    Hidden,
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
from tools.shell.resource_limits import default_limits
from tools.shell.running_program import Output, OutputReader, newest_text
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)
IDLE_SECONDS = 600.0
MAX_RUNNING = 8
LEAVING_SECONDS = 1.0  # how long a server may take to exit on its own, and again after a signal, before it is killed
AFTER_EDIT_SECONDS = 1.5
AFTER_EDIT_ERRORS = 5
MADE, CHANGED, REMOVED = 1, 2, 3  # the protocol's numbers for created, changed and deleted files
LOOKED_AT = 5_000  # maximum number of files and folders examined to determine a workspace's language
Key = tuple[str, str, Rights]


@dataclass(frozen=True, slots=True)
class Start:
    """The language server to start for a call and how to start it."""

    key: Key
    server: LanguageServer
    argv: tuple[str, ...]
    workspace: Workspace
    engine: Engine
    hidden: Hidden
    program: FileIdentity  # identity of the program's file

    @property
    def state(self) -> str:
        """The state to which consent applies."""
        return repr((self.argv, self.program, self.engine, self.key[:2]))

    @property
    def why_asked(self) -> str:
        """The reason to ask for consent before the server starts; empty if there is none."""
        if self.engine is Engine.NONE:
            said = "No sandbox confines the program: it can read, change and reach everything that this server can."
            if any(contains(root, self.argv[0]) for root in self.workspace.roots):
                said += (
                    " The program is in the workspace, and files that it loads there may have changed since they were "
                    "trusted."
                )
            return said
        if self.hidden.problem or (self.hidden.files.masked and self.engine is not Engine.BUBBLEWRAP):
            return "The program may read files that are hidden from agents, because that cannot be prevented here."
        return ""


class CodeIntelligence:
    """Starts, keeps and stops language servers.

    `starter` also ensures that the programs exit when this server exits, and `folders` provides the folders that they
    may write to. `hiding` returns what rules deny to a program that only reads, for a client with the given rights, and
    why this cannot be fully enforced (empty if it can). It blocks. `after_edit` is true if new errors are to be
    reported after an edit.
    """

    def __init__(
        self,
        programs: ServerPrograms,
        starter: ProcessStarter,
        confinement: Confinement,
        folders: PrivateFolders,
        environment: Callable[[], Mapping[str, str]],
        home: str,
        hiding: Callable[[Workspace, Rights], tuple[FileRestrictions, str]],
        *,
        after_edit: bool = True,
    ) -> None:
        self.programs = programs
        self._starter, self._confinement, self._folders = starter, confinement, folders
        self._environment, self._home, self._hiding, self._after_edit = environment, home, hiding, after_edit
        self._sessions: dict[Key, LanguageServerSession] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._starting: dict[Key, asyncio.Lock] = {}
        self._failed: dict[Key, tuple[float, ToolError]] = {}  # when a start last failed, and why
        self._ending: dict[asyncio.Task[None], LanguageServerSession] = {}

    def use(self, key: Key) -> LanguageServerSession | None:
        """Return the session if its server is running, and restart the idle timer."""
        session = self._sessions.get(key)
        if session is None or session.connection.problem:
            return None
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, key)
        return session

    async def prepared(
        self, workspace: Workspace, rights: Rights, location: Location | None
    ) -> LanguageServerSession | Start:
        """Return the session for a file, or the server to start for the file.

        Without a file, choose a server for the workspace.

        Raises:
            ToolError: There is no suitable language server.
        """
        if location is None:
            keys = [key for key in self._timers if key[0] in workspace.roots and key[2] == rights]  # most recent last
            latest = next(filter(self.use, reversed(keys)), None)
            if latest is not None and (session := await self._current(latest, workspace)) is not None:
                return session
            location = await THREADS.run(partial(self.sample, workspace))
        server = self.programs.server_for(location.path)
        if server is None:
            known = " ".join(dict.fromkeys(end for each in self.programs.servers for end in each.languages))
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER,
                f"No language server handles '{location.shown}'; the known servers handle {known}. Use grep_search.",
            )
        key = location.root, server.name, rights
        if (session := await self._current(key, workspace)) is not None:
            return session
        await self._confinement.make_ready((key[0],))
        return await THREADS.run(partial(self._look, key, server, workspace))

    def _look(self, key: Key, server: LanguageServer, workspace: Workspace) -> Start:
        """Find the server to start. Blocking.

        Raises:
            ToolError: The server's program was not found, or a required sandbox does not work.
        """
        argv = self.programs.command(server, workspace.roots)
        if argv is None:
            names = " or ".join(command[0] for command in server.commands)
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER,
                f"There is no language server for {one_line(server.name)}: {one_line(names)} is not on the PATH "
                "outside the workspace. The user can install it. A program in the workspace is used only after the "
                "user has run coretools-mcp trust there. Use grep_search until then.",
            )
        site = self._confinement.site((key[0],), self._environment().get("PATH", ""))
        if site.engine is Engine.NONE and site.is_required:
            raise ToolError(
                ToolErrorType.SANDBOX_UNAVAILABLE,
                f"No language server was started: shell.sandbox is required, but no sandbox works ({site.failure}). "
                "Tell the user, and use grep_search.",
            )
        program = identity_of(os.stat(argv[0]))
        return Start(key, server, argv, workspace, site.engine, self._hidden(workspace, key[2]), program)

    def _hidden(self, workspace: Workspace, rights: Rights) -> Hidden:
        files, problem = self._hiding(workspace, rights)
        found: list[tuple[int, int] | None] = []
        for path in files.masked:
            try:
                info = os.lstat(path)
            except OSError:
                found.append(None)
            else:
                found.append((info.st_dev, info.st_ino))
        return Hidden(files, problem, tuple(found))

    async def _current(self, key: Key, workspace: Workspace) -> LanguageServerSession | None:
        """Return the session if its server is running and its view hides exactly what is hidden now.

        The masks in a running server's view do not follow later changes.
        """
        session = self.use(key)
        if session is None:
            return None
        return session if session.hidden == await THREADS.run(partial(self._hidden, workspace, key[2])) else None

    async def session(self, start: Start, *, agreed: str, is_granted: bool) -> LanguageServerSession:
        """Start a server, unless it is already running.

        Args:
            start: The server to start, as returned by `prepared`.
            agreed: The `state` that the user agreed to for this start only, or an empty string.
            is_granted: Whether a rule or the approval mode allows any start.

        Raises:
            ToolError: The server cannot be started, or nobody has given the consent that its current program needs.
        """
        key, began = start.key, asyncio.get_running_loop().time()
        async with self._starting.setdefault(key, asyncio.Lock()):
            if (session := await self._current(key, start.workspace)) is not None:
                return session
            failed_at, failure = self._failed.get(key, (began, None))
            if failure is not None and failed_at > began:  # the start failed while this call waited
                raise failure
            start = await THREADS.run(partial(self._look, key, start.server, start.workspace))
            if start.why_asked and not is_granted and agreed != start.state:
                raise ExecutionDeniedError(
                    "The language server was not started: it needs consent, and the user has not approved the "
                    "program in its current state. Repeat the call, and the user will be asked."
                )
            self._end(key)
            if len(self._timers) >= MAX_RUNNING:
                self._end(min(self._timers, key=lambda each: bool(self._sessions[each].users)))
            try:
                self._sessions[key] = session = await self._start(start)
            except ToolError as error:
                self._failed[key] = asyncio.get_running_loop().time(), error
                raise
            self.use(key)
            return session

    def _spec_and_view(self, start: Start, folder: PrivateFolder, reading: int) -> tuple[ProcessSpec, CommandView]:
        """Return the process to start, with the descriptor `reading` as its standard input, and its view. Blocking."""
        root, _, rights = start.key
        environment = {**self._environment(), **start.server.environment}
        # Omit workspace folders from `PATH`, because even a server from elsewhere runs `node` or `python3` by name.
        outside = (
            entry
            for entry in environment.get("PATH", "").split(os.pathsep)
            if os.path.isabs(entry) and is_outside(os.path.join(entry, "."), start.workspace.roots)
        )
        environment["PATH"] = os.pathsep.join((os.path.dirname(start.argv[0]), *outside))
        view = UNCONFINED
        if start.engine is not Engine.NONE:
            # The server can see paths in the operator's arguments even if they are outside the workspace.
            named = (os.path.realpath(word) for word in start.argv[1:] if os.path.isabs(word))
            seen = (*dependency_folders(os.environ, self._home), *filter(os.path.lexists, named))
            hiding = partial(self._hiding, start.workspace, rights)
            view = CommandView(
                start.engine, ViewKind.READING, Network.OWN_LOOPBACK, seen, current_restrictions=lambda: hiding()[0]
            )
        if start.engine is not Engine.BUBBLEWRAP:  # bubblewrap gives the server a `/tmp` of its own
            environment["XDG_CACHE_HOME"] = os.path.join(folder.make(), "landlock-tmp", "cache")
        spec = ProcessSpec(start.argv, root, environment, default_limits(), {}, {0: reading}, separates_errors=True)
        return spec, view

    async def _start(self, start: Start) -> LanguageServerSession:
        server, (root, _, rights), program = start.server, start.key, os.path.basename(start.argv[0])
        program = server.name if server in self.programs.configured else program
        folder = self._folders.folder(f"language server {server.name} {root} {hash(rights)}")
        assert folder is not None  # noqa: S101 - `folder` is set, because the name is not empty

        def refusal(number: int) -> ToolError:
            why = os.strerror(number) if number else "the process that starts programs died"
            return ToolError(
                ToolErrorType.LSP_SERVER_FAILED,
                f"The language server {one_line(program)} could not be started: {why}. Use grep_search; if it keeps "
                "failing, tell the user.",
            )

        reading, writing = os.pipe()
        try:
            spec, view = await THREADS.run(lambda: self._spec_and_view(start, folder, reading))
            confined = await self._confinement.confine(spec, (root,), view, folder.make)
            process = await start_confined(self._starter, confined, refusal)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        errors = Output(None)
        errors_reader = OutputReader(process.errors, errors)

        async def end_with_program() -> None:
            await process.wait()  # other processes may keep the program's output open
            session.connection.end("has ended")

        async def end_program() -> None:
            await session.connection.ended.wait()
            await process.end(LEAVING_SECONDS)

        async def close() -> None:
            with anyio.CancelScope(shield=True):
                if not session.connection.problem:
                    with suppress(AnswerError, EndedError, TimeoutError):
                        await session.connection.request("shutdown", {}, LEAVING_SECONDS)
                    session.connection.end("was stopped")
                watch.cancel()
                await ending
                errors_reader.stop()
                process.close()
                await confined.release()

        sees_hidden = view.kind is ViewKind.UNCONFINED or bool(start.why_asked)
        last_words = partial(newest_text, errors)
        session = LanguageServerSession(server, one_line(program), root, close, last_words, sees_hidden, start.hidden)
        watch = asyncio.create_task(end_with_program(), name=f"end of {program}")
        ending = asyncio.create_task(end_program(), name=f"end {program} with its connection")
        try:
            await session.open(os.dup(process.output), writing)
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
                await session.unused.wait()
                await session.close()

            task = asyncio.create_task(close_once_unused(), name="end of a language server")
            self._ending[task] = session
            task.add_done_callback(self._ending.pop)

    async def aclose(self) -> None:
        """Stop all servers, even with calls in progress."""
        for key in tuple(self._sessions):
            self._end(key)
        for session in self._ending.values():
            session.unused.set()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def sample(self, workspace: Workspace, server: LanguageServer | None = None) -> Location:
        """Return a workspace file in the most frequent language, or in a language of `server`. Blocking.

        Raises:
            ToolError: There is no such file.
        """
        found: dict[str, list[str]] = {}
        left = LOOKED_AT
        for root in workspace.roots:
            for folder, folders, names in os.walk(root):
                folders[:] = [each for each in folders if each not in DEFAULT_EXCLUDED_FOLDERS and each[:1] != "."]
                left -= len(names) + 1
                for name in names:
                    known = self.programs.server_for(name)
                    if known is not None and (server is None or known is server):
                        found.setdefault(known.name, []).append(os.path.join(folder, name))
                if left < 0:
                    break
        for paths in sorted(found.values(), key=len, reverse=True):
            known = self.programs.server_for(paths[0])
            if known is None or self.programs.command(known, workspace.roots) is None:
                continue
            for path in paths:
                if os.path.realpath(path) == path and not is_hidden(workspace, location := workspace.at(path)):
                    return location
        raise ToolError(
            ToolErrorType.NO_LANGUAGE_SERVER,
            "None of the examined workspace files is in a language with a language server. Give a file as filePath, or "
            "use grep_search.",
        )

    async def before_change(self, workspace: Workspace, rights: Rights, location: Location) -> AwaitedErrors | None:
        """Get a file's errors before the file is changed. `None` if it is hidden or no server is running for it."""
        server = self.programs.server_for(location.path)
        if server is None:
            return None
        session = await self._current((location.root, server.name, rights), workspace)
        if session is None or await THREADS.run(partial(is_hidden, workspace, location)):
            return None
        is_there = await THREADS.run(partial(workspace.stat, location)) is not None
        awaited = AwaitedErrors(session, workspace, location, is_there, is_told=self._after_edit)
        if self._after_edit and is_there:
            awaited.before = await awaited.errors()
        return awaited


@dataclass(slots=True)
class AwaitedErrors:
    """The errors in a file before a change, and the new errors after it."""

    session: LanguageServerSession
    workspace: Workspace
    location: Location
    was_there: bool  # whether the file existed before the change
    is_told: bool  # whether to report new errors
    before: tuple[Diagnostic, ...] | None = ()  # earlier errors; `None` if they did not arrive in time
    left: float = AFTER_EDIT_SECONDS  # remaining time to wait for errors
    text: str = ""  # the file's text at the last request

    async def errors(self) -> tuple[Diagnostic, ...] | None:
        """Get the diagnostics for the file's current content, or `None` if they do not arrive in the remaining time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        report = None
        with suppress(ToolError, TimeoutError):
            async with asyncio.timeout(self.left):
                document: Document | None = await self.session.follow(self.workspace, self.location)
                if document is not None:
                    self.text = document.text
                    report = await self.session.report(document, self.left)
        self.left = max(self.left - (loop.time() - began), 0)
        return report.items if report is not None else None

    async def told(self) -> str:
        """Describe the new errors after the change. Empty if there are none, or none arrived in time."""
        is_there = await THREADS.run(partial(self.workspace.stat, self.location)) is not None
        kind = REMOVED if not is_there else CHANGED if self.was_there else MADE
        change = {"uri": uri_of(self.location.path), "type": kind}
        self.session.connection.notify("workspace/didChangeWatchedFiles", {"changes": [change]})
        after = await self.errors() if self.is_told and self.before is not None else None
        found = new_errors(self.before or (), after or ())
        if not found or self.session.connection.problem:
            return ""
        lines = lines_of(self.text)
        said = [f"New errors ({self.session.program}):" if len(found) > 1 else f"New error ({self.session.program}):"]
        for item in found[: AFTER_EDIT_ERRORS - (len(found) > AFTER_EDIT_ERRORS)]:
            line = lines[item.start.line] if item.start.line < len(lines) else ""
            said.append(f"{item.start.line + 1}:{self.session.characters(line, item.start.units) + 1}: {item.text()}")
        if len(found) > AFTER_EDIT_ERRORS:
            said.append(f"and {len(found) - AFTER_EDIT_ERRORS + 1} more")
        return "\n".join(said)
