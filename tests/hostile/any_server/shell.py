"""Commands: without a yes they change and learn nothing; a yes allows no more than it says; no process is left."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.hostile.any_server.adapters import call
from tests.hostile.any_server.scene import NotApplicableError, Scene, add_cases, case, check, pinging

GROUP = "shell"
SECRET_KEY = ".ssh/id_ed25519"


async def run(scene: Scene, command: str, seconds: int = 8) -> str:
    """Run a command in the folder of the case; return the whole answer as JSON."""
    answer = await scene.call("shell", command=f"cd {scene.inside} && {command}", seconds=seconds)
    return answer.everything


async def check_changes_nothing(scene: Scene, commands: Sequence[str]) -> None:
    """Check that commands that seem only to read change no file while the person says no."""
    scene.file("a.txt", "one\ntwo\n")
    if "git" in commands[0]:
        _repository(scene)
    for command in commands:
        await run(scene, command)
        check(not (scene.inside / "w").exists(), f"it wrote a file without permission: {command}")


def _repository(scene: Scene) -> None:
    """Make a repository whose settings run a program."""
    if shutil.which("git") is None:
        raise NotApplicableError("git is not there")
    program = scene.file("e.sh", f"#!/bin/sh\ntouch {scene.inside}/w\n")
    program.chmod(0o755)
    for words in (
        ["init", "-q"], ["add", "a.txt"],
        *(["config", key, str(program)] for key in ("diff.external", "core.fsmonitor")),
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(scene.inside), *words], check=True, capture_output=True)
    (scene.inside / "w").unlink(missing_ok=True)
    scene.file("a.txt", "changed\n")


add_cases(
    GROUP,
    check_changes_nothing,
    [
        (
            "reading view", "readers that write a file: `awk`, `sed`, `sort -o`, `find -fprint`, a redirection",
            ["awk 'BEGIN { print > \"w\" }'", "sed -n 'w w' a.txt", "sort -o w a.txt", "find . -fprint w", "ls > w"],
        ),
        ("reading view", "git in a repository whose settings run a program", ["git diff", "git status"]),
        (
            "reading view", "a command in a substitution, after a line feed, and built from a variable",
            ["echo $(touch w)", "ls\ntouch w", "x=tou; ${x}ch w"],
        ),
        (
            "reading view", "a function named like a reading command, and decoded text piped to a shell",
            ["ls () { touch w; }; ls", "echo dG91Y2ggdwo= | base64 -d | sh"],
        ),
    ],
    "shell",
    "asks about commands",
    says_no=True,
)  # fmt: skip


async def check_learns_nothing(scene: Scene, place: str) -> None:
    """Run commands that look for hidden text while the person says no. The runner checks the answers."""
    out = str(scene.outside)
    match place:
        case "outside":
            await run(scene, f"""p="$(printf '%s%s' {out[:4]} {out[4:]})"; cat "$p"/sec*""")
        case "environment":
            await run(scene, "env; printenv")
            await run(scene, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
        case "home":
            await run(scene, 'h="$HOME"; cat "$h"/.ss?/id_*')
        case _:
            for name in (".geminiignore", ".qwenignore", ".coretoolsignore"):
                (scene.inside / name).write_text("hidden.txt\n")
            scene.file("hidden.txt", (scene.outside / "secret").read_text())
            await run(
                scene, "cat h*den.txt; awk '{print}' ./*; grep -r OUTSIDE .; rg OUTSIDE; git diff --no-index a h*"
            )
            (scene.inside / "hidden.txt").unlink()


add_cases(
    GROUP,
    check_learns_nothing,
    [
        ("reading view", "an outside path that the command assembles", "outside"),
        ("reading view", "a key in the home folder, matched by a pattern", "home"),
        ("reading view", "a file named in an agent-ignore file, read by any program", "ignored"),
        ("environment", "secrets in the server's environment", "environment"),
    ],
    "shell",
    "asks about commands",
    says_no=True,
)


@case(
    GROUP,
    "loopback",
    "a reading command reaches no server on this machine",
    "shell",
    "asks about commands",
    says_no=True,
)
async def _(scene: Scene) -> None:
    visits_before = len(scene.visits)
    await run(scene, f"curl -s -m 3 {scene.page}/stolen")
    check(len(scene.visits) == visits_before, "the server on 127.0.0.1 was reached")


@case(GROUP, "asked", "a command that changes files, answered with no", "shell", "asks about commands", says_no=True)
async def _(scene: Scene) -> None:
    await run(scene, "touch w")
    check(not (scene.inside / "w").exists(), "it ran anyway")


PROGRAMS = {
    "outside": "open({out!r} + '/secret', 'w').write('changed')",
    "home": "print(open({home!r} + '/" + SECRET_KEY + "').read())",
    "environment": "import os; print(dict(os.environ))",
    "loopback": "import urllib.request as u; print(u.urlopen({page!r} + '/stolen', timeout=3).read())",
    "hook": "import os; os.makedirs('.git/hooks', exist_ok=True); open('.git/hooks/pre-commit', 'w').write('#!sh')",
    "process": "import os; os.kill({pid}, 9)",
}
RAN = "open('ran', 'w').close()\n"


async def check_opens_no_more(scene: Scene, names: Sequence[str]) -> None:
    """Check that a yes to a script in the workspace lets it work there, and allows nothing else."""
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)  # noqa: ASYNC220 - only started
    try:
        values = {"out": str(scene.outside), "home": str(scene.home), "page": scene.page, "pid": bystander.pid}
        programs = [PROGRAMS[name].format(**values) for name in names]
        scene.file(
            "x.py",
            "".join(f"try:\n    {program}\nexcept Exception as e:\n    print(e)\n" for program in programs) + RAN,
        )
        if "hook" in names:
            subprocess.run(["git", "init", "-q", str(scene.inside)], check=True)  # noqa: ASYNC221 - short
            shutil.rmtree(scene.inside / ".git" / "hooks", ignore_errors=True)
        visits_before = len(scene.visits)
        output = await run(scene, "python3 x.py")
        check((scene.inside / "ran").exists(), f"the script did not run: {output[:200]}")
        check(len(scene.visits) == visits_before, "the server on 127.0.0.1 was reached")
        check(bystander.poll() is None, "a process that the command did not start was killed")
        check(not (scene.inside / ".git" / "hooks" / "pre-commit").exists(), "the hook was created")
    finally:
        with suppress(ProcessLookupError):
            os.kill(bystander.pid, signal.SIGKILL)
        bystander.wait()


add_cases(
    GROUP,
    check_opens_no_more,
    [
        ("working view", "after a yes, a script changes no file and ends no process outside", ["outside", "process"]),
        ("working view", "after a yes, a script reads no key in the home folder", ["home"]),
        ("environment", "after a yes, a script finds no secret in its environment", ["environment"]),
        ("loopback", "after a yes, a script reaches no server on this machine", ["loopback"]),
        ("working view", "after a yes, a script leaves no git hook", ["hook"]),
    ],
    "shell",
)


async def check_forbidden_command(scene: Scene, commands: Sequence[str]) -> None:
    """Check that a command that a rule forbids is not run even after a yes."""
    for command in commands:
        await run(scene, f"{command} if=/dev/null of=w")
        check(not (scene.inside / "w").exists(), f"the forbidden command ran: {command}")


add_cases(
    GROUP,
    check_forbidden_command,
    [
        ("rules", "a forbidden command, alone and after another command", ["dd", "true; dd", "true && dd"]),
        (
            "rules spelled", "a forbidden command in quotes, by its path, and behind `env` and `sh -c`",
            ["'d'd", "/bin/dd", "env dd", "sh -c 'dd if=/dev/null of=w';:"],
        ),
    ],
    "shell",
    "forbids dd",
)  # fmt: skip


@case(GROUP, "bounded", "endless output gives a result that a model can take", "shell", says_no=True)
async def _(scene: Scene) -> None:
    with pinging(scene.connection):
        output = await run(scene, "cat /dev/zero | tr '\\0' x", seconds=2)
    check(len(output) < 2_000_000, f"the answer has {len(output):,} characters")


@case(GROUP, "output kept", "a command that reads standard input, and binary output", "shell", says_no=True)
async def _(scene: Scene) -> None:
    await run(scene, "cat; cat -; head -c 100 <&0", seconds=3)
    output = await run(scene, r"printf '\377\376\0\033[2J\200 end\n'")
    check("end" in output, f"the rest of the output is missing: {output[:200]}")


async def check_leaves_nothing(scene: Scene, commands: Sequence[str]) -> None:
    """Check that no process of a command is left after its time limit, or at the latest after the server's end."""
    if scene.start is None or not Path("/proc/self/cmdline").exists():
        raise NotApplicableError("the runner cannot see its processes")
    # `sleep` adds its arguments, so the mark hardly changes the time.
    mark = f"0.{secrets.randbelow(10**9):09}"
    async with scene.start(None) as client:
        await client.greet()
        for command in commands:
            await call(client, scene.tools, "shell", {"command": command.format(mark=mark), "seconds": 1})
    for _ in range(100):
        if not _running(mark):
            return
        await asyncio.sleep(0.1)
    pids = _running(mark)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    check(not pids, f"{len(pids)} processes are left 10 s after the server")


def _running(mark: str) -> list[int]:
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if f"\0{mark}\0" in (entry / "cmdline").read_text() and int(entry.name) != os.getpid():
                pids.append(int(entry.name))
    return pids


add_cases(
    GROUP,
    check_leaves_nothing,
    [
        (
            "leftovers", "a command that never ends, and a background process",
            ["sleep 300 {mark}", "sleep 300 {mark} & echo started"],
        ),
        (
            "leftovers", "a process in its own session, and one that ignores signals",
            ["setsid sleep 300 {mark} > /dev/null 2>&1 &", "trap '' TERM; nohup sleep 300 {mark} & sleep 301"],
        ),
    ],
    "shell",
)  # fmt: skip
