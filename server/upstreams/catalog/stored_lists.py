"""Stores the lists of servers in the user's state folder, to answer the first list request of the next run.

Each server has one file, named after a hash of its entry. The file's content is treated like a response from the
server, with the same checks and limits. If the file is unusable, the server's items appear only once the server
responds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from server.protocol.json_rpc import Json, as_mapping
from server.protocol.request_table import our_name
from server.protocol.revisions import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from server.settings import UpstreamSettings
from server.settings.load import working_folder
from server.settings.settings_files import read_stored
from server.upstreams.session.list_reader import KINDS
from server.upstreams.session.protocol_era import Era
from server.upstreams.wire.origin_meta import chain_of, remove_own_keys
from tools.contract.tool_errors import ExhaustedError
from tools.files.change.writer import replace_private_file
from tools.files.path_opener import Folder, is_ours, open_private_folder
from tools.machine.threads import THREADS
from tools.text.secrets import RANDOM, is_secret_name, without_userinfo

logger = logging.getLogger(__name__)

FOLDER = "lists"  # in the user's state folder
MAX_BYTES = 2 << 20  # maximum size of a server's file; five hundred tools take less than half a megabyte
MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 1_000
MAX_DAYS = 30  # the age after which a file is removed

NEVER_LISTED = ""  # stored instead of a revision if the server was too slow for the first list
# How long `NEVER_LISTED` is valid: not long, because the server may have been slow only while it was being installed
NEVER_LISTED_SECONDS = 3_600

_SUFFIX = ".json"
_VERSIONS = frozenset((NEVER_LISTED, *HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))


@dataclass(frozen=True, slots=True)
class LastRun:
    """Answers list requests with a server's lists from the last run."""

    lists: Mapping[str, Any]
    era: Era
    alias: str = ""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        return logging.LoggerAdapter(logger, {"upstream": self.alias})

    async def request(self, method: str, params: Json) -> Json:
        """Return a list as a single page."""
        del params
        page = {kind.field: self.lists.get(kind.field) for kind in KINDS if kind.method == method}
        remove_own_keys(page, is_list=True)
        return page


def program_and_address(entry: UpstreamSettings) -> tuple[str | None, list[str], str]:
    """Return the command, arguments and address of an entry with unexpanded variables, without likely secrets."""
    args: list[str] = []
    previous_arg = ""
    for arg in entry.args:
        name, equals, _ = arg.partition("=")
        is_secret = (equals and is_secret_name(name)) or (previous_arg.startswith("-") and is_secret_name(previous_arg))
        args.append(name if is_secret and equals else "" if is_secret else RANDOM.sub("", arg))
        previous_arg = "" if equals else arg
    address = without_userinfo(entry.endpoint or "").partition("?")[0].partition("#")[0]
    return (entry.command, args, "") if entry.endpoint is None else (None, [], RANDOM.sub("", address))


