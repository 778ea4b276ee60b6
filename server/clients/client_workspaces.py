"""The folders that a client's calls may use, and the client's own list of folders (MCP roots)."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import anyio

from server.clients.client_request import Exchange
from server.protocol.file_uris import UriRefusedError, path_of_uri
from server.protocol.json_rpc import MCPError, as_mapping
from server.protocol.request_table import RequestContext
from server.settings.server_models import WorkspaceSettings
from server.settings.settings_files import home_folder, real_path
from tools.contract.tool_errors import NOTHING_DONE, ExhaustedError, exhaustion_of
from tools.files.workspace import Forbidden, Scratch, Workspace, contains
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import ALL_RIGHTS, Rights

logger = logging.getLogger(__name__)

ROOTS_WAIT_SECONDS = 5.0  # how long a file call waits for the client's response to `roots/list`
NEXT_ROOTS_WAIT_SECONDS = 1.0  # how long a file call waits if the last request had no valid result
PLACE_WAIT_SECONDS = 10.0  # how long an upstream's start waits for roots: its working folder cannot change later
QUIET_SECONDS = 0.1  # debounce time before changed roots are requested again; no call waits for it
LONGEST_FLOOD_SECONDS = 5.0  # the longest debounce if the client keeps announcing changes
MAX_ROOTS = 1_000  # maximum number of roots per client; every path is compared with each of them
MOUNTS_SECONDS = 10.0  # how long the mount table counts as current when roots are compared with the home folder
MAX_KEPT_WORKSPACES = 1_000  # maximum number of cached workspaces; clients of the same project share one


@dataclass(frozen=True, slots=True)
class ClientRoots:
    """The real paths of a client's folders, or why none of its roots can be used."""

    folders: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class RootsState:
    """What is known about a client's roots; nothing is known while `roots` is `None`."""

    roots: ClientRoots | None = None
    changes: int = 0  # how many times the client has announced changed roots
    # Held during `roots/list`; replaced when the roots change
    request_lock: anyio.Lock = field(default_factory=anyio.Lock)
    is_silent: bool = False  # whether the last `roots/list` request had no valid result
    notification: RequestContext | None = None  # the latest notification of changed roots, while one is being handled


