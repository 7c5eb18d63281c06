"""Engine profiles: one engine per file, with a table of its versions, and the lookup by name.

A file defines `VERSIONS`: profiles from the oldest version to the newest. An engine without
versions has one profile whose version is empty. Without a version, the lookup returns the newest;
for one that is not in the table, the nearest, and the profile says so (`note`).
"""

from __future__ import annotations

from dataclasses import replace

from hicache import registry
from hicache.core.errors import CallerError

from . import _file
from ._file import is_path
from ._versions import nearest
from .base import EngineProfile

__all__ = ["DEFAULT", "EngineProfile", "get", "is_path", "names", "versions"]
_ENGINES = "sim.engine_profiles"
DEFAULT = "vllm"


def names() -> list[str]:
    """Names of all engines, sorted."""
    return registry.names(_ENGINES)


def versions(name: str) -> list[str]:
    """The known versions of an engine, from the oldest to the newest; empty if it has none."""
    return [one.version for one in _of(name) if one.version]


def get(text: str) -> EngineProfile:
    """The profile of NAME, NAME@VERSION or a JSON file. Raises CallerError, which lists the known
    names."""
    if is_path(text):
        return _file.read(text)
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


def _of(name: str) -> tuple[EngineProfile, ...]:
    if name not in names():
        raise registry.unknown("engine", name, names())
    found: tuple[EngineProfile, ...] = registry.load(_ENGINES, name).VERSIONS
    return found
