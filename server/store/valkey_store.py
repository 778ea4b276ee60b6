"""The store for replicas on several machines: a Valkey or Redis server, version 6 or newer.

Keys expire according to that server's clock. Every operation is one command or one script, which the server runs
atomically. Commands are never retried.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import anyio
from valkey import exceptions
from valkey.asyncio import BlockingConnectionPool, SSLConnection, Valkey
from valkey.asyncio.connection import Connection

from server.store.shared_store import ABSENT, Availability, StoreUnavailableError, Versioned, new_version

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_SECONDS = 1.0  # limit for connecting, and for a reply
COMMAND_SECONDS = 1.5  # limit for a whole command: getting a free connection, connecting, and the reply
MAX_CONNECTIONS = 32  # per process; further requests wait for a free connection
RETRY_SECONDS = 1.0  # pause before a broken subscription is retried
DEFAULT_PORT = 6379
_NO_REPLY = f"it does not answer within {ANSWER_SECONDS:g} s"
_PREFIX = "coretools:"  # prefix of every key, because other programs may use the same database
_GENERATION = f"{_PREFIX}generation"
_VERSION_CHARS = len(new_version())  # length of the version that precedes each value

# The generation consists of a stored name, the server's run id and its number of evicted keys. The name alone is not
# enough. It may remain when other keys are lost: when the server is restored from a snapshot, when a replica takes
# over, or when the server evicts keys, as many managed servers do by default.
_TAKE = """
local name = redis.call('GET', KEYS[2])
if not name then
    name = ARGV[3]
    redis.call('SET', KEYS[2], name)
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')
local generation = name .. '-' .. run .. '-' .. evicted
if generation ~= ARGV[2] then return generation end
if redis.call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[1]) then return 'taken' end
return ''
"""
_PUT = """
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""
_DELETE = """
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
_ADD = """
local total = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return total
"""


class ValkeyStore:
    """A store at `valkey://[USER@]HOST[:PORT][/DB]`, or `valkeys` for TLS. An empty `password` means none."""

    def __init__(self, url: str, password: str) -> None:
        self.generation = ""
        self._available = Availability()
        parts = urlsplit(url)
        connection_options: dict[str, Any] = {"connection_class": Connection}
        if parts.scheme == "valkeys":
            connection_options = {"connection_class": SSLConnection, "ssl_check_hostname": True}
        self._pool = BlockingConnectionPool(
            max_connections=MAX_CONNECTIONS,
            timeout=cast("int", ANSWER_SECONDS),
            host=parts.hostname or "localhost",
            port=parts.port or DEFAULT_PORT,
            db=int(parts.path.strip("/") or 0),
            username=unquote(parts.username or "") or None,
            password=password or None,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            decode_responses=True,
            encoding_errors="replace",  # replaces nothing that this program writes, which is always valid text
            **connection_options,
        )
        self._client = cast("Any", Valkey(connection_pool=self._pool))

    async def start(self) -> None:
        with suppress(StoreUnavailableError):
            await self._take("", 1.0, "")  # an empty generation never matches, so nothing is taken

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        return await self._take(f"{_PREFIX}{key}", seconds, generation) == "taken"

    async def _take(self, key: str, seconds: float, generation: str) -> str:
        outcome = str(await self._script(_TAKE, (key, _GENERATION), _milliseconds(seconds), generation, new_version()))
        if outcome not in ("", "taken"):
            if self.generation not in ("", outcome):
                logger.warning(
                    "the store (store.url) was restarted or emptied, or has evicted keys (maxmemory-policy must be "
                    "noeviction), so open questions are asked again"
                )
            self.generation = outcome
        return outcome

    async def get(self, key: str) -> Versioned | None:
        raw_value = await self._run(self._client.get(f"{_PREFIX}{key}"))
        return None if raw_value is None else Versioned(raw_value[_VERSION_CHARS:], raw_value[:_VERSION_CHARS])

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        version, lifetime = new_version(), None if seconds is None else _milliseconds(seconds)
        full_key, raw_value = f"{_PREFIX}{key}", f"{version}{value}"
        if if_version is None or if_version == ABSENT:
            is_written = await self._run(self._client.set(full_key, raw_value, px=lifetime, nx=if_version is not None))
        else:
            is_written = await self._script(_PUT, (full_key,), if_version, raw_value, lifetime or "")
        return version if is_written else None

    async def delete(self, key: str, *, if_version: str | None = None) -> None:
        full_key = f"{_PREFIX}{key}"
        if if_version is None:
            await self._run(self._client.delete(full_key))
        else:
            await self._script(_DELETE, (full_key,), if_version)

    async def add(self, key: str, count: int, seconds: float) -> int:
        return int(await self._script(_ADD, (f"{_PREFIX}{key}",), count, _milliseconds(seconds)))

    async def publish(self, channel: str, text: str) -> None:
        await self._run(self._client.publish(f"{_PREFIX}{channel}", text))

    async def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        while True:
            with suppress(StoreUnavailableError):
                async with aclosing(self._client.pubsub()) as messages:
                    await self._attempt(messages.subscribe(f"{_PREFIX}{channel}"))
                    is_pinged = False
                    while True:
                        message = await self._attempt(messages.get_message(timeout=ANSWER_SECONDS))
                        if message is None:  # check whether the server still responds
                            if is_pinged:
                                raise self._available.report_failure(_NO_REPLY)
                            is_pinged = True
                            await self._attempt(messages.ping())
                            continue
                        self._available.report_success()
                        is_pinged = False
                        if message["type"] == "subscribe":
                            await self.start()  # later requests must use the new generation
                            yield None
                        elif message["type"] == "message":
                            yield str(message["data"])
            await anyio.sleep(RETRY_SECONDS)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(COMMAND_SECONDS):
            await self._pool.aclose()

    async def _script(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        return await self._run(self._client.execute_command("EVAL", script, len(keys), *keys, *arguments))

    async def _run(self, command: Awaitable[T]) -> T:
        outcome = await self._attempt(command)
        self._available.report_success()
        return outcome

    async def _attempt(self, command: Awaitable[T]) -> T:
        try:
            with anyio.fail_after(COMMAND_SECONDS):
                return await command
        except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError):
            reason = "it rejects the user name or the password (store.password), or the user lacks a permission"
            raise self._available.report_failure(reason) from None
        except (TimeoutError, exceptions.TimeoutError):
            await self._disconnect_idle()
            raise self._available.report_failure(_NO_REPLY) from None
        except exceptions.ReadOnlyError:
            raise self._available.report_failure("it is a read-only replica: store.url must name the primary") from None
        except exceptions.OutOfMemoryError:
            raise self._available.report_failure("it is out of memory") from None
        except exceptions.ResponseError as error:
            code, _, _ = str(error).partition(" ")
            code_text = f" ({code})" if code.isalpha() and code.isupper() else ""
            raise self._available.report_failure(f"it answers with an error{code_text}") from None
        except (exceptions.ValkeyError, OSError):
            await self._disconnect_idle()
            raise self._available.report_failure("it cannot be reached") from None

    async def _disconnect_idle(self) -> None:
        """After a failure, close all idle connections, because they may be dead as well."""
        with anyio.move_on_after(ANSWER_SECONDS), suppress(exceptions.ValkeyError, OSError):
            await self._pool.disconnect(inuse_connections=False)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
