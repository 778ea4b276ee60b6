"""Source trees to search: the same files with the same content on every machine, built once and kept between runs.

python bench/trees.py [--trees DIR]     builds missing trees, and prints their folders
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
"""Increase it with every change of the generated content: trees of other versions are not used."""

RARE = "retryBudgetExhausted"
"""Occurs on one line of each of `RARE_FILES` files; `retryBudget` alone is a common word."""

RARE_FILES = 9
"""In a tree with fewer files, every file has it."""

FREQUENT = "const"
"""Occurs on several lines of nearly every file."""

BODIES = 64
"""Number of different file bodies. Only the first line of each file is unique."""

FIRST_DAY = 1_577_836_800
"""The first second of 2020. File dates are within three years after it, so that no file counts as recently changed."""

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
"""Folders of each package; a tree uses as many as it needs."""

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
    """The description of a tree.

    Args:
        name: Name of its folder.
        packages: Number of packages: folders with the same layout and their own ignore file.
        folders: Number of `FOLDERS` in each package.
        typescript: Number of `*.ts` files that are not ignored.
        others: Number of other files that are not ignored, without the ignore files.
        ignored: Number of files in ignored folders, some of them `*.ts`.
        lines: Minimum and maximum number of lines per file.
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
        """The number of files that a search visits."""
        return self.typescript + self.others


SMALL = Tree("small", 2, 4, 20, 28, 0, (20, 300))
LARGE = Tree("large", 40, 12, 3_266, 1_734, 500, (20, 400))
HUGE = Tree("huge", 120, 24, 12_000, 18_000, 120_000, (10, 80))
TREES = (SMALL, LARGE, HUGE)

IGNORED_FOLDERS = ("node_modules/{word}/lib", "dist/{word}", "build/{word}", "vendor/{word}/src")
"""Ignored folders: the first by the top ignore file, the others by that of the package."""

PACKAGE_IGNORE = "# what is built\n/dist/\nbuild/\nvendor\n*.log\n!keep.log\n"
TOP_IGNORE = "node_modules/\n.venv/\n*.tmp\n.DS_Store\ncoverage/**\n"


def storage_folder(base_folder: Path | None = None) -> Path:
    """Return the folder that stores trees: in the given folder, or in the folder for temporary files."""
    base = base_folder or Path(tempfile.gettempdir()) / f"coretools-bench-{os.getuid()}"
    return base.resolve() / f"trees-{SEED}-{VERSION}"


def built_tree(tree: Tree, base: Path) -> Path:
    """Return the folder of a tree, and build it first if necessary.

    It is built in a temporary folder and renamed, so that the folder is complete or absent.

    Args:
        tree: The tree.
        base: The folder that stores the trees.
    """
    target_folder = base / tree.name
    if target_folder.is_dir():
        return target_folder
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    print(f"building {tree.kept + tree.ignored:,} files in {target_folder}", file=sys.stderr, flush=True)
    temporary_folder = Path(tempfile.mkdtemp(prefix=f".{tree.name}-", dir=base))
    try:
        _build(tree, temporary_folder)
        temporary_folder.rename(target_folder)
    except BaseException as error:
        shutil.rmtree(temporary_folder, ignore_errors=True)
        if not (isinstance(error, OSError) and target_folder.is_dir()):  # another run was faster
            raise
    return target_folder


def _build(tree: Tree, folder: Path) -> None:
    rng = random.Random(f"{SEED}:{tree.name}")
    git = folder / ".git"
    for name in ("objects", "refs/heads", "info"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    _write(folder / ".gitignore", TOP_IGNORE.encode(), rng)
    for package in range(tree.packages):
        _write(_create_folder(folder / _package(package)) / ".gitignore", PACKAGE_IGNORE.encode(), rng)
    bodies = [_body(rng, tree.lines) for _ in range(BODIES)]
    paths = list(_kept_paths(tree, rng))
    rare = set(rng.sample(paths, min(RARE_FILES, len(paths))))
    for path in (*paths, *_ignored_paths(tree, rng)):
        body = rng.choice(bodies)
        if path in rare:
            body += f"  throw new Error({RARE});\n".encode()
        _write(
            _create_folder(folder / path.rpartition("/")[0]) / path.rpartition("/")[2],
            f"// {path}\n".encode() + body,
            rng,
        )


_created_folders: set[Path] = set()


def _create_folder(folder: Path) -> Path:
    if folder not in _created_folders:
        folder.mkdir(parents=True, exist_ok=True)
        _created_folders.add(folder)
    return folder


def _package(number: int) -> str:
    return f"packages/{WORDS[number % len(WORDS)].lower()}-{number:03d}"


def _kept_paths(tree: Tree, rng: random.Random) -> Iterator[str]:
    """Yield the paths that are not ignored, spread evenly over the packages and unevenly over their folders."""
    for number in range(tree.kept):
        suffix = "ts" if number < tree.typescript else OTHER_SUFFIXES[number % len(OTHER_SUFFIXES)]
        folder = FOLDERS[int(rng.triangular(0, tree.folders, 0))]
        yield f"{_package(number % tree.packages)}/{folder}/{rng.choice(WORDS)}{number:05d}.{suffix}"


def _ignored_paths(tree: Tree, rng: random.Random) -> Iterator[str]:
    for number in range(tree.ignored):
        folder = IGNORED_FOLDERS[number % len(IGNORED_FOLDERS)].format(word=rng.choice(WORDS[:20]))
        suffix = "ts" if number % 10 == 0 else "js"
        yield f"{_package(number % tree.packages)}/{folder}/{rng.choice(WORDS)}{number:06d}.{suffix}"


def _body(rng: random.Random, lines: tuple[int, int]) -> bytes:
    count = int(rng.triangular(lines[0], lines[1], lines[0]))
    lines_of_text = (
        rng.choice(SHAPES).format(a=rng.choice(WORDS), b=rng.choice(WORDS), c=rng.choice(WORDS), d=rng.choice(WORDS))
        for _ in range(count)
    )
    return ("\n".join(lines_of_text) + "\n").encode()


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
    parser.add_argument("--trees", type=Path, metavar="DIR", help="folder that keeps trees between runs")
    base = storage_folder(parser.parse_args().trees)
    for tree in TREES:
        start = time.perf_counter()
        print(built_tree(tree, base), f"{time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
