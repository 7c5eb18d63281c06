"""A user's own engine: a JSON file with the fields of an `EngineProfile`.

Every field is checked by name and type. What is left out has the value of the record.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, NoReturn

from hicache import registry
from hicache.core.errors import CallerError
from hicache.files import once, show, text_of

from .base import BATCHING, RESERVES, EngineProfile

MAX_BYTES = 1 << 16
_KINDS = {"str": str, "int": int, "bool": bool}
_WORDS = {str: "a text", int: "an integer", bool: "true or false"}
_NOT_GIVEN = ("asked",)


def is_path(text: str) -> bool:
    """Whether an engine is named by the path of a file."""
    return "/" in text or text.endswith(".json")


def read(path: str) -> EngineProfile:
    """Reads a profile. Raises CallerError with one line that names the field."""
    text = text_of(path, "engine profile", MAX_BYTES)
    try:
        document = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"{path}: expected an engine profile in JSON, found {error}") from None
    if type(document) is not dict:
        _wrong(path, "an object with the fields of an engine", show(document))
    kinds = {one.name: _KINDS[str(one.type)] for one in fields(EngineProfile)}
    for name in _NOT_GIVEN:
        del kinds[name]
    for name, value in document.items():
        if name not in kinds:
            raise CallerError(f"{path}: {registry.unknown('field', name, [*kinds])}")
        if type(value) is not kinds[name]:
            _wrong(path, f"{name}: {_WORDS[kinds[name]]}", show(value))
    return _made(path, document)


def _made(path: str, document: dict[str, Any]) -> EngineProfile:
    if not document.get("name"):
        _wrong(path, "a name", "none")
    try:
        made = EngineProfile(**document)
        for package, entry in ((BATCHING, made.batching), (RESERVES, made.reserve)):
            if entry not in registry.names(package):
                raise registry.missing(package, entry)
        return made
    except CallerError as error:
        raise CallerError(f"{path}: {error}") from None


def _wrong(path: str, expected: str, found: str) -> NoReturn:
    raise CallerError(f"{path}: expected {expected}, found {found}")
