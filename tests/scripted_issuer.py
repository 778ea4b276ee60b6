"""An issuer of access tokens that says what a test tells it to; tests know its key, and sign what they like."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any

from jwt.algorithms import ECAlgorithm

from tests.background_servers import served_by_thread
from tests.interaction.network.test_access_tokens import OLD

METADATA, KEYS = "/.well-known/oauth-authorization-server", "/keys"
JWK = {**ECAlgorithm.to_jwk(OLD.public_key(), as_dict=True), "kid": "old"}


class ScriptedIssuer:
    """An issuer that answers at each path what it is told to."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.asked: list[str] = []  # what was posted
        self.held: dict[str, Event] = {}  # at which paths it answers once the test says so
        self.is_waiting = Event()  # set once it has been asked at one of them
        script, asked, held, is_waiting = self.said, self.asked, self.held, self.is_waiting

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                del format, args

            def _answer(self) -> None:
                posted = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                asked.extend([posted] if posted else ())
                if (go := held.get(self.path)) is not None:
                    is_waiting.set()
                    go.wait()
                content = json.dumps(script[self.path]).encode() if self.path in script else b""
                self.send_response(200 if content else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer  # noqa: N815 - their names in the library

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.listener.server_port}"
        self.said |= {METADATA: {"issuer": self.base, "jwks_uri": self.base + KEYS}, KEYS: {"keys": [JWK]}}


@contextmanager
def scripted_issuer() -> Generator[ScriptedIssuer]:
    scripted = ScriptedIssuer()
    with served_by_thread(scripted.listener):
        yield scripted
