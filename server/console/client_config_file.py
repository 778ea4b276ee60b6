"""The configuration file of an MCP client, before and after an install or uninstall.

Each change is computed completely before it is shown and written. An unsafe change raises `CommandFailure`. The private
folder of coretools-mcp keeps a record of each install: digests, and a copy of the original file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from server.console import CommandFailure
from server.console.known_clients import MAX_CLIENT_BYTES, ClientConfig, read_document
from server.console.terminal import note
from server.console.user_files import (
    SECTION,
    check_keys,
    check_unchanged,
    keep_private,
    own_names,
    own_ports,
    own_servers,
    replace_content,
    rewrite_file,
)
from server.settings import SettingsError
from server.settings.document_editor import with_entries, with_member, with_table, without_member, without_table
from server.settings.section_model import dotted
from server.settings.settings_files import (
    Tree,
    own_folder,
    parse,
    read_regular,
    read_stored,
    table_at,
    user_file,
    value_at,
)
from server.settings.upstream_entries import alias_of
from tools.contract.display import visible, visible_line


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A client's configuration file, and the name of the coretools-mcp entry in it."""

    key: str  # the client's key in the table of clients
    client: ClientConfig
    path: str
    name: str  # the entry's name
    is_named: bool = False  # whether the user chose the name

    @property
    def place(self) -> tuple[str, ...]:
        return (*self.client.path, self.name)

    def servers(self, content: bytes | None) -> Tree:
        servers: Any = value_at(read_document(content or b"", self.path, self.client.dialect), self.client.path)
        if servers is not None and not isinstance(servers, dict):
            place = dotted(self.client.path)
            raise SettingsError([f"{self.path}: {place} is not an object, so it cannot contain servers."])
        return cast("Tree", servers or {})

    def with_entry(self, content: bytes, name: str, entry: Tree) -> bytes:
        if self.client.dialect == "toml":
            return with_table(content, (*self.client.path, name), entry, self.path)
        return with_member(content, (*self.client.path, name), entry, self.path, MAX_CLIENT_BYTES)

    def without_entry(self, content: bytes, name: str) -> bytes:
        if self.client.dialect == "toml":
            return without_table(content, (*self.client.path, name), self.path)
        return without_member(content, (*self.client.path, name), self.path, MAX_CLIENT_BYTES)


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """How an install changed a file, as needed to revert the install. The content of the file is not included."""

    file: str  # the real path
    name: str
    before: str | None = None  # SHA-256 of the file before the install; `None` if there was no file
    after: str | None = None  # SHA-256 of the file after the install
    backup: str = ""  # the file name of the backup, in the private folder
    is_exact: bool = False  # whether the file differs from the original only by what the install changed
    made_section: bool = False  # whether the install added the list of servers
    folders: tuple[str, ...] = ()  # folders that the install created, deepest first
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """The servers that the install moved to the user's settings, keyed by their names in the client's file.

    Each value is the server's alias in the user's settings, and the SHA-256 of the entry there (empty if the install
    did not add it).
    """

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.name


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A file before and after a change; `None` means no file."""

    path: str
    before: bytes | None
    after: bytes | None
    record: InstallRecord
    entry: Tree = field(default_factory=dict[str, Any])  # the coretools-mcp entry in `after`


def install_change(
    target: ConfigFile, content: bytes | None, entry: Tree, environ: Mapping[str, str], moved: Collection[str] = ()
) -> ConfigChange:
    """Compute the change that adds the coretools-mcp entry to the file and removes the servers in `moved`."""
    client, name, display_path = target.client, target.name, visible_line(target.path)
    old_content = content or b""
    try:
        servers = target.servers(content)
        is_toml = client.dialect == "toml"
        if not is_toml:
            check_keys(old_content, target.place, target.path, MAX_CLIENT_BYTES)
        present: Any = servers.get(name)
        if present is not None and name not in own_names(servers):
            message = f"{client.title} already has another server named {name}, which was left unchanged"
            raise CommandFailure(f"{message}. Choose another name with --name. ({display_path})")
        existing_names = own_names(servers, own_ports(environ))
        if existing_names and present is None and not target.is_named:
            existing_name = visible_line(existing_names[0])
            message = f"{client.title} already has coretools-mcp, as {existing_name}"
            hint = f"Use --name {existing_name} to change that entry, or another name to add one"
            raise CommandFailure(f"{message}. {hint}. ({display_path})")
        if present is not None:  # keys that the user added are kept
            merged_entry: Tree = {**present, **entry}
            for key in ("env", "environment", "env_vars"):
                old, new = present.get(key), entry.get(key)
                if isinstance(old, dict) and isinstance(new, dict):
                    merged_entry[key] = {**cast("Tree", old), **cast("Tree", new)}
                elif isinstance(old, list) and isinstance(new, list):
                    merged_entry[key] = list(dict.fromkeys([*cast("list[Any]", old), *cast("list[Any]", new)]))
            entry = merged_entry
        new_content = old_content if present == entry else target.with_entry(old_content, name, entry)
        for moved_name in moved:
            new_content = target.without_entry(new_content, moved_name)
        is_new = value_at(read_document(old_content, target.path, client.dialect), client.path) is None
        target.servers(new_content)  # raises an error if the client could not read the new file
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed: {visible(str(error))}") from None
    record = InstallRecord(os.path.realpath(target.path), name, _digest(content), _digest(new_content))
    earlier = _find(record, environ) if present is not None else None
    is_exact, is_retry = False, False
    if earlier is not None:
        # If an earlier install was killed after it was recorded but before the file was written, this is a second try.
        is_retry = earlier.after == record.after and earlier.moved.keys() >= set(moved)
        is_exact = earlier.is_exact and (is_retry or earlier.after == record.before)
    if earlier is not None and (is_exact or is_retry or not moved):
        record = replace(earlier, after=record.after, is_exact=is_exact)
    elif earlier is not None and earlier.moved:
        message = f"{display_path} was changed after its servers were moved"
        raise CommandFailure(f"{message}. Undo the install first, with: coretools-mcp uninstall {target.key}")
    else:
        backup = f"{target.key}-{(record.before or '')[:16]}.bak" if content else ""
        makes_section = is_new and not is_toml
        # The missing folders above the file, deepest first
        folders = tuple(takewhile(lambda folder: not os.path.isdir(folder), map(str, Path(record.file).parents)))
        record = replace(record, backup=backup, is_exact=present is None, made_section=makes_section, folders=folders)
    return ConfigChange(target.path, content, new_content, record, entry)


def uninstall_change(target: ConfigFile, content: bytes | None, environ: Mapping[str, str]) -> ConfigChange:
    """Compute the change that removes the coretools-mcp entry from the file.

    If the file is as the install left it, the change restores the original file. Otherwise, only the entry is removed,
    and the moved servers are put back.
    """
    name, display_path = target.name, visible_line(target.path)
    try:
        servers = target.servers(content)
        own_entry_names = own_names(servers)
        record = InstallRecord(os.path.realpath(target.path), name)
        record = _find(record, environ) or record
        if name not in servers and not record.moved:
            hint = f" It is installed as {visible_line(own_entry_names[0])}: use --name." if own_entry_names else ""
            raise CommandFailure(f"there is no server {name} in {display_path}, so nothing was changed.{hint}")
        if name in servers and name not in own_entry_names:
            message = f"the server {name} in {display_path} does not start coretools-mcp, so it was not removed"
            raise CommandFailure(f"{message}. If coretools-mcp has another name there, give that name with --name.")
        backup = b"" if record.before is not None and not record.backup else None  # an empty file has no backup
        if record.backup:
            with suppress(OSError):
                backup = read_regular(backup_file(record, environ), MAX_CLIENT_BYTES)
        if record.is_exact and record.after == _digest(content) and record.before == _digest(backup):
            return ConfigChange(target.path, content, backup, record)
        if record.moved and _digest(backup) != record.before:
            message = "the copy of the original file is missing or damaged, so its servers cannot be put back"
            hint = f"They are in your settings; remove the entry {name} by hand. ({display_path})"
            raise CommandFailure(f"{message}. {hint}")
        # Even if the entry was removed by hand, the moved servers are put back.
        new_content = target.without_entry(content or b"", name) if name in servers else content or b""
        moved_servers = target.servers(backup) if record.moved else {}
        for moved_name in record.moved:
            if moved_name in moved_servers and moved_name not in servers:
                new_content = target.with_entry(new_content, moved_name, moved_servers[moved_name])
        if record.made_section and not target.servers(new_content):
            new_content = without_member(new_content, target.client.path, target.path, MAX_CLIENT_BYTES)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed: {visible(str(error))}") from None
    return ConfigChange(target.path, content, new_content, record)


def write_install(change: ConfigChange, moved_servers: Tree, environ: Mapping[str, str]) -> None:
    """Back up the file, record the install, add the moved servers to the user's settings, and write the file.

    This order ensures that a moved server is always in at least one of the two files, and that a killed command can be
    run again. If a write fails, every change is reverted. `moved_servers` contains the servers in the form of
    coretools-mcp's settings, keyed by their names in the client's file.
    """
    record, own = change.record, user_file(environ) or ""
    earlier = _find(record, environ)
    new_servers: Tree = {}
    if moved_servers:
        own_entries = own_servers(environ)
        earlier_moves: Mapping[str, tuple[str, str]] = earlier.moved if earlier is not None else {}
        entries = {alias_of(name): entry for name, entry in moved_servers.items()}
        new_servers = {alias: entry for alias, entry in entries.items() if alias not in own_entries}
        digests = {alias: _digest_of(entry) for alias, entry in new_servers.items()}
        moves = dict(record.moved)
        for name in moved_servers:
            _, earlier_digest = earlier_moves.get(name, ("", ""))
            moves[name] = (alias_of(name), digests.get(alias_of(name), earlier_digest))
        record = replace(record, moved=moves)
    try:
        if record.backup and change.before is not None and _digest(change.before) == record.before:
            rewrite_file(backup_file(record, environ), lambda _content: change.before or b"")
        _set_record(record, environ, record)
        if new_servers:
            keep_private(own)
            rewrite_file(own, lambda content: with_entries(content, SECTION, new_servers))
        _write(change)
    except CommandFailure:
        with suppress(CommandFailure):
            _set_record(record, environ, earlier)
            if new_servers:
                _remove_servers(own, {alias: _digest_of(entry) for alias, entry in new_servers.items()})
        for folder in record.folders:
            with suppress(OSError):  # the folder is not empty, or was never created
                os.rmdir(folder)
        raise


def write_uninstall(change: ConfigChange, environ: Mapping[str, str]) -> None:
    """Write the file, remove the moved servers from the user's settings, and forget the install and its backup."""
    record = change.record
    _write(change)
    if record.moved:
        digests = {alias: digest for alias, digest in record.moved.values() if digest}
        for other_record in _records(environ):
            # The install for another client may have moved a server with the same alias. If so, the server stays in
            # the settings.
            moves = other_record.moved.items() if other_record.key != record.key else ()
            shared_moves = {name: (alias, digests.pop(alias)) for name, (alias, _) in moves if alias in digests}
            if shared_moves:
                _set_record(other_record, environ, replace(other_record, moved={**other_record.moved, **shared_moves}))
        _remove_servers(user_file(environ) or "", digests)
    for other_record in _records(environ):
        updated_record = other_record
        if other_record.file == record.file and other_record.name != record.name:
            if record.is_exact and other_record.before == record.after:
                # The other entry was added later, so uninstalling it must restore the file from before both entries.
                inherited = {"backup": record.backup, "made_section": record.made_section, "folders": record.folders}
                updated_record = replace(updated_record, before=record.before, **inherited)
            if other_record.after == _digest(change.before):
                updated_record = replace(updated_record, after=_digest(change.after))
        if updated_record != other_record:
            _set_record(other_record, environ, updated_record)
    _set_record(record, environ, None)


