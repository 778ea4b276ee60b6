"""What a command is judged to touch is what bash makes of its words, for random words and assignments."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.contract.permission_subjects import Access
from tools.permissions.shell.analyser import analyse
from tools.permissions.shell.expansion import NamesOnDisk, with_home

FILES = ["a.txt", "B.txt", "c d.txt", ".env", "src/a.py", "src/b.py", "x[1]", "*", "-n", "_z", "{a,b}"]
PIECES = [
    *("a", "b.txt", "src", "/", "*", ".", "?", "[ab]", "[!a]*", "{a,b}", "{1..3}", "{a,{b,c}}", "{", "}", "{a", "b,c}"),
    *("'q r'", '"s t"', "\\ ", "\\*", "'*'", "*.txt", "$'a\\x41'", '""', "''", "..", "=", "~/z", "'", "$$'a'"),
    *("$X", "${X}", '"$X"', '"${X}.b"', "$Y", '"$Y"', "${X%.txt}", "${Y##*/}", "${X#a}", "${X%%.*}", "$F", '"$F"'),
    *("\\$X", '"\\$X"', '"\\"$X"', "$PWD", '"$PWD/x"', "$(pwd)", "$PWD{b,c}", "$X{a,b}"),
]
VALUES = [
    *("a", "b.txt", "'c d.txt'", '"*"', "*.txt", "$Y", "$X.b", "${Y%b}", "~/q", "src/a.py", "''", "a{b,c}", '"$X $Y"'),
    *("\\*", "-n", "$PWD", "a=b", '"a  b"'),
]


def script(choose: random.Random) -> str:
    """A text that sets variables and changes folders, and shows some words."""
    parts: list[str] = []
    for _ in range(choose.randint(0, 4)):
        name, value = choose.choice("XY"), choose.choice(VALUES)
        ways = [*[f"{name}={value}"] * 4, f"false && {name}={value}", f"export {name}={value}", f"({name}={value})"]
        parts.append(choose.choice([*ways, f"cd {choose.choice(['src', '.', 'nowhere', '$X'])} 2>/dev/null"]))
    command = "touch -- " + " ".join(word(choose) for _ in range(choose.randint(1, 3)))
    is_loop = choose.random() < 0.4
    return "; ".join([*parts, f"for F in {word(choose)} a*; do {command}; done" if is_loop else command])


def word(choose: random.Random) -> str:
    return "".join(choose.choice(PIECES) for _ in range(choose.randint(1, 3)))


@pytest.mark.requirement("rules.expansion")
@pytest.mark.skipif(shutil.which("bash") is None, reason="not run: there is no bash")
@pytest.mark.parametrize("seed", range(8))
def test_no_word_becomes_in_bash_what_it_was_not_judged_as(root: Path, seed: int) -> None:
    for name in FILES:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
    choose, resolved = random.Random(seed), 0  # noqa: S311 - no secret
    for _ in range(60):
        text = script(choose)
        judged = paths_judged(text, root)
        if judged is None:
            continue
        resolved += 1
        surplus = paths_in_bash(text, root) - judged
        # A pattern that fits no name stays as it is; auto-run files are taken for its names instead.
        assert {path for path in surplus if not ("/." in path and "*" in path)} == set(), text
    assert resolved > 10


def paths_judged(text: str, root: Path) -> set[str] | None:
    """Where a text is judged to write; `None` if that is not known."""
    analysis = analyse(text, NamesOnDisk("/home/me", str(root)))
    effects = [each for command in analysis.commands for each in command.effects if each.access is Access.WRITE]
    if any(effect.target is None or effect.folder is None for effect in effects):
        return None
    places = [(effect.folder or "", with_home(effect.target or "", "/home/me")) for effect in effects]
    return {os.path.normpath(os.path.join(root, *place)) for place in places}


def paths_in_bash(text: str, root: Path) -> set[str]:
    """What bash gives to the command, as paths."""
    shown = r"""touch() { shift; for each; do printf '%s\0%s\0' "$PWD" "$each"; done; }"""
    environment = {"HOME": "/home/me", "PATH": os.defpath, "LANG": "C.UTF-8"}
    run = subprocess.run(
        ["bash", "-c", f"{shown}\n{text}"], cwd=root, env=environment, capture_output=True, timeout=20, check=False
    )
    found = [os.fsdecode(each) for each in run.stdout.split(b"\0")[:-1]]
    return {os.path.normpath(os.path.join(*pair)) for pair in zip(found[::2], found[1::2], strict=True) if pair[1]}
