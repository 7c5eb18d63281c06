"""A user's own engine: a JSON file with the fields of an `EngineProfile`.

Every field is checked by name and type. What is left out has the value of the record.
"""

from __future__ import annotations

from hicache import registry
from hicache.core.errors import CallerError
from hicache.files import FLAG, INTEGER, TEXT, Record, Value, fit, parsed, text_of

from .base import BATCHING, RESERVES, EngineProfile

MAX_BYTES = 1 << 16
_SHAPES = {
    "name": Value("a name", lambda value: type(value) is str and value != ""),
    "asked": Value("none in a file", lambda value: False),
    "str": TEXT,
    "int": INTEGER,
    "bool": FLAG,
}


def is_path(text: str) -> bool:
    """Whether an engine is named by the path of a file."""
    return "/" in text or text.endswith(".json")


def read(path: str) -> EngineProfile:
    """Reads a profile. Raises CallerError with one line that names the field."""
    try:
        document = parsed(text_of(path, "engine profile", MAX_BYTES))
    except ValueError as error:
        raise CallerError(f"{path}: expected an engine profile in JSON, found {error}") from None
    made: EngineProfile = fit(document, Record(EngineProfile, _SHAPES), path)
    for package, entry in ((BATCHING, made.batching), (RESERVES, made.reserve)):
        if entry not in registry.names(package):
            raise CallerError(f"{path}: {registry.missing(package, entry)}")
    return made
