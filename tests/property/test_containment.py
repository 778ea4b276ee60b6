"""For any tree of links: nothing outside is ever shown or changed, and what leads inside stays within reach."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.limits import Limits
from tools.contract.tool_errors import ToolError
from tools.files.workspace import Workspace, contains

MARKER = "OUTSIDE-7c1f"
INSIDE = "inside"
NAMES = ["a", "b", "c", "f"]

Call = tuple[str, Mapping[str, Any]]

TOOLS = {tool.name: tool for tool in builtin_tools()}

steps = st.lists(st.sampled_from([*NAMES, "..", "..", ".", "out", "root-evil", "root", ""]), min_size=1, max_size=5)
starts = st.sampled_from(["", "", "", "{above}/root/", "{above}/out/", "{above}/", "{root}/a/../", "{root}//"])
targets = st.tuples(starts, steps).map(lambda parts: parts[0] + "/".join(parts[1]))
places = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map("/".join)
links = st.lists(st.tuples(places, targets), min_size=1, max_size=6)
spelled = st.lists(targets, min_size=1, max_size=4)


def build(above: Path, wanted: list[tuple[str, str]]) -> Path:
    """A workspace of folders, files and links, and around it two folders that hold the marker under the same names."""
    root = above / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "c").mkdir()
    for file in ("f", "a/f", "a/b/f"):
        (root / file).write_text(f"{INSIDE} {file}\n")
    for folder in ("out", "root-evil"):
        (above / folder / "b").mkdir(parents=True)
        for file in ("f", "a", "b/f", "b/c"):
            (above / folder / file).write_text(f"{MARKER}\n")
        # Outside there are links too: out, and back into the workspace.
        (above / folder / "back").symlink_to(root / "a")
        (above / folder / "c").symlink_to("b")
    for place, target in wanted:
        path = root / place
        filled = target.format(above=above, root=root) or "."
        if not os.path.lexists(path) and path.parent.is_dir() and contains(str(root), os.path.realpath(path.parent)):
            path.symlink_to(filled)
    return root


def outside_of(above: Path) -> dict[str, object]:
    """All that lies around the workspace."""
    state: dict[str, object] = {}
    for folder, folders, files in os.walk(above):
        if Path(folder) == above:
            folders.remove("root")
        for name in (*folders, *files):
            path = Path(folder) / name
            info = path.lstat()
            state[str(path)] = (info.st_ino, info.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return state


async def said(context: ToolContext, name: str, arguments: Mapping[str, Any]) -> str:
    """Everything that one call gives back, its question and its failure included."""
    tool = TOOLS[name]
    try:
        params = tool.validate_tool_params(arguments)
        details = await tool.should_confirm_execute(params, context)
        result = await tool.execute(params, context)
    except ToolError as error:
        return f"[{error.code}] {error.message}"
    return f"{details}{result.llm_content}{result.return_display}{result.structured}{result.facts}"


def is_inside_file(root: Path, path: str) -> bool:
    """Whether the system itself says that a path leads to a regular file of the workspace."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
    except OSError:
        return False
    return contains(str(root), os.path.realpath(path))


READS: list[Callable[[str], Call]] = [
    lambda path: ("list_directory", {"path": path}),
    lambda path: ("glob", {"pattern": "**/*", "path": path}),
    lambda path: ("glob", {"pattern": path or "*"}),
    lambda path: ("grep_search", {"pattern": "OUTSIDE|inside", "path": path}),
    lambda path: ("read_many_files", {"paths": [path or ".", f"{path}/**", f"{path}*"]}),
]
CHANGES: list[Callable[[str], Call]] = [
    lambda path: ("edit", {"file_path": path, "old_string": "7c1f", "new_string": "changed"}),
    lambda path: ("edit", {"file_path": path, "old_string": "", "new_string": "made"}),
    lambda path: ("write_file", {"file_path": f"{path}/new/deep", "content": "made"}),
    lambda path: ("write_file", {"file_path": path, "content": "written"}),
]


async def use(context: ToolContext, root: Path, path: str) -> None:
    """Read by every tool, then write by every tool."""
    there = os.path.join(root, path)
    expected = Path(there).read_text() if is_inside_file(root, there) and not path.endswith("/") else None
    shown = await said(context, "read_file", {"file_path": path})
    assert MARKER not in shown
    assert expected is None or expected.strip() in shown, (path, shown)
    for call in READS:
        told = await said(context, *call(path))
        assert MARKER not in told, (path, told)
    for call in CHANGES:
        told = await said(context, *call(path))
        assert MARKER not in told, (path, told)
    if expected is not None:
        assert Path(there).read_text() == "written"


def check(wanted: list[tuple[str, str]], paths: list[str]) -> None:
    async def use_all(above: Path) -> None:
        root = build(above, wanted)
        before = outside_of(above)
        linked = [place for place, _ in wanted]
        for path in [".", *paths, *linked, *(f"{place}/f" for place in linked)]:
            context = ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))
            await use(context, root, path.format(above=above, root=root))
            assert outside_of(above) == before, path

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(use_all, Path(folder).resolve())


@pytest.mark.requirement("paths.links")
@settings(max_examples=12, deadline=None, database=None)
@given(links, spelled)
def test_no_tree_of_links_shows_or_changes_what_is_outside(wanted: list[tuple[str, str]], paths: list[str]) -> None:
    check(wanted, paths)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("paths.links")
@settings(max_examples=1_500, deadline=None, database=None)
@given(links, spelled)
def test_no_tree_of_links_shows_or_changes_what_is_outside_long(
    wanted: list[tuple[str, str]], paths: list[str]
) -> None:
    check(wanted, paths)
