"""What makes two points the same: the code that decides, the trace, and every option.

A point has a key, which is a hash of all three, so that a sweep can go on where it ended, and a
result that was measured elsewhere is known to be the same one. Does not run a point; see work.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import fields
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hicache import models
from hicache.core import registry
from hicache.core.errors import CallerError
from sim import engine_profiles
from sim.hardware import measured

from ..formats._open import files_of
from ..outside import entries
from ..replaying.builtin import NAME as BUILTIN
from ..replaying.options import ReplayOptions

# what a replay prints and writes, which changes no result
_NOT_OF_A_POINT = ("trace", "json", "requests", "why", "html", "plot")
_DECIDING = (
    *("hicache", "invariants", "sim", "traces.expected", "traces.formats", "traces.generators"),
    *("traces.loads", "traces.replaying", "traces.reporting"),
)
_SHORT = 16  # hexadecimal digits of a key and of a version


@cache
def decisions() -> str:
    """A hash of the code and tables that a result depends on. Equal copies have the same."""
    digest = hashlib.sha256()
    for package in _DECIDING:
        [root] = import_module(package).__path__
        files = (path for path in Path(root).rglob("*") if path.suffix in (".py", ".json"))
        for path in sorted(files):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:_SHORT]


def trace_digest(path: str | None) -> str:
    """The SHA-256 of a trace: of its file, of the files of a folder that it may be read from, or
    the built-in one's name."""
    if path is None:
        return BUILTIN
    digest = hashlib.sha256()
    try:
        is_folder = os.path.isdir(path)
        for file in files_of(path) if is_folder else [path]:
            if is_folder:
                digest.update(os.path.relpath(file, path).encode() + b"\0")
            with open(file, "rb") as stream:
                while piece := stream.read(1 << 20):
                    digest.update(piece)
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable trace file, found: {error.strerror}; check the path"
        ) from None
    return digest.hexdigest()


def key_of(options: ReplayOptions, trace: str, follow: bool = False) -> str:
    """The key of a point. trace: the digest of the trace. follow: see work."""
    whole: dict[str, object] = {
        "decisions": decisions(),
        "trace": trace,
        "options": canonical(options),
    }
    if follow:
        whole["follow"] = True
    text = json.dumps(whole | {"files": _contents(options)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_SHORT]


def canonical(options: ReplayOptions) -> dict[str, object]:
    """The options that were given, as JSON values. Equal values are equal, however they were
    typed."""
    return {
        field.name: plain(getattr(options, field.name))
        for field in fields(options)
        if field.name not in _NOT_OF_A_POINT and getattr(options, field.name) is not None
    }


def plain(value: Any) -> object:
    """A value of an option as a JSON value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


def _contents(options: ReplayOptions) -> dict[str, str]:
    """The digests of files that options name: tokenizers, models, measured hardware, engines
    and policies of the user."""
    paths = [options.tokenizer] if options.tokenizer else []
    if options.model and models.is_path(options.model):
        paths.append(options.model)
    if options.hardware and measured.is_path(options.hardware):
        paths.append(options.hardware)
    if options.engine and engine_profiles.is_path(options.engine):
        paths.append(options.engine)
    for package in registry.OPEN:
        for name in (options.eviction, options.write_policy, options.scheduler, options.times):
            source = entries.source_of(package, name) if name else None
            if source is not None:
                paths.append(source)
    return {path: trace_digest(path) for path in sorted({*paths})}
