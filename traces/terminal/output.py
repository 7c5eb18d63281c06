"""Writes files completely or not at all, and never over an input; or adds whole lines to one.

A text goes to a temporary file in the same folder, which then replaces the target. The old file
stays until then. Devices and pipes are written to and never replaced.

Drafts and temporary folders have names that say which process made them, on which machine; what a
killed command left is removed by a later one.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import platform
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, Self

import zstandard

from hicache.core.errors import CallerError

from .signals import deferred
from .streams import raw

_ANYONE_WRITES = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH  # root could write without
# Names of open streams. A file behind one is added to and never replaced.
_OPEN_STREAM = re.compile(r"/dev/(std(in|out|err)$|fd/)|/proc/")
_HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node())[:40] or "here"
_MADE = re.compile(rf"\.hicache-{_HOST}-(\d{{1,9}})-\d{{1,4}}\.tmp", re.ASCII)


class _Target(NamedTuple):
    """What an output's name stands for. file: behind any link. special: a device, a pipe, or the
    name of an open stream."""

    name: str
    file: Path
    special: bool


def write_whole(path: str, pieces: Iterable[str], pack: bool = False) -> None:
    """Writes text to a file; `-` is standard output. Raises CallerError if it cannot be written.

    pack: whether a name that ends in .gz or .zst is that of a packed file.
    """
    write_all([(path, pieces)], pack=pack)


def write_all(files: Sequence[tuple[str, Iterable[str]]], pack: bool = False) -> None:
    """Writes several files as `write_whole` writes one: all of them, or none.

    Standard output, devices and pipes, which cannot be taken back, come after all files.
    """
    targets = [(_target(path), pieces) for path, pieces in files if path != "-"]
    drafts: list[tuple[_Target, Path]] = []
    try:
        for target, pieces in targets:
            if not target.special:
                draft = target.file.with_name(draft_name(len(drafts)))
                remove_leftovers(target.file.parent)
                drafts.append((target, draft))
                _fill(target.name, draft, "w", pieces, pack)
        for target, pieces in targets:
            if target.special:
                _fill(target.name, target.file, "a", pieces)
        for target, draft in drafts:
            try:
                os.replace(draft, target.file)
            except OSError as error:
                raise unwritable(target.name, error.strerror) from None
    finally:
        for _, draft in drafts:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    for path, pieces in files:
        if path == "-":
            stream = raw(sys.stdout)
            stream.writelines(pieces)
            stream.flush()


def _fill(name: str, path: Path, mode: str, pieces: Iterable[str], pack: bool = False) -> None:
    try:
        with _opened(name, path, mode, pack) as stream:
            stream.writelines(pieces)
    except OSError as error:
        raise unwritable(name, error.strerror) from None


@contextmanager
def _opened(name: str, path: Path, mode: str, pack: bool) -> Iterator[IO[str]]:
    """The file as text, packed if its name says so. The time is not written into it."""
    if pack and name.endswith(".gz"):
        with (
            open(path, f"{mode}b") as file,
            gzip.GzipFile("", f"{mode}b", fileobj=file, mtime=0) as packed,
            io.TextIOWrapper(packed, encoding="utf-8") as stream,
        ):
            yield stream
    elif pack and name.endswith(".zst"):
        with (
            open(path, f"{mode}b") as file,
            zstandard.ZstdCompressor().stream_writer(file) as writer,
            io.TextIOWrapper(writer, encoding="utf-8") as stream,
        ):
            yield stream
    else:
        with open(path, mode, encoding="utf-8") as stream:
            yield stream


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
        for name_of_input, folder in inputs.items():
            if folder and folder != "-" and _joins(path, folder):
                raise CallerError(
                    f"--{name}: expected a file outside the folder of the {name_of_input}, of "
                    f"which it would become a part, found {path}; name another file"
                )
        try:
            _check_writable(path)
        except CallerError as error:
            raise CallerError(f"--{name} {error}") from None


def _joins(path: str, folder: str) -> bool:
    """Whether a file would lie in a folder among files with its ending."""
    try:
        if not os.path.isdir(folder) or not os.path.samefile(
            os.path.dirname(os.path.realpath(path)), folder
        ):
            return False
        ending = Path(path).suffix
        return bool(ending) and any(name.endswith(ending) for name in os.listdir(folder))
    except (OSError, ValueError):  # checked elsewhere
        return False


def _check_writable(path: str) -> None:
    target = _target(path)
    if not target.file.parent.is_dir():
        raise unwritable(path, "no directory there")
    exists = target.file.exists()
    if target.special and not exists:
        raise unwritable(path, "no open stream")
    places = [target.file] * exists + [target.file.parent] * (not target.special)
    if not all(os.access(place, os.W_OK) for place in places):
        raise unwritable(path, "no right to write there")


def _identity(path: str) -> tuple[int, int] | str:
    """The same value for all names of one file, hard links too; "" for a device or a pipe."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    except ValueError:  # a NUL in the name of an input, which opening it refuses
        return ""
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else ""


