"""Confines commands with bubblewrap."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from time import monotonic
from types import MappingProxyType

from anyio import CancelScope, Lock, move_on_after, sleep

from tools.contract.command_views import SYSTEM, CommandSite, CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.tool_errors import (
    NOTHING_DONE,
    ExhaustedError,
    ToolError,
    ToolErrorType,
    exhaustion_of,
    sandbox_unavailable,
)
from tools.files.child_process import find_program, is_outside
from tools.files.workspace import contains, is_inside, resolve_links
from tools.machine.threads import THREADS
from tools.shell import private_folders
from tools.shell.loopback import SessionLoopbacks
from tools.shell.private_folders import SCRATCH, PrivateFolders, empty_if_large
from tools.shell.process_spec import ConfinedCommand, Mount, MountStep, ProcessSpec, ProcessStarter, SandboxChanges
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox import visible_file_system
from tools.shell.sandbox.auto_run_guard import AutoRunScanner
from tools.shell.sandbox.credential_masks import secret_places
from tools.shell.sandbox.landlock_and_seccomp import (
    LandlockCommand,
    LandlockConfinement,
    landlock_entry,
    landlock_rules,
    ruleset_for_views,
    seccomp_program,
)
from tools.shell.sandbox.mount_check import NEW_ROOT, MountGate
from tools.shell.sandbox.probe import NO_ANSWER, Probe, failure_of
from tools.shell.sandbox.reading_view import (
    ETC,
    OPEN_TO_ALL,
    TEMPORARY,
    reading_view_paths,
    settings_files_of_git,
    without_private_paths,
)
from tools.shell.sandbox.visible_file_system import (
    UNREACHABLE,
    PreparedView,
    Site,
    StandIns,
    View,
    ViewPreparation,
    depth,
)
from tools.text.file_names import shown_whole_path

logger = logging.getLogger(__name__)
# Kernel settings that bubblewrap leaves writable. Root owns these, and may write to them even without capabilities or
# in a user namespace. `core_pattern` alone could run a program outside the sandbox.
TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
SHARED_BYTES = 512 * 1024**2  # size of each command's own `/dev/shm`
# How long a result waits for the check of files left by the command; later findings are not reported
SETTLE_SECONDS = 8.0
NOT_AS_INTENDED = (
    "The command was not run: the workspace changed while the sandbox was being set up (a folder was moved, or "
    "replaced by a symlink, perhaps by another command). Run it again."
)
TOO_SLOW = (
    "The command was not run: its sandbox took too long to set up. This machine may be very busy, or a folder in the "
    "workspace may not be responding. Run it again later."
)


# Descriptors for bubblewrap, above those that a shell command uses. `RULES` is for the Landlock ruleset, and `ENTRY`
# for the program that enforces it before it executes the command. `CALLS` is for the system call filter. Bubblewrap
# writes the id of its child process to `INFO`, reads `HELD` to its end before it starts the command, and reads its
# options from `OPTIONS`.
RULES, ENTRY, CALLS, INFO, HELD, OPTIONS = 7, 8, 9, 10, 11, 12
OLD_ROOT = "/oldroot"  # where bubblewrap sees the whole machine while it mounts
FIXED = visible_file_system.SYSTEM_ROOTS.difference(visible_file_system.PRIVATE)  # folders that commands cannot change
STAGE = "/dev/.places"  # where bubblewrap makes mounts that a later step moves to their places


class ViewSetup:
    """Builds the view for a command: bubblewrap's options, and the mounts to add afterwards.

    Bubblewrap follows symlinks in a mount path, creates missing mount points, and may empty a file there. So it must
    not mount anything in a host folder in which another command could create a symlink to `/oldroot` just before the
    mount. Such mounts are made by descriptor (`mount_in`). Bubblewrap itself mounts only in file systems that it has
    created, and in system folders, which no command can change.
    """

    def __init__(self, view: View, folder: str, *, is_filtered: bool) -> None:
        # Not `--die-with-parent`, which would kill processes that a command leaves running when its shell exits.
        self.options = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if view.has_own_network:
            self.options.append("--unshare-net")
        self.options += ("--new-session", "--cap-drop", "ALL", "--info-fd", str(INFO))
        self.steps: list[MountStep] = []
        self._limited_paths, self._roots = {*view.masked, *view.pinned, *view.read_only}, (*view.roots, *view.writable)
        # Keyed by mounted path: where bubblewrap can make mounts inside this path, or `None` if its contents come from
        # the host, so that a later step must make them.
        self._destinations: dict[str, str | None] = {"/": None if view.is_whole else "", "/dev": "/dev"}
        if view.is_whole:
            self.options += ("--ro-bind", "/", "/")
        for place in sorted(view.links, key=depth):
            self.options += ("--symlink", view.links[place], place)
        for path in view.empty:
            self.options += ("--dir", path)
        self.options += ("--dev", "/dev", "--perms", "1777", "--size", str(SHARED_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
        self.options += ("--proc", "/proc")
        for path in TUNING:
            self.options += ("--ro-bind-try", path, path)
        for private in view.private:
            if private not in view.lasting:
                mode = "1777" if private in OPEN_TO_ALL else "0755"
                size = str(visible_file_system.PRIVATE_BYTES)
                self.options += ("--perms", mode, "--size", size, "--tmpfs", private)
                self._destinations[private] = private
            elif private in OPEN_TO_ALL:  # the parents of these folders are system folders, which no command can change
                self.options += ("--bind", view.lasting[private], private)
                self._destinations[private] = None
            else:
                self._bind(private, view.lasting[private], is_read_only=False)
        for path in filter(os.path.lexists, view.seen):
            self._bind(path)

        mounts: list[tuple[str, Callable[[], None]]] = [
            *((path, partial(self._empty, path)) for path in view.hidden_folders),
            # On a `nodev` mount, a device file cannot be opened, so `/dev/null` mounted over a file hides it.
            *((path, partial(self._bind, path, "/dev/null")) for path in view.hidden_files),
            *((path, partial(self._bind, path, source)) for path, source in view.settings.items()),
            *((path, partial(self._bind, path)) for path in filter(os.path.lexists, view.exempt)),
            *((path, partial(self._bind, path, source)) for path, source in view.masked.items()),
        ]
        in_roots = {path for path, _ in mounts if any(contains(root, path) and path != root for root in view.roots)}
        # A root may itself be hidden, but the operator named it, so roots are mounted after hidden paths.
        writable = ((path, partial(self._bind, path, is_read_only=False)) for path in (*view.roots, *view.writable))
        outer_mounts = (*(item for item in mounts if item[0] not in in_roots), *writable)
        for _, mount in sorted(outer_mounts, key=lambda item: depth(item[0])):
            mount()
        self.steps += (MountStep("", NEW_ROOT + path, is_read_only=False) for path in view.pinned)
        self.steps += (MountStep("", NEW_ROOT + path, is_read_only=True) for path in view.read_only)
        for _, mount in sorted((item for item in mounts if item[0] in in_roots), key=lambda item: depth(item[0])):
            mount()
        # Files created in these in-memory file systems would be lost, so mount them read-only.
        for path in ("/", "/dev"):
            self.options += ("--remount-ro", path)
        # Here bubblewrap waits until the gate closes the pipe `HELD`, and discards what it reads.
        self.options += ("--file", str(HELD), "/dev/null", "--chdir", folder)
        if is_filtered:
            self.options += ("--seccomp", str(CALLS))

    def _destination(self, path: str) -> str | None:
        """Return the destination to give bubblewrap for a mount at `path`, or `None` if a later step must mount it."""
        parent: str = os.path.dirname(path)
        # A workspace may be in a system folder such as /opt.
        if (
            (parent in FIXED or is_inside(parent, SYSTEM))
            and path not in self._limited_paths
            and not is_inside(parent, self._roots)
        ):
            return path
        while parent not in self._destinations:
            parent = os.path.dirname(parent)
        destination = self._destinations[parent]
        return None if destination is None else destination + path[len(parent.rstrip("/")) :]

    def _bind(self, path: str, source: str = "", *, is_read_only: bool = True) -> None:
        """Mount `source` at `path`. By default, mount `path` onto itself."""
        destination, source = self._destination(path), source or path
        self._destinations[path] = None
        if destination is None:
            self.steps.append(MountStep(OLD_ROOT + source, NEW_ROOT + path, is_read_only))
        else:
            self.options += ("--ro-bind-try" if is_read_only else "--bind", source, destination)

    def _empty(self, path: str) -> None:
        """Mount an empty folder at `path`. More mounts may follow inside this folder."""
        destination = self._destination(path)
        if destination is None:
            destination = f"{STAGE}/{len(self.steps)}"
            self.steps.append(MountStep(NEW_ROOT + destination, NEW_ROOT + path, is_read_only=True, is_moved=True))
        self._destinations[path] = destination
        self.options += ("--size", "4096", "--perms", "0555", "--tmpfs", destination)


@dataclass(slots=True)
class SandboxedCommand(ConfinedCommand):
    """A command in the sandbox, with its resources. The caller must release it."""

    # `ViewPreparation.prepare`, called while bubblewrap waits for its options
    prepare: Callable[[], PreparedView] = field(repr=False, kw_only=True)
    gate: MountGate = field(repr=False, kw_only=True)
    # `CommandView.current_restrictions`, which returns what file rules now deny to the command
    read_restrictions: Callable[[], FileRestrictions] = field(repr=False, kw_only=True)
    _prepared_view: PreparedView | None = field(default=None, repr=False, init=False)

    def send_options(self) -> list[MountStep]:
        """Prepare the view, and send the options to the running bubblewrap. Returns the mounts to add. Blocking."""
        self.gate.close_child_ends()
        prepared_view = self._prepared_view = self.prepare()
        view = prepared_view.view
        if not all(map(os.path.lexists, view.masked)):
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_INTENDED)
        setup = ViewSetup(view, prepared_view.folder(self.spec.folder), is_filtered=CALLS in self.spec.attachments)
        self.gate.send_options(setup.options)
        return setup.steps

    def is_as_intended(self, process: int, prepared_view: PreparedView) -> bool:
        """If the command's mounts are as intended, let it begin and return True. Blocking."""
        # File rules may now deny different paths, because a folder may have been moved since the view was prepared.
        earlier, current = prepared_view.restrictions, self.read_restrictions()
        if (set(current.masked), set(current.read_only)) != (set(earlier.masked), set(earlier.read_only)):
            return False
        view = prepared_view.view
        expected = view.expected()
        if self.gate.rules is not None and sys.platform != "win32":
            places = ("/dev", "/proc", *view.private, *view.roots, *view.writable)
            from tools.shell.broker.confinement import allow_writing  # noqa: PLC0415 - unavailable on Windows

            allow_writing(self.gate.rules, f"/proc/{process}/root{NEW_ROOT}", places)
        return self.gate.check(process, expected)

    async def begin(self, mount: Mount) -> None:
        """Tell bubblewrap what to mount, and let the command begin if the result is as intended."""
        steps: list[MountStep] = []
        mounting: asyncio.Task[None] | None = None
        try:
            # Bubblewrap is waiting for the options, so this must not be interrupted.
            with CancelScope(shield=True):
                steps = await THREADS.run(self.send_options)
            if steps:  # the mounting process prepares itself while bubblewrap sets up the sandbox
                mounting = asyncio.create_task(mount(self.gate.mounting, steps))
            await self.gate.wait_mounted()
            process = self.gate.process()
            if mounting is not None:
                self.gate.send_pid(process)
                await mounting
            if self._prepared_view is not None and await THREADS.run(
                partial(self.is_as_intended, process, self._prepared_view)
            ):
                return
        except TimeoutError:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, TOO_SLOW) from None
        except OSError as error:
            # These errors mean that a path was replaced.
            if error.errno not in (errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ESRCH):
                raise setup_error(error) from None
            logger.warning("a sandbox could not be mounted: %s", os.strerror(error.errno))
        else:
            logger.warning("the mounts of a sandbox are not as intended")
        finally:
            self.gate.send_pid()
            if mounting is not None:
                mounting.cancel()
        raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_INTENDED)

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """Return the client's folders that a read-only command can write to, and their size limit in bytes."""
        if self._prepared_view is None or self.view is not ViewKind.READING:
            return (), 0
        return (*self._prepared_view.view.lasting.values(),), self._prepared_view.temporary_bytes

    async def release(self) -> SandboxChanges:
        self.gate.close()
        if self._prepared_view is None:
            return SandboxChanges()
        try:
            with move_on_after(SETTLE_SECONDS, shield=True):
                return await THREADS.run(self._prepared_view.settle)
        except (OSError, RecursionError, ExhaustedError) as error:
            logger.warning("the files that a command left could not be checked: %s", type(error).__name__)
        return SandboxChanges(is_unknown=True)


