"""Three servers behind a real HAProxy with the configuration of `deploy/`, and the store that they share.

The store is a real server of the Redis protocol. Nothing here needs an event loop, so the tests of a module can share
the scene.
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
    """A process that writes its standard output and error to a file.

    Args:
        command: Its command line.
        log: The file, to which every start appends.
        variables: Additional environment variables.
        descriptors: The file descriptors that it inherits.
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

    def wait_for_output(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait until the output has at least `times` matches of a pattern; return the last one."""
        deadline = time.monotonic() + CEILING
        while len(matches := list(re.finditer(pattern, self.text()))) < times:
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)
        return matches[-1]

    def text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def end(self, number: int = signal.SIGTERM) -> int | None:
        """End the process with a signal; return its exit code."""
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
    """The three servers, the load balancer in front of them, and the store behind them.

    Args:
        balancer: The HAProxy.
        url: The URL of the balancer.
        servers: The servers by name.
        urls: The URLs of the servers by name.
        store: The store that they share, if there is one.
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
        """Stop a server with SIGTERM, start it again, and wait until the balancer uses it again."""
        server = self.servers[name]
        up_count = len(re.findall(_up(name), self._balancer.text()))
        start_count = len(re.findall(SERVING, server.text()))
        assert server.end() == 0, server.text()
        server.start()
        server.wait_for_output(SERVING, start_count + 1)
        self._balancer.wait_for_output(_up(name), up_count + 1)


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
    """Run the replicas, the balancer and perhaps a store, until the end of the context.

    Args:
        folder: The folder for their settings, state and logs.
        root: The workspace.
        settings: Settings in addition to the tokens, the state keys and the store.
        shares: Whether the replicas share a store.
        store_options: Command-line options of the store.
    """
    with ExitStack() as stack:

        def start(program: Program) -> Program:
            program.start()
            stack.callback(program.end, signal.SIGKILL)
            return program

        http: dict[str, Any] = {"tokens": {name: {"env": f"TOKEN_{name}"} for name in TOKENS}}
        variables = {f"TOKEN_{name}": token for name, token in TOKENS.items()} | {"STATE_KEY": KEY}
        store = None
        store_settings: dict[str, Any] = {}
        if shares:
            store = stack.enter_context(valkey_server(folder, *store_options))
            http["stateKeys"] = [{"env": "STATE_KEY"}]
            store_settings["store"] = {"url": store.url}
        config = write_config(folder, {**settings, **store_settings, "http": {**http, **settings.get("http", {})}})
        servers: dict[str, Program] = {}
        urls: dict[str, str] = {}
        for name in NAMES:
            state = {"XDG_STATE_HOME": str(folder / name)}
            command = [sys.executable, *forked(server_arguments(root, config, "--transport", "http", "--port", "0"))]
            servers[name] = start(Program(command, folder / f"{name}.log", variables | state))
        for name, server in servers.items():
            urls[name] = server.wait_for_output(SERVING)[1]
            # After a restart, the server must listen on the same port.
            server.command[server.command.index("--port") + 1] = urls[name].rpartition(":")[2]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        text = (ROOT / "deploy" / "haproxy.cfg").read_text(encoding="utf-8")
        text = text.replace("bind :8808", f"bind fd@{listener.fileno()}")
        for name, url in urls.items():
            text = text.replace(f"{name}:8808", url.removeprefix("http://"))
        haproxy_config = folder / "haproxy.cfg"
        haproxy_config.write_text(text)
        assert HAPROXY is not None, "haproxy is missing here"
        command = [HAPROXY, "-db", "-f", str(haproxy_config)]
        balancer = start(Program(command, folder / "haproxy.log", descriptors=(listener.fileno(),)))
        yield Replicas(balancer, f"http://127.0.0.1:{listener.getsockname()[1]}", servers, urls, store)