def _target(path: str) -> _Target:
    """What `path` stands for. Raises CallerError for what no file can be written to."""
    file = Path(os.path.realpath(path))
    try:
        if file.is_dir():
            raise unwritable(path, "a directory")
        if file.is_symlink():
            raise unwritable(path, "a link to itself")
        found = file.stat() if file.exists() else None
        special = found is not None and not stat.S_ISREG(found.st_mode)
        if found is not None and not special and not found.st_mode & _ANYONE_WRITES:
            raise unwritable(path, "a read-only file")
        return _Target(path, file, special or bool(_OPEN_STREAM.match(path)))
    except OSError as error:  # a name that is too long
        raise unwritable(path, error.strerror) from None


def unwritable(path: str, reason: str | None) -> CallerError:
    """The error for a file that cannot be written. reason: why it cannot."""
    return CallerError(
        f"{path}: expected a file that can be written, found: {reason}; name another file"
    )


def check_folder(path: str, what: str) -> None:
    """Raises CallerError if no file can be written to the folder. Call it before long work.

    A folder that does not exist counts as writable if it can be created. Nothing is left behind.
    """
    folder = Path(path)
    missing = _missing(folder)
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
        _remove_empty(missing)


def _missing(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the deepest first."""
    whole = folder.absolute()
    return [parent for parent in (whole, *whole.parents) if not parent.exists()]


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def draft_name(number: int = 0) -> str:
    """The name of a draft of this process. number: of several at once, up to 9,999."""
    return f".hicache-{_HOST}-{os.getpid()}-{number}.tmp"


def remove_leftovers(folder: Path) -> None:
    """Removes from the folder what dead processes of this user and machine left there."""
    with suppress(OSError):
        for one in list(os.scandir(folder)):
            made = _MADE.fullmatch(one.name)
            if (
                made
                and not _runs(int(made[1]))
                and one.stat(follow_symlinks=False).st_uid == os.getuid()
            ):
                os.unlink(one.path)


def _runs(process: int) -> bool:
    """Whether there is a process of this number, anybody's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


class Lines:
    """An open file. begins: how its first line begins, so that another file is never cut off.
    repaired: whether a line that was cut off had to go."""

    begins = b""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.path = path
        self.repaired = False
        self._stream = stream
        self._read()

    @classmethod
    @contextmanager
    def opened(cls, path: str) -> Iterator[Self]:
        """The file at this path, made if it is missing, for reading and adding. Raises CallerError
        if it cannot be, if it is another one, or if another command writes to it."""
        try:
            stream = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise unwritable(path, error.strerror) from None
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CallerError(
                    f"{path}: expected that nobody else writes to it, found another command that "
                    "does; wait for it, or name another file"
                ) from None
            yield cls(path, stream)

    def take(self, line: Any) -> None:
        """Takes what a line holds. Raises one of the errors of a wrong shape if it is none of this
        file."""
        raise NotImplementedError

    def expected(self) -> str:
        """What the next line should be, in words."""
        raise NotImplementedError

    def append(self, line: Mapping[str, Any]) -> None:
        try:
            with deferred():  # Ctrl-C would cut the line off
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise unwritable(self.path, error.strerror) from None

    def _read(self) -> None:
        end = 0
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            whole = line.endswith(b"\n")
            if not whole and (number > 1 or self.begins.startswith(line[: len(self.begins)])):
                self.repaired = True
                self._stream.truncate(end)
                break
            end += len(line)
            try:
                if not whole:
                    raise ValueError("cut off")
                self.take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise CallerError(
                    f"{self.path}:{number}: expected {self.expected()}, found "
                    f"{line[:40].decode(errors='replace')!a}; name another file"
                ) from None
        self._stream.seek(0, os.SEEK_END)
