"""Calls of every kind, each with a nonce that its answer has to repeat, and no other's.

What is written is made from a nonce alone, so that of any file it can be told whether it is whole.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.ways import Json, Way

NONCE = re.compile(r"[acdehl]\d+x[0-9a-f]{12}z")
SHARED = 3
"""Files that all clients write."""


def whole(nonce: str, lines: int) -> str:
    """What is written: whether a file is this can be seen from its first line."""
    return f"whole {nonce} {lines}\n" + f"{nonce}\n" * lines


def is_whole(text: str) -> bool:
    """Whether a text is what somebody has written, from its first byte to its last."""
    first = re.match(r"whole (\S+) (\d+)\n", text)
    return first is not None and text == whole(first[1], int(first[2]))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of some kind.

    Args:
        tool: The tool; a method of the protocol where it has a stroke.
        arguments: What it is given.
        repeats: Whether a success repeats the nonce.
        is_alone: Whether the answer may hold no other nonce.
    """

    tool: str
    arguments: Mapping[str, Any]
    repeats: bool = True
    is_alone: bool = True


Kind = Callable[[Path, str, random.Random], Call]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def named(make: Kind) -> Kind:
        KINDS[name] = make
        return make

    return named


def _own(root: Path, nonce: str) -> Path:
    return root / f"own-{nonce.partition('x')[0]}.txt"


@kind("ping")
def _ping(_root: Path, _nonce: str, _rng: random.Random) -> Call:
    return Call("ping/", {}, repeats=False)


@kind("list")
def _list(_root: Path, _nonce: str, _rng: random.Random) -> Call:
    return Call("tools/list", {}, repeats=False)


@kind("write")
def _write(root: Path, nonce: str, rng: random.Random) -> Call:
    content = whole(nonce, rng.choice((3, 300, 10_000)))
    return Call("write_file", {"file_path": str(_own(root, nonce)), "content": content}, repeats=False, is_alone=False)


@kind("write shared")
def _write_shared(root: Path, nonce: str, rng: random.Random) -> Call:
    path = root / f"shared-{rng.randrange(SHARED)}.txt"
    content = whole(nonce, rng.choice((2, 200, 5_000)))
    return Call("write_file", {"file_path": str(path), "content": content}, repeats=False, is_alone=False)


@kind("edit shared")
def _edit_shared(root: Path, nonce: str, rng: random.Random) -> Call:
    path = root / f"shared-{rng.randrange(SHARED)}.txt"
    old = NONCE.search(path.read_text()) if path.exists() else None
    arguments = {"file_path": str(path), "old_string": old[0] if old else nonce, "new_string": nonce}
    return Call("edit", {**arguments, "replace_all": True}, repeats=False, is_alone=False)


@kind("read shared")
def _read_shared(root: Path, _nonce: str, rng: random.Random) -> Call:
    return Call(
        "read_file", {"file_path": str(root / f"shared-{rng.randrange(SHARED)}.txt")}, repeats=False, is_alone=False
    )


@kind("search")
def _search(root: Path, nonce: str, _rng: random.Random) -> Call:
    return Call("grep_search", {"pattern": nonce, "path": str(root)})


@kind("command")
def _command(_root: Path, nonce: str, rng: random.Random) -> Call:
    return Call("run_shell_command", {"command": f"echo {nonce}; sleep {rng.choice((0, 0.2))}; echo {nonce}"})


@kind("large command")
def _large_command(_root: Path, nonce: str, _rng: random.Random) -> Call:
    return Call("run_shell_command", {"command": f"yes {nonce} | head -c 200000"})


@kind("job")
def _job(_root: Path, nonce: str, _rng: random.Random) -> Call:
    command = f"echo {nonce}; sleep 600 & sleep 600"
    return Call("run_shell_command", {"command": command, "is_background": True}, repeats=False)


@kind("question")
def _question(_root: Path, nonce: str, _rng: random.Random) -> Call:
    return Call("run_shell_command", {"command": f"tee -a ledger <<< {nonce}"})


