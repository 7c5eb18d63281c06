"""Uploads to signed URLs of one server, over kept connections whose time-out means no progress.

The client of all other requests (`s3`) has one time-out for the whole of what it sends.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..base import Value, size_of
from ..sockets import Plain, Secure


class _Http(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock = Plain.of(self.sock)


class Uploads:
    """Used by several threads at a time. Follows the proxies of the environment."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context()
        self._tls.sslsocket_class = Secure
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
