"""Calls of every kind. Each has a nonce; its answer must contain this nonce and no other.

Files are written with contents that follow from a nonce, so a test can tell whether a file is complete.
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

from tests.chaos.clients import ChaosClient, Json

NONCE = re.compile(r"[acdehl]\d+x[0-9a-f]{12}z")
SHARED = 3
"""Number of files that all clients write to."""


def file_content(nonce: str, lines: int) -> str:
    """Return the content of a file. Its first line tells what the rest must be."""
    return f"whole {nonce} {lines}\n" + f"{nonce}\n" * lines


def is_whole(text: str) -> bool:
    """Return whether a text is exactly one `file_content`."""
    first = re.match(r"whole (\S+) (\d+)\n", text)
    return first is not None and text == file_content(first[1], int(first[2]))


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Args:
        tool: Name of the tool, or a method of the protocol if it contains a slash.
        arguments: The arguments of the tool or the parameters of the method.
        has_nonce: Whether a successful answer contains the nonce.
        has_only_own_nonce: Whether the answer must contain no other nonce.
    """

    tool: str
    arguments: Mapping[str, Any]
    has_nonce: bool = True
    has_only_own_nonce: bool = True


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
    return Call("ping/", {}, has_nonce=False)


@kind("list")
def _list(_root: Path, _nonce: str, _rng: random.Random) -> Call:
    return Call("tools/list", {}, has_nonce=False)


@kind("write")
def _write(root: Path, nonce: str, rng: random.Random) -> Call:
    content = file_content(nonce, rng.choice((3, 300, 10_000)))
    return Call(
        "write_file",
        {"file_path": str(_own(root, nonce)), "content": content},
        has_nonce=False,
        has_only_own_nonce=False,
    )


@kind("write shared")
def _write_shared(root: Path, nonce: str, rng: random.Random) -> Call:
    path = root / f"shared-{rng.randrange(SHARED)}.txt"
    content = file_content(nonce, rng.choice((2, 200, 5_000)))
    return Call("write_file", {"file_path": str(path), "content": content}, has_nonce=False, has_only_own_nonce=False)


@kind("edit shared")
def _edit_shared(root: Path, nonce: str, rng: random.Random) -> Call:
    path = root / f"shared-{rng.randrange(SHARED)}.txt"
    old = NONCE.search(path.read_text()) if path.exists() else None
    arguments = {"file_path": str(path), "old_string": old[0] if old else nonce, "new_string": nonce}
    return Call("edit", {**arguments, "replace_all": True}, has_nonce=False, has_only_own_nonce=False)


@kind("read shared")
def _read_shared(root: Path, _nonce: str, rng: random.Random) -> Call:
    return Call(
        "read_file",
        {"file_path": str(root / f"shared-{rng.randrange(SHARED)}.txt")},
        has_nonce=False,
        has_only_own_nonce=False,
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
    return Call("run_shell_command", {"command": command, "is_background": True}, has_nonce=False)


@kind("question")
def _question(_root: Path, nonce: str, _rng: random.Random) -> Call:
    return Call("run_shell_command", {"command": f"tee -a ledger <<< {nonce}"})


@kind("language server")
def _language_server(root: Path, _nonce: str, _rng: random.Random) -> Call:
    return Call("lsp", {"operation": "documentSymbol", "filePath": str(root / "a.fake")}, has_nonce=False)


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
    """The outcomes of calls.

    Args:
        problems: Descriptions of what went wrong.
        counts: Numbers of successes, errors and lost calls, keyed by the kind of call.
        pings: Durations of the pings, in milliseconds.
        jobs: Ids of the background jobs that each client started.
    """

    problems: list[str] = field(default_factory=list[str])
    counts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    pings: list[float] = field(default_factory=list[float])
    jobs: dict[ChaosClient, list[str]] = field(default_factory=dict[ChaosClient, list[str]])


class Caller:
    """Makes one call after the other.

    Args:
        client: The client that sends the calls.
        root: The workspace.
        rng: Decides which calls are made.
        tally: Records the outcomes.
    """

    def __init__(self, client: ChaosClient, root: Path, rng: random.Random, tally: Tally) -> None:
        self.client, self._root, self._rng, self._tally = client, root, rng, tally

    def nonce(self) -> str:
        """Return a nonce that no other call has."""
        return f"{self.client.name}x{self._rng.getrandbits(48):012x}z"

    async def once(self, name: str) -> bool | None:
        """Make a call of a kind. Return whether it succeeded, or None if the connection was lost."""
        nonce = self.nonce()
        call = KINDS[name](self._root, nonce, self._rng)
        start = time.perf_counter()
        if "/" in call.tool:
            answer = await self.client.ask(call.tool.rstrip("/"), call.arguments)
        else:
            answer = await self.client.call(call.tool, call.arguments, nonce)
        counts = self._tally.counts.setdefault(name, [0, 0, 0])
        if answer is None:
            counts[2] += 1
            return None
        if name == "ping":
            self._tally.pings.append((time.perf_counter() - start) * 1000)
        result: Json = answer.get("result", {})
        is_good = "result" in answer and not result.get("isError")
        counts[not is_good] += 1
        self.judge(name, call, nonce, answer, is_good=is_good)
        return is_good

    def judge(self, name: str, call: Call, nonce: str, answer: Json, *, is_good: bool) -> None:
        problems = self._tally.problems
        answer_text = json.dumps(answer)
        if call.has_only_own_nonce and (other_nonces := set(NONCE.findall(answer_text)) - {nonce}):
            problems.append(f"{name} of {nonce} has an answer with {other_nonces}: {answer_text[:500]}")
        # A fault may kill a command before it has printed anything.
        is_killed = call.tool == "run_shell_command" and (
            "Exit Code: 137" in answer_text or "Signal: SIG" in answer_text
        )
        has_no_matches = "no matches" in answer_text.lower()
        if is_good and call.has_nonce and nonce not in answer_text and not has_no_matches and not is_killed:
            problems.append(f"{name} of {nonce} has the answer to another call: {answer_text[:500]}")
        if is_good and name == "job":
            job: str = answer["result"]["_meta"]["coretools-mcp/facts"]["jobId"]
            self._tally.jobs.setdefault(self.client, []).append(job)
        if re.search(r"Traceback|/server/\S+\.py", answer_text):
            problems.append(f"{name} of {nonce} reveals internals: {answer_text[:500]}")

    @property
    def kinds(self) -> list[str]:
        """The kinds of calls that this client can make."""
        return [name for name in KINDS if name != "job" or self.client.has_session]

    async def run(self, seconds: float, until: asyncio.Event) -> None:
        """Make calls until the event is set, and connect again whenever the connection is lost."""
        while not until.is_set():
            if self.client.is_lost and not await self.client.connect():
                await asyncio.sleep(0.2)
                continue
            await self.once(self._rng.choice(self.kinds))
            await asyncio.sleep(self._rng.random() * seconds)
