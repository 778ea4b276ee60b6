"""An upstream whose address may be of Streamable HTTP or of SSE."""

from __future__ import annotations

import logging

import anyio
import pytest

from server.settings import UpstreamSettings
from tests.interaction.relay.conftest import Entry
from tests.pools import ONE_CLIENT, quiet_pool
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("upstream.errors")
async def test_no_warning_is_logged_for_an_sse_server_that_refuses_streamable_http(
    remote: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    pool = quiet_pool({"old": UpstreamSettings(url=remote("handshake", "sse")["url"])})
    (old,) = pool.upstreams
    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        with anyio.fail_after(CEILING):
            await old.known.wait()
        assert old.live_session is not None
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
        tasks.cancel_scope.cancel()
