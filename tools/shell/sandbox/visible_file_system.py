"""Prepares the view of this machine for a command in the sandbox, and the protection of parts of the workspace."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from tools.contract.command_views import NO_RESTRICTIONS, SYSTEM, CommandView, FileRestrictions, ViewKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.path_opener import open_folder, open_link_free
from tools.files.workspace import contains, is_inside, outermost, resolve_links
from tools.shell import private_folders
from tools.shell.private_folders import (
    SCRATCH,
    SCRATCH_OF_PLAN,
    empty_if_large,
    make_mount_point,
    make_open_folder,
    move_entries,
    remove_tree,
)
from tools.shell.process_spec import SandboxChanges
from tools.shell.resource_limits import is_root
from tools.shell.sandbox.auto_run_guard import AutoRunPaths, AutoRunScanner, AutoRunState
from tools.shell.sandbox.credential_masks import HiddenPaths, secret_places
from tools.shell.sandbox.mount_check import ExpectedMount, MountTable
from tools.shell.sandbox.reading_view import (
    OPEN_TO_ALL,
    RUNNING_SYSTEM,
    TEMPORARY,
    WORK,
    links_of_programs,
    links_to,
    private_paths_in_etc,
    reading_view_paths,
)
from tools.text.file_names import shown_whole_path

# Folders where programs leave sockets and files for other programs. Each client has its own `/tmp` during its session,
# and its own `/var/tmp` for commands that may write. Read-only commands do not share `/var/tmp`, because their files
# must not be mistaken for other commands' temporary files and caches. `/dev/shm` is part of the private `/dev`.
PRIVATE = (*OPEN_TO_ALL, "/run", "/var/run")
PRIVATE_BYTES = 2 * 1024**3  # size of each in-memory file system; a client's `/tmp` is emptied if it is larger
# Maximum number of mounts for each kind of path to protect (folders above hidden paths, repositories, other paths) in
# all workspaces, including mounts for the folders that lead to these paths. Paths nearest to the top come first. The
# more mounts there are, the longer bubblewrap takes for each one.
MAX_PROTECTIVE_MOUNTS = 200
_NO_WORKSPACES = "/ /boot /dev /home /proc /root /srv /sys /var /var/lib /Users"
# The machine's folders that no sandbox makes writable
SYSTEM_ROOTS = frozenset((*SYSTEM, *PRIVATE, *_NO_WORKSPACES.split()))
# Caches of programs that need a writable cache. They are private, because other programs would run what a command
# leaves in the real caches. The real caches can still be read, for example for packages that were already downloaded.
# npm's logs are not in its cache, so that the file tools can find them.
CACHES = {"XDG_CACHE_HOME": ".cache", "npm_config_cache": ".cache/npm", "npm_config_logs_dir": "npm-logs"}
_CACHES_IN_TMP = frozenset(f"{TEMPORARY}/{folder.split('/')[0]}" for folder in CACHES.values())
# Private folders below the cache for what build programs download and then use in place, keyed by variable
DOWNLOADS = {"GOPATH": "go", "GOMODCACHE": "go/pkg/mod", "CARGO_HOME": "cargo", "GRADLE_USER_HOME": "gradle"}
CACHE = f"{WORK}/.cache"  # where commands see the client's persistent cache
_LEADING_NOWHERE = """
XDG_RUNTIME_DIR DISPLAY WAYLAND_DISPLAY XAUTHORITY DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK SSH_AGENT_PID
"""
# Without the network, package managers must not retry for a minute. Pip names the cause only when it retries.
_FEW_RETRIES = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "1", "CARGO_NET_RETRY": "0", "UV_HTTP_RETRIES": "0"}
UNREACHABLE = _LEADING_NOWHERE.split()  # environment variables that refer to something unavailable in the sandbox


@dataclass(frozen=True, slots=True)
class Site:
    """Facts about this machine and server that affect every command."""

    home: str
    # Further paths to hide: the server's state and settings. If a command creates one in a root, it is moved out
    hidden: tuple[str, ...] = ()
    # Further paths to protect in a root: the server's settings. If a command creates one, it is moved out
    read_only: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()  # files and folders to show completely, even if they are known locations of secrets
    writable: tuple[str, ...] = ()  # auto-run files and folders in the roots that may be changed
    temporary_bytes: int = PRIVATE_BYTES  # allowed size of a client's `/tmp` after a command
    keeps_tmp: bool = True  # whether a client's `/tmp` outlives a command


@dataclass(frozen=True, slots=True)
class View:
    """The parts of the machine that a command sees. All paths are real and absolute."""

    roots: tuple[str, ...] = ()  # folders that the command may write to
    writable: tuple[str, ...] = ()  # files outside the roots that the command may write to
    is_whole: bool = True  # whether everything is visible by default; if not, nothing is
    links: Mapping[str, str] = field(default_factory=dict[str, str])  # in a partial view: symlinks to visible paths
    empty: tuple[str, ...] = ()  # in a partial view: folders that exist, but are empty
    private: tuple[str, ...] = ()  # private folders; those not in `lasting` start empty and are removed afterwards
    lasting: Mapping[str, str] = field(default_factory=dict[str, str])  # the client's folders, keyed by visible path
    seen: tuple[str, ...] = ()  # paths visible inside a private folder, or in a partial view
    hidden_folders: tuple[str, ...] = ()  # folders shown empty, where nothing can be created
    hidden_files: tuple[str, ...] = ()  # files that cannot be opened
    settings: Mapping[str, str] = field(default_factory=dict[str, str])  # files, each with the empty file shown instead
    exempt: tuple[str, ...] = ()  # paths visible inside a hidden folder
    masked: Mapping[str, str] = field(default_factory=dict[str, str])  # masked paths, each with its replacement
    pinned: tuple[str, ...] = ()  # writable paths that cannot be renamed or removed; none is in a read-only folder
    read_only: tuple[str, ...] = ()  # protected files and folders in the roots
    has_own_network: bool = True  # whether the command has a new network namespace, not the host's or the session's

    def expected(self) -> tuple[ExpectedMount, ...]:
        """Return the required mounts: all writable, pinned, read-only or masked paths, and all of a partial view."""
        table = MountTable()
        return (
            *(table.bound_first(path) for path in (*self.roots, *self.writable)),
            *(table.bound_first(path, is_read_only=True) for path in self.seen if not self.is_whole),
            *(table.bound(path) for path in self.pinned),
            *(table.bound(path, is_read_only=True) for path in self.read_only),
            *(table.bound_first(source, path, is_read_only=True) for path, source in self.masked.items()),
        )


@dataclass(frozen=True, slots=True)
class PreparedView:
    """A view, and what to check after the command."""

    view: View
    auto_run: AutoRunState  # the auto-run files before the command
    uncovered: int  # number of auto-run paths, not counting symlinks, that the view does not protect
    temporary_bytes: int  # allowed size of the client's `/tmp`
    alone: str | None = None  # a folder that is `/tmp` only for this command, removed afterwards
    scratch: str | None = None  # the client's `/tmp`, if the contents of `alone` are moved there
    mount_points: tuple[str, ...] = ()  # empty files in the client's folders that are mount points for bubblewrap
    restrictions: FileRestrictions = NO_RESTRICTIONS  # what file rules denied to the command at the time of the check

    def folder(self, path: str) -> str:
        """Return the working directory as a path in the view."""
        for visible_path, folder in self.view.lasting.items():
            if contains(folder, path):
                return os.path.join(visible_path, os.path.relpath(path, folder)).removesuffix("/.")
        return path

    def settle(self) -> SandboxChanges:
        """Move new auto-run files out of the workspace, and report changes. Called after the command. Blocking."""
        changes = replace(self.auto_run.settle(), uncovered=self.uncovered)
        for path in self.mount_points:
            with suppress(OSError), open_folder(os.path.dirname(path), to_list=False) as handle:
                os.unlink(os.path.basename(path), dir_fd=handle.descriptor)
        client_folders = (folder for visible_path, folder in self.view.lasting.items() if visible_path != CACHE)
        lasting = [folder for folder in client_folders if self.alone is None or not contains(self.alone, folder)]
        if self.scratch is not None and self.alone is not None:
            try:
                move_entries(self.view.lasting[TEMPORARY], self.scratch)
            finally:
                remove_tree(self.alone)
            lasting.append(self.scratch)
        counts = [empty_if_large(folder, self.temporary_bytes) for folder in lasting]
        size, count = (sum(numbers) for numbers in zip((0, 0), *counts, strict=True))
        changes = replace(changes, temporary_bytes=size, temporary_files=count)
        if self.alone is None or self.scratch is not None:
            return changes
        folder = self.view.lasting[TEMPORARY]
        mounted_paths = (*self.view.roots, *self.view.writable, *self.view.seen)
        tmp_mount_points = [folder + path[len(TEMPORARY) :] for path in mounted_paths if contains(TEMPORARY, path)]
        leftovers: list[str] = []
        for parent in sorted({os.path.dirname(mount_point) for mount_point in tmp_mount_points} | {folder}):
            with suppress(OSError), open_folder(parent) as handle:
                entries = (os.path.join(parent, name) for name in sorted(handle.names()))
                leftovers += (
                    entry
                    for entry in entries
                    if not any(contains(entry, mount_point) for mount_point in tmp_mount_points)
                )
        remove_tree(self.alone)
        paths = (TEMPORARY + path[len(folder) :] for path in leftovers)
        return replace(changes, not_lasting=tuple(path for path in paths if path not in _CACHES_IN_TMP))


class StandIns(NamedTuple):
    """The server's replacements for masked paths."""

    file: str  # a file that cannot be opened
    folder: str  # a folder that cannot be opened
    settings: str  # an empty file that everybody can read


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPreparation:
    site: Site
    scanner: AutoRunScanner
    roots: Sequence[str]
    command_view: CommandView
    hidden_paths: HiddenPaths  # result of `secrets_of`
    stand_ins: Callable[[], StandIns]  # returns the stand-ins, and creates those that are missing
    search_path: str = ""  # the `PATH` of the command
    private_folder: Callable[[], str] | None = None
    cache: str | None = None  # the client's persistent cache
    has_own_network: bool = True

    @property
    def is_reading(self) -> bool:
        return self.command_view.kind is ViewKind.READING

    def prepare(self) -> PreparedView:
        """Prepare the view. Raises a `ToolError` if a path cannot be shown or protected as required."""
        hidden_paths, stand_ins = self.hidden_paths, self.stand_ins
        workspace = writable(self.roots)
        restrictions = self.command_view.current_restrictions()
        # Folders for which consent was given are treated like workspace folders, including their auto-run files.
        consented_folders, files = _writable_by_consent(self.site, self.command_view, workspace)
        present = writable((*(() if self.is_reading else workspace), *consented_folders))
        _check(self.command_view.seen, (*workspace, *present), restrictions.masked)
        # No file can be guarded in a folder that cannot be listed.
        listable = (root for root in present if os.access(root, os.R_OK | os.X_OK))
        present = tuple(root for root in listable if not is_inside(root, restrictions.read_only))
        files = [path for path in files if not is_inside(path, (*present, *restrictions.read_only))]
        view = View(roots=present, writable=tuple(files), has_own_network=self.has_own_network)
        view = self._with_machine(view, workspace, restrictions.masked)
        is_visible = partial(_is_visible, view, hidden_paths)

        replacements: dict[str, str] = {}
        for path in _by_depth(restrictions.masked):
            if is_visible(path) and not is_inside(path, replacements):
                replacements[path] = stand_ins().folder if os.path.isdir(path) else stand_ins().file
        in_etc = private_paths_in_etc() if self.is_reading else ()
        folders_to_hide = dict.fromkeys((*hidden_paths.folders, *filter(os.path.isdir, in_etc)))
        hidden_folders = tuple(path for path in folders_to_hide if path not in present and is_visible(path))
        files_to_hide = dict.fromkeys((*hidden_paths.files, *(path for path in in_etc if path not in folders_to_hide)))
        hidden_files = tuple(filter(is_visible, files_to_hide))
        settings = (path for path in filter(is_visible, hidden_paths.settings) if not is_inside(path, replacements))
        shown_settings = {path: stand_ins().settings for path in settings}

        # Scan before creating any folder: a scan may fail, and then nothing would remove the folder.
        scans = [self.scanner.scan(root) for root in present]
        lasting, alone, scratch = self._lasting(workspace)
        # The server's folders may be in the workspace, so record the state of the workspace only once they exist.
        auto_run, pinned, read_only, uncovered = self._protected(present, scans, restrictions)
        view = replace(
            view,
            lasting=lasting,
            private=(*view.private, CACHE) if CACHE in lasting else view.private,
            hidden_folders=hidden_folders,
            hidden_files=hidden_files,
            settings=shown_settings,
            exempt=tuple(path for path in hidden_paths.exempt if is_inside(path, hidden_folders)),
            masked=replacements,
            # Read-only paths, and paths inside read-only folders, cannot be renamed anyway.
            pinned=tuple(path for path in pinned if not is_inside(path, (*read_only, *replacements))),
            read_only=tuple(path for path in read_only if not is_inside(path, replacements)),
        )
        mount_points = tuple(_create_mount_points(lasting, (*present, *files, *view.seen, *view.settings)))
        return PreparedView(
            view, auto_run, uncovered, self.site.temporary_bytes, alone, scratch, mount_points, restrictions
        )

    def _with_machine(self, view: View, workspace: Sequence[str], masked_paths: Sequence[str]) -> View:
        """Add what the command sees of the machine: some parts, or everything except private folders."""
        site, command_view, hidden_paths = self.site, self.command_view, self.hidden_paths
        required_paths = (
            *_except_server_paths(site, (*site.readable, *command_view.seen)),
            *command_view.outputs,
            "/etc/resolv.conf",
        )
        excluded = (*view.roots, *masked_paths)  # writable roots are mounted separately, and masked paths are replaced
        if self.is_reading and os.sep not in command_view.seen:
            parts = reading_view_paths(
                site.home,
                self.search_path,
                workspace,
                hidden_paths.all,
                required_paths,
                with_repository=command_view.is_git,
            )
            always_visible = {*map(resolve_links, required_paths)}  # visible even inside a hidden folder
            candidates = (
                *workspace,
                *(path for path in parts if path in always_visible or not is_inside(path, hidden_paths.folders)),
            )
            parts = tuple(outermost(path for path in candidates if not is_inside(path, excluded)))
            visible = (*parts, *view.roots)
            approved_paths = (
                path for path in command_view.spelled if is_inside(resolve_links(path), (*visible, *view.writable))
            )
            paths_as_written = (
                *links_of_programs(site.home, self.search_path, workspace),
                *RUNNING_SYSTEM,
                *required_paths,
                *approved_paths,
            )
            private = OPEN_TO_ALL[: 1 + any(contains(TEMPORARY, root) for root in workspace)]
            private_places = (*private, "/proc", "/dev")
            home = resolve_links(site.home)
            return replace(
                view,
                is_whole=False,
                seen=parts,
                private=private,
                links={
                    path: target
                    for path, target in links_to(paths_as_written, visible).items()
                    if not is_inside(path, private_places)
                },
                empty=() if is_inside(home, visible) else (home,),
            )
        private = tuple(dict.fromkeys(resolve_links(path) for path in PRIVATE if os.path.isdir(path)))
        needed_paths = map(resolve_links, (*required_paths, site.home, "/etc/localtime", *RUNNING_SYSTEM))
        visible = (
            path
            for path in dict.fromkeys((*needed_paths, *workspace))
            if is_inside(path, private)
            and path not in private
            and not is_inside(path, excluded)
            and os.path.lexists(path)
        )
        return replace(view, private=private, seen=tuple(visible))

    def _protected(
        self, present: Sequence[str], scans: Sequence[AutoRunPaths], restrictions: FileRestrictions
    ) -> tuple[AutoRunState, tuple[str, ...], tuple[str, ...], int]:
        """Decide what keeps auto-run files and denied paths from being changed or moved.

        `present` are the root folders in the view, and `scans` the auto-run files in each of them. Returns the auto-run
        files before the command, the pinned paths, the read-only paths, and the number of unprotected auto-run paths.
        """
        site, scanner, command_view, hidden_paths = self.site, self.scanner, self.command_view, self.hidden_paths
        # Create the missing hooks folders of repositories, because a missing folder cannot be protected.
        for scan in scans:
            for repository in scan.pinned:
                hooks = os.path.join(repository, "hooks")
                with suppress(OSError):
                    if os.path.isfile(os.path.join(repository, "HEAD")) and not os.path.lexists(hooks):
                        os.mkdir(hooks)
                        scan.paths.add(hooks)
                        scan.read_only.append(hooks)
        auto_run_paths = {path for scan in scans for path in scan.paths}
        # A hook that a running job created must not run in a command that can write git's settings.
        is_git = command_view.is_git and not self.is_reading and scanner.are_repositories_settled(scans)
        unlistable = {path for scan in scans for path in scan.unlistable}
        server_paths = [
            path
            for server_path in (*site.read_only, *site.hidden)
            for path in dict.fromkeys(
                (
                    resolve_links(server_path),
                    os.path.join(resolve_links(os.path.dirname(server_path)), os.path.basename(server_path)),
                )
            )
            if is_inside(path, present)
        ]
        # Permission to change auto-run files cannot cover a whole root.
        changeable_names = (os.path.expanduser(path) for path in (*command_view.writable, *site.writable))
        paths = (os.path.normpath(os.path.join(root, path)) for path in changeable_names for root in present)
        changeable = tuple(path for path in paths if not any(contains(path, root) for root in present))
        free = present if is_git else changeable
        # If a file may be changed, its folder must be writable too, because some programs write a new file and rename
        # it.
        paths_to_protect = (
            path
            for path in _by_depth((*unlistable, *(path for scan in scans for path in scan.read_only)))
            if not any(
                contains(path, free_path) or contains(free_path, path)
                for free_path in (changeable if path in unlistable else free)
            )
        )
        repositories = _by_depth(path for scan in scans for path in scan.pinned if not is_inside(path, free))
        auto_run_pinned, auto_run_read_only, uncovered = _protective_mounts(
            present,
            hidden_paths.all,
            repositories,
            (*(path for path in server_paths if not is_inside(path, changeable)), *paths_to_protect),
        )
        # A path that is mounted inside a hidden folder would become visible.
        excluded = (*(path for path in hidden_paths.all if is_inside(path, present)), *restrictions.masked)

        def is_open(path: str) -> bool:
            is_shown = is_inside(path, present) and not is_inside(path, excluded)
            return is_shown and os.path.exists(path) and resolve_links(path) == path

        read_only = _by_depth({*auto_run_read_only, *filter(is_open, restrictions.read_only)})
        pinned = _by_depth({*auto_run_pinned, *filter(is_open, restrictions.pinned)} - {*present})
        state = AutoRunState(
            scanner,
            present,
            {*server_paths, *auto_run_paths},
            unlistable,
            changeable,
            is_known=self.private_folder is not None,
            is_git=is_git,
        )
        return state, pinned, read_only, uncovered

    def _lasting(self, workspace: Sequence[str]) -> tuple[dict[str, str], str | None, str | None]:
        """Return the client's folders, keyed by their path in the view, and `PreparedView.alone` and `scratch`.

        Programs look for settings in every folder above their working directory. If the workspace is in `/tmp`, the
        command therefore gets a `/tmp` that is deleted afterwards, and temporary files go to `/var/tmp`. Such a `/tmp`
        is also used if `Site.keeps_tmp` is false. A command that a rule allows, or that only reads but has network
        access, gets a new `/tmp`, because the client's `/tmp` may contain files that nobody was asked about. After the
        command, the new files move to the client's `/tmp`.
        """
        if self.private_folder is None:
            return {}, None, None
        is_below = any(contains(TEMPORARY, root) for root in workspace)
        is_alone = is_below or not self.site.keeps_tmp
        folder, alone, scratch = self.private_folder(), None, None
        temporary = os.path.join(folder, SCRATCH_OF_PLAN if self.command_view.is_plan else SCRATCH)
        if self.command_view.has_new_tmp and not is_alone:
            scratch = temporary
            make_open_folder(scratch)
            alone = tempfile.mkdtemp(prefix="new-", dir=folder)
            temporary = os.path.join(alone, "tmp")
        work = None if self.is_reading else os.path.join(folder, private_folders.WORK)
        if is_alone:
            alone = tempfile.mkdtemp(prefix="alone-", dir=folder)
            temporary = os.path.join(alone, "tmp")
            work = work or (os.path.join(alone, "work") if is_below else None)
        lasting = {TEMPORARY: temporary} | ({WORK: work} if work is not None else {})
        for path in lasting.values():
            make_open_folder(path)
        return lasting | ({CACHE: self.cache} if self.cache is not None and not self.is_reading else {}), alone, scratch


