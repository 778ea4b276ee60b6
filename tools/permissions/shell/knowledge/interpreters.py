"""Programs that run what their words do not tell: wrappers of commands, interpreters, whatever runs at another time.

What of these runs a command in its own words is a wrapper, and its doubt stands in the table of wrappers, with what
stands before the inner command. What single options run is told by `running_options`. Of sed, awk, jq and yq here are
their files, and as much of their languages as it takes to see that a script only prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from tools.permissions.auto_run_files import is_data
from tools.permissions.shell.knowledge.program_files import R, Targets, W, gives_option, table_rows
from tools.permissions.shell.knowledge.running_options import MODULE_OPTION, is_python, modules_run, option_table_of
from tools.permissions.shell.syntax.words import Word, literal, names, parse, read_word, unknown

FROM_FILE = "it runs the commands of a file"
INTERACTIVE = "it is interactive and runs what it is told to"
LATER = "it runs something at another time"
_DOUBTS = {
    "evaluated": "its text is evaluated again",
    "from file": FROM_FILE,
    "from input": "more arguments come from its input",
    "interactive": INTERACTIVE,
    "isolated": "it runs in other surroundings",
    "later": LATER,
    "privileged": "it runs with the rights of another user",
    "remote": "it runs elsewhere, where other rules hold",
    "traced": "it may also write, or run, what its options name",
}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the command line of a wrapper is read: a row of the table."""

    flags: frozenset[str] = frozenset()  # options without a value, short ones by their letter
    valued: frozenset[str] = frozenset()  # options with a value
    script: frozenset[str] = frozenset()  # the option whose value is a text for a shell
    queries: frozenset[str] = frozenset()  # options with which nothing is run
    operands: int = 0  # how many words stand before the inner command
    doubt: str = ""  # what is always doubtful about it
    assigns: bool = False  # whether `NAME=value` may stand before the inner command
    joins: bool = False  # whether its words are joined and read by a shell
    transparent: bool = False  # whether it does nothing itself that needs a permission
    loose: bool = False  # whether its own words are not known at all, so that each may begin the inner command
    shell: bool = False  # whether it reads a file or its input as commands, unless it is given a text
    elsewhere: bool = False  # whether the inner command runs in a folder that is not known


