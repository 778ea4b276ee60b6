"""A world: servers, their upstreams, clients, and folders on file systems of their own.

This process is the first of a process namespace: orphaned processes become its children, and all processes of the world
end with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.background_servers import free_port
from tests.chaos.clients import ChaosClient, SessionClient, SseClient, StatelessClient, StdioClient
from tests.chaos.load import Caller, Tally, file_content
from tests.waiting import CEILING

HERE = Path(__file__).resolve().parent
SERVER = HERE / "watched_server.py"
PEERS = HERE.parent / "peers"
TOKEN = "token-of-the-clients-of-a-chaotic-world"
DISK = "32m"
SESSION_IDLE_MS = 10_000
"""Idle time after which sessions of vanished clients end."""
SERVING = re.compile(r"serving MCP at (http://\S+?),")
AS_A_CLIENT = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
"""A program that stands for the client over stdio, so that a fault can kill it."""


async def until(condition: Callable[[], object], seconds: float = CEILING) -> bool:
    """Wait until a condition is true. Return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not (is_true := bool(condition())) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return is_true


def processes() -> dict[int, tuple[int, str, str]]:
    """Return parent, state and command line of the namespace's processes, except this one and zombies, keyed by id."""
    table: dict[int, tuple[int, str, str]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
            words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z" and int(name) != os.getpid():
                table[int(name)] = (int(parent), state, words)
    return table


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a world.

    Args:
        transport: How clients connect. `lone`: 2026-07-28 requests over HTTP; `replicas`: HTTP with two servers.
        sandbox: The setting `shell.sandbox`.
        network: The setting `shell.network`.
        callers: Number of concurrent callers.
    """

    transport: str
    sandbox: str
    network: str
    callers: int


class Server:
    """A server under test.

    Args:
        world: The world in which it runs.
        name: Its name in reports.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.log = world.folder / f"{name}.log"
        self.pid = 0
        self.url = ""
        self.may_end = False
        self.is_starved = False  # it had little memory for a while, and may have ended because of that
        self.was_limited = False  # whether a fault limited its memory or descriptors, in any of its runs
        self.starts = 0
        self.counts_at_rest: list[dict[str, int]] = []
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start the server; over stdio, also its client."""
        world, setting = self.world, self.world.setting
        state = world.disks["state"] / self.name
        environment = {
            "PATH": f"{os.path.dirname(sys.executable)}:{os.defpath}",
            "HOME": str(world.folder / "home"),
            "WATCHED": str(world.folder),
            "XDG_STATE_HOME": str(state),
            "XDG_RUNTIME_DIR": str(world.folder / "run"),
            "TMPDIR": str(world.disks["tmp"]),
            "TOKEN": TOKEN,
            "STATE_KEY": "a key of a test that is long enough for its work",
        }
        command = [sys.executable, "-P", "-W", "error", str(SERVER), "serve", "--config", str(world.config)]
        command += ["--workspace", str(world.root), "--approval-mode", "yolo"]
        self.counts_at_rest = self.counts_at_rest[:1]
        self.may_end = self.is_starved = False
        self.pid, self.starts = 0, self.starts + 1
        with self.log.open("ab") as log:
            if setting.transport == "stdio":
                server_input, writing = os.pipe()
                reading, server_output = os.pipe()
                command = [sys.executable, "-I", "-S", "-c", AS_A_CLIENT, *command]
                self._process = subprocess.Popen(
                    command, stdin=server_input, stdout=server_output, stderr=log, env=environment
                )
                os.close(server_input)
                os.close(server_output)
                client = StdioClient(f"a{self.starts}", writing, reading)
                world.use(client)
                connecting = asyncio.create_task(client.connect())
                client_pid = self._process.pid
                await until(lambda: self._find(client_pid) or connecting.done())
                if not await connecting:
                    raise WorldError(f"{self.name} does not start: {self.log_text()[-2000:]}")
                return
            port = self.url.rpartition(":")[2] or "0"
            command += ["--transport", "http", "--port", port]
            earlier_starts = len(SERVING.findall(self.log_text()))
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=environment
            )
            self.pid = self._process.pid
            if not await until(lambda: len(SERVING.findall(self.log_text())) > earlier_starts or not self.is_running()):
                raise WorldError(f"{self.name} does not start: {self.log_text()[-2000:]}")
            urls = SERVING.findall(self.log_text())
            if len(urls) == earlier_starts:
                raise WorldError(f"{self.name} does not start: {self.log_text()[-2000:]}")
            self.url = urls[-1]

    def _find(self, client_pid: int) -> bool:
        for pid, (parent, _, words) in processes().items():
            if parent == client_pid and str(SERVER) in words:
                self.pid = pid
        return self.pid != 0

    @property
    def client_pid(self) -> int:
        """Over stdio, the id of the process that started the server; otherwise 0."""
        return self._process.pid if self._process is not None and self._process.pid != self.pid else 0

    def is_running(self) -> bool:
        """Return whether the server has not ended."""
        return self._process is not None and (self._process.poll() is None or self.pid in processes())

    def end_code(self) -> int | None:
        """Return the exit code. It is wrong if the client over stdio was killed."""
        assert self._process is not None
        return self._process.poll()

    def log_text(self) -> str:
        """Return the server's log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def counts(self) -> dict[str, int] | None:
        """Count tasks, threads and descriptors, keyed by kind. Return None if the server does not answer."""
        counts_file = self.world.folder / f"counts.{self.pid}"
        counts_file.unlink(missing_ok=True)
        try:
            os.kill(self.pid, signal.SIGUSR2)
            deadline = time.monotonic() + 10
            while not counts_file.exists():
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.01)
            counts = {f"task {name}": count for name, count in json.loads(counts_file.read_text()).items()}
            counts["threads"] = len(os.listdir(f"/proc/{self.pid}/task"))
            for name in os.listdir(f"/proc/{self.pid}/fd"):
                with suppress(FileNotFoundError):
                    link = os.readlink(f"/proc/{self.pid}/fd/{name}").partition(":[")[0]
                    kind = "open file" if link.startswith("/") else f"open {link}"
                    counts[kind] = counts.get(kind, 0) + 1
        except OSError:
            return None
        return counts