def _check(visible_paths: Iterable[str], folders: Iterable[str], masked_paths: Collection[str]) -> None:
    """Refuse to mask a folder that the command needs, or to show a path that became a symlink after its approval."""
    for place in (place for folder in folders for place in masked_paths if contains(place, folder)):
        raise _not_run(
            f"'{shown_whole_path(place)}' is hidden from commands by a rule, and it contains the workspace or a folder "
            "that the command may change. Ask the user."
        )
    for path in visible_paths:
        if resolve_links(path) != path:
            raise _not_run(
                f"'{shown_whole_path(path)}', or a folder above it, has become a symlink since it was approved. Check "
                "it, then try again."
            )


def _not_run(reason: str) -> ToolError:
    return ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, f"The command was not run: {reason}")


def _is_visible(view: View, hidden_paths: HiddenPaths, path: str) -> bool:
    """Return True if a path would be visible if it were not hidden itself. The nearest folder above it decides."""
    nearest = _nearest(path, (*view.seen, *view.roots, *view.writable, *hidden_paths.exempt))
    if nearest < 0 and (not view.is_whole or is_inside(path, view.private)):
        return False
    return max(nearest, 0) >= _nearest(path, (folder for folder in hidden_paths.folders if folder != path))


def _nearest(path: str, folders: Iterable[str]) -> int:
    """Return the length of the longest of these folders that contains a path, or -1 if none does."""
    return max((len(folder) for folder in folders if contains(folder, path)), default=-1)


