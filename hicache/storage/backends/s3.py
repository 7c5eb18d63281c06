"""S3 and what speaks its protocol: one object for each value, many requests at a time (obstore).

    s3://BUCKET?endpoint=URL&region=NAME&access_key=KEY&secret_key=SECRET&prefix=FOLDER/

Without keys in the address the usual variables of the environment are used (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN); with neither, an endpoint is asked without keys. Requests
run in an event loop on a thread of its own, writes beside it (`Uploads`): obstore has one time-out
for the whole of what it sends. Nothing is tried
again, and after a request that the server did not answer, the rest of its batch is not sent: an
outage costs one time-out for a batch.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar
from urllib.parse import SplitResult, quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from hicache.clock import HOUR
from hicache.core.errors import CallerError

from ..address import Location, locate, refuse_options
from ..base import (
    Address,
    Entry,
    Status,
    Storage,
    StorageOptions,
    Value,
    scatter,
    size_of,
    step,
    tell,
)
from ..calls import PlainSocket, SecureSocket

SUMMARY = "S3 and compatible stores: s3://BUCKET?endpoint=URL&region=NAME"

_FORM = "s3://BUCKET?endpoint=URL"
_QUERY = ("endpoint", "region", "access_key", "secret_key", "prefix", "requests")
_REQUESTS = 16  # at a time, for each batch
_BATCHES = 8  # that may write at a time; further ones wait
_MARK = "hicache-probe"  # is asked for once, and never written
_ERRORS = (BaseError, OSError, ValueError, HTTPException)
_LOST = re.compile("error sending request|request or response body error")
_MOST = "86400s"  # that a request may take, with progress
_FULL = re.compile(r"status code: 507|<Code>(?:QuotaExceeded|XMinioStorageFull)</Code>")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

T = TypeVar("T")


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Ask the bucket for an object. Raises CallerError if it is not there for us."""
    where = locate(address, port=0, known=_QUERY, form=_FORM)
    refuse_options("s3", options, "bound it on the server, or with a rule of the bucket")
    if not _BUCKET.fullmatch(where.host) or where.path.strip("/"):
        raise CallerError(
            f"storage: expected {_FORM} with a bucket of 3 to 63 of a-z, 0-9, '.' and '-', found "
            f"{(where.host + where.path)[:80]!a}"
        )
    store = _client(where, options.timeout_s)
    try:
        obstore.get(store, _prefix(where) + _MARK)
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise _refusal(where, "no such bucket") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _refusal(where, "that the access key is refused") from error
    except _ERRORS as error:
        raise _refusal(where, _reason(error)) from error
    return S3(store, where, Uploads(options.timeout_s))


def _prefix(where: Location) -> str:
    """Of the names of objects, which obstore lets begin with no slash."""
    return where.query.get("prefix", "").lstrip("/")


def _client(where: Location, timeout_s: float) -> S3Store:
    settings = {
        "endpoint": where.query.get("endpoint"),
        "region": where.query.get("region"),
        "access_key_id": where.query.get("access_key"),
        "secret_access_key": where.query.get("secret_key"),
    }
    given = {name: text for name, text in settings.items() if text}
    endpoint = where.query.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise CallerError(
            f"storage: expected endpoint=http://HOST:PORT or https://..., found {endpoint[:80]!a}"
        )
    time_out = f"{max(1, round(timeout_s * 1000))}ms"
    try:
        return S3Store(
            where.host,
            **given,  # type: ignore[arg-type]
            virtual_hosted_style_request=False,
            skip_signature=not _signs(where),
            client_options={
                "allow_http": endpoint.startswith("http:"),
                "timeout": _MOST,
                "read_timeout": time_out,
                "connect_timeout": time_out,
            },
            retry_config={"max_retries": 0},
        )
    except (BaseError, ValueError, TypeError) as error:
        raise _refusal(where, _reason(error)) from error


def _signs(where: Location) -> bool:
    given = "access_key" in where.query or "AWS_ACCESS_KEY_ID" in os.environ
    return given or not where.query.get("endpoint")


def _refusal(where: Location, found: str) -> CallerError:
    endpoint = where.query.get("endpoint", "AWS")
    return CallerError(
        f"storage: expected the bucket {where.host} at {endpoint}, found {found}; check endpoint, "
        "region and keys, or start one to try out (docs/storage_backends.md)"
    )


def _reason(error: Exception) -> str:
    """What went wrong, without the layers of a client's message."""
    text = " ".join(str(error).split())
    if _is_lost(error):
        return "no answer"
    found = re.search(r"status code: ([\w ]+)|<Message>([^<]*)", text)
    return (found[1] or found[2]) if found else text[:120]


def _is_lost(error: Exception) -> bool:
    """Whether the server did not answer: asking for more would cost another time-out."""
    return isinstance(error, ConnectionError | TimeoutError) or bool(_LOST.search(str(error)))


