"""What a request of a client acts in: its workspace, the limits, its own state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from server.clients import Client, ClientRoots, ClientTable, RequestContext
from server.exchange import Exchange
from server.roots import WorkspacePolicy
from server.upstreams.relay import CallContext
from tools.call.context import ClientState, Services, ToolContext
from tools.contract.limits import Limits, MediaHandling


@dataclass(frozen=True, slots=True)
class Contexts:
    """Finds what requests act in.

    Args:
        clients: Whose requests they are.
        workspaces: Where they may act.
        limits: How much one call may return.
        services: What outlives a call.
        media: What becomes of images and sounds.
        before: Called before each request: starts what is started by the first one.
    """

    clients: ClientTable
    workspaces: WorkspacePolicy
    limits: Limits
    services: Services
    media: MediaHandling
    before: Callable[[RequestContext], None]

    def client(self, ctx: RequestContext) -> Client:
        """Whose request this is."""
        self.before(ctx)
        return self.clients.of(ctx)

    async def of(self, ctx: RequestContext) -> ToolContext:
        """What a request for files acts in; the client's roots are waited for."""
        client = self.client(ctx)
        return ToolContext(
            workspace=await self.workspaces.workspace_of(client, ctx),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            progress=_progress_of(ctx),
        )

    def of_relayed(self, client: Client, exchange: Exchange) -> CallContext:
        """What a call of an upstream's tool acts in; it touches no files of ours, so no roots are waited for."""
        return CallContext(
            workspace=self.workspaces.workspace(client.roots, client.readable),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            progress=_untold,  # the upstream tells its own
            exchange=exchange,
        )

    def bare(self, state: ClientState) -> ToolContext:
        """What a call would act in of a client that names no roots."""
        return ToolContext(self.workspaces.workspace(ClientRoots()), self.limits, state)


def _progress_of(ctx: RequestContext) -> Any:
    async def progress(done: float, total: float | None, message: str) -> None:
        await ctx.session.report_progress(done, total, message)

    return progress


async def _untold(done: float, total: float | None, message: str) -> None:
    """Progress of our own that nobody hears of."""
    del done, total, message
