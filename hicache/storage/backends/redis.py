"""Redis: values in the memory of a server, in pipelined batches, through redis-py.

    redis://USER:PASSWORD@HOST:PORT/DB      (user, password and DB may be left out)

Nothing is tried again: with redis-py's own retries a stopped server costs ten times the time-out.
A batch that does not reach the server ends there, so an outage costs one time-out for a batch.
Redis bounds its memory itself (`maxmemory`), and evicts if `maxmemory-policy` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis import Connection, ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NoAnswer
from redis.retry import Retry

from hicache.core.errors import CallerError

from ..address import Location, locate, probe, refuse_options
from ..base import (
    Address,
    Entry,
    Status,
    Storage,
    StorageOptions,
    Value,
    batches,
    scatter,
    size_of,
    tell,
)
from ..calls import PlainSocket

SUMMARY = "Redis, pipelined: redis://HOST:PORT/DB"

_FORM = "redis://HOST:PORT/DB"
_BATCH = 32 << 20  # bytes of one pipeline
_KEYS = 1024  # of one pipeline that moves no values
_DURABLE = "start redis-server with --appendonly yes --appendfsync always instead"


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Connect to a server. Raises CallerError."""
    where = locate(address, port=6379, known=(), form=_FORM)
    refuse_options("redis", options, "bound it on the server: maxmemory", _DURABLE)
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
        text = f"storage: redis://{where.server}/{database} {why}"
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
        answers = self._ask(keys, lambda pipeline, at: pipeline.get(keys[at]), values, _landed)
        return [Status.FAILED if _failed(answer) else answer for answer in answers]

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        def put(pipeline: Pipeline, at: int) -> None:
            pipeline.set(keys[at], b"".join(values[at]))

        return [_written(answer) for answer in self._ask(keys, put, values)]

    def delete(self, keys: Sequence[str]) -> list[Status]:
        answers = self._ask(keys, lambda pipeline, at: pipeline.delete(keys[at]))
        names = {1: Status.DONE, 0: Status.MISSING}
        return [Status.FAILED if _failed(answer) else names[answer] for answer in answers]

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Raises OSError if the server does not answer."""
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
        cursor, seen = 0, set[str]()
        while True:
            try:
                cursor, found = self._client.scan(cursor, pattern, _KEYS)
                now_s: int = self._client.time()[0]
            except RedisError as error:
                raise ConnectionError(f"{self._where.server}: {error}") from error
            names = [key.decode() if isinstance(key, bytes) else key for key in found]
            keys = [key for key in names if key not in seen]
            seen.update(keys)  # a scan may name a key twice
            sizes = self._ask(keys, lambda pipeline, at, keys=keys: pipeline.strlen(keys[at]))
            idle = self._ask(
                keys, lambda pipeline, at, keys=keys: pipeline.object("idletime", keys[at])
            )
            for key, size, seconds in zip(keys, sizes, idle, strict=True):
                if isinstance(size, int) and size:
                    used_at_s = float(now_s - seconds) if isinstance(seconds, int) else 0.0
                    yield Entry(key, size, used_at_s)
            if not cursor:
                return

    def stats(self) -> dict[str, int | float | str]:
        try:
            memory = self._client.info("memory")
            values: int = self._client.dbsize()
        except RedisError:
            return {}
        return {
            "values": values,
            "bytes": memory["used_memory"],
            "capacity_bytes": memory["maxmemory"],
            "eviction": memory["maxmemory_policy"],
        }

    def close(self) -> None:
        self._closed = True
        self._client.connection_pool.disconnect()

    def _ask(
        self,
        keys: Sequence[str],
        ask: Callable[..., object],
        values: Sequence[Value] = (),
        take: Callable[[Any, Value], Any] = lambda answer, _: answer,
    ) -> list[Any]:
        """An answer or an exception for each key, in pipelines of a bounded size. take: makes
        something of the answer at once. When the connection has failed nothing more is asked, as
        that would cost another time-out."""
        count = len(keys)
        some = (range(at, min(at + _KEYS, count)) for at in range(0, count, _KEYS))
        groups = batches(values, _BATCH) if values else some
        answers: list[Any] = []
        for group in groups:
            if self._closed:
                break
            try:
                with self._client.pipeline(transaction=False) as pipeline:
                    for at in group:
                        ask(pipeline, at)
                    found = pipeline.execute(raise_on_error=False)
            except (RedisError, OSError) as error:
                found = [error] * len(group)
            for at, answer in zip(group, found, strict=True):
                answers.append(take(answer, values[at] if values else ()))
            if isinstance(found[-1], NoConnection | NoAnswer | OSError):
                break
        return answers + [NoConnection("not asked")] * (len(keys) - len(answers))


def _failed(answer: Any) -> bool:
    """Whether there is no answer. Tells why."""
    if not isinstance(answer, Exception):
        return False
    text = str(answer) or type(answer).__name__
    text = re.sub(r"^Error -?\d+ connecting to \S+\. (.*)\.$", r"\1", text)
    tell("no answer in time" if isinstance(answer, NoAnswer) else text)
    return True


def _landed(answer: Any, value: Value) -> Any:
    if answer is None:
        return Status.MISSING
    if isinstance(answer, Exception):
        return answer
    if len(answer) != size_of(value):
        return Status.CORRUPT
    scatter(memoryview(answer), value)
    return Status.DONE


def _written(answer: Any) -> Status:
    if not _failed(answer):
        return Status.DONE if answer is True else Status.FAILED
    if isinstance(answer, ResponseError) and str(answer).startswith(("OOM", "command not allowed")):
        return Status.FULL
    return Status.FAILED
