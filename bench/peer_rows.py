"""This server beside its peers: each does the nearest thing that it can, and notes say what differs."""

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
from bench.http_client import KeptConnection, Listening
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
"""How long one figure of one round takes where calls are counted."""

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
THROUGH = ("1 KB", "100 KB", "1 MB", "10 MB")
FILES = 500
HUNG_SECONDS = 10.0
GREETING = {"name": "x"}

Begin = Callable[[Scene, Path], Start]
"""How a server starts on a folder."""


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


def _starting(begin: Begin) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        start = begin(scene, scene.folder("starting"))

        def one_round() -> tuple[float, ...]:
            with PeerClient(start) as client:
                began = time.perf_counter()
                client.listed()
                listed = time.perf_counter() - began
                first = client.seconds_to_first_answer
                return first * 1000, (first + listed) * 1000, memory_of_all(client.pid)

        one_round()  # from then on the files are in memory, and compiled
        yield one_round

    return opened


def _answering(begin: Begin, tool: str, arguments: dict[str, Any]) -> Opener:
    """How quickly a small call is answered: alone, and with several in flight."""

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        folder = scene.folder("answering")
        (folder / "small.txt").write_text("small\n")
        given = {name: value.replace("{folder}", str(folder)) for name, value in arguments.items()}
        with PeerClient(begin(scene, folder)) as client:
            client.call_median(tool, given, 50)
            fits = max(10, int(SLICE_SECONDS * 1000 / client.call_median(tool, given, 50)))

            def one_round() -> list[float]:
                figures = [client.call_median(tool, given, fits)]
                figures += (client.calls_per_second(tool, given, max(fits, 2 * many), many) for many in IN_FLIGHT)
                return [*figures, memory_of_all(client.pid)]

            one_round()
            yield one_round

    return opened


def _small_figures(what: str) -> tuple[Figure, ...]:
    rates = (Figure(f"{what}, {many} in flight", "/s") for many in IN_FLIGHT)
    return Figure(f"{what}, p50"), *rates, Figure(f"{what}, memory under load", "MB")


# --- file tools ------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call in a folder; `{folder}`, `{old}`, `{new}` and `{content}` in its arguments stand for the texts.

    Args:
        tool: Its name.
        arguments: What it is given.
        expected: What its answer must hold.
        content: Characters of `{content}`.
    """

    tool: str
    arguments: dict[str, Any]
    expected: str = ""
    content: int = 0

    def __call__(self, client: PeerClient, folder: Path, number: int) -> float:
        """The milliseconds of the call, by its number."""
        old, new = (f"line 00000010 of {'a' if even else 'one'} file" for even in (number % 2 == 0, number % 2 == 1))
        texts = {"folder": str(folder), "old": old, "new": new}
        texts["content"] = f"{number:09d} is the number of this line\n" * (self.content // 40)
        taken, result = client.timed_call(self.tool, _filled(self.arguments, texts))
        assert self.expected in text_of(result), text_of(result)[:500]
        return taken


def _filled(value: Any, texts: dict[str, str]) -> Any:
    match value:
        case str():
            return re.sub(r"\{(\w+)\}", lambda name: texts[name[1]], value)
        case dict():
            return {name: _filled(each, texts) for name, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_filled(each, texts) for each in cast("list[Any]", value)]
        case _:
            return value


class Search(NamedTuple):
    """DesktopCommander's search, which is begun by one call and asked for by others until it is done."""

    kind: str
    pattern: str
    found: int

    def __call__(self, client: PeerClient, folder: Path, number: int) -> float:
        """The milliseconds until all is found."""
        del number
        wanted = {"searchType": self.kind, "pattern": self.pattern, "earlyTermination": False, "maxResults": 100_000}
        began = time.perf_counter()
        said = text_of(client.call("start_search", {"path": str(folder), "contextLines": 0, **wanted}))
        session = re.search(r"session: (\S+)", said)
        assert session is not None, said
        while "Status: COMPLETED" not in said:
            said = text_of(client.call("get_more_search_results", {"sessionId": session[1], "length": 100}))
        assert f"({self.found} matches)" in said, said[:500]
        return (time.perf_counter() - began) * 1000


def _working(begin: Begin, use: Call | Search, prepare: Callable[[Scene], Path], times: int) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        folder, numbers = prepare(scene), count()
        with PeerClient(begin(scene, folder)) as client:
            use(client, folder, next(numbers))
            yield lambda: [statistics.median(use(client, folder, next(numbers)) for _ in range(times))]

    return opened


