"""S3 and what speaks its protocol: one object for each value, many requests at a time.

    s3://BUCKET?endpoint=URL&region=NAME&access_key=KEY&secret_key=SECRET&prefix=FOLDER/

Without keys in the address the usual variables of the environment are used (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN); with neither, an endpoint is asked without keys. obstore
signs and lists. Bytes move over connections of our own, since its time-outs are for a whole value.
Nothing is tried again, and after a request that the server did not answer, the rest of its batch is
not sent: an outage costs one time-out for a batch.
"""

import os
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from hicache.clock import HOUR
from hicache.core.errors import CallerError

from ..address import Location, locate
from ..base import Address, Entry, Status, Storage, StorageOptions, Value, size_of, tell
from ..calls import PlainSocket, SecureSocket

SUMMARY = "S3 and compatible stores: s3://BUCKET?endpoint=URL&region=NAME"

_FORM = "s3://BUCKET?endpoint=URL"
_SETTINGS = {  # of obstore, by their names in an address
    "endpoint": "endpoint",
    "region": "region",
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
}
_REQUESTS = 16  # at a time, for each batch
_BATCHES = 8  # at a time; further ones wait
_MARK = "hicache-probe"  # is asked for once, and never written
_FULL = re.compile(r"^507|<Code>(?:QuotaExceeded|XMinioStorageFull)</Code>")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MOST_TEXT = 4096  # bytes of a refusal


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Ask the bucket for an object. Raises CallerError if it is not there for us."""
    where = locate(address, port=0, known=(*_SETTINGS, "prefix", "requests"), form=_FORM)
    if not _BUCKET.fullmatch(where.host) or where.path.strip("/"):
        raise CallerError(
            f"storage: expected {_FORM} with a bucket of 3 to 63 of a-z, 0-9, '.' and '-', found "
            f"{(where.host + where.path)[:80]!a}"
        )
    endpoint = where.query.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise CallerError(
            f"storage: expected endpoint=http://HOST:PORT or https://..., found {endpoint[:80]!a}"
        )
    try:
        store = S3(where, options.timeout_s)
        refusal = store.refusal()
    except (BaseError, ValueError, TypeError) as error:
        refusal = " ".join(str(error).split())[:120]
    if refusal:
        raise CallerError(
            f"storage: expected the bucket {where.host} at {endpoint or 'AWS'}, found {refusal}; "
            "check endpoint, region and keys, or start one to try out (docs/storage_backends.md)"
        )
    return store


class Refused(OSError):
    """The server's answer, its status first."""


