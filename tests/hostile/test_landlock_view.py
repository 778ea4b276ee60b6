"""Ways out of the read-only view that Landlock enforces, tried by root and by another user: each must fail."""

from __future__ import annotations

import errno
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.hostile.confined import ENVIRONMENT, USERS, Runner, give_ownership, runner
from tests.processes import is_running, run
from tests.tables import all_cases
from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.process_spec import ExitStatus, LandlockRules, ProcessSpec, StartFailedError
from tools.shell.sandbox import landlock_and_seccomp
from tools.shell.sandbox.landlock_and_seccomp import landlock_failure, landlock_rules

if sys.platform != "linux" or landlock_abi() < OLDEST_ABI:
    pytest.skip("not run: the kernel's Landlock is missing or too old", allow_module_level=True)
if platform.machine() != "x86_64":
    pytest.skip("not run: the system call numbers here are those of x86-64", allow_module_level=True)

SYSTEM = sorted({os.path.realpath(path) for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")})
SECRET = "kept-from-readers-7391"
OLD = 1_000_000_000
"""The modification time of all files."""


@dataclass
class Ground:
    """The workspace that a command reads, and its surroundings.

    Args:
        runner: The runner of commands.
        root: The workspace, which is readable.
        outside: A folder next to it, with a file `secret`.
        own: The writable folder.
        victim: A process of the same user, with the secret in its environment.
        listening: Sockets that no command may reach: TCP, UDP, one with a path, and one with an abstract name.
    """

    runner: Runner
    root: Path
    outside: Path
    own: Path
    victim: int
    listening: tuple[socket.socket, socket.socket, socket.socket, socket.socket]

    def fresh(self) -> None:
        """Give the next command a new, empty folder of its own."""
        self.own = self.own.with_name(f"own-{uuid4()}")
        self.own.mkdir()
        give_ownership(self.runner.user, self.own)

    def run(self, command: str) -> dict[str, Any]:
        """Run a shell command in the read-only view."""
        tcp, udp, unix, abstract = self.listening
        ports = {"P": str(tcp.getsockname()[1]), "U": str(udp.getsockname()[1])}
        sockets = {"S": unix.getsockname(), "A": abstract.getsockname()[1:].decode()}
        paths = {"W": str(self.root), "O": str(self.outside), "T": str(self.own), "V": str(self.victim)}
        own = {"TMPDIR": str(self.own), "HOME": str(self.own), "GIT_CONFIG_GLOBAL": "/dev/null"}
        environment = {**ENVIRONMENT, **ports, **sockets, **paths, **own}
        return self.runner.ask(
            argv=["/bin/bash", "-c", command],
            folder=str(self.root),
            environment=environment,
            readable=[*SYSTEM, str(self.root)],
            writable=[str(self.own)],
        )

    def state(self) -> dict[str, tuple[object, ...]]:
        """Return everything that must not change, including the times of the last status changes."""
        states: dict[str, tuple[object, ...]] = {}
        for folder in (self.root, self.outside):
            for path in (folder, *sorted(folder.rglob("*"))):
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                states[str(path)] = (*status[:5], status.st_size, status.st_mtime_ns, status.st_ctime_ns, content)
        for name in ("limits", "oom_score_adj"):
            states[name] = (Path(f"/proc/{self.victim}/{name}").read_text(),)
        states["priority"] = (
            os.getpriority(os.PRIO_PROCESS, self.victim),
            os.sched_getaffinity(self.victim),
            os.sched_getscheduler(self.victim),
        )
        # Other programs create and remove files whose names begin with `tmp`.
        states["memory"] = tuple(sorted(name for name in os.listdir("/dev/shm") if not name.startswith("tmp")))
        states["pattern"] = (Path("/proc/sys/kernel/core_pattern").read_bytes(),)
        return states


@pytest.fixture(scope="module", params=USERS)
def started(request: pytest.FixtureRequest) -> Generator[Runner]:
    """A runner of commands."""
    with runner(request.param) as process:
        yield process


@pytest.fixture
def ground(started: Runner, tmp_path: Path) -> Generator[Ground]:
    """A workspace with a Git repository, and its surroundings."""
    base = tmp_path.resolve()
    root, outside, own = (base / name for name in ("workspace", "outside", "own"))
    for folder in (root / "sub/deep", outside, own):
        folder.mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    for name in ("file", "sub/deep/other"):
        (root / name).write_text("unchanged\n")
    (root / "link").symlink_to(outside / "secret")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(own), "GIT_CONFIG_NOSYSTEM": "1"}
    for step in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*git, *step], cwd=root, env=environment, check=True)
    (root / "file").write_text("unchanged\nand more\n")
    for path in (*root.rglob("*"), *outside.rglob("*")):
        os.utime(path, (OLD, OLD), follow_symlinks=False)
    give_ownership(started.user, root, outside, own)
    with ExitStack() as stack:

        def bind(family: int, kind: int, address: Any) -> socket.socket:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            return listener

        socket_path = str(base / "s")
        listening = (
            bind(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            bind(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            bind(socket.AF_UNIX, socket.SOCK_STREAM, socket_path),
            bind(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{uuid4()}"),
        )
        os.chown(socket_path, started.user, started.user)
        pid = started.ask(argv=["/bin/sleep", "600"], environment={"SECRET": SECRET}, waits=False)["pid"]
        yield Ground(started, root, outside, own, pid, listening)
        started.ask(argv=["/bin/kill", "-KILL", str(pid)])


def python(code: str) -> str:
    """Return a way in Python, which prints "worked" if no call failed."""
    lines = (
        "import ctypes, errno, fcntl, os, resource, signal, socket, struct, sys",
        "W, O, T, S, A = (os.environ[name] for name in 'WOTSA')",
        "V, P, U = (int(os.environ[name]) for name in 'VPU')",
        "library = ctypes.CDLL(None, use_errno=True)",
        "def call(number, *arguments):",
        "    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]",
        "    result = library.syscall(ctypes.c_long(number), *values)",
        "    number = ctypes.get_errno()",
        # The kernel reports these errors only after it has allowed the call.
        "    if result < 0 and number not in (errno.EINVAL, errno.EFAULT):",
        "        raise OSError(number, 'refused')",
        "    return result",
        *code.strip().splitlines(),
        "print('worked')",
    )
    return "/usr/bin/python3 - <<'END'\n" + "\n".join(lines) + "\nEND"


READS = {
    "a built name": 'd=out; cat ../"${d}side"/sec*',
    "a link of the workspace": "cat link",
    "a new link": "ln -s $O/secret $T/l; cat $T/l",
    "a hard link": "ln $O/secret $T/h; cat $T/h",
    "/proc/self/root": "cat /proc/self/root$O/secret",
    "/proc/self/cwd": "cat /proc/self/cwd/../outside/secret",
    "/proc/PID/root": "cat /proc/$V/root$O/secret",
    "/proc/1/root": "cat /proc/1/root$O/secret",
    "/proc/PID/environ": "tr '\\0' '\\n' < /proc/$V/environ; ps eww $V",
    "/proc/PID/mem": python("open(f'/proc/{V}/mem', 'rb')"),
    "/proc/PID/maps and fd": "cat /proc/$V/maps && echo worked; readlink /proc/$V/fd/* && echo worked; "
    "readlink /proc/$V/cwd && echo worked; head -c 0 /proc/$V/fd/0 && echo worked",
    "a rename of the folder": "mv $O $T/o; cat $T/o/secret",
    "dd": "dd if=$O/secret",
    "tar": "tar cf - -C $O secret",
    "cp": "cp -r $O $T/; cat $T/outside/secret",
    "find and xargs": "find $O -type f -print0 | xargs -0 cat",
    "grep": "grep -r kept $O; grep -r kept ..",
    "python": python("print(open(O + '/secret').read())"),
    "perl": "perl -e 'open F, \"$ENV{O}/secret\"; print <F>'",
    "node": 'node -e \'console.log(fs.readFileSync(process.env.O + "/secret", "utf8"))\'',
    "git": "git diff --no-index /dev/null $O/secret; git -C $O hash-object -w secret; git --git-dir=$O log",
    "a program of its own": "cp /bin/cat $T/mine; $T/mine $O/secret",
    "a program in memory": python(
        "made = os.memfd_create('m'); os.write(made, open('/bin/cat', 'rb').read())\n"
        "os.execve(made, ['cat', O + '/secret'], {})"
    ),
    "a job left behind": "setsid -f cat $O/secret; setsid -f sh -c 'exec cat $O/secret'",
    "a setuid program": "su nobody -s /bin/sh -c id < /dev/null && echo worked; mount -t tmpfs x $T && echo worked",
    "a new user namespace": "unshare -r cat $O/secret",
    "chroot": "chroot / cat $O/secret",
    "openat2": python("how = struct.pack('QQQ', 0, 0, 0)\ncall(437, -100, (O + '/secret').encode(), how, len(how))"),
    "a handle": python(
        "handle = bytearray(struct.pack('Ii', 128, 0) + bytes(128))\n"
        "buffer = (ctypes.c_char * len(handle)).from_buffer(handle); mount = ctypes.c_int()\n"
        "call(303, -100, (O + '/secret').encode(), buffer, ctypes.byref(mount), 0)\n"
        "call(304, os.open('/', os.O_RDONLY), buffer, 0)"
    ),
    "io_uring": python("call(425, 8, bytes(120))"),
    "process_vm_readv": python(
        "into = ctypes.create_string_buffer(64)\n"
        "ours, theirs = (struct.pack('QQ', ctypes.addressof(into), 64) for _ in range(2))\n"
        "call(310, V, ours, 1, theirs, 1, 0)"
    ),
    "ptrace": python("call(101, 16, V, 0, 0)"),
    "ptrace, by seizing": python("call(101, 0x4206, V, 0, 0)"),
    "a descriptor of another process": python("call(438, call(434, V, 0), 0, 0)"),
    "kcmp": python("call(312, os.getpid(), V, 0, 0, 0)"),
    "another process's pages": python("call(279, V, 0, 0, 0, 0, 0)"),
    "devices": "for d in /dev/vd? /dev/sd? /dev/nvme?n? /dev/mem /dev/kmsg /dev/fuse /dev/ptmx /dev/loop-control; do "
    "head -c 1 $d > /dev/null 2>&1 && echo worked $d; done",
    "a key": python("call(248, b'user', b'name', b'secret', 6, -3)"),
    "the keys of the session": python("call(250, 0, -3, 1)"),
    "shared memory by number": python("call(29, 0, 4096, 0o1600)"),
    "a queue of messages": python("call(68, 0, 0o1600)\ncall(240, b'queue', 0o102, 0o600, None)"),
    "semaphores": python("call(64, 0, 1, 0o1600)"),
    "watches of files": python("call(294, 0)"),
    "watches of files, the old way": python("call(253)"),
    "watches of file systems": python("call(300, 0x200, 0)"),
    "BPF": python("call(321, 0, bytes(120), 120)"),
    "performance counters": python("call(298, bytes(112), V, -1, -1, 0)"),
}
"""Ways to read. None may print the secret, or that it worked."""

CHANGES = {
    "a redirection": "echo x > file; echo x >> file; : > file; echo x > new; echo x > $O/secret; echo x > $O/new",
    "a redirection by /proc": "exec 3< file; echo x > /proc/self/fd/3; echo x > /proc/self/root$W/file",
    "opening to read, emptied": python("os.open('file', os.O_RDONLY | os.O_TRUNC)"),
    "truncate": "truncate -s 0 file; truncate -s 0 $O/secret",
    "truncate, by path": python("call(76, b'file', 0)"),
    "truncate, by descriptor": python("os.ftruncate(os.open('file', os.O_RDONLY), 0)"),
    "dd": "dd if=/dev/zero of=file bs=1 count=1 conv=notrunc; dd if=/dev/zero of=$O/secret bs=1 count=1",
    "chmod": "chmod 777 file; chmod 777 $O $W",
    "chmod, by descriptor": python("os.fchmod(os.open('file', os.O_RDONLY), 0o777)"),
    "chmod, the newest": python("call(452, -100, b'file', 0o777, 0)"),
    "chown": "chown 1 file; chgrp 1 $O/secret; chown -h 1 link",
    "chown to oneself": python("os.chown('file', os.getuid(), os.getgid())"),
    "touch": "touch file; touch -d 2001-01-01 file $O/secret .; touch -h link; touch new",
    "utime, the old way": python("call(132, b'file', None)"),
    "utimensat of a descriptor": python("call(280, os.open('file', os.O_RDONLY), None, None, 0)"),
    "attributes": python("os.setxattr('file', 'user.x', b'1')"),
    "attributes, by descriptor": python("os.setxattr(os.open('file', os.O_RDONLY), 'user.x', b'1')"),
    "attributes, the newest": python("call(463, -100, b'file', 0, b'user.x', struct.pack('QII', 0, 0, 0), 16)"),
    "flags": python("fcntl.ioctl(os.open('file', os.O_RDONLY), 0x40086602, struct.pack('l', 0x40))"),
    "flags of a project": python("fcntl.ioctl(os.open('file', os.O_RDONLY), 0x401C5820, bytes(28))"),
    "flags, the newest": python("call(469, -100, b'file', bytes(24), 24, 0)"),
    "a hard link": "ln file $T/h && echo x > $T/h; ln $O/secret $T/i && echo x > $T/i; ln file new",
    "a link": "ln -s x new; ln -sf /dev/null file",
    "a rename": "mv file new; mv sub sub2; mv $W ${W}2; mv file $T/f; mv sub $T/s",
    "a rename over it": "echo x > $T/x; mv -f $T/x file; mv -f $T/x $O/secret; cp $T/x new",
    "an exchange": python("os.mkdir(T + '/x')\ncall(316, -100, (T + '/x').encode(), -100, b'sub', 2)"),
    "a rename of a parent": "mv sub/deep $T/d; mkdir -p $T/sub; mv $T/sub sub/; mv $O ${O}2",
    "removal": "rm -rf file sub link .git; rm -f $O/secret; rmdir $O; find . -delete",
    "a folder": "mkdir new; mkdir sub/new; mkdir -p ../beside",
    "a pipe or a device": "mkfifo new; mknod new p; mknod $T/d c 1 3 && echo worked; mknod new b 8 0",
    "sed, tee, patch": "sed -i s/un// file; echo x | tee file new; sort -o file /etc/passwd",
    "tar": "tar cf $T/t.tar file; tar xf $T/t.tar; tar xPf $T/t.tar --transform=s,^,$O/,",
    "git": "git add -A; git commit -qam x; git stash; git checkout -f .; git gc -q; git config a.b c; git tag x",
    "git's own programs": "git -c core.fsmonitor='sh -c \"echo x > $W/new\"' status; "
    "git -c diff.external='sh -c \"echo x > $W/new\"' diff; git -c core.pager='tee $W/new' -p log",
    "python": python("open('file', 'w')"),
    "perl": 'perl -e \'open F, ">", "file"; unlink "file"; rename "file", "new"; utime 1, 1, "file"\'',
    "node": 'node -e \'for (const go of [() => fs.writeFileSync("file", "x"), () => fs.chmodSync("file", 0o777), '
    '() => fs.rmSync("file"), () => fs.utimesSync("file", 1, 1)]) try { go(); console.log("worked") } catch {}\'',
    "a mount over it": "unshare -rm sh -c 'mount --bind $T $W; echo x > $W/new'; mount --bind $T $W",
    "memory of others": "echo x > /dev/shm/x-$$; : > /dev/shm/y; rm -f /dev/shm/*; mkdir /dev/shm/d",
    "settings of the kernel": "echo x > /proc/sys/kernel/core_pattern",
    "a signal": "kill -STOP $V && echo worked; kill -TERM $V && echo worked; kill -0 $V && echo worked",
    "a signal to a thread": python("call(234, V, V, 15)"),
    "a signal to a thread, the old way": python("call(200, V, 15)"),
    "a queued signal": python("call(129, V, 15, struct.pack('iii', 15, 0, -1) + bytes(116))"),
    "a signal by descriptor": python("call(424, call(434, V, 0), 15, None, 0)"),
    "a signal by readiness": python(
        "ours, theirs = os.pipe()\nfcntl.fcntl(ours, 8, V)\nfcntl.fcntl(ours, 10, 9)\n"
        "fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)\nos.write(theirs, b'x')"
    ),
    "a signal by readiness of a socket": python(
        "ours, theirs = socket.socketpair()\nfcntl.ioctl(ours, 0x8901, struct.pack('i', V))\n"
        "fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)\ntheirs.send(b'x')"
    ),
    "limits of others": python("resource.prlimit(V, resource.RLIMIT_CPU, (1, 1))"),
    "priorities of others": "renice -n 5 $V && echo worked; ionice -c 3 -p $V && echo worked; "
    "chrt -b -p 0 $V && echo worked",
    "processors of others": python("os.sched_setaffinity(V, {0})"),
    "other priorities": python("os.setpriority(os.PRIO_USER, 0, 5)"),
    "the out-of-memory score of others": "echo 1000 > /proc/$V/oom_score_adj && echo worked",
    "a descriptor's lease": python("fcntl.fcntl(os.open('file', os.O_RDONLY), 1024, 1)"),
}
"""Ways to change something. None may change anything outside its own folder, or print that it worked."""

SENDS = {
    "TCP": "echo x > /dev/tcp/127.0.0.1/$P && echo worked; curl -sS http://127.0.0.1:$P/",
    "TCP, v6": python("socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', P))"),
    "UDP": "echo x > /dev/udp/127.0.0.1/$U && echo worked",
    "UDP, sent": python("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', U))"),
    "MPTCP": python("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', P))"),
    "MSG_FASTOPEN": python("socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', P))"),
    "SCTP": python("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)"),
    "raw packets": python("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    "ping, without rights": python("socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)"),
    "a server": python("made = socket.socket(); made.bind(('127.0.0.1', 0)); made.listen()"),
    "a question about a name": python(
        "question = struct.pack('>6H', 1, 256, 1, 0, 0, 0) + b'\\7example\\3org\\0' + struct.pack('>2H', 1, 1)\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(question, ('127.0.0.1', U))"
    ),
    "a local socket, as D-Bus and X11 have": python("socket.socket(socket.AF_UNIX).connect(S)"),
    "an abstract socket, as they have too": python(
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0' + A)"
    ),
    "datagrams of a local pair": python(
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nours.sendto(b'x', '\\0' + A)"
    ),
    "a pair that connects": python("ours, theirs = socket.socketpair(); ours.connect(S)"),
    "vsock": python("socket.socket(40, socket.SOCK_STREAM)"),
    "the kernel's ciphers": python("socket.socket(38, socket.SOCK_SEQPACKET)"),
    "writing by netlink": "ip link set lo down && echo worked; ip addr add 127.0.0.77/8 dev lo && echo worked; "
    "ip route add blackhole 192.0.2.0/24 && echo worked",
    "programs by netlink": python("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)"),
    "generic netlink": python("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)"),
    "other instruction sets": python("call(0x40000000 + 41, 2, 1, 0)"),
    "a terminal": "echo x > /dev/tty && echo worked; echo x > /dev/console && echo worked; ls /dev/pts && echo worked",
}
"""Ways to send something. None may reach anybody, or print that it worked."""


@pytest.mark.requirement("landlock.ways")
@pytest.mark.parametrize("ways", [READS, CHANGES, SENDS], ids=["reads", "changes", "tells"])
def test_no_way_leads_out(ground: Ground, ways: dict[str, str]) -> None:
    with all_cases() as case:
        for name, way in ways.items():
            ground.fresh()
            with case(name):
                check_way_fails(ground, way)


def check_way_fails(ground: Ground, way: str) -> None:
    """Check that a way shows, changes and sends nothing, so that its surroundings can be used for the next way."""
    before = ground.state()
    result = ground.run(way)
    assert "error" not in result
    assert SECRET not in result["output"]
    assert "worked" not in result["output"], result["output"]
    assert ground.state() == before
    assert is_running(ground.victim)
    tcp, udp, unix, abstract = ground.listening
    for listener, receiver in ((tcp, udp), (unix, abstract)):
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
    # A way with a mistake in it would prove nothing.
    assert "syntax error" not in result["output"]
    assert not any(f"{name}Error" in result["output"] for name in ("Syntax", "Name", "Type", "Value", "Attribute"))
    assert "command not found" not in result["output"], result["output"]


@pytest.mark.requirement("landlock.ways")
def test_where_landlock_cannot_block_signals_the_filter_does(tmp_path: Path) -> None:
    with runner(is_nobody=False) as commands, all_cases() as case:
        pid = commands.ask(argv=["/bin/sleep", "600"], waits=False)["pid"]
        commands.ask(ask="filter")
        names = {**dict.fromkeys("WOTSA", "/"), "V": str(pid), "P": "1", "U": "1"}
        for name in (name for name in CHANGES if "signal" in name):
            with case(name):
                result = commands.ask(
                    argv=["/bin/bash", "-c", CHANGES[name]],
                    environment={**ENVIRONMENT, **names},
                    readable=[*SYSTEM, str(tmp_path)],
                    writable=[],
                )
                assert "worked" not in result["output"]
                errors = ("not permitted", "Errno 1]", "Errno 22]", "Errno 25]")  # Landlock's error would be another
                assert any(error in result["output"] for error in errors), result
                assert is_running(pid)
        # A command can still send signals to its own group, as `timeout` does.
        own = commands.bash("timeout -s KILL 0.1 sleep 600; echo $?", readable=SYSTEM, writable=[])
        assert own["output"].split()[-1] == "137", own


ORDINARY_COMMANDS = {
    "cat file; head -n 1 file; wc -l < file; sort file | uniq -c; cut -c1-3 file; sed -n 1p file": "and more",
    "grep -rn unchanged . | sort": "sub/deep/other",
    "find . -name 'o*' -not -path './.git/*'": "./sub/deep/other",
    "awk 'BEGIN{while((getline line < \"file\")>0)print line}'": "and more",
    "cat <<END\nhere $(echo document)\nEND\ncat <(echo substituted)": "here document\nsubstituted\n",
    "git status --short; git log --oneline; git diff; git blame file; git ls-files": " M file",
    "git grep unchanged; git show HEAD:file; git rev-parse HEAD": "unchanged",
    "node -e 'console.log(1 + 1, fs.readdirSync(\".\").length > 2)'": "2 true",
    'node -e \'require("child_process").execSync("echo child", {stdio: "inherit"})\'': "child",
    'node -e \'new (require("worker_threads").Worker)("console.log(7 * 6)", {eval: true})\'': "42",
    "npm --version | grep -c '[0-9]'; npm ls 2>&1 | head -n 1": "1",
    'python3 -c \'import subprocess as s; print(s.run(["echo", "child"], capture_output=True).stdout)\'': "b'child",
    "python3 -c 'import threading as t; w = t.Thread(target=print, args=[\"thread\"]); w.start(); w.join()'": "thread",
    "python3 -c 'import tempfile as t; f = t.TemporaryFile(); f.write(b\"x\"); print(f.tell())'": "1",
    "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(\"loop\")'": "loop",
    "perl -ne 'print if /more/' file": "and more",
    "tar c file | tar t; gzip -c file | zcat; base64 file | base64 -d; xxd file > /dev/null; sha256sum file": "file\n",
    "sleep 600 & kill $!; wait $!; echo ended $?": "ended 143",
    "timeout 0.1 sleep 600; echo $?": "124",
    "echo made > $T/made; mkdir $T/folder; mv $T/made $T/folder/; cat $T/folder/made; rm -r $T/folder": "made",
    "ps -o comm= -p $$; nproc; uname -s; id -u; date +%Y; df . > /dev/null; stat -c %n file": "bash",
    "head -c 4 /dev/urandom | wc -c; cat /dev/null; cat /proc/self/comm; readlink /proc/self/exe": "4\ncat",
    "ip -brief addr": "lo ",
    "echo one > $T/f; (sleep 0.2; echo two >> $T/f) & tail -f -s 0.1 -n +1 --pid=$! $T/f": "two",
}
"""Ordinary commands, and a part of their output."""


@pytest.mark.requirement("landlock.works")
def test_commands_that_only_read_work(ground: Ground) -> None:
    before = ground.state()
    with all_cases() as case:
        for command, text in ORDINARY_COMMANDS.items():
            ground.fresh()
            with case(command):
                result = ground.run(command)
                assert text in result["output"], result
                assert "ermission denied" not in result["output"], result
                assert "not permitted" not in result["output"], result
                assert ground.state() == before


@pytest.mark.requirement("landlock.works")
def test_no_right_of_root_is_left_and_none_can_be_gained(ground: Ground) -> None:
    status = dict(line.split(":\t") for line in ground.run("cat /proc/self/status")["output"].splitlines())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert ground.runner.user != 0 or status["CapBnd"] == "0" * 16
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if os.geteuid() == 0:
        setuid_program = ground.root / "privileged"
        setuid_program.write_bytes(Path("/usr/bin/id").read_bytes())
        setuid_program.chmod(0o4755)
        outside = ground.runner.ask(argv=[str(setuid_program), "-u"])
        assert outside["output"] == "0\n"
        assert ground.run("./privileged -u")["output"] == f"{ground.runner.user}\n"


@pytest.mark.requirement("landlock.probe")
def test_the_probe_succeeds_and_leaves_nothing(started: Runner, tmp_path: Path) -> None:
    del tmp_path
    started.ask(ask="failure")  # starts the broker
    before = started.ask(ask="descriptors")
    assert started.ask(ask="failure") == {"failure": None}
    assert started.ask(ask="descriptors") == before


@pytest.mark.anyio
@pytest.mark.requirement("landlock.probe")
@pytest.mark.parametrize(
    ("readable", "writable", "failure"),
    [
        ([], [], "the probe's program cannot be run in it"),
        (["/"], [], "it does not confine commands as it should: a test command read a file outside the sandbox"),
        ([], ["/"], "it does not confine commands as it should: a test command wrote outside its workspace"),
    ],
)
async def test_the_probe_notices_rules_that_allow_too_little_or_too_much(
    readable: list[str], writable: list[str], failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_rules(paths: Iterable[str], own: Iterable[str]) -> LandlockRules:
        paths = paths if readable or writable else []
        return landlock_rules([*paths, *readable], [*own, *writable])

    monkeypatch.setattr(landlock_and_seccomp, "landlock_rules", wrong_rules)
    starter = BrokeredStarter()
    try:
        assert await landlock_failure(starter, str(tmp_path)) == failure
    finally:
        await starter.aclose()


@pytest.mark.anyio
@pytest.mark.requirement("process.confined_start")
async def test_a_path_that_became_a_link_is_not_followed_and_an_absent_one_grants_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    starter = BrokeredStarter()
    try:
        rules = landlock_rules([*SYSTEM, str(tmp_path / "link")], [str(tmp_path / "absent")])
        spec = ProcessSpec(("/bin/ls", str(tmp_path / "secret")), "/", {}, landlock=rules)
        with pytest.raises(StartFailedError) as error_info:
            await starter.start(spec)
        assert error_info.value.number == errno.ELOOP
        rules = landlock_rules(SYSTEM, [str(tmp_path / "absent")])
        spec = ProcessSpec(("/bin/mkdir", str(tmp_path / "absent")), "/", {}, landlock=rules)
        status, output = await run(starter, spec)
        assert status == ExitStatus(1, None), output
        assert not (tmp_path / "absent").exists()
        # The error number also tells that a program may not be executed.
        with pytest.raises(StartFailedError) as error_info:
            await starter.start(ProcessSpec((sys.executable, "-V"), "/", {}, landlock=landlock_rules([], [])))
        assert error_info.value.number == errno.EACCES
    finally:
        await starter.aclose()
