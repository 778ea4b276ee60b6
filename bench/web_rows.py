"""Web pages, compared with the fastest well-maintained converter and with a client that checks nothing."""

from __future__ import annotations

import importlib
import importlib.util
import random
import string
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.rows import NotRunError, Round, Row, Scene, in_turn
from tools.contract.call_options import AbortSignal
from tools.web.page_text import PageText, page_text
from tools.web.url_opener import UrlOpener, WebRequest, WebRules

PAGE_BYTES = 2_200_000
SENT_BYTES = 100_000
PEER = "html_to_markdown"
BASE = "https://example.org/wiki/page"


def page(size: int) -> str:
    """Return a page like an article: sections of prose with links, lists, tables and code."""
    numbers = random.Random(1)
    words = ["".join(numbers.choices(string.ascii_lowercase, k=numbers.randint(2, 10))) for _ in range(3_000)]

    def some(count: int) -> str:
        return " ".join(numbers.choice(words) for _ in range(count))

    parts = ["<!DOCTYPE html><html><head><title>A page</title><script>if (a<b) c()</script></head><body><main>"]
    length = 0
    while length < size:
        rows = "".join(f"<tr>{''.join(f'<td>{some(3)}</td>' for _ in range(4))}</tr>" for _ in range(5))
        prose = "".join(
            f"<p>{some(20)} <a href='/wiki/{some(1)}' class='internal'>{some(2)}</a> {some(15)} <b>{some(2)}</b>, "
            f"<i>{some(2)}</i> {some(10)} <code>{some(1)}()</code> &mdash; {some(10)}.</p>\n"
            for _ in range(4)
        )
        items = "".join(f"<li><a href='../x/{n}'>{some(3)}</a>: {some(8)}</li>" for n in range(5))
        section = (
            f"<section class='s'><h2><span>{some(4)}</span></h2>{prose}<ul>{items}</ul><table>{rows}</table>"
            f"<pre><code class='language-python'>def {some(1)}():\n    return '{some(3)}'\n</code></pre></section>\n"
        )
        parts.append(section)
        length += len(section)
    return "".join((*parts, "</main></body></html>"))


def _converted_ms(source: str) -> float:
    start = time.perf_counter()
    result = page_text(source, BASE, AbortSignal())
    seconds = time.perf_counter() - start
    assert isinstance(result, PageText)
    assert "](https://example.org/wiki/" in result.text or len(source) < 1_000
    return seconds * 1000


@contextmanager
def large_page(_scene: Scene) -> Generator[Round]:
    if importlib.util.find_spec(PEER) is None:
        raise NotRunError("html-to-markdown is not installed")
    peer: Any = importlib.import_module(PEER)
    source = page(PAGE_BYTES)
    yield lambda: in_turn(lambda: _converted_ms(source), lambda: peer.convert(source), 3)


@contextmanager
def small_page(_scene: Scene) -> Generator[Round]:
    command = [sys.executable, "-P", "-S", "-c", "import re, html, urllib.parse"]
    yield lambda: in_turn(
        lambda: _converted_ms("<p>Hello, <a href=/x>x</a>"), lambda: subprocess.run(command, check=True), 5
    )


class _Server(BaseHTTPRequestHandler):
    """Sends the same bytes in every response."""

    body = b"x" * SENT_BYTES

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        del format, args


@contextmanager
def fetch(_scene: Scene) -> Generator[Round]:
    import httpx
    from anyio.from_thread import start_blocking_portal

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    opener = UrlOpener(WebRules(("127.0.0.1",), (server.server_port,)))

    async def own_time() -> float:
        start = time.perf_counter()
        response = await opener.open(WebRequest(url))
        assert len(response.body) == SENT_BYTES
        return (time.perf_counter() - start) * 1000

    async def peer_request() -> None:
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:  # noqa: S501 - nothing is encrypted
            assert len((await client.get(url)).content) == SENT_BYTES

    try:
        with start_blocking_portal() as portal:
            yield lambda: in_turn(lambda: portal.call(own_time), lambda: portal.call(peer_request), 20)
    finally:
        server.shutdown()
        server.server_close()


ROWS = (
    Row("web: a page of 2.2 MB as text, beside html-to-markdown in its own process", 2.0, large_page),
    Row("web: a page of one line as text, beside the start of Python", 2.5, small_page),
    Row("web: 100 kB over loopback with all checks, beside a client of httpx", 2.0, fetch),
)
"""Converting and fetching pages."""
