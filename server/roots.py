"""Which folders a client's calls may touch: the operator's, else the client's, else the working folder."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from server.clients import Client, ClientRoots, RequestContext
from server.file_uris import UriRefusedError, path_of_uri
from server.settings.files import real_path
from tools.files.workspace import Forbidden, Workspace, contains

logger = logging.getLogger(__name__)

ROOTS_WAIT_SECONDS = 1.0
"""How long a file call waits for the client's answer to `roots/list`."""


QUIET_SECONDS = 0.1
"""How long a client has to say nothing of its roots until what it said last is seen to. No call waits for that."""

LONGEST_FLOOD_SECONDS = 5.0
"""How long that is waited for where it says so all the time."""

MAX_ROOTS = 1_000
"""Roots of one client that are looked at; every path is held against each of them."""

MAX_KEPT_WORKSPACES = 1_000
"""Workspaces kept by the roots of their clients; clients of one project share one."""


def _nothing_hidden(roots: Sequence[str]) -> None:
    del roots


class WorkspacePolicy:
    """Chooses the workspace of each client.

    Args:
        operator_roots: The folders from the command line or the settings; empty if there are none.
        intersect: Let the client's roots narrow the operator's.
        respect_git_ignore: Whether searches leave out what git ignores.
        respect_agent_ignore: Whether the agent-ignore files count.
        hidden: What permission rules hide below some folders.
    """

    def __init__(
        self,
        operator_roots: Sequence[str],
        *,
        intersect: bool,
        respect_git_ignore: bool = True,
        respect_agent_ignore: bool = True,
        hidden: Callable[[Sequence[str]], Forbidden | None] = _nothing_hidden,
    ) -> None:
        self._operator_roots = tuple(real_path(root) for root in operator_roots)
        self._intersect = intersect
        self._respect_git_ignore = respect_git_ignore
        self._respect_agent_ignore = respect_agent_ignore
        self._hidden = hidden
        self._built: dict[tuple[ClientRoots | None, tuple[str, ...]], Workspace] = {}
        """Roots without what a server that was killed had left in them."""

    def rebuild(self) -> None:
        """Make every workspace anew when it is needed next, because rules hide other files now."""
        self._built.clear()

    @property
    def follows_client(self) -> bool:
        """Whether the client's roots matter at all."""
        return not self._operator_roots or self._intersect

    async def workspace_of(self, client: Client, ctx: RequestContext, *, related: bool = True) -> Workspace:
        """The workspace for one call. Asks the client for its roots if it has some and has not told them yet.

        Args:
            client: Whose call it is.
            ctx: The request or notification at hand.
            related: Ask on the response stream of this request.
        """
        roots = client.roots
        if self.follows_client and roots is None:
            roots = await ask_roots(client, ctx, related=related)
        return self.workspace(roots, client.readable)

    def workspace(self, client_roots: ClientRoots | None, readable: tuple[str, ...] = ()) -> Workspace:
        """The workspace for a client.

        Args:
            client_roots: Its roots; `None` if it has some and has not told them.
            readable: Further folders whose files it may read.
        """
        key = (client_roots, readable)
        if key not in self._built:
            if len(self._built) >= MAX_KEPT_WORKSPACES:
                self._built.clear()
            folders, problem = self._folders(client_roots)
            self._built[key] = Workspace(
                folders,
                problem,
                respect_git_ignore=self._respect_git_ignore,
                respect_agent_ignore=self._respect_agent_ignore,
                readable=readable,
                forbidden=self._hidden(folders),
            )
        return self._built[key]

    def _folders(self, client_roots: ClientRoots | None) -> tuple[Sequence[str], str]:
        """The folders, and what to say if there are none."""
        if self._operator_roots and not self._intersect:
            return self._operator_roots, ""
        if client_roots is None:
            return (), _ROOTS_UNKNOWN
        if client_roots.problem:
            return (), client_roots.problem
        if self._operator_roots:
            return self._narrowed(client_roots.folders), _EMPTY_INTERSECTION
        return (client_roots.folders, "") if client_roots.folders else _working_folder()

    def _narrowed(self, folders: Sequence[str]) -> Sequence[str]:
        """The smaller folder of each pair that overlaps; without roots of the client there is nothing to narrow by."""
        if not folders:
            return self._operator_roots
        inside = [root for root in folders if any(contains(own, root) for own in self._operator_roots)]
        return inside + [own for own in self._operator_roots if any(contains(root, own) for root in folders)]