def _remove_servers(own: str, digests: Mapping[str, str]) -> None:
    """Remove servers from the user's settings, unless they have been changed since they were added."""

    def without_servers(content: bytes) -> bytes:
        for name, entry in table_at(parse(content, own), SECTION).items():
            if digests.get(alias_of(name)) == _digest_of(entry):
                content = without_member(content, (SECTION, name), own)
        return content

    rewrite_file(own, without_servers)


def _write(change: ConfigChange) -> None:
    """Write the new content, or remove the file and the folders that the install created."""
    if change.after is not None:
        replace_content(change.path, change.before, change.after)
        return
    real = os.path.realpath(change.path)
    try:
        check_unchanged(read_regular(real, MAX_CLIENT_BYTES), change.before)
        os.unlink(real)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed in {visible_line(change.path)}: {error}.") from None
    except OSError:
        raise CommandFailure(f"{visible_line(change.path)} cannot be removed. Remove it by hand.") from None
    for folder in change.record.folders:
        with suppress(OSError):  # the folder is no longer empty
            os.rmdir(folder)


def _digest(content: bytes | None) -> str | None:
    return hashlib.sha256(content).hexdigest() if content is not None else None


def _digest_of(entry: Any) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


# The records are in `installs/installs.json` in the private folder, next to the backups.


