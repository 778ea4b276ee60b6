"""What bash runs of odd texts stands among the commands that we see in them, unless they count as not understood."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.permissions.command_text import programs_run_by, read_command

TEXTS = 25  # that one process of bash is given
RUN = ("mark", "`mark`", "$(mark)", "<(mark)", "\\`mark\\`", "\\$(mark)")
# Divided by two blanks; `~` is the end of a line
AROUND = (
    r"""
"%s"  '%s'  $'%s'  $"%s"  ${x:-%s}  "${x:-%s}"  ${x:-'%s'}  "${x:-'%s'}"  ${x#%s}  ${x/a/%s}  ${x:%s}  ${x[%s]}
"${!x%s}"  $(echo %s)  "$(echo "%s")"  `echo %s`  "`echo "%s"`"  <(echo %s)  $((1+%s))  $[%s]  {a,%s}  a\%s  # %s
a#%s  x=%s  x=(%s)  [[ x == %s ]]  [[ x =~ %s ]]  [ x = %s ]  case x in %s) ;; esac  case %s in a) ;; esac
for i in %s; do :; done  { %s; }  ( %s )  f() { %s; }; f  time %s  ! %s  coproc %s  if %s; then :; fi  echo <<< %s
: >%s  @(a|%s)  echo a;%s  echo a %s  %s  cat <<A~%s~A~  cat <<'A'~%s~A~  cat <<-A~	%s~	A~  cat <<"A"~%s~A~
cat <<A"B"~x~AB~%s~A"B"~  cat <<\A~%s~A~  cat <<A | cat~%s~A~  cat <<A <<B~x~A~%s~B~  $(cat <<A~%s~A~)
"$(cat <<'A'~%s~A~)"
""".strip()
    .replace("\n", "  ")
    .split("  ")
)
_SOME_NOISE = "; && ~ \\~ \\ \" ' ` # $ ${ } ) ( { ] [ < > <<A ~A~ A * ? ! = x $x @P} then fi ;; esac in"
NOISE = [*_SOME_NOISE.split(), " ", " # ", "\t", "\r", "\v", "\xa0", "\u2028", "\x7f"]
_SOME_PARTS = (
    "a b ' \" \\ { } , .. + - ! ( ) | $' \\n # é \\' '' \"\" $ {a,b} {1..3} [a] a* >f 2>f <a & 'a_b' \"\\a\" \"\\$\""
)
PARTS = [
    *(part.replace("_", " ") for part in _SOME_PARTS.split()),
    *" \t",
    "  ",
    " #",
    " 2>&1 ",
    " > f ",
    "\\\n",
    "\u2028",
    "\r",
]
PLACES = (
    *("%s", "%s", "! %s", ": | %s", "%s | :", "%s && :", "x=$(%s)", "{ %s\n} >g", "2>f >g %s", "%s 3<a 4>&- e"),
    *("if %s\nthen :; fi", "%s <<A b\nq\nA\n", "%s <a <<'A' | :\nq\nA\n"),
)
HARNESS = r"""
mark() { printf '%s\0' "$@" > "$place"; }
number=0
while IFS= read -r -d '' text; do
    number=$((number + 1)) place=$PWD/ran-$number
    ( trap wait EXIT; cd work && eval "$text" ) < /dev/null > /dev/null 2>&1
done
true
"""


def _text(chance: random.Random) -> str:
    text = chance.choice(RUN)
    for _ in range(chance.randint(1, 3)):
        around = chance.choice(AROUND).replace("~", "\n")
        text = around.replace("%s", _with_noise(chance, text)) + chance.choice(("", "", " b", "; :", "\n:"))
    return chance.choice(("", "echo ", "echo ", "x=a; ")) + text


def _with_noise(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.choice((0, len(text), chance.randint(0, len(text))))
        text = text[:at] + chance.choice(NOISE).replace("~", "\n") + text[at:]
    return text


def _is_seen(text: str) -> bool:
    """Whether the command is among those that are seen, or it is said that some may not be."""
    read = read_command(text)
    programs = [words for each in (*read.commands, *read.inner) for words in programs_run_by(each.words, loosely=True)]
    return bool(read.doubt) or read.may_run_more or any(None in each[:1] or "mark" in each for each in programs)


def _ran(texts: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """The texts by which bash runs the command, with the arguments that it gives it last."""
    (folder / "work").mkdir()
    (folder / "work" / "a").touch()
    given = "".join(f"{text}\0" for text in texts).encode()
    subprocess.run(["bash", "-c", HARNESS], cwd=folder, input=given, check=True, timeout=60)
    places = {text: folder / f"ran-{number}" for number, text in enumerate(texts, 1)}
    return {text: place.read_bytes().decode().split("\0")[:-1] for text, place in places.items() if place.exists()}


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(chance=st.randoms(use_true_random=False))
def test_what_bash_runs_is_seen_or_doubted(chance: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    texts = [_text(chance) for _ in range(TEXTS)]
    hidden = [text for text in texts if not _is_seen(text)]
    assert _ran(hidden, tmp_path_factory.mktemp("bash")) == {}


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(chance=st.randoms(use_true_random=False))
def test_literal_words_are_the_arguments_of_bash(
    chance: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words: dict[str, list[list[str | None]]] = {}
    for _ in range(TEXTS):
        text = chance.choice(PLACES).replace("%s", "mark " + "".join(chance.choices(PARTS, k=chance.randint(1, 7))))
        read = read_command(text)
        seen = [[*each.words[each.words.index("mark") + 1 :]] for each in read.commands if "mark" in each.words]
        if not (read.doubt or read.may_run_more or any(None in each for each in seen)):
            words[text] = seen
    for text, arguments in _ran([*words], tmp_path_factory.mktemp("bash")).items():
        assert arguments in [each or [""] for each in words[text]], text