_TABLE = """
command: transparent | flags p | queries V v
builtin: transparent
exec: transparent | flags c l | valued a
env: transparent | flags - 0 i v debug ignore-environment null | valued C u chdir unset | script S split-string
    | assigns
nohup busybox toybox: flags
time: transparent | flags a p v portability verbose | valued f format
timeout: transparent | flags v foreground preserve-status verbose | valued k s kill-after signal | operands 1
nice: transparent | flags 0 1 2 3 4 5 6 7 8 9 | valued n adjustment
ionice: transparent | flags t ignore | valued c n class classdata | queries P p u
stdbuf: transparent | valued e i o error input output
setsid: flags c f w ctty fork wait
xargs: flags 0 p r t x exit interactive no-run-if-empty null verbose | valued E I J L P R S a d n s arg-file delimiter
    max-args max-chars max-lines max-procs replace | doubt from input
parallel: flags 0 X k m q t u bar dry-run keep-order line-buffer null quote ungroup verbose | valued C I L N P a d j n
    arg-file colsep delimiter halt joblog jobs max-args results | joins | doubt from input
sudo: flags E H S b i k n s login non-interactive preserve-env set-home stdin | valued C D R T U g h p r t u chdir
    chroot command-timeout group host other-user prompt role type user | assigns | elsewhere | doubt privileged
doas: flags L n s | valued C u | assigns | doubt privileged
su: flags - P f l m p login preserve-environment | valued G g s w group shell supp-group | script c command
    | operands -1 | elsewhere | doubt privileged
runuser: flags - P f l m p fast login preserve-environment pty | valued G g s u w group shell supp-group user
    | script c command session-command | elsewhere | doubt privileged
pkexec: flags disable-internal-agent keep-cwd | valued user | elsewhere | doubt privileged
sg: script c | operands 1 | joins | doubt privileged
gosu su-exec setuidgid: operands 1 | doubt privileged
setpriv: flags d clear-groups dump init-groups keep-groups list-caps nnp no-new-privs reset-env | valued ambient-caps
    apparmor-profile bounding-set egid euid groups inh-caps landlock-access landlock-rule pdeathsig ptracer regid reuid
    rgid ruid securebits selinux-label | doubt privileged
watch: flags b c d e g p t w x beep chgexit color differences errexit exec no-title no-wrap precise | valued n q
    interval | joins
script: flags a e f q append flush quiet | script c command | operands -1
flock: flags F e n o s u x close exclusive no-fork nonblock shared unlock verbose | valued E w conflict-exit-code
    timeout | script c command | operands 1
chroot: valued groups userspec | operands 1 | elsewhere | doubt isolated
unshare: flags C T U c f i m n p r u cgroup fork ipc map-root-user mount net pid time user uts | valued G R S w
    propagation root setgid setuid wd | elsewhere | doubt isolated
nsenter: flags C F U a i m n p r u w all cgroup ipc mount net pid user uts | valued G S t target | elsewhere
    | doubt isolated
ssh: flags 4 6 A C G K M N T V X Y a f g k n q s t v x y | valued B D E F I J L O Q R S W b c e i l m o p w
    | operands 1 | joins | elsewhere | doubt remote
eval: joins | doubt evaluated
trap: doubt later
strace: flags C F T V c d f h i k q r t v w x y ff follow-forks tt | valued E I O P S U X a b e o p s u output trace
    | doubt traced
ltrace: flags C L S T c f i r t | valued A F a e l n o p s u w x | doubt traced
setarch linux32 linux64 i386 i686 x86_64 uname26 arch aa-exec abduco bwrap caffeinate capsh catchsegv cgexec chpst
    chronic coreutils cpulimit crun daemonize dbus-launch dbus-run-session distrobox dtach eatmydata envdir fakechroot
    fakeroot faketime firejail flatpak-spawn hyperfine ifne inotifywait keychain lxc-attach lxc-execute machinectl
    newgrp nocache nodemon perf pgrphack proot proxychains proxychains4 rlwrap runc runcon schroot sem setlock
    softlimit ssh-agent start-stop-daemon systemd-nspawn toolbox torify torsocks trickle tsocks unbuffer valgrind
    watchexec xvfb-run: loose
# With `-c` the mask is written as a list, in the same place.
taskset: flags a c all-tasks cpu-list | queries p pid | operands 1
numactl: flags a l all balancing localalloc | valued C N P i m p w cpunodebind interleave membind physcpubind preferred
    preferred-many | queries H s hardware show
chrt: flags R a b d f i o r v all-tasks batch deadline fifo idle other reset-on-fork rr verbose | valued D P T
    sched-deadline sched-period sched-runtime | queries m p max pid | operands 1
choom: valued n adjust | queries p pid
prlimit: flags c d e f i l m n q r s t u v x y as core cpu data fsize locks memlock msgqueue nice nofile noheadings
    nproc raw rss rtprio rttime sigpending stack verbose | valued o output | queries p pid
screen lldb expect tmux gdb: loose | doubt interactive
at batch systemd-run: loose | doubt later
run-parts: loose | doubt from file
socat: loose | doubt it may run what its addresses name
entr: loose | doubt it runs something for files that its input names
bash sh dash ash rbash: transparent | shell | flags a e f h n s u v x noprofile norc posix | valued O o | script c
zsh ksh ksh93 rksh mksh lksh oksh yash pdksh fish csh tcsh nu xonsh elvish pwsh hush posh: shell | flags a e f h n s u
    v x noprofile norc posix | valued O o | script c | doubt it is read by a shell with a grammar of its own
"""
_MARKS = names("assigns joins transparent loose shell elsewhere")


def _wrapper(fields: list[tuple[str, str]]) -> Wrapper:
    row: dict[str, Any] = {kind: kind in _MARKS or names(text) for kind, text in fields}
    for kind, text in fields:
        if kind == "operands":
            row[kind] = int(text)
        elif kind == "doubt":
            row[kind] = _DOUBTS.get(text, text)
    return Wrapper(**row)


_WRAPPERS = {head: wrapper for heads, fields in table_rows(_TABLE) for wrapper in [_wrapper(fields)] for head in heads}
# They read a file or their input as commands, unless they are given a text
SHELLS = frozenset(name for name, wrapper in _WRAPPERS.items() if wrapper.shell)
READING_INPUT = SHELLS | names("source .")  # what may read its input as commands
# The programs that load programs: `ld-linux-x86-64.so.2 /bin/ls`
_LOADER = re.compile(r"ld(?:-linux|-musl|64|-elf|-\d|\.so)[\w.-]*")


def wrapper_called(name: str) -> Wrapper | None:
    """The wrapper of a family, a name without a folder; `None` if it is none."""
    return _WRAPPERS.get(name) or (Wrapper(loose=True) if _LOADER.fullmatch(name) else None)


