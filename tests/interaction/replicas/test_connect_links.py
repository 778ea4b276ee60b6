"""The replica to which the HAProxy of `deploy/` sends the browser of a person who logs in to an upstream."""

from __future__ import annotations

import signal
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.background_servers import served_by_thread
from tests.harness import ROOT
from tests.interaction.replicas.scene import HAPROXY, NAMES, Program, needs_haproxy
from tests.waiting import CEILING, wait_until

pytestmark = needs_haproxy


@contextmanager
def named_server(name: str) -> Generator[int]:
    """Run a server that answers every GET with its name; yield its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    with served_by_thread(server):
        yield server.server_address[1]


@pytest.fixture
def balancer(tmp_path: Path) -> Generator[str]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        text = (ROOT / "deploy" / "haproxy.cfg").read_text(encoding="utf-8")
        text = text.replace("bind :8808", f"bind fd@{listener.fileno()}")
        for name in NAMES:
            text = text.replace(f"{name}:8808", f"127.0.0.1:{stack.enter_context(named_server(name))}")
        (tmp_path / "haproxy.cfg").write_text(text)
        assert HAPROXY is not None
        command = [HAPROXY, "-db", "-f", str(tmp_path / "haproxy.cfg")]
        program = Program(command, tmp_path / "haproxy.log", descriptors=(listener.fileno(),))
        program.start()
        stack.callback(program.end, signal.SIGKILL)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # The balancer has found every replica.
        wait_until(lambda: all(_answer(f"{url}/connect/{name}~token") == name for name in NAMES))
        yield url


def _answer(url: str) -> str:
    return httpx2.get(url, timeout=CEILING).text


@pytest.mark.requirement("login.replicas-links")
def test_a_link_and_its_callback_go_to_the_replica_that_they_name(balancer: str) -> None:
    for name in NAMES * 2:
        for mark in ("~", "%7E", "%7e"):  # some programs encode the tilde
            assert _answer(f"{balancer}/connect/{name}{mark}token") == name
        assert _answer(f"{balancer}/oauth/callback?code=x~y&state={name}~secret&iss=z") == name
        assert _answer(f"{balancer}/oauth/callback?state={name}%7Esecret") == name


@pytest.mark.requirement("login.replicas-links")
def test_a_link_of_an_unknown_replica_goes_to_any_replica(balancer: str) -> None:
    for link in ("/connect/r9~token", "/connect/token", "/oauth/callback", "/oauth/callback?state=r9~x"):
        assert {_answer(f"{balancer}{link}") for _ in NAMES} <= set(NAMES)
