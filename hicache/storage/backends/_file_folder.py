"""The folder of a file store: its manifest, who has it open, and what killed processes left.

manifest.json     which kind of folder this is, and of which version
lock              locked while the folder is made or opened
index.sqlite      which slot holds which key (`_file_index`), with SQLite's -wal and -shm
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

from ._file_data import Data, sync_folder
from ._file_index import Index, create

VERSION = 1
MANIFEST = "manifest.json"
_MANIFEST = {"store": "hicache pages", "version": VERSION}
_MOST_MANIFEST = 4096  # bytes


class Opened:
    """An open folder: its index, its data and the lock that says that this store lives."""

    def __init__(self, path: Path, size_bytes: int, timeout_s: float, durable: bool) -> None:
        """Raises CallerError for a folder that cannot be used, and leaves it as it was."""
        self.path = path
        with _told(path):
            _check(path)
            with _locked(path / "lock"), ExitStack() as undo:
                _make(path)
                owners = Owners(path / "owners")
                self.data = Data(path / "segments")
                base = _connect(path / "index.sqlite", timeout_s, durable)
                undo.callback(base.close)
                row = base.execute("UPDATE meta SET tick = tick + 1 RETURNING tick").fetchone()
                self._owner = owners.claim(row[0])
                undo.callback(self._owner.give_up)
                self.index = Index(base, self.data, size_bytes, row[0], owners.is_open)
                self.index.clean()
                owners.clean()
                self._inode = os.stat(path / "index.sqlite").st_ino
                undo.pop_all()

    def is_there(self) -> bool:
        """Whether the folder still is the one that was opened."""
        try:
            return os.stat(self.path / "index.sqlite").st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        try:
            self.index.close()
        finally:
            self.data.close()
            self._owner.give_up()


class Owner:
    """One open store."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def give_up(self) -> None:
        self._path.unlink(missing_ok=True)
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


def _check(path: Path) -> None:
    """Check that the folder is one of ours and of our version, or empty. Changes nothing in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        _refuse(f"expected a folder, found a file in {path}", "name another place")
    manifest = path / MANIFEST
    try:
        with open(manifest, "rb") as file:
            text = file.read(_MOST_MANIFEST)
    except FileNotFoundError:
        strange = sorted({one.name for one in path.iterdir()} - {f"{MANIFEST}.new", "lock"})
        if strange and not manifest.exists():
            _refuse(
                f"expected a store or an empty folder, found other files in {path} such as "
                f"{strange[0]!a}",
                "name another folder",
            )
        return
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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


_OTHER = "name another folder, or delete this one"


def _connect(path: Path, timeout_s: float, durable: bool) -> sqlite3.Connection:
    base = sqlite3.connect(
        path,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )
    try:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        base.execute("PRAGMA wal_autocheckpoint = 4000")
        create(base)
    except BaseException:
        base.close()
        raise
    return base


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