def _files(
    name: str,
    prepare: Callable[[Scene], Path],
    *uses: Call | Search | None,
    note: str = "",
    times: int = 1,
    bar: float = 1.0,
    **row: Any,
) -> Row:
    """A row of what this server, server-filesystem and DesktopCommander do; `None` is who cannot."""
    servers = zip(FILE_SERVERS.items(), uses, strict=True)
    targets = {server: _working(begin, use, prepare, times) for (server, begin), use in servers if use}
    return Row((Figure(name, bar=bar),), targets, note, **row)


_folders = count()


def _new(scene: Scene) -> Path:
    """A folder for one server alone."""
    return scene.folder(f"peer-{next(_folders)}")


def _of_lines(size: int) -> Callable[[Scene], Path]:
    def prepare(scene: Scene) -> Path:
        folder = _new(scene)
        numbered_file(folder / "lines.txt", size)
        return folder

    return prepare


def _of_entries(entries: int) -> Callable[[Scene], Path]:
    def prepare(scene: Scene) -> Path:
        folder = _new(scene)
        for number in range(entries):
            (folder / f"file{number:05d}.txt").write_text(f"file {number:05d}\n" + "a line like any other\n" * 80)
        return folder

    return prepare


KEEPS = "coretools-mcp waits for the disk and keeps the old content for `undo`; the others do neither"


def _edits(size: str, times: int) -> Row:
    change = {"file_path": "{folder}/lines.txt", "old_string": "{old}", "new_string": "{new}"}
    theirs = {"path": "{folder}/lines.txt", "edits": [{"oldText": "{old}", "newText": "{new}"}]}
    uses = Call("edit", change), Call("edit_file", theirs), Call("edit_block", change)
    name = f"edit of one line in {size}"
    return _files(name, _of_lines(SIZES[size]), *uses, note=KEEPS, times=times, bar=1.5)


def _writes(size: str, times: int) -> Row:
    ours, theirs = ({key: "{folder}/new.txt", "content": "{content}"} for key in ("file_path", "path"))
    uses = (Call("write_file", each, "", SIZES[size]) for each in (ours, theirs, {**theirs, "mode": "rewrite"}))
    return _files(f"write of {size}", _new, *uses, note=KEEPS, times=times, bar=1.5)


def _lists(entries: int, times: int) -> Row:
    call = Call("list_directory", {"path": "{folder}"}, "file00001.txt")
    uses = call, call, Call(call.tool, {**call.arguments, "depth": 1}, call.expected)
    note = "coretools-mcp obeys ignore files"
    return _files(f"list of {entries:,} entries", _of_entries(entries), *uses, note=note, times=times, bar=1.6)


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
    return _files(name, _of_lines(10_000_000), *uses, **row)


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
        _of_entries(FILES),
        Call("read_many_files", {"paths": ["{folder}/*.txt"]}, "file 00499"),
        *2
        * (
            Call("read_multiple_files", {"paths": [f"{{folder}}/file{n:05d}.txt" for n in range(FILES)]}, "file 00499"),
        ),
        times=3,
    ),
    *(_lists(*each) for each in ((20, 20), (1_000, 5), (10_000, 3))),
    _globs(SMALL, 20, short=(FILESYSTEM,)),
    *(_globs(tree, 1, most_rounds=3) for tree in (LARGE, HUGE)),
    *(_greps(*each) for each in ((SMALL, 5), (LARGE, 1), (HUGE, 1))),
    *(_edits(*each) for each in (("4 KB", 10), ("5 MB", 1))),
    *(_writes(*each) for each in (("4 KB", 10), ("5 MB", 1))),
    _files(
        "the command `true`",
        _new,
        Call("run_shell_command", {"command": "true"}),
        None,
        Call("start_process", {"command": "true", "timeout_ms": 5_000}),
        note="coretools-mcp runs it in a sandbox if bubblewrap is available",
        times=10,
    ),
)


# --- proxies over stdio ----------------------------------------------------------------------------------------------