@kind("language server")
def _language_server(root: Path, _nonce: str, _rng: random.Random) -> Call:
    return Call("lsp", {"operation": "documentSymbol", "filePath": str(root / "a.fake")}, repeats=False)


def _upstream(alias: str) -> Kind:
    def make(_root: Path, nonce: str, rng: random.Random) -> Call:
        if rng.random() < 0.2:
            return Call(f"{alias}__repeat", {"text": nonce, "count": 5_000})
        return Call(f"{alias}__echo", {"text": nonce})

    return make


UPSTREAMS = ("pipe", "web", "old")
for _alias in UPSTREAMS:
    KINDS[f"upstream {_alias}"] = _upstream(_alias)


@dataclass
class Tally:
    """What has become of calls.

    Args:
        wrong: What must not be, in words.
        counts: Of each kind: successes, errors, lost.
        pings: Milliseconds of each ping.
    """

    wrong: list[str] = field(default_factory=list[str])
    counts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    pings: list[float] = field(default_factory=list[float])
    jobs: dict[Way, list[str]] = field(default_factory=dict[Way, list[str]])


class Caller:
    """Calls one after the other.

    Args:
        way: Over which.
        root: The workspace.
        rng: Decides what is called.
        tally: What has become of it.
    """

    def __init__(self, way: Way, root: Path, rng: random.Random, tally: Tally) -> None:
        self.way, self._root, self._rng, self._tally = way, root, rng, tally

    def nonce(self) -> str:
        """One that nobody else has."""
        return f"{self.way.name}x{self._rng.getrandbits(48):012x}z"

    async def once(self, name: str) -> bool | None:
        """One call of a kind: whether it succeeded, or nothing where the connection was lost."""
        nonce = self.nonce()
        call = KINDS[name](self._root, nonce, self._rng)
        began = time.perf_counter()
        if "/" in call.tool:
            answer = await self.way.ask(call.tool.rstrip("/"), call.arguments)
        else:
            answer = await self.way.call(call.tool, call.arguments, nonce)
        counts = self._tally.counts.setdefault(name, [0, 0, 0])
        if answer is None:
            counts[2] += 1
            return None
        if name == "ping":
            self._tally.pings.append((time.perf_counter() - began) * 1000)
        result: Json = answer.get("result", {})
        is_good = "result" in answer and not result.get("isError")
        counts[not is_good] += 1
        self.judge(name, call, nonce, answer, is_good=is_good)
        return is_good

    def judge(self, name: str, call: Call, nonce: str, answer: Json, *, is_good: bool) -> None:
        wrong = self._tally.wrong
        said = json.dumps(answer)
        if call.is_alone and (others := set(NONCE.findall(said)) - {nonce}):
            wrong.append(f"{name} of {nonce} has an answer with {others}: {said[:500]}")
        # A command, by a fault, before it has printed anything.
        is_killed = call.tool == "run_shell_command" and ("Exit Code: 137" in said or "Signal: SIG" in said)
        if is_good and call.repeats and nonce not in said and "no matches" not in said.lower() and not is_killed:
            wrong.append(f"{name} of {nonce} has the answer of something else: {said[:500]}")
        if is_good and name == "job":
            job: str = answer["result"]["_meta"]["coretools-mcp/facts"]["jobId"]
            self._tally.jobs.setdefault(self.way, []).append(job)
        if re.search(r"Traceback|/server/\S+\.py", said):
            wrong.append(f"{name} of {nonce} tells of what is inside: {said[:500]}")

    @property
    def kinds(self) -> list[str]:
        """What it may call."""
        return [name for name in KINDS if name != "job" or self.way.is_lasting]

    async def run(self, seconds: float, until: asyncio.Event) -> None:
        """Call again and again, with a way that is opened again where it is lost."""
        while not until.is_set():
            if self.way.is_lost and not await self.way.begin():
                await asyncio.sleep(0.2)
                continue
            await self.once(self._rng.choice(self.kinds))
            await asyncio.sleep(self._rng.random() * seconds)
