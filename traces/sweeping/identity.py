"""What makes two points the same: the code that decides, the trace, and every option.

A point has a key, which is a hash of all three, so that a sweep can go on where it ended, and a
result that was measured elsewhere is known to be the same one. Does not run a point; see work.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from importlib import import_module
from pathlib import Path

from hicache.core.errors import CallerError

from ..formats._open import files_of
from ..outside import entries
from ..replaying.builtin import NAME as BUILTIN
from ..replaying.options import OPTIONS, OUTPUTS, ReplayOptions, plain

_DECIDING = (
    *("hicache", "invariants", "sim", "traces.expected", "traces.formats", "traces.generators"),
    *("traces.replaying", "traces.reporting", "traces.results"),
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
        one.name: plain(getattr(options, one.name))
        for one in OPTIONS
        if one.name not in ("trace", *OUTPUTS) and getattr(options, one.name) is not None
    }


def _contents(options: ReplayOptions) -> dict[str, str]:
    """The digests of files that options name: tokenizers, models, measured hardware, engines
    and policies of the user."""
    sources = [entries.source_of(package, name) for package, name in options.entries]
    named = [path for name, path in options.files.items() if name != "trace"]
    return {path: trace_digest(path) for path in sorted({*named, *filter(None, sources)})}
