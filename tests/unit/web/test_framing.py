"""The size limit counts the content of a response, not its framing."""

from __future__ import annotations

import pytest

from tests.peers.web_server import web_server
from tests.unit.web.fetching import opener_for
from tools.web.url_opener import WebRequest

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("web.caps.framing")
async def test_a_long_page_in_small_chunks_comes_as_a_whole() -> None:
    chunk = b"80\r\n" + b"x" * 128 + b"\r\n"
    page = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 60_000 + b"0\r\n\r\n"
    async with web_server({"/": page}) as site:
        response = await opener_for(site).open(WebRequest(site.url()))
    assert (response.truncation, len(response.body)) == (None, 128 * 60_000)
