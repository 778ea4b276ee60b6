"""What a 2026-07-28 upstream tells of changes: one stream for its lists and for the resources that clients watch."""

from __future__ import annotations

import logging

import anyio

from server.json_rpc import Json
from server.upstreams.session.session import UpstreamSession
from server.upstreams.wire.peer import ConnectionLostError, UnusableAnswerError, UpstreamError

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 60.0
"""Before a stream that has ended is opened again; doubling from the first to the last while it does not last."""

_FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class Subscriptions:
    """Keeps a `subscriptions/listen` stream open.

    Args:
        session: With the upstream.
    """

    def __init__(self, session: UpstreamSession) -> None:
        self.session = session
        self._uris: dict[str, int] = {}
        self._scope = anyio.CancelScope()

    def watch(self, uri: str) -> None:
        """Hear of changes of a resource too."""
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            self._scope.cancel()

    def unwatch(self, uri: str) -> None:
        """One watcher less."""
        left = self._uris.pop(uri, 0) - 1
        if left > 0:
            self._uris[uri] = left
        else:
            self._scope.cancel()

    async def run(self) -> None:
        """Listen until cancelled, or until the upstream does not offer it."""
        pause = PAUSE_SECONDS
        while True:
            wanted = self._wanted()
            if not wanted:
                with anyio.CancelScope() as self._scope:
                    await anyio.sleep_forever()
                continue
            began = anyio.current_time()
            with anyio.CancelScope() as self._scope:
                try:
                    await self.session.request("subscriptions/listen", {"notifications": wanted})
                except UnusableAnswerError as error:
                    logger.info("upstream %s: the stream of changes ended: %s", self.session.alias, error.why)
                except UpstreamError as error:
                    logger.info("upstream %s has no stream of changes (error %s)", self.session.alias, error.code)
                    return
                except ConnectionLostError:
                    return
            if not self._scope.cancelled_caught:
                pause = PAUSE_SECONDS if anyio.current_time() > began + LAST_PAUSE_SECONDS else pause * 2
                await anyio.sleep(min(pause, LAST_PAUSE_SECONDS))

    def _wanted(self) -> Json:
        era = self.session.era
        wanted: Json = {name: True for kind, name in _FILTERS.items() if era.announces(kind, "listChanged")}
        if self._uris and era.announces("resources", "subscribe"):
            wanted["resourceSubscriptions"] = sorted(self._uris)
        return wanted
