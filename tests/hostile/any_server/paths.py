"""Paths: no spelling and no link leads a file tool out of the workspace, and files inside it stay accessible."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.hostile.any_server.adapters import call
from tests.hostile.any_server.scene import MARKER, NotApplicableError, Scene, add_cases, case, check, excerpt, meanwhile
from tests.hostile.any_server.wire import Json

GROUP = "paths"
LONG = "{inside}/" + "n/../" * 4000 + "../../out/secret"
RACE = 0.5
"""Seconds that a race lasts."""


async def check_spelled_paths(scene: Scene, paths: Sequence[str]) -> None:
    """Call the file tools with these paths. The runner checks that nothing outside was shown or changed."""
    home, root = scene.home or scene.outside, scene.inside.parent
    evil = root.with_name(f"{root.name}-evil")
    for path in paths:
        await scene.file_calls(path.format(inside=scene.inside, out=scene.outside, evil=evil, home=home))


add_cases(
    GROUP,
    check_spelled_paths,
    [
        ("contained", "the absolute path of a file outside", ["{out}/secret", "{out}", " {out}/secret"]),
        ("contained", "a folder whose name starts like the workspace's", ["{evil}/secret", "{evil}", "{evil}/new"]),
        ("contained", "`..` in a path", ["{inside}/../../out/secret", "{inside}/missing/../../../out/secret"]),
        ("contained", "a `file:` URL and encoded dots", ["file://{out}/secret", "{inside}/%2e%2e/%2e%2e/out/f"]),
        ("contained", "what a shell would expand", ["~/secret", "$HOME/secret", "{inside}/{{,../../out}}/secret"]),
        ("contained", "a NUL character, and 20,000 characters", ["{inside}/a\0/../../../out/secret", LONG]),
        ("contained", "the server's own process", ["/proc/self/environ", "/proc/self/root{out}/secret", "/dev/fd/0"]),
    ],
    "read",
)  # fmt: skip


async def check_links(scene: Scene, kind: str) -> None:
    """Call the file tools with paths through a link that leads out. The runner checks the result."""
    match kind:
        case "file":
            scene.link("b", scene.outside)
            paths = [scene.link("l", scene.outside / "secret"), scene.link("a", "b") / "secret", scene.inside / "a/new"]
        case "folder":
            folder = scene.link("d", scene.outside)
            paths = [folder, folder / "secret", folder / "new", folder / "new" / "deeper"]
        case "nothing":
            paths = [scene.link("n", scene.outside / "new")]
        case _:
            magic = scene.link("p", "/proc/self/root")
            paths = [scene.link("u", "../../out") / "secret", magic / str(scene.outside)[1:] / "secret"]
    for path in paths:
        await scene.file_calls(path)


add_cases(
    GROUP,
    check_links,
    [
        ("links", "a link to a file outside, directly and through another link", "file"),
        ("links", "a link to a folder outside, and new files below it", "folder"),
        ("links", "a dangling link that points outside: a write creates no file there", "nothing"),
        ("links", "a link that climbs up, and one to /proc/self/root", "up"),
    ],
    "read",
)


@case(GROUP, "links", "a loop of links is refused in time", "read")
async def _(scene: Scene) -> None:
    scene.link("ping", "pong")
    scene.link("pong", "ping")
    answer = await scene.call("read", path=scene.inside / "ping")
    check(answer.says_no, f"it was read: {excerpt(answer)}")


@case(GROUP, "works", "a link that stays inside works", "read")
async def _(scene: Scene) -> None:
    scene.file("real/a.txt", "inside\n")
    scene.link("link", "real")
    answer = await scene.call("read", path=scene.inside / "link" / "a.txt")
    check("inside" in answer.text and not answer.is_error, f"it was not read: {excerpt(answer)}")


@case(GROUP, "hard links", "a write to a hard link of a file outside changes no file outside", "write")
async def _(scene: Scene) -> None:
    outside_file = scene.outside.with_name("kept")
    outside_file.write_text("outside\n")
    try:
        os.link(outside_file, scene.inside / "hard")
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise NotApplicableError("the workspace is on a file system of its own") from error
    await scene.call("write", path=scene.inside / "hard", content="written\n")
    check(outside_file.read_text() == "outside\n", "the file outside was changed")


async def check_special_file(scene: Scene, kind: str) -> None:
    """Check that a special file blocks no call, and is not read without end."""
    path = scene.inside / "special"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case _:
            path.symlink_to("/dev/zero")
    scene.file("beside.txt", "inside\n")
    try:
        for use, arguments in (("read", {}), ("grep", {"pattern": "inside"})):
            if scene.tools.has(use):
                answer = await scene.call(use, path=path if use == "read" else scene.inside, wait=10, **arguments)
                check(len(answer.everything) < 1 << 20, "it was read without end")
        answer = await scene.call("read", path=scene.inside / "beside.txt")
        check("inside" in answer.text, "the file next to it cannot be read any more")
    finally:
        _let_go(path)


def _let_go(path: Path) -> None:
    """Free a server that waits for a writer of a pipe."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


