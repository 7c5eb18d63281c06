"""Opens a file or standard input and yields its lines, unpacked if it is gzip or zstd.

Does not know what is in the lines.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, cast

import zstandard

from hicache.core.errors import CallerError
from hicache.files import packed_as

from .base import MAX_LINE_BYTES

_LONGEST_MAGIC = 8  # bytes
# A kilobyte of zstd unpacks to 32 MB at most, and a window takes 128 MB at most.
_PIECE_BYTES = 1 << 10
_WINDOW_BYTES = 128 << 20


@contextmanager
def opened(path: str) -> Iterator[BufferedReader]:
    """The bytes of a file; `-` is standard input."""
    if path == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CallerError(
            f"{path}: expected a readable trace file, found: {reason}; check the path"
        ) from None
    with stream:
        yield stream


def raw_lines(path: str, stream: BufferedReader) -> Iterator[bytes]:
    """Yields the lines of the file, each cut after MAX_LINE_BYTES + 1 bytes."""
    source: IO[bytes] = stream
    packed = packed_as(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
    if packed == "gzip":
        source = cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    elif packed == "zstd":
        source = io.BufferedReader(_Zstd(stream), 1 << 20)
    elif packed:
        raise CallerError(
            f"{path}: expected a trace, plain, gzip or zstd, found a file packed with {packed}; "
            "unpack it first"
        )
    number = 0
    try:
        while line := source.readline(MAX_LINE_BYTES + 1):
            number += 1
            yield line
    except EOFError:
        raise CallerError(
            f"{path}:{number + 1}: expected the end of the {packed} stream, found a truncated "
            "file; copy it again"
        ) from None
    except (OSError, zlib.error, zstandard.ZstdError) as error:
        raise CallerError(
            f"{path}:{number + 1}: expected readable data, found: {error}; copy the file again"
        ) from None


class _Zstd(io.RawIOBase):
    """The unpacked bytes of zstd frames. Raises EOFError at the end of a truncated file."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self._frames = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._frame = self._frames.decompressobj()
        self._begun = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            packed = self._stream.read(_PIECE_BYTES)
            if not packed:
                if self._begun:
                    raise EOFError
                return 0
            self._ready = memoryview(self._unpacked(packed))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _unpacked(self, packed: bytes) -> bytes:
        parts = []
        while packed:
            self._begun = True
            parts.append(self._frame.decompress(packed))
            if not self._frame.eof:
                break
            packed = self._frame.unused_data
            self._frame, self._begun = self._frames.decompressobj(), False
        return b"".join(parts)
