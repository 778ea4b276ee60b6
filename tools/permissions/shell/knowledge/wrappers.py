"""Commands that run other commands: what stands before the inner command, and what the wrapper itself does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tools.permissions.shell.knowledge.program_files import table_rows
from tools.permissions.shell.syntax.words import names

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
