"""The journal: what files held before our tools changed them and afterwards, so that a change can be taken back.

One SQLite file in a folder of the user's own, shared by all servers. Contents stand there once, by their SHA-256. A
change is written down before it is made and withdrawn where that fails; after a kill in between, the file still holds
what the entry says that it held before. Nothing waits for the disk: what a crash of the machine can take is the
journal, never a file of the workspace. Whatever is wrong with it, edits go on and say that they cannot be undone.
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
from tools.files.change.writer import alone_in
from tools.files.path_opener import is_ours, open_private_folder

if TYPE_CHECKING:
    import sqlite3

FILE = "changes.db"
ENDINGS = ("", "-shm", "-wal", "-journal")  # of the file, and of what SQLite makes beside it
BUSY_SECONDS = 0.5  # how long an edit waits while another server writes; that takes milliseconds
DAY = 86_400.0
# Twice SQLite's: a file of 100 kB is written a sixth quicker, one of 500 kB a third, and a small one as quickly. With
# more a small one is slower, since a change touches five pages at least.
PAGE_BYTES = 8_192
_APPLICATION = 0x43544A31  # tells our files from other databases (SQLite's application_id)
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
    """One change of one file, as the journal has it."""

    id: int
    time: float  # seconds since the epoch
    client: str  # whose it is, as `client_name` gives it
    tool: str
    path: str  # real path of the file
    before: str | None  # SHA-256 of what the file held; `None` where it did not exist
    after: str | None  # the same for what it was left with
    mode: int | None  # of a file that the change removed
    added: int  # lines
    removed: int
    undoes: int | None = None  # the change that it took back
    is_undone: int = False  # as SQLite has it


@dataclass(frozen=True, slots=True)
class NewChange:
    """A change that is about to be made; the fields are as in `JournaledChange`."""

    path: str
    before: bytes | None
    after: bytes | None
    before_sha256: str | None
    after_sha256: str | None
    added: int
    removed: int
    mode: int | None = None
    undoes: int | None = None


class JournalError(ToolError):
    """The journal cannot be used, or has no place for something; the message says why."""

    def __init__(self, why: str, *, is_damaged: bool = False) -> None:
        super().__init__(ToolErrorType.EXECUTION_FAILED, why)
        self.is_damaged = is_damaged  # whether the file holds nothing that can be read, and may be removed


def client_name(key: str) -> str:
    """How the journal calls a client: keys of sessions open them, so they are not written to a disk."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Journal:
    """The journal in one folder, which is made with the first change. Used from any thread; blocking."""

    def __init__(self, folder: str, max_bytes: int, max_days: float, max_file_bytes: int) -> None:
        self.max_file_bytes = max_file_bytes
        self._folder = folder
        self._file = os.path.join(folder, FILE)
        self._max_bytes = max_bytes
        self._max_seconds = max_days * DAY
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._page_bytes = PAGE_BYTES
        self._opened: tuple[int, int] | None = None  # device and inode of the file that the connection holds

    def add(self, change: NewChange, client: str, tool: str) -> int:
        """Write down a change that is about to be made; the oldest ones go where there is no room.

        Returns:
            The change's number.

        Raises:
            JournalError: It was not written down; the message says why.
        """
        if change.before is not None and len(change.before) > self.max_file_bytes:
            raise JournalError(
                f"The file had {len(change.before):,} bytes, more than are kept of one (undo.maxFileBytes)."
            )
        with self._transaction() as database:
            for content, sha256 in ((change.before, change.before_sha256), (change.after, change.after_sha256)):
                if content is not None and len(content) <= self.max_file_bytes:
                    database.execute("INSERT OR IGNORE INTO image VALUES (?, ?)", (sha256, content))
            values = (
                *(time.time(), client, tool, os.fsencode(change.path), change.before_sha256, change.after_sha256),
                *(change.mode, change.added, change.removed, change.undoes),
            )
            columns = "time, client, tool, path, before, after, mode, added, removed, undoes"
            insert = f"INSERT INTO change ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
            number = database.execute(insert, values).lastrowid or 0
            if change.undoes is not None:
                _mark_undone(database, values[3])
            self._prune(database, number)
        return number

    def withdraw(self, number: int) -> None:
        """Take out a change that was not made after all. What stays of it does no harm: the file is as before it."""
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
        counts: bool = False,
    ) -> list[JournaledChange]:
        """The last changes of files in some folders, the last first.

        Args:
            client: Whose; `None` for everybody's.
            roots: Real paths of the folders.
            limit: The most of them.
            path: The one file, where only its changes are wanted.
            number: The one change, where only that is wanted.
            counts: Whether only those are wanted that were neither undone nor are an undo themselves.
        """
        if not os.path.lexists(self._file):
            return []
        where = " OR ".join(["path = ? OR substr(path, 1, ?) = ?"] * len(roots)) or "0"
        values: list[object] = []
        for root in map(os.fsencode, roots):
            start = os.path.join(root, b"")
            values += [root, len(start), start]
        names = [field.name for field in fields(JournaledChange)]
        select = f"""
            SELECT {", ".join(names)} FROM change
            WHERE time > ? AND ({where}) AND client = coalesce(?, client) AND path = coalesce(?, path)
            AND typeof(path) || typeof(time) || typeof(added) || typeof(removed) = 'blobrealintegerinteger'
            AND time < 1e11 AND id = coalesce(?, id) AND (NOT ? OR (undoes IS NULL AND NOT is_undone))
            ORDER BY id DESC LIMIT ?
        """  # noqa: S608 - only the number of places in it comes from elsewhere
        only = os.fsencode(path) if path is not None else None
        with self._locked() as database:
            given = (time.time() - self._max_seconds, *values, client, only, number, counts, limit)
            rows = database.execute(select, given).fetchall()
            return [replace(JournaledChange(*row), path=os.fsdecode(row[4])) for row in rows]

    def content(self, sha256: str | None) -> bytes | None:
        """A content by its digest, `None` where it was not kept; also where it is damaged."""
        with self._locked() as database:
            row = database.execute("SELECT content FROM image WHERE sha256 = ?", (sha256,)).fetchone()
            return row[0] if row is not None and hashlib.sha256(row[0]).hexdigest() == sha256 else None

    def forget(self) -> None:
        """Delete everything that is kept, for good; a file that cannot be used is removed."""
        if not os.path.lexists(self._file):
            return
        try:
            with self._transaction() as database:
                database.execute("DELETE FROM change")
                database.execute("DELETE FROM image")
            with self._locked() as database:
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
                raise JournalError(f"The journal of changes cannot be removed ({error.strerror}).") from None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._locked() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    @contextmanager
    def _locked(self) -> Generator[sqlite3.Connection]:
        """The database, for one thread; after a failure it is opened again, and what was begun counts for nothing."""
        try:
            import sqlite3  # noqa: PLC0415 - with the first change
        except ImportError:
            raise JournalError("The journal of changes needs SQLite, which this Python lacks.") from None

        with self._lock:
            try:
                yield self._open()
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._close()
                if isinstance(error, sqlite3.Error | OSError | TypeError):  # a column can hold any type
                    raise _unusable(error) from None
                raise

    def _open(self) -> sqlite3.Connection:
        """The database at its path as it is now; made if it is missing."""
        import sqlite3  # noqa: PLC0415 - as above

        try:
            info = os.lstat(self._file)
        except FileNotFoundError:
            info = None
        if self._connection is not None and info is not None and (info.st_dev, info.st_ino) == self._opened:
            return self._connection
        self._close()
        # Others may make the file in this very moment.
        with open_private_folder(self._folder, makes=True) as held, alone_in(held):
            with suppress(FileExistsError):
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            for ending in ENDINGS:  # what SQLite has beside it is read and written as well
                with suppress(FileNotFoundError):
                    _make_private(self._file + ending)
            info = os.lstat(self._file)
            database = sqlite3.connect(
                self._file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=32
            )
            self._connection = database
            database.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; an old one keeps its own
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = OFF")
            application, self._page_bytes, tables = database.execute(
                "SELECT *, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id, pragma_page_size"
            ).fetchone()
            if not tables:
                database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            elif application != _APPLICATION:
                raise JournalError(
                    "The file of the journal of changes was made by another program, or another version."
                )
        self._opened = (info.st_dev, info.st_ino)
        return database

    def _prune(self, database: sqlite3.Connection, newest: int) -> None:
        """Delete the oldest changes while they are too old, or all together too large; never the newest."""
        since = time.time() - self._max_seconds
        look = """
            SELECT id, time,
            (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)
            FROM change ORDER BY id LIMIT 1
        """
        while True:
            oldest, written_at, used_pages = database.execute(look).fetchone()
            if oldest == newest or (written_at > since and used_pages * self._page_bytes <= self._max_bytes):
                return
            _delete(database, oldest)


