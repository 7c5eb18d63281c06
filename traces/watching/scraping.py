"""Reads the metrics page of a server: one GET of one URL, and the text format of Prometheus.

What a server answers is untrusted. The answer has a bounded size and must be there in a bounded
time, however slowly it comes. No redirect is followed and no proxy is asked. Text that is not in
the format is one line: its number, what was expected and what was found. Does not know the names of
metrics (see names).
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

MOST_BYTES = 16 << 20
TIMEOUT_S = 10.0
_PATH = "/metrics"
_SHOWN = 60
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN", re.ASCII)
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*+)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?", re.ASCII)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_]\w*+)="((?:[^"\\]|\\.)*+)"[ \t]*(?:,|$)', re.ASCII)
_TYPE = re.compile(r"#[ \t]+TYPE[ \t]+([a-zA-Z_:][\w:]*+)[ \t]+(counter|gauge|histogram)", re.ASCII)
_ESCAPED = re.compile(r"\\(.)")

Labels: TypeAlias = tuple[tuple[str, str], ...]
# The values of each metric, by its labels in the order of their names; none for a metric that is
# declared and has counted nothing.
Scrape: TypeAlias = Mapping[str, Mapping[Labels, float]]


class Unread(Exception):
    """There is no scrape; the text says what was expected and found."""


class Url(NamedTuple):
    """Where the metrics are. host: without brackets."""

    tls: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def url_of(text: str) -> Url:
    """The URL, with /metrics where it has no path. Raises ValueError with what was expected."""
    expected = f"expected http://HOST:PORT, found {text[:_SHOWN]!a}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(expected) from None
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(expected)
    if parts.username is not None or parts.fragment:
        raise ValueError(
            "expected http://HOST:PORT, found a user or password before @, or a part after #; "
            "leave it out"
        )
    tls = parts.scheme == "https"
    path = parts.path if parts.path not in ("", "/") else _PATH
    query = f"?{parts.query}" if parts.query else ""
    return Url(tls, parts.hostname, port or (443 if tls else 80), path + query)


def scrape(url: Url) -> Scrape:
    """What the server says now. Raises Unread."""
    return parsed(_text(url, TIMEOUT_S))


def _text(url: Url, timeout_s: float) -> str:
    kind = HTTPSConnection if url.tls else HTTPConnection
    connection = kind(url.host, url.port, timeout=timeout_s)
    late = threading.Event()
    try:
        connection.connect()
        cutting = threading.Timer(timeout_s, _cut, (connection.sock, late))
        cutting.daemon = True
        cutting.start()
        try:
            connection.request("GET", url.path, headers={"Accept": "text/plain"})
            with connection.getresponse() as response:
                content = _content(response)
                whole = not response.length
        finally:
            cutting.cancel()
    except (OSError, HTTPException, ValueError) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise Unread(f"expected an answer within {timeout_s:g} s, found none") from None
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        found = reason[:_SHOWN] or type(error).__name__
        raise Unread(f"expected an answer over HTTP, found: {found}") from None
    finally:
        connection.close()
    if late.is_set():
        raise Unread(f"expected a whole answer within {timeout_s:g} s, found a part")
    if not whole:
        raise Unread("expected a whole answer, found a part")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unread(f"expected UTF-8 text, found byte {content[error.start]:#04x}") from None


def _cut(sock: socket.socket, late: threading.Event) -> None:
    """Ends what waits for the socket."""
    late.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _content(response: HTTPResponse) -> bytes:
    if 300 <= response.status < 400:
        to = ascii((response.getheader("Location") or "nowhere")[:_SHOWN])
        raise Unread(f"expected metrics, found a redirect to {to}; name the URL that has them")
    if response.status != 200:
        raise Unread(f"expected metrics, found HTTP status {response.status}")
    content = response.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Unread(f"expected at most {MOST_BYTES >> 20} MiB of metrics, found more")
    return content


def parsed(text: str) -> Scrape:
    """The samples of a page. Raises Unread with the first line that is none."""
    found: dict[str, dict[Labels, float]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip(" \t\r")
        if not line or line.startswith("#"):
            if declared := _TYPE.fullmatch(line):
                found.setdefault(declared[1] + "_bucket" * (declared[2] == "histogram"), {})
            continue
        match = _SAMPLE.fullmatch(line)
        labels = None if match is None else _labels(match[2] or "")
        if match is None or labels is None or not _NUMBER.fullmatch(match[3]):
            raise _wrong(number, 'NAME{LABEL="VALUE",...} NUMBER', line)
        values = found.setdefault(match[1], {})
        if labels in values:
            raise _wrong(number, "each sample once", line)
        values[labels] = float(match[3])
    return found


def _wrong(number: int, expected: str, line: str) -> Unread:
    shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    return Unread(f"line {number}: expected {expected}, found {shown!a}")


def _labels(text: str) -> Labels | None:
    """The labels within the braces, by name; None if the text is none."""
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _LABEL.match(text, place)
        if match is None or match[1] in found:
            return None
        found[match[1]] = _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], match[2])
        place = match.end()
    return tuple(sorted(found.items()))
