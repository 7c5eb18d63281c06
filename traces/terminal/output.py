"""Writes a file completely or not at all.

The text goes to a temporary file in the same folder, which then replaces the target. The old file
stays until then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hicache.core.errors import CallerError

from .leftovers import draft_name, remove_leftovers

_SHOWN = 60


def write_whole(path: str, pieces: Iterable[str]) -> None:
    """Write text to a file; `-` is standard output. Raises CallerError if it cannot be written."""
    if path == "-":
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    target, special = _target(path)
    temporary = target if special else target.with_name(draft_name())
    if not special:
        remove_leftovers(target.parent)
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        if not special:
            os.replace(temporary, target)
    except OSError as error:
        raise unwritable(path, error.strerror) from None
    finally:
        if not special:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_json(path: str, document: dict[str, object]) -> None:
    """Writes `document` as JSON with `write_whole`."""
    write_whole(path, [json.dumps(document, indent=1), "\n"])


def check_writable(path: str) -> None:
    """Raises CallerError if `write_whole` could not write to `path`. Call it before long work."""
    if path == "-":
        return
    target, special = _target(path)
    if not target.parent.is_dir():
        raise unwritable(path, "no directory there")
    if not os.access(target if special else target.parent, os.W_OK):
        raise unwritable(path, "no right to write there")


def check_apart(**paths: str | None) -> None:
    """Raises CallerError if two options name the same file. Call it before any work.

    paths: by the option's name without its hyphens; None or "-" if there is no file.
    """
    given = {name: path for name, path in paths.items() if path and path != "-"}
    real_paths = {name: os.path.realpath(path) for name, path in given.items() if "\0" not in path}
    for name, path in real_paths.items():
        other = next(first for first, there in real_paths.items() if there == path)
        if other != name:
            raise CallerError(
                f"--{name}: expected another file than the {other}, which it would replace, "
                f"found {paths[name]}; name another file"
            )


def _target(path: str) -> tuple[Path, bool]:
    """The file behind any link, and whether it is a device or a pipe.

    Devices and pipes are written to and never replaced.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise unwritable(path, "a directory")
        return target, target.exists() and not target.is_file()
    except OSError as error:  # a name that is too long
        raise unwritable(f"{path[:_SHOWN]}...", error.strerror) from None


def unwritable(path: str, reason: str | None) -> CallerError:
    """The error for a file that cannot be written. reason: why it cannot."""
    return CallerError(
        f"{path}: expected a file that can be written, found: {reason}; name another file"
    )


def check_folder(path: str, what: str) -> None:
    """Raises CallerError if no file can be written to the folder. Call it before long work.

    A folder that does not exist counts as writable if it can be created. Nothing is left behind.
    """
    folder = Path(path).absolute()
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file" if is_file else error.strerror
        raise CallerError(
            f"{what}: expected a folder that can be written, found: {reason}; name another"
        ) from None
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