MAX_NAMES = 64  # names in one script that are looked at
_BRACKET = r"\[\^?\]?[^\]\\\n/|,\#:@!]*\]"
_PART = rf"(?>(?:(?!\1)[^\\\n\[]|\\.|{_BRACKET})*)"
_ADDRESS = rf"(?:\d++(?:~\d+)?|\$|/(?>(?:[^/\\\n\[]|\\.|{_BRACKET})+)/I?)"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*"
    rf"(?:(?:[pdDPgGhHxnNl=]|[qQ]\d*|s([/|,\#:@!]){_PART}\1{_PART}\1[gpiIM0-9]*|y/(?>(?:[^/\\\n]|\\.)*)/(?>(?:[^/\\\n]|\\.)*)/"
    rf"|[bt]\s*\w*|:\s*\w+|\}})?\s*(?:[;\n]|\Z|(?=\}}))|\{{|[aic] *[^\s\\][^\n\\]*(?:\n|\Z))",
    re.ASCII,
)
_SED_FLAGS = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|null-data|posix|separate|unbuffered|sandbox|debug)"
)
_SED_EDITS = re.compile(r"-[nErsuz]*i.*|--in-p.*|-[nErsuz]+|-l\d+|-b", re.DOTALL)
_AWK_ACTION = re.compile(r"system|getline|fflush|close|[|@`]|/inet|ARGV|ARGC|ENVIRON\s*\[[^\]]*\]\s*=")
_SED_FILE = re.compile(r"(?=[rRwW][ \t]*([^\n]+))")
_SED_UNKNOWN = re.compile(r"""(?:\A["']?|[\s;{}!\d$/|,\#:@][gpiIMme\d]*)[wW](?:[ \t]+[\w./~-]*|[./~]*)[$`]""")
_AWK_TOKEN = re.compile(
    r"""\#[^\n]*|"(?P<text>(?:\\.|[^"\\])*)"|(?:\A|(?<=[(,{;!~&|\n}]))[ \t]*/(?:\\.|[^/\\\n])+/""", re.DOTALL
)
_AWK_PRINT = re.compile(r"\bprintf?\b[^;}\n>|]*>+([^;}\n]*)")
_SCRIPT_FILE = re.compile(r"(?:-[nErsuz]*[fE]|--(?:file|exec)=?)(.*)", re.DOTALL)


def sed_scripts(arguments: Sequence[Word], flags: re.Pattern[str] = _SED_EDITS) -> list[Word] | None:
    """The scripts of a call of sed with no options but these and those that change nothing; `None` if not known."""
    scripts: list[Word] = []
    operands: list[Word] = []
    rest = iter(arguments)
    for word in rest:
        text = word.text
        if word.is_literal and text == "--":
            operands.extend(rest)
        elif word.is_literal and re.fullmatch(r"-[nErsuz]*e|--expression", text):
            script = next(rest, None)
            if script is None:
                return None
            scripts.append(script)
        elif word.may_be_option and text != "-":
            if not word.is_literal or not (_SED_FLAGS.fullmatch(text) or flags.fullmatch(text)):
                return None
        else:
            operands.append(word)
    return scripts or operands[:1]


def only_prints_sed(scripts: Sequence[Word] | None) -> bool:
    """Whether scripts of sed are known, open no file and run nothing."""
    for script in scripts or ():
        position = 0
        while position < len(script.text):
            command = _SED_COMMAND.match(script.text, position)
            if not script.is_literal or not command or command.end() == position:
                return False
            position = command.end()
    return scripts is not None and all(script.is_literal for script in scripts)


def is_harmless_sed(arguments: Sequence[Word]) -> bool:
    """Whether every script is literal and only prints: no `e`, `w`, `r`, no `-i`, no script from a file."""
    scripts = sed_scripts(arguments, flags=_SED_FLAGS)
    return bool(scripts) and only_prints_sed(scripts)