_ROOTS_UNKNOWN = (
    "The client has announced roots and does not list them, so it is not known which folders it means. Try again; if "
    "it stays so, the operator has to name the folders with --workspace."
)

_NO_ROOT_USABLE = (
    "The client's roots are no existing folders (file:// URIs of folders are expected), so no folder is left. The "
    "client has to open one, or the operator has to name one with --workspace."
)

_EMPTY_INTERSECTION = (
    "The client's roots lie outside the folders that the operator allows (workspace.clientRoots is intersect), so no "
    "folder is left. The client has to open a folder inside them, or the operator has to add one with --workspace."
)


def _working_folder() -> tuple[Sequence[str], str]:
    """The working folder, or why it is no workspace by itself."""
    try:
        folder = os.path.realpath(os.getcwd())
    except OSError:
        return (), "No workspace is set, and the folder that the server was started in is gone. Use --workspace DIR."
    home = os.path.realpath(Path.home())
    if folder in (os.path.dirname(folder), home):
        what = "your home folder" if folder == home else "the root of the file system"
    elif folder == os.path.realpath(os.path.dirname(sys.executable)) or contains(os.path.realpath(sys.prefix), folder):
        what = "an installation folder"
    else:
        return (folder,), ""
    return (), (
        f"No workspace is set, and the server was started in {what} ('{folder}'), which is never taken by itself. "
        "The operator can start it with --workspace DIR or set workspace.roots in the settings."
    )


class _Listed(types.Result):
    """The answer to `roots/list`; the SDK's model would drop all roots for one that is no `file://`."""

    roots: list[dict[str, Any]]


async def see_to_changes(
    client: Client, ctx: RequestContext, take: Callable[[RequestContext], Awaitable[None]]
) -> None:
    """Its roots are other ones: see to that at once, and once more when it has said so again, however often.

    Args:
        client: Whose roots they are. They are not known from now on.
        ctx: The notification.
        take: Tells and asks; it is at work once at a time, and given the last notification.
    """
    client.roots = None
    client.roots_changes += 1
    is_seen_to, client.roots_news = client.roots_news is not None, ctx
    if is_seen_to:
        return
    seen_to = 0
    try:
        while seen_to != client.roots_changes:
            seen_to = client.roots_changes
            await take(client.roots_news)
            await _until_quiet(client)
    finally:
        client.roots_news = None


async def _until_quiet(client: Client) -> None:
    heard = -1
    with anyio.move_on_after(LONGEST_FLOOD_SECONDS):
        while heard != client.roots_changes:
            heard = client.roots_changes
            await anyio.sleep(QUIET_SECONDS)


async def ask_roots(client: Client, ctx: RequestContext, *, related: bool) -> ClientRoots | None:
    """Ask a client for its roots, once, where it announced that it has some.

    Args:
        client: Where the answer is kept, unless the client has said meanwhile that its roots are other ones.
        ctx: The request or notification at hand.
        related: Ask on the response stream of this request; over Streamable HTTP the only one sure to be open.

    Returns:
        The answer; `None` if there is none.
    """
    capabilities = ctx.session.client_capabilities
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or capabilities is None or capabilities.roots is None:
        client.roots = ClientRoots()
        return client.roots
    changes = client.roots_changes
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id) if related else None
    try:
        with anyio.fail_after(ROOTS_WAIT_SECONDS):
            listed = await ctx.session.send_request(types.ListRootsRequest(), _Listed, metadata=metadata)
    except (TimeoutError, MCPError, ValidationError):
        logger.warning("the client announced roots and did not list them; asked again at its next file call")
        return None
    uris = [str(root.get("uri")) for root in listed.roots[:MAX_ROOTS]]
    folders = tuple(path for uri in uris if (path := _folder(uri)) is not None)
    if len(folders) < len(listed.roots):
        logger.warning("%d of the client's %d roots were left out", len(listed.roots) - len(folders), len(listed.roots))
    roots = ClientRoots(folders, _NO_ROOT_USABLE if uris and not folders else "")
    if changes == client.roots_changes:
        client.roots = roots
    return roots


def _folder(uri: str) -> str | None:
    """The real path of a `file://` root that is an existing folder, else `None`."""
    try:
        path = path_of_uri(uri, may_go_up=True)
    except UriRefusedError:
        return None
    if not os.path.isabs(path) or not os.path.isdir(path):
        return None
    return real_path(path)
