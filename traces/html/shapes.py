"""The shape that a document from a file must have: its keys, lists, numbers and texts.

A wrong document is one line that names the place. Does not know any document; see reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from hicache.core.errors import CallerError

_MOST_NUMBER = 1e18


@dataclass(frozen=True)
class Maybe:
    """A value of this shape, null, or a key that is missing, which is then null."""

    shape: Any


@dataclass(frozen=True)
class Named:
    """An object with any names, whose values all have this shape."""

    shape: Any


class Number:
    """A finite number that is not a boolean."""


def fit(path: str, at: str, value: Any, shape: Any) -> Any:
    """The value, if it has the shape, with null for keys that may be missing."""
    if shape is object:
        return value
    if isinstance(shape, Maybe):
        return None if value is None else fit(path, at, value, shape.shape)
    if isinstance(shape, Named | dict):
        if not isinstance(value, dict):
            wrong(path, at, "an object", value)
        if isinstance(shape, Named):
            return {
                name: fit(path, f"{at}.{name}", one, shape.shape) for name, one in value.items()
            }
        found = dict(value)
        for name, inner in shape.items():
            if name not in value and not isinstance(inner, Maybe):
                wrong(path, f"{at}.{name}", "this key", None)
            found[name] = fit(path, f"{at}.{name}", value.get(name), inner)
        return found
    if isinstance(shape, list):
        if not isinstance(value, list):
            wrong(path, at, "a list", value)
        return [fit(path, f"{at}[{place}]", one, shape[0]) for place, one in enumerate(value)]
    if shape is Number:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not -_MOST_NUMBER < value < _MOST_NUMBER:
            wrong(path, at, "a finite number", value)
    elif not isinstance(value, shape):
        wrong(path, at, {str: "a text", bool: "true or false"}[shape], value)
    return value


def wrong(path: str, at: str, expected: str, found: object) -> NoReturn:
    raise CallerError(
        f"{path}: {at.lstrip('.')[:80]}: expected {expected}, found {shown(found)}; make the "
        "document again"
    )


def shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else ascii(value)[:40]
