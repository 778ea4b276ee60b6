"""An issuer of access tokens whose responses a test sets. Tests know its private key, and can sign any token."""

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
    """An issuer that answers each path with the response that the test has set."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}  # contents, keyed by path
        self.posts: list[str] = []  # the bodies of all POST requests
        self.gates: dict[str, Event] = {}  # events that the issuer waits for before it answers, keyed by path
        self.is_waiting = Event()  # set once a request waits at a gate
        responses, posts, gates, is_waiting = self.responses, self.posts, self.gates, self.is_waiting

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                del format, args

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                posts.extend([body] if body else ())
                if (gate := gates.get(self.path)) is not None:
                    is_waiting.set()
                    gate.wait()
                content = json.dumps(responses[self.path]).encode() if self.path in responses else b""
                self.send_response(200 if content else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer  # noqa: N815 - their names in the library

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.listener.server_port}"
        self.responses |= {METADATA: {"issuer": self.base, "jwks_uri": self.base + KEYS}, KEYS: {"keys": [JWK]}}


@contextmanager
def scripted_issuer() -> Generator[ScriptedIssuer]:
    scripted = ScriptedIssuer()
    with served_by_thread(scripted.listener):
        yield scripted
