"""Versions of engines: their order, and which of a table is nearest to one that it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .base import EngineProfile

_FINAL = 1 << 20
_PATTERN = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(?:[.-]?(rc)(\d{1,6}))?.*")


def number(version: str) -> tuple[int, ...]:
    """A version in an order: 1.0.0rc3 comes before 1.0.0, and 0.5.1.post1 counts as 0.5.1. A text
    that does not begin with a number, such as nightly, comes after all others."""
    found = _PATTERN.fullmatch(version)
    if found is None:
        return (_FINAL,)
    major, minor, patch, candidate, count = found.groups()
    return (
        *(int(part or 0) for part in (major, minor, patch)),
        int(count) if candidate else _FINAL,
    )


def nearest(version: str, known: Sequence[EngineProfile]) -> EngineProfile:
    """The newest known version that is not newer than this one; the oldest one if all are."""
    for profile in known:
        if profile.version == version:
            return profile
    asked = number(version)
    earlier = [profile for profile in known if number(profile.version) <= asked]
    return earlier[-1] if earlier else known[0]


def history(
    first: EngineProfile, changes: Sequence[tuple[str, dict[str, Any]]]
) -> tuple[EngineProfile, ...]:
    """The profiles of all versions: each is the one before it with some fields changed."""
    found = [first]
    for version, changed in changes:
        found.append(replace(found[-1], version=version, **changed))
    return tuple(found)
