"""Requests over HTTP that are still open when the server ends: each gets an end that its client understands."""

from __future__ import annotations

from http import HTTPStatus

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OpenRequests:
    """An application whose open requests can be ended: streams, and calls that take long.

    The web server would cancel them too, but breaks their connections off and logs each as an error.

    Args:
        app: Answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """End those that are open now."""
        for request in tuple(self._open):
            request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_head = has_end = False

        async def noted(message: Message) -> None:
            nonlocal has_head, has_end
            has_head = True
            has_end = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as request:
            self._open.add(request)
            try:
                await self._app(scope, receive, noted)
            finally:
                self._open.discard(request)
        if request.cancelled_caught and not has_end:
            if not has_head:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
