"""The web: a server on this machine stands for everything that a stranger's URL must not reach."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.hostile.any_server.scene import MARKER, Scene, add_cases, check, excerpt, pinging

GROUP = "web"
PLAIN = "a plain page"
BOMB = gzip.compress(bytes(200 << 20), 9)
ENDLESS = 30.0
"""Seconds after which even the endless page ends."""


@contextmanager
def page_server(outside: Path) -> Generator[tuple[int, list[str]]]:
    """Run a web server on 127.0.0.1; yield its port, and the list of the paths that are requested."""
    visits: list[str] = []

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append(self.path)
            numeric = f"http://127.0.0.1:{port}"
            match self.path:
                case "/plain":
                    self._give(PLAIN.encode())
                case "/to-secret":
                    self._go(f"{numeric}/secret")
                case "/to-file":
                    self._go(f"file://{outside}/secret")
                case "/circle":
                    self._go("/circle")
                case "/bomb":
                    self._give(BOMB, ("Content-Encoding", "gzip"))
                case "/endless":
                    self._without_end()
                case _:
                    self._give(f"{MARKER}\n".encode())

        def _give(self, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(200)
            for name, value in (("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *headers):
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def _go(self, location: str) -> None:
            self.send_response(302)
            self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _without_end(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            deadline = time.monotonic() + ENDLESS
            with suppress(OSError):
                while time.monotonic() < deadline:
                    self.wfile.write(b"again and again " * 4096)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield port, visits
    finally:
        server.shutdown()
        server.server_close()


async def check_private(scene: Scene, urls: Sequence[str]) -> None:
    """Check that these URLs are not fetched even after a yes."""
    port, visits_before = scene.page.rpartition(":")[2], len(scene.visits)
    for url in urls:
        answer = await scene.call("fetch", url=url.format(port=port, out=scene.outside))
        check(len(scene.visits) == visits_before, f"the server of this machine was reached: {url}")
        check(answer.says_no, f"{url} is not an error: {excerpt(answer)}")


add_cases(
    GROUP,
    check_private,
    [
        ("private hosts", "127.0.0.1, and 0.0.0.0", ["http://127.0.0.1:{port}/secret", "http://0.0.0.0:{port}/secret"]),
        (
            "private hosts", "127.0.0.1 as a number, in hexadecimal, in octal, in circled digits",
            [f"http://{host}:{{port}}/secret" for host in ("2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.⓪.⓪.①")],
        ),
        (
            "private hosts", "127.0.0.1 inside an IPv6 address",
            ["http://[::ffff:127.0.0.1]:{port}/secret", "http://[::ffff:7f00:1]:{port}/secret"],
        ),
        (
            "odd urls", "a host that looks like a user, a backslash, a file",
            ["http://example.com@127.0.0.1:{port}/secret", "http://127.0.0.1:{port}\\@example.com/secret", "file://{out}/secret"],
        ),
    ],
    "fetch",
)  # fmt: skip


async def check_redirects(scene: Scene, places: Sequence[str]) -> None:
    """Check that a redirect reaches nothing that the same URL would not reach directly."""
    scene.visits.clear()
    for page in places:
        await scene.call("fetch", url=f"{scene.page.replace('127.0.0.1', 'localhost')}/{page}", wait=60)
    check("/secret" not in scene.visits, "the redirect was followed to another host of this machine")
    check(scene.visits.count("/circle") < 30, "a loop was followed more than 30 times")


add_cases(
    GROUP,
    check_redirects,
    [
        ("redirects", "a redirect to a private address, and to a file", ["to-secret", "to-file"]),
        ("redirects", "a loop of redirects ends", ["circle"]),
    ],
    "fetch",
    "fetches from this machine",
)


async def check_page_bounds(scene: Scene, page: str) -> None:
    """Check that a hostile page gives an answer that is small enough for a model, in bounded time."""
    with pinging(scene.connection):
        answer = await scene.call("fetch", url=f"{scene.page.replace('127.0.0.1', 'localhost')}/{page}", wait=60)
    check(len(answer.everything) < 2_000_000, f"the answer has {len(answer.everything):,} characters")


add_cases(
    GROUP,
    check_page_bounds,
    [("page bounds", "200 MB in a small gzip", "bomb"), ("page bounds", "an endless page", "endless")],
    "fetch",
    "fetches from this machine",
)
