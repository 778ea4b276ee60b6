"""Files for long outputs: private, limited, and gone with the server."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.waiting import CEILING, until
from tools.machine.threads import Threads
from tools.shell import private_folders
from tools.shell.private_folders import (
    DEEPEST,
    PREFIX,
    OutputFile,
    PrivateFolder,
    PrivateFolders,
    empty_if_large,
    make_mount_point,
    measure_folder,
    remove_tree,
)
from tools.shell.program_output import MAX_WAITING

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[PrivateFolders]:
    store = PrivateFolders(str(tmp_path), file_bytes=100, client_bytes=250)
    yield store
    await store.aclose()


def opened(store: PrivateFolders, key: str = "a") -> OutputFile:
    folder = store.folder(key)
    assert folder is not None
    return folder.open()


async def written(store: PrivateFolders, *pieces: bytes, key: str = "a") -> OutputFile:
    file = opened(store, key)
    for piece in pieces:
        file.write(piece)
    await file.close()
    return file


@pytest.mark.requirement("shell.output.file")
async def test_files_and_folders_are_for_their_owner_only(store: PrivateFolders) -> None:
    file = await written(store, b"text")
    path = Path(file.path)
    folder = store.path_of("a")
    assert folder is not None
    assert path.parent == Path(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [made.stat().st_mode & 0o777 for made in (path.parent, path.parent.parent)] == [0o700, 0o700]


@pytest.mark.requirement("shell.output.file")
async def test_each_client_has_a_folder_whose_name_does_not_tell_its_key(store: PrivateFolders) -> None:
    folders = {store.path_of("secret"), store.path_of("other")}
    assert len(folders) == 2
    assert not [folder for folder in folders if folder is None or "secret" in folder]


@pytest.mark.requirement("shell.output.file")
async def test_nothing_is_kept_for_a_client_that_cannot_be_told_from_others(store: PrivateFolders) -> None:
    assert store.path_of("") is None
    assert store.folder("") is None


@pytest.mark.requirement("shell.output.file")
async def test_nothing_is_made_before_something_is_kept(store: PrivateFolders, tmp_path: Path) -> None:
    opened(store)
    assert store.path_of("a") is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("shell.output.quota")
async def test_one_output_is_kept_up_to_its_limit_and_the_rest_is_counted(store: PrivateFolders) -> None:
    file = await written(store, b"a" * 60, b"b" * 60, b"c" * 10)
    assert Path(file.path).read_bytes() == b"a" * 60 + b"b" * 40
    assert (file.kept_bytes, file.missing) == (100, 30)


@pytest.mark.requirement("shell.output.quota")
async def test_the_oldest_complete_output_of_a_client_makes_room(store: PrivateFolders) -> None:
    first, second = await written(store, b"1" * 100), await written(store, b"2" * 100)
    other = await written(store, b"o" * 100, key="b")
    third = await written(store, b"3" * 100)
    await until(lambda: not Path(first.path).exists())
    assert [Path(file.path).exists() for file in (second, third, other)] == [True, True, True]


@pytest.mark.requirement("shell.output.quota")
async def test_outputs_that_are_not_complete_stay_and_the_new_one_is_not_kept(store: PrivateFolders) -> None:
    files = [opened(store) for _ in range(3)]
    for file in files:
        file.write(b"x" * 100)
        await file.flush()
    assert [(file.kept_bytes, file.missing) for file in files] == [(100, 0), (100, 0), (0, 100)]
    assert [Path(file.path).exists() for file in files] == [True, True, False]
    await files[0].close()
    files[2].write(b"after a gap")
    await files[2].flush()
    assert (files[2].kept_bytes, files[2].missing) == (0, 111)
    for file in files:
        await file.close()


@pytest.mark.requirement("shell.output.faults")
async def test_an_output_that_cannot_be_written_is_counted_as_missing(store: PrivateFolders, tmp_path: Path) -> None:
    file = opened(store)
    (tmp_path / Path(store.path).name).write_text("in the way")
    file.write(b"text")
    file.write(b"more")
    await file.close()
    assert (file.kept_bytes, file.missing, file.waiting) == (0, 8, 0)


@pytest.mark.requirement("shell.output.file")
async def test_what_waits_for_the_disk_is_told_and_written_in_order(tmp_path: Path) -> None:
    store = PrivateFolders(str(tmp_path))
    file = opened(store)
    pieces = [bytes([number % 256]) * (number % 3000) for number in range(3000)]
    rooms: list[int] = []
    file.on_written = lambda: rooms.append(file.waiting)
    for piece in pieces:
        file.write(piece)
    assert file.waiting > MAX_WAITING
    await file.close()
    assert file.waiting == 0
    assert rooms[-1] == 0
    assert Path(file.path).read_bytes() == b"".join(pieces)
    await store.aclose()


@pytest.mark.requirement("shell.output.faults")
@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked for in /proc")
async def test_a_file_that_is_closed_while_it_is_written_is_let_go_of_after_that(tmp_path: Path) -> None:
    goes_on, writers = threading.Event(), Threads(1)
    path = tmp_path / "client"

    def make(_path: str) -> None:
        path.mkdir()
        goes_on.wait(CEILING)

    folder = PrivateFolder(str(path), 100, 100, writers, make)
    file = folder.open()
    file.write(b"text")
    with anyio.move_on_after(0) as scope:
        await file.close()
    assert scope.cancelled_caught
    goes_on.set()
    await until(lambda: Path(file.path).is_file() and Path(file.path).read_bytes() == b"text")
    await until(lambda: file.path not in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()})
    writers.close()


@pytest.mark.requirement("shell.output.faults")
async def test_the_files_of_a_client_that_is_forgotten_are_removed(store: PrivateFolders) -> None:
    mine, other = await written(store, b"1"), await written(store, b"2", key="b")
    store.forget("a")
    await until(lambda: not Path(mine.path).parent.exists())
    assert Path(other.path).exists()


@pytest.mark.requirement("shell.output.faults")
async def test_everything_is_removed_when_the_server_ends(store: PrivateFolders, tmp_path: Path) -> None:
    await written(store, b"1")
    await store.aclose()
    assert list(tmp_path.iterdir()) == []


KILLED_SERVER = """
import asyncio, os, signal, sys
from tools.shell.private_folders import PrivateFolders

