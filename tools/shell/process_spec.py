"""The terms for running a command: what to run, its environment and folder, its process, and how it ended.

It runs directly or in a sandbox. Programs are started through the broker, which makes sure that nothing is left of them
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
    """Operating system limits for a command and everything it starts (`setrlimit`); `None` means unchanged."""

    file_bytes: int | None = None  # the largest file it may write
    processes: int | None = None  # the most processes of its user, including those already running; no effect for root
    core_bytes: int | None = 0
    group: str | None = None  # the file for joining a control group (`cgroup.procs`)


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """What a program and everything it starts may do with files, by Landlock. All sockets but netlink are refused.

    Paths are absolute and without symlinks. A missing path grants nothing; a path that has become a symlink is an
    error.
    """

    readable: tuple[str, ...]  # files, and folders with their contents, that may be read, listed and executed
    writable: tuple[str, ...]  # the same, which may also be changed; files may be created and removed below a folder
    calls: bytes = field(repr=False)  # a program for filtering system calls


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    argv: tuple[str, ...]  # the program, by absolute path, and its arguments; no shell parses them
    folder: str  # the folder it starts in, an absolute path
    environment: Mapping[str, str] = field(repr=False)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    # Content that the program reads from these descriptors: 0 (standard input, otherwise empty), and 3 and above.
    attachments: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    # Open descriptors of this server, by the numbers (0, 3 and above) that they get in the program.
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    separates_errors: bool = False  # whether standard error is kept apart from the other output
    # Open descriptors of namespaces that the program joins, in this order
    namespaces: tuple[int, ...] = ()
    landlock: LandlockRules | None = None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a program ended. Exactly one of the two is set."""

    code: int | None
    signal: str | None  # the name of the signal that killed it, such as `SIGKILL`


class StartFailedError(Exception):
    """A program could not be started. Has the error number of the operating system, or 0."""

    def __init__(self, number: int) -> None:
        super().__init__("the program could not be started")
        self.number = number


class EndedEarlyError(Exception):
    """The sandbox process ended before the command started. Its output says why."""


class MountStep(NamedTuple):
    """One mount in the namespaces of another process, with absolute paths there, without symlinks."""

    what: str  # the source; empty for the place itself
    place: str
    is_read_only: bool
    is_moved: bool = False  # whether the mount is moved; otherwise it is copied with everything below it


class Process(Protocol):
    """A started program with everything that it starts, in any session or group.

    Its only input is what it was given. It has no terminal and runs in its own session.
    """

    pid: int  # the process id of the program, and of its group
    # A non-blocking descriptor with its output and its children's, both streams in the order of writing. It ends when
    # every process that holds it has ended.
    output: int
    errors: int  # the same for standard error, if that is kept apart; else -1

    async def wait(self) -> ExitStatus:
        """Wait for the program itself; processes that it started may continue. May be called any number of times."""
        ...

    async def left_running(self) -> tuple[int, ...]:
        """Return the ids of all its processes that still run, including the program."""
        ...

    async def mount(self, told: int, steps: Iterable[MountStep]) -> None:
        """Mount in the namespaces of a process that it has started, once its number can be read from a descriptor.

        Raises an `OSError` on failure. Until the number or its end can be read, nothing else is done for the program.
        """
        ...

    async def end(self, grace_seconds: float) -> None:
        """End it and everything it started: SIGTERM, then SIGKILL after the grace period. Returns when nothing is left.

        Bounded, shielded from cancellation, and harmless if everything has already ended.
        """
        ...

    async def wait_gone(self) -> None:
        """Wait until it and everything it started have ended."""
        ...

    def close(self) -> None:
        """Close `output` and `errors`. Processes that still write get an error."""
        ...


def printed(process: Process) -> str:
    """Return output that nobody has read yet, or its beginning."""
    with suppress(BlockingIOError):
        return os.read(process.output, 4096).decode("utf-8", "replace")
    return ""


