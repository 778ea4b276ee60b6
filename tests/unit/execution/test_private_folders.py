"""Folders for long outputs, scratch files and caches: private, limited in size, and removed when no longer needed."""

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


def open_file(store: PrivateFolders, key: str = "a") -> OutputFile:
    folder = store.folder(key)
    assert folder is not None
    return folder.open()


async def write_file(store: PrivateFolders, *pieces: bytes, key: str = "a") -> OutputFile:
    file = open_file(store, key)
    for piece in pieces:
        file.write(piece)
    await file.close()
    return file


@pytest.mark.requirement("shell.output.file")
async def test_files_and_folders_are_for_their_owner_only(store: PrivateFolders) -> None:
    file = await write_file(store, b"text")
    path = Path(file.path)
    client_folder = store.path_of("a")
    assert client_folder is not None
    assert path.parent.parent == Path(client_folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in path.parents[:3]] == [0o700] * 3


@pytest.mark.requirement("shell.output.file")
async def test_each_client_has_a_folder_whose_name_does_not_reveal_its_key(store: PrivateFolders) -> None:
    folders = {store.path_of("secret"), store.path_of("other")}
    assert len(folders) == 2
    assert not [folder for folder in folders if folder is None or "secret" in folder]


@pytest.mark.requirement("shell.output.file")
async def test_nothing_is_kept_for_a_client_that_cannot_be_told_from_others(store: PrivateFolders) -> None:
    assert store.path_of("") is None
    assert store.folder("") is None


@pytest.mark.requirement("shell.output.file")
async def test_no_folder_is_created_before_something_is_written(store: PrivateFolders, tmp_path: Path) -> None:
    open_file(store)
    assert store.path_of("a") is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("shell.output.quota")
async def test_one_output_is_kept_up_to_its_limit_and_the_rest_is_counted(store: PrivateFolders) -> None:
    file = await write_file(store, b"a" * 60, b"b" * 60, b"c" * 10)
    assert Path(file.path).read_bytes() == b"a" * 60 + b"b" * 40
    assert (file.kept_bytes, file.missing) == (100, 30)


@pytest.mark.requirement("shell.output.quota")
async def test_the_oldest_complete_output_of_a_client_makes_room(store: PrivateFolders) -> None:
    first, second = await write_file(store, b"1" * 100), await write_file(store, b"2" * 100)
    other_client_file = await write_file(store, b"o" * 100, key="b")
    third = await write_file(store, b"3" * 100)
    await until(lambda: not Path(first.path).exists())
    assert [Path(file.path).exists() for file in (second, third, other_client_file)] == [True, True, True]


@pytest.mark.requirement("shell.output.quota")
async def test_incomplete_outputs_stay_and_the_new_one_is_not_kept(store: PrivateFolders) -> None:
    files = [open_file(store) for _ in range(3)]
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
    file = open_file(store)
    (tmp_path / Path(store.path).name).write_text("in the way")
    file.write(b"text")
    file.write(b"more")
    await file.close()
    assert (file.kept_bytes, file.missing, file.waiting) == (0, 8, 0)


@pytest.mark.requirement("shell.output.faults")
async def test_outputs_that_could_not_be_written_do_not_count_towards_the_clients_limit(
    store: PrivateFolders, tmp_path: Path
) -> None:
    obstacle = tmp_path / Path(store.path).name
    obstacle.write_text("in the way")
    for _ in range(3):
        assert (await write_file(store, b"x" * 100)).missing == 100
    obstacle.unlink()
    file = await write_file(store, b"y" * 100)
    assert (file.missing, Path(file.path).read_bytes()) == (0, b"y" * 100)


@pytest.mark.requirement("shell.output.file")
async def test_what_waits_for_the_disk_is_counted_and_written_in_order(tmp_path: Path) -> None:
    store = PrivateFolders(str(tmp_path))
    file = open_file(store)
    pieces = [bytes([number % 256]) * (number % 3000) for number in range(3000)]
    waiting_counts: list[int] = []
    file.on_written = lambda: waiting_counts.append(file.waiting)
    for piece in pieces:
        file.write(piece)
    assert file.waiting > MAX_WAITING
    await file.close()
    assert file.waiting == 0
    assert waiting_counts[-1] == 0
    assert Path(file.path).read_bytes() == b"".join(pieces)
    await store.aclose()


@pytest.mark.requirement("shell.output.faults")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: open files can be listed only in /proc")
async def test_a_file_that_is_closed_during_a_write_is_closed_after_the_write(tmp_path: Path) -> None:
    may_continue, writers = threading.Event(), Threads(1)
    client_folder = tmp_path / "client"

    def make(_path: str) -> None:
        client_folder.mkdir()
        may_continue.wait(CEILING)

    folder = PrivateFolder(str(client_folder), 100, 100, writers, make)
    file = folder.open()
    file.write(b"text")
    with anyio.move_on_after(0) as scope:
        await file.close()
    assert scope.cancelled_caught
    may_continue.set()
    await until(lambda: Path(file.path).is_file() and Path(file.path).read_bytes() == b"text")
    await until(lambda: file.path not in {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()})
    writers.close()