def _folder(environ: Mapping[str, str]) -> str:
    folder = own_folder(environ)
    if folder is None:
        raise CommandFailure("there is no home folder, so changes cannot be recorded; use --print to show the entry.")
    return os.path.join(folder, "installs")


def backup_file(record: InstallRecord, environ: Mapping[str, str]) -> str:
    return os.path.join(_folder(environ), record.backup)


_note_once = cache(note)


def _records(environ: Mapping[str, str]) -> list[InstallRecord]:
    """Return the recorded installs. Unreadable records are ignored: uninstall then removes only the entry."""
    try:
        return read_stored(list[InstallRecord], read_regular(os.path.join(_folder(environ), "installs.json")))
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        _note_once("the records of installs cannot be read and are ignored")
        return []


def _find(record: InstallRecord, environ: Mapping[str, str]) -> InstallRecord | None:
    return next((candidate for candidate in _records(environ) if candidate.key == record.key), None)


def _set_record(record: InstallRecord, environ: Mapping[str, str], new_record: InstallRecord | None) -> None:
    """Set the record of an install to `new_record`, or remove it (`None`); delete the backup if no record needs it."""

    def remaining_records() -> list[InstallRecord]:
        other_records = [candidate for candidate in _records(environ) if candidate.key != record.key]
        return other_records if new_record is None else [*other_records, new_record]

    def as_json(_content: bytes) -> bytes:
        return json.dumps(list(map(asdict, remaining_records())), indent=2).encode() + b"\n"

    backups = {candidate.backup for candidate in remaining_records()}
    try:
        rewrite_file(os.path.join(_folder(environ), "installs.json"), as_json)
    finally:  # even if the disk is full
        if record.backup and record.backup not in backups:
            with suppress(OSError):
                os.unlink(backup_file(record, environ))
