"""Commands that other programs run: by wrapping them, by an option, by evaluating an argument."""

from __future__ import annotations

import pytest

from tools.permissions.shell.analyser import analyse

WRAPPED = [
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "/usr/lib/ld-musl-x86_64.so.1 rm x",
    "arch -x86_64 rm x",
    "bash +x -c 'rm x'",
    "busybox env rm x",
    "choom -n 5 -- rm x",
    "chroot / rm x",
    "chrt -b 0 rm x",
    "doas rm x",
    "dbus-run-session rm x",
    "env --spl='rm x'",
    "env -S 'rm x'",
    "expect -c 'rm x'",
    "fakeroot rm x",
    "fish -c 'rm x'",
    "flock f -c 'rm x'",
    "gdb --args rm x",
    "ionice -c 3 rm x",
    "linux64 rm x",
    "ltrace -o f rm x",
    "nice --adj=5 rm x",
    "nsenter -t 1 -m rm x",
    "numactl -N 0 rm x",
    "parallel 'rm {}' ::: a",
    "perf stat rm x",
    "pkexec --user me rm x",
    "prlimit --nofile=5 rm x",
    "pwsh -c 'rm x'",
    "rbash -c 'rm x'",
    "runuser -u me -- rm x",
    "runuser -c 'rm x'",
    "script --command='rm x' f",
    "setarch x86_64 -R rm x",
    "setpriv --reuid 1 rm x",
    "setsid -w rm x",
    "sg g -c 'rm x'",
    "sg g 'rm x'",
    "stdbuf --outp=L rm x",
    "strace -f -o f rm x",
    "su --command='rm x'",
    "systemd-run --user rm x",
    "taskset -c 0 rm x",
    "timeout --sig=9 5 rm x",
    "toybox rm x",
    "unbuffer rm x",
    "unshare -r rm x",
    "valgrind --tool=none rm x",
    "watch -x rm x",
    "xargs -0 rm x",
    "/usr/bin/../bin/env rm x",
    "/opt/coreutils/bin/env rm x",
    "./env rm x",
    "~/../../usr/bin/env rm x",
    "$X/env rm x",
]

OPTIONS = [
    "split --filter='rm x' f",
    "split --filt='rm x' f",
    "tar --checkpoint-action=exec='rm x' -cf a b",
    "tar --checkpoint=1 --checkpoint-act 'exec=rm x' -cf a b",
    "tar --to-command='rm x' -xf a",
    "tar --to-com 'rm x' -xf a",
    "tar -I 'rm x' -xf a",
    "tar -xI 'rm x' -f a",
    "tar cvfI a 'rm x' b",
    "wget -e use_askpass='rm x' https://h",
    "tar --use-comp='rm x' -xf a",
    "rsync -e 'rm x' a h:b",
    "rsync --rsh='rm x' a h:b",
    "ssh -o ProxyCommand='rm x' h",
    "ssh -oproxycommand='rm x' h",
    "ssh -o 'ProxyCommand rm x' h",
    "scp -o LocalCommand='rm x' a h:b",
    "scp -S 'rm x' a h:b",
    "sort --compress-prog='rm x' f",
    "rg --pre 'rm x' a",
    "man -P 'rm x' ls",
    "zip a b -T -TT 'rm x'",
    "ncat -c 'rm x' h 1",
    "git -c core.pager='rm x' log",
    "git -c alias.y='!rm x' y",
    "git config alias.y '!rm x'",
    "git rebase -x 'rm x' HEAD~1",
    "git rebase --exec='rm x' HEAD~1",
    "git bisect run rm x",
    "git submodule foreach 'rm x'",
    "git submodule foreach --recursive rm x",
    "git filter-branch --tree-filter 'rm x'",
    "git difftool --extcmd='rm x'",
    "git grep -O'rm x' a",
    "git fetch --upload-pack='rm x'",
    "find . -execdir rm x ';'",
]

