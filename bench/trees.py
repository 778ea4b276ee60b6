"""Source trees to search: the same files with the same bytes on every machine, built once and kept between runs.

python bench/trees.py [--trees DIR]     builds what is missing and prints where it is
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 2026
VERSION = 1
"""Raise it with every change of what is generated: kept trees of another version are not used."""

RARE = "retryBudgetExhausted"
"""Stands on one line of each of `RARE_FILES` files; `retryBudget` alone is an everyday word."""

RARE_FILES = 9
"""Or every file, in a tree that has fewer."""

FREQUENT = "const"
"""Stands on several lines of nearly every file."""

BODIES = 64
"""Different file contents; what tells files apart is their first line."""

FIRST_DAY = 1_577_836_800
"""The first second of 2020. Files are dated within the three years after it, so none counts as recently changed."""

THREE_YEARS = 3 * 365 * 24 * 60 * 60

OTHER_SUFFIXES = ("tsx", "js", "json", "md", "css", "py", "yaml", "snap")

WORDS = (  # noqa: SIM905 - forty lines of one word each are harder to read
    "request response retryBudget handler session cache stream buffer token parser event signal config option "
    "workspace path result error message client server upstream schema value index entry folder limit offset "
    "timeout deadline pending resolve reject queue worker thread process output input render component"
).split()

FOLDERS = (  # noqa: SIM905 - as above
    "src src/core src/ui tests docs src/core/io src/ui/parts tests/data src/tools src/ui/parts/forms scripts "
    "src/core/io/net src/services tests/ui src/types docs/guides src/tools/web src/ui/hooks src/services/auth "
    "src/ui/parts/lists tests/tools src/core/state config src/commands"
).split()
"""In every package; a tree takes as many as it needs."""

SHAPES = (
    "  const {a} = await {b}.{c}({d});",
    "  if ({a}.{b} === undefined) {{",
    "    throw new Error(`{a} of {b} is missing: ${{{c}}}`);",
    "  }}",
    "export function {a}{b}({c}: string, {d}: number): void {{",
    "  return {a}.map(({b}) => {b}.{c});",
    "}}",
    "",
    "// The {a} keeps its {b} until the {c} of the {d} is over.",
    "import {{ {a}, {b} }} from './{c}/{d}.js';",
    "  this.{a} = options.{b} ?? default{c};",
    "  expect({a}.{b}).toEqual({c}[{d}]);",
)


@dataclass(frozen=True, slots=True)
class Tree:
    """What a tree is made of.

    Args:
        name: Its folder.
        packages: Folders in it that are laid out alike, each with an ignore file of its own.
        folders: How many of `FOLDERS` a package has.
        typescript: `*.ts` files that no ignore file hides.
        others: All other files that none hides, besides the ignore files.
        ignored: Files in folders that ignore files hide, `*.ts` among them.
        lines: The least and the most lines of a file.
    """

    name: str
    packages: int
    folders: int
    typescript: int
    others: int
    ignored: int
    lines: tuple[int, int]

    @property
    def kept(self) -> int:
        """Files that a search comes by."""
        return self.typescript + self.others


SMALL = Tree("small", 2, 4, 20, 28, 0, (20, 300))
LARGE = Tree("large", 40, 12, 3_266, 1_734, 500, (20, 400))
HUGE = Tree("huge", 120, 24, 12_000, 18_000, 120_000, (10, 80))
TREES = (SMALL, LARGE, HUGE)

IGNORED_FOLDERS = ("node_modules/{word}/lib", "dist/{word}", "build/{word}", "vendor/{word}/src")
"""By package: the first is hidden by the ignore file at the top, the others by the package's own."""

PACKAGE_IGNORE = "# what is built\n/dist/\nbuild/\nvendor\n*.log\n!keep.log\n"
TOP_IGNORE = "node_modules/\n.venv/\n*.tmp\n.DS_Store\ncoverage/**\n"


