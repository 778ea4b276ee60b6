"""The SDK's own loggers write no addresses of upstreams, at any level."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness import LAUNCHER

CONNECT_SCRIPT = """
import anyio
from server.administration.log import flush_log, start_log
start_log("debug")
from server.settings.server_models import UpstreamSettings
from mcp.client import Client
from mcp.client.sse import sse_client

async def reach(transport):
    try:
        with anyio.fail_after(60):
            async with Client(transport) as client:
                await client.list_tools()
    except* Exception:
        pass

URL = "http://127.0.0.1:9/hunter2/mcp?token=hunter2"
anyio.run(reach, URL)
anyio.run(reach, sse_client(URL))
import logging
logging.getLogger("server").debug("still here")
flush_log()
"""


@pytest.mark.requirement("log.addresses")
def test_an_unreachable_upstream_leaves_no_address_in_the_log() -> None:
    command = [sys.executable, "-c", CONNECT_SCRIPT]
    result = subprocess.run(command, cwd=LAUNCHER.parent, capture_output=True, text=True, timeout=90, check=True)
    assert "still here" in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.requirement("log.addresses")
@pytest.mark.parametrize("logger", ["mcp.client.streamable_http", "mcp.client.sse", "mcp.client.auth.oauth2"])
def test_not_even_errors_of_the_sdks_transports_are_logged(logger: str) -> None:
    script = (
        "import logging\nfrom server.administration.log import flush_log, start_log\nstart_log('debug')\n"
        f"logging.getLogger('{logger}').error('401 for http://x.example/?token=hunter2')\n"
        "logging.getLogger('server').debug('still here')\nflush_log()"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(command, cwd=LAUNCHER.parent, capture_output=True, text=True, timeout=60, check=True)
    assert "still here" in result.stderr
    assert "hunter2" not in result.stderr
