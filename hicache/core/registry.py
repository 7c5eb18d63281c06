"""Registries: a folder is a registry, and the name of an entry is the name of its file.

This file lists the entries of a package, imports an entry when it is asked for, reads its summary
line, adds entries of the user, and makes the error for an unknown name. It does not know what an
entry contains; the package that uses the entry does.

An entry is imported only when it is used, so its dependency (torch, a storage client) is needed
only by users of that entry.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import traceback
from collections.abc import Sequence
from typing import Any

from .errors import CallerError, CoreBug

COMPONENTS = "hicache.core.components"
EVICTION_POLICIES = "hicache.core.eviction_policies"
WRITE_POLICIES = "hicache.core.write_policies"
PREFETCH_POLICIES = "hicache.core.prefetch_policies"
SCHEDULERS = "sim.schedulers"
ROUTERS = "sim.fleet.routers"
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
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_LONGEST_NAME = 100
# What SGLang, vLLM and torch call some of the entries.
_ELSEWHERE = {
    "lpm": "longest-prefix",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
}
_added: dict[str, dict[str, Any]] = {}  # [package][name]


def names(package: str) -> list[str]:
    """The names of a package's entries, sorted: its modules, except `base` and those that begin
    with an underscore, and the entries that were added."""
    paths = importlib.import_module(package).__path__
    found = [module.name for module in pkgutil.iter_modules(paths)]
    own = [name for name in found if name != "base" and not name.startswith("_")]
    return sorted(_spelled(name) for name in (*own, *_added.get(package, ())))


def stems(package: str) -> list[str]:
    """The names as Python spells them, with underscores."""
    return sorted(name.replace("-", "_") for name in names(package))


def load(package: str, name: str) -> Any:
    """The module of an entry, or the entry that was added under this name. Raises CallerError for
    an unknown name."""
    added = _added.get(package, {}).get(name.replace("-", "_"))
    if added is not None:
        return added
    if not _NAME.fullmatch(name) or _spelled(name) not in names(package):
        raise missing(package, name)
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")


def add(package: str, name: str, entry: Any) -> None:
    """Add an entry of the user for the life of this process. entry: an object with the attributes
    that a module of the package has. Raises CallerError if the name is not legal or is that of a
    file in the folder."""
    added, stem = _added.setdefault(package, {}), name.replace("-", "_")
    if not _NAME.fullmatch(name) or (stem not in added and stem in stems(package)):
        taken = ", ".join(spellings(package))
        raise CallerError(
            f"{kind(package)}: expected a name in lower case that none of {taken} has, found "
            f"{name!r}; rename it"
        )
    added[stem] = entry


def remove(package: str, name: str) -> None:
    """Remove an entry that was added. Does nothing if there is none."""
    _added.get(package, {}).pop(name.replace("-", "_"), None)


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


def summary(package: str, name: str) -> str:
    """The SUMMARY of an entry."""
    return constant(package, name, "SUMMARY")


def constant(package: str, name: str, constant: str) -> str:
    """A constant of an entry, one line in double quotes, read without importing the entry.

    Raises CoreBug if the entry has none."""
    text = (pkgutil.get_data(package, f"{name.replace('-', '_')}.py") or b"").decode()
    found = re.search(rf'^{constant} = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise CoreBug(f"{package}.{name} has no {constant}")
    return found[1]


def missing(package: str, name: str) -> CallerError:
    """The error for a name that is not in the package."""
    known = spellings(package)
    hint = f"; for your own: {OPEN[package]}" if package in OPEN else ""
    return CallerError(f"{unknown(kind(package), name, known)}{hint}")


def uninstalled(package: str, name: str, error: ImportError) -> CallerError:
    """The error for an entry whose library is not installed. The folder's name is the extra's.

    Raises the error itself if one of the project's own modules is missing."""
    if (error.name or "").startswith(tuple(one.rstrip(".") for one in _PROJECT)):
        raise error
    extra = kind(package)
    return CallerError(
        f"{extra}: expected what {name} needs, found: {error}; pip install 'hicache[{extra}]'"
    )


def spellings(package: str) -> list[str]:
    """The names as users spell them: policies with underscores, all others with hyphens."""
    own = package in (EVICTION_POLICIES, WRITE_POLICIES, PREFETCH_POLICIES)
    return stems(package) if own else names(package)


def unknown(kind: str, name: str, known: Sequence[str]) -> CallerError:
    """The error for an unknown name. It lists the known names and suggests the closest one."""
    known_names = ", ".join(known)
    return CallerError(
        f"{kind}: expected one of {known_names}, found {name!r}{closest(name, known)}"
    )


def closest(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: what was meant; empty if nothing is close.

    Upper case and the hyphens of an option do not count. A name with the same letters in another
    order comes first.
    """
    if len(name) > _LONGEST_NAME:
        return ""  # comparing takes quadratic time
    typed = name.lower().lstrip("-")
    elsewhere = _ELSEWHERE.get(typed.replace("-", "_"))
    if elsewhere in known:
        return f"; did you mean {elsewhere}?"
    bare = {one.lower().lstrip("-"): one for one in known}
    close = difflib.get_close_matches(typed, bare)
    close.sort(key=lambda one: sorted(one) != sorted(typed))
    return f"; did you mean {bare[close[0]]}?" if close else ""


def kind(package: str) -> str:
    return package.rpartition(".")[2].replace("_", " ")


def _spelled(name: str) -> str:
    return name.replace("_", "-")
