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
from tools.permissions.command_text import programs_behind, read_command

TEXTS = 40  # that one process of bash is given
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
HARNESS = r"""
mark() { : > "$place"; }
number=0
while IFS= read -r -d '' text; do
    number=$((number + 1)) place=$PWD/ran-$number
    ( cd work && eval "$text" ) < /dev/null > /dev/null 2>&1
done
wait
"""


@st.composite
def texts(draw: st.DrawFn) -> Sequence[str]:
    chance = draw(st.randoms(use_true_random=False))
    return [_text(chance) for _ in range(TEXTS)]


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
    programs = [words for each in (*read.commands, *read.inner) for words in programs_behind(each.words, loosely=True)]
    return bool(read.doubt) or read.may_run_more or any(None in each[:1] or "mark" in each for each in programs)


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(texts=texts())
def test_what_bash_runs_is_seen_or_doubted(texts: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    hidden = [text for text in texts if not _is_seen(text)]
    folder: Path = tmp_path_factory.mktemp("bash")
    (folder / "work").mkdir()
    given = "".join(f"{text}\0" for text in hidden).encode()
    subprocess.run(["bash", "-c", HARNESS], cwd=folder, input=given, check=True, timeout=60)
    assert [text for number, text in enumerate(hidden, 1) if (folder / f"ran-{number}").exists()] == []
