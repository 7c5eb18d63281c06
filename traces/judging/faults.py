"""What happens to the folder of a file store from outside: flipped bytes, files that are cut, files
that are gone, an index that is noise, and a store that is dead.

    flip     a few bytes in the values
    cut      a file of values is half as long
    delete   a file of values is gone
    gone     the folder is gone
    noise    the index is overwritten; until the next start nothing of it can be used
    dead     a plain file stands where the folder was
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

UNUSABLE = ("noise", "dead")  # what a store cannot be opened with
_FLIPS = 64


def do(name: str, folder: Path, rng: Random) -> bool:
    """Returns False if there is nothing that could be harmed."""
    files = sorted(folder.glob("segments/*")) if folder.is_dir() else []
    if name == "gone" or name == "dead":
        remove(folder)
        if name == "dead":
            folder.write_bytes(b"no folder")
        return True
    if name == "noise":
        index = folder / "index.sqlite"
        if not index.exists():
            return False
        index.write_bytes(rng.randbytes(8192))
        return True
    if not files:
        return False
    if name == "flip":
        for file in files:
            _flip(file, rng)
    elif name == "cut":
        file = rng.choice(files)
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size // 2)
    else:
        rng.choice(files).unlink()
    return True


def remove(folder: Path) -> None:
    """Remove the store, whatever is there."""
    if folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)


def _flip(file: Path, rng: Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as stream:
        for _ in range(_FLIPS if size else 0):
            at = rng.randrange(size)
            stream.seek(at)
            [byte] = stream.read(1)
            stream.seek(at)
            stream.write(bytes([byte ^ (1 << rng.randrange(8))]))
