"""The cost of our proxy: each row compares an upstream through it with the same upstream without it.

The upstreams are bare loops, which answer faster than any real server, so that the proxy dominates the measurement.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import line_client
from bench.http_client import listening
from bench.line_client import Start
from bench.rows import PYTHON, SERVERS, Opener, Pair, Round, Row, Scene
from server.upstreams.login.login_storage import StoredLogin, TokenStore

BARE = [PYTHON, str(SERVERS / "bare_loop.py")]
DIRECT = Start(BARE)
WARM_UP = 200
CALLS = 400
LISTS = 200
PATIENT_MS = 30_000
WAIT_MS = 1_500
"""proxy.firstListWait for starts with bad upstreams: longer than twenty healthy ones need on a small machine."""

BIG = {"n": 10_000_000}


class LineClient(line_client.LineClient):
    """Skips notifications, because lists change while upstreams connect."""

    def read(self) -> bytes:
        """Read one answer."""
        while True:
            line = super().read()
            if b'"method":"notifications/' not in line[:200]:
                return line


def upstream_file(scene: Scene, upstreams: int, *, bad: bool = False, wait_ms: int = PATIENT_MS, **entry: str) -> Path:
    """Write settings with some upstreams, two of which may be bad, and with these additional keys for each."""
    commands = {f"u{number}": BARE for number in range(upstreams - 2 * bad)}
    if bad:
        commands |= {"hung": [*BARE, "hang"], "crashed": [*BARE, "exit"]}
    servers = {
        alias: {"command": command[0], "args": command[1:], "trust": True, "protocol": "legacy", **entry}
        for alias, command in commands.items()
    }
    config = scene.folder(f"proxy-{upstreams}-{bad}-{wait_ms}") / "config.json"
    settings = {
        "mcpServers": servers,
        "proxy": {"firstListWait": wait_ms, "search": "off"},
        "limits": {"resultChars": None},
    }
    config.write_text(json.dumps(settings))
    return config


def _proxy(scene: Scene, upstreams: int, *options: str, bad: bool = False, wait_ms: int = PATIENT_MS) -> Start:
    """Return the command of our server with some upstreams, two of which may be bad."""
    config = upstream_file(scene, upstreams, bad=bad, wait_ms=wait_ms)
    return scene.server(scene.scratch, "--config", str(config), *options)


def _listed_names(client: LineClient) -> set[str]:
    client.send("tools/list", {})
    return {tool["name"] for tool in client.receive()["result"]["tools"]}


def _list_median(client: LineClient) -> float:
    return statistics.median(client.timed_request("tools/list", {})[0] for _ in range(LISTS))


@contextmanager
def _warm_clients(scene: Scene, upstreams: int, *options: str) -> Generator[tuple[LineClient, LineClient]]:
    """Open a client through our server and a direct one, both warm."""
    with LineClient(_proxy(scene, upstreams, *options)) as through, LineClient(DIRECT) as direct:
        assert {f"u{number}__echo" for number in range(upstreams)} <= _listed_names(through)
        assert through.call("u0__echo", {}) == direct.call("echo", {})
        through.call_median("u0__echo", {}, WARM_UP)
        direct.call_median("echo", {}, WARM_UP)
        yield through, direct


@contextmanager
def _calls(upstreams: int, scene: Scene) -> Generator[Round]:
    with _warm_clients(scene, upstreams) as (through, direct):
        yield lambda: Pair(through.call_median("u0__echo", {}, CALLS), direct.call_median("echo", {}, CALLS))


@contextmanager
def _large_result(scene: Scene) -> Generator[Round]:
    with _warm_clients(scene, 1) as (through, direct):
        assert through.call("u0__big", BIG) == direct.call("big", BIG)
        yield lambda: Pair(through.timed_call("u0__big", BIG)[0], direct.timed_call("big", BIG)[0])


@contextmanager
def _lists(scene: Scene) -> Generator[Round]:
    with _warm_clients(scene, 20, "--no-builtin-tools") as (through, direct):
        assert len(_listed_names(through)) == 40
        yield lambda: Pair(_list_median(through), _list_median(direct))


@contextmanager
def _processes(scene: Scene) -> Generator[Round]:
    with LineClient(_proxy(scene, 20)) as client:
        for number in range(20):  # a list may come from the last run, without a process
            client.call(f"u{number}__echo", {})
        yield lambda: Pair(client.processes)


@contextmanager
def _start_beside_bad(scene: Scene) -> Generator[Round]:
    """Compare the answer to `initialize` with one hung and one crashed upstream to a start with healthy ones."""
    healthy, with_bad_upstreams = _proxy(scene, 20), _proxy(scene, 20, bad=True)

    def one_round() -> Pair:
        with LineClient(with_bad_upstreams) as ours, LineClient(healthy) as theirs:
            return Pair(ours.seconds_to_first_answer * 1000, theirs.seconds_to_first_answer * 1000)

    yield one_round


HUNG = 20


@contextmanager
def _first_list_of_hung(scene: Scene) -> Generator[Round]:
    """Measure the first list with twenty hung upstreams, with the lists stored by the last run and without them."""
    folder = scene.folder("proxy-hung")
    flag = folder / "hang"
    script = f'[ -e "{flag}" ] && exec sleep 600; exec "{BARE[0]}" "{BARE[1]}"'
    servers = {
        f"u{number}": {"command": "sh", "args": ["-c", script, f"n{number}"], "trust": True, "protocol": "legacy"}
        for number in range(HUNG)
    }
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    starts: list[Start] = []
    for catalogue in (True, False):
        config = folder / f"{catalogue}.json"
        proxy = {"catalogue": catalogue, "firstListWait": PATIENT_MS if catalogue else WAIT_MS}
        config.write_text(json.dumps({"mcpServers": servers, "proxy": proxy}))
        start = scene.server(scene.scratch, "--config", str(config), "--no-builtin-tools")
        starts.append(Start(start.command, environment))
    with LineClient(starts[0]) as client:
        assert len(_listed_names(client)) == 2 * HUNG
        deadline = time.monotonic() + PATIENT_MS / 1000
        while len(list(folder.glob("state/coretools-mcp/lists/*.json"))) < HUNG and time.monotonic() < deadline:
            time.sleep(0.05)
    flag.touch()

    def list_time(start: Start, count: int) -> float:
        with LineClient(start) as client:
            start_time = time.perf_counter()
            assert len(_listed_names(client)) == count
            return (time.perf_counter() - start_time) * 1000

    yield lambda: Pair(
        list_time(starts[0], 2 * HUNG), None, f"{list_time(starts[1], 0):,.0f} ms without a catalogue, and empty"
    )


def _wait_for_state(client: LineClient, alias: str, state: str) -> None:
    """Call a bad upstream until the answer names its state, because a busy machine starts twenty programs slowly."""
    deadline = time.monotonic() + PATIENT_MS / 1000
    text = ""
    while state not in text and time.monotonic() < deadline:
        client.write(client.tool_request(f"{alias}__echo", {}))
        result = json.loads(client.read())["result"]
        assert result["isError"]
        text = result["content"][0]["text"]
    assert state in text


@contextmanager
def _first_list_beside_bad(scene: Scene) -> Generator[Round]:
    """Compare the time until the first list of the same start with the time that it may wait."""
    start = _proxy(scene, 20, "--no-builtin-tools", bad=True, wait_ms=WAIT_MS)

    def one_round() -> Pair:
        with LineClient(start) as client:
            start_time = time.perf_counter()
            names = _listed_names(client)
            duration = (time.perf_counter() - start_time) * 1000
            assert not {"hung__echo", "crashed__echo"} & names
            _wait_for_state(client, "hung", "connecting")
            _wait_for_state(client, "crashed", "ended")
            return Pair(duration, WAIT_MS, f"{len(names)} of 36 tools in it")

    yield one_round


AT_ONCE = 8


@contextmanager
def _login(scene: Scene) -> Generator[Round]:
    """Compare eight concurrent calls to a remote server: with the token of a login, and with one in the settings."""
    folder = scene.folder("proxy-login")
    state = folder / "state"
    with listening(Start([PYTHON, str(SERVERS / "sdk_streamable_http.py")])) as remote:
        url = f"http://127.0.0.1:{remote.address[1]}/mcp"
        login = StoredLogin(
            resource=url,
            principal="",
            alias="login",
            issuer="http://127.0.0.1",
            metadata={
                "issuer": "http://127.0.0.1",
                "authorization_endpoint": "http://127.0.0.1/authorize",
                "token_endpoint": "http://127.0.0.1/token",
            },
            client={"client_id": "bench", "redirect_uris": ["http://127.0.0.1/callback"]},
            scopes=None,
            token={"access_token": "bench", "token_type": "Bearer"},
            expires_at=time.time() + 86_400,
        )
        TokenStore(str(state / "coretools-mcp")).write(login)
        entry = {"httpUrl": url, "trust": True, "protocol": "legacy"}
        servers = {"login": entry, "header": {**entry, "headers": {"Authorization": "Bearer bench"}}}
        config = folder / "config.json"
        config.write_text(json.dumps({"mcpServers": servers, "proxy": {"firstListWait": PATIENT_MS}}))
        start = scene.server(scene.scratch, "--config", str(config), "--no-builtin-tools")
        with LineClient(Start(start.command, {**os.environ, "XDG_STATE_HOME": str(state)})) as client:
            assert {f"{alias}__hello" for alias in servers} <= _listed_names(client)

            def time_per_batch(alias: str) -> float:
                return 1000 * AT_ONCE / client.calls_per_second(f"{alias}__hello", {"name": "x"}, CALLS, AT_ONCE)

            for alias in servers:
                time_per_batch(alias)
            yield lambda: Pair(time_per_batch("login"), time_per_batch("header"))


def _row(name: str, bar: float, open_row: Opener) -> Row:
    return Row(f"proxy: {name}", bar, open_row)


ROWS = (
    *(
        _row(
            f"call through us with {count} upstream{'s' * (count > 1)}, of the same call without us",
            8,
            partial(_calls, count),
        )
        for count in (1, 5, 20)
    ),
    _row("10 MB result, of the same without us", 2, _large_result),
    _row("tools/list of 20 upstreams, of one of them without us", 5, _lists),
    Row("proxy: processes with 20 upstreams, these included", 25, _processes, unit="", most_rounds=1),
    _row("initialize with 20 upstreams, one hung and one crashed, of a healthy start", 1.5, _start_beside_bad),
    _row("first list after initialize with 20 hung upstreams, as in the last run", 50, _first_list_of_hung),
    _row("eight calls at once with a login, of eight with a token in the settings", 1.1, _login),
    _row("first list with one hung and one crashed, of proxy.firstListWait", 1.1, _first_list_beside_bad),
)
