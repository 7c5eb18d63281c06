"""Opens a trace (plain or gzip, a file or standard input) and detects its format.

Does not parse requests; each format in traces/formats does.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, cast

from hicache.core import registry
from hicache.core.errors import CallerError
from hicache.files import packed_as

from .base import MAX_LINE_BYTES, MAX_REQUESTS, NO_TRACE, Lines, Trace, shorten

FORMATS = "traces.formats"
_LONGEST_MAGIC = 8  # bytes


def open_trace(path: str, format_name: str = "auto", limit: int = 0) -> Trace:
    """Reads and checks a trace. `-` is standard input. limit: most requests to read, 0 for all.

    Raises CallerError with the file and line of the first error.
    """
    if format_name != "auto":
        registry.load(FORMATS, format_name)
    with _opened(path) as stream:
        name = "stdin" if path == "-" else path
        return parse(Lines(name, _raw_lines(name, stream)), format_name, limit)


def parse(lines: Lines, format_name: str = "auto", limit: int = 0) -> Trace:
    """The trace in `lines`. "auto" takes the format that recognises the first line."""
    if format_name == "auto":
        for name in registry.names(FORMATS):
            if registry.load(FORMATS, name).recognises(lines.first):
                format_name = name
                break
        else:
            lines.number = 1
            lines.wrong(
                "the first line of a known format (hash_ids, or a format header)",
                _fields(lines),
                NO_TRACE,
            )
    entry = registry.load(FORMATS, format_name)
    if not entry.recognises(lines.first):
        lines.wrong(f"the first line of a {format_name} trace", _fields(lines), NO_TRACE)
    return cast(Trace, entry.read(lines, limit or MAX_REQUESTS))


def _fields(lines: Lines) -> str:
    return shorten(", ".join(list(lines.first)[:5])) or "no fields"


def described() -> str:
    """All formats with their summaries, for the help of a command."""
    names = registry.names(FORMATS)
    return "; ".join(f"{name}: {registry.load(FORMATS, name).SUMMARY}" for name in names)


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    if path == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except IsADirectoryError:
        raise CallerError(
            f"{path}: expected a trace file, found a directory; name a file"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CallerError(
            f"{path}: expected a readable trace file, found: {reason}; check the path"
        ) from None
    with stream:
        yield stream


def _raw_lines(path: str, stream: BufferedReader) -> Iterator[bytes]:
    """Yields the lines of the file, each cut after MAX_LINE_BYTES + 1 bytes."""
    source: IO[bytes] = stream
    packed = packed_as(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
    if packed == "gzip":
        source = cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    elif packed:
        raise CallerError(
            f"{path}: expected a trace, plain or gzip, found a file packed with {packed}; "
            "unpack it first"
        )
    number = 0
    try:
        while line := source.readline(MAX_LINE_BYTES + 1):
            number += 1
            yield line
    except EOFError:
        raise CallerError(
            f"{path}:{number + 1}: expected the end of the gzip stream, found a truncated file; "
            "copy it again"
        ) from None
    except (OSError, zlib.error) as error:
        raise CallerError(
            f"{path}:{number + 1}: expected readable data, found: {error}; copy the file again"
        ) from None
