"""Finding files and text in trees of 50, 5,000 and 150,000 files, compared with ripgrep as a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.line_client import LineClient
from bench.rows import Opener, Round, Row, Scene, in_turn, ripgrep
from bench.trees import FREQUENT, HUGE, LARGE, RARE, SMALL, Tree

GREP_CAP = 100
"""Matches in one answer of our server: the default of `limits.grepMatches`."""

TIMES_SMALL = 20
"""Repetitions in the small tree, in which a call takes a millisecond or two."""


def files_by_time(program: str, folder: Path) -> list[str]:
    """The floor of `glob`: ripgrep's list, a stat of each file, and a sort, as in a script."""
    output = subprocess.run(
        [program, "--no-config", "--files", "-0", "-g", "*.ts"], cwd=folder, check=True, stdout=subprocess.PIPE
    ).stdout
    paths = [os.path.join(folder, os.fsdecode(name)) for name in output.split(b"\0") if name]
    dated_paths = [(-os.stat(path).st_mtime, path) for path in paths]
    dated_paths.sort()
    return [path for _, path in dated_paths]


def matching_lines(program: str, folder: Path, *arguments: str) -> list[bytes]:
    """The floor of `grep_search`: ripgrep's lines."""
    command = [program, "--no-config", "-n", *arguments, "."]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout.splitlines()


def first_lines(program: str, folder: Path, pattern: str, count: int) -> list[bytes]:
    """The floor of a search with a limit: ripgrep, killed after the last line that is needed."""
    command = [program, "--no-config", "-n", pattern, "."]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
    return lines


def _one_process(program: str, folder: Path) -> None:
    """Run ripgrep once to list the files."""
    subprocess.run([program, "--no-config", "--files", "-g", "*.ts"], cwd=folder, check=True, stdout=subprocess.PIPE)


def _check_glob(result: Mapping[str, Any], expected: Sequence[str]) -> None:
    content = result["structuredContent"]
    assert content["total"] == len(expected), (content["total"], len(expected))
    assert set(content["files"]) <= set(expected)


def _glob(tree: Tree, *, of_process: bool = False) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder, program = scene.tree(tree), ripgrep()
        with LineClient(scene.server(folder)) as client:

            def own_time() -> float:
                return client.timed_call("glob", {"pattern": "**/*.ts"})[0]

            def floor() -> object:
                return _one_process(program, folder) if of_process else files_by_time(program, folder)

            _check_glob(client.timed_call("glob", {"pattern": "**/*.ts"})[1], files_by_time(program, folder))
            yield lambda: in_turn(own_time, floor, TIMES_SMALL if tree is SMALL else 1)

    return open_row


def _check_grep(result: Mapping[str, Any], expected: int) -> None:
    facts = result["_meta"]["coretools-mcp/facts"]
    assert facts["matches"] == expected, (facts, expected)


def _grep(tree: Tree, pattern: str, *options: str, cap: int | None = None) -> Opener:
    """Prepare a search.

    Args:
        tree: The tree to search.
        pattern: The pattern to search for.
        options: Options of ripgrep.
        cap: Number of lines after which the floor kills ripgrep; `None` for all lines.
    """

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder, program = scene.tree(tree), ripgrep()
        arguments = {"pattern": pattern, "case_sensitive": "-i" not in options}
        with LineClient(scene.server(folder)) as client:

            def own_time() -> float:
                return client.timed_call("grep_search", arguments)[0]

            def floor() -> list[bytes]:
                if cap is not None:
                    return first_lines(program, folder, pattern, cap)
                return matching_lines(program, folder, *options, pattern)

            _check_grep(client.timed_call("grep_search", arguments)[1], len(floor()))
            yield lambda: in_turn(own_time, floor, TIMES_SMALL if tree is SMALL else 1)

    return open_row


ROWS = (
    Row("glob **/*.ts, 50 files, of one rg process", 1.0, _glob(SMALL, of_process=True)),
    Row("glob **/*.ts, 5,000 files, of rg --files + stat + sort", 2.5, _glob(LARGE)),
    Row("glob **/*.ts, 150,000 files, of rg --files + stat + sort", 2.5, _glob(HUGE)),
    Row("grep rare, 50 files, of rg -n", 1.6, _grep(SMALL, RARE)),
    Row("grep rare, 5,000 files, of rg -n", 1.4, _grep(LARGE, RARE)),
    Row("grep rare, 150,000 files, of rg -n", 1.4, _grep(HUGE, RARE)),
    Row("grep rare in any case, 150,000 files, of rg -n -i", 1.4, _grep(HUGE, RARE, "-i"), informative=True),
    Row(
        "grep frequent, 150,000 files, 100 lines, of rg -n killed then",
        1.3,
        _grep(HUGE, FREQUENT, cap=GREP_CAP),
        informative=True,
    ),
)
