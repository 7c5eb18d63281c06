"""Reads small text files that nobody vouches for: models, profiles, tapes.

Reading is bounded and does not wait: a pipe, a device or a file that is too large is refused with
one line. Does not know what is in a file; the reader of each format does. Traces are streams and
have a reader of their own (traces/formats).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from typing import Any, NoReturn

from hicache.core.errors import CallerError

_SHOWN = 60
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\x04\x22\x4d\x18": "lz4",
}


def packed_as(head: bytes) -> str:
    """The kind of packed file that begins with these bytes, such as zip; "" for none."""
    return next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), "")


def text_of(path: str, what: str, most_bytes: int, advice: str = "check the path") -> str:
    """The UTF-8 text of a regular file. Raises CallerError with one line.

    what: the kind of file, for messages. advice: what to do if the content is not such a file.
    """
    try:
        with open(path, "rb", opener=_at_once) as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                _unreadable(path, what, "a pipe or a device", "write it to a file first")
            content = stream.read(most_bytes + 1)
    except IsADirectoryError:
        _unreadable(path, what, "a directory", "name a file")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        _unreadable(path, what, str(reason), "check the path")
    if packed := packed_as(content):
        _unreadable(path, what, f"a file packed with {packed}", "unpack it first")
    if len(content) > most_bytes:
        raise CallerError(
            f"{path}: expected at most {most_bytes} bytes, found {max(found.st_size, most_bytes)}"
            f"; name another {what}"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#04x}, not UTF-8"
        _unreadable(path, what, byte, advice)


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for json that raises ValueError for a key that is there twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key[:40]!a} twice")
        values[key] = value
    return values


def show(value: object) -> str:
    """A value of a JSON document for a message: short, whatever it is."""
    if isinstance(value, list | dict) and value:
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if type(value) is int and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _unreadable(path: str, what: str, found: str, advice: str) -> NoReturn:
    raise CallerError(f"{path}: expected a readable {what}, found: {found}; {advice}")
