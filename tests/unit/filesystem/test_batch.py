"""Reading a batch of files that were found: what is at a path by then, and what stays open."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.call.base_tool import ToolContext
from tools.contract.limits import Deadline
from tools.contract.tool_results import TextPart
from tools.files.path_opener import NotRegularError, identity_of, open_folder, open_regular
from tools.files.read.file_reader import read as content_of
from tools.files.read.file_reader import read_beginning
from tools.files.read.line_window import LineRequest
from tools.files.read.several_files import Batch, Candidate
from tools.files.workspace import SeenFile

NAMES = ("a.txt", "b.txt", "c.txt")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace."""
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def found(root: Path) -> list[Candidate]:
    """Three files of one folder, as a walk has found them, and one of the folder above."""
    (root / "inside").mkdir()
    for name in NAMES:
        (root / "inside" / name).write_text(f"harmless {name}")
    (root / "z.txt").write_text("harmless z.txt")
    paths = [str(root / "inside" / name) for name in NAMES]
    return [Candidate(path, None) for path in (*paths, str(root / "z.txt"))]


def read(context: ToolContext, candidates: list[Candidate]) -> Batch:
    deadline = Deadline(context.signal, 30)
    batch = Batch(context.workspace, context.limits, context.media, deadline, context.client.reads, (), is_checked=True)
    batch.read(candidates)
    return batch


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def shown(batch: Batch) -> str:
    return "".join(part.text for part in batch.parts if isinstance(part, TextPart))


@pytest.mark.requirement("many.text")
@pytest.mark.requirement("many.budget")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no line ending",
        "gr\u00fc\u00dfe\n".encode(),
        b"one\r\ntwo\rthree\n",
        codecs.BOM_UTF8 + b"marked\n",
        codecs.BOM_UTF16_LE + "wide\n".encode("utf-16-le"),
        b"caf\xe9 cr\xe8me\n",
        b"half a character \xc3",
        b"x" * 5_000 + b"\n",
        b"line\n" * 3_000,
        b"0123456789\n" * 2_500,
        b"0123456789\n" * 8_000,
    ],
    ids="empty open utf-8 endings mark wide legacy damaged long many room large".split(),  # noqa: SIM905 - one line
)
def test_a_batch_shows_and_remembers_what_a_read_does(content: bytes, root: Path, context: ToolContext) -> None:
    path = str(root / "a.txt")
    Path(path).write_bytes(content)
    batch = read(context, [Candidate(path, None)])
    location = context.workspace.at(path)
    with context.workspace.open_file(location) as opened:
        wanted = LineRequest(0, context.limits.read_lines, context.limits, context.signal)
        alone = content_of(opened, location, *read_beginning(opened, location), wanted, context.media)
        identity = identity_of(opened.info)
    [part] = alone.parts
    assert isinstance(part, TextPart)
    is_cut = alone.truncated or alone.shortened
    assert shown(batch).startswith(f"--- {path} ---\n\n{'[WARNING: only part' if is_cut else part.text}")
    assert shown(batch).endswith(f"{part.text}\n\n")
    assert context.client.reads is not None
    assert context.client.reads.get(path) == SeenFile(identity, alone.sha256)
    assert alone.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("name", NAMES)
def test_a_found_file_that_became_a_link_leading_out_is_skipped(
    name: str, root: Path, outside: Path, context: ToolContext, found: list[Candidate]
) -> None:
    (outside / "far.txt").write_text("far away")
    (root / "inside" / name).unlink()
    (root / "inside" / name).symlink_to(outside / "far.txt")
    batch = read(context, found)
    assert batch.read_paths == [file.path for file in found if not file.path.endswith(name)]
    [(path, reason)] = batch.skipped
    assert path == str(root / "inside" / name)
    assert "outside" in reason
    assert "far away" not in shown(batch)


@pytest.mark.requirement("paths.exchanged")
def test_of_a_found_folder_that_became_a_link_leading_out_no_file_is_read(
    root: Path, outside: Path, context: ToolContext, found: list[Candidate]
) -> None:
    for name in NAMES:
        (outside / name).write_text("far away")
    (root / "inside").rename(root / "before")
    (root / "inside").symlink_to(outside)
    batch = read(context, found)
    assert batch.read_paths == [str(root / "z.txt")]
    assert [path for path, _ in batch.skipped] == [str(root / "inside" / name) for name in NAMES]
    assert all("outside" in reason for _, reason in batch.skipped)
    assert "far away" not in shown(batch)


@pytest.mark.requirement("many.skipped")
@pytest.mark.parametrize(
    ("exchange", "reason"),
    [(Path.unlink, "does not exist"), (become_folder, "is a directory")],
    ids=["gone", "folder"],
)
def test_the_reason_is_told_for_a_later_file_of_a_folder_as_for_the_first(
    exchange: Callable[[Path], None], reason: str, context: ToolContext, found: list[Candidate]
) -> None:
    first, _, last, above = found
    for file in (first, last):
        exchange(Path(file.path))
    batch = read(context, found)
    assert [path for path, _ in batch.skipped] == [first.path, last.path]
    assert all(reason in told for _, told in batch.skipped)
    assert batch.read_paths == [found[1].path, above.path]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
@pytest.mark.requirement("many.skipped")
def test_nothing_stays_open_after_a_batch(root: Path, context: ToolContext, found: list[Candidate]) -> None:
    (root / "inside" / "b.txt").unlink()
    before = os.listdir("/proc/self/fd")
    assert len(read(context, found).read_paths) == len(found) - 1
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("asks_for_stream", [False, True], ids=["head", "stream"])
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
@pytest.mark.requirement("many.skipped")
def test_an_opened_file_is_closed_whether_or_not_its_stream_was_used(root: Path, asks_for_stream: bool) -> None:
    (root / "a.txt").write_text("text")
    before = os.listdir("/proc/self/fd")
    with open_regular(str(root / "a.txt")) as opened:
        assert opened.head(2) == b"te"
        assert not asks_for_stream or opened.stream.read() == b"text"
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with names, nor links without rights")
@pytest.mark.requirement("paths.special")
def test_only_regular_files_are_opened_in_an_open_folder(root: Path) -> None:
    (root / "a.txt").write_text("text")
    (root / "link.txt").symlink_to(root / "a.txt")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    with open_folder(str(root)) as folder:
        with folder.open_file("a.txt") as opened:
            assert opened.head(10) == b"text"
            assert stat.S_ISREG(opened.info.st_mode)
        for name in ("folder", "pipe"):
            with pytest.raises(NotRegularError):
                folder.open_file(name)
        with pytest.raises(OSError, match="symbolic links"):
            folder.open_file("link.txt")
