"""How the work of this server grows with the size of its input: an exponent per row; 1 means linear growth.

The fixed cost of a call, as measured at the smallest size, is subtracted. Values below a millisecond are then ignored.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.file_rows import numbered_file, touch
from bench.interleaved import PeerClient, memory
from bench.line_client import text_of
from bench.proxy_rows import BARE
from bench.rows import MEGABYTE, Scene
from bench.trees import RARE, Tree

MAX_EXPONENT = 1.05
NOISE = 1.0
"""Differences from the smallest size, in milliseconds or megabytes, that count as noise."""

Amount = Callable[[int], float]
"""Measures one size."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One kind of work.

    Args:
        name: What is measured, and what the sizes count.
        sizes: The sizes, in ascending order.
        open: A context manager that prepares the measurement.
        unit: Unit of the values.
    """

    name: str
    sizes: tuple[int, ...]
    open: Callable[[Scene, Sequence[int]], AbstractContextManager[Amount]]
    unit: str = "ms"

    def measure(self, scene: Scene, rounds: int) -> list[float]:
        """Return the minimum over all rounds for each size, because other load can only add to the values."""
        with self.open(scene, self.sizes) as amount:
            for size in self.sizes:
                amount(size)
            values_by_round = [[amount(size) for size in self.sizes] for _ in range(rounds)]
        return [min(values) for values in zip(*values_by_round, strict=True)]


def exponent(sizes: Sequence[int], durations: Sequence[float]) -> float:
    """Return the slope of a line through the logarithms of the growth, or 0 if nothing grows."""
    points = [
        (math.log(size), math.log(value - durations[0]))
        for size, value in zip(sizes, durations, strict=False)
        if value - durations[0] > max(NOISE, durations[0] / 10)
    ]
    if len(points) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _tree(files: int) -> Tree:
    """Return a tree of small files, without ignored ones."""
    packages = max(1, files // 1_250)
    return Tree(
        f"growth-{files}", packages, 24 if packages > 1 else 4, files * 2 // 5, files - files * 2 // 5, 0, (3, 9)
    )


def _in_tree(tool: str, arguments: dict[str, Any]) -> Callable[[Scene, Sequence[int]], AbstractContextManager[Amount]]:
    @contextmanager
    def open_row(scene: Scene, sizes: Sequence[int]) -> Generator[Amount]:
        with ExitStack() as stack:
            clients = {
                size: stack.enter_context(PeerClient(scene.server(scene.tree(_tree(size))), 60.0)) for size in sizes
            }
            yield lambda files: clients[files].timed_call(tool, arguments)[0]

    return open_row


@contextmanager
def _listing(scene: Scene, sizes: Sequence[int]) -> Generator[Amount]:
    folder = scene.folder("growing-folders")
    for size in sizes:
        (folder / str(size)).mkdir()
        for number in range(size):
            (folder / str(size) / f"file{number:06d}.txt").touch()
    with PeerClient(scene.server(folder)) as client:
        yield lambda size: client.timed_call("list_directory", {"path": str(folder / str(size))})[0]


def _sparse(path: Path, size: int) -> None:
    """Write a sparse file with text at both ends."""
    numbered_file(path, min(size, 400_000))
    content = path.read_bytes()[: min(size, 400_000)]
    with path.open("wb") as file:
        file.write(content)
        if size > 2 * len(content):
            os.truncate(path, size - len(content))
            file.seek(size - len(content))
            file.write(content)


def _in_file(
    tool: str, arguments: dict[str, Any], make: Callable[[Path, int], object], *, changes: bool = False
) -> Callable[[Scene, Sequence[int]], AbstractContextManager[Amount]]:
    @contextmanager
    def open_row(scene: Scene, sizes: Sequence[int]) -> Generator[Amount]:
        folder = scene.folder("growing-files")
        for size in sizes:
            make(folder / f"{size}.txt", size)
        with PeerClient(scene.server(folder, "--approval-mode", "auto-edit"), 60.0) as client:

            def amount(size: int) -> float:
                path = folder / f"{size}.txt"
                call_arguments = {
                    name: value.format(path) if isinstance(value, str) else value for name, value in arguments.items()
                }
                if changes:
                    words = ("line 00000005 of a", "line 00000005 of the")
                    old, new = words if words[0].encode() in path.read_bytes()[:2_000] else words[::-1]
                    call_arguments |= {"old_string": old, "new_string": new}
                else:
                    touch(path)
                duration, result = client.timed_call(tool, call_arguments)
                assert text_of(result)
                return duration

            yield amount
        shutil.rmtree(folder)

    return open_row


def _of_tools(measure: Callable[[PeerClient], float]) -> Callable[[Scene, Sequence[int]], Any]:
    """Prepare servers with one upstream each, whose many tools are all listed."""

    @contextmanager
    def open_row(scene: Scene, sizes: Sequence[int]) -> Generator[Amount]:
        with ExitStack() as stack:
            clients: dict[int, PeerClient] = {}
            for size in sizes:
                config = scene.folder(f"tools-{size}") / "config.json"
                entry = {"command": BARE[0], "args": [*BARE[1:], str(size)], "trust": True, "protocol": "legacy"}
                proxy = {"firstListWait": 30_000, "search": "off"}
                config.write_text(json.dumps({"mcpServers": {"u0": entry}, "proxy": proxy}))
                start = scene.server(scene.scratch, "--config", str(config), "--no-builtin-tools")
                clients[size] = stack.enter_context(PeerClient(start, 60.0))
                assert len(clients[size].tool_names()) == size
            yield lambda size: measure(clients[size])

    return open_row


TREES = (50, 1_000, 20_000, 300_000)
BYTES = (1_000, 100_000, 10 * MEGABYTE, 1_000 * MEGABYTE, 10_000 * MEGABYTE)
TEXTS = (1_000, 100_000, 10 * MEGABYTE, 100 * MEGABYTE)
EDITED = (1_000, 100_000, MEGABYTE, 10 * MEGABYTE)
TOOLS = (10, 100, 1_000, 10_000)

ROWS = (
    Growth("files by name, by files", TREES, _in_tree("glob", {"pattern": "**/*.ts"})),
    Growth("rare text, by files", TREES, _in_tree("grep_search", {"pattern": RARE})),
    Growth("list of a folder, by entries", (50, 1_000, 10_000, 100_000), _listing),
    Growth(
        "first 200 lines, by bytes (sparse)",
        BYTES,
        _in_file("read_file", {"absolute_path": "{}", "limit": 200}, _sparse),
    ),
    Growth(
        "last 200 lines, by bytes (sparse)",
        BYTES,
        _in_file("read_file", {"absolute_path": "{}", "offset": -200}, _sparse),
    ),
    Growth(
        "rare text in one file, by bytes",
        TEXTS,
        _in_file("grep_search", {"path": "{}", "pattern": "line 00000007"}, numbered_file),
    ),
    Growth("edit of one line, by bytes", EDITED, _in_file("edit", {"file_path": "{}"}, numbered_file, changes=True)),
    Growth("list of tools, by tools", TOOLS, _of_tools(lambda client: client.timed_request("tools/list", {})[0])),
    Growth("tool call, by number of tools", TOOLS, _of_tools(lambda client: client.call_median("u0__echo", {}, 200))),
    Growth("memory, by tools", TOOLS, _of_tools(lambda client: memory([client.pid])), "MB"),
)
