"""Reads the figures of a replay from its document: the shape that it must have, and the record.

Both follow from the types of the record's fields (see record).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hicache.files import ANY, FLAG, NUMBER, TEXT, Maybe, Named

from .record import NEEDED

R = TypeVar("R")
_PLAIN = {str: TEXT, bool: FLAG, int: NUMBER, float: NUMBER}


@cache
def shape_of(kind: Any) -> Any:
    """The shape (see hicache/files) of the documents of a record, or of values of a type. A key
    that is not `Needed` may be missing."""
    inside = get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return {
            name: shape_of(one) if _is_needed(one) else Maybe(shape_of(one))
            for name, one in _types(kind).items()
        }
    if get_origin(kind) is Annotated:
        return shape_of(inside[0] if _is_needed(kind) else inside[1])
    if _is_optional(kind):
        return Maybe(shape_of(inside[0]))
    if get_origin(kind) is Mapping:
        return Named(shape_of(inside[1]))
    if get_origin(kind) is Sequence:
        return [shape_of(inside[0])]
    return _PLAIN.get(kind, ANY)


def record_of(kind: type[R], document: Mapping[str, Any]) -> R:
    """The record of a document that has its shape; None for what is missing."""
    found: R = _made(kind, document)
    return found


def _made(kind: Any, value: Any) -> Any:
    inside = get_args(kind)
    if value is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _made(one, value.get(name)) for name, one in _types(kind).items()})
    if get_origin(kind) is Annotated or _is_optional(kind):
        return _made(inside[0], value)
    if get_origin(kind) is Mapping:
        return {name: _made(inside[1], one) for name, one in value.items()}
    if get_origin(kind) is Sequence:
        return [_made(inside[0], one) for one in value]
    return value


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: hints[one.name] for one in fields(kind)}


def _is_needed(kind: Any) -> bool:
    return get_origin(kind) is Annotated and get_args(kind)[1] == NEEDED


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (UnionType, Union) and type(None) in get_args(kind)