def _create_mount_points(lasting: Mapping[str, str], mounted_paths: Iterable[str]) -> Iterator[str]:
    """Create the mount points in the client's folders. Yield the paths of the empty files created for this."""
    for visible_folder, folder in lasting.items():
        for path in mounted_paths:
            if contains(visible_folder, path) and path != visible_folder and os.path.lexists(path):
                relative_path = os.path.relpath(path, visible_folder)
                with suppress(OSError):  # if this fails, the mount is missing and the command is refused
                    if make_mount_point(folder, relative_path.split(os.sep), is_file=not os.path.isdir(path)):
                        yield os.path.join(folder, relative_path)
    if CACHE in lasting:
        make_mount_point(lasting[WORK], [os.path.basename(CACHE)], is_file=False)


def secrets_of(site: Site, workspace: Sequence[str], command_view: CommandView) -> HiddenPaths:
    """Return what is hidden from a command: all secrets except those that a question has named. Blocking."""
    roots = (*workspace, *(path for path in command_view.writable if not is_inside(path, workspace)))
    readable = (*site.readable, *command_view.outputs)
    hidden_paths = secret_places(site.home, site.hidden, readable, roots)
    # If a question names a folder that merely contains secrets, these stay hidden.
    approved_paths = [
        path
        for path in _except_server_paths(site, (*command_view.seen, *command_view.writable))
        if is_inside(path, hidden_paths.all)
    ]
    if not approved_paths:
        return hidden_paths
    return secret_places(site.home, site.hidden, (*readable, *approved_paths), roots)


