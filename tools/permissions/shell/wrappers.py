"""Commands that run other commands: what stands before the inner command, and what the wrapper itself does."""

from __future__ import annotations

from dataclasses import dataclass, replace

REMOTE = "it runs elsewhere, where other rules hold"
PRIVILEGED = "it runs with the rights of another user"
FROM_INPUT = "more arguments come from its input"
ISOLATED = "it runs in other surroundings"
EVALUATED = "its text is evaluated again"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the command line of a wrapper is read.

    Args:
        flags: Options without a value, short ones by their letter.
        valued: Options with a value.
        operands: How many words stand before the inner command.
        assigns: Whether `NAME=value` may stand before the inner command.
        is_transparent: Whether it does nothing itself that needs a permission.
        doubt: What is always doubtful about it.
        script: The option whose value is a text for a shell.
        joins: Whether its words are joined and read by a shell.
        queries: Options with which nothing is run.
        loses_folder: Whether the inner command runs in a folder that is not known.
    """

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    is_transparent: bool = False
    doubt: str = ""
    script: frozenset[str] = frozenset()
    joins: bool = False
    queries: frozenset[str] = frozenset()
    loses_folder: bool = False


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELL = Wrapper(
    flags=_options("e u x v f n a h noprofile norc posix"),
    valued=_options("o O"),
    script=_options("c"),
    is_transparent=True,
)
_OTHER_SHELL = replace(_SHELL, doubt="it is read by a shell with a grammar of its own", is_transparent=False)
_PRIVILEGED = Wrapper(
    flags=_options("n E H S k b i s preserve-env login non-interactive set-home stdin"),
    valued=_options("u g h p r t C D R T U user group host prompt role type chdir chroot command-timeout other-user"),
    assigns=True,
    doubt=PRIVILEGED,
    loses_folder=True,
)

WRAPPERS: dict[str, Wrapper] = {
    "command": Wrapper(flags=_options("p"), queries=_options("v V"), is_transparent=True),
    "builtin": Wrapper(is_transparent=True),
    "exec": Wrapper(flags=_options("c l"), valued=_options("a"), is_transparent=True),
    "env": Wrapper(
        flags=_options("i 0 v - ignore-environment null debug"),
        valued=_options("u unset C chdir"),
        script=_options("S split-string"),
        assigns=True,
        is_transparent=True,
    ),
    "nohup": Wrapper(),
    "time": Wrapper(flags=_options("p v a portability verbose"), valued=_options("f format"), is_transparent=True),
    "timeout": Wrapper(
        flags=_options("v foreground preserve-status verbose"),
        valued=_options("s k signal kill-after"),
        operands=1,
        is_transparent=True,
    ),
    "nice": Wrapper(flags=_options("0 1 2 3 4 5 6 7 8 9"), valued=_options("n adjustment"), is_transparent=True),
    "ionice": Wrapper(
        flags=_options("t ignore"),
        valued=_options("c n class classdata"),
        queries=_options("p P u"),
        is_transparent=True,
    ),
    "stdbuf": Wrapper(valued=_options("i o e input output error"), is_transparent=True),
    "setsid": Wrapper(flags=_options("c f w ctty fork wait")),
    "xargs": Wrapper(
        flags=_options("0 r t x p null no-run-if-empty verbose exit interactive"),
        valued=_options("a d E I L n P s J R S arg-file delimiter replace max-lines max-args max-procs max-chars"),
        doubt=FROM_INPUT,
    ),
    "parallel": Wrapper(
        flags=_options("k 0 t u keep-order verbose null bar dry-run"),
        valued=_options("j a d N I jobs arg-file delimiter max-args"),
        doubt=FROM_INPUT,
    ),
    "sudo": _PRIVILEGED,
    "doas": Wrapper(flags=_options("n s L"), valued=_options("u C"), doubt=PRIVILEGED, assigns=True),
    "su": Wrapper(
        flags=_options("l m p P f - login preserve-environment"),
        valued=_options("s g G w shell group supp-group"),
        script=_options("c command"),
        operands=-1,
        doubt=PRIVILEGED,
        loses_folder=True,
    ),
    "runuser": Wrapper(
        flags=_options("l m p f -"), valued=_options("u g s"), script=_options("c"), doubt=PRIVILEGED, loses_folder=True
    ),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "watch": Wrapper(
        flags=_options("b c d e g p t w x beep color differences errexit chgexit precise no-title no-wrap exec"),
        valued=_options("n q interval"),
        joins=True,
    ),
    "script": Wrapper(flags=_options("a e f q flush quiet append"), script=_options("c command"), operands=-1),
    "flock": Wrapper(
        flags=_options("s x e u n o F shared exclusive unlock nonblock close no-fork verbose"),
        valued=_options("w E timeout conflict-exit-code"),
        script=_options("c command"),
        operands=1,
    ),
    "chroot": Wrapper(valued=_options("userspec groups"), operands=1, doubt=ISOLATED, loses_folder=True),
    "unshare": Wrapper(
        flags=_options("m u i n p U C T f r c mount uts ipc net pid user cgroup time fork map-root-user"),
        valued=_options("R w S G propagation root wd setuid setgid"),
        doubt=ISOLATED,
        loses_folder=True,
    ),
    "nsenter": Wrapper(
        flags=_options("a m u i n p U C r w F all mount uts ipc net pid user cgroup"),
        valued=_options("t S G target"),
        doubt=ISOLATED,
        loses_folder=True,
    ),
    "ssh": Wrapper(
        flags=_options("4 6 A a C f G g K k M N n q s T t V v X x Y y"),
        valued=_options("B b c D E e F I i J L l m O o p Q R S W w"),
        operands=1,
        joins=True,
        doubt=REMOTE,
        loses_folder=True,
    ),
    "eval": Wrapper(joins=True, doubt=EVALUATED),
    "trap": Wrapper(doubt="its text runs at another time"),
    "strace": Wrapper(flags=_options("f q v"), valued=_options("e o p s P")),
    "ltrace": Wrapper(flags=_options("f"), valued=_options("e o p s")),
    "setarch": Wrapper(flags=_options("R"), operands=1),
    "taskset": Wrapper(flags=_options("a"), operands=1),
    "chrt": Wrapper(flags=_options("b f i o r"), operands=1),
    "prlimit": Wrapper(),
    "unbuffer": Wrapper(flags=_options("p")),
    "dbus-run-session": Wrapper(),
    "bash": _SHELL,
    "sh": _SHELL,
    "dash": _SHELL,
    "zsh": _OTHER_SHELL,
    "ksh": _OTHER_SHELL,
    "ash": _SHELL,
    "mksh": _OTHER_SHELL,
}

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "mksh"})
"""They read a file or their input as commands, unless they are given a text."""