async def main():
    file = PrivateFolders(sys.argv[1]).folder("a").open()
    file.write(b"left behind")
    await file.close()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.requirement("shell.output.faults")
async def test_a_server_that_needed_no_folder_removes_those_of_killed_ones_when_it_ends(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    (_left,) = tmp_path.iterdir()
    await PrivateFolders(str(tmp_path)).aclose()
    assert not [*tmp_path.iterdir()]


ENDS_BESIDE_A_SLOW_FOLDER = """
import asyncio, os, sys, threading
from tools.shell.private_folders import PrivateFolders

def look(event, _arguments):
    if event in ("os.remove", "os.rmdir"):
        threading.Event().wait()

async def main():
    sys.addaudithook(look)
    await PrivateFolders(sys.argv[1]).aclose()
    os._exit(7)

asyncio.run(main())
"""


@pytest.mark.requirement("shell.output.faults")
async def test_a_server_that_needed_no_folder_does_not_wait_for_the_removal_of_others(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    with anyio.fail_after(CEILING):
        done = await anyio.run_process(
            [sys.executable, "-c", ENDS_BESIDE_A_SLOW_FOLDER, str(tmp_path)], cwd=ROOT, check=False
        )
    assert done.returncode == 7
    await PrivateFolders(str(tmp_path)).aclose()
    assert not [*tmp_path.iterdir()]


KILLED_AT_END = """
import asyncio, os, signal, sys
from tools.shell.private_folders import PrivateFolders

async def main():
    folders = PrivateFolders(sys.argv[1])
    for number in range(20):
        folders.make(f"folder{number}")
    removed = []

    def look(event, arguments):
        if event == "os.rmdir":
            removed.append(arguments)
            if len(removed) == 20:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    await folders.aclose()

asyncio.run(main())
"""


@pytest.mark.requirement("shell.output.faults")
async def test_what_a_server_had_not_removed_when_it_was_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_AT_END, str(tmp_path)], cwd=ROOT, check=False)
    (left,) = tmp_path.iterdir()
    assert list(left.iterdir())
    await PrivateFolders(str(tmp_path)).aclose()
    assert not [*tmp_path.iterdir()]