def _make_private(path: str) -> None:
    """Let nobody else read a file of the journal; a `JournalError` where somebody else may have written it."""
    info = os.lstat(path)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or not is_ours(info):
        raise JournalError(
            "The journal of changes is not a plain file, belongs to somebody else, or has a second name."
        )
    if sys.platform != "win32" and info.st_mode & 0o022:
        said = "The journal of changes could be written by other users (coretools-mcp undo --forget begins a new one)."
        raise JournalError(said, is_damaged=True)
    if sys.platform != "win32" and info.st_mode & 0o077:
        os.chmod(path, 0o600)


def _mark_undone(database: sqlite3.Connection, path: object) -> None:
    """Note of each change of a file whether it was taken back, by all undos that are written down now.

    An undo that was itself taken back counts for nothing. For an undo the file was as the change that it takes back had
    left it, so what came between the two, by any client, is not in it: it was cut off, or taken back otherwise.
    """
    undos: dict[int, bool] = {}  # changes that later ones take back, and whether one of these counts
    marks: list[tuple[bool, int]] = []
    rows = database.execute("SELECT id, undoes FROM change WHERE path = ? ORDER BY id DESC", (path,))
    for number, undoes in rows.fetchall():
        is_undone = undos.get(number, False) or (undoes is None and any(each < number for each in undos))
        marks.append((is_undone, number))
        if undoes is not None:
            undos[undoes] = undos.get(undoes, False) or not is_undone
    database.executemany("UPDATE change SET is_undone = ? WHERE id = ?", marks)


def _delete(database: sqlite3.Connection, number: int) -> None:
    images = database.execute("SELECT before, after FROM change WHERE id = ?", (number,)).fetchone()
    database.execute("DELETE FROM change WHERE id = ?", (number,))
    database.execute(_PRUNE, images or (None, None))


def _unusable(error: Exception) -> JournalError:
    """What is wrong; no text of the system, which may hold paths."""
    import sqlite3  # noqa: PLC0415 - as above

    code = sqlite3.SQLITE_CORRUPT if isinstance(error, TypeError) else getattr(error, "sqlite_errorcode", None)
    match code & 0xFF if code is not None else None:  # the rest of it tells more than is needed
        case sqlite3.SQLITE_FULL:
            return JournalError("The journal of changes cannot be written: no space is left.")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return JournalError("The journal of changes is kept busy by another process.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
            why = "The journal of changes is damaged (coretools-mcp undo --forget begins a new one)."
            return JournalError(why, is_damaged=True)
        case _ if isinstance(error, NotADirectoryError):
            return JournalError(f"The journal of changes cannot be used: {error.strerror}.")
        case _:
            return JournalError("The journal of changes cannot be opened or written.")
