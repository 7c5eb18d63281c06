"""The plugins of every folder of the project by name, for whoever takes names from a user: what
`hicache.core.plugins` finds, with errors that name an option or an extra to install."""

import traceback
from typing import Any

from .core import errors, plugins
from .core.errors import CallerError

COMPONENTS = plugins.COMPONENTS
EVICTION_POLICIES = plugins.EVICTION_POLICIES
PREFETCH_POLICIES = plugins.PREFETCH_POLICIES
WRITE_POLICIES = plugins.WRITE_POLICIES
names, stems, spellings, kind = plugins.names, plugins.stems, plugins.spellings, plugins.kind
add, remove = plugins.add, plugins.remove
closest, unknown = errors.closest, errors.unknown

SCHEDULERS = "sim.schedulers"
TIMES = "sim.times"
# Folders to which a user may add a plugin, with the option that adds it.
OPEN = {
    EVICTION_POLICIES: "--eviction path.py:Name",
    WRITE_POLICIES: "--write-policy path.py:Name",
    SCHEDULERS: "--scheduler path.py:Name",
    TIMES: "--times path.py:Name",
}
_PROJECT = ("hicache.", "sim.", "invariants.", "traces.")
OUTSIDE = "outside_"  # the modules of users' files are named so


def load(package: str, name: str) -> Any:
    """The module of a plugin, or the plugin that was added under this name. Raises CallerError for
    an unknown name."""
    if not plugins.has(package, name):
        raise missing(package, name)
    return plugins.load(package, name)


def blamed(error: Exception) -> str:
    """Where a plugin of the user, or a library that it called, raised the error; else empty."""
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
    """The error for a plugin whose library is not installed. The folder's name is the extra's.

    Raises the error itself if one of the project's own modules is missing."""
    if (error.name or "").startswith(tuple(text.rstrip(".") for text in _PROJECT)):
        raise error
    extra = kind(package)
    return CallerError(
        f"{extra}: expected what {name} needs, found: {error}; pip install 'hicache[{extra}]'"
    )
