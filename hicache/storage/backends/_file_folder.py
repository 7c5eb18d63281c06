"""The folder of a file store: its manifest, who has it open, and what killed processes left.

manifest.json     which kind of folder this is, and of which version
lock              locked while the folder is made or opened
index.sqlite      which slot holds which key (`_file_index`), with SQLite's -wal and -shm
reserve           room on the disk for the index (`_file_data`)
segments/N.slots  the values (`_file_data`)
owners/N          one file per open store, locked as long as the store is open
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from hicache.core.errors import CallerError

from ._file_changes import REFUSED
from ._file_data import PAGE_BYTES, Data, Reserve, sync_folder
from ._file_index import VERSION, Index, create

MANIFEST = "manifest.json"
_MANIFEST = {"store": "hicache pages", "version": VERSION}
_MOST_MANIFEST = 4096  # bytes


class Opened:
    """An open folder: its index, its data and the lock that says that this store lives.

    A folder that cannot be written, or that has no room for anything on a full disk, is opened for
    reading. unwritable: why; else empty."""

    def __init__(self, path: Path, size_bytes: int, timeout_s: float, durable: bool) -> None:
        """Raises CallerError for a folder that cannot be used, and leaves it as it was."""
        self.path = path
        self.unwritable = ""
        self.full = False
        self._owner: Owner | None = None
        self._index = path / "index.sqlite"
        with _told(path):
            is_ours = _check(path)
            if is_ours and not _may_write(path):
                self.unwritable = f"{path} cannot be written"
                self._open_for_reading(timeout_s)
            else:
                try:
                    self._open(size_bytes, timeout_s, durable)
                except REFUSED as error:
                    if not (is_ours and Reserve(path).lacks(error)):
                        raise
                    self.unwritable, self.full = f"the disk of {path} is full", True
                    self._open_for_reading(timeout_s)
            self._seen = self._look()

    def is_there(self) -> bool:
        """Whether the folder still is the one that was opened."""
        try:
            return self._look() == self._seen
        except OSError:
            return False

    def may_be_written(self) -> bool:
        """Whether it was opened for reading and may be opened for writing now."""
        return bool(self.unwritable) and _may_write(self.path) and Reserve(self.path).has_room()

    def close(self) -> None:
        try:
            self.index.close()
        finally:
            self.data.close()
            if self._owner is not None:
                self._owner.give_up()

    def _open(self, size_bytes: int, timeout_s: float, durable: bool) -> None:
        reserve = Reserve(self.path)
        with reserve.locked():
            _make(self.path)
            try:
                self._connect(reserve, size_bytes, timeout_s, durable)
            except REFUSED as error:
                if not reserve.lacks(error) or not reserve.give():
                    raise
                self._connect(reserve, size_bytes, timeout_s, durable)

    def _connect(self, reserve: Reserve, size_bytes: int, timeout_s: float, durable: bool) -> None:
        self.data = Data(self.path / "segments", reserve.spare)
        owners = Owners(self.path / "owners")
        with ExitStack() as undo:
            base = _connection(str(self._index), timeout_s)
            undo.callback(base.close)
            base.execute("PRAGMA journal_mode = WAL")
            base.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            base.execute(f"PRAGMA wal_autocheckpoint = {reserve.log_bytes // PAGE_BYTES}")
            create(base)
            row = base.execute("UPDATE meta SET tick = tick + 1 RETURNING tick").fetchone()
            self._owner = owners.claim(row[0])
            undo.callback(self._owner.give_up)
            self.index = Index(base, self.data, size_bytes, row[0], owners.is_open, reserve)
            self.index.clean()
            owners.clean()
            undo.pop_all()

    def _open_for_reading(self, timeout_s: float) -> None:
        """Without a change of the folder. SQLite wants to write beside an index that is in use; an
        index that nobody has open is read as it is."""
        self.data = Data(self.path / "segments", writable=False)
        for how in ("mode=ro", "immutable=1"):
            base = _connection(f"{self._index.absolute().as_uri()}?{how}", timeout_s, uri=True)
            try:
                base.execute("SELECT tick FROM meta").fetchall()
            except sqlite3.OperationalError:
                base.close()
                if how != "mode=ro" or self._log_bytes():
                    raise
            else:
                self.index = Index(base, self.data, 0, 0, lambda _: True)
                return

    def _look(self) -> tuple[int, ...]:
        """What stays the same as long as the folder is the one that was opened. An index that was
        opened for reading may be read without locks, so it must not change."""
        found = os.stat(self._index)
        if not self.unwritable:
            return (found.st_ino,)
        return found.st_ino, found.st_mtime_ns, found.st_size, self._log_bytes()

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self._index}-wal").st_size
        except FileNotFoundError:
            return 0


class Owner:
    """One open store."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def give_up(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(self._file)


