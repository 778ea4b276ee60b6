"""Modes, owners and sizes: what a write keeps, what it must not do, and what is refused before it costs much."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import forked
from tests.harness import HANDSHAKE, PERSONAL, our_http_server, server_arguments
from tests.hostile.every_tool import answers, assert_alive, call, changers_of, is_refused, readers_of
from tests.hostile.watched_server import MEGABYTE, needs_proc
from tests.interaction.test_lifecycle import INITIALIZE, INITIALIZED, running
from tests.other_user import NOBODY

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("unprivileged_server.py")
USER = NOBODY if os.geteuid() == 0 else os.geteuid()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can make files of other users")


@pytest.fixture
def open_root() -> Generator[Path]:
    """A workspace that a user without rights owns and can reach."""
    parent = Path(tempfile.mkdtemp(prefix="workspace-")).resolve()
    parent.chmod(0o755)
    root = parent / "root"
    root.mkdir()
    give(root, 0o755)
    yield root
    for folder, _, _ in os.walk(parent):
        Path(folder).chmod(0o755)
    shutil.rmtree(parent)


def give(path: Path, mode: int, owner: int = USER) -> Path:
    """Set the owner and then the mode, because a change of owner clears the set-ID bits."""
    if os.geteuid() == 0:
        os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def make_file(path: Path, mode: int, content: str = "old\n", owner: int = USER) -> Path:
    path.write_text(content)
    return give(path, mode, owner)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@asynccontextmanager
async def unprivileged_client(root: Path, umask: int = 0o077) -> AsyncGenerator[Client]:
    """Start a server with the rights of an ordinary user; yield a client of it."""
    arguments = server_arguments(root, None)
    command = ["-P", "-W", "error", str(SERVER), f"{umask:o}", *arguments[arguments.index("serve") :]]
    parameters = StdioServerParameters(
        command=sys.executable,
        args=forked(command),
        env={"HOME": str(root), "XDG_STATE_HOME": str(root.parent / "state")},
    )
    async with Client(parameters, mode=HANDSHAKE, cache=None, client_info=PERSONAL) as client:
        yield client


@pytest.mark.requirement("hostile.modes")
async def test_the_mode_of_a_file_is_kept_whatever_the_umask(open_root: Path) -> None:
    modes = [0o755, 0o400, 0o600, 0o640, 0o664, 0o666, 0o777, 0o444, 0o501]
    for tool in ("edit", "write_file"):
        for mode in modes:
            make_file(open_root / f"{tool}-{mode:o}", mode)
        make_file(open_root / f"{tool}-setuid", 0o4755)
        make_file(open_root / f"{tool}-setgid", 0o2775)
    async with unprivileged_client(open_root) as client:
        for path in sorted(open_root.iterdir()):
            arguments = (
                {"old_string": "old", "new_string": "new"} if path.name.startswith("edit") else {"content": "new\n"}
            )
            answer = await call(client, path.name.partition("-")[0], file_path=path.name, **arguments)
            assert answer.result.is_error is not True, answer.text
        write_answer = await call(client, "write_file", file_path="made/new.txt", content="new\n")
        assert write_answer.result.is_error is not True, write_answer.text
    for tool in ("edit", "write_file"):
        for mode in modes:
            assert mode_of(open_root / f"{tool}-{mode:o}") == mode
        assert mode_of(open_root / f"{tool}-setuid") == 0o755
        assert mode_of(open_root / f"{tool}-setgid") == 0o775
    assert mode_of(open_root / "made" / "new.txt") == 0o600
    assert mode_of(open_root / "made") == 0o700
    files = [path for path in open_root.rglob("*") if path.is_file()]
    assert {path.read_text() for path in files} == {"new\n"}
    assert len(files) == 2 * (len(modes) + 2) + 1
    assert {path.stat().st_uid for path in files} == {USER}


@pytest.mark.requirement("hostile.modes")
async def test_actions_without_permission_are_refused_and_change_nothing(open_root: Path) -> None:
    read_only_folder = open_root / "closed"
    read_only_folder.mkdir()
    make_file(read_only_folder / "a.txt", 0o644)
    give(read_only_folder, 0o555)
    make_file(open_root / "unreadable", 0o000)
    closed_folder = open_root / "hidden"
    closed_folder.mkdir()
    make_file(closed_folder / "a.txt", 0o644)
    give(closed_folder, 0o000)
    async with unprivileged_client(open_root) as client:
        for path in ("closed/a.txt", "closed/new", "closed/new/deep.txt"):
            for answer in await answers(client, changers_of(path)[:1]):
                assert answer.code == "permission_denied", answer.text
        edit_answer = await call(client, "edit", file_path="closed/a.txt", old_string="old", new_string="new")
        assert edit_answer.code == "permission_denied", edit_answer.text
        for path in ("unreadable", "hidden/a.txt", "hidden/new.txt"):
            for answer in await answers(client, [readers_of(path)[0], *changers_of(path)]):
                assert answer.code == "permission_denied", (answer.tool, path, answer.text)
        for path in ("hidden", "hidden/deeper"):
            for answer in await answers(client, readers_of(path)):
                assert is_refused(answer) or "could not be read" in answer.text, (answer.tool, path, answer.text)
        await assert_alive(client)
    for folder in (read_only_folder, closed_folder):
        folder.chmod(0o755)
        assert os.listdir(folder) == ["a.txt"]
        assert (folder / "a.txt").read_text() == "old\n"
    assert mode_of(open_root / "unreadable") == 0
    assert sorted(os.listdir(open_root)) == ["closed", "hidden", "unreadable"]


@needs_root
@pytest.mark.requirement("hostile.hard_links")
async def test_another_users_file_keeps_its_mode_and_becomes_the_writers_only_if_the_folder_permits_it(
    open_root: Path,
) -> None:
    make_file(open_root / "theirs.txt", 0o666, owner=1)
    sticky = open_root / "sticky"
    sticky.mkdir()
    make_file(sticky / "theirs.txt", 0o666, owner=1)
    give(sticky, 0o1777, owner=1)
    async with unprivileged_client(open_root) as client:
        arguments: dict[str, Any] = {"old_string": "old", "new_string": "new"}
        edit_answer = await call(client, "edit", file_path="theirs.txt", **arguments)
        sticky_answer = await call(client, "edit", file_path="sticky/theirs.txt", **arguments)
    assert edit_answer.result.is_error is not True, edit_answer.text
    assert ((open_root / "theirs.txt").read_text(), mode_of(open_root / "theirs.txt")) == ("new\n", 0o666)
    assert (open_root / "theirs.txt").stat().st_uid == NOBODY
    assert sticky_answer.code == "permission_denied", sticky_answer.text
    assert os.listdir(sticky) == ["theirs.txt"]
    assert ((sticky / "theirs.txt").read_text(), (sticky / "theirs.txt").stat().st_uid) == ("old\n", 1)


@needs_root
@pytest.mark.requirement("hostile.hard_links")
@pytest.mark.parametrize("mode", [0o644, 0o4755, 0o2755, 0o600])
async def test_root_keeps_the_owner_and_the_mode_except_the_set_id_bits(mode: int, root: Path, client: Client) -> None:
    path = make_file(root / "theirs.txt", mode, owner=1234)
    edit_answer = await call(client, "edit", file_path="theirs.txt", old_string="old", new_string="new")
    assert edit_answer.result.is_error is not True, edit_answer.text
    info = path.stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (1234, 1234, mode & 0o777)
    assert path.read_text() == "new\n"


HUGE = 200 * MEGABYTE
LARGEST_REQUEST = 16 * MEGABYTE
"""The default of `limits.requestBytes`."""


def memory(pid: int, field: str) -> int:
    match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


@needs_proc
@pytest.mark.requirement("hostile.huge_argument")
def test_a_write_of_200_megabytes_is_refused_without_keeping_it_in_memory(root: Path) -> None:
    with running(root) as server:
        server.send(INITIALIZE, INITIALIZED)
        server.answer()
        server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        server.answer()
        memory_before = memory(server.process.pid, "VmRSS")
        head = (
            '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write_file","arguments":{"file_path":"a",'
        )
        server.stdin.write(f'{head}"content":"'.encode())
        for _ in range(HUGE // MEGABYTE):
            server.stdin.write(b"x" * MEGABYTE)
        server.send(b'"}}}', {"jsonrpc": "2.0", "id": 3, "method": "ping"})
        refusal, pong = server.answer(), server.answer()
        assert memory(server.process.pid, "VmHWM") - memory_before < LARGEST_REQUEST + 50 * MEGABYTE
    assert refusal["id"] == 2
    assert "limits.requestBytes" in refusal["error"]["message"]
    assert pong == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert not os.listdir(root)


@pytest.mark.requirement("hostile.huge_argument")
async def test_a_body_of_200_megabytes_is_refused_before_it_is_read(root: Path) -> None:
    def post(url: str) -> int:
        parts = urlsplit(url)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        try:
            connection.putrequest("POST", "/mcp")
            for name, value in (
                ("Content-Type", "application/json"),
                ("Accept", "application/json, text/event-stream"),
                ("Content-Length", str(HUGE)),
            ):
                connection.putheader(name, value)
            connection.endheaders()
            return connection.getresponse().status
        finally:
            connection.close()

    async with our_http_server(root, None) as url:
        assert await anyio.to_thread.run_sync(post, url) == 413
    assert not os.listdir(root)


@pytest.mark.requirement("hostile.huge_argument")
async def test_an_edit_that_would_grow_a_file_beyond_the_limit_is_refused_before_the_text_is_built(
    root: Path, client: Client
) -> None:
    (root / "a.txt").write_text("ab\n" * 1_000)
    answer = await call(
        client, "edit", file_path="a.txt", old_string="ab", new_string="x" * 1_000_000, replace_all=True
    )
    assert answer.code == "file_too_large"
    assert (root / "a.txt").read_text() == "ab\n" * 1_000
    assert os.listdir(root) == ["a.txt"]