class S3(Storage):
    """A bucket, used by several threads at a time."""

    def __init__(self, store: S3Store, where: Location, uploads: Uploads) -> None:
        self._store, self._where, self._uploads = store, where, uploads
        self._prefix = _prefix(where)
        self._requests = max(1, where.number("requests", _REQUESTS))
        self._threads = ThreadPoolExecutor(_BATCHES * self._requests, "s3-upload")
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(self._threads)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3", daemon=True)
        self._thread.start()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        async def head(index: int) -> bool:
            await obstore.head_async(self._store, self._prefix + keys[index])
            return True

        answers = self._batch(len(keys), head)
        return [_is_there(answer) for answer in answers]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        async def get(index: int) -> Status:
            answer = await obstore.get_async(self._store, self._prefix + keys[index])
            if answer.meta["size"] != size_of(values[index]):
                return Status.CORRUPT
            left: Value = values[index]
            async for content in answer.stream(min_chunk_size=1):
                left = scatter(memoryview(content), left)
                step()
            return Status.CORRUPT if size_of(left) else Status.DONE

        return [_status(answer) for answer in self._batch(len(keys), get)]

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        async def put(index: int) -> Status:
            url = await self._upload_url(self._prefix + keys[index])
            await asyncio.to_thread(self._uploads.put, url, values[index])
            return Status.DONE

        return [_status(answer) for answer in self._batch(len(keys), put)]

    def delete(self, keys: Sequence[str]) -> list[Status]:
        async def delete(index: int) -> Status:
            await obstore.delete_async(self._store, self._prefix + keys[index])
            return Status.DONE  # S3 does not say whether there was one

        return [_status(answer) for answer in self._batch(len(keys), delete)]

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Raises OSError if the server does not answer. S3 lists folders, so the listing begins at
        the last slash of the prefix."""
        start = self._prefix + prefix
        folder = start.rpartition("/")[0] or None
        try:
            for chunk in obstore.list(self._store, folder):
                for item in chunk:
                    if item["path"].startswith(start):
                        key = item["path"].removeprefix(self._prefix)
                        yield Entry(key, item["size"], item["last_modified"].timestamp())
        except BaseError as error:
            raise ConnectionError(_reason(error)) from error

    def stats(self) -> dict[str, int | float | str]:
        return {}  # counting objects means listing all of them

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join()
        self._loop.close()

    def _batch(self, count: int, request: Callable[[int], Awaitable[T]]) -> list[T | Exception]:
        """The answer or the error of each request."""
        with self._lock:
            if self._closed:
                return [ConnectionError("closed") for _ in range(count)]
            running = asyncio.run_coroutine_threadsafe(self._gather(count, request), self._loop)
        try:
            return running.result()
        except CancelledError:
            return [ConnectionError("closed") for _ in range(count)]

    async def _gather(
        self, count: int, request: Callable[[int], Awaitable[T]]
    ) -> list[T | Exception]:
        slots = asyncio.Semaphore(self._requests)
        lost: list[Exception] = []

        async def one(index: int) -> T | Exception:
            async with slots:
                if lost:
                    return lost[0]
                try:
                    return await request(index)
                except FileNotFoundError as error:
                    return error
                except _ERRORS as error:
                    if _is_lost(error):
                        lost.append(error)
                    return error

        return await asyncio.gather(*(one(index) for index in range(count)))

    async def _upload_url(self, path: str) -> str:
        if _signs(self._where):
            return await obstore.sign_async(self._store, "PUT", path, HOUR)
        return f"{self._where.query['endpoint'].rstrip('/')}/{self._where.host}/{quote(path)}"

    async def _end(self) -> None:
        """Cancel what is under way, wait until it has ended, and stop the loop."""
        self._uploads.close()
        self._threads.shutdown()  # nothing touches a caller's memory any more
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()


class _Http(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock = PlainSocket.of(self.sock)


class Uploads:
    """Used by several threads at a time. Follows the proxies of the environment."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context()
        self._tls.sslsocket_class = SecureSocket
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = False

    def put(self, url: str, value: Value) -> None:
        """Raises OSError, whose text has the status and the body of a refusal, or HTTPException."""
        parts = urlsplit(url)
        proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
        plainly = proxy is not None and parts.scheme == "http"
        target = url if plainly else f"{parts.path}?{parts.query}".rstrip("?")
        kept = True
        while kept:
            with self._lock:
                kept = bool(self._idle)
                made = self._idle.pop() if kept else self._connection(parts, proxy)
                self._busy.add(made)
            try:
                made.request("PUT", target, iter(value), {"Content-Length": str(size_of(value))})
                answer = made.getresponse()
                text = answer.read().decode(errors="replace")
            except ConnectionError:
                self._done(made, keep=False)
                if not kept or self._closed:
                    raise
                continue  # the server had ended it meanwhile
            except (OSError, HTTPException):
                self._done(made, keep=False)
                raise
            self._done(made, keep=not answer.will_close)
            if answer.status >= 300:
                raise OSError(f"status code: {answer.status} {answer.reason}: {text}")
            return

    def close(self) -> None:
        """End what is under way: it raises ConnectionError."""
        with self._lock:
            self._closed = True
            for one in self._idle:
                one.close()
            for one in self._busy:
                if one.sock is not None:
                    with suppress(OSError):
                        one.sock.shutdown(socket.SHUT_RDWR)

    def _connection(self, parts: SplitResult, proxy: str | None) -> HTTPConnection:
        """A new one, which connects when it is used. Raises ConnectionError after `close`."""
        if self._closed:
            raise ConnectionError("closed")
        server = parts.netloc
        if proxy is not None:
            server = urlsplit(proxy if "//" in proxy else f"//{proxy}").netloc.rpartition("@")[2]
        if parts.scheme == "http":
            return _Http(server, timeout=self._timeout_s)
        made = HTTPSConnection(server, timeout=self._timeout_s, context=self._tls)
        if proxy is not None:
            made.set_tunnel(parts.netloc)
        return made

    def _done(self, connection: HTTPConnection, keep: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if keep and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()


def _is_there(answer: bool | Exception) -> bool | None:
    """None: there is no answer."""
    if isinstance(answer, FileNotFoundError):
        return False
    if isinstance(answer, Exception):
        tell(_reason(answer))
        return None
    return answer


def _status(answer: Status | Exception) -> Status:
    if isinstance(answer, FileNotFoundError):
        return Status.MISSING
    if isinstance(answer, Exception):
        tell(_reason(answer))
        full = _FULL.search(str(answer))
        return Status.FULL if full else Status.FAILED
    return answer
