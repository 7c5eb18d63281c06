"""The entries of every folder of the project by name, for whoever takes names from a user: what
`hicache.core.entries` finds, with errors that name an option or an extra to install."""

import traceback
from typing import Any

from .core import entries, errors
from .core.errors import CallerError

COMPONENTS = entries.COMPONENTS
EVICTION_POLICIES = entries.EVICTION_POLICIES
PREFETCH_POLICIES = entries.PREFETCH_POLICIES
WRITE_POLICIES = entries.WRITE_POLICIES
names, stems, spellings, kind = entries.names, entries.stems, entries.spellings, entries.kind
add, remove = entries.add, entries.remove
closest, unknown = errors.closest, errors.unknown

SCHEDULERS = "sim.schedulers"
TIMES = "sim.times"
# Folders to which a user may add an entry, with the option that adds it.
OPEN = {
    EVICTION_POLICIES: "--eviction path.py:Name",
    WRITE_POLICIES: "--write-policy path.py:Name",
    SCHEDULERS: "--scheduler path.py:Name",
    TIMES: "--times path.py:Name",
}
_PROJECT = ("hicache.", "sim.", "invariants.", "traces.")
OUTSIDE = "outside_"  # the modules of users' files are named so


def load(package: str, name: str) -> Any:
    """The module of an entry, or the entry that was added under this name. Raises CallerError for
    an unknown name."""
    if not entries.has(package, name):
        raise missing(package, name)
    return entries.load(package, name)


def blamed(error: Exception) -> str:
    """Where an entry of the user, or a library that it called, raised the error; else empty."""
    steps = [
        (frame.f_globals.get("__name__", ""), frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    known = [step for step in steps if step[0].startswith((OUTSIDE, *_PROJECT))]
    if not known or not known[-1][0].startswith(OUTSIDE):
        return ""
    _, code, line = known[-1]
    return (
        f"{code.co_filename}, line {line}, {code.co_qualname}: expected no exception, found "
        f"{type(error).__name__}: {error}"
    )


def missing(package: str, name: str) -> CallerError:
    """The error for a name that is not in the package."""
    known = spellings(package)
    hint = f"; for your own: {OPEN[package]}" if package in OPEN else ""
    return CallerError(f"{unknown(kind(package), name, known)}{hint}")


def uninstalled(package: str, name: str, error: ImportError) -> CallerError:
    """The error for an entry whose library is not installed. The folder's name is the extra's.

    Raises the error itself if one of the project's own modules is missing."""
    if (error.name or "").startswith(tuple(text.rstrip(".") for text in _PROJECT)):
        raise error
    extra = kind(package)
    return CallerError(
        f"{extra}: expected what {name} needs, found: {error}; pip install 'hicache[{extra}]'"
    )