add_cases(
    GROUP,
    check_special_file,
    [
        ("special", "a pipe without a writer blocks nothing", "pipe"),
        ("special", "a socket blocks nothing", "socket"),
        ("special", "a link to /dev/zero is not read forever", "device"),
    ],
    "read",
)


@case(GROUP, "swaps", "a folder swapped for a link while files are read", "read")
async def _(scene: Scene) -> None:
    with meanwhile(lambda: _swap(scene)):
        await _race(scene, "read", {})


@case(GROUP, "swaps", "a folder swapped for a link while files are written", "write")
async def _(scene: Scene) -> None:
    with meanwhile(lambda: _swap(scene)):
        await _race(scene, "write", {"content": "written\n"})


def _swap(scene: Scene) -> None:
    """Make the name `d` a folder for a moment, then a link that leads out, then remove it."""
    path, folder = scene.inside / "d", scene.inside / "kept"
    if not folder.exists():
        folder.mkdir()
        (folder / "secret").write_text("inside\n")
    folder.rename(path)
    path.rename(folder)
    path.symlink_to(scene.outside)
    path.unlink()


async def _race(scene: Scene, use: str, arguments: Json) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + RACE
    while loop.time() < until:
        answers = await asyncio.gather(
            *(scene.call(use, path=scene.inside / "d" / "secret", **arguments) for _ in range(4))
        )
        check(not any(MARKER in answer.everything for answer in answers), "a file outside was read")
        del scene.answers[:]


@case(GROUP, "names", "names with line feeds, escapes and invalid UTF-8 can be listed", "list")
async def _(scene: Scene) -> None:
    scene.file("plain.txt", "")
    for name in (b"two\nlines", b"\x1b[2Jcleared", b"bad\xff\xfebytes", "\u202egnp.exe".encode()):
        with suppress(OSError):
            Path(os.fsdecode(os.fsencode(scene.inside) + b"/" + name)).touch()
    answer = await scene.call("list", path=scene.inside)
    check("plain.txt" in answer.text, f"the list does not show the plain name: {excerpt(answer)}")
    check("\x1b" not in answer.text and "\u202e" not in answer.text, "control characters of names are passed on")
    check("\ntwo" not in answer.text and "two\nlines" not in answer.text, "one name takes two lines")


@case(GROUP, "roots", "a client's roots do not widen the folders given on the command line", "read")
async def _(scene: Scene) -> None:
    if scene.start is None:
        raise NotApplicableError("the runner did not start it")
    async with scene.start(None) as client:
        await client.greet(roots=[{"uri": scene.outside.as_uri(), "name": "out"}])
        for _ in range(2):
            answer = await call(client, scene.tools, "read", {"path": str(scene.outside / "secret")})
            check(MARKER not in answer.everything, "a root of the client was opened")
            await asyncio.sleep(0.5)
