"""Runs the cases against one server: makes the folders, probes the server, runs each case, and records its outcome."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.any_server import consent, edits, paths, protocol, proxy, searches, shell, web
from tests.hostile.any_server.adapters import Answer, Tools, call
from tests.hostile.any_server.promises import promiser_for
from tests.hostile.any_server.scene import CASES, MARKER, BrokenError, Case, NotApplicableError, Scene
from tests.hostile.any_server.wire import (
    Connection,
    Json,
    LostError,
    NoAnswerError,
    Person,
    accept,
    decline,
    over_http,
    over_pipes,
)

GROUPS = tuple(module.GROUP for module in (paths, edits, searches, shell, web, protocol, consent, proxy))
LONGEST = 150.0
"""Seconds that one case may take."""
PASSED, FAILED, NOT_APPLICABLE, NOT_PROMISED = "passed", "FAILED", "not applicable", "not promised"


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Args:
        case: The case.
        outcome: `PASSED`, `FAILED`, `NOT_APPLICABLE` or `NOT_PROMISED`.
        detail: The reason.
        promised_in: The document in which the server promises it; empty if it does not.
    """

    case: Case
    outcome: str
    detail: str = ""
    promised_in: str = ""


@dataclass(frozen=True)
class Target:
    """The server under test.

    Args:
        command: The command that starts it over stdio. The runner fills in `{ws}`, `{out}`, `{port}` and `{upstream}`.
        url: The URL of a server that already listens, instead of a command.
        workspace: The workspace of a server that the runner did not start.
        settings: JSON for the file `{upstream}`; the same placeholders are filled in.
    """

    command: str | None = None
    url: str | None = None
    workspace: Path | None = None
    settings: str = "{}"


@dataclass
class Report:
    """The result of a run.

    Args:
        name: The server's name, as it announces it.
        version: Its version, as it announces it.
        outcomes: How each case ended.
        seconds: How long it took.
    """

    name: str = ""
    version: str = ""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    seconds: float = 0.0

    def count(self, word: str) -> int:
        """Return how many cases had an outcome."""
        return sum(1 for outcome in self.outcomes if outcome.outcome == word)


