"""Edits that must not go wrong: ambiguous, empty, stale, huge, and many at once."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, ROOT, connected, http_client, our_http_server, write_config
from tests.hostile.every_tool import ToolAnswer, assert_alive, call
from tests.hostile.watched_server import needs_proc, watched_server
from tools.files.change.writer import Disk, rename_in, replace_file
from tools.files.path_opener import Folder, identity_of
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

MIXED = b"one\r\ntwo\nthree\rfour \t\r\r\nfive\n\rsix"
"""Lines with every kind of ending, of which two adjoin another kind, and a last line without an ending."""


async def edit(client: Client, old: str, new: str, **options: object) -> ToolAnswer:
    return await call(client, "edit", file_path="a.txt", old_string=old, new_string=new, **options)


@pytest.mark.requirement("edit.bytes")
async def test_one_line_of_a_file_of_mixed_endings_is_edited_and_nothing_else(root: Path, client: Client) -> None:
    for line in ("one", "two", "three", "four", "five", "six"):
        # Deleting a whole line would also delete its ending, so only a part of a line is deleted.
        for old, new in ((line, "X"), (line, "longer than before"), (line[:-1], "")):
            path = root / f"{line} {new}.txt"
            path.write_bytes(MIXED)
            answer = await call(client, "edit", file_path=path.name, old_string=old, new_string=new)
            assert answer.result.is_error is not True, answer.text
            assert path.read_bytes() == MIXED.replace(old.encode(), new.encode()), path.name


@pytest.mark.requirement("edit.bytes")
async def test_new_lines_take_the_ending_of_the_surrounding_lines(root: Path, client: Client) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    answer = await edit(client, "one\ntwo\n", "one\nput in\ntwo\n")
    assert answer.result.is_error is not True, answer.text
    assert (root / "a.txt").read_bytes() == b"one\r\nput in\r\ntwo\r\nthree\r\n"


@pytest.mark.requirement("edit.create")
async def test_an_old_text_that_occurs_three_times_is_refused_with_its_lines(root: Path, client: Client) -> None:
    content = b"same\nother\nsame\r\n\nnot same\n"
    (root / "a.txt").write_bytes(content)
    before = (root / "a.txt").stat()
    refusal = await edit(client, "same", "changed")
    assert refusal.code == "edit_expected_occurrence_mismatch"
    assert "3 times" in refusal.text
    assert re.search(r"lines 1, 3, 5\b", refusal.text)
    assert "replace_all" in refusal.text
    wrong_count = await edit(client, "same", "changed", expected_replacements=2)
    assert wrong_count.code == "edit_expected_occurrence_mismatch"
    assert (root / "a.txt").read_bytes() == content
    assert (root / "a.txt").stat().st_ino == before.st_ino
    answer = await edit(client, "same", "changed", expected_replacements=3, replace_all=True)
    assert answer.result.is_error is not True
    assert (root / "a.txt").read_bytes() == content.replace(b"same", b"changed")


@pytest.mark.requirement("edit.create")
@pytest.mark.parametrize("content", [b"text\n", b"", b"\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("new", ["new", ""])
async def test_an_empty_old_text_on_a_file_that_exists_is_refused(
    content: bytes, new: str, root: Path, client: Client
) -> None:
    (root / "a.txt").write_bytes(content)
    assert (await edit(client, "", new)).code == "attempt_to_create_existing_file"
    assert (await edit(client, "", new, replace_all=True)).code == "attempt_to_create_existing_file"
    assert (root / "a.txt").read_bytes() == content


@pytest.mark.requirement("edit.create")
@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        (b"text\n", "text", "text"),
        (b"a\r\nb\r\n", "a\nb", "a\nb"),
        (b"a\r\nb\r\n", "a\nb", "a\r\nb"),
        (b"text\n", "\n", "\n"),
    ],
)
async def test_an_edit_that_changes_nothing_is_refused(
    content: bytes, old: str, new: str, root: Path, client: Client
) -> None:
    (root / "a.txt").write_bytes(content)
    before = (root / "a.txt").stat()
    refusal = await edit(client, old, new)
    assert refusal.code == "edit_no_change", refusal.text
    assert (root / "a.txt").read_bytes() == content
    after = (root / "a.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


CAUSES = [
    pytest.param(b"a\r\n  b\r\nc\r\n", "a\n  b\n", "a\n  B\n", b"a\r\n  B\r\nc\r\n", id="LF for CRLF"),
    pytest.param(b"a\rb\rc", "a\nb", "a\nB", b"a\rB\rc", id="LF for CR"),
    pytest.param(b"a\nb\nc\n", "a\r\nb\r\n", "a\r\nB\r\n", b"a\nB\nc\n", id="CRLF for LF"),
    pytest.param(b"if x:\n    y\n", "if x:\n\ty", "if x:\n\tz", b"if x:\n    z\n", id="tab for blanks"),
    pytest.param(b"if x:\n\ty\n", "if x:\n    y", "if x:\n    z", b"if x:\n\tz\n", id="blanks for tab"),
    pytest.param(
        "say \u201chi\u201d \u2013 it\u2019s\n".encode(), 'say "hi" - it\'s', "said", b"said\n", id="plain for smart"
    ),
    pytest.param(b'say "hi" - it\'s\n', "say \u201chi\u201d \u2013 it\u2019s", "said", b"said\n", id="smart for plain"),
    pytest.param("a\u00a0b\n".encode(), "a b", "c", b"c\n", id="blank for no-break space"),
    pytest.param(b"a  \nb\n", "a\nb", "c\nb", b"c\nb\n", id="without trailing blanks"),
]


@pytest.mark.requirement("edit.causes")
@pytest.mark.parametrize(("content", "old", "new", "after"), CAUSES)
async def test_a_text_that_differs_in_white_space_or_quotes_matches_once_and_the_difference_is_reported(
    *, content: bytes, old: str, new: str, after: bytes, root: Path, client: Client
) -> None:
    (root / "a.txt").write_bytes(content)
    answer = await edit(client, old, new)
    assert answer.result.is_error is not True, answer.text
    assert (root / "a.txt").read_bytes() == after
    assert answer.structured["strategy"] != "exact"
    if answer.structured["strategy"] != "line_endings":
        assert "old_string did not match exactly" in answer.text


@pytest.mark.requirement("edit.causes")
@pytest.mark.parametrize(("content", "old", "new", "after"), CAUSES)
async def test_nothing_is_changed_if_a_text_that_matches_inexactly_occurs_twice(
    *, content: bytes, old: str, new: str, after: bytes, root: Path, client: Client
) -> None:
    del after
    ending = b"\r" if b"\r" in content and b"\n" not in content else b"\n"
    text = content + ending + b"between" + ending + content
    (root / "a.txt").write_bytes(text)
    assert (await edit(client, old, new)).code == "edit_expected_occurrence_mismatch"
    assert (root / "a.txt").read_bytes() == text


@pytest.mark.requirement("edit.causes")
@pytest.mark.parametrize(
    ("content", "old", "cause"),
    [
        (b"one\ntwo\nthree\n", "1\tone\n2\ttwo", "contains line numbers"),
        (b'print("a\\nb")\nx\n', 'print("a\nb")', "\\n"),
        (b"alpha\nbeta gamma\ndelta\n", "beta  gamma\ndelta", "beta gamma"),
        (b"alpha\nbeta gamma delta\n", "beta gamna delta", "beta gamma delta"),
    ],
)
async def test_a_text_that_does_not_match_is_refused_with_its_likely_cause(
    content: bytes, old: str, cause: str, root: Path, client: Client
) -> None:
    (root / "a.txt").write_bytes(content)
    refusal = await edit(client, old, "new")
    assert refusal.code == "edit_no_occurrence_found"
    assert cause in refusal.text
    assert (root / "a.txt").read_bytes() == content


@pytest.mark.requirement("edit.bounded")
@needs_proc
async def test_a_large_text_without_a_match_is_refused_while_pings_are_answered(root: Path) -> None:
    line = "def name_%05d(self, argument: int) -> str:  # nearly the same everywhere\n"
    (root / "a.txt").write_text("".join(line % number for number in range(28_000)))
    assert (root / "a.txt").stat().st_size > 2_000_000
    old = "".join(line.replace("nearly", "almost") % number for number in range(14_000, 14_110))
    assert len(old) > 8_000
    before = hashlib.sha256((root / "a.txt").read_bytes()).digest()
    async with watched_server(root) as server:
        with anyio.fail_after(30):
            result = await server.call("edit", file_path="a.txt", old_string=old, new_string="x")
    refusal = ToolAnswer("edit", result)
    assert refusal.code == "edit_no_occurrence_found"
    assert len(refusal.text) < 8_000
    assert hashlib.sha256((root / "a.txt").read_bytes()).digest() == before


@pytest.mark.requirement("edit.stale")
@pytest.mark.parametrize("tool", ["edit", "write_file"])
@pytest.mark.parametrize("change", ["written", "replaced", "same size and time", "cut", "appended"])
async def test_a_file_that_changed_after_the_read_is_not_written(
    tool: str, change: str, root: Path, client: Client
) -> None:
    path = root / "a.txt"
    path.write_text("first\nlast\n")
    read_state = path.stat()
    await call(client, "read_file", file_path="a.txt")
    match change:
        case "written":
            path.write_text("first\nchanged\nlast\n")
        case "replaced":
            (root / "other").write_text("First\nlast\nfirst")
            (root / "other").rename(path)
        case "same size and time":
            path.write_text("first\nLAST\n")
            os.utime(path, ns=(read_state.st_atime_ns, read_state.st_mtime_ns))
        case "cut":
            os.truncate(path, 6)
        case _:
            with path.open("a") as stream:
                stream.write("more\n")
    content = path.read_bytes()
    texts = {"content": "mine"} if tool == "write_file" else {"old_string": "first", "new_string": "mine"}
    assert (await call(client, tool, file_path="a.txt", **texts)).code == "file_changed_since_read"
    assert path.read_bytes() == content
    await call(client, "read_file", file_path="a.txt")
    assert (await call(client, tool, file_path="a.txt", **texts)).result.is_error is not True
    assert b"mine" in path.read_bytes()


@pytest.mark.requirement("edit.stale")
@pytest.mark.parametrize("change", ["touched", "replaced by an equal one", "mode changed"])
async def test_a_file_whose_content_is_the_same_is_fresh(change: str, root: Path, client: Client) -> None:
    path = root / "a.txt"
    path.write_text("first\n")
    await call(client, "read_file", file_path="a.txt")
    if change == "touched":
        os.utime(path, (1, 1))
    elif change == "mode changed":
        path.chmod(0o600)
    else:
        (root / "other").write_text("first\n")
        (root / "other").rename(path)
    assert (await edit(client, "first", "mine")).result.is_error is not True
    assert path.read_text() == "mine\n"


@pytest.mark.requirement("edit.stale")
async def test_a_file_that_was_deleted_after_the_read_is_not_recreated_by_an_edit(root: Path, client: Client) -> None:
    (root / "a.txt").write_text("first\n")
    await call(client, "read_file", file_path="a.txt")
    (root / "a.txt").unlink()
    assert (await edit(client, "first", "mine")).code == "file_not_found"
    assert not os.listdir(root)


@pytest.mark.requirement("edit.stale")
async def test_a_file_that_was_never_read_may_be_edited_and_a_wrong_digest_is_refused(
    root: Path, client: Client
) -> None:
    (root / "a.txt").write_text("first\n")
    wrong = await edit(client, "first", "mine", expected_sha256=hashlib.sha256(b"other").hexdigest())
    assert wrong.code == "file_changed_since_read"
    assert (root / "a.txt").read_text() == "first\n"
    assert (await edit(client, "first", "mine")).result.is_error is not True
    assert (root / "a.txt").read_text() == "mine\n"


SLOTS = 50
FILLER = "0123456789abcdef" * 4
START = "".join(f"slot {number:02}: open\n" + f"{FILLER}\n" * 12 for number in range(SLOTS))
COMPLETE_FILE = re.compile(
    "".join(rf"slot {number:02}: (?:open|done by [ab])\n(?:{FILLER}\n){{12}}" for number in range(SLOTS))
)
"""Matches the file at every moment."""


async def fill(client: Client, name: str, slots: range) -> int:
    """Fill slots with one call each. Repeat calls refused because the file has changed, and return their number."""
    refusals = 0
    for slot in slots:
        while True:
            answer = await edit(client, f"slot {slot:02}: open", f"slot {slot:02}: done by {name}")
            if answer.result.is_error is not True:
                break
            assert answer.code == "file_changed_since_read", answer.text
            refusals += 1
            await call(client, "read_file", file_path="a.txt")
    return refusals


@asynccontextmanager
async def two_sessions(servers: str, root: Path, folder: Path) -> AsyncGenerator[tuple[Client, Client]]:
    if servers == "two processes":
        async with (
            connected("stdio", HANDSHAKE, root) as first,
            connected("stdio", HANDSHAKE, root) as second,
        ):
            yield first, second
        return
    config = write_config(folder, {"confirmation": {"whenUnavailable": "client"}})
    async with (
        our_http_server(root, config) as url,
        http_client(url, "http", HANDSHAKE) as first,
        http_client(url, "http", HANDSHAKE) as second,
    ):
        yield first, second


@pytest.mark.requirement("edit.concurrent")
@pytest.mark.parametrize("servers", [pytest.param("one server", marks=pytest.mark.long), "two processes"])
async def test_of_fifty_parallel_edits_of_two_sessions_none_is_lost_or_seen_half_written(
    servers: str, root: Path, tmp_path: Path
) -> None:
    path = root / "a.txt"
    path.write_text(START)
    is_done = anyio.Event()
    reads = 0

    async def watch() -> None:
        nonlocal reads
        while not is_done.is_set():
            text = await anyio.to_thread.run_sync(path.read_text)
            assert COMPLETE_FILE.fullmatch(text), f"torn after {reads} reads: {len(text)} characters"
            reads += 1
            await anyio.sleep(0.002)

    async with two_sessions(servers, root, tmp_path) as (first, second):
        with anyio.fail_after(50):
            async with anyio.create_task_group() as readers:
                readers.start_soon(watch)
                async with anyio.create_task_group() as writers:
                    for part in range(0, SLOTS, 10):
                        writers.start_soon(fill, first, "a", range(part, part + 5))
                        writers.start_soon(fill, second, "b", range(part + 5, part + 10))
                is_done.set()
        await assert_alive(first)
        await assert_alive(second)
    final_text = START
    for slot in range(SLOTS):
        final_text = final_text.replace(f"slot {slot:02}: open", f"slot {slot:02}: done by {'ab'[slot % 10 // 5]}")
    assert path.read_text() == final_text
    assert reads > 0
    assert os.listdir(root) == ["a.txt"]


OTHER_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from tools.contract.tool_errors import ToolError
from tools.files.change import writer
from tools.files.path_opener import identity_of
from tools.files.workspace import Workspace
from tools.files.change.writer import replace_file

writer.BUSY_SECONDS = 0.05
workspace = Workspace([sys.argv[2]])
location = workspace.locate("a.txt")
try:
    replace_file(workspace, location, b"the other's", identity_of(workspace.stat(location)))
except ToolError as error:
    print(error.message)
else:
    print("written")
"""


@pytest.mark.requirement("edit.concurrent")
def test_another_process_cannot_write_between_the_last_check_of_a_file_and_its_rename(root: Path) -> None:
    (root / "a.txt").write_bytes(b"before")
    outputs: list[str] = []

    def rename_late(folder: Folder, source: str, target: str, replacing: bool) -> None:
        command = [sys.executable, "-P", "-c", OTHER_WRITER, str(ROOT), str(root)]
        outputs.append(subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout)
        rename_in(folder, source, target, replacing)

    workspace = Workspace([str(root)])
    location = workspace.locate("a.txt")
    info = workspace.stat(location)
    assert info is not None
    replace_file(workspace, location, b"ours", identity_of(info), Disk(rename=rename_late))
    assert (root / "a.txt").read_bytes() == b"ours"
    assert len(outputs) == 1
    assert "in use by another program" in outputs[0]
    assert os.listdir(root) == ["a.txt"]
