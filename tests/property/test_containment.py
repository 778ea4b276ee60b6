"""For any tree of links: nothing outside the workspace is shown or changed, and links to files inside work."""

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
from tools.contract.call_options import Limits
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
path_spellings = st.lists(targets, min_size=1, max_size=4)


def build(parent: Path, link_targets: list[tuple[str, str]]) -> Path:
    """Create a workspace of folders, files and links, beside two folders whose files contain the marker."""
    root = parent / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "c").mkdir()
    for file in ("f", "a/f", "a/b/f"):
        (root / file).write_text(f"{INSIDE} {file}\n")
    for folder in ("out", "root-evil"):
        (parent / folder / "b").mkdir(parents=True)
        for file in ("f", "a", "b/f", "b/c"):
            (parent / folder / file).write_text(f"{MARKER}\n")
        # The outer folders have links too: one that stays outside, and one back into the workspace.
        (parent / folder / "back").symlink_to(root / "a")
        (parent / folder / "c").symlink_to("b")
    for place, target in link_targets:
        path = root / place
        full_target = target.format(above=parent, root=root) or "."
        if not os.path.lexists(path) and path.parent.is_dir() and contains(str(root), os.path.realpath(path.parent)):
            path.symlink_to(full_target)
    return root


def state_around(parent: Path) -> dict[str, object]:
    """Return the state of everything around the workspace."""
    state: dict[str, object] = {}
    for folder, folders, files in os.walk(parent):
        if Path(folder) == parent:
            folders.remove("root")
        for name in (*folders, *files):
            path = Path(folder) / name
            info = path.lstat()
            state[str(path)] = (info.st_ino, info.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return state


async def call_output(context: ToolContext, name: str, arguments: Mapping[str, Any]) -> str:
    """Call a tool, and return all its output: its question, its result or its error."""
    tool = TOOLS[name]
    try:
        params = tool.validate_tool_params(arguments)
        details = await tool.should_confirm_execute(params, context)
        result = await tool.execute(params, context)
    except ToolError as error:
        return f"[{error.code}] {error.message}"
    return f"{details}{result.llm_content}{result.return_display}{result.structured}{result.facts}"


def is_inside_file(root: Path, path: str) -> bool:
    """Whether, according to the operating system, a path leads to a regular file in the workspace."""
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


async def use_every_tool(context: ToolContext, root: Path, path: str) -> None:
    """Read the path with every tool, then write to it with every tool."""
    full_path = os.path.join(root, path)
    expected_text = Path(full_path).read_text() if is_inside_file(root, full_path) and not path.endswith("/") else None
    output = await call_output(context, "read_file", {"file_path": path})
    assert MARKER not in output
    assert expected_text is None or expected_text.strip() in output, (path, output)
    for call in READS:
        output = await call_output(context, *call(path))
        assert MARKER not in output, (path, output)
    for call in CHANGES:
        output = await call_output(context, *call(path))
        assert MARKER not in output, (path, output)
    if expected_text is not None:
        assert Path(full_path).read_text() == "written"


def check(link_targets: list[tuple[str, str]], paths: list[str]) -> None:
    async def use_all_paths(parent: Path) -> None:
        root = build(parent, link_targets)
        initial_state = state_around(parent)
        link_paths = [place for place, _ in link_targets]
        for path in [".", *paths, *link_paths, *(f"{place}/f" for place in link_paths)]:
            context = ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))
            await use_every_tool(context, root, path.format(above=parent, root=root))
            assert state_around(parent) == initial_state, path

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(use_all_paths, Path(folder).resolve())


@pytest.mark.requirement("paths.links")
@settings(max_examples=12, deadline=None, database=None)
@given(links, path_spellings)
def test_no_tree_of_links_shows_or_changes_what_is_outside(
    link_targets: list[tuple[str, str]], paths: list[str]
) -> None:
    check(link_targets, paths)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("paths.links")
@settings(max_examples=1_500, deadline=None, database=None)
@given(links, path_spellings)
def test_no_tree_of_links_shows_or_changes_what_is_outside_long(
    link_targets: list[tuple[str, str]], paths: list[str]
) -> None:
    check(link_targets, paths)
