"""Reading a batch of files that a search has found: paths that changed since then, and files that are left open."""

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
from tools.contract.call_options import Deadline
from tools.contract.tool_results import TextPart
from tools.files.path_opener import NotRegularError, identity_of, open_folder, open_regular
from tools.files.read.file_reader import read as content_of
from tools.files.read.file_reader import read_beginning
from tools.files.read.line_window import LineRequest
from tools.files.read.several_files import Batch, Candidate
from tools.files.workspace import SeenFile

NAMES = ("a.txt", "b.txt", "c.txt")


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    """A folder next to the workspace."""
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def candidates(root: Path) -> list[Candidate]:
    """Three files in one folder, as a walk finds them, and one file in the folder above."""
    (root / "inside").mkdir()
    for name in NAMES:
        (root / "inside" / name).write_text(f"harmless {name}")
    (root / "z.txt").write_text("harmless z.txt")
    paths = [str(root / "inside" / name) for name in NAMES]
    return [Candidate(path, None) for path in (*paths, str(root / "z.txt"))]


def read(context: ToolContext, candidates: list[Candidate]) -> Batch:
    """Read the files, and return the batch."""
    deadline = Deadline(context.signal, 30)
    batch = Batch(context.workspace, context.limits, context.media, deadline, context.client.reads, (), is_checked=True)
    batch.read(candidates)
    return batch


def become_folder(path: Path) -> None:
    """Replace a file with a folder."""
    path.unlink()
    path.mkdir()


def text_of(batch: Batch) -> str:
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
def test_a_batch_shows_and_remembers_the_same_as_a_single_read(
    content: bytes, root: Path, context: ToolContext
) -> None:
    path = str(root / "a.txt")
    Path(path).write_bytes(content)
    batch = read(context, [Candidate(path, None)])
    location = context.workspace.at(path)
    with context.workspace.open_file(location) as file:
        request = LineRequest(0, context.limits.read_lines, context.limits, context.signal)
        reading = content_of(file, location, *read_beginning(file, location), request, context.media)
        identity = identity_of(file.info)
    [part] = reading.parts
    assert isinstance(part, TextPart)
    is_cut = reading.truncated or reading.shortened
    assert text_of(batch).startswith(f"--- {path} ---\n\n{'[WARNING: only part' if is_cut else part.text}")
    assert text_of(batch).endswith(f"{part.text}\n\n")
    assert context.client.reads is not None
    assert context.client.reads.get(path) == SeenFile(identity, reading.sha256)
    assert reading.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("name", NAMES)
def test_a_found_file_that_became_a_link_leading_out_is_skipped(
    name: str, root: Path, outside_folder: Path, context: ToolContext, candidates: list[Candidate]
) -> None:
    (outside_folder / "far.txt").write_text("far away")
    (root / "inside" / name).unlink()
    (root / "inside" / name).symlink_to(outside_folder / "far.txt")
    batch = read(context, candidates)
    assert batch.read_paths == [file.path for file in candidates if not file.path.endswith(name)]
    [(path, reason)] = batch.skipped
    assert path == str(root / "inside" / name)
    assert "outside" in reason
    assert "far away" not in text_of(batch)


@pytest.mark.requirement("paths.exchanged")
def test_no_file_is_read_in_a_found_folder_that_became_a_link_leading_out(
    root: Path, outside_folder: Path, context: ToolContext, candidates: list[Candidate]
) -> None:
    for name in NAMES:
        (outside_folder / name).write_text("far away")
    (root / "inside").rename(root / "before")
    (root / "inside").symlink_to(outside_folder)
    batch = read(context, candidates)
    assert batch.read_paths == [str(root / "z.txt")]
    assert [path for path, _ in batch.skipped] == [str(root / "inside" / name) for name in NAMES]
    assert all("outside" in reason for _, reason in batch.skipped)
    assert "far away" not in text_of(batch)


@pytest.mark.requirement("many.skipped")
@pytest.mark.parametrize(
    ("exchange", "reason"),
    [(Path.unlink, "does not exist"), (become_folder, "is a directory")],
    ids=["gone", "folder"],
)
def test_the_first_and_later_files_of_a_folder_are_skipped_with_the_same_reason(
    exchange: Callable[[Path], None], reason: str, context: ToolContext, candidates: list[Candidate]
) -> None:
    first, _, last, outer_file = candidates
    for file in (first, last):
        exchange(Path(file.path))
    batch = read(context, candidates)
    assert [path for path, _ in batch.skipped] == [first.path, last.path]
    assert all(reason in skip_reason for _, skip_reason in batch.skipped)
    assert batch.read_paths == [candidates[1].path, outer_file.path]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
@pytest.mark.requirement("many.skipped")
def test_nothing_stays_open_after_a_batch(root: Path, context: ToolContext, candidates: list[Candidate]) -> None:
    (root / "inside" / "b.txt").unlink()
    descriptors = os.listdir("/proc/self/fd")
    assert len(read(context, candidates).read_paths) == len(candidates) - 1
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


@pytest.mark.parametrize("asks_for_stream", [False, True], ids=["head", "stream"])
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
@pytest.mark.requirement("many.skipped")
def test_an_opened_file_is_closed_whether_or_not_its_stream_was_used(root: Path, asks_for_stream: bool) -> None:
    (root / "a.txt").write_text("text")
    descriptors = os.listdir("/proc/self/fd")
    with open_regular(str(root / "a.txt")) as file:
        assert file.head(2) == b"te"
        assert not asks_for_stream or file.stream.read() == b"text"
        assert len(os.listdir("/proc/self/fd")) == len(descriptors) + 1
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes, and links need special rights")
@pytest.mark.requirement("paths.special")
def test_only_regular_files_are_opened_in_an_open_folder(root: Path) -> None:
    (root / "a.txt").write_text("text")
    (root / "link.txt").symlink_to(root / "a.txt")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    with open_folder(str(root)) as folder:
        with folder.open_file("a.txt") as file:
            assert file.head(10) == b"text"
            assert stat.S_ISREG(file.info.st_mode)
        for name in ("folder", "pipe"):
            with pytest.raises(NotRegularError):
                folder.open_file(name)
        with pytest.raises(OSError, match="symbolic links"):
            folder.open_file("link.txt")