@pytest.mark.requirement("shell.output.faults")
async def test_a_folder_that_is_named_like_the_lock_is_removed_too(store: PrivateFolders, tmp_path: Path) -> None:
    scratch = store.scratch_of("a", is_plan=True)
    assert scratch is not None
    store.make_scratch(scratch)
    Path(scratch, ".lock", "below").mkdir(parents=True)
    remove_tree(scratch)
    assert not Path(scratch).exists()


@pytest.mark.requirement("shell.output.faults")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not limit the size of files")
async def test_a_server_without_any_temporary_folder_reads_files_and_ends_in_order(root: Path) -> None:
    (root / "a.txt").write_text("found")
    calls = ((1, "list_directory", {"path": "."}), (2, "read_file", {"file_path": "a.txt"}))
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    lines = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *(
            {"id": at, "method": "tools/call", "params": {"name": tool, "arguments": given}}
            for at, tool, given in calls
        ),
    ]
    said = "".join(f"{json.dumps({'jsonrpc': '2.0', **line})}\n" for line in lines)
    server = f"ulimit -f 0; exec {shlex.quote(sys.executable)} {ROOT / 'coretools_mcp.py'} --workspace {root}"
    done = await anyio.run_process(
        ["sh", "-c", server], input=said.encode(), stderr=None
    )  # fails unless it exits with 0
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines()) if "id" in answer}
    assert "a.txt (5 bytes)" in answers[1]["content"][0]["text"]
    assert answers[2]["content"][0]["text"] == "found"


@pytest.mark.requirement("shell.output.faults")
async def test_the_files_of_a_server_that_was_killed_are_removed_by_the_next_one(
    store: PrivateFolders, tmp_path: Path
) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    (left,) = tmp_path.iterdir()
    living = PrivateFolders(str(tmp_path))
    alive = await written(living, b"of a living server")
    strangers = [tmp_path / f"{PREFIX}no-lock", tmp_path / "other"]
    for stranger in strangers:
        stranger.mkdir()
    mine = await written(store, b"1")
    assert not left.exists()
    assert Path(alive.path).exists()
    assert Path(mine.path).exists()
    assert all(stranger.exists() for stranger in strangers)
    await living.aclose()


@pytest.mark.requirement("scratch.owner")
async def test_a_client_has_a_scratch_folder_and_one_for_plans(store: PrivateFolders, tmp_path: Path) -> None:
    own, plans = (store.scratch_of("a", is_plan=is_plan) for is_plan in (False, True))
    assert own is not None
    assert plans is not None
    assert own != plans
    assert store.scratch_of("", is_plan=False) is None
    store.forget_plan("a")
    store.forget("a")
    assert list(tmp_path.iterdir()) == []
    for path in (own, plans, own):
        store.make_scratch(path)
        Path(path, "file").touch()
    assert [Path(path).stat().st_mode & 0o7777 for path in (own, plans)] == [0o1777, 0o1777]
    assert Path(own).parent.stat().st_mode & 0o777 == 0o700
    store.forget_plan("a")
    await until(lambda: not Path(plans).exists())
    assert Path(own, "file").exists()
    store.forget("a")
    await until(lambda: not Path(own).exists())
    store.make_scratch(own)
    await store.aclose()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("scratch.owner")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: elsewhere commands have no scratch folder")
@pytest.mark.requirement("sandbox.caches")
def test_caches_last_for_one_client_in_one_workspace_and_go_when_they_are_not_used(tmp_path: Path) -> None:
    def folder(key: str, *roots: str) -> str | None:
        return PrivateFolders(caches=str(tmp_path), comes_back=lambda key: key != "session").cache_of(key, roots)

    mine = folder("stdio", "/a", "/b")
    assert mine is not None
    assert mine == folder("stdio", "/b", "/a")
    assert len({mine, folder("stdio", "/a"), folder("token", "/a", "/b")}) == 3
    assert folder("session", "/a") is None
    assert PrivateFolders().cache_of("stdio", ["/a"]) is None
    os.utime(mine, (0, 0))
    assert folder("stdio", "/new") is not None
    assert not os.path.exists(mine)
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert PrivateFolders(caches=str(blocked / "x")).cache_of("stdio", ["/a"]) is None


