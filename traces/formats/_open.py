"""Opens a trace (a file, a folder or standard input; plain, gzip or zstd) and finds its format."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import zstandard

from hicache.core.errors import CallerError, unknown
from hicache.files import packed_as

from . import _pages, native
from ._tables import guess, no_column
from .base import (
    MAX_LINE_BYTES,
    MAX_REQUESTS,
    NO_TRACE,
    About,
    Format,
    Head,
    Lines,
    LogOptions,
    Trace,
    shorten,
)
from .chat import CHAT
from .lines import LINES
from .logs import LOG_FORMATS

# The first one that recognises a file reads it.
FORMATS = {"native": native.FORMAT, **LINES, "chat": CHAT, **LOG_FORMATS}
LOG = "log"  # the format of a file whose columns the user names
NO_LOG = LogOptions()
# What a server prints of itself, and the flags with which it prints its requests.
_SERVERS = {
    "Avg prompt throughput: ": (
        "a vLLM server",
        "--enable-log-requests --enable-log-outputs and VLLM_LOGGING_LEVEL=DEBUG",
    ),
    "#new-token: ": (
        "an SGLang server",
        "--log-requests --log-requests-format json --log-requests-level 3",
    ),
}
_PACKED, _ENDS = (".gz", ".zst"), (".json", ".jsonl")
_LONGEST_MAGIC = 8  # bytes
_SHOWN_EVERY = 1000  # lines
# A kilobyte of zstd unpacks to 32 MB at most, and a window takes 128 MB at most.
_PIECE_BYTES = 1 << 10
_WINDOW_BYTES = 128 << 20

Shown: TypeAlias = Callable[[int], None] | None


def open_trace(
    path: str,
    format_name: str = "auto",
    limit: int = 0,
    block_size: int | None = None,
    tokenizer: str | None = None,
    log: LogOptions = NO_LOG,
    shown: Shown = None,
) -> Trace:
    """Reads and checks a trace. `-` is standard input. limit: most requests to read, 0 for all.
    block_size: tokens of a block; None if the file or its format says it. log: of a user's log.
    shown: is called with how many bytes of its files were read.

    Raises CallerError with the file and line of the first error.
    """
    about = About(block_size or 0, tokenizer, log, limit=limit)
    if path != "-" and os.path.isdir(path):
        paths = files_of(path)
        if not paths:
            raise CallerError(
                f"{path}: expected a trace file, or a folder of .json or .jsonl files, found a "
                "directory without any; name a file"
            )
        looked_at = _files(paths[:1])  # is open while it is held
        name, chosen = _format(path, next(looked_at), format_name, about)
        if not chosen.folder:
            raise CallerError(
                f"{path}: expected a trace file, found a directory of {name} files; name a file"
            )
        paths = [one for one in paths if _plain(Path(one)).endswith(chosen.folder)]
        return _read(path, name, chosen, _files(paths, shown), about)
    files = _files(["stdin" if path == "-" else path], shown, path == "-")
    lines = next(files)
    return parse(lines, format_name, limit, about)


def parse(
    lines: Lines, format_name: str = "auto", limit: int = 0, about: About | None = None
) -> Trace:
    """The trace in `lines`."""
    about = about or About(limit=limit)
    name, chosen = _format(lines.path, lines, format_name, about)
    return _read(lines.path, name, chosen, iter([lines]), about)


def _read(path: str, name: str, chosen: Format, files: Iterator[Lines], about: About) -> Trace:
    rows = chosen.rows(files, about)
    return _pages.read(rows, about, path, name, about.limit or MAX_REQUESTS)


def _format(path: str, lines: Lines, name: str, about: About) -> tuple[str, Format]:
    """The format of a file. Raises CallerError if it has none, or is not of the one named."""
    if name not in ("auto", *FORMATS):
        raise unknown("format", name, [*FORMATS])
    head = Head(lines)
    if about.log.columns:
        if name not in ("auto", LOG):
            raise CallerError(f"--columns: expected a log, found --format {name}; leave either out")
        return LOG, FORMATS[LOG]
    if name == "auto":
        found = (one for one, entry in FORMATS.items() if entry.recognises(head))
        name = next(found, "") or _unknown(lines, head)
    elif not FORMATS[name].recognises(head):
        lines.wrong(f"the first line of a {name} trace", _shown(lines), NO_TRACE)
    if about.log.words and not FORMATS[name].is_log:
        raise CallerError(
            f"{about.log.words[0]}: expected a log, found a trace of the format {name}; "
            "leave it out"
        )
    return name, FORMATS[name]


def _unknown(lines: Lines, head: Head) -> str:
    """Raises CallerError that says what an unknown file may be."""
    for mark, (server, flags) in _SERVERS.items():
        if mark in head.text:
            found = f"the output of {server}, which has none"
            lines.wrong("requests", found, f"start it with {flags}")
    if head.columns or guess(head.names):
        no_column(lines, "the columns of a known format", head.names)
    expected = "the first line of a known format (hash_ids, or a format header)"
    lines.wrong(expected, _shown(lines), NO_TRACE)


def _shown(lines: Lines) -> str:
    """The names on the first line. Raises CallerError if it is no JSON object."""
    names = [*next(lines.records(dict[str, Any]))]
    return shorten(", ".join(names[:5])) or "no fields"


def bytes_of(path: str) -> int:
    """How many bytes the files of a trace have, packed as they are; 0 if nobody knows."""
    paths = files_of(path) if os.path.isdir(path) else [path] * os.path.isfile(path)
    return sum(map(os.path.getsize, paths))


def content_digest(path: str) -> str:
    """The SHA-256 of what a trace says: of its unpacked file, or of the files of its folder in
    their order. Where it lies, and how it is packed, do not count."""
    is_folder = os.path.isdir(path)
    whole = hashlib.sha256()
    for file in files_of(path) if is_folder else [path]:
        one = hashlib.sha256()
        with opened(file) as stream:
            for line in raw_lines(file, stream):
                one.update(line)
        whole.update(one.digest())
    return whole.hexdigest()


def files_of(path: str) -> list[str]:
    """The files that a folder of traces may be read from, in their order."""
    try:
        return sorted(str(file) for file in Path(path).iterdir() if _plain(file).endswith(_ENDS))
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable folder, found: {error.strerror}; check the path"
        ) from None


def _plain(file: Path) -> str:
    """The name of a file without the ending of a packed one; "" for one that is hidden."""
    name = file.name
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return "" if name.startswith(".") else name


def _files(paths: list[str], shown: Shown = None, is_stdin: bool = False) -> Iterator[Lines]:
    before = 0
    for path in paths:
        with opened("-" if is_stdin else path) as stream:
            lines = raw_lines(path, stream)
            if shown is not None and not is_stdin:
                lines = _watched(lines, stream, shown, before)
                before += os.path.getsize(path)
            packed = packed_as(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
            plain = not is_stdin and not packed and os.path.isfile(path)
            yield Lines(path, lines, path if plain else None)


def _watched(
    lines: Iterator[bytes], stream: BufferedReader, shown: Callable[[int], None], before: int
) -> Iterator[bytes]:
    """The lines of a file. before: bytes of the files that were read."""
    for number, line in enumerate(lines):
        if not number % _SHOWN_EVERY:
            shown(before + stream.tell())
        yield line


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