@contextmanager
def _proxied(kind: str, upstreams: int, scene: Scene) -> Generator[PeerClient]:
    """A proxy that has listed all of its upstreams."""
    file = upstream_file(scene, upstreams)
    starts = {
        OURS: lambda: scene.server(scene.scratch, "--config", str(file), "--no-builtin-tools"),
        FASTMCP: lambda: peers.fastmcp(scene, upstreams=file),
        FLOOR: lambda: DIRECT,
    }
    with PeerClient(starts[kind](), 60.0) as client:
        assert len(client.listed()) == 2 * (1 if kind == FLOOR else upstreams)
        yield client


def _published(kind: str, tool: str) -> str:
    return {OURS: f"u0__{tool}", FASTMCP: f"u0_{tool}"}.get(kind, tool)


def _relaying(kind: str, upstreams: int) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _proxied(kind, upstreams, scene) as client:
            echo = _published(kind, "echo")
            client.call_median(echo, {}, 30)
            fits = max(10, int(SLICE_SECONDS * 1000 / client.call_median(echo, {}, 20)))

            def one_round() -> list[float]:
                began = time.perf_counter()
                lists = min(5, fits)
                for _ in range(lists):
                    client.listed()
                listed = (time.perf_counter() - began) * 1000 / lists
                rate = client.calls_per_second(echo, {}, max(fits, 32), 16)
                return [client.call_median(echo, {}, fits), rate, listed]

            yield one_round

    return opened


def _relays(upstreams: int) -> Row:
    these = f"{upstreams} upstream{'s' if upstreams > 1 else ''}"
    figures = (
        Figure(f"call to 1 of {these}, p50"),
        Figure(f"call to 1 of {these}, 16 in flight", "/s"),
        Figure(f"tools/list of {these}, again"),
    )
    targets = {kind: _relaying(kind, upstreams) for kind in (OURS, FASTMCP)}
    if upstreams == 1:
        targets[FLOOR] = _relaying(FLOOR, 1)
    note = "FastMCP has one mount per upstream; with a single proxy for all, it starts the upstreams on every call"
    return Row(figures, targets, note, most_rounds=3)


def _by_size(timed: Callable[[int], float]) -> list[float]:
    """The medians of results of all sizes."""
    sizes = (SIZES[name] for name in THROUGH)
    return [statistics.median(timed(size) for _ in range(10 if size < MEGABYTE else 1)) for size in sizes]


def _results(kind: str) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _proxied(kind, 1, scene) as client:
            big = _published(kind, "big")

            def one_round() -> list[float]:
                return _by_size(lambda size: client.timed_call(big, {"n": size})[0])

            one_round()
            yield one_round

    return opened


def _hung(kind: str) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        file = upstream_file(scene, 20, bad=True, wait_ms=1_500)
        ours = scene.server(scene.scratch, "--config", str(file), "--no-builtin-tools")
        start = ours if kind == OURS else peers.fastmcp(scene, upstreams=file)

        def one_round() -> list[float]:
            with PeerClient(start, HUNG_SECONDS) as client:
                began = time.perf_counter()
                client.listed()
                listed = time.perf_counter() - began + client.seconds_to_first_answer
                called = client.call_median(_published(kind, "echo"), {}, 50)
                return [client.seconds_to_first_answer * 1000, listed * 1000, called]

        yield one_round

    return opened


def _of_each_upstream(kind: str) -> Opener:
    """Memory of the proxy alone for one upstream more, from the difference between 2 and 22."""

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        def held(upstreams: int) -> float:
            if kind in {OURS, FASTMCP}:
                with _proxied(kind, upstreams, scene) as client:
                    for number in range(upstreams):
                        client.call(_published(kind, "echo").replace("u0", f"u{number}"), {})
                    return memory([client.pid])
            with _serving_proxy(kind, scene, upstreams) as (server, _):
                return memory([server.pid])

        def one_round() -> list[float]:
            if kind == SUPERGATEWAY:
                return [held(1)]
            return [(held(22) - held(2)) / 20]

        yield one_round

    return opened


# --- HTTP ------------------------------------------------------------------------------------------------------------


@contextmanager
def _serving_proxy(kind: str, scene: Scene, upstreams: int = 1) -> Generator[tuple[Listening, str]]:
    """A proxy over HTTP, and the path of its first upstream."""
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
        first = KeptConnection(server, path=path)
        first.exchange(first.request("tools/list", {}))
        first.exchange(first.tool_request(_published(kind, "echo"), {}))
        first.close()
        yield server, path


