"""The parser finds every command that bash runs in odd texts, or reports that it does not understand the text."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from os.path import normpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.permissions.command_text import may_fit, programs_run_by, read_command, syntax_error

TEXTS_PER_PROCESS = 25  # number of texts for one bash process
MARK_COMMANDS = ("mark", "`mark`", "$(mark)", "<(mark)", "\\`mark\\`", "\\$(mark)")
# Separated by two spaces; `~` stands for a newline.
WRAPPERS = (
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
    text = chance.choice(MARK_COMMANDS)
    for _ in range(chance.randint(1, 3)):
        wrapper = chance.choice(WRAPPERS).replace("~", "\n")
        text = wrapper.replace("%s", _with_noise(chance, text)) + chance.choice(("", "", " b", "; :", "\n:"))
    return chance.choice(("", "echo ", "echo ", "x=a; ")) + text


def _with_noise(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((0, 0, 1, 2))):
        position = chance.choice((0, len(text), chance.randint(0, len(text))))
        text = text[:position] + chance.choice(NOISE).replace("~", "\n") + text[position:]
    return text


def _is_found_or_doubted(text: str) -> bool:
    """Whether the parser finds the command `mark`, or reports that it may have missed commands."""
    result = read_command(text)
    programs = [
        words for command in (*result.commands, *result.inner) for words in programs_run_by(command.words, loosely=True)
    ]
    return (
        bool(result.doubt)
        or result.may_run_more
        or any(None in program[:1] or "mark" in program for program in programs)
    )


def _run_in_bash(texts: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """Run the texts in bash. Return those that ran `mark`, with the arguments of its last run."""
    (folder / "work").mkdir()
    (folder / "work" / "a").touch()
    (folder / "work" / "src" / "src").mkdir(parents=True)
    input_bytes = "".join(f"{text}\0" for text in texts).encode()
    subprocess.run(["bash", "-c", HARNESS], cwd=folder, input=input_bytes, check=True, timeout=60)
    places = {text: folder / f"ran-{number}" for number, text in enumerate(texts, 1)}
    return {text: place.read_bytes().decode().split("\0")[:-1] for text, place in places.items() if place.exists()}


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(chance=st.randoms(use_true_random=False))
def test_every_command_that_bash_runs_is_found_or_the_text_is_in_doubt(
    chance: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = [_text(chance) for _ in range(TEXTS_PER_PROCESS)]
    missed_texts = [text for text in texts if not _is_found_or_doubted(text)]
    assert _run_in_bash(missed_texts, tmp_path_factory.mktemp("bash")) == {}


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(chance=st.randoms(use_true_random=False))
def test_literal_words_are_the_arguments_of_bash(
    chance: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words: dict[str, list[list[str | None]]] = {}
    for _ in range(TEXTS_PER_PROCESS):
        text = chance.choice(PLACES).replace("%s", "mark " + "".join(chance.choices(PARTS, k=chance.randint(1, 7))))
        result = read_command(text)
        argument_lists = [
            [*command.words[command.words.index("mark") + 1 :]]
            for command in result.commands
            if "mark" in command.words
        ]
        if not (result.doubt or result.may_run_more or any(None in arguments for arguments in argument_lists)):
            words[text] = argument_lists
    for text, arguments in _run_in_bash([*words], tmp_path_factory.mktemp("bash")).items():
        assert arguments in [argument_list or [""] for argument_list in words[text]], text


AROUND_CD = (
    *(
        "cd X && %s",
        "cd X; %s",
        "cd X || %s",
        "%s; cd X",
        "%s && cd X",
        "( %s )",
        "{ %s\n}",
        "(cd X); %s",
        "%s || cd X",
    ),
    *("if cd X; then %s\nfi", "for i in 1 2; do %s\ndone", "cd X | :; %s", "! cd X && %s", "command cd X && %s"),
    *("cd X <<A || %s\nA\n", "F() { %s\n}; F; F", "false && cd X; %s", "cd X >f && %s", "cd X & %s", "pushd X && %s"),
)


@pytest.mark.requirement("commands.rules")
@examples(100)
@given(chance=st.randoms(use_true_random=False))
def test_a_command_is_judged_in_the_folder_in_which_bash_runs_it(
    chance: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders: dict[str, set[str | None]] = {}
    for _ in range(TEXTS_PER_PROCESS):
        text = 'mark "$PWD"'
        for number in range(chance.randint(1, 6)):
            target = chance.choice(("src", "..", "missing", "src/..", "/usr", "-"))
            around = chance.choice(AROUND_CD).replace("X", target).replace("F", f"f{number}")
            text = around.replace("%s", text)
        result = read_command(text)
        own_folders = [command.folder for command in result.commands if command.program == "mark"]
        if not (result.doubt or result.may_run_more):
            folders[text] = {*own_folders, *result.folders}
    place = tmp_path_factory.mktemp("bash")
    for text, (real_folder,) in _run_in_bash([*folders], place).items():
        known_folders = {normpath(place / "work" / folder) for folder in folders[text] if folder is not None}
        assert None in folders[text] or real_folder in known_folders, text


_TOKENS = (*"'\"|&;(){}[]#$`\\<>!=a \n\t", "&&", "||", "echo x", "[[", "case x in", "((", "$(", "<<A")


@pytest.mark.requirement("commands.bad_input")
@examples(1_000)
@given(st.lists(st.sampled_from(_TOKENS), max_size=12).map("".join))
def test_bash_runs_nothing_of_a_text_that_is_reported_as_unusable(text: str) -> None:
    for ending in ("", " '", ' "', " |"):
        if syntax_error(text + ending):
            command = ["bash", "-c", f"{text}{ending}"]
            done = subprocess.run(command, capture_output=True, timeout=60, check=False, input=b"")
            assert (done.returncode, done.stdout) == (2, b""), text + ending


# Parts of words, most with unknown values. No quoted value contains a space: the shape of a quoted word has none.
_WORD_PARTS = (
    *("$v", '"$u"', '"a$u"', "${v}", "$w", '"$w"', "$(echo $v)", '"$(echo x)"', "$((1+1))", '"$@"', "$@", "$1", '"$1"'),
    *("a*", "*", "[a]", "?", "{a,b}", "{a,$v}", "x{a,b}y", "{a,b}{c,d}", "{1..3}", "~", "~/x", "$'a\\tb'", "<(:)", "é"),
    *("a", "git", "-x", "'q r'", "b\\ c", '""', "${u#p}", '"${v%% *}"', '"${#v}"', '"${@:1}"', '"x$@"', "'{}'"),
)


@pytest.mark.requirement("commands.read_as_bash")
@examples(300)
@given(chance=st.randoms(use_true_random=False))
def test_the_arguments_of_bash_are_among_those_that_the_shapes_of_words_stand_for(
    chance: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shapes: dict[str, list[str]] = {}
    for _ in range(TEXTS_PER_PROCESS):
        words = ("".join(chance.choices(_WORD_PARTS, k=chance.choice((1, 1, 2)))) for _ in range(chance.randint(1, 4)))
        text = f"set -- p q; HOME='~'; v='p q' u=pq w=; mark {' '.join(words)} end"
        result = read_command(text)
        if result.doubt or result.may_run_more:
            continue
        shapes[text] = [*next(command.shapes for command in result.commands if "mark" in command.words)]
    for text, arguments in _run_in_bash([*shapes], tmp_path_factory.mktemp("bash")).items():
        # An actual star becomes another character, because `may_fit` takes it for any text.
        argument_text = " ".join(("mark", *arguments)).replace("*", "?")
        known = [shape.replace("*", "?") for shape in shapes[text]]
        assert may_fit(argument_text, known, anywhere=False), (text, arguments, shapes[text])
