"""Ignore files that are crafted to be expensive, and agent-ignore files that cannot be parsed."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import AsyncGenerator
from functools import cache
from pathlib import Path

import anyio
import pytest

from tests.harness import text_of
from tests.hostile.watched_server import MEGABYTE, WatchedServer, needs_proc, structured, watched_server
from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.ignore_files import (
    COST_OF_RULE,
    MAX_COST,
    MAX_COST_IN_FORCE,
    HiddenBy,
    IgnoreScope,
    agent_ignore_file,
    read_rules,
    rules_for_agents,
    scope_of,
)
from tools.files.workspace import Workspace

FILES = [pytest.param(6, marks=pytest.mark.long)]
MAX_MEMORY = 200 * MEGABYTE


@cache
def brackets() -> bytes:
    """Return a megabyte of rules, each with brackets that no other rule has."""
    pairs = ((chr(0x4E00 + first), chr(0x5000 + second)) for first in range(300) for second in range(400))
    return "\n".join(f"[{first}]?[{first}{second}]*" for first, second in pairs).encode()[: MEGABYTE - 100]


def scope(root: Path, folder: str = ".") -> IgnoreScope:
    workspace = Workspace([str(root)])
    return scope_of(workspace, workspace.locate(folder), git=True, agent=True)


@pytest.fixture
async def server(root: Path) -> AsyncGenerator[WatchedServer]:
    async with watched_server(root) as server:
        yield server


@pytest.mark.anyio
@needs_proc
@pytest.mark.requirement("ignore.bounded_rules")
@pytest.mark.parametrize("count", FILES)
async def test_very_many_rules_in_many_folders_take_bounded_memory_and_leave_the_server_free(
    count: int, root: Path, server: WatchedServer
) -> None:
    (root / ".git").mkdir()
    rules = brackets()
    for number in range(count):
        folder = root / f"d{number:02}"
        folder.mkdir()
        (folder / ".gitignore").write_bytes(b"#%d\nhidden\n" % number + rules)
        (folder / "x").write_text("")
        (folder / "hidden").write_text("")
    assert (await server.call("glob", pattern="*.none")).is_error is False
    memory_before = server.reset_peak()
    with anyio.fail_after(60):
        result = await server.call("glob", pattern="**/*", limit=1_000)
    assert server.peak() - memory_before < MAX_MEMORY
    assert sum(path.endswith("/x") for path in structured(result)["files"]) == count
    assert "/hidden" not in text_of(result)


@pytest.mark.requirement("ignore.bounded_rules")
def test_of_too_many_git_rules_only_the_first_count_and_the_log_says_so(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("first\n" + "a?b\n" * (MAX_COST // COST_OF_RULE) + "last\n")
    assert scope(root).hides("first", is_folder=False) is HiddenBy.GIT
    assert scope(root).hides("last", is_folder=False) is None
    assert "too many rules" in caplog.text


@pytest.mark.requirement("ignore.bounded_rules")
def test_all_rules_count_in_files_as_long_as_the_longest_real_ones() -> None:
    rules = "".join(f"/build/out-{number}\n*.ext{number}\n" for number in range(1_500)) + "a*z?\n" * 500 + "!last\n"
    ignore_rules = read_rules(rules.encode())
    assert not ignore_rules.is_cut
    assert ignore_rules.hides("last", is_folder=False) is False
    assert ignore_rules.hides("a.ext1499", is_folder=False) is True


@pytest.mark.long
@pytest.mark.requirement("ignore.bounded_rules")
def test_below_folders_with_too_many_rules_further_ignore_files_do_not_count(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / ".git").mkdir()
    folder = root
    for number in range(6):
        folder /= "d"
        folder.mkdir()
        (folder / ".gitignore").write_text(f"hidden{number}\n" + f"*{number}?\n" * (MAX_COST // (COST_OF_RULE + 3) - 1))
    caplog.set_level(logging.WARNING)
    active_rules = scope(root, str(folder.relative_to(root)))
    assert active_rules.hides("hidden0", is_folder=False) is HiddenBy.GIT
    assert active_rules.hides("hidden5", is_folder=False) is None
    assert sum(layer.rules.cost for layer in active_rules.git or ()) < 2 * MAX_COST_IN_FORCE
    assert "the ignore files above it have too many rules" in caplog.text


@pytest.mark.requirement("ignore.bounded_rules")
@pytest.mark.parametrize("count", [2, pytest.param(30, marks=pytest.mark.long)])
def test_a_walk_through_folders_with_very_many_rules_ends_when_it_is_cancelled(count: int, root: Path) -> None:
    (root / ".git").mkdir()
    for number in range(count):
        folder = root / f"d{number:02}"
        folder.mkdir()
        (folder / ".gitignore").write_bytes(b"#%d\n" % number + brackets())
        (folder / "x").write_text("")
    signal = AbortSignal()
    walk = Walk(Workspace([str(root)]), Filters(), Deadline(signal, 60.0))
    files = walk.files(Workspace([str(root)]).root_locations()[0], Everything())
    assert next(files).path.startswith("d")
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        list(files)
    assert error_info.value.code is ToolErrorType.CANCELLED


NAMES = "pin.txt\n"

UNREADABLE = {
    "utf-16 without a mark": NAMES.encode("utf-16-le"),
    "utf-16 of the other order without a mark": NAMES.encode("utf-16-be"),
    "utf-16 that is cut": NAMES.encode("utf-16") + b"x",
    "utf-32": NAMES.encode("utf-32"),
    "utf-32 of the other order": b"\0\0\xfe\xff" + NAMES.encode("utf-32-be"),
    "gzip": gzip.compress(NAMES.encode()),
    "a nul": b"pin.txt\0junk\n",
    "a nul before": b"\0\npin.txt\n",
    "an older encoding with control characters": b"caf\xe9\n\x01pin.txt\n",
    "too many rules": b"a\n" * (MAX_COST // COST_OF_RULE) + b"pin.txt\n",
}


@pytest.mark.requirement("ignore.fail_closed")
@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_agent_ignore_file_that_is_not_text_or_too_long_hides_everything(kind: str, root: Path) -> None:
    (root / ".qwenignore").write_bytes(UNREADABLE[kind])
    (root / "pin.txt").write_text("4711")
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError, match="unknown what it hides") as error_info:
        agent_ignore_file(workspace, workspace.locate("pin.txt"))
    assert error_info.value.code is ToolErrorType.PATH_IGNORED
    with pytest.raises(ToolError, match="unknown what it hides"):
        scope(root)


@pytest.mark.requirement("ignore.fail_closed")
@pytest.mark.parametrize(
    "content",
    [
        NAMES.encode("utf-8-sig"),
        NAMES.encode("utf-16"),
        b"\xfe\xff" + NAMES.encode("utf-16-be"),
        b"caf\xe9\r\npin.txt\r\n",
        "caf\u00e9\t\x1b\npin.txt\n".encode(),
        b"\r\npin.txt\f\npin.txt",
    ],
)
def test_an_agent_ignore_file_in_any_common_encoding_is_parsed(content: bytes, root: Path) -> None:
    (root / ".qwenignore").write_bytes(content)
    (root / "pin.txt").write_text("4711")
    (root / "other.txt").write_text("")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("pin.txt")) == ".qwenignore"
    assert agent_ignore_file(workspace, workspace.locate("other.txt")) is None


@needs_proc
@pytest.mark.requirement("ignore.fail_closed")
def test_an_agent_ignore_file_that_arrives_in_pieces_is_read_to_its_end(root: Path) -> None:
    (root / ".qwenignore").symlink_to("/proc/self/maps")
    rules = rules_for_agents(str(root), ".qwenignore")
    assert rules is not None
    assert len(rules) > Path("/proc/self/maps").read_bytes().count(b"\n") // 2


@pytest.mark.skipif(not os.path.exists("/proc/kmsg"), reason="not run: this system has no kernel log")
@pytest.mark.requirement("ignore.fail_closed")
def test_an_agent_ignore_file_that_never_ends_hides_everything(root: Path) -> None:
    (root / ".qwenignore").symlink_to("/proc/kmsg")
    (root / "pin.txt").write_text("4711")
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError, match="unknown what it hides"):
        agent_ignore_file(workspace, workspace.locate("pin.txt"))