@dataclass
class Lab:
    """The folders of a run, and the way to reach the server."""

    target: Target
    base: Path
    workspace: Path
    page: str
    visits: list[str]
    count: int = 0

    @property
    def outside(self) -> Path:
        """The folder next to the workspace."""
        return self.base / "out"

    @property
    def sibling(self) -> Path:
        """A folder whose name begins with the workspace's."""
        return self.workspace.with_name(f"{self.workspace.name}-evil")

    @property
    def home(self) -> Path:
        """The home folder of a server that the runner starts."""
        return self.base / "home"

    def furnish(self) -> None:
        """Make the folders, and the files that nobody may see."""
        for folder in (self.workspace, self.outside, self.sibling, self.home / ".ssh"):
            folder.mkdir(parents=True, exist_ok=True)
        secret_files = (self.outside, self.sibling, self.home)
        for path in (*(folder / "secret" for folder in secret_files), self.home / shell.SECRET_KEY):
            path.write_text(f"{MARKER}\n")

    def state(self) -> dict[str, object]:
        """Return the state of everything outside the workspace that must not change."""
        state: dict[str, object] = {}
        secret_files = (self.home / "secret", self.home / shell.SECRET_KEY)
        for path in (*self.outside.rglob("*"), *self.sibling.rglob("*"), *secret_files):
            if path.exists():
                facts = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                state[str(path)] = (facts.st_ino, facts.st_mode, facts.st_mtime_ns, content)
        return state

    def environment(self) -> dict[str, str]:
        """Return the environment of the server: a home of its own, and a secret."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        return {**variables, "HOME": str(self.home), "HOSTILE_SECRET_TOKEN": MARKER}

    def _fill_in(self, text: str, upstreams_file: Path) -> str:
        port = self.page.rpartition(":")[2]
        values = {"{ws}": self.workspace, "{out}": self.outside, "{port}": port, "{upstream}": upstreams_file}
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    @asynccontextmanager
    async def start(self, upstreams: Json | None = None) -> AsyncGenerator[Connection]:
        """Start the server and connect to it, or connect to the one that already listens."""
        if self.target.command is None:
            assert self.target.url is not None
            async with over_http(self.target.url) as connection:
                yield connection
            return
        self.count += 1
        upstreams_file = self.base / f"upstream{self.count}.json"
        settings = json.loads(self._fill_in(self.target.settings, upstreams_file))
        settings["mcpServers"] = {**settings.get("mcpServers", {}), **(upstreams or {"good": proxy.honest()})}
        upstreams_file.write_text(json.dumps(settings))
        words = [self._fill_in(word, upstreams_file) for word in shlex.split(self.target.command)]
        async with over_pipes(words, self.environment(), self.base, self.base / "errors.log") as connection:
            yield connection


@contextmanager
def new_lab(target: Target) -> Generator[Lab]:
    """Make the folders of a run, and remove them afterwards."""
    # Some servers treat a workspace below /tmp differently.
    parent = "/var/tmp" if Path("/var/tmp").is_dir() else None
    base = Path(tempfile.mkdtemp(prefix="hostile-", dir=parent)).resolve()
    try:
        with web.page_server(base / "out") as (port, visits):
            lab = Lab(target, base, target.workspace or base / "ws", f"http://127.0.0.1:{port}", visits)
            lab.furnish()
            yield lab
    finally:
        shutil.rmtree(base, ignore_errors=True)


class Run:
    """One run of cases.

    Args:
        place: The folders, and the server.
        tell: Called with each outcome.
    """

    def __init__(self, place: Lab, tell: Callable[[Outcome], None]) -> None:
        self.lab = place
        self.report = Report()
        self._tell = tell
        self._missing: dict[str, str] = {}
        self._promised_in: dict[str, str] | None = None
        self._tools = Tools([])

    async def all(self, cases: Sequence[Case]) -> Report:
        """Run cases. A server that has ended or hangs is started again for the next case."""
        began = time.monotonic()
        remaining = list(cases)
        is_known = False
        while remaining:
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self.lab.start())
                await connection.greet()
                if not is_known:
                    await self._learn(connection, {use for case in remaining for use in case.needs})
                    is_known = True
                else:
                    self._tools = await self._list_tools(connection)
                while remaining:
                    outcome, is_well = await self._one(remaining.pop(0), connection)
                    self.report.outcomes.append(outcome)
                    self._tell(outcome)
                    if not is_well:
                        break
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _list_tools(self, connection: Connection) -> Tools:
        answer = await connection.request("tools/list", wait=60)
        return Tools(answer.get("result", {}).get("tools", []))

    async def _learn(self, connection: Connection, needs: set[str]) -> None:
        """Find out what the server can do here: make one honest call for each kind of tool."""
        server_info = connection.greeting.get("serverInfo", {})
        self.report.name, self.report.version = str(server_info.get("name", "")), str(server_info.get("version", ""))
        self._tools = await self._list_tools(connection)
        folder = self.lab.workspace / "probe"
        folder.mkdir(exist_ok=True)
        (folder / "probe.txt").write_text("probe needle\n")
        path, command_answer = str(folder / "probe.txt"), ""
        probes: dict[str, tuple[Json, str]] = {
            "read": ({"path": path}, "probe needle"),
            "list": ({"path": str(folder)}, "probe.txt"),
            "find": ({"path": str(folder), "pattern": "*.txt"}, "probe.txt"),
            "grep": ({"path": str(folder), "pattern": "needle"}, "probe.txt"),
            "edit": ({"path": path, "old": "needle", "new": "NEEDLE"}, ""),
            "write": ({"path": path, "content": "probe\n"}, ""),
            "shell": ({"command": f"cd {folder} && cat probe.txt"}, "probe"),
        }
        is_local = self.lab.target.command is not None or self.lab.target.workspace is not None
        for use, (arguments, expected) in probes.items():
            if not self._tools.has(use):
                self._missing[use] = f"it has no tool to {USES_AS_PHRASES.get(use, use)}"
            elif not is_local:
                self._missing[use] = "its workspace is not known: --workspace DIR"
            elif use in needs or needs & {"asks about commands", "asks about writes"}:
                answer = await self._try(connection, use, arguments)
                if answer.is_error or expected not in answer.text:
                    self._missing[use] = f"an honest call fails: {answer.text[:100]!r}"
                if use == "write" and not connection.person.questions:
                    self._missing["asks about writes"] = "it asks nobody about writes"
                command_answer = answer.everything if use == "shell" else command_answer
                connection.person = Person()
        await self._learn_rest(connection, needs, folder)
        self._promised_in = promiser_for(self.report.name, command_answer)

    async def _learn_rest(self, connection: Connection, needs: set[str], folder: Path) -> None:
        missing = self._missing
        if not self._tools.has("fetch"):
            missing["fetch"] = "it has no tool to fetch URLs"
        elif "fetches from this machine" in needs:
            url = f"{self.lab.page.replace('127.0.0.1', 'localhost')}/plain"
            answer = await self._try(connection, "fetch", {"url": url})
            if web.PLAIN not in answer.text:
                missing["fetches from this machine"] = "it fetches no page of this machine, as it should"
        for need, tool in (("asks about commands", "shell"), ("forbids dd", "shell"), ("asks about writes", "write")):
            if tool in missing:
                missing.setdefault(need, missing[tool])
        if "asks about commands" in needs and "shell" not in missing:
            connection.person = Person(decline)
            await self._try(connection, "shell", {"command": f"touch {folder}/asked"})
            if not connection.person.questions:
                missing["asks about commands"] = "it asks nobody about commands"
        connection.person = Person(accept)
        if "forbids dd" in needs and "shell" not in missing:
            answer = await self._try(connection, "shell", {"command": "dd --version"})
            if "GNU" in answer.text:
                missing["forbids dd"] = "no rule forbids the command dd"
        if connection.send_bytes is None:
            missing["pipes"] = "it is not reached over pipes"
        if self.lab.target.url is None:
            missing["http"] = "it is not reached over HTTP"
        if "{upstream}" not in (self.lab.target.command or ""):
            missing["upstream"] = "nothing can be put behind it: no {upstream} in its command"

    async def _try(self, connection: Connection, use: str, arguments: Json) -> Answer:
        try:
            return await call(connection, self._tools, use, arguments)
        except (NoAnswerError, LostError) as error:
            return Answer({"error": {"message": str(error)}})

    async def _one(self, case: Case, connection: Connection) -> tuple[Outcome, bool]:
        """Run one case; return its outcome, and whether the server can run the next one."""
        source = self._promised_in.get(case.promise, "") if self._promised_in is not None else "not known: held to it"
        missing = next((self._missing[need] for need in case.needs if need in self._missing), None)
        if missing is not None:
            is_asking = any(need.startswith("asks") and need in self._missing for need in case.needs)
            outcome = NOT_PROMISED if is_asking and not source and "no tool" not in missing else NOT_APPLICABLE
            return Outcome(case, outcome, missing, source), True
        scene = self._scene(case, connection)
        before, is_well = self.lab.state(), True
        try:
            try:
                async with asyncio.timeout(LONGEST):
                    await case.act(scene)
            finally:
                _remove_folder(scene)
            self._check_outside(scene, before)
            await connection.ping()
        except NotApplicableError as reason:
            return Outcome(case, NOT_APPLICABLE, str(reason), source), True
        except (BrokenError, NoAnswerError, LostError, TimeoutError) as error:
            is_well = isinstance(error, BrokenError)
            detail = str(error) or f"not over after {LONGEST:.0f} s"
            self.lab.furnish()
            if is_well:
                is_well = await self._is_alive(connection)
            return Outcome(case, FAILED if source else NOT_PROMISED, detail, source), is_well
        return Outcome(case, PASSED, "", source), is_well

    async def _is_alive(self, connection: Connection) -> bool:
        try:
            await connection.ping(5)
        except (NoAnswerError, LostError):
            return False
        return True

    def _scene(self, case: Case, connection: Connection) -> Scene:
        self.lab.count += 1
        folder = self.lab.workspace / f"case{self.lab.count}"
        folder.mkdir()
        connection.person = Person(case.answer)
        is_ours = self.lab.target.command is not None
        start: Callable[[Json | None], AbstractAsyncContextManager[Connection]] | None
        start = self.lab.start if is_ours else None
        home = self.lab.home if is_ours else None
        return Scene(
            connection, self._tools, folder, self.lab.outside, home, self.lab.page, self.lab.visits, start,
            self.lab.target.url,
        )  # fmt: skip

    def _check_outside(self, scene: Scene, before: dict[str, object]) -> None:
        """Check that nothing outside the workspace was changed or shown."""
        after = self.lab.state()
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path):
                change = "created" if path not in before else "removed" if path not in after else "changed"
                name = os.path.relpath(path, self.lab.base)
                raise BrokenError(f"outside the workspace, {name} was {change}")
        for call_name, answer in scene.answers:
            if MARKER in answer.everything:
                raise BrokenError(f"what lies outside or is hidden was shown by {call_name}")


def _remove_folder(scene: Scene) -> None:
    """Remove the folder of a case from the workspace, without following links."""
    shutil.rmtree(scene.inside, ignore_errors=True)


USES_AS_PHRASES = {"shell": "run commands", "grep": "search texts", "find": "find files", "list": "list folders"}


def run(target: Target, groups: Sequence[str] = GROUPS, tell: Callable[[Outcome], None] = lambda _: None) -> Report:
    """Run the cases of some groups against a server."""
    order = {group: number for number, group in enumerate(GROUPS)}
    cases = sorted((case for case in CASES if case.group in groups), key=lambda case: order[case.group])
    with new_lab(target) as place:
        return asyncio.run(Run(place, tell).all(cases))