EVALUATED = [
    "printf -v 'a[$(rm x)]' 1",
    "printf -v'a[$(rm x)]' 1",
    "test -v 'a[$(rm x)]'",
    "[ -v 'a[$(rm x)]' ]",
    "[[ -v 'a[$(rm x)]' ]]",
    "[[ 'a[$(rm x)]' -eq 1 ]]",
    "let 'a[$(rm x)]=1'",
    "declare 'a[$(rm x)]=1'",
    "declare -i 'b=a[$(rm x)]'",
    "declare -n 'b=a[$(rm x)]'",
    "typeset 'a[`rm x`]=1'",
    "local 'a[$(rm x)]=1'",
    "export 'a[$(rm x)]=1'",
    "readonly 'a[$(rm x)]=1'",
    "read 'a[$(rm x)]'",
    "unset 'a[$(rm x)]'",
    "wait -n -p 'a[$(rm x)]'",
    "getopts o 'a[$(rm x)]'",
    "mapfile -C 'rm x' a",
    "readarray -C'rm x' a",
    "compgen -C 'rm x'",
    "complete -C 'rm x' y",
    "trap 'rm x' EXIT",
    "command printf -v 'a[$(rm x)]' 1",
    "builtin read 'a[$(rm x)]'",
]


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize("command", [*WRAPPED, *OPTIONS, *EVALUATED])
def test_what_another_program_runs_is_listed(command: str) -> None:
    analysis = analyse(command)
    assert any(found.words[:2] in (("rm", "x"), ("rm", "{}"), ("/bin/rm", "x")) for found in analysis.commands)
    assert not analysis.is_read_only


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize(
    "command",
    [
        *EVALUATED,
        'printf -v "$X" 1',
        "read $X",
        'declare "$X"',
        "unset $X",
        "let x=1",
        "declare 'a[b]=1'",
        "compgen -F f",
        "complete -F f y",
        "fc -s",
        "enable -f ./x y",
        "bind -x '\"a\":x'",
        "hash -p ./x ls",
        "alias a=b",
        ". f",
        "source f",
        "run-parts d",
        "at now",
        "batch",
        "crontab f",
        "less f",
        "vim f",
        "man ls",
        "gdb x",
        "python -c 1",
        "python3.12 -Ic 1",
        "python -",
        "python",
        "perl -e 1",
        "perl -ne 1 f",
        "ruby -e 1",
        "node -e 1",
        "node --eval=1",
        "node -r ./x y.js",
        "php -r 1",
        "lua -e 1",
        "deno eval 1",
        "awk 'BEGIN{system(\"x\")}'",
        "awk '{print | \"sh\"}' f",
        "awk '{print > \"f\"}' g",
        "gawk '@load \"x\"'",
        "sed 1e f",
        "sed s/a/b/e f",
        "sed 'w g' f",
        "sed -f p f",
        "make --eval=x",
        "make SHELL=./x all",
        "make 'X=$(shell x)'",
        "socat - EXEC:x",
        "git init --template=d",
        "git clone --templ d h",
        "git clone --config= x",
        "git cat-file --text HEAD:f",
        "git filter-branch x",
        "tar -I $X -xf a",
    ],
)
def test_what_may_run_something_is_doubted(command: str) -> None:
    assert any(found.doubts or found.options for found in analyse(command).commands)


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize(
    "command",
    [
        "python x.py",
        "python -u -W ignore x.py",
        "python -m pytest -q",
        "python --version",
        "node x.js",
        "make -j4 test",
        "sed -i 's/a/b/; /c/d' f",
        "tar -czf a b",
        "split -b 1 f",
        "printf '%s\\n' '$(x)' '[a]'",
        "read -r line",
        "export A='$(x)'",
        "unset a",
        "wait $p",
        "mapfile -t a",
        "test -f 'a[$b]'",
        "[[ $x == '$(' ]]",
        "git rebase main",
    ],
)
def test_everyday_uses_of_the_same_programs_are_understood(command: str) -> None:
    analysis = analyse(command)
    assert (analysis.doubts, [found.doubts for found in analysis.commands if found.doubts]) == ((), [])


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize(
    "name",
    [
        "LUA_INIT", "LUA_INIT_5_4", "VIMINIT", "EXINIT", "PHP_INI_SCAN_DIR", "PHPRC", "OPENSSL_CONF",
        "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH", "BASH_ENV", "ENV", "LD_PRELOAD",
        "GIT_SSH", "ZDOTDIR", "HGRCPATH", "CORECLR_PROFILER_PATH", "R_PROFILE", "GTK_MODULES", "QT_PLUGIN_PATH",
        "TAPE",
    ],
)  # fmt: skip
def test_a_variable_that_makes_programs_run_something_is_doubted(name: str) -> None:
    for command in (f"{name}=/x ls", f"env {name}=/x ls", f"export {name}=/x"):
        analysis = analyse(command)
        assert not analysis.is_read_only
        assert any(found.doubts or found.text.startswith("export") for found in analysis.commands)
