"""Files that permission rules forbid to read are left out when tools find, list, search or complete paths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.builtin.search_tools import GlobTool, GrepTool, LSTool
from tools.call.base_tool import BaseTool, ToolContext
from tools.contract.call_options import AbortSignal
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
    """Rules that forbid some paths and everything below them."""

    paths: tuple[Path, ...]

    def __call__(self, path: str) -> str | None:
        for forbidden in self.paths:
            if Path(path).is_relative_to(forbidden):
                return f"Read({forbidden.name})"
        return None


@pytest.fixture
def guarded_context(root: Path, context: ToolContext) -> ToolContext:
    """A context whose rules forbid a folder and a file. Links lead to both, and ignore files are not respected."""
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
"""Parts of forbidden paths. No search result contains them."""


async def call(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> ToolResult:
    return await tool.execute(tool.validate_tool_params(arguments), context)


def text_of(result: ToolResult) -> str:
    parts = result.llm_content if isinstance(result.llm_content, list) else [result.llm_content]
    return "\n".join(str(part) for part in parts)


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_a_listing_leaves_out_what_is_forbidden_and_counts_it(guarded_context: ToolContext) -> None:
    no_ignore_files = {"respect_git_ignore": False, "respect_agent_ignore": False}
    for path, names in ((".", ["src", "link-to-key.txt", "open.txt"]), ("src", ["link-to-vault.txt", "main.txt"])):
        result = await call(LSTool(), guarded_context, path=path, file_filtering_options=no_ignore_files)
        assert result.structured is not None
        assert [entry["name"] for entry in result.structured["entries"]] == names
        assert result.structured["hidden"] == {"git": 0, "agent": 1}
        assert "(1 hidden from agents; " in text_of(result)


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_a_glob_finds_neither_forbidden_files_nor_links_to_them(root: Path, guarded_context: ToolContext) -> None:
    for pattern in ("**/*", "**/*.{txt,pem}"):
        result = await call(GlobTool(), guarded_context, pattern=pattern, respect_agent_ignore=False)
        assert result.structured is not None
        assert sorted(result.structured["files"]) == [str(root / "open.txt"), str(root / "src" / "main.txt")]
        assert result.structured["ignored"] == 2
        assert "Omitted because of ignore files or rules: 2 hidden from agents." in text_of(result)
    for pattern in ("vault/**", "vault", "src/key.pem"):
        result = await call(GlobTool(), guarded_context, pattern=pattern, respect_agent_ignore=False)
        assert text_of(result).startswith("No files found")
        assert "is a folder" not in text_of(result)


@pytest.mark.requirement("permissions.hidden_from_finding")
@pytest.mark.parametrize("match_count", [1, MAX_SORTED])
async def test_a_search_finds_and_counts_nothing_in_forbidden_files(
    match_count: int, root: Path, guarded_context: ToolContext
) -> None:
    (root / "vault" / "deep" / "b.txt").write_text(f"{SECRET}\n" * match_count)
    for arguments in ({}, {"no_ignore": True}, {"exclude_pattern": "absent"}, {"glob": "*.{txt,pem}"}):
        result = await call(GrepTool(), guarded_context, pattern=SECRET, limit=2, **arguments)
        assert result.facts["matches"] == 2
        assert result.facts["complete"] is True
        assert not any(hidden_text in text_of(result) for hidden_text in HIDDEN)
    for glob, file_count in {"*.txt": 2, "*.pem": 0, "vault/**": 0}.items():
        assert (await call(GrepTool(), guarded_context, pattern="absent", glob=glob)).facts["searched"] == file_count


@pytest.mark.requirement("permissions.hidden_from_finding")
async def test_reading_many_files_finds_nothing_that_is_forbidden(root: Path, guarded_context: ToolContext) -> None:
    no_ignore_files = {"respect_git_ignore": False, "respect_agent_ignore": False}
    for paths in (["**/*"], ["."], ["src", "*.txt"], ["SRC/KEY.PEM", "**/*.pem", "src/*.txt", "*.txt"]):
        result = await call(
            ReadManyFilesTool(),
            guarded_context,
            paths=paths,
            file_filtering_options=no_ignore_files,
            useDefaultExcludes=False,
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
    no_ignore_files = {"file_filtering_options": {"respect_git_ignore": False, "respect_agent_ignore": False}}
    for tool, arguments in (
        (GrepTool(), {"pattern": SECRET, "path": "lnk"}),
        (GlobTool(), {"pattern": "lnk/*"}),
        (GlobTool(), {"pattern": "*", "path": str(root / "lnk")}),
        (LSTool(), {"path": "lnk", **no_ignore_files}),
        (ReadManyFilesTool(), {"paths": ["lnk/*"], **no_ignore_files}),
    ):
        assert SECRET not in (text := text_of(await call(tool, context, **arguments)).replace(f'"{SECRET}"', "")), tool
        assert tool.name == "read_many_files" or "key" not in text


@pytest.mark.requirement("rules.links")
@pytest.mark.parametrize("spelling", ['"lnk"', " lnk ", "//lnk", r"l\ nk", "l\u200bnk"])
async def test_what_is_forbidden_under_a_links_name_stays_hidden_however_the_name_is_spelled(
    spelling: str, root: Path, context: ToolContext
) -> None:
    link = root / ("l nk" if " n" in spelling else "lnk")
    (root / "real").mkdir()
    (root / "real" / "key").write_text(SECRET)
    link.symlink_to("real")
    context = replace(context, workspace=Workspace([str(root)], forbidden=Rules((link / "key",))))
    path = spelling.replace("//", f"/{root}/")
    result = await call(GrepTool(), context, pattern=SECRET, path=path)
    assert result.facts["matches"] == 0
    params = ReadFileTool().validate_tool_params({"file_path": f"{path.rstrip()}/open"})
    (root / "real" / "open").touch()
    assert ReadFileTool().subjects(params, context) == (
        PathSubject(Access.READ, str(root / "real" / "open"), str(link / "open")),
    )


@pytest.mark.requirement("names.hidden")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_forbidden_name_is_not_taken_for_that_of_a_file_that_looks_the_same(
    is_link: bool, root: Path, context: ToolContext
) -> None:
    (root / "real").mkdir()
    (root / "real" / "key").write_text(SECRET)
    (root / "k\u2013y").symlink_to("real/key") if is_link else (root / "k\u2013y").write_text(SECRET)
    context = replace(context, workspace=Workspace([str(root)], forbidden=Rules((root / "k-y",))))
    params = ReadFileTool().validate_tool_params({"file_path": "k-y"})
    assert ReadFileTool().subjects(params, context) == (PathSubject(Access.READ, str(root / "k-y"), str(root / "k-y")),)


@pytest.mark.requirement("rules.links")
async def test_what_is_forbidden_under_a_links_name_in_the_second_root_is_not_read_through_the_link(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    second_root = tmp_path.resolve() / "other"
    (second_root / "real").mkdir(parents=True)
    (second_root / "real" / "key").write_text(SECRET)
    (second_root / "lnk").symlink_to("real")
    workspace = Workspace([str(root), str(second_root)], forbidden=Rules((second_root / "lnk" / "key",)))
    result = await call(ReadManyFilesTool(), replace(context, workspace=workspace), paths=["lnk"])
    assert SECRET not in text_of(result)


@pytest.mark.requirement("permissions.hidden_from_finding")
def test_forbidden_paths_are_not_completed(guarded_context: ToolContext) -> None:
    workspace = guarded_context.workspace
    [top] = workspace.root_locations()
    assert entries_that_start_with(workspace, top, "", 10, AbortSignal()).names == ("src/", "open.txt")
    folder = workspace.locate("src")
    assert entries_that_start_with(workspace, folder, "", 10, AbortSignal()).names == ("main.txt",)
    assert sorted(files_containing(workspace, top, "t", 10, AbortSignal()).names) == ["open.txt", "src/main.txt"]


@pytest.mark.requirement("permissions.hidden_from_finding")
def test_an_ignore_file_does_not_bring_back_forbidden_files(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("*.log\n")
    (root / ".qwenignore").write_text("!key.pem\n!*.log\n*.tmp\n")
    workspace = Workspace([str(root)], forbidden=Rules((root / "key.pem", root / "sub" / "own")))
    (root / "sub").mkdir()
    scope = scope_of(workspace, workspace.locate("."), git=True, agent=True)
    names = ["key.pem", "a.log", "a.tmp", "a.txt"]
    hidden_names = {"key.pem": HiddenBy.AGENT, "a.tmp": HiddenBy.AGENT}
    assert scope.hidden_among(names, is_folder=False) == hidden_names
    assert {name: hidden_by for name in names if (hidden_by := scope.hides(name, is_folder=False))} == hidden_names
    inner_scope = scope.enter(str(root / "sub"), ())
    assert inner_scope.hides("own", is_folder=True) is HiddenBy.AGENT
    assert inner_scope.hidden_among(["key.pem", "own"], is_folder=False) == {"own": HiddenBy.AGENT}


@pytest.mark.requirement("permissions.search_subjects")
@pytest.mark.parametrize(("tool", "arguments"), [(GlobTool(), {"pattern": "*"}), (GrepTool(), {"pattern": "x"})])
def test_rules_are_checked_for_the_folders_in_which_a_search_begins(
    tool: BaseTool[Any], arguments: dict[str, Any], root: Path, tmp_path: Path, context: ToolContext
) -> None:
    second_root = tmp_path.resolve() / "other"
    second_root.mkdir()
    (root / "sub").mkdir()
    (root / "link").symlink_to("sub")
    two_roots = replace(context, workspace=Workspace([str(root), str(second_root)]))
    subjects = tool.subjects(tool.validate_tool_params(arguments), two_roots)
    assert subjects == [PathSubject(Access.READ, str(path), str(path)) for path in (root, second_root)]
    [subject] = tool.subjects(tool.validate_tool_params({**arguments, "path": "link"}), two_roots)
    assert subject == PathSubject(Access.READ, str(root / "sub"), str(root / "link"))
    with pytest.raises(PathNotInWorkspaceError):
        tool.subjects(tool.validate_tool_params({**arguments, "path": "/"}), two_roots)


@pytest.mark.requirement("permissions.search_subjects")
def test_rules_are_checked_for_a_relative_path_in_each_root_in_which_it_exists(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    second_root = tmp_path.resolve() / "other"
    second_root.mkdir()
    (second_root / "key.pem").write_text(SECRET)
    two_roots = replace(context, workspace=Workspace([str(root), str(second_root)]))
    tool = ReadManyFilesTool()
    subjects = tool.subjects(tool.validate_tool_params({"paths": ["key.pem", "absent", str(root)]}), two_roots)
    paths = (root / "key.pem", second_root / "key.pem", root / "absent", root)
    assert subjects == [PathSubject(Access.READ, str(path), str(path)) for path in paths]