@pytest.mark.requirement("shell.output.faults")
async def test_the_files_of_a_client_that_is_forgotten_are_removed(store: PrivateFolders) -> None:
    file, other_file = await write_file(store, b"1"), await write_file(store, b"2", key="b")
    store.forget("a")
    await until(lambda: not Path(file.path).parent.exists())
    assert Path(other_file.path).exists()


@pytest.mark.requirement("shell.output.faults")
async def test_everything_is_removed_when_the_server_ends(store: PrivateFolders, tmp_path: Path) -> None:
    await write_file(store, b"1")
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
async def test_a_server_without_a_folder_removes_those_of_killed_servers_when_it_ends(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    (_leftover_folder,) = tmp_path.iterdir()
    await PrivateFolders(str(tmp_path)).aclose()
    assert not [*tmp_path.iterdir()]


ENDS_DURING_A_SLOW_REMOVAL = """
import asyncio, os, sys, threading
from tools.shell.private_folders import PrivateFolders

def block_removals(event, _arguments):
    if event in ("os.remove", "os.rmdir"):
        threading.Event().wait()

async def main():
    sys.addaudithook(block_removals)
    await PrivateFolders(sys.argv[1]).aclose()
    os._exit(7)

asyncio.run(main())
"""


@pytest.mark.requirement("shell.output.faults")
async def test_a_server_without_a_folder_does_not_wait_for_the_removal_of_other_folders(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    with anyio.fail_after(CEILING):
        process = await anyio.run_process(
            [sys.executable, "-c", ENDS_DURING_A_SLOW_REMOVAL, str(tmp_path)], cwd=ROOT, check=False
        )
    assert process.returncode == 7
    await PrivateFolders(str(tmp_path)).aclose()
    assert not [*tmp_path.iterdir()]


KILLED_AT_END = """
import asyncio, os, signal, sys
from tools.shell.private_folders import PrivateFolders

async def main():
    folders = PrivateFolders(sys.argv[1])
    for number in range(20):
        folders.make(f"folder{number}")
    removals = []

    def die_at_last_removal(event, arguments):
        if event == "os.rmdir":
            removals.append(arguments)
            if len(removals) == 20:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die_at_last_removal)
    await folders.aclose()

asyncio.run(main())
"""


@pytest.mark.requirement("shell.output.faults")
async def test_folders_that_a_killed_server_had_not_removed_are_removed_by_the_next_one(tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_AT_END, str(tmp_path)], cwd=ROOT, check=False)
    (folder,) = tmp_path.iterdir()
    assert list(folder.iterdir())
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
@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows cannot limit the size of files")
async def test_a_server_that_cannot_write_files_still_reads_files_and_exits_normally(root: Path) -> None:
    (root / "a.txt").write_text("found")
    calls = ((1, "list_directory", {"path": "."}), (2, "read_file", {"file_path": "a.txt"}))
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    lines = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *(
            {"id": at, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
            for at, tool, arguments in calls
        ),
    ]
    requests = "".join(f"{json.dumps({'jsonrpc': '2.0', **line})}\n" for line in lines)
    server = f"ulimit -f 0; exec {shlex.quote(sys.executable)} {ROOT / 'coretools_mcp.py'} --workspace {root}"
    process = await anyio.run_process(
        ["sh", "-c", server], input=requests.encode(), stderr=None
    )  # raises an error unless the exit code is 0
    answers = {
        answer["id"]: answer["result"] for answer in map(json.loads, process.stdout.splitlines()) if "id" in answer
    }
    assert "a.txt (5 bytes)" in answers[1]["content"][0]["text"]
    assert answers[2]["content"][0]["text"] == "found"


@pytest.mark.requirement("shell.output.faults")
async def test_the_files_of_a_server_that_was_killed_are_removed_by_the_next_one(
    store: PrivateFolders, tmp_path: Path
) -> None:
    await anyio.run_process([sys.executable, "-c", KILLED_SERVER, str(tmp_path)], cwd=ROOT, check=False)
    (folder,) = tmp_path.iterdir()
    living_server = PrivateFolders(str(tmp_path))
    living_file = await write_file(living_server, b"of a living server")
    strangers = [tmp_path / f"{PREFIX}no-lock", tmp_path / "other"]
    for stranger in strangers:
        stranger.mkdir()
    own_file = await write_file(store, b"1")
    assert not folder.exists()
    assert Path(living_file.path).exists()
    assert Path(own_file.path).exists()
    assert all(stranger.exists() for stranger in strangers)
    await living_server.aclose()


@pytest.mark.requirement("shell.output.faults")
async def test_folders_are_created_again_if_the_folder_of_a_running_server_was_removed(
    store: PrivateFolders, tmp_path: Path
) -> None:
    await write_file(store, b"1")
    remove_tree(store.path)
    file = await write_file(store, b"2")
    other_server = PrivateFolders(str(tmp_path))
    await write_file(other_server, b"of another server")  # which removes folders without a live server
    assert Path(file.path).read_bytes() == b"2"
    assert Path(store.path).stat().st_mode & 0o777 == 0o700
    await other_server.aclose()
    remove_tree(store.path)
    Path(store.path).symlink_to(tmp_path)
    file = await write_file(store, b"3")
    assert file.missing == 1
    Path(store.path).unlink()


@pytest.mark.requirement("scratch.owner")
async def test_a_client_has_a_scratch_folder_and_one_for_plans(store: PrivateFolders, tmp_path: Path) -> None:
    scratch_folder, plan_folder = (store.scratch_of("a", is_plan=is_plan) for is_plan in (False, True))
    assert scratch_folder is not None
    assert plan_folder is not None
    assert scratch_folder != plan_folder
    assert store.scratch_of("", is_plan=False) is None
    store.forget_plan("a")
    store.forget("a")
    assert list(tmp_path.iterdir()) == []
    for path in (scratch_folder, plan_folder, scratch_folder):
        store.make_scratch(path)
        Path(path, "file").touch()
    assert [Path(path).stat().st_mode & 0o7777 for path in (scratch_folder, plan_folder)] == [0o1777, 0o1777]
    assert Path(scratch_folder).parent.stat().st_mode & 0o777 == 0o700
    store.forget_plan("a")
    await until(lambda: not Path(plan_folder).exists())
    assert Path(scratch_folder, "file").exists()
    store.forget("a")
    await until(lambda: not Path(scratch_folder).exists())
    store.make_scratch(scratch_folder)
    await store.aclose()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("scratch.owner")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: elsewhere commands have no scratch folder")
@pytest.mark.requirement("sandbox.caches")
def test_a_cache_belongs_to_one_client_in_one_workspace_and_is_removed_when_unused(tmp_path: Path) -> None:
    def cache_folder(key: str, *roots: str) -> str | None:
        return PrivateFolders(caches=str(tmp_path), comes_back=lambda key: key != "session").cache_of(key, roots)

    cache = cache_folder("stdio", "/a", "/b")
    assert cache is not None
    assert cache == cache_folder("stdio", "/b", "/a")
    assert len({cache, cache_folder("stdio", "/a"), cache_folder("token", "/a", "/b")}) == 3
    assert cache_folder("session", "/a") is None
    assert PrivateFolders().cache_of("stdio", ["/a"]) is None
    os.utime(cache, (0, 0))
    assert cache_folder("stdio", "/new") is not None
    assert not os.path.exists(cache)
    file = tmp_path / "file"
    file.write_text("")
    assert PrivateFolders(caches=str(file / "x")).cache_of("stdio", ["/a"]) is None


@pytest.mark.requirement("sandbox.caches")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows has no POSIX file modes")
def test_caches_are_closed_to_others_and_a_link_in_the_place_of_one_is_not_followed(tmp_path: Path) -> None:
    old_cache, caches, link = tmp_path / "data" / "old", tmp_path / "caches", tmp_path / "link"
    old_cache.mkdir(parents=True)
    os.utime(old_cache, (0, 0))
    link.symlink_to(old_cache.parent)
    assert PrivateFolders(caches=str(link)).cache_of("stdio", ["/a"]) is None
    assert old_cache.exists()
    caches.mkdir()
    caches.chmod(0o777)
    cache = PrivateFolders(caches=str(caches)).cache_of("stdio", ["/a"])
    assert cache is not None
    assert stat.S_IMODE(caches.stat().st_mode) == stat.S_IMODE(os.stat(cache).st_mode) == 0o700
    os.rmdir(cache)
    os.symlink(old_cache, cache)
    assert PrivateFolders(caches=str(caches)).cache_of("stdio", ["/a"]) is None


def make_nested_folders(folder: Path, depth: int) -> None:
    """Create a chain of nested folders, which may be too deep for one path, and a file in the deepest folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=descriptor)
        inner_descriptor = os.open("d" * 20, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner_descriptor
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


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
    make_nested_folders(scratch, 300)
    remove_tree(str(scratch))
    assert not scratch.exists()
    assert (elsewhere / "folder" / "file").exists()
    assert stat.S_IMODE((elsewhere / "folder").stat().st_mode) == 0o555


@pytest.mark.requirement("sandbox.temporary.deep")
def test_a_scratch_folder_that_is_too_deep_or_too_large_is_emptied_even_if_closed(tmp_path: Path) -> None:
    for name, depth, mode in (("shallow", DEEPEST - 1, 0o755), ("too deep", DEEPEST + 1, 0o755), ("closed", 3, 0)):
        scratch = tmp_path / name
        scratch.mkdir()
        make_nested_folders(scratch, depth)
        (scratch / ("d" * 20)).chmod(mode)
        limit = 1 << 30 if mode else 4 * 1024 * 2
        byte_count, _ = empty_if_large(str(scratch), limit)
        assert (bool(byte_count), os.listdir(scratch) == []) == (name != "shallow", name != "shallow"), name


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
def test_a_mount_point_is_created_in_the_scratch_folder_even_if_links_lead_elsewhere(tmp_path: Path) -> None:
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
