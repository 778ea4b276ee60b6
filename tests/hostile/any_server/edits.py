"""Edits and writes: they keep every byte outside the change, guess nothing and lose nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from tests.hostile.any_server.scene import BrokenError, Scene, add_cases, case, check, excerpt, meanwhile, pinging

GROUP = "edits"


async def check_bytes_kept(scene: Scene, contents: Sequence[bytes]) -> None:
    """Check that an edit of one word leaves every other byte alone."""
    for content in contents:
        await _check_bytes_kept(scene, content)


async def _check_bytes_kept(scene: Scene, content: bytes) -> None:
    path = scene.file("a.txt", content)
    await scene.call("read", path=path)
    answer = await scene.call("edit", path=path, old="two", new="TWO")
    is_wide = b"\x00" in content
    old, new = (text.encode("utf-16-le") if is_wide else text.encode() for text in ("two", "TWO"))
    content_after = path.read_bytes()
    if content_after == content:
        check(answer.says_no, "it says that the text was changed, but it was not")
        if is_wide:  # refusing text that a tool cannot read is safe
            return
        raise BrokenError(f"the edit was refused: {excerpt(answer)}")
    check(content_after == content.replace(old, new), f"other bytes changed: {content_after[:60]!r}")


add_cases(
    GROUP,
    check_bytes_kept,
    [
        ("edit bytes", "line endings are kept, even mixed ones", [b"one\r\ntwo\r\n", b"one\r\ntwo\nthree\rfour\n"]),
        ("edit bytes", "bytes that are not UTF-8 are kept", [b"caf\xe9\ntwo\nna\xefve\n"]),
        ("edit bytes", "UTF-16 is kept or refused", [b"\xff\xfe" + "one\ntwo\n".encode("utf-16-le")]),
        (
            "edit bytes",
            "a byte order mark and a missing final newline are kept",
            [b"\xef\xbb\xbfone\ntwo\n", b"one\ntwo"],
        ),
    ],
    "read",
    "edit",
)  # fmt: skip


async def check_edit_refused(scene: Scene, edit: tuple[str, str, str]) -> None:
    """Check that an edit changes nothing, and that the answer says so."""
    content, old, new = edit
    path = scene.file("a.txt", content)
    await scene.call("read", path=path)
    answer = await scene.call("edit", path=path, old=old, new=new)
    content_after = path.read_text()
    check(content_after == content, f"the file became {content_after[:60]!r}")
    check(answer.says_no, f"it is not an error: {excerpt(answer)}")


add_cases(
    GROUP,
    check_edit_refused,
    [
        ("edit unique", "a text that occurs three times is not replaced by guess", ("same\nsame\nsame\n", "same", "x")),
        ("edit unique", "an empty old text for an existing file", ("one\n", "", "put in")),
        ("edit fits", "a text that does not occur", ("one\ntwo\n", "three\n", "x")),
    ],
    "read",
    "edit",
)  # fmt: skip


@case(GROUP, "works", "dollar signs and backslashes in the new text are literal", "read", "edit")
async def _(scene: Scene) -> None:
    new = r"$& $1 $$ \1 \g<0> \n %s"
    path = scene.file("a.txt", "one\ntwo\nthree\n")
    await scene.call("read", path=path)
    answer = await scene.call("edit", path=path, old="two", new=new)
    check(path.read_text() == f"one\n{new}\nthree\n", f"the text became {path.read_text()!r}: {excerpt(answer)}")


@case(GROUP, "mode", "a file keeps its mode", "read", "edit", "write")
async def _(scene: Scene) -> None:
    path = scene.file("run.sh", "#!/bin/sh\necho two\n")
    path.chmod(0o750)
    await scene.call("read", path=path)
    await scene.call("edit", path=path, old="two", new="three")
    await scene.call("write", path=path, content="#!/bin/sh\n")
    check(path.stat().st_mode & 0o777 == 0o750, f"the mode became {path.stat().st_mode & 0o777:o}")


@case(GROUP, "stale", "what another program wrote after the read is not overwritten", "read", "write")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "read by the model\n")
    await scene.call("read", path=path)
    path.write_text("written by a person\n")
    os.utime(path, ns=(1, 1))
    answer = await scene.call("write", path=path, content="written by the model\n")
    check(path.read_text() == "written by a person\n", "the other program's change is lost")
    check(answer.is_error, f"it is not an error: {excerpt(answer)}")


@case(GROUP, "together", "twenty concurrent edits of one file are all applied", "read", "edit")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "".join(f"line {number};\n" for number in range(20)))
    await scene.call("read", path=path)
    edits = (scene.call("edit", path=path, old=f"line {number};", new=f"LINE {number};") for number in range(20))
    answers = await asyncio.gather(*edits)
    content = path.read_text()
    lost_edits = [n for n, answer in enumerate(answers) if not answer.is_error and f"LINE {n};" not in content]
    check(not lost_edits, f"{len(lost_edits)} edits were reported as done but are not in the file")


@case(GROUP, "whole", "no reader sees half a write", "write")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "a" * 3_000_000)
    torn_lengths: list[int] = []

    def look() -> None:
        content = path.read_bytes()
        if len(content) != 3_000_000 or content.count(content[:1]) != len(content):
            torn_lengths.append(len(content))

    with meanwhile(look):
        for letter in "bcdefg":
            await scene.call("write", path=path, content=letter * 3_000_000)
    check(not torn_lengths, f"{len(torn_lengths)} reads saw part of a write")


@case(GROUP, "in time", "a search for a long missing text is answered, and so are pings meanwhile", "read", "edit")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "".join(f"a line of text with number {number}\n" for number in range(40_000)))
    with pinging(scene.connection):
        answer = await scene.call("edit", path=path, old="another line of text\n" * 300, new="x")
    check(answer.says_no, f"it is not an error: {excerpt(answer)}")


@case(GROUP, "arguments", "a misspelled option that would have limited a change is refused", "write")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "as it was\n")
    arguments = scene.tools.arguments("write", path=str(path), content="changed\n") | {"only_if_missing": True}
    answer = await scene.call_named(scene.tools.name("write"), arguments)
    check(answer.is_error, f"it is not an error: {excerpt(answer)}")
    check(path.read_text() == "as it was\n", "the file was changed")


@case(GROUP, "works", "missing arguments, or arguments of wrong types, are an error and change nothing", "write")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "as it was\n")
    arguments = scene.tools.arguments("write", path=str(path), content="x")
    for text in ("null", '{"a": 1}', "[[]]", "true", "{}"):
        wrong = json.loads(text)
        wrong_arguments = dict.fromkeys(arguments, wrong) if wrong != {} else {}
        answer = await scene.call_named(scene.tools.name("write"), wrong_arguments)
        check(answer.is_error, f"{wrong!r} is not an error: {excerpt(answer)}")
    check(path.read_text() == "as it was\n", "the file was changed")
    check(os.listdir(scene.inside) == ["a.txt"], "other files were created")
