"""Writes files completely or not at all, and never over an input.

A text goes to a draft in the same folder, which then replaces the target. The old file stays until
then. Devices and pipes are written to and never replaced. The name of a draft says which process
made it, on which machine; what a killed command left is removed by a later one.
"""

import json
import os
import platform
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

from hicache.core.errors import CallerError

from .streams import raw, reader_may_leave

_ANYONE_WRITES = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH  # root could write without
# Names of open streams. A file behind one is added to and never replaced.
_OPEN_STREAM = re.compile(r"/dev/(std(in|out|err)$|fd/)|/proc/")
_HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node())[:40] or "here"
_MADE = re.compile(rf"\.hicache-{_HOST}-(\d{{1,9}})-\d{{1,4}}\.tmp", re.ASCII)
_PACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.compressobj(wbits=31),
    ".zst": lambda: zstandard.ZstdCompressor().compressobj(),
}


def write_whole(path: str, pieces: Iterable[str]) -> None:
    """Writes text to a file, packed if its name ends in .gz or .zst; `-` is standard output. Raises
    CallerError if it cannot be written."""
    write_all([(path, pieces)])


def write_all(files: Sequence[tuple[str, Iterable[str]]]) -> None:
    """Writes several files as `write_whole` writes one: all of them, or none.

    Standard output, devices and pipes, which cannot be taken back, come after all files.
    """
    targets = [(path, *_target(path), pieces) for path, pieces in files if path != "-"]
    drafts: list[tuple[str, Path, Path]] = []
    try:
        for path, file, special, pieces in targets:
            if not special:
                _remove_leftovers(file.parent)
                name = f".hicache-{_HOST}-{os.getpid()}-{len(drafts)}.tmp"
                drafts.append((path, file, file.with_name(name)))
                _fill(path, drafts[-1][2], "w", pieces)
        for path, file, special, pieces in targets:
            if special:
                _fill(path, file, "a", pieces)
        for path, file, draft in drafts:
            try:
                os.replace(draft, file)
            except OSError as error:
                raise unwritable(path, error.strerror) from None
    finally:
        for _, _, draft in drafts:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    for path, pieces in files:
        if path == "-":
            stream = raw(sys.stdout)
            with reader_may_leave():
                stream.writelines(pieces)
                stream.flush()


def _fill(name: str, path: Path, mode: str, pieces: Iterable[str]) -> None:
    packer = _PACKERS.get(Path(name).suffix)
    try:
        with open(path, f"{mode}b") as file:
            encoded = (piece.encode() for piece in pieces)
            if packer is None:
                file.writelines(encoded)
            else:
                packed = packer()
                file.writelines(map(packed.compress, encoded))
                file.write(packed.flush())
    except OSError as error:
        raise unwritable(name, error.strerror) from None


def write_json(path: str, document: dict[str, object]) -> None:
    """Writes `document` as JSON with `write_whole`."""
    write_whole(path, as_json(document))


def as_json(document: dict[str, object]) -> list[str]:
    return [json.dumps(document, indent=1), "\n"]


def check_outputs(inputs: Mapping[str, str | None], **outputs: str | None) -> None:
    """Raises CallerError if an output is an input or another output, or could not be written.

    Call it before any work. A file is the same by its name or by any link. Both: by what names the
    file, an output by its option without hyphens; None or "-" if there is no file.
    """
    streamed = [f"--{name}" for name, path in outputs.items() if path == "-"]
    if len(streamed) > 1:
        raise CallerError(
            f"{streamed[1]}: expected a file, since {streamed[0]} has stdout, found -; name one"
        )
    seen = {_identity(path): name for name, path in inputs.items() if path and path != "-"}
    seen.pop("", None)
    for name, path in outputs.items():
        if not path or path == "-":
            continue
        identity = _identity(path)
        if identity in seen:
            raise CallerError(
                f"--{name}: expected another file than the {seen[identity]}, which it would "
                f"replace, found {path}; name another file"
            )
        if identity:
            seen[identity] = name
        parent = os.path.dirname(os.path.realpath(path))
        for what, folder in inputs.items():
            if folder and os.path.isdir(folder) and os.path.realpath(folder) == parent:
                raise CallerError(
                    f"--{name}: expected a file outside the folder of the {what}, of which it "
                    f"would become a part, found {path}; name another file"
                )
        try:
            _target(path)
        except CallerError as error:
            raise CallerError(f"--{name} {error}") from None


def _identity(path: str) -> tuple[int, int] | str:
    """The same value for all names of one file, hard links too; "" for a device or a pipe."""
    try:
        result = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    except ValueError:  # a NUL in the name of an input, which opening it refuses
        return ""
    return (result.st_dev, result.st_ino) if stat.S_ISREG(result.st_mode) else ""


def _target(path: str) -> tuple[Path, bool]:
    """The file behind any link, and whether it is special: a device, a pipe, or the name of an
    open stream. Raises CallerError for what no file can be written to."""
    special = bool(_OPEN_STREAM.match(path))
    file = Path(path if special else os.path.realpath(path))
    reason: str | None = ""
    try:
        mode = file.stat().st_mode if file.exists() else 0
        special = special or (mode != 0 and not stat.S_ISREG(mode))
        places = [file] * bool(mode) + [file.parent] * (not special)
        if stat.S_ISDIR(mode):
            reason = "a directory"
        elif not file.parent.is_dir():
            reason = "no directory there"
        elif special and not mode:
            reason = "no open stream"
        elif mode and not special and not mode & _ANYONE_WRITES:
            reason = "a read-only file"
        elif not all(os.access(place, os.W_OK) for place in places):
            reason = "no right to write there"
    except OSError as error:  # a name that is too long
        reason = error.strerror
    if reason != "":
        raise unwritable(path, reason)
    return file, special


def unwritable(path: str, reason: str | None) -> CallerError:
    """The error for a file that cannot be written. reason: why it cannot."""
    return CallerError(
        f"{path}: expected a file that can be written, found: {reason}; name another file"
    )


def check_folder(path: str, what: str) -> None:
    """Raises CallerError if no file can be written to the folder, which may be made later. Call it
    before long work."""
    try:
        folder = Path(path).absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        _target(str(folder / "x"))
    except (CallerError, OSError) as error:
        raise CallerError(f"{what}: expected a folder for files, found none: {error}") from None


def _remove_leftovers(folder: Path) -> None:
    """Removes from the folder the drafts of dead processes of this user and machine."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            made = _MADE.fullmatch(entry.name)
            if made and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                try:
                    os.kill(int(made[1]), 0)
                except ProcessLookupError:
                    os.unlink(entry.path)
                except OSError:  # somebody else's process of this number
                    pass
