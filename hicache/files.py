"""Reads small text files that nobody vouches for: models, profiles, sequences, reports.

Reading is bounded and does not wait: a pipe, a device or a file that is too large is refused with
one line. `parsed` reads JSON strictly, and `fit` holds it to the shape that the reader of a format
describes. A misfit is one line: where, what was expected, what was found, what to do.
Traces are streams and have a reader of their own (traces/formats).
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from hicache.core.errors import CallerError

_SHOWN = 60
_MOST = 1 << 62  # of an integer whose bound nobody names
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
        # a pipe is opened without waiting for its writer
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as stream:
            fstat = os.fstat(stream.fileno())
            if not stat.S_ISREG(fstat.st_mode):
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
            f"{path}: expected at most {most_bytes} bytes, found {max(fstat.st_size, most_bytes)}"
            f"; name another {what}"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#04x}, not UTF-8"
        _unreadable(path, what, byte, advice)


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


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"the number {word}")


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, which says in a few words what was found, also
    for a key that is there twice, NaN and infinity, and brackets that are nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def unlike(where: str, expected: str, text: str, do: str = "") -> CallerError:
    """The error of one place of a document. do: what to do about it."""
    return CallerError(f"{where}: expected {expected}, found {text}{f'; {do}' if do else ''}")


# -- shapes: a Value; [shape]; a dict of shapes, with other keys or not (Only); and those below


@dataclass(frozen=True, slots=True)
class Value:
    """One value. says: what is expected."""

    says: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Spare:
    """A value of this shape, whose key may be missing."""

    shape: Any


@dataclass(frozen=True, slots=True)
class Named:
    """An object with any names, whose values all have this shape."""

    shape: Any


@dataclass(frozen=True, slots=True)
class Only:
    """An object with these keys and no others."""

    keys: Mapping[str, Any]


def integer(least: int = 0, most: int = _MOST) -> Value:
    says = (
        f"an integer from {least} to {most}" if most != _MOST else f"an integer of at least {least}"
    )
    says = says if least < most else str(least)
    return Value(says, lambda value: type(value) is int and least <= value <= most)


def word(*options: str) -> Value:
    says = f"one of {', '.join(options)}"
    return Value(says, lambda value: type(value) is str and value in options)


TEXT = Value("a text", lambda value: type(value) is str)
FLAG = Value("true or false", lambda value: type(value) is bool)
INTEGER = Value("an integer", lambda value: type(value) is int)
ANY = Value("a value", lambda value: True)


def fit(value: Any, shape: Any, where: str, do: str = "", at: str = "") -> Any:
    """The value, if it has the shape. Raises CallerError otherwise, for the first place that has
    not. where: of the document, for the message; at: of the value within it."""
    if isinstance(shape, Value) and shape.fits(value):
        return value

    def inside(item: Any, inner: Any, step: str) -> Any:
        return fit(item, inner, where, do, at + step)

    def misfit(step: str, expected: str, text: str) -> CallerError:
        within = (at + step).lstrip(".")[:200].encode("unicode_escape").decode()
        return unlike(": ".join(filter(None, (where, within))), expected, text, do)

    if isinstance(shape, Value):
        raise misfit("", shape.says, show(value))
    if isinstance(shape, Spare):
        return inside(value, shape.shape, "")
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise misfit("", "a list", show(value))
        return [inside(item, shape[0], f"[{place}]") for place, item in enumerate(value)]
    if not isinstance(value, dict):
        raise misfit("", "an object", show(value))
    if isinstance(shape, Named):
        return {name: inside(item, shape.shape, f".{name[:80]}") for name, item in value.items()}
    keys: Mapping[str, Any] = shape.keys if isinstance(shape, Only) else shape
    strange = sorted(value.keys() - keys.keys()) if not isinstance(shape, dict) else []
    if strange:
        expected = f"only {', '.join(keys)}" if keys else "no key"
        raise misfit("", expected, show(strange[0]))
    result = dict(value)
    for name, inner in keys.items():
        if name in value:
            result[name] = inside(value[name], inner, f".{name}")
        elif not isinstance(inner, Spare):
            says = inner.says if isinstance(inner, Value) else "this key"
            raise misfit(f".{name}", says, "nothing")
    return result


def _unreadable(path: str, what: str, text: str, advice: str) -> NoReturn:
    raise CallerError(f"{path}: expected a readable {what}, found: {text}; {advice}")
