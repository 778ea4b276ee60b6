"""Links to folders in `glob`, `grep_search` and `read_many_files`: they are followed if the pattern names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.read_file import ReadManyFilesTool
from tools.builtin.search_tools import GlobTool, GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import Deadline
from tools.files.find.folder_walk import MAX_LINKED, Filters, Walk, walk_notes
from tools.files.find.glob_search import compile_glob
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def linked_root(root: Path, tmp_path: Path) -> Path:
    """A workspace with files, and with links to folders inside and outside it."""
    files = ("sub/deep.txt", "sub/inner/q.txt", "vault/key.txt", "node_modules/lib/l.txt", "a/b/c.txt")
    for path in (*(root / name for name in files), tmp_path / "outside" / "o.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("needle\n")
    links = {"linkdir": "sub", "chain": "linkdir", "sub/il": "inner", "a/b/linkdir": "../../sub", "loop": "."}
    links |= {"out": str(tmp_path / "outside"), "safe": "vault", "lib": "node_modules/lib", "nowhere": "absent"}
    links["my-link"] = "sub"
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


async def glob(context: ToolContext, pattern: str) -> tuple[set[str], str]:
    tool = GlobTool()
    result = await tool.execute(tool.validate_tool_params({"pattern": pattern}), context)
    assert result.structured is not None
    assert result.structured["total"] == len(result.structured["files"])
    root = Path(context.workspace.first_root)
    return {str(Path(path).relative_to(root)) for path in result.structured["files"]}, str(result.llm_content)


async def grep(context: ToolContext, pattern: str) -> tuple[set[str], str]:
    tool = GrepTool()
    result = await tool.execute(tool.validate_tool_params({"pattern": "needle", "glob": pattern}), context)
    paths = re.findall(r"^File: (.*)$", str(result.llm_content), re.MULTILINE)
    assert result.facts["matches"] == len(paths)
    return set(paths), str(result.llm_content)


async def read_many(context: ToolContext, pattern: str) -> tuple[set[str], str]:
    tool = ReadManyFilesTool()
    result = await tool.execute(tool.validate_tool_params({"paths": [pattern]}), context)
    root = Path(context.workspace.first_root)
    return {str(Path(path).relative_to(root)) for path in result.facts["files"]}, str(result.llm_content)


TOOLS: list[Callable[[ToolContext, str], Any]] = [glob, grep, read_many]
DEEP, INNER, LIBRARY = "sub/deep.txt", "sub/inner/q.txt", "node_modules/lib/l.txt"
PATTERNS = {
    "linkdir/*.txt": {DEEP},
    "./linkdir/**": {DEEP, INNER},
    "chain/il/*.txt": {INNER},
    "**/linkdir/*.txt": {DEEP},
    "a/**/linkdir/**/*.txt": {DEEP, INNER},
    "{linkdir,sub,a/b}/*.txt": {DEEP, "a/b/c.txt"},
    "loop/**/deep.txt": {DEEP},
    "**/loop/**/loop/sub/*.txt": {DEEP},
    "lib/*": {LIBRARY},
    "my-link/*.txt": {DEEP},
    "my\u2011link/*.txt": {DEEP},
    "nowhere/*": set[str](),
    "link*/*.txt": set[str](),
    "*/deep.txt": {DEEP},
    "linkdir": set[str](),
}


@pytest.mark.requirement("glob.linked_folders")
async def test_a_link_that_the_pattern_names_is_followed_and_no_other(linked_root: Path, context: ToolContext) -> None:
    for pattern, files in PATTERNS.items():
        for tool in TOOLS:
            # For read_many_files, the path of a link to a folder names that folder.
            if (pattern, tool) != ("linkdir", read_many):
                assert (await tool(context, pattern))[0] == files, (pattern, tool.__name__)


@pytest.mark.requirement("glob.linked_folders")
async def test_no_link_leads_outside_or_past_a_rule(linked_root: Path, context: ToolContext) -> None:
    (linked_root / ".qwenignore").write_text("/vault/\n/chain\n")
    (linked_root / ".gitignore").write_text("/lib\n")
    (linked_root / ".git").mkdir()
    forbidden = str(linked_root / "sub" / "inner")
    rules = replace(
        context,
        workspace=Workspace([str(linked_root)], forbidden=lambda path: "Read" if path.startswith(forbidden) else None),
    )
    for pattern in ("out/*", "safe/*", "chain/*.txt", "lib/*", "linkdir/inner/*", "sub/il/*", "loop/vault/*"):
        for tool in TOOLS:
            files, text = await tool(rules, pattern)
            assert files == set(), (pattern, tool.__name__)
            assert "o.txt" not in text
            assert "key.txt" not in text
    assert "was not followed, because it leads outside the workspace" in (await glob(rules, "out/*"))[1]
    assert (await glob(rules, "linkdir/**"))[0] == {DEEP}
    assert (await grep(rules, "linkdir/**"))[0] == {DEEP}


@pytest.mark.requirement("glob.linked_folders")
async def test_if_nothing_is_found_the_result_says_that_other_links_are_not_followed(
    linked_root: Path, context: ToolContext
) -> None:
    assert "followed only if the pattern names them" in (await glob(context, "link*/*.txt"))[1]
    assert "followed only" not in (await glob(context, "sub/*.py"))[1]
    assert "Not searched: ignored files, symlinks," in (await grep(context, "link*/*.txt"))[1]


@pytest.mark.requirement("glob.linked_folders")
async def test_a_file_that_is_also_reached_through_a_link_counts_as_searched_once(
    linked_root: Path, context: ToolContext
) -> None:
    tool = GrepTool()
    for pattern in ("sub/*.txt", "{linkdir,sub}/*.txt"):
        result = await tool.execute(tool.validate_tool_params({"pattern": "absent", "glob": pattern}), context)
        assert "; 1 file searched" in str(result.llm_content)


@pytest.mark.requirement("glob.linked_folders")
async def test_if_there_are_too_many_links_as_many_as_allowed_are_followed(root: Path, context: ToolContext) -> None:
    names = [f"link{number}" for number in range(MAX_LINKED + 1)]
    (root / "sub").mkdir()
    (root / "sub" / "deep.txt").touch()
    for name in names:
        (root / name).symlink_to("sub")
    tool = GlobTool()
    result = await tool.execute(tool.validate_tool_params({"pattern": f"{{{','.join(names)}}}/*.txt"}), context)
    assert result.structured is not None
    assert result.structured["files"] == [str(root / "sub" / "deep.txt")]
    assert str(result.llm_content).count("only 100 symlinks to folders were followed") == 1


@pytest.mark.requirement("glob.linked_folders")
def test_circular_links_are_followed_only_a_limited_number_of_times(linked_root: Path, context: ToolContext) -> None:
    for name in "abcdefgh":
        (linked_root / "sub" / name).symlink_to("..")
    walk = Walk(context.workspace, Filters(links=True), Deadline(context.signal, 30))
    start = context.workspace.locate(".")
    position = compile_glob("**/{a,b,c,d,e,f,g,h,linkdir}/**/{a,b,c}/**", ignore_case=False).start
    walked_folders = [
        folder.path for folder, selection in walk.through_links(start, position) if [*walk.files(folder, selection)]
    ]
    assert len(walked_folders) <= MAX_LINKED + 1
    assert "only 100 symlinks to folders were followed" in " ".join(walk_notes(walk))