def _many_connections(
    serve: Callable[[Scene], Any], tool: str, arguments: dict[str, Any], most: Sequence[int]
) -> Opener:
    """Calls a second at several numbers of connections, then the memory, then results of all sizes."""

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with serve(scene) as (server, path), ExitStack() as stack:
            clients: list[KeptConnection] = []
            while len(clients) < max(most):
                clients.append(KeptConnection(server, path=path))
                stack.callback(clients[-1].close)

            def one_round() -> list[float]:
                rates = [http_rate(clients[:many], tool, arguments, 2 * SLICE_SECONDS) for many in most]
                return [*rates, memory_of_all(server.pid)]

            one_round()
            yield one_round

    return opened


def _big_over_http(kind: str) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _serving_proxy(kind, scene) as (server, path):
            client = KeptConnection(server, path=path)
            big = _published(kind, "big")

            def one_round() -> list[float]:
                client.connect_again()
                return _by_size(lambda size: client.timed(client.tool_request(big, {"n": size})))

            one_round()
            yield one_round
            client.close()

    return opened


@contextmanager
def _serving_hello(kind: str, scene: Scene) -> Generator[tuple[Listening, str]]:
    port = free_port()
    starts = {
        OURS: lambda: _with_hello(scene, "http", str(port)),
        SDK: lambda: Start([PYTHON, str(SERVERS / "sdk_streamable_http.py"), str(port)]),
        FASTMCP: lambda: peers.fastmcp(scene, port=port),
        EVERYTHING: lambda: peers.everything(scene, port),
    }
    with serving(starts[kind](), port) as server:
        yield server, "/mcp"


def _http_row(what: str, targets: dict[str, Opener], most: Sequence[int], note: str) -> Row:
    rates = (Figure(f"{what}, {many} connection{'s' * (many > 1)}", "/s") for many in most)
    return Row((*rates, Figure(f"{what}, memory under load", "MB")), targets, note, most_rounds=3)


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
            kind: _many_connections(partial(_serving_proxy, kind), _published(kind, "echo"), {}, (1, 50))
            for kind in (OURS, FASTMCP, MCP_PROXY, SUPERGATEWAY)
        },
        (1, 50),
        "one session per connection, and one stdio server for all; supergateway starts a server per session",
    ),
    Row(
        tuple(Figure(f"{size} through a proxy over HTTP") for size in THROUGH),
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
        {name: _starting(begin) for name, begin in {**FILE_SERVERS, **EVERYTHING_STDIO, **MINIMAL}.items()},
        "coretools-mcp loads 24 tools, settings and permissions; the SDK and FastMCP servers have one tool",
        short=(SDK,),
    ),
    Row(
        _small_figures("read of 6 bytes"),
        {
            OURS: _answering(_ours, "read_file", {"absolute_path": "{folder}/small.txt"}),
            FILESYSTEM: _answering(peers.filesystem, "read_text_file", {"path": "{folder}/small.txt"}),
            DESKTOP: _answering(peers.desktop, "read_file", {"path": "{folder}/small.txt"}),
        },
    ),
    Row(
        _small_figures("call that does nothing"),
        {
            OURS: _answering(lambda scene, _: _with_hello(scene), "hello", GREETING),
            EVERYTHING: _answering(EVERYTHING_STDIO[EVERYTHING], "echo", {"message": "x"}),
            **{name: _answering(begin, "hello", GREETING) for name, begin in MINIMAL.items()},
        },
        "coretools-mcp checks permissions and arguments, and has 24 more tools",
        short=(SDK,),
    ),
)

PROXY_ROWS = (
    _relays(1),
    _relays(5),
    _relays(20),
    _relays(100),
    Row(
        tuple(Figure(f"{size} through a proxy") for size in THROUGH),
        {kind: _results(kind) for kind in (OURS, FASTMCP, FLOOR)},
        most_rounds=3,
    ),
    Row(
        tuple(
            Figure(f"20 upstreams, one hung, one crashed: {what}")
            for what in ("first answer", "first list", "call, p50")
        ),
        {kind: _hung(kind) for kind in (OURS, FASTMCP)},
        f"the first list of coretools-mcp waits at most 1.5 s; `none` means no answer within {HUNG_SECONDS:g} s",
        most_rounds=2,
    ),
    Row(
        (Figure("memory per upstream, of 20", "MB"),),
        {kind: _of_each_upstream(kind) for kind in (OURS, FASTMCP, MCP_PROXY, SUPERGATEWAY)},
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
