"""What the weights of a model are called in the keys of a store: a digest of their files.

Files may have hundreds of gigabytes, so of each file its size, its beginning (in safetensors the
names and shapes of all tensors) and a part of every megabyte are read, about 0.4 %. Another
training gives another digest; a change of a few single numbers may not, so who edits weights by
hand gives them a name (`weights`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from hicache.core.errors import CallerError

_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_HEAD = 1 << 20
_STEP, _PART = 1 << 20, 4096


def digest_of_files(place: str, what: str) -> str:
    """A digest of the weights in a folder, or of one file, in hexadecimal. what: for messages.

    Raises CallerError if there are none, or if they cannot be read."""
    try:
        files = _files(Path(place))
        if not files:
            raise CallerError(
                f"{what}: expected files of weights ({', '.join(_ENDINGS)}) in {place!a}, found "
                'none; give them a name with "weights"'
            )
        digest = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as stream:
                for start, length in _parts(size):
                    stream.seek(start)
                    digest.update(stream.read(length))
    except OSError as error:
        raise CallerError(
            f"{what}: expected weights that can be read in {place!a}, found: {error.strerror}; "
            'or give them a name with "weights"'
        ) from None
    return digest.hexdigest()


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(one for one in place.iterdir() if one.suffix in _ENDINGS)


def _parts(size: int) -> Iterable[tuple[int, int]]:
    yield 0, min(size, _HEAD)
    for start in range(_HEAD, size, _STEP):
        yield start, _PART
    yield max(0, size - _PART), _PART
