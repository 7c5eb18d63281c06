"""Writing files whole or not at all.

A new file appears under its name only when its last byte was written: the text goes to a file
beside it, which is renamed. What stood there before stays until then.
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

_SHOWN = 60


def write_whole(path: str, pieces: Iterable[str]) -> None:
    """Write text to a file; `-` is standard output. Raises CallerError if it cannot be written."""
    if path == "-":
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    target, special = _target(path)
    beside = target if special else target.with_name(f".hicache-{os.getpid()}.tmp")
    try:
        with open(beside, "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        if not special:
            os.replace(beside, target)
    except OSError as error:
        raise unwritable(path, error.strerror) from None
    finally:
        if not special:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def write_json(path: str, found: dict[str, object]) -> None:
    """A document, by `write_whole`."""
    write_whole(path, [json.dumps(found, indent=1), "\n"])


def check_writable(path: str) -> None:
    """Before long work: raises CallerError if `write_whole` could not write there."""
    if path == "-":
        return
    target, special = _target(path)
    if not target.parent.is_dir():
        raise unwritable(path, "no directory there")
    if not os.access(target if special else target.parent, os.W_OK):
        raise unwritable(path, "no right to write there")


def check_apart(**given: str | None) -> None:
    """Before any work: raises CallerError if two of the files, each by its option, are one."""
    files = {name: path for name, path in given.items() if path and path != "-"}
    named = {name: os.path.realpath(path) for name, path in files.items() if "\0" not in path}
    for name, path in named.items():
        other = next(one for one, there in named.items() if there == path)
        if other != name:
            raise CallerError(
                f"--{name}: expected another file than the {other}, which it would replace, "
                f"found {given[name]}; name another file"
            )


def _target(path: str) -> tuple[Path, bool]:
    """The file behind any link, and whether it is a device or a pipe: those are written to, never
    replaced."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise unwritable(path, "a directory")
        return target, target.exists() and not target.is_file()
    except OSError as error:  # a name that is too long
        raise unwritable(f"{path[:_SHOWN]}...", error.strerror) from None


def unwritable(path: str, found: str | None) -> CallerError:
    """The error for a file that cannot be written, and why."""
    return CallerError(
        f"{path}: expected a file that can be written, found: {found}; name another file"
    )


def check_folder(path: str, what: str) -> None:
    """Before long work: raises CallerError if no file could be written into the folder, which may
    still have to be made. Leaves nothing behind."""
    folder = Path(path).absolute()
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        file = isinstance(error, FileExistsError | NotADirectoryError)
        found = "a file" if file else error.strerror
        raise CallerError(
            f"{what}: expected a folder that can be written, found: {found}; name another"
        ) from None
    finally:
        for one in missing:
            with contextlib.suppress(OSError):
                one.rmdir()
