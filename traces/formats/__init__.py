"""Opens a trace (a file, a folder or standard input; plain, gzip or zstd) and finds its format."""

import hashlib
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn, cast

import zstandard

from hicache.core.errors import CallerError
from hicache.files import packed_as

from . import native
from .base import Trace
from .lines import CHAT, LINES
from .reading import MAX_LINE_BYTES, NO_TRACE, About, Format, Head, Lines, read, shorten
from .tables import LOGS, guess, no_column

# The first one that recognises a file reads it.
FORMATS = {"native": native.FORMAT, **LINES, **LOGS, "chat": CHAT}
# What a server prints of itself, and the flags with which it prints its requests.
_SERVERS = {
    "Avg prompt throughput: ": "vLLM; start it with --enable-log-requests --enable-log-outputs and "
    "VLLM_LOGGING_LEVEL=DEBUG",
    "#new-token: ": "SGLang; start it with --log-requests --log-requests-format json "
    "--log-requests-level 3",
}
_OF_TRACE = re.compile(r"[^.].*\.jsonl?(\.gz|\.zst)?", re.DOTALL)  # a file in a folder; not hidden
_LONGEST_MAGIC = 8  # bytes
_PIECE_BYTES = 1 << 20
# A kilobyte of zstd unpacks to 32 MB at most, and a window takes 128 MB at most.
_PACKED_BYTES = 1 << 10
_WINDOW_BYTES = 128 << 20


def open_trace(path: str, format_name: str = "auto", about: About | None = None) -> Trace:
    """Reads and checks a trace. `-` is standard input. about: the options of the reader. Raises
    CallerError with the file and line of the first error."""
    about = about or About()
    if path == "-" or not os.path.isdir(path):
        files = _files([path])  # the file is open while they are held
        return parse(next(files), format_name, about)
    paths = files_of(path)
    looked_at = _files(paths[:1])
    name, chosen = _format(next(looked_at), format_name, about) if paths else ("no", None)
    if chosen is None or not chosen.folder:
        raise CallerError(
            f"{path}: expected a trace file, or a folder of JSON files that are one trace, found "
            f"a directory of {name} files; name a file"
        )
    return read(_files(paths), chosen, name, path, about)


def parse(lines: Lines, format_name: str = "auto", about: About | None = None) -> Trace:
    """The trace in `lines`."""
    about = about or About()
    name, chosen = _format(lines, format_name, about)
    return read([lines], chosen, name, lines.path, about)


def _format(lines: Lines, name: str, about: About) -> tuple[str, Format]:
    """The format of a file. Raises CallerError if it has none, or is not of the one named."""
    head = Head(lines)
    if about.columns:
        if name not in ("auto", "log"):
            raise CallerError(f"--columns: expected a log, found --format {name}; leave either out")
        return "log", FORMATS["log"]
    if name == "auto":
        items = (text for text, entry in FORMATS.items() if entry.recognises(head))
        name = next(items, "") or _unknown(lines, head)
    elif not FORMATS[name].recognises(head):
        _wrong(lines, f"a {name} trace")
    if about.rows and not FORMATS[name].is_log:
        raise CallerError(f"--rows: expected a log, found a {name} trace; leave it out")
    return name, FORMATS[name]


def _unknown(lines: Lines, head: Head) -> str:
    """Raises CallerError that says what an unknown file may be."""
    for mark, server in _SERVERS.items():
        if mark in head.text:
            lines.wrong("requests", "none", f"this is the output of {server}")
    if head.columns or guess(head.names):
        no_column(lines, "the columns of a known format", head.names)
    _wrong(lines, "a known format (hash_ids, or a format header)")


def _wrong(lines: Lines, what: str) -> NoReturn:
    names = [*next(lines.records(dict[str, Any]))]  # or it is refused there
    result = shorten(", ".join(names[:5])) or "no fields"
    lines.wrong(f"the first line of {what}", result, NO_TRACE)


# -- files


def content_digest(path: str) -> str:
    """The SHA-256 of what a trace says: of its unpacked file, or of the files of its folder in
    their order. Where it lies, and how it is packed, do not count."""
    full = hashlib.sha256()
    for file in files_of(path) if os.path.isdir(path) else [path]:
        item = hashlib.sha256()
        with opened(file) as stream:
            for line in raw_lines(file, stream):
                item.update(line)
        full.update(item.digest())
    return full.hexdigest()


def files_of(path: str) -> list[str]:
    """The files that a folder of traces may be read from, in their order."""
    try:
        return sorted(str(file) for file in Path(path).iterdir() if _OF_TRACE.fullmatch(file.name))
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable folder, found: {error.strerror}; check the path"
        ) from None


def _files(paths: list[str]) -> Iterator[Lines]:
    for path in paths:
        with opened(path) as stream:
            packed = packed_as(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
            is_plain = path != "-" and not packed and os.path.isfile(path)
            name = "stdin" if path == "-" else path
            yield Lines(name, raw_lines(path, stream), path if is_plain else None)


def opened(path: str) -> AbstractContextManager[BufferedReader]:
    """The bytes of a file; `-` is standard input."""
    if path == "-":
        return nullcontext(cast(BufferedReader, sys.stdin.buffer))
    try:
        return open(path, "rb")
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable trace file, found: {error.strerror}; check the path"
        ) from None


def raw_lines(path: str, stream: BufferedReader) -> Iterator[bytes]:
    """Yields the lines of the file; one that is too long is cut, see `Lines`."""
    packed = packed_as(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
    if packed not in ("", "gzip", "zstd"):
        raise CallerError(
            f"{path}: expected a trace, plain, gzip or zstd, found a file packed with {packed}; "
            "unpack it first"
        )
    number, left = 1, b""
    try:
        for piece in _pieces(stream, packed):
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                yield line + b"\n"
                number += 1
            if len(left) > MAX_LINE_BYTES:
                yield left
                left = b""
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        raise CallerError(
            f"{path}:{number}: expected readable data, found: {error}; copy the file again"
        ) from None
    if left:
        yield left


def _pieces(stream: BufferedReader, packed: str) -> Iterator[bytes]:
    """The unpacked bytes. Raises EOFError at the end of a truncated file."""
    if not packed:
        yield from iter(partial(stream.read, _PIECE_BYTES), b"")
        return
    frame, frames = None, zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    begun = partial(zlib.decompressobj, 31) if packed == "gzip" else frames.decompressobj
    while data := stream.read(_PACKED_BYTES):
        while data:
            frame = frame or begun()
            yield frame.decompress(data)
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("a truncated file")