def key_of(entry: UpstreamSettings) -> str:
    """Hash what determines a server's lists: how it is reached, its entry as written, and this program's version.

    The entry has unexpanded variables. Values of variables and headers are not hashed, nor are likely secrets, because
    a hash allows guesses to be tested. If two servers differ only in such values, either may be listed with the other's
    items until it responds. Likewise, if a server's lists depend on the client, one client may get another's lists.
    """
    command, args, address = program_and_address(entry)
    program = [command, args, entry.cwd, working_folder()] if entry.endpoint is None else []
    names = [sorted(entry.env), sorted(entry.inherit_env), sorted(map(str.lower, entry.headers))]
    key_parts = [entry.transport, *program, address, names, our_name()["version"]]
    return hashlib.sha256(json.dumps(key_parts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _ListFile:
    key: str
    version: str
    lists: dict[str, list[Any]]


class StoredLists:
    """The files with stored lists, in a folder that is created with the first file."""

    def __init__(self, state_folder: str) -> None:
        self._folder = os.path.join(state_folder, FOLDER)
        self._digests: dict[str, bytes] = {}  # digests of the files' contents, by key
        self._has_warned = False

    async def read(self, keys: Iterable[str]) -> dict[str, LastRun]:
        try:
            return await THREADS.run(partial(self._read_all, list(keys)))
        except (ExhaustedError, RuntimeError):
            return {}

    async def write(self, key: str, version: str, lists: Mapping[str, Sequence[Json]]) -> None:
        """Store the lists of a server for this protocol revision. Failures are only logged."""
        with suppress(ExhaustedError, RuntimeError):
            await THREADS.run(partial(self._write, key, version, dict(lists)))

    def _read_all(self, keys: Sequence[str]) -> dict[str, LastRun]:
        last_runs: dict[str, LastRun] = {}
        try:
            with open_private_folder(self._folder, makes=False) as folder:
                for key in keys:
                    try:
                        last_runs[key] = _read(folder, key)
                    except FileNotFoundError:
                        pass
                    except (OSError, ValueError) as error:
                        reason = error.strerror if isinstance(error, OSError) else str(error)
                        logger.warning("the lists of a server from the last run cannot be used (%s): %s", reason, key)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("the lists of servers from the last run cannot be used (%s)", error.strerror)
        return last_runs

    def _write(self, key: str, version: str, lists: Mapping[str, Sequence[Json]]) -> None:
        try:
            content = _content(key, version, lists)
            digest = hashlib.sha256(content or b"").digest()
            if self._digests.get(key) == digest or (version == NEVER_LISTED and key in self._digests):
                return
            with open_private_folder(self._folder, makes=True) as folder:
                if content is None:
                    with suppress(FileNotFoundError):
                        os.unlink(folder.entry_path(key + _SUFFIX), dir_fd=folder.descriptor)
                else:
                    replace_private_file(folder, key + _SUFFIX, content)
                # Remove expired files, and the oldest ones if there are too many or their total size is too large.
                stats = ((name, folder.stat(name)) for name in folder.names())
                files = [(info.st_mtime, info.st_size, name) for name, info in stats if info is not None]
                oldest_time, remaining_bytes = time.time() - MAX_DAYS * 86_400, MAX_TOTAL_BYTES
                for position, (modified_at, size, name) in enumerate(sorted(files, reverse=True)):
                    remaining_bytes -= size
                    if name.endswith(_SUFFIX) and (
                        modified_at < oldest_time or remaining_bytes < 0 or position >= MAX_FILES
                    ):
                        with suppress(OSError):
                            os.unlink(folder.entry_path(name), dir_fd=folder.descriptor)
            self._digests[key] = digest
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("the lists of servers cannot be stored for the next run (%s)", error.strerror)


def _read(folder: Folder, key: str) -> LastRun:
    """Read one file, but follow no symbolic link.

    Raises `FileNotFoundError` if there is no file or it has expired, and `ValueError` with the reason if the file is
    unusable.
    """
    with folder.open_file(key + _SUFFIX) as file:
        info = file.info
        if not is_ours(info) or (sys.platform != "win32" and stat.S_IMODE(info.st_mode) & 0o022):
            raise ValueError("other users can write to its file")
        if info.st_mtime < time.time() - MAX_DAYS * 86_400:
            raise FileNotFoundError
        content = file.head(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("it is too large")
    try:
        list_file = read_stored(_ListFile, content)
    except ValueError:
        raise ValueError("it is damaged") from None
    if list_file.key != key or list_file.version not in _VERSIONS:
        raise ValueError("it belongs to another entry")
    if list_file.version == NEVER_LISTED and info.st_mtime < time.time() - NEVER_LISTED_SECONDS:
        raise FileNotFoundError
    capabilities: Json = {kind.capability: {} for kind in KINDS if list_file.lists.get(kind.field)}
    return LastRun(
        list_file.lists, Era(list_file.version, capabilities, is_modern=list_file.version in MODERN_PROTOCOL_VERSIONS)
    )


def _content(key: str, version: str, lists: Mapping[str, Sequence[Json]]) -> bytes | None:
    """Return the content of one file; `None` if nothing should be stored.

    Nothing is stored if the content is too large, or if the server is a coretools-mcp server. Such a server stores the
    lists of its upstreams itself, and marks items with an id that is different in each run.
    """
    head = json.dumps({"key": key, "version": version})
    size = len(head)
    parts: list[str] = []
    for kind in KINDS:
        items: list[str] = []
        for item in lists.get(kind.field, ()):
            if chain_of(as_mapping(item.get("_meta"))):
                return None
            items.append(json.dumps(item))  # one by one, because encoding a long list at once would block other threads
            size += len(items[-1]) + 1
            if size > MAX_BYTES - 200:
                return None
        parts.append(f"{json.dumps(kind.field)}: [{','.join(items)}]")
    return f'{head[:-1]}, "lists": {{{", ".join(parts)}}}}}'.encode()
