"""What permission rules forbid to read is left out wherever something is found, listed, searched or completed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.find_files import GlobTool, GrepTool, LSTool
from tools.builtin.read_file import ReadManyFilesTool
from tools.call.base_tool import BaseTool, ToolContext
from tools.contract.limits import AbortSignal
from tools.contract.permission_subjects import Access, PathSubject
from tools.contract.tool_errors import PathNotInWorkspaceError
from tools.contract.tool_results import ToolResult
from tools.files.find.path_suggestions import entries_that_start_with, files_containing
from tools.files.ignore_files import HiddenBy, scope_of
from tools.files.search.content_search import MAX_SORTED
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@dataclass(frozen=True)
class Rules:
    """Rules that forbid some paths with all that is below."""

    paths: tuple[Path, ...]

    def __call__(self, path: str) -> str | None:
        for forbidden in self.paths:
            if Path(path).is_relative_to(forbidden):
                return f"Read({forbidden.name})"
        return None


@pytest.fixture
def guarded(root: Path, context: ToolContext) -> ToolContext:
    """A folder and a file are forbidden; links lead to both, and nothing else respects any rule."""
    (root / "vault" / "deep").mkdir(parents=True)
    (root / "src").mkdir()
    for path in ("vault/a.txt", "vault/deep/b.txt", "src/key.pem", "src/main.txt", "open.txt"):
        (root / path).write_text(f"{SECRET} in {path}\n")
    (root / "src" / "link-to-vault.txt").symlink_to("../vault/a.txt")
    (root / "link-to-key.txt").symlink_to("src/key.pem")
    rules = Rules((root / "vault", root / "src" / "key.pem"))
    workspace = Workspace([str(root)], respect_git_ignore=False, respect_agent_ignore=False, forbidden=rules)
    return replace(context, workspace=workspace)


HIDDEN = ("vault/", "a.txt", "b.txt", "key.pem:", "key.pem ")
"""What no answer says, but of where a link points."""


async def answer(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> ToolResult:
    return await tool.execute(tool.validate_tool_params(arguments), context)


def text_of(result: ToolResult) -> str:
    parts = result.llm_content if isinstance(result.llm_content, list) else [result.llm_content]
    return "\n".join(str(part) for part in parts)


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_a_listing_leaves_out_what_is_forbidden_and_counts_it(guarded: ToolContext) -> None:
    off = {"respect_git_ignore": False, "respect_agent_ignore": False}
    for path, names in ((".", ["src", "link-to-key.txt", "open.txt"]), ("src", ["link-to-vault.txt", "main.txt"])):
        result = await answer(LSTool(), guarded, path=path, file_filtering_options=off)
        assert result.structured is not None
        assert [entry["name"] for entry in result.structured["entries"]] == names
        assert result.structured["hidden"] == {"git": 0, "agent": 1}


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_a_glob_finds_nothing_that_is_forbidden_nor_a_link_to_it(root: Path, guarded: ToolContext) -> None:
    for pattern in ("**/*", "**/*.{txt,pem}"):
        result = await answer(GlobTool(), guarded, pattern=pattern, respect_agent_ignore=False)
        assert result.structured is not None
        assert sorted(result.structured["files"]) == [str(root / "open.txt"), str(root / "src" / "main.txt")]
        assert result.structured["ignored"] == 2
    for pattern in ("vault/**", "vault", "src/key.pem"):
        result = await answer(GlobTool(), guarded, pattern=pattern, respect_agent_ignore=False)
        assert text_of(result).startswith("No files found")
        assert "is a folder" not in text_of(result)


@pytest.mark.requirement("permissions.hidden_from_finding")
@pytest.mark.parametrize("hits", [1, MAX_SORTED])
async def test_a_search_finds_and_counts_nothing_in_what_is_forbidden(
    hits: int, root: Path, guarded: ToolContext
) -> None:
    (root / "vault" / "deep" / "b.txt").write_text(f"{SECRET}\n" * hits)
    for arguments in ({}, {"no_ignore": True}, {"exclude_pattern": "absent"}, {"glob": "*.{txt,pem}"}):
        result = await answer(GrepTool(), guarded, pattern=SECRET, limit=2, **arguments)
        assert result.facts["matches"] == 2
        assert result.facts["complete"] is True
        assert not any(hidden in text_of(result) for hidden in HIDDEN)
    for glob, searched in {"*.txt": 2, "*.pem": 0, "vault/**": 0}.items():
        assert (await answer(GrepTool(), guarded, pattern="absent", glob=glob)).facts["searched"] == searched


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_reading_many_files_finds_nothing_that_is_forbidden(root: Path, guarded: ToolContext) -> None:
    off = {"respect_git_ignore": False, "respect_agent_ignore": False}
    for paths in (["**/*"], ["."], ["src", "*.txt"], ["SRC/KEY.PEM", "**/*.pem", "src/*.txt", "*.txt"]):
        result = await answer(
            ReadManyFilesTool(), guarded, paths=paths, file_filtering_options=off, useDefaultExcludes=False
        )
        assert result.facts["files"] == [str(root / "open.txt"), str(root / "src" / "main.txt")]
        assert not any(f"{SECRET} in {path}" in text_of(result) for path in ("vault/", "src/key.pem"))


@pytest.mark.requirement("rules.links")
async def test_what_is_forbidden_under_a_links_name_is_not_found_through_the_link(
    root: Path, context: ToolContext
) -> None:
    (root / "real").mkdir()
    (root / "real" / "key").write_text(SECRET)
    (root / "lnk").symlink_to("real")
    context = replace(context, workspace=Workspace([str(root)], forbidden=Rules((root / "lnk" / "key",))))
    off = {"file_filtering_options": {"respect_git_ignore": False, "respect_agent_ignore": False}}
    for tool, arguments in (
        (GrepTool(), {"pattern": SECRET, "path": "lnk"}),
        (GlobTool(), {"pattern": "lnk/*"}),
        (GlobTool(), {"pattern": "*", "path": str(root / "lnk")}),
        (LSTool(), {"path": "lnk", **off}),
        (ReadManyFilesTool(), {"paths": ["lnk/*"], **off}),
    ):
        assert SECRET not in (said := text_of(await answer(tool, context, **arguments)).replace(f'"{SECRET}"', "")), (
            tool
        )
        assert tool.name == "read_many_files" or "key" not in said


@pytest.mark.requirement("permissions.hidden_from_finding")
def test_no_path_is_completed_that_is_forbidden(guarded: ToolContext) -> None:
    workspace = guarded.workspace
    [top] = workspace.root_locations()
    assert entries_that_start_with(workspace, top, "", 10, AbortSignal()).names == ("src/", "open.txt")
    inside = workspace.locate("src")
    assert entries_that_start_with(workspace, inside, "", 10, AbortSignal()).names == ("main.txt",)
    assert sorted(files_containing(workspace, top, "t", 10, AbortSignal()).names) == ["open.txt", "src/main.txt"]


@pytest.mark.requirement("permissions.hidden_from_finding")
def test_what_is_forbidden_stays_so_though_an_ignore_file_brings_it_back(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("*.log\n")
    (root / ".qwenignore").write_text("!key.pem\n!*.log\n*.tmp\n")
    workspace = Workspace([str(root)], forbidden=Rules((root / "key.pem", root / "sub" / "own")))
    (root / "sub").mkdir()
    scope = scope_of(workspace, workspace.locate("."), git=True, agent=True)
    names = ["key.pem", "a.log", "a.tmp", "a.txt"]
    expected = {"key.pem": HiddenBy.AGENT, "a.tmp": HiddenBy.AGENT}
    assert scope.hidden_among(names, is_folder=False) == expected
    assert {name: by for name in names if (by := scope.hides(name, is_folder=False))} == expected
    below = scope.enter(str(root / "sub"), ())
    assert below.hides("own", is_folder=True) is HiddenBy.AGENT
    assert below.hidden_among(["key.pem", "own"], is_folder=False) == {"own": HiddenBy.AGENT}


@pytest.mark.requirement("permissions.search_subjects")
@pytest.mark.parametrize(("tool", "arguments"), [(GlobTool(), {"pattern": "*"}), (GrepTool(), {"pattern": "x"})])
def test_rules_are_asked_about_where_a_search_begins(
    tool: BaseTool[Any], arguments: dict[str, Any], root: Path, tmp_path: Path, context: ToolContext
) -> None:
    other = tmp_path.resolve() / "other"
    other.mkdir()
    (root / "sub").mkdir()
    (root / "link").symlink_to("sub")
    two = replace(context, workspace=Workspace([str(root), str(other)]))
    everywhere = tool.subjects(tool.validate_tool_params(arguments), two)
    assert everywhere == [PathSubject(Access.READ, str(path), str(path)) for path in (root, other)]
    [named] = tool.subjects(tool.validate_tool_params({**arguments, "path": "link"}), two)
    assert named == PathSubject(Access.READ, str(root / "sub"), str(root / "link"))
    with pytest.raises(PathNotInWorkspaceError):
        tool.subjects(tool.validate_tool_params({**arguments, "path": "/"}), two)