def _except_server_paths(site: Site, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the given paths, except the server's own, to which no question or setting can give access."""
    own = tuple(map(resolve_links, site.hidden))
    return tuple(path for path in paths if not is_inside(resolve_links(path), own))


def _writable_by_consent(
    site: Site, command_view: CommandView, workspace: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the folders and files outside the writable workspace for which consent to write was given.

    A missing folder is created empty, which exposes nothing else. A missing file in the workspace is created, as a
    shell redirection would do. Elsewhere, a missing file is refused, because creating it would need access to its
    folder.
    """
    folders: list[str] = []
    files: list[str] = []
    for approved_path in command_view.writable:
        path = approved_path.rstrip("/") or "/"
        lies_inside = is_inside(path, workspace)
        if not os.path.isabs(path) or (lies_inside and command_view.kind is not ViewKind.READING):
            continue
        display_path, display_folder = shown_whole_path(path), shown_whole_path(os.path.dirname(path))
        try:
            if not os.path.lexists(path):
                if lies_inside:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
                    os.close(open_link_free(path, flags, 0o666))
                elif approved_path.endswith("/"):
                    os.mkdir(path)
                else:
                    raise _not_run(
                        f"'{display_path}' does not exist, and a command can get access only to existing files. Name "
                        f"the folder '{display_folder}'."
                    )
            mode = os.stat(path, follow_symlinks=False).st_mode
        except FileNotFoundError:
            raise _not_run(f"the folder '{display_folder}' does not exist; create it first.") from None
        except OSError as error:
            raise _not_run(
                f"'{display_path}' cannot be made writable for the command ({os.strerror(error.errno or 0)})."
            ) from None
        if resolve_links(path) != path or path in SYSTEM_ROOTS or is_inside(path, map(resolve_links, site.hidden)):
            raise _not_run(
                f"'{display_path}' is never made writable for a command: it is a system folder, belongs to this "
                "server, or is a symlink."
            )
        if stat.S_ISDIR(mode):
            folders.append(path)
        elif stat.S_ISREG(mode):
            files.append(path)
    return folders, files


def too_broad(roots: Sequence[str]) -> str | None:
    """Return the first root that is too broad for a sandbox, or `None`."""
    return next((root for root in roots if (root.rstrip("/") or "/") in SYSTEM_ROOTS), None)


def writable(roots: Sequence[str]) -> tuple[str, ...]:
    """Return the existing roots, except nested ones, which are writable anyway and which a command could replace.

    Roots are real paths. They are not resolved again, because another command may have replaced one with a symlink.
    """
    present = (root for root in roots if os.path.isdir(root) and resolve_links(root) == os.path.normpath(root))
    return _by_depth(outermost(present))


def foreign_owner(roots: Sequence[str]) -> int | None:
    """Return the id of a user other than root who owns a workspace folder; `None` if there is none. Blocking.

    Also `None` unless commands run as root. In the sandbox, they lack root's rights to such files.
    """
    with suppress(OSError):
        return next((owner for root in roots if is_root() and (owner := os.stat(root).st_uid) != 0), None)
    return None


def depth(path: str) -> int:
    return path.rstrip("/").count("/")


def private_downloads(environment: Mapping[str, str], cache: str, *, is_online: bool) -> list[str]:
    """Return the variables in `DOWNLOADS` that lead to private folders below `cache`. Blocking.

    A command without network access uses the user's own downloads, which are read-only, until a command with network
    access has created private ones.
    """
    home = environment.get("HOME", "")
    go = environment.get("GOPATH", "").split(os.pathsep)[0] or f"{home}/go"
    users = {  # without GOPATH, where commands look for the user's programs
        "GOMODCACHE": environment.get("GOMODCACHE") or f"{go}/pkg/mod",
        "CARGO_HOME": f"{environment.get('CARGO_HOME') or f'{home}/.cargo'}/registry",
        "GRADLE_USER_HOME": "",  # Gradle cannot use a read-only folder
    }
    unused = {
        name for name, path in users.items() if os.path.isdir(path) and not os.path.isdir(f"{cache}/{DOWNLOADS[name]}")
    }
    return [name for name in DOWNLOADS if is_online or (name in users and name not in unused)]


def sandbox_environment(
    environment: Mapping[str, str],
    roots: Sequence[str],
    kind: ViewKind,
    downloads: Iterable[str] = (),
    *,
    is_online: bool = True,
) -> dict[str, str]:
    is_reading = kind is ViewKind.READING
    variables = {name: value for name, value in environment.items() if name not in UNREACHABLE}
    temporary = WORK if not is_reading or any(contains(TEMPORARY, root) for root in roots) else TEMPORARY
    # Workspace folders that the command can change; variables that name paths in them are kept
    writable_folders = () if is_reading else roots
    for name in ("TMPDIR", *(variable for variable in ("TMP", "TEMP") if variable in variables)):
        if not is_inside(variables.get(name, ""), writable_folders):
            variables[name] = temporary
    for name, folder in (CACHES | {name: f".cache/{DOWNLOADS[name]}" for name in downloads}).items():
        if not is_inside(variables.get(name, ""), writable_folders):
            variables[name] = f"{temporary}/{folder}"
    # A read-only command could plant settings in a home folder that is writable in every view.
    if resolve_links(variables.get("HOME", "")) in OPEN_TO_ALL:
        variables["HOME"] = f"{temporary}/home"
    ceilings = filter(None, (variables.get("GIT_CEILING_DIRECTORIES"), TEMPORARY))
    variables["GIT_CEILING_DIRECTORIES"] = os.pathsep.join(ceilings)
    if is_reading:
        variables["GIT_OPTIONAL_LOCKS"] = "0"  # keeps git from updating the index in commands such as `git status`
    return variables if is_online else with_few_retries(variables)


def with_few_retries(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command without network access. The number of retries is kept where it is set."""
    present = {name.upper() for name in environment}  # npm's variables may be in upper case
    return {**environment, **{name: value for name, value in _FEW_RETRIES.items() if name.upper() not in present}}


def _by_depth(paths: Iterable[str]) -> tuple[str, ...]:
    """Sort paths by depth, so that no mount covers an earlier one."""
    return tuple(sorted(paths, key=depth))


def _protective_mounts(
    roots: Sequence[str], hidden_paths: Sequence[str], repositories: Iterable[str], paths_to_protect: Iterable[str]
) -> tuple[Iterable[str], Iterable[str], int]:
    """Return the mounts that protect auto-run files: pinned paths and read-only paths. Also count unprotected paths.

    A mount point cannot be renamed. But a folder that contains one can be renamed together with the mount, and
    something else could take its place. Every folder between the root and a protected path is therefore mounted onto
    itself too. Most protected paths are at the top of a root and need no such mounts. Missing paths and symlinks are
    skipped and not counted.
    """

    def is_seen(path: str) -> bool:
        # A path is seen if it is inside a root, and no hidden folder that contains it is nearer than the nearest such
        # root. A path outside all roots is already read-only or hidden. If a symlink in a workspace leads to a hidden
        # path, mounting that path would make it visible.
        nearest = _nearest(path, (root for root in roots if path != root))
        return nearest >= 0 and nearest >= _nearest(path, hidden_paths)

    def folders_above(path: str) -> Iterator[str]:
        folder = os.path.dirname(path)
        while any(contains(root, folder) and root != folder for root in roots):
            if is_seen(folder):
                yield folder
            folder = os.path.dirname(folder)

    pinned: dict[str, None] = {}
    read_only: dict[str, None] = {}
    uncovered = 0
    parents = (folder for path in hidden_paths for folder in folders_above(path))
    for paths, kind in ((parents, pinned), (repositories, pinned), (paths_to_protect, read_only)):
        mount_count = 0
        for path in filter(is_seen, dict.fromkeys(paths)):
            if path in kind or os.path.islink(path) or not os.path.lexists(path):
                continue
            new_pins = [folder for folder in folders_above(path) if folder not in pinned and folder not in read_only]
            if mount_count + len(new_pins) + 1 > MAX_PROTECTIVE_MOUNTS:
                uncovered += 1
                continue
            mount_count += len(new_pins) + 1
            pinned |= dict.fromkeys(new_pins)
            kind[path] = None
    return pinned, read_only, uncovered
