"""A server over HTTP in this process, whose clients have different tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio

from server.app import App
from server.settings import load_settings
from server.settings.server_models import HttpSettings
from server.store.replica import Replica
from server.transports.configured_secrets import Tokens
from server.transports.http_options import HttpOptions, open_socket
from server.transports.http_server import serve_http
from tests.harness import own_state, write_config
from tests.interaction.relay.clients import Json, WireClient, client_on, http_transport, settings_for_call_style

TOKENS = {"ada": "a" * 24, "bob": "b" * 24}


class Network:
    """A server over HTTP in this process."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url

    def client(
        self, era: str, name: str | None = None, path: str = "mcp", *, capabilities: Json | None = None
    ) -> AbstractAsyncContextManager[WireClient]:
        """Connect a client that answers every question with its name."""

        def answer(method: str, params: Json) -> Json:
            return {"action": "accept", "content": {"name": name or "nobody"}}

        transport = http_transport(f"{self.url}/{path}", TOKENS[name] if name else None)
        return client_on(transport, era, capabilities or {"elicitation": {}}, answer)

    def sessions(self) -> int:
        """Return how many sessions with upstreams belong to clients."""
        return sum(upstream_report["clientSessions"] for upstream_report in self.app.pool.report())


@asynccontextmanager
async def network(
    folder: Path,
    servers: Json,
    *,
    has_tokens: bool = True,
    settings: Json | None = None,
    replica: Replica | None = None,
) -> AsyncGenerator[Network]:
    """Run a server over HTTP, with a token for each of two people."""
    all_settings: Json = {"tools": {"builtIn": False}, "mcpServers": servers, **(settings or {})}
    config = write_config(folder, settings_for_call_style(all_settings))
    app = App(load_settings([str(config)], {}, own_state()), "network", replica=replica)
    tokens = Tokens(TOKENS if has_tokens else {})
    options = HttpOptions(HttpSettings.model_construct(port=0), 1 << 22, tokens)
    stopping = anyio.Event()
    with open_socket(options) as listener:
        async with app.running(), anyio.create_task_group() as tasks:
            app.start_upstreams()

            async def serve() -> None:
                await serve_http(app, options, listener, stopping, descriptors=1_000)

            tasks.start_soon(serve)
            yield Network(app, f"http://127.0.0.1:{listener.getsockname()[1]}")
            stopping.set()
