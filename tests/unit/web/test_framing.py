"""What may come of an answer besides its content: little, however small its chunks are."""

from __future__ import annotations

import asyncio

import pytest

from tests.peers.web_server import web_server
from tests.unit.web.fetching import opener_for
from tools.web.http_exchange import Cut
from tools.web.opener import WebRequest

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("web.caps.framing")
async def test_chunks_of_one_byte_are_cut_by_what_frames_them() -> None:
    # Ten megabytes of such chunks are sixty of what is sent, and most of a minute of work.
    written = 0

    async def chunks(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1\r\na\r\n" * 10_000)
            await writer.drain()
            written += 60_000

    async with web_server({"/": chunks}) as site:
        got = await opener_for(site).open(WebRequest(site.url()))
    assert got.cut is Cut.SIZE
    assert 50_000 < len(got.body) < 200_000
    assert written < 10 << 20


@pytest.mark.requirement("web.caps.framing")
async def test_a_long_page_in_small_chunks_comes_as_a_whole() -> None:
    chunk = b"80\r\n" + b"x" * 128 + b"\r\n"
    page = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 60_000 + b"0\r\n\r\n"
    async with web_server({"/": page}) as site:
        got = await opener_for(site).open(WebRequest(site.url()))
    assert (got.cut, len(got.body)) == (None, 128 * 60_000)
