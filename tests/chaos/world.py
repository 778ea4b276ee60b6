"""A world: servers, the servers behind them, clients, and folders on disks of their own.

It lives in a process namespace whose first process is this one, so that what anyone leaves becomes its child, and
whatever happens all of it ends with it.
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
from tests.chaos.load import Caller, Tally, whole
from tests.chaos.ways import LoneWay, SessionWay, SseWay, StdioWay, Way
from tests.waiting import CEILING

HERE = Path(__file__).resolve().parent
SERVER = HERE / "watched_server.py"
PEERS = HERE.parent / "peers"
TOKEN = "token-of-the-clients-of-a-chaotic-world"
DISK = "32m"
SESSION_IDLE_MS = 10_000
"""Sessions of clients that just go end by it."""
SERVING = re.compile(r"serving MCP at (http://\S+?),")
AS_A_CLIENT = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
"""Stands for the client over stdio, so that one can be killed."""


async def until(condition: Callable[[], object], seconds: float = CEILING) -> bool:
    """Wait until something has come true; whether it has."""
    deadline = time.monotonic() + seconds
    while not (found := bool(condition())) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return found


def processes() -> dict[int, tuple[int, str, str]]:
    """All of the namespace but this one and those that only wait to be reaped: parent, state, command line."""
    found: dict[int, tuple[int, str, str]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
            words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z" and int(name) != os.getpid():
                found[int(name)] = (int(parent), state, words)
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """What a world is made of.

    Args:
        transport: How clients reach it; `lone` are requests of 2026-07-28 over HTTP, `replicas` those to two servers.
        sandbox: Whether commands run in one.
        network: What commands have of it.
        callers: How many call at once.
    """

    transport: str
    sandbox: str
    network: str
    callers: int


class Server:
    """One of ours.

    Args:
        world: Where it runs.
        name: What it is called.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.log = world.folder / f"{name}.log"
        self.pid = 0
        self.url = ""
        self.may_end = False
        self.is_starved = False  # it had little memory for a while, and may end for want of it
        self.was_limited = False  # in memory or descriptors, in any of its runs
        self.starts = 0
        self.known: list[dict[str, int]] = []
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it; over stdio with the way of its client."""
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
        self.known = self.known[:1]
        self.may_end = self.is_starved = False
        self.pid, self.starts = 0, self.starts + 1
        with self.log.open("ab") as log:
            if setting.transport == "stdio":
                theirs, writing = os.pipe()
                reading, other = os.pipe()
                command = [sys.executable, "-I", "-S", "-c", AS_A_CLIENT, *command]
                self._process = subprocess.Popen(command, stdin=theirs, stdout=other, stderr=log, env=environment)
                os.close(theirs)
                os.close(other)
                way = StdioWay(f"a{self.starts}", writing, reading)
                world.use(way)
                greeted = asyncio.create_task(way.begin())
                client = self._process.pid
                await until(lambda: self._find(client) or greeted.done())
                if not await greeted:
                    raise WorldError(f"{self.name} does not start: {self.text()[-2000:]}")
                return
            port = self.url.rpartition(":")[2] or "0"
            command += ["--transport", "http", "--port", port]
            said = len(SERVING.findall(self.text()))
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=environment
            )
            self.pid = self._process.pid
            if not await until(lambda: len(SERVING.findall(self.text())) > said or not self.is_running()):
                raise WorldError(f"{self.name} does not start: {self.text()[-2000:]}")
            found = SERVING.findall(self.text())
            if len(found) == said:
                raise WorldError(f"{self.name} does not start: {self.text()[-2000:]}")
            self.url = found[-1]

    def _find(self, client: int) -> bool:
        for pid, (parent, _, words) in processes().items():
            if parent == client and str(SERVER) in words:
                self.pid = pid
        return self.pid != 0

    @property
    def client(self) -> int:
        """Over stdio, the process that has started it."""
        return self._process.pid if self._process is not None and self._process.pid != self.pid else 0

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and (self._process.poll() is None or self.pid in processes())

    def end_code(self) -> int | None:
        """How it has ended; a client that was killed cannot tell."""
        assert self._process is not None
        return self._process.poll()

    def text(self) -> str:
        """What it has said to people."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def counts(self) -> dict[str, int] | None:
        """Descriptors, threads, children, and tasks by what they run; nothing where it does not tell."""
        told = self.world.folder / f"counts.{self.pid}"
        told.unlink(missing_ok=True)
        try:
            os.kill(self.pid, signal.SIGUSR2)
            deadline = time.monotonic() + 10
            while not told.exists():
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.01)
            found = {f"task {name}": count for name, count in json.loads(told.read_text()).items()}
            found["threads"] = len(os.listdir(f"/proc/{self.pid}/task"))
            for name in os.listdir(f"/proc/{self.pid}/fd"):
                with suppress(FileNotFoundError):
                    what = os.readlink(f"/proc/{self.pid}/fd/{name}").partition(":[")[0]
                    what = "open file" if what.startswith("/") else f"open {what}"
                    found[what] = found.get(what, 0) + 1
        except OSError:
            return None
        return found


class WorldError(Exception):
    """The world itself does not come about, or does not come to rest."""


