"""The store for several processes on one machine: an SQLite file on a local disk."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TypeVar

import anyio

from server.store.shared_store import ABSENT, Availability, StoreUnavailableError, Versioned, new_version
from tools.contract.tool_errors import ExhaustedError
from tools.files.path_opener import is_ours
from tools.machine.threads import THREADS

T = TypeVar("T")

BUSY_SECONDS = 1.0  # maximum wait for other requests of this process, and for another process's lock
POLL_SECONDS = 0.5  # interval between polls for messages
MESSAGE_SECONDS = 60.0  # how long a message is kept for slow readers
SWEEP_SECONDS = 60.0  # interval between removals of expired keys
PRIVATE = 0o600

_TABLES = """
CREATE TABLE IF NOT EXISTS generation (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS held (key TEXT PRIMARY KEY, value TEXT NOT NULL, version TEXT NOT NULL, expires REAL);
CREATE INDEX IF NOT EXISTS held_expires ON held (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
);
"""
_REASONS = {
    sqlite3.SQLITE_BUSY: "another process has locked its file for too long",
    sqlite3.SQLITE_LOCKED: "another process has locked its file for too long",
    sqlite3.SQLITE_READONLY: "its file or folder is not writable",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened or created: the folder must exist and be writable",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "its disk has failed",
    sqlite3.SQLITE_CORRUPT: "its file is damaged: move it away, and a new file will be created",
    sqlite3.SQLITE_NOTADB: "its file is not an SQLite database: move it away, and a new file will be created",
}


class SqliteStore:
    """A store in a file. `path` is absolute; a missing file is created, readable only by this user."""

    def __init__(self, path: str) -> None:
        self.generation = ""
        self._path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._last_sweep = time.monotonic()
        self._available = Availability()

    async def start(self) -> None:
        with suppress(StoreUnavailableError):
            await self._run(lambda _: None)

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        def take(database: sqlite3.Connection) -> bool:
            return generation == self.generation and self._put(key, "", seconds, ABSENT, database) is not None

        return await self._run(take)

    async def get(self, key: str) -> Versioned | None:
        return await self._run(partial(self._get, key), writes=False)

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        return await self._run(partial(self._put, key, value, seconds, if_version))

    async def delete(self, key: str, *, if_version: str | None = None) -> None:
        statement = "DELETE FROM held WHERE key = ? AND version = coalesce(?, version)"
        await self._run(lambda database: database.execute(statement, (key, if_version)))

    async def add(self, key: str, count: int, seconds: float) -> int:
        def add(database: sqlite3.Connection) -> int:
            now = time.time()
            rows = database.execute(
                "INSERT INTO held VALUES (?, ?, '', ?) ON CONFLICT (key) DO UPDATE SET "
                "value = CASE WHEN expires <= ? THEN excluded.value ELSE CAST(value AS INTEGER) + excluded.value END, "
                "expires = CASE WHEN expires <= ? THEN excluded.expires ELSE expires END RETURNING value",
                (key, str(count), now + seconds, now, now),
            ).fetchall()
            return int(rows[0][0])

        return await self._run(add)

    async def publish(self, channel: str, text: str) -> None:
        def publish(database: sqlite3.Connection) -> None:
            now = time.time()
            database.execute("DELETE FROM messages WHERE at < ?", (now - MESSAGE_SECONDS,))
            database.execute("INSERT INTO messages (channel, text, at) VALUES (?, ?, ?)", (channel, text, now))

        await self._run(publish)

    async def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        def last_id(database: sqlite3.Connection) -> int:
            return int(database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])

        def messages_after(number: int, database: sqlite3.Connection) -> list[tuple[int, str]]:
            return database.execute(
                "SELECT id, text FROM messages WHERE id > ? AND channel = ? ORDER BY id", (number, channel)
            ).fetchall()

        while True:
            try:
                number, generation = await self._run(last_id, writes=False), self.generation
                yield None
                while generation == self.generation:
                    for row, text in await self._run(partial(messages_after, number), writes=False):
                        number = row
                        yield text
                    await anyio.sleep(POLL_SECONDS)
            except StoreUnavailableError:
                await anyio.sleep(POLL_SECONDS)

    async def aclose(self) -> None:
        def close() -> None:
            with self._lock:
                self._close()

        with anyio.CancelScope(shield=True), suppress(ExhaustedError):
            await THREADS.run(close)

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Run an operation on the file in a thread. Only one operation runs at a time."""
        try:
            outcome = await THREADS.run(partial(self._run_blocking, work, writes))
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # keep only the primary result code
            raise self._available.report_failure(_REASONS.get(code, "SQLite cannot use its file")) from None
        except OSError as error:
            raise self._available.report_failure(f"its file cannot be used ({error.strerror})") from None
        except ExhaustedError as error:
            raise self._available.report_failure(error.why) from None
        self._available.report_success()
        return outcome

    def _run_blocking(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise OSError(errno.EBUSY, "too many requests are waiting for it")
        try:
            database = self._open_database()
            # With IMMEDIATE, no other process writes between the reads and writes of `work`.
            with database:
                database.execute("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
                now = time.monotonic()
                if writes and now > self._last_sweep + SWEEP_SECONDS:
                    self._last_sweep = now
                    database.execute("DELETE FROM held WHERE expires <= ?", (time.time(),))
                return work(database)
        except BaseException:
            self._close()
            raise
        finally:
            self._lock.release()

    def _open_database(self) -> sqlite3.Connection:
        """Return a connection to the file that is at the path now, which may have replaced the file opened before."""
        if self._connection is not None:
            with suppress(OSError):
                info = os.stat(self._path)
                if (info.st_dev, info.st_ino) == self._identity:
                    return self._connection
            self._close()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._path, flags, PRIVATE)  # SQLite would make the file readable by others
        try:
            info = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not is_ours(info):
            raise OSError(errno.EPERM, "it belongs to another user")
        if sys.platform != "win32" and info.st_mode & 0o077:
            mode = f"{stat.S_IMODE(info.st_mode):04o}"
            raise OSError(errno.EPERM, f"other users can read or write it, mode {mode}: run chmod 600 on it")
        # The threads share the connection, and only one thread uses it at a time.
        database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection, self._identity = database, (info.st_dev, info.st_ino)
        # With write-ahead logging, readers never wait. SQLite does not wait if another process changes the mode at the
        # same time, so a failure is retried.
        deadline = time.monotonic() + BUSY_SECONDS
        while database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        database.execute("PRAGMA synchronous = FULL")  # a power failure must not lose the record of a spent answer
        with database:
            database.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, _TABLES.split(";")):
                database.execute(statement)
            database.execute("INSERT OR IGNORE INTO generation VALUES (1, ?)", (new_version(),))
            (self.generation,) = database.execute("SELECT name FROM generation").fetchone()
        return database

    def _close(self) -> None:
        database, self._connection = self._connection, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()

    @staticmethod
    def _get(key: str, database: sqlite3.Connection) -> Versioned | None:
        row = database.execute(
            "SELECT value, version FROM held WHERE key = ? AND (expires IS NULL OR expires > ?)", (key, time.time())
        ).fetchone()
        return None if row is None else Versioned(str(row[0]), str(row[1]))

    def _put(
        self, key: str, value: str, seconds: float | None, if_version: str | None, database: sqlite3.Connection
    ) -> str | None:
        if if_version is not None:
            entry = self._get(key, database)
            if if_version != (ABSENT if entry is None else entry.version):
                return None
        version, expires = new_version(), None if seconds is None else time.time() + seconds
        database.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", (key, value, version, expires))
        return version
