"""What running a command means: what is to run, in which environment and where, as which process, and how it ended.

It runs as it is, or in a sandbox. Programs are started through the broker, which sees to it that nothing is left of one
once this server is gone. Their environment has what builds need, and no secret of the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tools.contract.command_views import CommandSite, CommandView, Engine, Network, ViewKind
from tools.text.secrets import has_secret, is_secret_name, without_userinfo


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of the operating system for a command and all it starts (`setrlimit`); `None` leaves one as it is."""

    file_bytes: int | None = None  # the largest file it may write
    processes: int | None = None  # the most of its user, those that run already included; without effect for root
    core_bytes: int | None = 0
    group: str | None = None  # the file by which it and all it starts join a control group (`cgroup.procs`)


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """What a program and all that it starts may do to files, by Landlock; all sockets but netlink are refused.

    Paths are absolute and without links. One that is absent grants nothing; one that is a link by then is an error.
    """

    readable: tuple[str, ...]  # files, and folders with all below them, that may be read, listed and executed
    writable: tuple[str, ...]  # the same, which may also be changed: below a folder files may be made and removed
    calls: bytes = field(repr=False)  # the program of a filter of system calls


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    argv: tuple[str, ...]  # the program, by absolute path, and its arguments; no shell reads them
    folder: str  # the folder it starts in, an absolute path
    environment: Mapping[str, str] = field(repr=False)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    # Content that the program reads from descriptors of these numbers: 0, its standard input, which is empty otherwise,
    # and 3 and above.
    attachments: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    # Open descriptors of this server, by the numbers, 0 and 3 and above, that the program has them under.
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    separates_errors: bool = False  # whether what comes on standard error is told apart from the rest
    # Open descriptors of this server: namespaces that the program joins, in this order
    namespaces: tuple[int, ...] = ()
    landlock: LandlockRules | None = None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a program ended: exactly one of the two is set."""

    code: int | None
    signal: str | None  # the name of the signal that ended it, such as `SIGKILL`


class StartFailedError(Exception):
    """A program could not be started, with the error number of the operating system, 0 where there is none."""

    def __init__(self, number: int) -> None:
        super().__init__("the program could not be started")
        self.number = number


class EndedEarlyError(Exception):
    """The sandbox process ended before the command started; what it printed says why."""


class MountStep(NamedTuple):
    """One mount in namespaces of another process, by absolute paths there, without links."""

    what: str  # from where; empty for the place itself
    place: str
    is_read_only: bool
    is_moved: bool = False  # whether it is a mount that leaves its place for this one, else a copy with all below it


class Process(Protocol):
    """One started program with everything that it starts, whatever session or group that is in.

    It reads nothing but what it was given, has no terminal, and runs in a session of its own.
    """

    pid: int  # the process id of the program itself, also the id of its group
    # A non-blocking descriptor with what it and its children print, both streams in the order of writing. It ends only
    # when every process that holds it has ended.
    output: int
    errors: int  # the same with what comes on standard error, where that is told apart; else -1

    async def wait(self) -> ExitStatus:
        """Wait for the program itself; what it left running may go on. May be called any number of times."""
        ...

    async def left_running(self) -> tuple[int, ...]:
        """The ids of all processes that it started and that still run, itself included."""
        ...

    async def mount(self, told: int, steps: Iterable[MountStep]) -> None:
        """Mount in the namespaces of a process that it has started, once its number is read from a descriptor.

        An `OSError` if that cannot be. Until the number or its end can be read there, nothing else is done for it.
        """
        ...

    async def end(self, grace_seconds: float) -> None:
        """End it and all it started, with SIGTERM first and SIGKILL after the grace; returns when nothing is left.

        Bounded, shielded from cancellation, and harmless where everything has ended already.
        """
        ...

    async def wait_gone(self) -> None:
        """Wait until it and all it started have ended."""
        ...

    def close(self) -> None:
        """Close `output` and `errors`. What still runs and prints then gets an error for it."""
        ...


def printed(process: Process) -> str:
    """What a program has printed and nobody has read, or the beginning of it."""
    with suppress(BlockingIOError):
        return os.read(process.output, 4096).decode("utf-8", "replace")
    return ""


Mount = Callable[[int, Iterable[MountStep]], Coroutine[Any, Any, None]]  # `Process.mount`


class ProcessStarter(Protocol):
    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. If this is cancelled, nothing of it stays. A `StartFailedError` if it cannot be started."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxChanges:
    """What a command did to files that programs outside its sandbox obey, and to its `/tmp`."""

    # Those that were not there when it began, and where they are: out of the workspace, or under another name beside
    moved: tuple[tuple[str, str], ...] = ()
    unmovable: tuple[str, ...] = ()  # paths of those that could not be moved
    changed: tuple[str, ...] = ()  # paths of those that are gone now, or are not what they were, no matter who did that
    uncovered: int = 0  # how many files and folders could not be kept from it, since there are too many
    # How much its `/tmp` held that was emptied, since that was too much; else 0
    temporary_bytes: int = 0
    temporary_files: int = 0  # folders count, too
    has_overfilled: bool = False  # whether it was ended since that became too much while it ran
    not_lasting: tuple[str, ...] = ()  # what it left in a `/tmp` that was its alone, by the names that it had there
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class WithheldSecret:
    """A known place of secrets that a command does not see as it is."""

    path: str
    programs: frozenset[str]  # what may fail for want of it, by what commands call them
    is_settings: bool  # whether they lie in a file of settings that is hidden for them


@dataclass(slots=True)
class ConfinedCommand:
    spec: ProcessSpec  # what is to be started, the sandbox's own program in front where there is one
    engine: Engine = Engine.NONE  # what holds it in its view
    view: ViewKind = ViewKind.UNCONFINED
    network: Network = Network.HOST  # what it really has: a loopback of its own where the session has none
    withheld: tuple[WithheldSecret, ...] = field(default=(), kw_only=True)  # what it does not see as it is

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """The folders that may hold so many bytes while it runs, since nobody is asked whether it writes there."""
        return (), 0

    async def begin(self, mount: Mount) -> None:
        """Let the command begin, which was started as a process that can mount; until then nothing of it runs.

        A `ToolError` if it must not, and has to be ended: it is not confined as it was meant to be. An
        `EndedEarlyError` if nothing of it can run.
        """

    async def release(self) -> SandboxChanges:
        """Give back what is held for the command, once everything of it has ended, or if it was not started."""
        return SandboxChanges()


class Confinement(Protocol):
    async def make_ready(self, workspace_roots: Sequence[str]) -> None:
        """Try out what can hold commands here, if that is not known."""
        ...

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """What can hold commands in a view here, as far as it was tried out, and what its reading view shows. Blocks.

        Of the client nothing is known yet.
        """
        ...

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        view: CommandView,
        private_folder: Callable[[], str] | None = None,
        client_key: str = "",
        /,
    ) -> ConfinedCommand:
        """Put a command into its view; a `ToolError` if that cannot be made, never a wider one.

        The roots are real paths of the workspace's folders. The private folder is made where the client has one, for
        its `/tmp`; that blocks.
        """
        ...


# The person and the system, Windows, certificates, toolchains.
_KEPT = """
HOME USER LOGNAME LANG LANGUAGE SHELL TZ HOSTNAME PWD PATH TMPDIR TMP TEMP MANPATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH
PKG_CONFIG_PATH

SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT OS USERPROFILE USERNAME HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA
PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 COMMONPROGRAMFILES PROCESSOR_ARCHITECTURE NUMBER_OF_PROCESSORS
PSMODULEPATH

SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT NODE_EXTRA_CA_CERTS
GIT_SSL_CAINFO GIT_SSL_CAPATH CARGO_HTTP_CAINFO AWS_CA_BUNDLE

VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_EXE PYENV_ROOT PYENV_VERSION UV_CACHE_DIR PIP_CACHE_DIR POETRY_HOME
PIPX_HOME NVM_DIR NVM_BIN FNM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR DENO_INSTALL JAVA_HOME JDK_HOME MAVEN_HOME
M2_HOME GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR KOTLIN_HOME SCALA_HOME ANDROID_HOME ANDROID_SDK_ROOT GOPATH GOROOT
GOBIN GOCACHE GOMODCACHE GOFLAGS GOTOOLCHAIN CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN CARGO_TARGET_DIR RBENV_ROOT
RBENV_VERSION GEM_HOME GEM_PATH BUNDLE_PATH ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR COMPOSER_HOME DOTNET_ROOT
NUGET_PACKAGES OPAMROOT OPAM_SWITCH_PREFIX GHCUP_INSTALL_BASE_PREFIX CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS
CMAKE_PREFIX_PATH CMAKE_GENERATOR CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES NIX_PATH NIX_PROFILES HOMEBREW_PREFIX EMSDK
PYTHONUTF8 PYTHONIOENCODING SOURCE_DATE_EPOCH
"""
# Proxies, then where packages come from: known in small letters too, and without names and passwords in addresses.
_CLEANED_ADDRESSES = """
HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY
PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX NPM_CONFIG_REGISTRY GOPROXY
"""
PREFIXES = ("LC_", "XDG_")
# There is no terminal, so editors and questions for passwords fail at once. `GIT_ASKPASS` is set and empty: git asks no
# other program, and its own question is off. git goes on with the message it proposes; a plan of a rebase that nobody
# has edited is an error, not a success. A program that a repository names (fsmonitor) would run with every
# `git status`, and so would those of a folder of the workspace that only looks like a repository (a bare one).
_FIXED = """
TERM=dumb PAGER=cat GIT_PAGER=cat MANPAGER=cat SYSTEMD_PAGER=cat
GIT_ASKPASS= GIT_TERMINAL_PROMPT=0 SSH_ASKPASS= SSH_ASKPASS_REQUIRE=never GCM_INTERACTIVE=never GH_PROMPT_DISABLED=1
PIP_NO_INPUT=1 DEBIAN_FRONTEND=noninteractive
GIT_EDITOR=true GIT_SEQUENCE_EDITOR=false EDITOR=false VISUAL=false
GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=false
GIT_CONFIG_KEY_1=safe.bareRepository GIT_CONFIG_VALUE_1=explicit
CORETOOLS_MCP=1
"""
FIXED: Mapping[str, str] = {name: value for name, _, value in (each.partition("=") for each in _FIXED.split())}
_CLEANED = frozenset(_CLEANED_ADDRESSES.split())
_KNOWN = _CLEANED | frozenset(_KEPT.split())


def command_environment(configured: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """All variables of a command. What the operator sets (`shell.env`) is taken as it is, over everything else."""
    passed: dict[str, str] = {}
    for name, value in inherited.items():
        is_cleaned = name.upper() in _CLEANED
        known = name.upper() if is_cleaned else name
        if (known in _KNOWN or known.startswith(PREFIXES)) and not is_secret_name(known):
            cleaned = without_userinfo(value) if is_cleaned else value
            if not has_secret(cleaned):
                passed[name] = cleaned
    return {**passed, **FIXED, **configured}
