"""Agent-ignore files in folders below the root: what each hides from every way to read, at every level."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from server.protocol.file_uris import FILE_TEMPLATE
from tests.harness import HANDSHAKE, in_memory, write_config
from tests.hostile.every_tool import MARKER, answers, call, changers_of, is_refused, readers_of
from tests.tables import each_of
from tests.variants import one_in
from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.ignore_files import (
    AGENT_IGNORE_FILES,
    COST_OF_RULE,
    MAX_COST,
    MAX_IGNORE_FILE_BYTES,
    HiddenBy,
    agent_ignore_file,
    is_hidden_target,
    scope_of,
)
from tools.files.workspace import Workspace
from tools.permissions.hidden_files import HiddenFileScanner
from tools.permissions.permission_rules import Rules


def make(root: Path, *paths: str, content: str = MARKER) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{content}\n")


def hidden_by(root: Path, path: str) -> str | None:
    workspace = Workspace([str(root)])
    return agent_ignore_file(workspace, workspace.locate(path))


def walk_files(root: Path, *, git: bool = True) -> tuple[set[str], Walk]:
    walk = Walk(Workspace([str(root)]), Filters(git=git), Deadline(AbortSignal(), 60.0))
    return {match.path for match in walk.files(walk.workspace.locate("."), Everything())}, walk


@dataclass(frozen=True)
class HiddenFile:
    """A way to hide a file with an agent-ignore file in a folder above it.

    Args:
        ignore_folder: The folder of the agent-ignore file, relative to the first root, or after `@` to the second.
        rule: The content of the agent-ignore file.
        secret: The hidden file, relative to the same root.
        alternative_path: The path that callers use instead of `secret`.
    """

    ignore_folder: str
    rule: str
    secret: str
    alternative_path: str = ""


WAYS = {
    "in the root": HiddenFile("", "pin.txt", "pin.txt"),
    "in a folder": HiddenFile("sub", "pin.txt", "sub/pin.txt"),
    "in a folder, by its place": HiddenFile("sub", "/pin.txt", "sub/pin.txt"),
    "two folders down": HiddenFile("sub/deep", "*.txt", "sub/deep/pin.txt"),
    "by a file above it": HiddenFile("sub", "deep/", "sub/deep/pin.txt"),
    "by a file far above it": HiddenFile("sub", "**/pin.*", "sub/a/b/c/pin.txt"),
    "in a folder with a dot": HiddenFile(".config", "pin.txt", ".config/pin.txt"),
    "beneath a link": HiddenFile("sub/deep", "pin.txt", "sub/deep/pin.txt", "way/deep/pin.txt"),
    "by a link": HiddenFile("sub/deep", "pin.txt", "sub/deep/pin.txt", "link.txt"),
    "in the second root": HiddenFile("@", "pin.txt", "pin.txt"),
    "in a folder of the second root": HiddenFile("@sub", "pin.txt", "sub/pin.txt"),
}


@asynccontextmanager
async def client_and_secret(case: HiddenFile, root: Path) -> AsyncGenerator[tuple[Client, str]]:
    """Yield a client of a server with two roots, and the path by which callers name the secret."""
    second = root.with_name("second")
    (root / "sub" / "deep").mkdir(parents=True)
    (second / "sub").mkdir(parents=True)
    base = second if case.ignore_folder.startswith("@") else root
    make(base, case.secret)
    make(root, "open.md", content="open")
    make(base, os.path.join(case.ignore_folder.removeprefix("@"), ".qwenignore"), content=case.rule)
    if case.alternative_path:
        (root / "way").symlink_to("sub")
        (root / "link.txt").symlink_to(case.secret)
    config = write_config(root.parent, {"workspace": {"roots": [str(root), str(second)]}, "approvalMode": "yolo"})
    async with in_memory(HANDSHAKE, None, config) as client:
        yield client, str(base / (case.alternative_path or case.secret))


@pytest.mark.anyio
@pytest.mark.requirement("ignore.nested")
@pytest.mark.parametrize("way", one_in(2, WAYS))
async def test_what_an_agent_ignore_file_at_any_level_hides_is_neither_read_nor_found(way: str, root: Path) -> None:
    async with client_and_secret(WAYS[way], root) as (client, secret):
        for answer in await answers(client, [*readers_of(secret), *changers_of(secret)[1:]]):
            assert is_refused(answer), (answer.tool, answer.text)
            assert MARKER not in answer.everything
        broad: Sequence[tuple[str, dict[str, object]]] = [
            ("glob", {"pattern": "**/*"}),
            ("grep_search", {"pattern": "."}),
            ("grep_search", {"pattern": "(.*)*$", "path": os.path.dirname(secret)}),
            ("grep_search", {"pattern": ".", "no_ignore": True}),
            ("read_many_files", {"paths": ["**"]}),
            ("read_many_files", {"paths": ["."], "file_filtering_options": {"respect_git_ignore": False}}),
            ("read_many_files", {"paths": ["**"], "file_filtering_options": {"respect_qwen_ignore": False}}),
            ("list_directory", {"path": os.path.dirname(os.path.realpath(secret))}),
        ]
        for answer in await answers(client, broad):
            assert MARKER not in answer.everything, (answer.tool, answer.text)
            assert answer.tool not in ("glob", "list_directory") or "pin.txt" not in answer.text, answer.text
        with pytest.raises(MCPError) as error_info:
            await client.read_resource(Path(secret).as_uri())
        assert MARKER not in str(error_info.value.error)
        assert Path(secret).read_text() == f"{MARKER}\n"
        assert "open" in (await call(client, "read_file", file_path=str(root / "open.md"))).text


@pytest.mark.anyio
@pytest.mark.requirement("ignore.nested")
@pytest.mark.parametrize("way", WAYS)
async def test_what_an_agent_ignore_file_at_any_level_hides_is_not_completed(way: str, root: Path) -> None:
    template = types.ResourceTemplateReference(uri=FILE_TEMPLATE)
    prompt = types.PromptReference(name="at")
    async with client_and_secret(WAYS[way], root) as (client, secret):
        for value in (secret[:-4], os.path.dirname(secret) + "/"):
            completions = await client.complete(template, {"name": "path", "value": value})
            assert not [name for name in completions.completion.values if "pin" in name or "link" in name]
        completions = await client.complete(prompt, {"name": "paths", "value": "pin"})
        assert completions.completion.values == []


@pytest.mark.requirement("ignore.nested")
@pytest.mark.parametrize("earlier", range(len(AGENT_IGNORE_FILES)))
def test_in_one_folder_the_later_file_overrides_and_a_deeper_folder_overrides_both(root: Path, earlier: int) -> None:
    make(root, "sub/a.txt", "sub/deep/a.txt", "sub/deep/er/a.txt", "a.txt")
    for number, name in enumerate(AGENT_IGNORE_FILES):
        (root / "sub" / name).write_text("*.txt\n" if number <= earlier else "")
        (root / "sub" / "deep" / name).write_text("!a.txt\n" if number == earlier else "a.txt\n" * (number < earlier))
    make(root, "sub/deep/er/.geminiignore", content="a.txt")
    name = AGENT_IGNORE_FILES[earlier]
    assert hidden_by(root, "a.txt") is None
    assert hidden_by(root, "sub/a.txt") == f"sub/{name}"
    assert hidden_by(root, "sub/deep/a.txt") is None
    assert hidden_by(root, "sub/deep/er/a.txt") == "sub/deep/er/.geminiignore"
    paths, walk = walk_files(root)
    assert {path for path in paths if path.endswith("a.txt")} == {"a.txt", "sub/deep/a.txt"}
    assert walk.hidden_counts == {HiddenBy.AGENT: 2}


@pytest.mark.requirement("ignore.nested")
@pytest.mark.parametrize("rule", ["sub/", "/sub", "sub/deep", "**/deep/"])
def test_ignore_files_in_a_hidden_folder_make_nothing_visible(root: Path, rule: str) -> None:
    make(root, "sub/deep/a.txt")
    make(root, ".geminiignore", content=rule)
    for folder in ("sub", "sub/deep"):
        make(root, f"{folder}/.coretoolsignore", content="!*\n!**/*\n!a.txt\n!deep/")
    if rule in ("sub/", "/sub"):
        assert hidden_by(root, "sub/deep/a.txt") == ".geminiignore"
        assert "sub/deep/a.txt" not in walk_files(root)[0]
    (root / "sub" / ".coretoolsignore").unlink()
    assert hidden_by(root, "sub/deep/a.txt") == ".geminiignore"
    assert "sub/deep/a.txt" not in walk_files(root)[0]


@pytest.mark.requirement("ignore.nested")
def test_agent_ignore_files_come_after_all_files_of_git_at_every_level(root: Path) -> None:
    make(root, ".git/HEAD", "sub/deep/a.log", "sub/deep/b.log", "sub/deep/c.log")
    make(root, "sub/.qwenignore", content="!a.log\nc.log")
    make(root, "sub/deep/.gitignore", content="*.log\n!c.log")
    assert {path for path in walk_files(root)[0] if path.endswith(".log")} == {"sub/deep/a.log"}
    assert hidden_by(root, "sub/deep/b.log") is None, "Git's rules do not block reads"
    assert {path for path in walk_files(root, git=False)[0] if path.endswith(".log")} == {
        "sub/deep/a.log",
        "sub/deep/b.log",
    }


@pytest.mark.requirement("ignore.nested")
def test_ignore_files_above_the_workspace_have_no_effect_and_those_of_an_outer_root_do(root: Path) -> None:
    make(root, "a.txt", "sub/a.txt", "inner/a.txt")
    make(root.parent, ".qwenignore", content="*")
    make(root, ".qwenignore", content="a.txt")
    make(root, "inner/sub/.geminiignore", "inner/sub/a.txt", content="a.txt")
    workspace = Workspace([str(root), str(root / "inner")])
    walk = Walk(workspace, Filters(), Deadline(AbortSignal(), 60.0))
    paths = {match.path for match in walk.files(workspace.locate("."), Everything())}
    assert paths == {".qwenignore", "inner/sub/.geminiignore"}
    assert agent_ignore_file(workspace, workspace.locate("inner/a.txt")) == "../.qwenignore"
    assert agent_ignore_file(workspace, workspace.locate("inner/sub/a.txt")) == "sub/.geminiignore"


@pytest.mark.requirement("ignore.nested")
@each_of("narrows", ["root first", "inner root first", "only the inner root"])
def test_the_agent_ignore_files_of_an_outer_root_hide_files_from_searches_reads_and_commands(
    tmp_path: Path, narrows: str
) -> None:
    root = tmp_path.resolve() / narrows
    make(root, "inner/pin.txt", "inner/whole/pin.txt", "inner/open.txt")
    make(root, ".qwenignore", content="inner/pin.txt\nwhole/")
    inner, whole = str(root / "inner"), str(root / "inner" / "whole")
    roots = {"root first": [str(root), inner, whole], "inner root first": [whole, inner, str(root)]}
    workspace = Workspace(roots.get(narrows, [inner, whole]), outer_roots=[str(root)])
    for folder in (inner, whole):
        walk = Walk(workspace, Filters(), Deadline(AbortSignal(), 60.0))
        assert {match.path for match in walk.files(workspace.locate(folder), Everything())} <= {"open.txt"}
    for path in ("inner/pin.txt", "inner/whole/pin.txt"):
        assert agent_ignore_file(workspace, workspace.locate(str(root / path))) is not None
    scan_result = HiddenFileScanner().scan(workspace, Rules())
    hidden_paths = {file.path for file in scan_result.ignored}
    assert {str(root / "inner/pin.txt"), str(root / "inner/whole/pin.txt")} <= hidden_paths
    assert scan_result.problem == ""


BROKEN = ["pipe", "folder", "circle", "nowhere", "too large", "no text", "odd line", "too many rules"]


def spoil(file: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "circle":
            file.symlink_to(file.name)
        case "nowhere":
            file.symlink_to("missing")
        case "too large":
            file.write_bytes(b"#" * (MAX_IGNORE_FILE_BYTES + 1))
        case "no text":
            file.write_bytes("a.txt\n".encode("utf-32"))
        case "odd line":
            file.write_bytes(b"a.txt\n[[:foo:]]\n")
        case _:
            file.write_bytes(b"a\n" * (MAX_COST // COST_OF_RULE))


@pytest.mark.requirement("ignore.fail_closed")
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("level", ["sub", "sub/deep"])
def test_a_file_that_cannot_be_parsed_hides_all_of_its_folder_and_nothing_else(
    kind: str, level: str, root: Path
) -> None:
    make(root, "a.txt", "other/a.txt", f"{level}/a.txt", f"{level}/beneath/a.txt", f"{level}/.coretoolsignore")
    (root / level / ".coretoolsignore").write_text("!*\n")
    spoil(root / level / ".qwenignore", kind)
    for path in (f"{level}/a.txt", f"{level}/beneath/a.txt", level, f"{level}/new.txt"):
        with pytest.raises(ToolError, match="unknown what it hides") as error_info:
            hidden_by(root, path)
        assert error_info.value.code is ToolErrorType.PATH_IGNORED
    assert hidden_by(root, "other/a.txt") is None
    paths, walk = walk_files(root)
    assert paths == {"a.txt", "other/a.txt"}
    assert walk.hidden_counts == {HiddenBy.AGENT: 1}
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError, match="unknown what it hides"):
        scope_of(workspace, workspace.locate(f"{level}/beneath"), git=True, agent=True)
    assert is_hidden_target(workspace, workspace.locate(f"{level}/a.txt"), agent=True)


@pytest.mark.anyio
@pytest.mark.requirement("ignore.fail_closed")
async def test_a_file_that_cannot_be_parsed_leaves_every_other_folder_usable(root: Path, client: Client) -> None:
    make(root, "sub/pin.txt")
    make(root, "other/open.md", content="open")
    spoil(root / "sub" / ".qwenignore", "pipe")
    (root / "link").symlink_to("sub/pin.txt")
    for answer in await answers(client, [*readers_of(str(root / "sub")), *readers_of("sub/pin.txt")]):
        assert is_refused(answer), (answer.tool, answer.text)
        assert "unknown what it hides" in answer.text
    for tool, arguments in readers_of(str(root)):
        if tool == "read_file":
            continue
        answer = await call(client, tool, **arguments)
        assert not answer.result.is_error, answer.text
        assert MARKER not in answer.text
    entries = await call(client, "read_many_files", paths=["sub", "other", "link"])
    assert "open" in entries.text
    assert MARKER not in entries.text
    completions = await client.complete(
        types.ResourceTemplateReference(uri=FILE_TEMPLATE), {"name": "path", "value": f"{root}/"[1:]}
    )
    assert [os.path.basename(name.rstrip("/")) for name in completions.completion.values] == ["other", "sub"]


@pytest.mark.requirement("ignore.fail_closed")
def test_below_files_with_too_many_rules_a_further_one_hides_its_folder(root: Path) -> None:
    folder = root
    for _ in range(6):
        folder /= "d"
        folder.mkdir()
        (folder / ".qwenignore").write_text(f"*{'0' * 90}?\n" * (MAX_COST // (COST_OF_RULE + 92) - 10))
        (folder / "a.txt").write_text("")
    paths, walk = walk_files(root)
    assert {path for path in paths if path.endswith("a.txt")} == {"d/a.txt", "d/d/a.txt", "d/d/d/a.txt"}
    assert walk.hidden_counts == {HiddenBy.AGENT: 1}
    with pytest.raises(ToolError, match="below other ignore files that have too many rules"):
        hidden_by(root, "d/d/d/d/a.txt")


@pytest.mark.requirement("ignore.fail_closed")
def test_nothing_is_read_where_the_path_of_an_ignore_file_would_be_too_long(root: Path) -> None:
    descriptor = os.open(root, os.O_RDONLY)
    path = str(root)
    while len(path) < 4_085:
        name = "d" * min(200, 4_085 - len(path) - 1) if len(path) < 4_084 else "d"
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor, path = inner, f"{path}/{name}"
    with open(os.open("a", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor), "w") as stream:
        stream.write(MARKER)
    with open(os.open(".qwenignore", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor), "w") as stream:
        stream.write("a\n")
    os.close(descriptor)
    with pytest.raises(ToolError, match="unknown what it hides"):
        hidden_by(root, f"{path}/a")