def keeping_folder(chosen: Path | None = None) -> Path:
    """Where trees are kept: below the chosen folder, or the one for temporary files."""
    base = chosen or Path(tempfile.gettempdir()) / f"coretools-bench-{os.getuid()}"
    return base.resolve() / f"trees-{SEED}-{VERSION}"


def ready(tree: Tree, base: Path) -> Path:
    """The folder of a tree; built beside its place and renamed, so that it is there whole or not at all.

    Args:
        tree: Which one.
        base: The folder that keeps the trees.
    """
    place = base / tree.name
    if place.is_dir():
        return place
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    print(f"building {tree.kept + tree.ignored:,} files in {place}", file=sys.stderr, flush=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{tree.name}-", dir=base))
    try:
        _build(tree, beside)
        beside.rename(place)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if not (isinstance(error, OSError) and place.is_dir()):  # another run was quicker
            raise
    return place


def _build(tree: Tree, folder: Path) -> None:
    rng = random.Random(f"{SEED}:{tree.name}")
    git = folder / ".git"
    for name in ("objects", "refs/heads", "info"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    _write(folder / ".gitignore", TOP_IGNORE.encode(), rng)
    for package in range(tree.packages):
        _write(_made(folder / _package(package)) / ".gitignore", PACKAGE_IGNORE.encode(), rng)
    bodies = [_body(rng, tree.lines) for _ in range(BODIES)]
    paths = list(_kept_paths(tree, rng))
    rare = set(rng.sample(paths, min(RARE_FILES, len(paths))))
    for path in (*paths, *_ignored_paths(tree, rng)):
        body = rng.choice(bodies)
        if path in rare:
            body += f"  throw new Error({RARE});\n".encode()
        _write(_made(folder / path.rpartition("/")[0]) / path.rpartition("/")[2], f"// {path}\n".encode() + body, rng)


_known: set[Path] = set()


def _made(folder: Path) -> Path:
    if folder not in _known:
        folder.mkdir(parents=True, exist_ok=True)
        _known.add(folder)
    return folder


def _package(number: int) -> str:
    return f"packages/{WORDS[number % len(WORDS)].lower()}-{number:03d}"


def _kept_paths(tree: Tree, rng: random.Random) -> Iterator[str]:
    """The paths that a search comes by, spread evenly over the packages and unevenly over their folders."""
    for number in range(tree.kept):
        suffix = "ts" if number < tree.typescript else OTHER_SUFFIXES[number % len(OTHER_SUFFIXES)]
        folder = FOLDERS[int(rng.triangular(0, tree.folders, 0))]
        yield f"{_package(number % tree.packages)}/{folder}/{rng.choice(WORDS)}{number:05d}.{suffix}"


def _ignored_paths(tree: Tree, rng: random.Random) -> Iterator[str]:
    for number in range(tree.ignored):
        below = IGNORED_FOLDERS[number % len(IGNORED_FOLDERS)].format(word=rng.choice(WORDS[:20]))
        suffix = "ts" if number % 10 == 0 else "js"
        yield f"{_package(number % tree.packages)}/{below}/{rng.choice(WORDS)}{number:06d}.{suffix}"


def _body(rng: random.Random, lines: tuple[int, int]) -> bytes:
    count = int(rng.triangular(lines[0], lines[1], lines[0]))
    written = (
        rng.choice(SHAPES).format(a=rng.choice(WORDS), b=rng.choice(WORDS), c=rng.choice(WORDS), d=rng.choice(WORDS))
        for _ in range(count)
    )
    return ("\n".join(written) + "\n").encode()


def _write(path: Path, data: bytes, rng: random.Random) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, data)
        date = FIRST_DAY + rng.randrange(THREE_YEARS)
        os.utime(descriptor, (date, date))
    finally:
        os.close(descriptor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=Path, metavar="DIR", help="where trees are kept between runs")
    base = keeping_folder(parser.parse_args().trees)
    for tree in TREES:
        started = time.perf_counter()
        print(ready(tree, base), f"{time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