def of_sed(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a script that does more than print may touch."""
    parsed = parse(arguments, names("e f l expression file line-length"))
    yield from ((R, value) for value in parsed.values("-f", "--file"))
    in_place = any(re.match(r"-i|--?in", name) for name, _ in parsed.options)
    for word in parsed.operands if parsed.has("-e", "-f", "--expression", "--file") else parsed.operands[1:]:
        yield R, word
        if in_place:
            yield W, word
    scripts = sed_scripts(arguments)
    if not only_prints_sed(scripts):
        yield from ((R, None), (W, None))
        # Such a script may write a file whose name is not known.
        for word in scripts or arguments:
            if not word.is_literal and _SED_UNKNOWN.search(word.source):
                yield W, unknown("$_")


def names_in_scripts(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """What scripts of sed may name: the rest of a line behind each letter that may read or write a file."""
    for word in arguments if name == "sed" else ():
        if word.is_literal and not word.text.startswith("--"):
            yield from (literal(found[1]) for found in islice(_SED_FILE.finditer(word.text), MAX_NAMES))


def with_given_scripts(arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Sequence[Word]:
    """The words of sed or awk with the scripts that they are given to read in place of `-f -`."""
    words: list[Word] = []
    rest = iter(arguments if inputs else ())
    for word in rest:
        option = _SCRIPT_FILE.fullmatch(word.text)
        file = option and (literal(option[1]) if option[1] else next(rest, None))
        if file is None or file.text not in ("-", "/dev/stdin", "/dev/fd/0"):
            words += [word] if file is None or (option and option[1]) else [word, file]
            continue
        for text in inputs:
            is_known = all(each.is_literal for each in text)
            script = " ".join(each.text if is_known else each.source for each in text)
            words += [literal("-e"), literal(script) if is_known else unknown(script)]
    return words or arguments


def awk_program(arguments: Sequence[Word]) -> Word | None:
    """The program of a call of awk; `None` if it comes from a file or with options that are not known."""
    place = 0
    while place < len(arguments) and arguments[place].may_be_option:
        word = arguments[place]
        if not word.is_literal or not re.match(r"-[Fv]|--\Z", word.text):
            return None
        place += 1 if len(word.text) > len("-F") or word.text == "--" else 2
        if word.text == "--":
            break
    return arguments[place] if place < len(arguments) else None


def only_prints_awk(program: Word | None) -> bool:
    """Whether a program of awk is known, opens no file and runs nothing. `>` compares where nothing is printed."""
    plain = program.text.replace("||", "") if program is not None and program.is_literal else "system"
    return not _AWK_ACTION.search(plain) and not (">" in plain and "print" in plain)


def is_harmless_awk(arguments: Sequence[Word]) -> bool:
    """Whether the program is literal and only prints: nothing is run, opened by name or taken from a file."""
    return only_prints_awk(awk_program(arguments)) and not any("/inet" in word.text for word in arguments)


def of_awk(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a program that does more than print may touch."""
    parsed = parse(arguments, names("F v f i l e E field-separator assign file include load source exec"))
    has_program = parsed.has("-f", "--file", "-e", "--source", "-E", "--exec")
    yield from ((R, value) for value in parsed.values("-f", "--file", "-E", "--exec", "-i", "--include"))
    yield from ((R, word) for word in (parsed.operands if has_program else parsed.operands[1:]))
    program = awk_program(arguments)
    if not only_prints_awk(program):
        yield from ((R, None), (W, None))
    yield from ((W, each) for word in ([program] if program else arguments) for each in _awk_outputs(word))


def _awk_outputs(program: Word) -> Iterator[Word]:
    """The files that a program of awk prints to; a text with more before it is known by its end."""
    if not program.is_literal:
        if re.search(r"\bprintf?\b[^;}\n]*>", program.source):
            yield unknown(program.source)
        return
    texts: list[str] = []

    def note(found: re.Match[str]) -> str:
        texts.append(found["text"] or "")
        return f'"{len(texts) - 1}"' if found["text"] is not None else " "

    plain = _AWK_TOKEN.sub(note, program.text)
    while (shorter := re.sub(r"\([^()]*\)", " ", plain)) != plain:
        plain = shorter
    for statement in _AWK_PRINT.finditer(plain):
        target = re.fullmatch(r'\s*([^"]*)"(\d+)"\s*', statement[1])
        text = texts[int(target[2])] if target else ""
        is_whole = target is not None and not target[1] and "\\" not in text
        # Of what is put together, only the end is known.
        yield literal(text) if is_whole else read_word(f'"$_{text if is_data(text) else ""}"')


_JQ_READS = re.compile(r"import|include|modulemeta|get_search_list|input_filename|\$__prog|\$__loc__")
_JQ_LOADS = names("f L from-file library-path")


def is_harmless_jq(arguments: Sequence[Word]) -> bool:
    """Whether nothing is loaded: no modules, no program from a file."""
    return not any(gives_option(word.text, _JQ_LOADS) or _JQ_READS.search(word.text) for word in arguments)


def is_harmless_yq(arguments: Sequence[Word]) -> bool:
    """The same for yq, whose programs load files by functions."""
    return not any(
        gives_option(word.text, _JQ_LOADS)
        or (not word.text.startswith("-") and re.search(r"load|system|eval|env|from_file|read", word.text))
        for word in arguments
    )


def of_jq(arguments: Sequence[Word]) -> Targets:
    """Each word behind the program may be a file; a program with modules reads more."""
    parsed = parse(arguments, ("f", "L", "indent", "from-file"))
    for value in parsed.values("-f", "--from-file", "-L", "--rawfile", "--slurpfile", "--argfile"):
        yield R, value
    takes_two = any(re.fullmatch(r"--(?:rawfile|slurpfile|arg(?:file|json)?)", word.text) for word in arguments)
    # The values of options that take two words count as files.
    has_program = takes_two or parsed.has("-f", "--from-file")
    yield from ((R, word) for word in (parsed.operands if has_program else parsed.operands[1:]))
    if not is_harmless_jq(arguments):
        yield R, None


def of_yq(arguments: Sequence[Word]) -> Targets:
    """The same, and its files are written with `-i`."""
    yield from of_jq(arguments)
    if not is_harmless_yq(arguments):
        yield R, None
    if any(re.match(r"-[A-Za-z]*i|--in-?p", word.text) for word in arguments):
        yield from ((W, word) for word in arguments if not word.text.startswith("-"))
    if any(re.match(r"-[A-Za-z]*s|--sp", word.text) for word in arguments):
        yield W, None


EVALUATED = "it evaluates what its arguments hold"
GIVEN_TEXT = "it runs the text of a program that is given to it"
_ALWAYS: dict[str, str] = {
    **dict.fromkeys(names("source ."), FROM_FILE),
    **dict.fromkeys(names("alias unalias enable hash"), "it gives a name another meaning"),
    **dict.fromkeys(
        names(
            "less more most man info vi vim nvim view vimdiff ex ed emacs nano pico mc zellij mutt"
            " lynx w3m links elinks ftp sftp telnet zless bzless xzless zmore pinfo ranger nnn fzf"
            " psql mysql sqlite3 bc"
        ),
        INTERACTIVE,
    ),
    **dict.fromkeys(names("crontab atq anacron"), LATER),
    "shopt": "it changes how commands are read",
}


def doubts_of_program(name: str, arguments: Sequence[Word]) -> list[str]:
    """Why a program may run what its words do not tell."""

    def may_run(word: Word) -> bool:
        """Whether a name or a sum may; what `[[` compares is mostly neither, so that takes a substitution."""
        if word.is_literal:
            return _SUBSCRIPT.search(word.text) is not None and (
                name != "[[" or re.search("[$`]", word.text) is not None
            )
        return name != "[[" and not (name in DECLARING and re.match(r"[A-Za-z_]\w*\+?=", word.source, re.ASCII))

    doubts: list[str] = []
    runs = any(word.text[:2] in _RUNNING_OPTIONS.get(name, ()) for word in arguments)
    if runs or name == "let" or any(map(may_run, _evaluated(name, arguments))):
        doubts.append(EVALUATED)
    if name in _ALWAYS:
        doubts.append(_ALWAYS[name])
    if (name == "sed" and not only_prints_sed(sed_scripts(arguments))) or (
        name == "awk" and not only_prints_awk(awk_program(arguments))
    ):
        doubts.append("the program in its arguments may read, write or run something else")
    elif option_table_of(name) in ("gcc", "as", "rustc", "nasm", "yasm") and any(
        word.text == "-" for word in arguments
    ):
        # A text from a compiler's input may include any file.
        doubts.append(GIVEN_TEXT)
    elif is_interpreter(name) and _runs_given_text(name, arguments):
        doubts.append(GIVEN_TEXT)
    return doubts


# Interpreters: they run any text, from a file, from their arguments or from their input

# Their names, with a version, and with the letter of a variant (`pythonw`, `python3.13t`); macOS takes any case
_INTERPRETERS = re.compile(
    r"(?:python|pypy|node|ruby|jruby|perl|php|lua|luajit|julia|Rscript|R|groovy|scala|tclsh|wish|deno|bun|osascript"
    r"|guile|sbcl|ghc|runghc|elixir|erl|swift|raku|clojure|racket|ocaml|octave|irb)[0-9.]*t?w?(?:\.exe)?",
    re.IGNORECASE,
)
_PYTHON_TEXT = re.compile(r"-[bBdEhiIOPqRsSuvx]*c.*|-", re.DOTALL)
_OTHER_TEXT = re.compile(
    r"-[A-Za-z0-9]*[eEprR].*|--(?:ev|pr|exec|ru|comm|code|requ|imp|loader).*|-[BFM]?|eval|repl", re.DOTALL
)
# Modules of Python that run a text from their arguments or their input
_GIVEN_MODULES = names("timeit pdb bdb code codeop asyncio idlelib IPython ptpython bpython xonsh runpy")
# Modules of Python that read, or hand out, all that is in a folder
_FOLDER_MODULES = names("tarfile zipfile zipapp http.server ftpserver pyftpdlib compileall")


def is_interpreter(name: str) -> bool:
    """Whether a program is an interpreter, by its name without a folder."""
    return _INTERPRETERS.fullmatch(name) is not None


def reads_folders(name: str, arguments: Sequence[Word]) -> bool:
    """Whether an interpreter is told to read folders of which its words do not tell what is in them."""
    return is_python(name) and any(module in _FOLDER_MODULES for module, _ in modules_run(arguments))


def _runs_given_text(name: str, arguments: Sequence[Word]) -> bool:
    """Whether options in front of a program's file may be a program themselves, or it comes from the input."""
    given = _PYTHON_TEXT if is_python(name) else _OTHER_TEXT
    modules = {module for module, _ in modules_run(arguments)} if is_python(name) else set[str]()
    is_value = False
    for word in arguments:
        if word.text in ("--version", "-V", "--help", "-h", "-v"):
            return False
        if modules and MODULE_OPTION.match(word.text):
            return not modules.isdisjoint(_GIVEN_MODULES)
        if not is_value and not word.may_be_option and word.text not in ("eval", "repl"):
            return False
        if not is_value and (not word.is_literal or given.fullmatch(word.text)):
            return True
        is_value = not is_value and word.text in ("-W", "-X", "-I", "-C", "-S")
    return True


# Builtins that evaluate the names and sums, or run the texts, that they are given

DECLARING = names("declare typeset local export readonly")
_NAMING = names("let read unset mapfile readarray [[")  # builtins of which every argument may be a name or a sum
# Options with which a builtin runs a text or a program, or takes them from a file, now or at another time
_RUNNING_OPTIONS = {
    "mapfile": names("-C"), "readarray": names("-C"), "compgen": names("-C -F -W"), "complete": names("-C -F -W"),
    "bind": names("-x -f"), "fc": names("-s -e"), "enable": names("-f"), "hash": names("-p"),
}  # fmt: skip
_SUBSCRIPT = re.compile(r"\[(?!\d*\]|@\]|\*\])")


def evaluated_texts(name: str, arguments: Sequence[Word]) -> list[str]:
    """The arguments of a builtin in which substitutions run although they are quoted."""
    evaluated = (word.text for word in _evaluated(name, arguments) if word.is_literal)
    return [text for text in evaluated if re.search("[$`]", text) and _SUBSCRIPT.search(text)]


def texts_run(name: str, arguments: Sequence[Word]) -> list[str]:
    """The commands that a builtin is told to run later, or for each line."""
    running = _RUNNING_OPTIONS.get(name, frozenset())
    values = [after.text for word, after in pairwise(arguments) if word.text in running]
    return values + [word.text[2:] for word in arguments if word.text[:2] in running and len(word.text) > len("-x")]


def variables_set(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The variables that a builtin sets which declares none: those that its words name."""
    if name in ("read", "mapfile", "readarray"):
        yield from (word for word in arguments if not word.text.startswith("-"))
    elif name in ("printf", "wait", "getopts"):
        yield from _evaluated(name, arguments)


def _evaluated(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The arguments that are names or sums."""
    if name in _NAMING or (name in ("test", "[") and any(word.text in ("-v", "-R") for word in arguments)):
        yield from arguments
    elif name in ("printf", "wait"):
        option = "-v" if name == "printf" else "-p"
        yield from (after for word, after in pairwise(arguments) if word.text == option)
        yield from (literal(word.text[2:]) for word in arguments if word.text[:2] == option and word.text != option)
    elif name == "getopts":
        yield from arguments[1:2]
    elif name in DECLARING:
        evaluates_values = any(re.match(r"-[A-Za-z]*[in]", word.text) for word in arguments)
        for word in arguments:
            head, equals, _value = word.text.partition("=")
            yield literal(head) if equals and not evaluates_values else word
