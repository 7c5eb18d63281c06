"""Redis: values in the memory of a server, in pipelined batches, through redis-py.

    redis://USER:PASSWORD@HOST:PORT/DB      (user, password and DB may be left out)

Nothing is tried again: with redis-py's own retries a stopped server costs ten times the time-out.
Redis bounds its memory itself (`maxmemory`), and evicts if `maxmemory-policy` says so.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from redis import Connection, ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NoAnswer
from redis.retry import Retry

from hicache.core.errors import CallerError

from ..address import Location, locate, probe
from ..base import Address, Entry, Status, Storage, StorageOptions, Value, scatter, size_of, tell
from ..calls import PlainSocket

SUMMARY = "Redis, pipelined: redis://HOST:PORT/DB"

_FORM = "redis://HOST:PORT/DB"
_KEYS = 1024  # that are listed at a time


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Connect to a server. Raises CallerError."""
    where = locate(address, port=6379, known=(), form=_FORM)
    database = where.path.strip("/") or "0"
    if not re.fullmatch(r"\d{1,5}", database):
        raise CallerError(f"storage: expected {_FORM}, found the database {database[:40]!a}")
    probe(where, options.timeout_s)
    pool = ConnectionPool(
        connection_class=_Patient,
        host=where.host,
        port=where.port,
        db=int(database),
        username=where.user or None,
        password=where.password or None,
        socket_timeout=options.timeout_s,
        socket_connect_timeout=options.timeout_s,
        retry=Retry(NoBackoff(), 0),
    )
    client = Redis(connection_pool=pool)
    try:
        client.ping()
    except RedisError as error:
        client.close()
        why = f"cannot be used ({error}); check the user and the password"
        if isinstance(error, NoAnswer):
            why = "gives no answer in time; is it a Redis that runs?"
        text = f"storage: redis://{where.host}:{where.port}/{database} {why}"
        raise CallerError(text) from error
    return RedisStorage(client, where)


class _Patient(Connection):
    """A connection that waits as long as bytes move."""

    def _connect(self) -> PlainSocket:
        return PlainSocket.of(super()._connect())  # type: ignore[no-untyped-call]


class RedisStorage(Storage):
    """A client with a pool of connections, used by several threads at a time."""

    def __init__(self, client: Redis, where: Location) -> None:
        self._client, self._where = client, where
        self._closed = False

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        answers = self._ask(keys, lambda pipeline, at: pipeline.exists(keys[at]))
        return [None if _failed(answer) else answer == 1 for answer in answers]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        answers = self._ask(keys, lambda pipeline, at: pipeline.get(keys[at]))
        return [_landed(*pair) for pair in zip(answers, values, strict=True)]

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        def put(pipeline: Pipeline, at: int) -> None:
            pipeline.set(keys[at], b"".join(values[at]))

        return [_written(answer) for answer in self._ask(keys, put)]

    def delete(self, keys: Sequence[str]) -> list[Status]:
        answers = self._ask(keys, lambda pipeline, at: pipeline.delete(keys[at]))
        names = {1: Status.DONE, 0: Status.MISSING}
        return [Status.FAILED if _failed(answer) else names[answer] for answer in answers]

    def entries(self, prefix: str) -> Iterator[Entry]:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
        names, seen = self._client.scan_iter(pattern, _KEYS), set[bytes]()
        try:
            while some := list(islice(names, _KEYS)):
                keys = list(set(some) - seen)
                seen.update(keys)  # a scan may name a key twice
                with self._client.pipeline(transaction=False) as pipeline:
                    pipeline.time()
                    for key in keys:
                        pipeline.strlen(key)
                        pipeline.object("idletime", key)
                    (now_s, _), *answers = pipeline.execute(raise_on_error=False)
                for key, size, idle_s in zip(keys, answers[::2], answers[1::2], strict=True):
                    if isinstance(size, int) and size:
                        used_at_s = float(now_s - idle_s) if isinstance(idle_s, int) else 0.0
                        yield Entry(key.decode(), size, used_at_s)
        except RedisError as error:
            raise ConnectionError(f"{self._where.host}: {error}") from error

    def close(self) -> None:
        self._closed = True
        self._client.connection_pool.disconnect()

    def _ask(self, keys: Sequence[str], ask: Callable[..., object]) -> list[Any]:
        """An answer or an exception for each key. A batch is one pipeline: when the connection
        fails, that costs one time-out."""
        try:
            if self._closed:
                raise NoConnection("closed")
            with self._client.pipeline(transaction=False) as pipeline:
                for at in range(len(keys)):
                    ask(pipeline, at)
                return pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return [error] * len(keys)


def _failed(answer: Any) -> bool:
    """Whether there is no answer. Tells why."""
    if isinstance(answer, Exception):
        tell("no answer in time" if isinstance(answer, NoAnswer) else answer)
        return True
    return False


def _landed(answer: Any, value: Value) -> Status:
    if answer is None:
        return Status.MISSING
    if _failed(answer):
        return Status.FAILED
    if len(answer) != size_of(value):
        return Status.CORRUPT
    scatter(memoryview(answer), value)
    return Status.DONE


def _written(answer: Any) -> Status:
    if not _failed(answer):
        return Status.DONE
    full = str(answer).startswith(("OOM", "command not allowed"))
    return Status.FULL if full and isinstance(answer, ResponseError) else Status.FAILED
