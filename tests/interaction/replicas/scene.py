"""Three servers behind a real HAProxy as `deploy/` has it, and a real server of the Redis protocol that they share.

All of it runs without an event loop, so that the tests of a module can share it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import forked
from tests.harness import ROOT, server_arguments, write_config
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import CEILING

NAMES = ("r1", "r2", "r3")
TOKENS = {"ada": "ada-token-" + "a" * 20, "bob": "bob-token-" + "b" * 20}
KEY = "a key of a test that is long enough for its work"
SERVING = r"serving MCP at (http://\S+?),"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
REDIS = shutil.which("redis-server")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="not run: haproxy is missing here")
needs_redis = pytest.mark.skipif(REDIS is None, reason="not run: redis-server is missing here")


class Program:
    """A process whose standard output and error are read from a file.

    Args:
        command: How it is started.
        log: The file; it grows over all starts.
        variables: Of its environment, beside ours.
        descriptors: What it inherits.
    """

    def __init__(
        self,
        command: list[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        descriptors: tuple[int, ...] = (),
    ) -> None:
        self.command = command
        self._log = log
        self._environ = {**os.environ, **(variables or {})}
        self._descriptors = descriptors
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                pass_fds=self._descriptors,
            )

    def said(self, pattern: str, times: int = 1) -> re.Match[str]:
        """What it has said, the last time; waits until it has said that so often."""
        ceiling = time.monotonic() + CEILING
        while len(found := list(re.finditer(pattern, self.text()))) < times:
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < ceiling, self.text()
            time.sleep(0.02)
        return found[-1]

    def text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def end(self, number: int = signal.SIGTERM) -> int | None:
        """End it by a signal; the code that it ends with."""
        if self.process is None:
            return None
        self.process.send_signal(number)
        try:
            return self.process.wait(CEILING)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None


class Replicas:
    """The three, and what is before and behind them.

    Args:
        balancer: The HAProxy.
        url: Where it listens.
        servers: By their names.
        urls: Where these listen.
        store: What they share, or nothing.
    """

    def __init__(
        self,
        balancer: Program,
        url: str,
        servers: Mapping[str, Program],
        urls: Mapping[str, str],
        store: ValkeyServer | None,
    ) -> None:
        self.url = url
        self.urls = urls
        self.servers = servers
        self.store = store
        self._balancer = balancer

    def restart(self, name: str) -> None:
        """End a server as an operator does, and start it again; over when the balancer uses it again."""
        server = self.servers[name]
        ups = len(re.findall(_up(name), self._balancer.text()))
        served = len(re.findall(SERVING, server.text()))
        assert server.end() == 0, server.text()
        server.start()
        server.said(SERVING, served + 1)
        self._balancer.said(_up(name), ups + 1)


def _up(name: str) -> str:
    return f"Server streamable_http/{name} is UP"


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


@contextmanager
def replicas(
    folder: Path,
    root: Path | None,
    settings: Mapping[str, Any],
    *,
    shares: bool,
    store_options: tuple[str, ...] = DURABLE,
) -> Generator[Replicas]:
    """All of them, until the end of the context.

    Args:
        folder: Where they find their settings, and keep what they keep.
        root: The workspace.
        settings: Beside tokens, keys and store.
        shares: Whether there is a store.
        store_options: How that is started.
    """
    with ExitStack() as stack:

        def started(program: Program) -> Program:
            program.start()
            stack.callback(program.end, signal.SIGKILL)
            return program

        http: dict[str, Any] = {"tokens": {name: {"env": f"TOKEN_{name}"} for name in TOKENS}}
        variables = {f"TOKEN_{name}": token for name, token in TOKENS.items()} | {"STATE_KEY": KEY}
        store = None
        more: dict[str, Any] = {}
        if shares:
            store = stack.enter_context(valkey_server(folder, *store_options))
            http["stateKeys"] = [{"env": "STATE_KEY"}]
            more["store"] = {"url": store.url}
        config = write_config(folder, {**settings, **more, "http": {**http, **settings.get("http", {})}})
        servers: dict[str, Program] = {}
        urls: dict[str, str] = {}
        for name in NAMES:
            state = {"XDG_STATE_HOME": str(folder / name)}
            words = [sys.executable, *forked(server_arguments(root, config, "--transport", "http", "--port", "0"))]
            servers[name] = started(Program(words, folder / f"{name}.log", variables | state))
        for name, server in servers.items():
            urls[name] = server.said(SERVING)[1]
            # The same address when it is started again.
            server.command[server.command.index("--port") + 1] = urls[name].rpartition(":")[2]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        text = (ROOT / "deploy" / "haproxy.cfg").read_text(encoding="utf-8")
        text = text.replace("bind :8808", f"bind fd@{listener.fileno()}")
        for name, url in urls.items():
            text = text.replace(f"{name}:8808", url.removeprefix("http://"))
        proxied = folder / "haproxy.cfg"
        proxied.write_text(text)
        assert HAPROXY is not None, "haproxy is missing here"
        words = [HAPROXY, "-db", "-f", str(proxied)]
        balancer = started(Program(words, folder / "haproxy.log", descriptors=(listener.fileno(),)))
        yield Replicas(balancer, f"http://127.0.0.1:{listener.getsockname()[1]}", servers, urls, store)