class World:
    """All of it.

    Args:
        folder: Where it is.
        setting: What it is made of.
        rng: Decides what is called.
    """

    def __init__(self, folder: Path, setting: Setting, rng: random.Random) -> None:
        self.folder, self.setting, self.rng = folder, setting, rng
        self.disks = {name: folder / name for name in ("workspace", "state", "tmp")}
        self.root = self.disks["workspace"]
        self.config = folder / "config.json"
        self.tally = Tally()
        self.callers: list[Caller] = []
        self.ways: list[Way] = []
        names = ("r1", "r2") if setting.transport == "replicas" else ("server",)
        self.servers = [Server(self, name) for name in names]
        self.others: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.deaths: dict[str, int] = {}

    async def begin(self) -> None:
        """Make it."""
        for disk in self.disks.values():
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
        for name in ("home", "run", "store"):
            (self.folder / name).mkdir()
        self.set_clock(0)
        (self.root / "a.fake").write_text("one\ntwo wrong\n")
        for number in range(3):
            (self.root / f"shared-{number}.txt").write_text(whole("a0x000000000000z", 5))
        for role in ("web upstream", "old upstream", *(("store",) if self.has_store else ())):
            await self.start_other(role)
        self.config.write_text(json.dumps(self._settings()))
        for server in self.servers:
            await server.start()
        await self._begin_ways()

    @property
    def has_store(self) -> bool:
        """Whether its servers share one."""
        return self.setting.transport == "replicas"

    def _settings(self) -> dict[str, object]:
        trusted = {"trust": True, "protocol": "legacy"}
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
                "pipe": {"command": python[0], "args": [*python[1:], upstream, "stdio"], **trusted},
                "web": {"url": f"{web}/mcp", "type": "http", **trusted},
                "old": {"url": f"{old}/sse", "type": "sse", **trusted},
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

    async def start_other(self, role: str) -> None:
        """Start a server of somebody else, where it was before if it was anywhere."""
        port = self.ports.get(role, 0)
        upstream = [sys.executable, "-I", "-S", str(PEERS / "echoing_upstream.py")]
        if role == "store":
            port = port or free_port()
            usual = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
            command = ["redis-server", "--port", str(port), "--dir", str(self.folder / "store"), *usual]
        else:
            command = [*upstream, {"web upstream": "http", "old upstream": "sse"}[role], str(port)]
        log = (self.folder / f"{role}.log").open("wb")
        process = self.others[role] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        if role != "store":
            said = self.folder / f"{role}.log"
            if not await until(lambda: "\n" in said.read_text() or process.poll() is not None):
                raise WorldError(f"{role} does not start")
            words = said.read_text().split()
            if not words and port:  # killed again before it was up: that fault starts it once more
                return
            port = int(words[1])
        elif not await until(lambda: _answers(port)):
            raise WorldError(f"{role} does not start")
        self.ports[role] = port

    async def _begin_ways(self) -> None:
        transport, urls = self.setting.transport, [server.url for server in self.servers]
        token = TOKEN if self.has_store else ""
        for number in range(self.setting.callers):
            if transport == "stdio":
                way = self.ways[0]
            elif transport == "lone" or (transport == "replicas" and number % 2):
                way = LoneWay(f"l{number}", urls, token)
            elif transport == "sse":
                way = SseWay(f"e{number}", urls[0], token)
            else:
                way = SessionWay(f"h{number}", urls[number % len(urls)], token)
            if transport != "stdio":
                self.ways.append(way)
                if not await way.begin():
                    raise WorldError(f"{way.name} is not served: {self.servers[0].text()[-2000:]}")
            self.callers.append(Caller(way, self.root, random.Random(self.rng.random()), self.tally))

    def use(self, way: StdioWay) -> None:
        """Take the only way that there is to a server over stdio."""
        for old in self.ways:
            self.tally.wrong += old.crossed
        self.ways = [way]
        for caller in self.callers:
            caller.way = way

    def set_clock(self, offset: float) -> None:
        """Set the clock of all servers."""
        (self.folder / "offset").write_text(str(offset))
        for server in self.servers:
            if server.pid in processes():
                os.kill(server.pid, signal.SIGUSR2)

    def pids(self, role: str) -> list[int]:
        """The processes that do something, in the order in which they were started."""
        return sorted(self._found(role))

    def _found(self, role: str) -> Iterator[int]:
        table = processes()
        servers = {server.pid for server in self.servers if server.pid}
        brokers = {pid for pid, (parent, _, words) in table.items() if parent in servers and "broker.py" in words}
        supervisors = {pid for pid, (parent, _, _) in table.items() if parent in brokers}
        match role:
            case "server":
                yield from servers & set(table)
            case "client":
                yield from (server.client for server in self.servers if server.client in table)
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
                below = set(supervisors)
                for _ in range(8):
                    below |= {pid for pid, (parent, _, _) in table.items() if parent in below}
                mine = {"language_server.py", "echoing_upstream.py", "broker.py"}
                yield from (pid for pid in below - supervisors if not any(word in table[pid][2] for word in mine))
            case _:
                yield from (process.pid for process in (self.others[role],) if process.poll() is None)

    async def end(self) -> None:
        """Close what is open here; the processes are asked before."""
        for way in self.ways:
            await way.close()
            self.tally.wrong += way.crossed
        for process in self.others.values():
            process.kill()
            process.wait()
        for pid in processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: not processes(), 10)
        for disk in self.disks.values():
            subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)

    def reap(self) -> None:
        """Let go of what others have left here, and is over."""
        known = {process.pid for process in self.others.values()}
        known |= {server.client or server.pid for server in self.servers}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            if int(name) not in known and int(name) != os.getpid():
                with suppress(OSError):
                    os.waitpid(int(name), os.WNOHANG)


def _answers(port: int) -> bool:
    import socket

    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as wire:
        wire.sendall(b"PING\r\n")
        return wire.recv(100).startswith(b"+PONG")
    return False
