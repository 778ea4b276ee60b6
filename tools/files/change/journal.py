"""The journal of changes made by tools, with the file contents before and after, so that the changes can be undone.

The journal is one SQLite file in a private folder of the user, shared by all servers. Equal contents are stored only
once, keyed by SHA-256. A change is recorded before it is made, and the record is withdrawn if the change fails. If the
process is killed after it recorded a change and before it made the change, the file still has the record's `before`
content. Writes to the journal do not wait for the disk, so a crash of the machine can damage the journal but never a
workspace file. If the journal fails, edits continue and report that they cannot be undone.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import lock_folder
from tools.files.path_opener import is_ours, open_private_folder

if TYPE_CHECKING:
    import sqlite3

FILE = "changes.db"
ENDINGS = ("", "-shm", "-wal", "-journal")  # name suffixes of the database, and of files that SQLite creates next to it
BUSY_SECONDS = 0.5  # how long an edit waits while another server writes, which normally takes milliseconds
DAY = 86_400.0
INTEGER_BITS = 63  # an integer in SQLite has a sign and at most this many bits
# Twice SQLite's default. Contents of 100 kB are written a sixth faster, contents of 500 kB a third faster, and small
# contents as fast as with the default. Even larger pages slow down changes to small files, because each change touches
# at least five pages.
PAGE_BYTES = 8_192
_APPLICATION = 0x43544A31  # SQLite's application_id, which distinguishes the journal from other databases
_SCHEMA = f"""
CREATE TABLE image (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE change (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, client TEXT NOT NULL, tool TEXT NOT NULL,
    path BLOB NOT NULL, before TEXT, after TEXT, mode INTEGER, added INTEGER NOT NULL, removed INTEGER NOT NULL,
    undoes INTEGER, is_undone INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX change_before ON change (before);
CREATE INDEX change_after ON change (after);
PRAGMA application_id = {_APPLICATION};
"""
_PRUNE = """
DELETE FROM image WHERE sha256 IN (?, ?)
AND NOT EXISTS (SELECT 1 FROM change WHERE before = sha256) AND NOT EXISTS (SELECT 1 FROM change WHERE after = sha256)
"""


@dataclass(frozen=True, slots=True)
class JournaledChange:
    id: int
    time: float  # seconds since the epoch
    client: str  # the client's name, from `client_name`
    tool: str
    path: str  # real path of the file
    before: str | None  # SHA-256 of the old content; `None` if the file did not exist
    after: str | None  # SHA-256 of the new content; `None` if the file was removed
    mode: int | None  # for an undo, the mode of the file, with which a removed file can be restored
    added: int  # number of added lines
    removed: int | None  # number of removed lines; `None` (stored as -1) if they were hidden from the client
    undoes: int | None = None  # for an undo, the number of the change that it undoes
    is_undone: int = False  # whether the change has been undone; 0 or 1, as stored in SQLite


@dataclass(frozen=True, slots=True)
class NewChange:
    """A change that is about to be made, with the contents and their digests; other fields as in `JournaledChange`."""

    path: str
    before: bytes | None
    after: bytes | None
    before_sha256: str | None
    after_sha256: str | None
    added: int
    removed: int | None
    mode: int | None = None
    undoes: int | None = None


class JournalError(ToolError):
    """The journal cannot be used. The message gives the reason."""

    def __init__(self, reason: str, *, is_damaged: bool = False) -> None:
        super().__init__(ToolErrorType.EXECUTION_FAILED, reason)
        self.is_damaged = is_damaged  # whether the journal is unusable until its file is deleted


def client_name(key: str) -> str:
    """Return a client's name in the journal: a hash, because the key of a session gives access to the session."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Journal:
    """The journal in one folder. The first change creates the folder and the journal. Thread-safe and blocking."""

    def __init__(self, folder: str, max_bytes: int, max_days: float, max_file_bytes: int) -> None:
        self.max_file_bytes = max_file_bytes
        self._folder = folder
        self._file = os.path.join(folder, FILE)
        self._max_bytes = max_bytes
        self._max_seconds = max_days * DAY
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._page_bytes = PAGE_BYTES
        self._own: set[int] = set()  # the numbers of the changes that this server has recorded since it started
        self._file_id: tuple[int, int] | None = None  # device and inode of the file behind the connection

    def add(self, change: NewChange, client: str, tool: str) -> int:
        """Record a change that is about to be made, and return its number.

        A change that cannot be undone because of `why_not_kept` is recorded without the old content. The oldest changes
        are dropped if there is no room. Raises a `JournalError` if the change was not recorded.
        """
        with self._transaction() as database:
            for content, sha256 in ((change.before, change.before_sha256), (change.after, change.after_sha256)):
                if content is not None and len(content) <= self.max_file_bytes:
                    database.execute("INSERT OR IGNORE INTO image VALUES (?, ?)", (sha256, content))
            values = (
                *(time.time(), client, tool, os.fsencode(change.path), change.before_sha256, change.after_sha256),
                *(change.mode, change.added, -1 if change.removed is None else change.removed, change.undoes),
            )
            columns = "time, client, tool, path, before, after, mode, added, removed, undoes"
            insert = f"INSERT INTO change ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constant
            number = database.execute(insert, values).lastrowid or 0
            if change.undoes is not None:
                _mark_undone(database, values[3])
            self._prune(database, number)
        self._own.add(number)
        return number

    def why_not_kept(self, before: bytes | None) -> str:
        """Return why the old content is not kept, so that the change cannot be undone; empty if it is kept."""
        if before is None or len(before) <= self.max_file_bytes:
            return ""
        return f"The file was {len(before):,} bytes long, more than the limit for undo (undo.maxFileBytes)."

    def is_own(self, number: int) -> bool:
        """Return True if this server made the change since it started, False if another server or an earlier run did.

        Over stdio, all clients of a user have one name in the journal, but each has its own server.
        """
        return number in self._own

    def withdraw(self, number: int) -> None:
        """Delete the record of a change that was not made. If the journal fails, the record stays and is harmless."""
        with suppress(JournalError), self._transaction() as database:
            path = database.execute("SELECT path FROM change WHERE id = ? AND undoes NOTNULL", (number,)).fetchone()
            _delete(database, number)
            if path is not None:
                _mark_undone(database, path[0])

    def changes(
        self,
        client: str | None,
        roots: Sequence[str],
        *,
        limit: int,
        path: str | None = None,
        number: int | None = None,
        before: int | None = None,
        only_undoable: bool = False,
    ) -> list[JournaledChange]:
        """Return the latest changes to files in `roots`, at most `limit` of them, newest first.

        If `client`, `path` or `number` is given, changes with another client, path or number are left out. If `before`
        is given, only changes with a smaller number are returned. If `only_undoable` is true, only changes that have
        not been undone and are not undos themselves are returned.
        """
        if not os.path.lexists(self._file) or (number is not None and number.bit_length() > INTEGER_BITS):
            return []
        root_clause = " OR ".join(["path = ? OR substr(path, 1, ?) = ?"] * len(roots)) or "0"
        values: list[object] = []
        for root in map(os.fsencode, roots):
            start = os.path.join(root, b"")
            values += [root, len(start), start]
        names = [field.name for field in fields(JournaledChange)]
        select = f"""
            SELECT {", ".join(names)} FROM change
            WHERE time > ? AND ({root_clause}) AND client = coalesce(?, client) AND path = coalesce(?, path)
            AND typeof(path) || typeof(time) || typeof(added) || typeof(removed) = 'blobrealintegerinteger'
            AND time < 1e11 AND id = coalesce(?, id) AND id < coalesce(?, id + 1)
            AND (NOT ? OR (undoes IS NULL AND NOT is_undone))
            ORDER BY id DESC LIMIT ?
        """  # noqa: S608 - only the number of placeholders varies
        path_bytes = os.fsencode(path) if path is not None else None
        with self._locked_database() as database:
            filters = (client, path_bytes, number, before, only_undoable, limit)
            rows = database.execute(select, (time.time() - self._max_seconds, *values, *filters)).fetchall()
            changes = [JournaledChange(*row) for row in rows]
            return [
                replace(change, path=os.fsdecode(change.path), removed=None if change.removed == -1 else change.removed)
                for change in changes
            ]

    def content(self, sha256: str | None) -> bytes | None:
        """Return the content with this digest, or `None` if it was not kept or is damaged."""
        with self._locked_database() as database:
            row = database.execute("SELECT content FROM image WHERE sha256 = ?", (sha256,)).fetchone()
            return row[0] if row is not None and hashlib.sha256(row[0]).hexdigest() == sha256 else None

    def forget(self) -> None:
        """Delete all records and contents. If the journal is unusable (`JournalError.is_damaged`), remove its files."""
        if not os.path.lexists(self._file):
            return
        try:
            with self._transaction() as database:
                database.execute("DELETE FROM change")
                database.execute("DELETE FROM image")
            with self._locked_database() as database:
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except JournalError as damage:
            if not damage.is_damaged:
                raise
            try:
                for ending in reversed(ENDINGS):
                    with suppress(FileNotFoundError):
                        os.unlink(self._file + ending)
            except OSError as error:
                raise JournalError(f"The change journal cannot be removed ({error.strerror}).") from None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._locked_database() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    @contextmanager
    def _locked_database(self) -> Generator[sqlite3.Connection]:
        """Yield the database to one thread at a time.

        After a failure, close the database, which rolls the transaction back. The next use opens the database again.
        """
        try:
            import sqlite3  # noqa: PLC0415 - loaded on first use
        except ImportError:
            raise JournalError("The change journal needs SQLite, which this Python lacks.") from None

        with self._lock:
            try:
                yield self._open()
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._close()
                # A `TypeError` means that a column has a value of the wrong type, which SQLite permits.
                if not isinstance(error, sqlite3.Error | OSError | TypeError):
                    raise
                # The system's own message is not shown, because it may contain paths.
                is_damaged = False
                code = sqlite3.SQLITE_CORRUPT if isinstance(error, TypeError) else getattr(error, "sqlite_errorcode", 0)
                match code & 0xFF:  # the higher bits belong to the extended code
                    case sqlite3.SQLITE_FULL:
                        reason = "The change journal cannot be written: no space is left."
                    case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                        reason = "Another process is using the change journal."
                    case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
                        reason = "The change journal is damaged (run coretools-mcp undo --forget to start a new one)."
                        is_damaged = True
                    case _ if isinstance(error, NotADirectoryError):
                        reason = f"The change journal cannot be used: {error.strerror}."
                    case _:
                        reason = "The change journal cannot be opened or written."
                raise JournalError(reason, is_damaged=is_damaged) from None

    def _open(self) -> sqlite3.Connection:
        import sqlite3  # noqa: PLC0415 - loaded on first use

        try:
            info = os.lstat(self._file)
        except FileNotFoundError:
            info = None
        if self._connection is not None and info is not None and (info.st_dev, info.st_ino) == self._file_id:
            return self._connection
        if info is None:
            self._file_id = None  # a new file may have the inode of the deleted one
        self._close()
        # Another process may be creating the file right now.
        with open_private_folder(self._folder, makes=True) as folder, lock_folder(folder):
            with suppress(FileExistsError):
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            for ending in ENDINGS:  # SQLite also reads and writes the files next to the database
                with suppress(FileNotFoundError):
                    info = os.lstat(self._file + ending)
                    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or not is_ours(info):
                        raise JournalError(
                            "The change journal is not a regular file, belongs to another user, or has a second name "
                            "(a hard link)."
                        )
                    if sys.platform != "win32" and info.st_mode & 0o022:
                        raise JournalError(
                            "Other users could write to the change journal (run coretools-mcp undo --forget to start "
                            "a new one).",
                            is_damaged=True,
                        )
                    if sys.platform != "win32" and info.st_mode & 0o077:
                        os.chmod(self._file + ending, 0o600)
            info = os.lstat(self._file)
            database = sqlite3.connect(
                self._file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=32
            )
            self._connection = database
            database.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # for a new file; an existing file keeps its page size
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = OFF")
            application, self._page_bytes, tables = database.execute(
                "SELECT *, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id, pragma_page_size"
            ).fetchone()
            if not tables:
                database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            elif application != _APPLICATION:
                raise JournalError(
                    "The change journal was created by another program, or by another version of coretools-mcp."
                )
        if (file_id := (info.st_dev, info.st_ino)) != self._file_id:
            self._file_id = file_id
            self._own.clear()  # in a new file, numbers start again
        return database

    def _prune(self, database: sqlite3.Connection, newest: int) -> None:
        """Delete the oldest changes, but not the newest one, until none is too old and the journal is small enough."""
        since = time.time() - self._max_seconds
        query = """
            SELECT id, time,
            (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)
            FROM change ORDER BY id LIMIT 1
        """
        while True:
            oldest, written_at, used_pages = database.execute(query).fetchone()
            if oldest == newest or (written_at > since and used_pages * self._page_bytes <= self._max_bytes):
                return
            _delete(database, oldest)
            self._own.discard(oldest)


def _mark_undone(database: sqlite3.Connection, path: object) -> None:
    """Mark which changes to a file have been undone, based on all recorded undos.

    An undo that was itself undone does not count. A change can be undone only if the file is as the change left it.
    Therefore any changes between a change and its undo, by any client, are no longer in the file: they failed, or were
    undone in another way.
    """
    undos: dict[int, bool] = {}  # for each undone change, whether its undo is still in effect
    marks: list[tuple[bool, int]] = []
    rows = database.execute("SELECT id, undoes FROM change WHERE path = ? ORDER BY id DESC", (path,))
    for number, undoes in rows.fetchall():
        is_undone = undos.get(number, False) or (undoes is None and any(change_id < number for change_id in undos))
        marks.append((is_undone, number))
        if undoes is not None:
            undos[undoes] = undos.get(undoes, False) or not is_undone
    database.executemany("UPDATE change SET is_undone = ? WHERE id = ?", marks)


def _delete(database: sqlite3.Connection, number: int) -> None:
    images = database.execute("SELECT before, after FROM change WHERE id = ?", (number,)).fetchone()
    database.execute("DELETE FROM change WHERE id = ?", (number,))
    database.execute(_PRUNE, images or (None, None))
