"""Drafts and folders of commands that were killed: what they are called, and their removal.

A name says which process made it, on which machine. It is removed when that process no longer runs.
Does not write drafts (see output).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node())[:40] or "here"
_MADE = re.compile(rf"\.?hicache-{_HOST}-(\d{{1,9}})(-\d{{1,4}}\.tmp|-[a-z0-9_]{{8}})", re.ASCII)


def draft_name(number: int = 0) -> str:
    """The name of a draft of this process. number: of several at once, up to 9,999."""
    return f".hicache-{_HOST}-{os.getpid()}-{number}.tmp"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed after the block, or by a later command if this one is killed."""
    remove_leftovers(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"hicache-{_HOST}-{os.getpid()}-") as folder:
        yield Path(folder)


def folders() -> Iterator[tuple[int, Path]]:
    """The folders that processes of this user have now, and whose each is."""
    with suppress(OSError):
        for one in list(os.scandir(tempfile.gettempdir())):
            made = _MADE.fullmatch(one.name)
            if (
                made
                and one.is_dir(follow_symlinks=False)
                and one.stat(follow_symlinks=False).st_uid == os.getuid()
                and _runs(int(made[1]))
            ):
                yield int(made[1]), Path(one.path)


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
                _remove(one)


def _remove(one: os.DirEntry[str]) -> None:
    with suppress(OSError):
        if one.is_dir(follow_symlinks=False):
            shutil.rmtree(one.path, ignore_errors=True)
        else:
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