class WorldError(Exception):
    """The world cannot be created."""


class World:
    """Servers, upstreams and clients.

    Args:
        folder: The folder of all files.
        setting: The parameters.
        rng: Decides which calls are made.
    """

    def __init__(self, folder: Path, setting: Setting, rng: random.Random) -> None:
        self.folder, self.setting, self.rng = folder, setting, rng
        self.disks = {name: folder / name for name in ("workspace", "state", "tmp")}
        self.root = self.disks["workspace"]
        self.config = folder / "config.json"
        self.tally = Tally()
        self.callers: list[Caller] = []
        self.clients: list[ChaosClient] = []
        names = ("r1", "r2") if setting.transport == "replicas" else ("server",)
        self.servers = [Server(self, name) for name in names]
        self.peers: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.deaths: dict[str, int] = {}

    async def begin(self) -> None:
        """Create the world, and start everything."""
        for disk in self.disks.values():
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
        for name in ("home", "run", "store"):
            (self.folder / name).mkdir()
        self.set_clock(0)
        (self.root / "a.fake").write_text("one\ntwo wrong\n")
        for number in range(3):
            (self.root / f"shared-{number}.txt").write_text(file_content("a0x000000000000z", 5))
        for role in ("web upstream", "old upstream", *(("store",) if self.has_store else ())):
            await self.start_peer(role)
        self.config.write_text(json.dumps(self._settings()))
        for server in self.servers:
            await server.start()
        await self._connect_clients()

    @property
    def has_store(self) -> bool:
        """Whether the servers share a store."""
        return self.setting.transport == "replicas"

    def _settings(self) -> dict[str, object]:
        common = {"trust": True, "protocol": "legacy"}
        python = [sys.executable, "-I", "-S"]
        upstream = str(PEERS / "echoing_upstream.py")
        web, old = (f"http://127.0.0.1:{self.ports[f'{name} upstream']}" for name in ("web", "old"))
        language = {
            "command": sys.executable,
            "args": ["-I", "-S", str(PEERS / "language_server.py")],
            "extensionToLanguage": {".fake": "fake"},
        }
        settings: dict[str, object] = {
            "mcpServers": {
                "pipe": {"command": python[0], "args": [*python[1:], upstream, "stdio"], **common},
                "web": {"url": f"{web}/mcp", "type": "http", **common},
                "old": {"url": f"{old}/sse", "type": "sse", **common},
            },
            "shell": {"sandbox": self.setting.sandbox, "network": self.setting.network, "timeout": 20_000},
            "permissions": {"ask": ["run_shell_command(tee *)"]},
            "lsp": {"servers": {"fake": language}},
            "proxy": {"firstListWait": 20_000, "search": "off"},
            "limits": {"resultChars": None},
            "undo": {"maxBytes": 4_000_000},
        }
        settings["http"] = {"sessionIdle": SESSION_IDLE_MS}
        if self.has_store:
            settings["http"] = {
                "sessionIdle": 4_000,
                "tokens": {"ada": {"env": "TOKEN"}},
                "stateKeys": [{"env": "STATE_KEY"}],
            }
            settings["store"] = {"url": f"valkey://127.0.0.1:{self.ports['store']}/0"}
        return settings

    async def start_peer(self, role: str) -> None:
        """Start a peer (an upstream or the store), on its earlier port if it has run before."""
        port = self.ports.get(role, 0)
        upstream = [sys.executable, "-I", "-S", str(PEERS / "echoing_upstream.py")]
        if role == "store":
            port = port or free_port()
            usual = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
            command = ["redis-server", "--port", str(port), "--dir", str(self.folder / "store"), *usual]
        else:
            command = [*upstream, {"web upstream": "http", "old upstream": "sse"}[role], str(port)]
        log = (self.folder / f"{role}.log").open("wb")
        process = self.peers[role] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        if role != "store":
            log_file = self.folder / f"{role}.log"
            if not await until(lambda: "\n" in log_file.read_text() or process.poll() is not None):
                raise WorldError(f"{role} does not start")
            words = log_file.read_text().split()
            if not words and port:  # another fault killed it meanwhile, and will start it again
                return
            port = int(words[1])
        elif not await until(lambda: _answers(port)):
            raise WorldError(f"{role} does not start")
        self.ports[role] = port

    async def _connect_clients(self) -> None:
        transport, urls = self.setting.transport, [server.url for server in self.servers]
        token = TOKEN if self.has_store else ""
        for number in range(self.setting.callers):
            if transport == "stdio":
                client = self.clients[0]
            elif transport == "lone" or (transport == "replicas" and number % 2):
                client = StatelessClient(f"l{number}", urls, token)
            elif transport == "sse":
                client = SseClient(f"e{number}", urls[0], token)
            else:
                client = SessionClient(f"h{number}", urls[number % len(urls)], token)
            if transport != "stdio":
                self.clients.append(client)
                if not await client.connect():
                    raise WorldError(f"{client.name} cannot connect: {self.servers[0].log_text()[-2000:]}")
            self.callers.append(Caller(client, self.root, random.Random(self.rng.random()), self.tally))

    def use(self, client: StdioClient) -> None:
        """Make this the only client, over stdio, and give it to all callers."""
        for old in self.clients:
            self.tally.problems += old.misrouted
        self.clients = [client]
        for caller in self.callers:
            caller.client = client

    def set_clock(self, offset: float) -> None:
        """Set by how many seconds the clocks of all servers are wrong."""
        (self.folder / "offset").write_text(str(offset))
        for server in self.servers:
            if server.pid in processes():
                os.kill(server.pid, signal.SIGUSR2)

    def pids(self, role: str) -> list[int]:
        """Return the ids of the processes with a role, in ascending order."""
        return sorted(self._pids(role))

    def _pids(self, role: str) -> Iterator[int]:
        table = processes()
        servers = {server.pid for server in self.servers if server.pid}
        brokers = {pid for pid, (parent, _, words) in table.items() if parent in servers and "broker.py" in words}
        supervisors = {pid for pid, (parent, _, _) in table.items() if parent in brokers}
        match role:
            case "server":
                yield from servers & set(table)
            case "client":
                yield from (server.client_pid for server in self.servers if server.client_pid in table)
            case "watchdog":
                yield from (
                    pid for pid, (parent, _, words) in table.items() if parent in servers and str(SERVER) in words
                )
            case "broker":
                yield from brokers
            case "supervisor":
                yield from supervisors
            case "keeper":
                yield from (pid for pid, (_, _, words) in table.items() if "echo; read x" in words)
            case "language server":
                yield from (pid for pid, (_, _, words) in table.items() if "language_server.py" in words)
            case "pipe upstream":
                yield from (pid for pid, (_, _, words) in table.items() if "echoing_upstream.py stdio" in words)
            case "command":
                descendants = set(supervisors)
                for _ in range(8):
                    descendants |= {pid for pid, (parent, _, _) in table.items() if parent in descendants}
                other_programs = {"language_server.py", "echoing_upstream.py", "broker.py"}
                yield from (
                    pid
                    for pid in descendants - supervisors
                    if not any(word in table[pid][2] for word in other_programs)
                )
            case _:
                yield from (process.pid for process in (self.peers[role],) if process.poll() is None)

    async def end(self) -> None:
        """Disconnect the clients, kill all processes, and unmount the file systems."""
        for client in self.clients:
            await client.close()
            self.tally.problems += client.misrouted
        for process in self.peers.values():
            process.kill()
            process.wait()
        for pid in processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: not processes(), 10)
        for disk in self.disks.values():
            subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)

    def reap(self) -> None:
        """Reap orphaned processes that have ended."""
        own_children = {process.pid for process in self.peers.values()}
        own_children |= {server.client_pid or server.pid for server in self.servers}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            if int(name) not in own_children and int(name) != os.getpid():
                with suppress(OSError):
                    os.waitpid(int(name), os.WNOHANG)


def _answers(port: int) -> bool:
    import socket

    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as wire:
        wire.sendall(b"PING\r\n")
        return wire.recv(100).startswith(b"+PONG")
    return False