class Owners:
    """The files by which processes see which stores are open. Each is locked before it has its
    name, so that an unlocked one always belongs to a store that is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self, number: int) -> Owner:
        path, new = self._folder / str(number), self._folder / f"{number}.new"
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        new.rename(path)
        return Owner(path, file)

    def is_open(self, number: int) -> bool:
        try:
            file = os.open(self._folder / str(number), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def clean(self) -> None:
        """Delete the files of stores that are gone. Needs the folder's lock."""
        for path in self._folder.iterdir():
            if path.suffix == ".new" or (path.name.isdigit() and not self.is_open(int(path.name))):
                path.unlink(missing_ok=True)


def _check(path: Path) -> bool:
    """Check that the folder is one of ours and of our version, or empty. Changes nothing in it.
    Returns whether it is ours."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        _refuse(f"expected a folder, found a file in {path}", "name another place")
    manifest = path / MANIFEST
    try:
        with open(manifest, "rb") as file:
            text = file.read(_MOST_MANIFEST)
    except FileNotFoundError:
        ours = {f"{MANIFEST}.new", "lock", "reserve"}
        strange = sorted({one.name for one in path.iterdir()} - ours)
        if strange and not manifest.exists():
            _refuse(
                f"expected a store or an empty folder, found other files in {path} such as "
                f"{strange[0]!a}",
                "name another folder",
            )
        return False
    try:
        found = json.loads(text)
        kind, version = found["store"], found["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        kind, version = None, None
    if kind != _MANIFEST["store"]:
        _refuse(f"expected the manifest of a store, found something else in {manifest}", _OTHER)
    if version != VERSION:
        _refuse(
            f"expected a store of version {VERSION} in {path}, found version {ascii(version)[:20]}",
            _OTHER,
        )
    index = path / "index.sqlite"
    if not (index.exists() and index.stat().st_size) and any(path.glob("segments/*.slots")):
        _refuse(
            f"expected the index of the values in {path}, found none",
            "put its index.sqlite back, or delete the folder",
        )
    return True


def _may_write(path: Path) -> bool:
    """Whether the system would let us write what is there."""
    names = ("", "lock", "index.sqlite", "segments", "owners")
    return all(os.access(path / name, os.W_OK) for name in names if (path / name).exists())


def _make(path: Path) -> None:
    """Make what is not there yet. Needs the folder's lock. The manifest comes first: a folder with
    anything else in it and without a manifest is somebody else's."""
    if not (path / MANIFEST).exists():
        new = path / f"{MANIFEST}.new"
        with open(new, "w") as file:
            file.write(json.dumps(_MANIFEST) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.rename(path / MANIFEST)
        sync_folder(path)
    for name in ("segments", "owners"):
        (path / name).mkdir(exist_ok=True)


_OTHER = "name another folder, or delete this one"


def _connection(name: str, timeout_s: float, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        uri=uri,
    )


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the system refuses into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        _refuse(
            f"expected a folder that can be written, found at {path}: {reason}",
            "free some space, or name another folder",
        )
    except sqlite3.OperationalError as error:
        _refuse(
            f"expected an index that can be opened, found in {path}: {error}",
            "close what holds it, free some space, or name another folder",
        )
    except sqlite3.DatabaseError as error:
        _refuse(f"expected the index of a store, found in {path}: {error}", _OTHER)


def _refuse(what: str, advice: str) -> NoReturn:
    raise CallerError(f"storage: {what}; {advice}")
