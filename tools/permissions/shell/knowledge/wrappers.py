"""Commands that run other commands: what stands before the inner command, and what the wrapper itself does."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tools.permissions.shell.syntax.words import names

REMOTE = "it runs elsewhere, where other rules hold"
PRIVILEGED = "it runs with the rights of another user"
FROM_INPUT = "more arguments come from its input"
ISOLATED = "it runs in other surroundings"
EVALUATED = "its text is evaluated again"
TRACED = "it may also write, or run, what its options name"
FROM_FILE = "it runs the commands of a file"
INTERACTIVE = "it is interactive and runs what it is told to"
LATER = "it runs something at another time"


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
        is_loose: Whether its own words are not known at all, so that each may begin the inner command.
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
    is_loose: bool = False


_SHELL = Wrapper(
    flags=names("e u x v f n a h s noprofile norc posix"),
    valued=names("o O"),
    script=names("c"),
    is_transparent=True,
)
_OTHER_SHELL = replace(_SHELL, doubt="it is read by a shell with a grammar of its own", is_transparent=False)
_OTHER_SHELL_NAMES = "zsh ksh ksh93 rksh mksh lksh oksh yash pdksh fish csh tcsh nu xonsh elvish pwsh hush posh"
_PRIVILEGED = Wrapper(
    flags=names("n E H S k b i s preserve-env login non-interactive set-home stdin"),
    valued=names("u g h p r t C D R T U user group host prompt role type chdir chroot command-timeout other-user"),
    assigns=True,
    doubt=PRIVILEGED,
    loses_folder=True,
)

_LOOSE_NAMES = (
    "systemd-nspawn machinectl valgrind perf rlwrap xvfb-run fakeroot fakechroot proot firejail bwrap"
    " torsocks torify tsocks proxychains proxychains4 dbus-launch dbus-run-session chpst softlimit pgrphack"
    " cpulimit caffeinate cgexec runcon capsh aa-exec newgrp chronic ifne sem inotifywait watchexec nodemon"
    " start-stop-daemon daemonize catchsegv eatmydata faketime hyperfine abduco dtach nocache"
    " trickle coreutils crun runc lxc-attach lxc-execute ssh-agent keychain envdir setlock"
    " schroot flatpak-spawn distrobox toolbox unbuffer"
)
"""Programs that run others and whose own options are not listed: any of their words may begin a command."""

WRAPPERS: dict[str, Wrapper] = {
    "command": Wrapper(flags=names("p"), queries=names("v V"), is_transparent=True),
    "builtin": Wrapper(is_transparent=True),
    "exec": Wrapper(flags=names("c l"), valued=names("a"), is_transparent=True),
    "env": Wrapper(
        flags=names("i 0 v - ignore-environment null debug"),
        valued=names("u unset C chdir"),
        script=names("S split-string"),
        assigns=True,
        is_transparent=True,
    ),
    "nohup": Wrapper(),
    "time": Wrapper(flags=names("p v a portability verbose"), valued=names("f format"), is_transparent=True),
    "timeout": Wrapper(
        flags=names("v foreground preserve-status verbose"),
        valued=names("s k signal kill-after"),
        operands=1,
        is_transparent=True,
    ),
    "nice": Wrapper(flags=names("0 1 2 3 4 5 6 7 8 9"), valued=names("n adjustment"), is_transparent=True),
    "ionice": Wrapper(
        flags=names("t ignore"),
        valued=names("c n class classdata"),
        queries=names("p P u"),
        is_transparent=True,
    ),
    "stdbuf": Wrapper(valued=names("i o e input output error"), is_transparent=True),
    "setsid": Wrapper(flags=names("c f w ctty fork wait")),
    "xargs": Wrapper(
        flags=names("0 r t x p null no-run-if-empty verbose exit interactive"),
        valued=names("a d E I L n P s J R S arg-file delimiter replace max-lines max-args max-procs max-chars"),
        doubt=FROM_INPUT,
    ),
    "parallel": Wrapper(
        flags=names("k 0 t u q X m keep-order verbose null bar dry-run ungroup line-buffer quote"),
        valued=names("j a d N I n P C L jobs arg-file delimiter max-args colsep joblog results halt"),
        joins=True,
        doubt=FROM_INPUT,
    ),
    "sudo": _PRIVILEGED,
    "doas": Wrapper(flags=names("n s L"), valued=names("u C"), doubt=PRIVILEGED, assigns=True),
    "su": Wrapper(
        flags=names("l m p P f - login preserve-environment"),
        valued=names("s g G w shell group supp-group"),
        script=names("c command"),
        operands=-1,
        doubt=PRIVILEGED,
        loses_folder=True,
    ),
    "runuser": Wrapper(
        flags=names("l m p P f - login preserve-environment fast pty"),
        valued=names("u g G s w user group supp-group shell"),
        script=names("c command session-command"),
        doubt=PRIVILEGED,
        loses_folder=True,
    ),
    "pkexec": Wrapper(
        flags=names("disable-internal-agent keep-cwd"), valued=names("user"), doubt=PRIVILEGED, loses_folder=True
    ),
    "sg": Wrapper(script=names("c"), operands=1, joins=True, doubt=PRIVILEGED),
    **dict.fromkeys(("gosu", "su-exec", "setuidgid"), Wrapper(operands=1, doubt=PRIVILEGED)),
    "setpriv": Wrapper(
        flags=names("d dump no-new-privs clear-groups keep-groups init-groups reset-env nnp list-caps"),
        valued=names(
            "ambient-caps inh-caps bounding-set ruid euid rgid egid reuid regid groups securebits pdeathsig"
            " selinux-label apparmor-profile ptracer landlock-access landlock-rule"
        ),
        doubt=PRIVILEGED,
    ),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "watch": Wrapper(
        flags=names("b c d e g p t w x beep color differences errexit chgexit precise no-title no-wrap exec"),
        valued=names("n q interval"),
        joins=True,
    ),
    "script": Wrapper(flags=names("a e f q flush quiet append"), script=names("c command"), operands=-1),
    "flock": Wrapper(
        flags=names("s x e u n o F shared exclusive unlock nonblock close no-fork verbose"),
        valued=names("w E timeout conflict-exit-code"),
        script=names("c command"),
        operands=1,
    ),
    "chroot": Wrapper(valued=names("userspec groups"), operands=1, doubt=ISOLATED, loses_folder=True),
    "unshare": Wrapper(
        flags=names("m u i n p U C T f r c mount uts ipc net pid user cgroup time fork map-root-user"),
        valued=names("R w S G propagation root wd setuid setgid"),
        doubt=ISOLATED,
        loses_folder=True,
    ),
    "nsenter": Wrapper(
        flags=names("a m u i n p U C r w F all mount uts ipc net pid user cgroup"),
        valued=names("t S G target"),
        doubt=ISOLATED,
        loses_folder=True,
    ),
    "ssh": Wrapper(
        flags=names("4 6 A a C f G g K k M N n q s T t V v X x Y y"),
        valued=names("B b c D E e F I i J L l m O o p Q R S W w"),
        operands=1,
        joins=True,
        doubt=REMOTE,
        loses_folder=True,
    ),
    "eval": Wrapper(joins=True, doubt=EVALUATED),
    "trap": Wrapper(doubt=LATER),
    "strace": Wrapper(
        flags=names("f F q v c C d h i k r t T V w x y ff tt follow-forks"),
        valued=names("e o p s P E a b I O S u U X output trace"),
        doubt=TRACED,
    ),
    "ltrace": Wrapper(flags=names("f c C i L r S t T"), valued=names("e o p s a A l n u w x F"), doubt=TRACED),
    **dict.fromkeys(
        ("setarch", "linux32", "linux64", "i386", "i686", "x86_64", "uname26", "arch"),
        Wrapper(is_loose=True),
    ),
    # With `-c` the mask is written as a list, in the same place.
    "taskset": Wrapper(flags=names("a c all-tasks cpu-list"), queries=names("p pid"), operands=1),
    "numactl": Wrapper(
        flags=names("l a localalloc all balancing"),
        valued=names("i m N C p P w interleave membind cpunodebind physcpubind preferred preferred-many"),
        queries=names("s H show hardware"),
    ),
    "chrt": Wrapper(
        flags=names("a b f i o r d R v all-tasks batch deadline fifo idle other rr reset-on-fork verbose"),
        valued=names("T P D sched-runtime sched-period sched-deadline"),
        queries=names("p m pid max"),
        operands=1,
    ),
    "choom": Wrapper(valued=names("n adjust"), queries=names("p pid")),
    "prlimit": Wrapper(
        flags=names(
            "c d e f i l m n q r s t u v x y core data nice fsize sigpending memlock rss nofile msgqueue rtprio"
            " stack cpu nproc as locks rttime noheadings raw verbose"
        ),
        valued=names("o output"),
        queries=names("p pid"),
    ),
    **dict.fromkeys(names(_LOOSE_NAMES), Wrapper(is_loose=True)),
    **dict.fromkeys(names("gdb lldb tmux screen expect"), Wrapper(is_loose=True, doubt=INTERACTIVE)),
    **dict.fromkeys(names("at batch systemd-run"), Wrapper(is_loose=True, doubt=LATER)),
    "run-parts": Wrapper(is_loose=True, doubt=FROM_FILE),
    "socat": Wrapper(is_loose=True, doubt="it may run what its addresses name"),
    "entr": Wrapper(is_loose=True, doubt="it runs something for files that its input names"),
    "bash": _SHELL,
    "sh": _SHELL,
    "dash": _SHELL,
    "ash": _SHELL,
    "rbash": _SHELL,
    **dict.fromkeys(names(_OTHER_SHELL_NAMES), _OTHER_SHELL),
}

SHELLS = names("bash rbash sh dash ash") | names(_OTHER_SHELL_NAMES)
"""They read a file or their input as commands, unless they are given a text."""

READING_INPUT = SHELLS | names("source .")
"""What may read its input as commands."""

_LOADER = re.compile(r"ld(?:-linux|-musl|64|-elf|-\d|\.so)[\w.-]*")
"""The programs that load programs: `ld-linux-x86-64.so.2 /bin/ls`."""


def wrapper_called(name: str) -> Wrapper | None:
    """The wrapper of a family, a name without a folder; `None` if it is none."""
    return WRAPPERS.get(name) or (_OF_LOADER if _LOADER.fullmatch(name) else None)


_OF_LOADER = Wrapper(is_loose=True)