@pytest.mark.requirement("sandbox.caches")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: modes of POSIX")
def test_caches_are_closed_to_others_and_nothing_behind_a_link_in_their_place_is_removed(tmp_path: Path) -> None:
    old, caches, link = tmp_path / "data" / "old", tmp_path / "caches", tmp_path / "link"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    link.symlink_to(old.parent)
    assert PrivateFolders(caches=str(link)).cache_of("stdio", ["/a"]) is None
    assert old.exists()
    caches.mkdir()
    caches.chmod(0o777)
    mine = PrivateFolders(caches=str(caches)).cache_of("stdio", ["/a"])
    assert mine is not None
    assert stat.S_IMODE(caches.stat().st_mode) == stat.S_IMODE(os.stat(mine).st_mode) == 0o700
    os.rmdir(mine)
    os.symlink(old, mine)
    assert PrivateFolders(caches=str(caches)).cache_of("stdio", ["/a"]) is None


def deep(folder: Path, depth: int) -> None:
    """Make folders in each other below a folder, too many for one path, and a file in the deepest."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=here)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.mark.requirement("sandbox.temporary.deep")
def test_folders_too_deep_for_a_path_are_removed_and_no_link_among_them_is_followed(tmp_path: Path) -> None:
    elsewhere, scratch = tmp_path / "elsewhere", tmp_path / "scratch"
    (elsewhere / "folder").mkdir(parents=True)
    (elsewhere / "folder" / "file").touch()
    (elsewhere / "folder").chmod(0o555)
    (scratch / "closed" / "inner").mkdir(parents=True)
    for link in (scratch / "link", scratch / "closed" / "inner" / "link"):
        link.symlink_to(elsewhere)
    (scratch / "closed" / "inner").chmod(0)
    (scratch / "closed").chmod(0o555)
    deep(scratch, 300)
    remove_tree(str(scratch))
    assert not scratch.exists()
    assert (elsewhere / "folder" / "file").exists()
    assert stat.S_IMODE((elsewhere / "folder").stat().st_mode) == 0o555


@pytest.mark.requirement("sandbox.temporary.deep")
def test_a_scratch_folder_with_too_much_in_a_place_too_deep_or_closed_is_emptied(tmp_path: Path) -> None:
    for name, depth, mode in (("shallow", DEEPEST - 1, 0o755), ("too deep", DEEPEST + 1, 0o755), ("closed", 3, 0)):
        scratch = tmp_path / name
        scratch.mkdir()
        deep(scratch, depth)
        (scratch / ("d" * 20)).chmod(mode)
        most = 1 << 30 if mode else 4 * 1024 * 2
        held, _ = empty_if_large(str(scratch), most)
        assert (bool(held), os.listdir(scratch) == []) == (name != "shallow", name != "shallow"), name


@pytest.mark.requirement("sandbox.temporary.deep")
@pytest.mark.skipif(sys.platform != "linux", reason="open descriptors are counted with /proc")
def test_a_folder_that_cannot_be_listed_stays_open_no_longer_than_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    listed = [iter([*os.scandir(tmp_path)])]

    def entries(_folder: int) -> object:
        if not listed:
            raise OSError
        return listed.pop()

    monkeypatch.setattr(private_folders, "_entries", entries)
    before = os.listdir("/proc/self/fd")
    assert measure_folder(str(tmp_path), 1 << 30)[1:] == (1, False)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.requirement("sandbox.places")
def test_a_place_to_mount_on_is_made_in_the_scratch_folder_wherever_links_there_lead(tmp_path: Path) -> None:
    elsewhere, scratch = tmp_path / "elsewhere", tmp_path / "scratch"
    elsewhere.mkdir()
    scratch.mkdir()
    (elsewhere / "file").write_text("kept")
    (scratch / "link").symlink_to(elsewhere)
    assert make_mount_point(str(scratch), ["link", "file"], is_file=True)
    assert not make_mount_point(str(scratch), ["link", "file"], is_file=True)
    assert not make_mount_point(str(scratch), ["link", "file", "folder"], is_file=False)
    assert (scratch / "link" / "file" / "folder").is_dir()
    assert [(path.name, path.read_text()) for path in elsewhere.iterdir()] == [("file", "kept")]