class WorkspacePolicy:
    """Chooses the folders that a client's calls may use: the operator's, else the client's, else the working folder.

    The operator's folders are those for the client's token, or else those for all clients. `forbidden_of` returns a
    test for paths that a client's rules hide in the given folders. No tool reads or writes in the `private` folders.
    """

    def __init__(
        self,
        settings: WorkspaceSettings,
        forbidden_of: Callable[[Sequence[str], Rights], Forbidden | None],
        rule_of_all_reading: Callable[[Rights], str] = lambda _rights: "",
        private: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._private = private
        self._forbidden_of = forbidden_of
        self._rule_of_all_reading = rule_of_all_reading
        self._operator_roots = tuple(real_path(root) for root in settings.roots)
        # Whether the client's roots narrow the operator's folders
        self._intersect = settings.client_roots == "intersect"
        self.asks_for_roots = self._intersect or not self._operator_roots
        # Each workspace is built when a call first needs it.
        self.cache: dict[tuple[ClientRoots | None, tuple[str, ...], Rights, Scratch | str], Workspace] = {}

    def workspace(
        self,
        client_roots: ClientRoots | None,
        readable: tuple[str, ...] = (),
        rights: Rights = ALL_RIGHTS,
        scratch: Scratch | str = "",
    ) -> Workspace:
        """Return the workspace for a client; `client_roots` is `None` if the client has not listed its roots yet."""
        key = (client_roots, readable, rights, scratch)
        workspace = self.cache.get(key)
        if workspace is None:
            if len(self.cache) >= MAX_KEPT_WORKSPACES:
                self.cache.clear()
            folders, problem = self.folders(client_roots, rights)
            workspace = self.cache[key] = Workspace(
                folders,
                problem,
                respect_git_ignore=self._settings.respect_git_ignore,
                respect_agent_ignore=self._settings.respect_agent_ignore,
                readable=readable,
                forbidden=self._forbidden_of(folders, rights),
                rule_of_all_reading=self._rule_of_all_reading(rights),
                private=self._private,
                scratch=scratch,
                outer_roots=self._operators(rights),
            )
        return workspace

    def _operators(self, rights: Rights) -> tuple[str, ...]:
        return tuple(map(real_path, rights.roots)) or self._operator_roots

    def folders(self, client_roots: ClientRoots | None, rights: Rights) -> tuple[Sequence[str], str]:
        """Return the folders of a client's workspace, and, in case there are none, the reason."""
        operators = self._operators(rights)
        if operators and not self._intersect:
            return operators, ""
        if rights.scopes is not None and not operators:
            # A client with an issuer's token is assumed to be remote, so its roots are folders on another machine.
            client_roots = ClientRoots()
        if client_roots is None:
            return (), (
                "The client declares roots but does not list them, so its folders are unknown. Try again; if "
                "this persists, the operator must set the folders with --workspace."
            )
        folders = client_roots.folders
        if client_roots.problem:
            return (), client_roots.problem
        if operators and not folders:
            return operators, ""  # the client has no roots that could narrow the operator's folders
        if operators:
            # If an operator's folder and a root are nested, use the inner one.
            inside = [root for root in folders if any(contains(operator_root, root) for operator_root in operators)]
            return inside + [
                operator_root for operator_root in operators if any(contains(root, operator_root) for root in folders)
            ], (
                "The client's roots are outside the folders that the operator allows (workspace.clientRoots is "
                "intersect), so no folder is left. The client must open a folder inside the allowed ones, or the "
                "operator must add one with --workspace."
            )
        if folders:
            return _without_broad_folders(folders)
        try:
            folder = os.path.realpath(os.getcwd())
        except OSError:
            problem = (
                "No workspace is set, and the folder that the server was started in no longer exists. Use "
                "--workspace DIR."
            )
            return (), problem
        installation = os.path.realpath(os.path.dirname(sys.executable))
        if broad := _why_too_broad(folder):
            description = broad
        elif folder == installation or contains(os.path.realpath(sys.prefix), folder):
            description = "an installation folder"
        else:
            return (folder,), ""
        return (), (
            f"No workspace is set, and the server was started in {description} ('{folder}'), which is never used as a "
            "default. The operator can start it with --workspace DIR or set workspace.roots in the settings."
        )


def _why_too_broad(folder: str) -> str:
    """Describe a folder that is too broad to be a workspace unless the operator names it; empty for other folders."""
    home = home_folder(os.environ)  # not absolute if this user has none
    if folder == os.path.dirname(folder):
        return "the root of the file system"
    if not os.path.isabs(home):
        return ""
    home = Path(real_path(home))
    if _is_same_folder(folder, home):
        return "your home folder"
    is_above_home = any(_is_same_folder(folder, parent) for parent in home.parents) or any(
        contains(folder, name) and _is_same_folder(name, home)
        for name in _other_names(home, time.monotonic() // MOUNTS_SECONDS)
    )
    return "a folder that contains your home folder" if is_above_home else ""


@lru_cache(1)  # called on the event loop for each root
def _other_names(home: Path, _period: float) -> Sequence[str]:
    """Return the paths of a folder, which has several if a folder above it is mounted twice."""
    from tools.shell.sandbox.mount_check import MountTable  # noqa: PLC0415 - not needed at startup

    if sys.platform == "linux":
        try:
            return (*MountTable().names_of(str(home)),)
        except OSError as error:
            if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
                raise exhaustion from None
    return ()


@lru_cache(MAX_ROOTS)  # called on the event loop, and the folder may be on a file system that hangs later
def _is_same_folder(folder: str, other: Path) -> bool:
    """Compare real paths. One folder has several if it is mounted twice, or if the file system ignores case."""
    try:
        return folder == str(other) or other.samefile(folder)
    except OSError:
        return False


def _without_broad_folders(folders: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return a client's folders except those that only the operator can name, and why these are not used."""
    broad = {folder: description for folder in folders if (description := _why_too_broad(folder))}
    problem = " ".join(
        f"The client has opened '{folder}', {description}, which becomes a workspace only if the operator names it. "
        "The client can open another folder, or the operator can start the server with --workspace DIR or set "
        "workspace.roots in the settings."
        for folder, description in broad.items()
    )
    if problem:
        logger.warning("client roots that are not used: %s", problem)
    return [folder for folder in folders if folder not in broad], problem


_NO_ROOT_USABLE = (
    "The client's roots are not existing folders (they must be file:// URIs of folders), so no folder is left. The "
    "client must open one, or the operator must set one with --workspace."
)


async def follow_roots(
    state: RootsState, ctx: RequestContext, handle: Callable[[RequestContext], Awaitable[None]]
) -> None:
    """Call `handle` for changed roots, one call at a time, and again if the roots have changed in the meantime."""
    state.roots = None
    state.changes += 1
    state.request_lock = anyio.Lock()  # a `roots/list` request that is still pending concerns the old roots
    is_being_handled, state.notification = state.notification is not None, ctx
    if is_being_handled:
        return
    handled_changes = 0
    try:
        while handled_changes != state.changes:
            handled_changes = state.changes
            await handle(state.notification)
            last_changes = -1
            with anyio.move_on_after(LONGEST_FLOOD_SECONDS):
                while last_changes != state.changes:
                    last_changes = state.changes
                    await anyio.sleep(QUIET_SECONDS)
    finally:
        state.notification = None


async def learn_roots(state: RootsState, exchange: Exchange, seconds: float | None = None) -> ClientRoots | None:
    """Return a client's roots, requesting them if they are not known yet and the client declared the capability.

    Returns `None` if they are still not known, for example because the client did not respond in time.
    """
    if exchange.is_modern or exchange.capabilities.get("roots") is None:
        state.roots = ClientRoots()
        return state.roots
    try:
        usual_seconds = NEXT_ROOTS_WAIT_SECONDS if state.is_silent else ROOTS_WAIT_SECONDS
        with anyio.fail_after(usual_seconds if seconds is None else seconds):
            # A client may respond late or never to a request that is sent outside of its own requests, so such a
            # request does not take the lock that calls wait for.
            async with nullcontext() if exchange.is_outside_request else state.request_lock:
                changes, roots = state.changes, state.roots
                if roots is None:
                    answer: Any = (await exchange.outbound.request("roots/list", None)).get("roots")
                    entries = list(map(as_mapping, answer))
                    # Check the folders in a thread, because a root may be on a file system that hangs.
                    folders = await THREADS.run(partial(_existing_folders, entries[:MAX_ROOTS]))
                    if len(folders) < len(entries):
                        unused_count = len(entries) - len(folders)
                        logger.warning("client roots that are not used: %d of %d", unused_count, len(entries))
                    roots = ClientRoots(tuple(folders), _NO_ROOT_USABLE if entries and not folders else "")
                    if changes == state.changes:
                        state.roots = roots
            state.is_silent = False
            return roots
    except (TimeoutError, MCPError, TypeError, ExhaustedError):
        if state.roots is not None:
            return state.roots  # another `roots/list` request was answered in the meantime
        state.is_silent = True
        logger.warning(
            "the client declares roots but did not list them; they are requested again at its next file call"
        )
        return None


def _existing_folders(roots: Sequence[Mapping[str, Any]]) -> list[str]:
    folders: list[str] = []
    for root in roots:
        with suppress(UriRefusedError):
            path = path_of_uri(str(root.get("uri")), may_go_up=True)
            if os.path.isabs(path) and os.path.isdir(path):
                folders.append(real_path(path))
    return folders
