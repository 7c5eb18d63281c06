"""Engine profiles: one engine per file, with a table of its versions, and the lookup by name.

A file defines `VERSIONS`: profiles from the oldest version to the newest. An engine without
versions has one profile whose version is empty. Without a version, the lookup returns the newest;
for one that is not in the table, the nearest, and the profile says so (`note`).

A user's own engine is a JSON file with the fields of an `EngineProfile`. Every field is checked by
name and type. What is left out has the value of the record. After a `?` come limits that are other
than the engine's own: `vllm?max_running=64&token_budget=4096`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hicache import registry
from hicache.core.errors import CallerError
from hicache.files import FLAG, INTEGER, TEXT, Record, Value, fit, parsed, text_of

from .base import EngineProfile, nearest

__all__ = ["DEFAULT", "SHAPE", "EngineProfile", "get", "is_path", "names", "path_of", "versions"]
_ENGINES = "sim.engine_profiles"
DEFAULT = "vllm"
_LIMITS = ("token_budget", "max_running")


def names() -> list[str]:
    """Names of all engines, sorted."""
    return registry.names(_ENGINES)


def versions(name: str) -> list[str]:
    """The known versions of an engine, from the oldest to the newest; empty if it has none."""
    return [one.version for one in _of(name) if one.version]


def get(text: str) -> EngineProfile:
    """The profile of NAME, NAME@VERSION or a JSON file, with the limits after a `?`. Raises
    CallerError, which lists the known names."""
    named, asks, query = text.partition("?")
    if asks:
        return replace(get(named), **_limits(query))
    if is_path(text):
        return _read(text)
    name, at, version = text.partition("@")
    found = _of(name)
    if at and not version:
        raise CallerError(f"engine: expected NAME or NAME@VERSION, found {text!r}")
    if not version:
        return found[-1]
    if not found[-1].version:
        raise CallerError(f"engine: expected {name} without a version, found {version!r}")
    profile = nearest(version, found)
    return profile if profile.version == version else replace(profile, asked=version)


def _limits(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name not in _LIMITS or name in found or not re.fullmatch(r"[0-9]{1,12}", value):
            raise CallerError(
                f"engine: expected ?{'=N&'.join(_LIMITS)}=N or one of them, found {query!a}"
            )
        found[name] = int(value)
    return found


def _of(name: str) -> tuple[EngineProfile, ...]:
    if name not in names():
        raise registry.unknown("engine", name, names())
    found: tuple[EngineProfile, ...] = registry.load(_ENGINES, name).VERSIONS
    return found


MAX_BYTES = 1 << 16
_SHAPES = {
    "name": Value("a name", lambda value: type(value) is str and value != ""),
    "asked": Value("none in a file", lambda value: False),
    "str": TEXT,
    "int": INTEGER,
    "bool": FLAG,
}
SHAPE = Record(EngineProfile, _SHAPES)


def is_path(text: str) -> bool:
    """Whether an engine is named by the path of a file."""
    return "/" in path_of(text) or path_of(text).endswith(".json")


def path_of(text: str) -> str:
    """What names the engine, without limits."""
    return text.partition("?")[0]


def _read(path: str) -> EngineProfile:
    """Reads a profile. Raises CallerError with one line that names the field."""
    try:
        document = parsed(text_of(path, "engine profile", MAX_BYTES))
    except ValueError as error:
        raise CallerError(f"{path}: expected an engine profile in JSON, found {error}") from None
    made: EngineProfile = fit(document, SHAPE, path)
    return made
