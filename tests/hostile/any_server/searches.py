"""Searches: they end, show nothing from outside, and do not treat patterns as options."""

from __future__ import annotations

import os

from tests.hostile.any_server.scene import MARKER, Scene, case, check, excerpt, pinging

GROUP = "searches"
HIDING = (".geminiignore", ".qwenignore", ".coretoolsignore", ".aiignore", ".aiexclude", ".agentignore")


@case(GROUP, "links", "searches show nothing behind a link that leads out", "grep")
async def _(scene: Scene) -> None:
    scene.link("folder", scene.outside)
    scene.link("file", scene.outside / "secret")
    scene.file("mine.txt", "OUTSIDE? no, mine\n")
    answer = await scene.call("grep", path=scene.inside, pattern="OUTSIDE")
    check("mine.txt" in answer.text, f"the file inside was not found: {excerpt(answer)}")


@case(GROUP, "contained", "name patterns that lead out find nothing", "find")
async def _(scene: Scene) -> None:
    scene.file("mine.txt", "inside\n")
    for pattern in (f"{scene.outside}/*", "../../out/**", "**/../../../out/**/*", "{../../out,.}/**/secret*"):
        answer = await scene.call("find", path=scene.inside, pattern=pattern)
        secrets = [line for line in answer.text.splitlines() if line.strip().endswith("secret")]
        check(answer.is_error or not secrets, f"{pattern}: {excerpt(answer)}")


@case(GROUP, "search ends", "a loop of folders is searched once, and a tree 200 folders deep", "grep")
async def _(scene: Scene) -> None:
    scene.file("a/b/mine.txt", "needle\n")
    scene.link("a/b/up", "../..")
    scene.file("/".join(["d"] * 200) + "/deep.txt", "needle\n")
    answer = await scene.call("grep", path=scene.inside, pattern="needle")
    check("deep.txt" in answer.text, f"the deep file was not found: {excerpt(answer)}")
    check(answer.text.count("mine.txt") in range(1, 4), f"a file was found {answer.text.count('mine.txt')} times")


@case(GROUP, "search ends", "a catastrophic pattern is answered, and so are pings meanwhile", "grep")
async def _(scene: Scene) -> None:
    scene.file("a.txt", "a" * 3000 + "!\n")
    with pinging(scene.connection):
        await scene.call("grep", path=scene.inside, pattern="(a+)+$")
        await scene.call("grep", path=scene.inside, pattern="(a|aa)+$")


@case(GROUP, "search ends", "an invalid pattern is an error", "grep")
async def _(scene: Scene) -> None:
    scene.file("a.txt", "a(b\n")
    answer = await scene.call("grep", path=scene.inside, pattern="a(b")
    check(answer.says_no or "a.txt" in answer.text, f"neither an error nor a match: {excerpt(answer)}")


@case(
    GROUP, "search literal", "a pattern that looks like an option of the search program is taken as a pattern", "grep"
)
async def _(scene: Scene) -> None:
    program = scene.file("evil.sh", f'#!/bin/sh\ntouch {scene.inside}/ran\ncat "$1"\n')
    program.chmod(0o755)
    scene.file("a.txt", f"--pre={program} -e here\n")
    for pattern in (f"--pre={program}", f"--hostname-bin={program}", "-e here", "--files"):
        answer = await scene.call("grep", path=scene.inside, pattern=pattern)
        check(not (scene.inside / "ran").exists(), f"{pattern}: a program was run")
        if pattern == "-e here":
            check("a.txt" in answer.text, f"the line was not found: {excerpt(answer)}")


@case(GROUP, "bounded", "many matches and one line of 20 MB give a result that a model can take", "grep")
async def _(scene: Scene) -> None:
    scene.file("min.js", "needle;" * 3_000_000)
    scene.file("lines.txt", "needle\n" * 200_000)
    with pinging(scene.connection):
        answer = await scene.call("grep", path=scene.inside, pattern="needle")
    check(len(answer.everything) < 2_000_000, f"the answer has {len(answer.everything):,} characters")
    check(not answer.is_error and "needle" in answer.text, f"nothing was found: {excerpt(answer)}")


@case(GROUP, "ignored", "files named in an agent-ignore file are neither read nor found", "read", "grep")
async def _(scene: Scene) -> None:
    root = scene.inside
    for name in HIDING:
        (root / name).write_text("hidden.txt\n")
    scene.file("hidden.txt", f"{MARKER} hidden\n")
    scene.file("open.txt", "needle\n")
    await scene.call("grep", path=root, pattern="hidden|needle")
    await scene.call("read", path=root / "hidden.txt")
    os.remove(root / "hidden.txt")