def setup_error(error: OSError) -> ToolError:
    """Return the error for a command whose sandbox could not be created."""
    reason = os.strerror(error.errno) if error.errno else "the system refused"
    return exhaustion_of(error, NOTHING_DONE) or ToolError(
        ToolErrorType.SHELL_EXECUTE_ERROR,
        f"The command was not run: its sandbox could not be created ({reason}), and nothing else would have kept the "
        "command away from protected files. Try again when other commands have ended. If the disk is full, free some "
        "space first.",
    )


USUAL_FOLDER = "/usr/bin"  # AppArmor on Ubuntu allows only the program in this folder to create user namespaces
# How many times to test the sandbox, and the pause between tests, while descriptors or processes are scarce.
SCARCITY_ATTEMPTS, SCARCITY_PAUSE_SECONDS = 12, 0.25
RETRY_SECONDS = 60.0  # pause before a sandbox that did not respond is tested again
PROBE_ATTEMPTS = 2  # a second attempt, in case the machine was just busy


class SandboxMode(StrEnum):
    """When commands run in the sandbox (`shell.sandbox`)."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    program: str | None  # the absolute path of bubblewrap; `None` if it was not found or not searched for
    failure: str | None  # why bubblewrap is not used, phrased for the middle of a sentence; `None` if it works


class BubblewrapConfinement:
    """Runs commands in bubblewrap. Each server has one instance."""

    def __init__(
        self,
        mode: SandboxMode,
        site: Site,
        starter: ProcessStarter,  # runs the probe
        folders: PrivateFolders,  # for the files and folders that replace masked ones
        search_path: str = os.defpath,
        program: str | None = None,  # path of bubblewrap; if `None`, it is searched for
        *,
        consented_digests: Mapping[str, str] = MappingProxyType({}),  # as in `AutoRunScanner`
        loopbacks: SessionLoopbacks | None = None,
        landlock: LandlockConfinement | None = None,  # confines read-only commands if bubblewrap does not work
    ) -> None:
        self._mode = mode
        self._site = site
        self._search_path = search_path
        self._program = program
        self._starter = starter
        self._tested_status = SandboxStatus(None, "it has not been tested yet")
        self._test_at = float("-inf")  # monotonic time after which the next call tests the sandbox
        self._testing = Lock()
        self._group = ProcessGroupLimit()
        self._scanner = AutoRunScanner(consented_digests)
        self._folders = folders
        self._caches: set[str] = set()  # caches that have been checked
        self._loopbacks = loopbacks
        self._landlock = landlock

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        view: CommandView,
        private_folder: Callable[[], str] | None = None,
        client_key: str = "",
    ) -> ConfinedCommand:
        """Put a command into its view. Raises `sandbox_unavailable` if that is impossible."""
        is_unconfined = view.kind is ViewKind.UNCONFINED and view.engine is not Engine.BUBBLEWRAP
        if is_unconfined and self._mode is not SandboxMode.REQUIRED:
            # The command runs without a sandbox: the user was asked, or the operator wants no questions.
            return ConfinedCommand(spec, view.engine)
        status = await self.status(workspace_roots)
        failure = status.failure
        try:
            if is_unconfined:
                failure = failure or "the command was approved before the sandbox was available"
            elif view.engine is Engine.LANDLOCK and self._landlock is not None and view.kind is ViewKind.READING:
                failure = await self._landlock.failure()
                if not failure:
                    return await THREADS.run(partial(self._with_landlock, spec, workspace_roots, view, private_folder))
            elif view.engine is not Engine.BUBBLEWRAP or view.kind is ViewKind.UNCONFINED:
                failure = f"'{view.engine}' cannot provide the view '{view.kind}'"
            elif failure is None and status.program is not None:
                namespaces = None
                if view.network is Network.SESSION_LOOPBACK and self._loopbacks is not None:
                    namespaces = await self._loopbacks.namespaces(client_key, status.program)
                make = partial(self._sandboxed, status.program, spec, workspace_roots, view, client_key=client_key)
                # A cancellation here would lose the new command, and nothing would close its descriptors.
                with CancelScope(shield=True):
                    return await THREADS.run(partial(make, namespaces=namespaces, private_folder=private_folder))
        except OSError as error:
            raise setup_error(error) from None
        if self._mode is SandboxMode.REQUIRED:
            raise sandbox_unavailable(failure or "it was lost")
        raise ToolError(
            ToolErrorType.SANDBOX_UNAVAILABLE,
            f"The command was not run: the sandbox that it was approved for is no longer available ({failure}). "
            "Nothing runs with more access than it was granted. Run it again; the user will be asked if needed.",
        )

    async def make_ready(self, workspace_roots: Sequence[str]) -> None:
        """Test the sandbox, unless the result is known."""
        if self._mode is SandboxMode.OFF or visible_file_system.too_broad(workspace_roots) is not None:
            return
        for attempt in range(SCARCITY_ATTEMPTS):
            if monotonic() < self._test_at:
                return
            try:
                async with self._testing:
                    if monotonic() >= self._test_at:
                        self._tested_status = await self._test_bubblewrap(workspace_roots)
                        # If the sandbox did not respond in time, the machine may just have been busy.
                        is_final = self._tested_status.failure != NO_ANSWER
                        self._test_at = float("inf") if is_final else monotonic() + RETRY_SECONDS
            except ExhaustedError:
                # Other calls will soon release resources.
                if attempt == SCARCITY_ATTEMPTS - 1:
                    raise
                await sleep(SCARCITY_PAUSE_SECONDS)

    async def status(self, workspace_roots: Sequence[str]) -> SandboxStatus:
        """Return whether the sandbox works for these roots. The first call tests it and caches the result."""
        await self.make_ready(workspace_roots)
        return await THREADS.run(partial(self._status_for, workspace_roots))

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        failure = self._status_for(workspace_roots).failure
        engine = Engine.NONE if failure is not None else Engine.BUBBLEWRAP
        if engine is Engine.NONE and self._mode is not SandboxMode.OFF and self._landlock is not None:
            may_hold = self._landlock.may_work() and visible_file_system.too_broad(workspace_roots) is None
            engine = Engine.LANDLOCK if may_hold else engine
        reading_paths = () if engine is Engine.NONE else self._reading_paths(workspace_roots, search_path)
        return CommandSite(engine, failure or "", self._mode is SandboxMode.REQUIRED, reading_paths)

    async def landlock_failure(self) -> str:
        """Return why Landlock cannot confine read-only commands, as a clause; empty if it can."""
        return "it is not set up" if self._landlock is None else await self._landlock.failure()

    def _reading_paths(self, roots: Sequence[str], search_path: str) -> tuple[str, ...]:
        hidden_paths = secret_places(self._site.home, self._site.hidden, self._site.readable, roots)
        return reading_view_paths(self._site.home, search_path, roots, hidden_paths.all, self._site.readable)

    def close(self) -> None:
        """Release the resources after the server's last command."""
        self._group.close()

    def _status_for(self, roots: Sequence[str]) -> SandboxStatus:
        if self._mode is SandboxMode.OFF:
            return SandboxStatus(None, "it is turned off by shell.sandbox")
        if (broad := visible_file_system.too_broad(roots)) is not None:
            return SandboxStatus(
                None,
                f"the workspace root '{shown_whole_path(broad)}' contains the system itself, so nothing would be "
                "confined",
            )
        status = self._tested_status
        if status.failure is None and status.program is not None and not is_outside(status.program, roots):
            failure = "the bubblewrap program is in the workspace, where commands can replace it"
            return SandboxStatus(status.program, failure)
        return status

    def _with_landlock(
        self, spec: ProcessSpec, roots: Sequence[str], view: CommandView, private_folder: Callable[[], str] | None
    ) -> LandlockCommand:
        """Return a command that can write only to its temporary folder, if any. Blocking."""
        visible_paths = (*self._reading_paths(roots, spec.environment.get("PATH", "")), *view.seen, *view.outputs)
        readable = (
            *visible_file_system.writable(roots),
            *(path for visible_path in visible_paths for path in without_private_paths(visible_path)),
        )
        environment = visible_file_system.with_few_retries(
            {name: value for name, value in spec.environment.items() if name not in UNREACHABLE}
        )
        # Git fails if it may not read its settings file. Files in the workspace are ignored, because commands can
        # change them.
        settings_files = filter(os.path.isfile, settings_files_of_git(self._site.home))
        real_paths = {path: resolve_links(path) for path in settings_files}
        environment["GIT_CONFIG_GLOBAL"] = next(
            (
                path
                for path, real in real_paths.items()
                if is_inside(real, visible_paths) and not is_inside(real, roots)
            ),
            os.devnull,
        )
        temporary = None
        if private_folder is not None:
            temporary = os.path.join(private_folder(), "landlock-tmp")
            os.makedirs(temporary, 0o700, exist_ok=True)
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        writable = (temporary,) if temporary is not None else ()
        rules = landlock_rules(readable, writable, may_take_shares=view.may_take_shares)
        return LandlockCommand(
            replace(spec, environment=environment, landlock=rules),
            Engine.LANDLOCK,
            ViewKind.READING,
            Network.OWN_LOOPBACK,
            temporary=temporary,
        )

    def _stand_ins(self) -> StandIns:
        base = self._folders.make("masks")
        stand_ins = StandIns(*(os.path.join(base, name) for name in StandIns._fields))
        for file, mode in ((stand_ins.file, 0), (stand_ins.settings, 0o444)):
            with suppress(FileExistsError):
                os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        with suppress(FileExistsError):
            os.mkdir(stand_ins.folder, 0)
        return stand_ins

    def _sandboxed(
        self,
        program: str,
        spec: ProcessSpec,
        roots: Sequence[str],
        command_view: CommandView,
        *,
        namespaces: tuple[int, ...] | None = None,  # namespaces of the client's session
        private_folder: Callable[[], str] | None = None,
        client_key: str = "",
        site: Site | None = None,  # replaces `self._site`, for the probe
    ) -> SandboxedCommand:
        """Return a command in the sandbox, ready to start. Raises an `OSError` if no descriptors are left."""
        site = site or self._site
        cache = self._folders.cache_of(client_key, roots) if command_view.kind is not ViewKind.READING else None
        if cache is not None and cache not in self._caches:
            self._caches.add(cache)
            empty_if_large(cache, self._site.temporary_bytes)
        work = SCRATCH if command_view.kind is ViewKind.READING else private_folders.WORK
        is_online = command_view.network is Network.HOST
        downloads = visible_file_system.private_downloads(
            spec.environment,
            cache or os.path.join(self._folders.path_of(client_key) or "", work, ".cache"),
            is_online=is_online,
        )
        present = visible_file_system.writable(roots)
        hidden_paths = visible_file_system.secrets_of(site, present, command_view)
        gate = MountGate(ruleset_for_views())
        sandbox_spec = replace(
            self._bubblewrap_spec(program, spec, gate, may_take_shares=command_view.may_take_shares),
            environment=visible_file_system.sandbox_environment(
                spec.environment, present, command_view.kind, downloads, is_online=is_online
            ),
            namespaces=namespaces or (),
        )
        is_own = not is_online and namespaces is None
        preparation = ViewPreparation(
            site=site,
            scanner=self._scanner,
            roots=roots,
            command_view=command_view,
            hidden_paths=hidden_paths,
            stand_ins=self._stand_ins,
            search_path=spec.environment.get("PATH", ""),
            private_folder=private_folder,
            cache=cache,
            has_own_network=is_own,
        )
        return SandboxedCommand(
            sandbox_spec,
            Engine.BUBBLEWRAP,
            command_view.kind,
            Network.OWN_LOOPBACK if is_own else command_view.network,
            foreign_owner=visible_file_system.foreign_owner(present),
            withheld=hidden_paths.withheld,
            prepare=preparation.prepare,
            gate=gate,
            read_restrictions=command_view.current_restrictions,
        )

    def _bubblewrap_spec(
        self, program: str, spec: ProcessSpec, gate: MountGate, *, may_take_shares: bool
    ) -> ProcessSpec:
        """Return how bubblewrap starts a program: with a system call filter, and with Landlock if the kernel has it."""
        machine = os.uname().machine if sys.platform != "win32" else ""
        attachments = {**spec.attachments}
        if (calls_filter := seccomp_program(machine, may_take_shares=may_take_shares)) is not None:
            attachments[CALLS] = calls_filter
        descriptors = {**spec.descriptors, INFO: gate.info, HELD: gate.held, OPTIONS: gate.options}
        entry_command: tuple[str, ...] = ()
        if gate.rules is not None:
            attachments[ENTRY] = landlock_entry(machine, RULES, ENTRY)
            descriptors[RULES] = gate.rules
            entry_command = (f"/proc/self/fd/{ENTRY}",)
        return replace(
            spec,
            argv=(program, "--args", str(OPTIONS), "--", *entry_command, *spec.argv),
            limits=replace(spec.limits, group=self._group.entrance() if is_root() else None),
            attachments=attachments,
            descriptors=descriptors,
        )

    async def _test_bubblewrap(self, roots: Sequence[str]) -> SandboxStatus:
        """Find and test bubblewrap. Raises an `ExhaustedError` if a lack of resources prevents a result."""
        if sys.platform != "linux":
            return SandboxStatus(None, "it exists only for Linux")
        program = self._program or await THREADS.run(partial(find_bubblewrap, self._search_path, roots))
        if program is None:
            return SandboxStatus(None, "bubblewrap is not installed")
        if seccomp_program(os.uname().machine) is None:
            return SandboxStatus(program, "there is no system call filter for this architecture")
        if self._mode is SandboxMode.REQUIRED and is_root() and self._group.entrance() is None:
            return SandboxStatus(
                program,
                "this server runs as root, so only a control group can limit the processes of commands, and none can "
                "be created here; start the server as another user",
            )
        failure: str | None = None
        for kind in (ViewKind.WORKING, ViewKind.READING):
            for _ in range(PROBE_ATTEMPTS):
                failure = await self._probe(program, kind)
                if failure != NO_ANSWER:
                    break
            if failure is not None:
                break
        return SandboxStatus(program, failure)

    async def _probe(self, program: str, kind: ViewKind) -> str | None:
        """Return why a command cannot be started or confined in this kind of view, as a clause, or `None` if it can."""
        # The probe tries to create a file in the home folder, which the view must prevent. If the home folder is under
        # /tmp, which every command may write to, it tries that in /etc instead.
        outside = self._site.home if not contains(TEMPORARY, self._site.home) else ETC
        view = CommandView(Engine.BUBBLEWRAP, kind, Network.OWN_LOOPBACK)
        site = replace(self._site, hidden=(), writable=())

        def make() -> Probe:
            return Probe.create_in(self._folders.make("probe"), kind.value, own=TEMPORARY, outside=outside)

        def confine(probe: Probe) -> SandboxedCommand:
            spec = ProcessSpec(probe.argv, probe.root, {})
            return self._sandboxed(program, spec, [probe.root], view, site=site)

        return await failure_of(self._starter, make, confine)


def find_bubblewrap(search_path: str, roots: Sequence[str]) -> str | None:
    """Return the path of a bubblewrap outside all roots: in its usual folder, or else on the search path."""
    return find_program("bwrap", f"{USUAL_FOLDER}{os.pathsep}{search_path}", roots)