Mount = Callable[[int, Iterable[MountStep]], Coroutine[Any, Any, None]]  # `Process.mount`


class ProcessStarter(Protocol):
    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. Cancellation leaves nothing behind. Raises a `StartFailedError` on failure."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxChanges:
    """What a command did to auto-run files and to its `/tmp`."""

    # New ones, and where they were moved: out of the workspace, or to another name beside
    moved: tuple[tuple[str, str], ...] = ()
    unmovable: tuple[str, ...] = ()  # paths of new ones that could not be moved
    changed: tuple[str, ...] = ()  # paths of those that are gone or changed, by anybody
    uncovered: int = 0  # files and folders that were too many to protect
    # Size of its `/tmp` if it was emptied for being too large; else 0
    temporary_bytes: int = 0
    temporary_files: int = 0  # including folders
    has_overfilled: bool = False  # whether the command was ended because that grew too large while it ran
    not_lasting: tuple[str, ...] = ()  # files left in a temporary `/tmp`, by their names there
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class WithheldSecret:
    """A known location of secrets that a command does not see in its real form."""

    path: str
    programs: frozenset[str]  # commands that may fail without it
    is_settings: bool  # whether it is a settings file that is hidden because it contains secrets


@dataclass(slots=True)
class ConfinedCommand:
    spec: ProcessSpec  # what to start, including the sandbox's own program if there is one
    engine: Engine = Engine.NONE  # what keeps it in its view
    view: ViewKind = ViewKind.UNCONFINED
    network: Network = Network.HOST  # its actual network: its own loopback if the session has none
    withheld: tuple[WithheldSecret, ...] = field(default=(), kw_only=True)  # secrets that it does not see as they are

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """Return the folders that it may write unasked, whose size is limited while it runs, and the limit in bytes."""
        return (), 0

    async def begin(self, mount: Mount) -> None:
        """Let the command begin. It was started as a process that can mount, and has not run so far.

        Raises a `ToolError` if it must not run and has to be ended, because it is not confined as intended. Raises an
        `EndedEarlyError` if it cannot run at all.
        """

    async def release(self) -> SandboxChanges:
        """Release what is held for the command, once it has ended completely, or if it was not started."""
        return SandboxChanges()


class Confinement(Protocol):
    async def make_ready(self, workspace_roots: Sequence[str]) -> None:
        """Find out what can confine commands here, if that is not yet known."""
        ...

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """Return what can confine commands here, as far as it was tried, and what its reading view shows. Blocks.

        The result does not depend on the client.
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
        """Put a command into its view. Raises a `ToolError` if that is impossible; the view is never wider.

        The roots are real paths of the workspace's folders. Creates the client's private folder, if it has one, for its
        `/tmp`; that blocks.
        """
        ...


# The user and the system, Windows, certificates, toolchains.
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
# Proxies and package sources: also in lower case, and with user names and passwords removed from addresses.
_CLEANED_ADDRESSES = """
HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY
PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX NPM_CONFIG_REGISTRY GOPROXY
"""
PREFIXES = ("LC_", "XDG_")
# There is no terminal, so editors and password prompts fail at once. `GIT_ASKPASS` is empty so that git asks no other
# program, and its own prompt is off. git accepts its proposed commit message, but a rebase plan that nobody has edited
# is an error. A program named by a repository (fsmonitor) would run with every `git status`. So would the programs of a
# workspace folder that only looks like a bare repository.
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
    """Return all variables of a command. The operator's own settings (`shell.env`) take precedence unchanged."""
    passed: dict[str, str] = {}
    for name, value in inherited.items():
        is_cleaned = name.upper() in _CLEANED
        known = name.upper() if is_cleaned else name
        if (known in _KNOWN or known.startswith(PREFIXES)) and not is_secret_name(known):
            cleaned = without_userinfo(value) if is_cleaned else value
            if not has_secret(cleaned):
                passed[name] = cleaned
    return {**passed, **FIXED, **configured}
