"""The rows that compare this server with its peers. Each does the nearest equivalent; notes say what differs."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench import peers
from bench.file_rows import numbered_file
from bench.http_client import PersistentConnection, RunningServer
from bench.interleaved import (
    FLOOR,
    Figure,
    Opener,
    PeerClient,
    Round,
    Row,
    free_port,
    http_rate,
    memory,
    memory_of_all,
    serving,
)
from bench.line_client import Start, text_of
from bench.peers import (
    DESKTOP,
    EVERYTHING,
    FASTMCP,
    FILESYSTEM,
    MCP_PROXY,
    OURS,
    SDK,
    SUPERGATEWAY,
    TYPESCRIPT,
)
from bench.proxy_rows import BARE, DIRECT, upstream_file
from bench.rows import MEGABYTE, PYTHON, SERVERS, Scene
from bench.trees import HUGE, LARGE, RARE, SMALL, Tree

SLICE_SECONDS = 0.25
"""Duration of one figure of one round if calls are counted."""

IN_FLIGHT = (1, 8, 64)
CONNECTIONS = (1, 50, 500)
SIZES = {
    "1 KB": 1_000,
    "4 KB": 4_000,
    "100 KB": 100_000,
    "1 MB": MEGABYTE,
    "5 MB": 5 * MEGABYTE,
    "10 MB": 10 * MEGABYTE,
}
PROXIED_SIZES = ("1 KB", "100 KB", "1 MB", "10 MB")
FILES = 500
HUNG_SECONDS = 10.0
GREETING = {"name": "x"}

Begin = Callable[[Scene, Path], Start]
"""Returns the command that starts a server for a folder."""


def _ours(scene: Scene, folder: Path) -> Start:
    settings = scene.scratch / "wide.json"
    settings.write_text(json.dumps({"limits": {"readManyFiles": 1_000, "readManyChars": 10_000_000}}))
    return scene.server(folder, "--approval-mode", "yolo", "--config", str(settings))


def _with_hello(scene: Scene, *options: str) -> Start:
    return Start([PYTHON, str(SERVERS / "ours_with_noop.py"), str(scene.scratch), *options])


FILE_SERVERS: dict[str, Begin] = {OURS: _ours, FILESYSTEM: peers.filesystem, DESKTOP: peers.desktop}
MINIMAL: dict[str, Begin] = {
    FASTMCP: lambda scene, _: peers.fastmcp(scene),
    SDK: lambda scene, _: peers.sdk(scene),
    TYPESCRIPT: lambda scene, _: peers.typescript(scene),
}
EVERYTHING_STDIO: dict[str, Begin] = {EVERYTHING: lambda scene, _: peers.everything(scene)}


# --- start and small calls -------------------------------------------------------------------------------------------


def _start_row(begin: Begin) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        start = begin(scene, scene.folder("starting"))

        def one_round() -> tuple[float, ...]:
            with PeerClient(start) as client:
                start_time = time.perf_counter()
                client.tool_names()
                list_seconds = time.perf_counter() - start_time
                first = client.seconds_to_first_answer
                return first * 1000, (first + list_seconds) * 1000, memory_of_all(client.pid)

        one_round()  # afterwards, the files are cached and compiled
        yield one_round

    return open_row


def _small_calls(begin: Begin, tool: str, arguments: dict[str, Any]) -> Opener:
    """Measure a small call, alone and with several calls in flight."""

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder = scene.folder("answering")
        (folder / "small.txt").write_text("small\n")
        call_arguments = {name: value.replace("{folder}", str(folder)) for name, value in arguments.items()}
        with PeerClient(begin(scene, folder)) as client:
            client.call_median(tool, call_arguments, 50)
            call_count = max(10, int(SLICE_SECONDS * 1000 / client.call_median(tool, call_arguments, 50)))

            def one_round() -> list[float]:
                figures = [client.call_median(tool, call_arguments, call_count)]
                figures += (
                    client.calls_per_second(tool, call_arguments, max(call_count, 2 * in_flight), in_flight)
                    for in_flight in IN_FLIGHT
                )
                return [*figures, memory_of_all(client.pid)]

            one_round()
            yield one_round

    return open_row


def _small_figures(label: str) -> tuple[Figure, ...]:
    rates = (Figure(f"{label}, {in_flight} in flight", "/s") for in_flight in IN_FLIGHT)
    return Figure(f"{label}, p50"), *rates, Figure(f"{label}, memory under load", "MB")


# --- file tools ------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One tool call in a folder; `{folder}`, `{old}`, `{new}` and `{content}` in its arguments are placeholders.

    Args:
        tool: Name of the tool.
        arguments: Its arguments.
        expected: Text that the answer must contain.
        content: Length of `{content}` in characters.
    """

    tool: str
    arguments: dict[str, Any]
    expected: str = ""
    content: int = 0

    def __call__(self, client: PeerClient, folder: Path, number: int) -> float:
        """Make the call with this number, and return its duration in milliseconds."""
        old, new = (f"line 00000010 of {'a' if even else 'one'} file" for even in (number % 2 == 0, number % 2 == 1))
        texts = {"folder": str(folder), "old": old, "new": new}
        texts["content"] = f"{number:09d} is the number of this line\n" * (self.content // 40)
        duration, result = client.timed_call(self.tool, _fill_in(self.arguments, texts))
        assert self.expected in text_of(result), text_of(result)[:500]
        return duration


def _fill_in(value: Any, texts: dict[str, str]) -> Any:
    match value:
        case str():
            return re.sub(r"\{(\w+)\}", lambda name: texts[name[1]], value)
        case dict():
            return {name: _fill_in(item, texts) for name, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_fill_in(item, texts) for item in cast("list[Any]", value)]
        case _:
            return value


class Search(NamedTuple):
    """DesktopCommander's search: one call starts it, and further calls read its results until it has ended."""

    kind: str
    pattern: str
    match_count: int

    def __call__(self, client: PeerClient, folder: Path, number: int) -> float:
        """Return the milliseconds until the search has ended."""
        del number
        options = {"searchType": self.kind, "pattern": self.pattern, "earlyTermination": False, "maxResults": 100_000}
        start = time.perf_counter()
        output = text_of(client.call("start_search", {"path": str(folder), "contextLines": 0, **options}))
        session = re.search(r"session: (\S+)", output)
        assert session is not None, output
        while "Status: COMPLETED" not in output:
            output = text_of(client.call("get_more_search_results", {"sessionId": session[1], "length": 100}))
        assert f"({self.match_count} matches)" in output, output[:500]
        return (time.perf_counter() - start) * 1000


def _timed_use(begin: Begin, use: Call | Search, prepare: Callable[[Scene], Path], times: int) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder, numbers = prepare(scene), count()
        with PeerClient(begin(scene, folder)) as client:
            use(client, folder, next(numbers))
            yield lambda: [statistics.median(use(client, folder, next(numbers)) for _ in range(times))]

    return open_row


def _files(
    name: str,
    prepare: Callable[[Scene], Path],
    *uses: Call | Search | None,
    note: str = "",
    times: int = 1,
    bar: float = 1.0,
    **row: Any,
) -> Row:
    """Return a row for this server, server-filesystem and DesktopCommander; `None` stands for a missing tool."""
    servers = zip(FILE_SERVERS.items(), uses, strict=True)
    targets = {server: _timed_use(begin, use, prepare, times) for (server, begin), use in servers if use}
    return Row((Figure(name, bar=bar),), targets, note, **row)


_folders = count()


def _new_folder(scene: Scene) -> Path:
    """Return a new folder for one server only."""
    return scene.folder(f"peer-{next(_folders)}")


def _file_of_lines(size: int) -> Callable[[Scene], Path]:
    def prepare(scene: Scene) -> Path:
        folder = _new_folder(scene)
        numbered_file(folder / "lines.txt", size)
        return folder

    return prepare


def _folder_of_entries(entries: int) -> Callable[[Scene], Path]:
    def prepare(scene: Scene) -> Path:
        folder = _new_folder(scene)
        for number in range(entries):
            (folder / f"file{number:05d}.txt").write_text(f"file {number:05d}\n" + "a line like any other\n" * 80)
        return folder

    return prepare


UNDO_NOTE = "coretools-mcp waits for the disk and keeps the old content for `undo`; the others do neither"


def _edits(size: str, times: int) -> Row:
    change = {"file_path": "{folder}/lines.txt", "old_string": "{old}", "new_string": "{new}"}
    peer_arguments = {"path": "{folder}/lines.txt", "edits": [{"oldText": "{old}", "newText": "{new}"}]}
    uses = Call("edit", change), Call("edit_file", peer_arguments), Call("edit_block", change)
    name = f"edit of one line in {size}"
    return _files(name, _file_of_lines(SIZES[size]), *uses, note=UNDO_NOTE, times=times, bar=1.5)


def _writes(size: str, times: int) -> Row:
    own_arguments, peer_arguments = ({key: "{folder}/new.txt", "content": "{content}"} for key in ("file_path", "path"))
    uses = (
        Call("write_file", arguments, "", SIZES[size])
        for arguments in (own_arguments, peer_arguments, {**peer_arguments, "mode": "rewrite"})
    )
    return _files(f"write of {size}", _new_folder, *uses, note=UNDO_NOTE, times=times, bar=1.5)


def _lists(entries: int, times: int) -> Row:
    call = Call("list_directory", {"path": "{folder}"}, "file00001.txt")
    uses = call, call, Call(call.tool, {**call.arguments, "depth": 1}, call.expected)
    note = "coretools-mcp obeys ignore files"
    return _files(f"list of {entries:,} entries", _folder_of_entries(entries), *uses, note=note, times=times, bar=1.6)


def _globs(tree: Tree, times: int, **row: Any) -> Row:
    arguments = {"pattern": "**/*.ts", "path": "{folder}"}
    uses = Call("glob", arguments, ".ts"), Call("search_files", arguments, ".ts")
    note = "coretools-mcp sorts by date; server-filesystem includes ignored files"
    name = f"files by name among {tree.kept + tree.ignored:,}"
    search = Search("files", "*.ts", tree.typescript)
    return _files(name, lambda scene: scene.tree(tree), *uses, search, note=note, times=times, **row)


def _greps(tree: Tree, times: int) -> Row:
    name = f"rare text among {tree.kept + tree.ignored:,} files"
    ours, search = Call("grep_search", {"pattern": RARE, "path": "{folder}"}, RARE), Search("content", RARE, 9)
    note = "server-filesystem cannot search contents"
    return _files(name, lambda scene: scene.tree(tree), ours, None, search, note=note, times=times)


def _windows(name: str, ours: dict[str, int], filesystem: dict[str, int], desktop: dict[str, int], **row: Any) -> Row:
    file, first = "{folder}/lines.txt", f"line {100_001 if filesystem == {} else 124_900:08d}"
    uses = (
        Call("read_file", {"absolute_path": file, "limit": 200, **ours}, first),
        Call("read_text_file", {"path": file, **filesystem}, first),
        Call("read_file", {"path": file, **desktop}, first),
    )
    return _files(name, _file_of_lines(10_000_000), *uses, **row)


FILE_ROWS = (
    _windows(
        "200 lines at line 100,000 of 10 MB",
        {"offset": 99_999},
        {},
        {"offset": 99_999, "length": 200},
        note="server-filesystem has no offset, so it reads the whole file",
    ),
    _windows("last 200 lines of 10 MB", {"offset": -200}, {"tail": 200}, {"offset": -200}),
    _files(
        f"{FILES} files of 2 KB in one call",
        _folder_of_entries(FILES),
        Call("read_many_files", {"paths": ["{folder}/*.txt"]}, "file 00499"),
        *2
        * (
            Call("read_multiple_files", {"paths": [f"{{folder}}/file{n:05d}.txt" for n in range(FILES)]}, "file 00499"),
        ),
        times=3,
    ),
    *(_lists(*arguments) for arguments in ((20, 20), (1_000, 5), (10_000, 3))),
    _globs(SMALL, 20, short=(FILESYSTEM,)),
    *(_globs(tree, 1, most_rounds=3) for tree in (LARGE, HUGE)),
    *(_greps(*arguments) for arguments in ((SMALL, 5), (LARGE, 1), (HUGE, 1))),
    *(_edits(*arguments) for arguments in (("4 KB", 10), ("5 MB", 1))),
    *(_writes(*arguments) for arguments in (("4 KB", 10), ("5 MB", 1))),
    _files(
        "the command `true`",
        _new_folder,
        Call("run_shell_command", {"command": "true"}),
        None,
        Call("start_process", {"command": "true", "timeout_ms": 5_000}),
        note="coretools-mcp runs it in a sandbox if bubblewrap is available",
        times=10,
    ),
)


# --- proxies over stdio ----------------------------------------------------------------------------------------------


@contextmanager
def _proxy_client(kind: str, upstreams: int, scene: Scene) -> Generator[PeerClient]:
    """Start a proxy, and list the tools of all its upstreams."""
    file = upstream_file(scene, upstreams)
    starts = {
        OURS: lambda: scene.server(scene.scratch, "--config", str(file), "--no-builtin-tools"),
        FASTMCP: lambda: peers.fastmcp(scene, upstreams=file),
        FLOOR: lambda: DIRECT,
    }
    with PeerClient(starts[kind](), 60.0) as client:
        assert len(client.tool_names()) == 2 * (1 if kind == FLOOR else upstreams)
        yield client


def _published_name(kind: str, tool: str) -> str:
    return {OURS: f"u0__{tool}", FASTMCP: f"u0_{tool}"}.get(kind, tool)


def _relayed_calls(kind: str, upstreams: int) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with _proxy_client(kind, upstreams, scene) as client:
            echo = _published_name(kind, "echo")
            client.call_median(echo, {}, 30)
            call_count = max(10, int(SLICE_SECONDS * 1000 / client.call_median(echo, {}, 20)))

            def one_round() -> list[float]:
                start = time.perf_counter()
                lists = min(5, call_count)
                for _ in range(lists):
                    client.tool_names()
                list_ms = (time.perf_counter() - start) * 1000 / lists
                rate = client.calls_per_second(echo, {}, max(call_count, 32), 16)
                return [client.call_median(echo, {}, call_count), rate, list_ms]

            yield one_round

    return open_row


def _relays(upstreams: int) -> Row:
    label = f"{upstreams} upstream{'s' if upstreams > 1 else ''}"
    figures = (
        Figure(f"call to 1 of {label}, p50"),
        Figure(f"call to 1 of {label}, 16 in flight", "/s"),
        Figure(f"tools/list of {label}, again"),
    )
    targets = {kind: _relayed_calls(kind, upstreams) for kind in (OURS, FASTMCP)}
    if upstreams == 1:
        targets[FLOOR] = _relayed_calls(FLOOR, 1)
    note = "FastMCP has one mount per upstream; with a single proxy for all, it starts the upstreams on every call"
    return Row(figures, targets, note, most_rounds=3)


def _by_size(time_one: Callable[[int], float]) -> list[float]:
    """Return the median durations for results of all sizes."""
    sizes = (SIZES[name] for name in PROXIED_SIZES)
    return [statistics.median(time_one(size) for _ in range(10 if size < MEGABYTE else 1)) for size in sizes]


def _results(kind: str) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with _proxy_client(kind, 1, scene) as client:
            big = _published_name(kind, "big")

            def one_round() -> list[float]:
                return _by_size(lambda size: client.timed_call(big, {"n": size})[0])

            one_round()
            yield one_round

    return open_row


def _bad_upstreams(kind: str) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        file = upstream_file(scene, 20, bad=True, wait_ms=1_500)
        own_start = scene.server(scene.scratch, "--config", str(file), "--no-builtin-tools")
        server_start = own_start if kind == OURS else peers.fastmcp(scene, upstreams=file)

        def one_round() -> list[float]:
            with PeerClient(server_start, HUNG_SECONDS) as client:
                start_time = time.perf_counter()
                client.tool_names()
                list_seconds = time.perf_counter() - start_time + client.seconds_to_first_answer
                call_ms = client.call_median(_published_name(kind, "echo"), {}, 50)
                return [client.seconds_to_first_answer * 1000, list_seconds * 1000, call_ms]

        yield one_round

    return open_row


def _memory_per_upstream(kind: str) -> Opener:
    """Measure the memory of the proxy for each further upstream, from the difference between 2 and 22."""

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        def memory_with(upstreams: int) -> float:
            if kind in {OURS, FASTMCP}:
                with _proxy_client(kind, upstreams, scene) as client:
                    for number in range(upstreams):
                        client.call(_published_name(kind, "echo").replace("u0", f"u{number}"), {})
                    return memory([client.pid])
            with _serving_proxy(kind, scene, upstreams) as (server, _):
                return memory([server.pid])

        def one_round() -> list[float]:
            if kind == SUPERGATEWAY:
                return [memory_with(1)]
            return [(memory_with(22) - memory_with(2)) / 20]

        yield one_round

    return open_row


# --- HTTP ------------------------------------------------------------------------------------------------------------


@contextmanager
def _serving_proxy(kind: str, scene: Scene, upstreams: int = 1) -> Generator[tuple[RunningServer, str]]:
    """Start a proxy over HTTP, and yield it with the path of its first upstream."""
    port, file = free_port(), upstream_file(scene, upstreams, isolation="shared")
    options = ("--config", str(file), "--no-builtin-tools", "--transport", "http", "--port", str(port))
    starts = {
        OURS: lambda: scene.server(scene.scratch, *options),
        FASTMCP: lambda: peers.fastmcp(scene, port=port, upstreams=file),
        MCP_PROXY: lambda: peers.mcp_proxy(scene, port, file),
        SUPERGATEWAY: lambda: peers.supergateway(scene, port, BARE),
    }
    path = "/servers/u0/mcp" if kind == MCP_PROXY else "/mcp"
    with serving(starts[kind](), port) as server:
        first = PersistentConnection(server, path=path)
        first.exchange(first.request("tools/list", {}))
        first.exchange(first.tool_request(_published_name(kind, "echo"), {}))
        first.close()
        yield server, path


def _many_connections(
    serve: Callable[[Scene], Any], tool: str, arguments: dict[str, Any], counts: Sequence[int]
) -> Opener:
    """Measure the calls per second with several numbers of connections, and then the memory."""

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with serve(scene) as (server, path), ExitStack() as stack:
            clients: list[PersistentConnection] = []
            while len(clients) < max(counts):
                clients.append(PersistentConnection(server, path=path))
                stack.callback(clients[-1].close)

            def one_round() -> list[float]:
                rates = [http_rate(clients[:count], tool, arguments, 2 * SLICE_SECONDS) for count in counts]
                return [*rates, memory_of_all(server.pid)]

            one_round()
            yield one_round

    return open_row


def _big_over_http(kind: str) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with _serving_proxy(kind, scene) as (server, path):
            client = PersistentConnection(server, path=path)
            big = _published_name(kind, "big")

            def one_round() -> list[float]:
                client.reconnect()
                return _by_size(lambda size: client.timed(client.tool_request(big, {"n": size})))

            one_round()
            yield one_round
            client.close()

    return open_row


@contextmanager
def _serving_hello(kind: str, scene: Scene) -> Generator[tuple[RunningServer, str]]:
    port = free_port()
    starts = {
        OURS: lambda: _with_hello(scene, "http", str(port)),
        SDK: lambda: Start([PYTHON, str(SERVERS / "sdk_streamable_http.py"), str(port)]),
        FASTMCP: lambda: peers.fastmcp(scene, port=port),
        EVERYTHING: lambda: peers.everything(scene, port),
    }
    with serving(starts[kind](), port) as server:
        yield server, "/mcp"


def _http_row(label: str, targets: dict[str, Opener], counts: Sequence[int], note: str) -> Row:
    rates = (Figure(f"{label}, {count} connection{'s' * (count > 1)}", "/s") for count in counts)
    return Row((*rates, Figure(f"{label}, memory under load", "MB")), targets, note, most_rounds=3)


HTTP_ROWS = (
    _http_row(
        "call over HTTP",
        {
            kind: _many_connections(
                partial(_serving_hello, kind),
                "echo" if kind == EVERYTHING else "hello",
                {"message": "x"} if kind == EVERYTHING else GREETING,
                CONNECTIONS,
            )
            for kind in (OURS, SDK, FASTMCP, EVERYTHING)
        },
        CONNECTIONS,
        "a tool that does nothing; one session per connection",
    ),
    _http_row(
        "call over HTTP to a server over stdio",
        {
            kind: _many_connections(partial(_serving_proxy, kind), _published_name(kind, "echo"), {}, (1, 50))
            for kind in (OURS, FASTMCP, MCP_PROXY, SUPERGATEWAY)
        },
        (1, 50),
        "one session per connection, and one stdio server for all; supergateway starts a server per session",
    ),
    Row(
        tuple(Figure(f"{size} through a proxy over HTTP") for size in PROXIED_SIZES),
        {kind: _big_over_http(kind) for kind in (OURS, FASTMCP, MCP_PROXY, SUPERGATEWAY)},
        most_rounds=3,
    ),
)

START_ROWS = (
    Row(
        (
            Figure("start to the first answer", bar=2.5),
            Figure("start to the first list of tools", bar=2.5),
            Figure("memory at rest", "MB"),
        ),
        {name: _start_row(begin) for name, begin in {**FILE_SERVERS, **EVERYTHING_STDIO, **MINIMAL}.items()},
        "coretools-mcp loads 24 tools, settings and permissions; the SDK and FastMCP servers have one tool",
        short=(SDK,),
    ),
    Row(
        _small_figures("read of 6 bytes"),
        {
            OURS: _small_calls(_ours, "read_file", {"absolute_path": "{folder}/small.txt"}),
            FILESYSTEM: _small_calls(peers.filesystem, "read_text_file", {"path": "{folder}/small.txt"}),
            DESKTOP: _small_calls(peers.desktop, "read_file", {"path": "{folder}/small.txt"}),
        },
    ),
    Row(
        _small_figures("call that does nothing"),
        {
            OURS: _small_calls(lambda scene, _: _with_hello(scene), "hello", GREETING),
            EVERYTHING: _small_calls(EVERYTHING_STDIO[EVERYTHING], "echo", {"message": "x"}),
            **{name: _small_calls(begin, "hello", GREETING) for name, begin in MINIMAL.items()},
        },
        "coretools-mcp checks permissions and arguments, and has 24 other tools",
        short=(SDK,),
    ),
)

PROXY_ROWS = (
    _relays(1),
    _relays(5),
    _relays(20),
    _relays(100),
    Row(
        tuple(Figure(f"{size} through a proxy") for size in PROXIED_SIZES),
        {kind: _results(kind) for kind in (OURS, FASTMCP, FLOOR)},
        most_rounds=3,
    ),
    Row(
        tuple(
            Figure(f"20 upstreams, one hung, one crashed: {label}")
            for label in ("first answer", "first list", "call, p50")
        ),
        {kind: _bad_upstreams(kind) for kind in (OURS, FASTMCP)},
        "here the first list of coretools-mcp waits at most 1.5 s (`proxy.firstListWait`); "
        f"`none` means no answer within {HUNG_SECONDS:g} s",
        most_rounds=2,
    ),
    Row(
        (Figure("memory per upstream, of 20", "MB"),),
        {kind: _memory_per_upstream(kind) for kind in (OURS, FASTMCP, MCP_PROXY, SUPERGATEWAY)},
        "the proxy alone, without the upstreams; supergateway needs one process per upstream",
        most_rounds=1,
    ),
)

SECTIONS = {
    "Start and small calls": START_ROWS,
    "File tools": FILE_ROWS,
    "Servers behind a proxy over stdio": PROXY_ROWS,
    "HTTP": HTTP_ROWS,
}
ROWS = tuple(row for rows in SECTIONS.values() for row in rows)