class S3(Storage):
    """A bucket, used by several threads at a time."""

    def __init__(self, where: Location, timeout_s: float) -> None:
        query, time_out = where.query, f"{max(1, round(timeout_s * 1000))}ms"
        endpoint = query.get("endpoint", "")
        self._url = f"{endpoint.rstrip('/')}/{where.host}/"
        self._signs = "access_key" in query or "AWS_ACCESS_KEY_ID" in os.environ or not endpoint
        self._store = S3Store(
            where.host,
            **{theirs: query[ours] for ours, theirs in _SETTINGS.items() if query.get(ours)},  # type: ignore[arg-type]
            virtual_hosted_style_request=False,
            skip_signature=not self._signs,
            client_options={
                "allow_http": endpoint.startswith("http:"),
                "read_timeout": time_out,
                "connect_timeout": time_out,
            },
            retry_config={"max_retries": 0},
        )
        self._prefix = query.get("prefix", "").lstrip("/")  # obstore lets it begin with no slash
        self._requests = max(1, where.number("requests", _REQUESTS))
        self._threads = ThreadPoolExecutor(_BATCHES * self._requests, "s3")
        self._connections = Connections(timeout_s)

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        known = {Status.DONE: True, Status.MISSING: False}
        return [known.get(status) for status in self._batch("HEAD", keys)]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._batch("GET", keys, values)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._batch("PUT", keys, values)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        """`DONE` also where there was none: S3 answers the same."""
        return self._batch("DELETE", keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        """S3 lists folders, so the listing begins at the last slash of the prefix."""
        start = self._prefix + prefix
        try:
            for chunk in obstore.list(self._store, start.rpartition("/")[0] or None):
                for item in chunk:
                    if item["path"].startswith(start):
                        key = item["path"].removeprefix(self._prefix)
                        yield Entry(key, item["size"], item["last_modified"].timestamp())
        except BaseError as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        self._connections.interrupt()
        self._threads.shutdown()  # nothing touches a caller's memory any more
        self._connections.close()

    def refusal(self) -> str:
        """What is wrong with the bucket; empty if nothing."""
        try:
            self._connections.request("GET", self._urls("GET", [_MARK])[0], ())
        except (OSError, HTTPException) as error:
            text = str(error)
            if text.startswith("404"):
                return "no such bucket" if "NoSuchBucket" in text else ""
            denied = text.startswith(("401", "403"))
            return "that the access key is refused" if denied else _reason(error)
        return ""

    def _batch(
        self, method: str, keys: Sequence[str], values: Sequence[Value] = ()
    ) -> list[Status]:
        """What became of each request. They are sent in some threads, each one after the other:
        those of equal keys in one, since a server may fail the first of two that overtake."""
        turns = {key: turn for turn, key in enumerate(dict.fromkeys(keys))}
        status: list[Status | Exception] = [ConnectionError("closed")] * len(keys)
        lost: list[Exception] = []

        def send(thread: int) -> None:
            for at in [at for at, key in enumerate(keys) if turns[key] % self._requests == thread]:
                try:
                    if lost:
                        raise lost[0]
                    value = values[at] if values else ()
                    status[at] = self._connections.request(method, urls[at], value)
                except (OSError, HTTPException) as error:
                    status[at] = error
                    if not isinstance(error, Refused):
                        lost.append(error)

        try:
            urls = self._urls(method, keys)
            some = [copy_context() for _ in range(min(self._requests, len(turns)))]
            list(self._threads.map(lambda item, at: item.run(send, at), some, range(len(some))))
        except (BaseError, RuntimeError) as error:  # no key to sign with, or it was closed
            tell(error)
        return [_status(item) for item in status]

    def _urls(self, method: str, keys: Sequence[str]) -> list[str]:
        paths = [self._prefix + key for key in keys]
        if not self._signs:
            return [self._url + quote(path) for path in paths]
        signed: Any = method
        return list(obstore.sign(self._store, signed, paths, HOUR)) if paths else []


class _Http(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock = PlainSocket.of(self.sock)


class Connections:
    """Each thread has one, which is kept as long as the server keeps it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._mine, self._closed = timeout_s, threading.local(), False
        self._tls = ssl.create_default_context()
        self._tls.sslsocket_class = SecureSocket
        self._all: list[HTTPConnection] = []

    def request(self, method: str, url: str, value: Value) -> Status:
        """Send a value, or receive it. Raises Refused, or another OSError or HTTPException if
        there is no answer."""
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}".rstrip("?")
        connection = self._of_thread(parts)
        length = {"Content-Length": str(size_of(value))} if method == "PUT" else {}
        while True:
            if self._closed:
                raise ConnectionError("closed")
            kept, keep = connection.sock is not None, False
            try:
                connection.request(method, target, iter(value) if length else None, length)
                answer = connection.getresponse()
                if answer.status < 300:
                    status = _receive(answer, value) if method == "GET" else Status.DONE
                    keep = answer.isclosed() or not answer.read(1)
                    return status
                text = answer.read(_MOST_TEXT).decode(errors="replace")
                keep = answer.isclosed()
            except ConnectionError:
                if not kept:
                    raise
                continue  # the server had ended it meanwhile
            finally:
                if not keep:
                    connection.close()  # the next request connects
            raise Refused(f"{answer.status} {answer.reason}: {text}")

    def interrupt(self) -> None:
        """What is under way raises ConnectionError."""
        self._closed = True
        for item in self._all:
            if item.sock is not None:
                with suppress(OSError):
                    item.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Nothing is under way."""
        for item in self._all:
            item.close()

    def _of_thread(self, parts: SplitResult) -> HTTPConnection:
        made: HTTPConnection | None = getattr(self._mine, "connection", None)
        if made is None:
            made = _Http(parts.netloc, timeout=self._timeout_s)
            if parts.scheme == "https":
                made = HTTPSConnection(parts.netloc, timeout=self._timeout_s, context=self._tls)
            self._mine.connection = made
            self._all.append(made)
        return made


def _receive(answer: HTTPResponse, value: Value) -> Status:
    if answer.length not in (None, size_of(value)):
        return Status.CORRUPT
    for buffer in value:
        left = buffer.cast("B")
        while left:
            count = answer.readinto(left)
            if not count and answer.chunked:
                return Status.CORRUPT
            if not count:
                raise ConnectionError("the answer ended early")
            left = left[count:]
    return Status.CORRUPT if answer.length is None and answer.read(1) else Status.DONE


def _status(answer: Status | Exception) -> Status:
    if isinstance(answer, Status):
        return answer
    text = str(answer) if isinstance(answer, Refused) else ""
    if text.startswith("404"):
        return Status.MISSING
    tell(_reason(answer))
    return Status.FULL if _FULL.search(text) else Status.FAILED


def _reason(error: Exception) -> str:
    """What went wrong."""
    return str(error).partition(":")[0] if isinstance(error, Refused) else "no answer"
