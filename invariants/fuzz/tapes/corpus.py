"""The corpus: tapes kept on disk under the digest of their own text, so that none is there twice.

Lives here: names, adding and listing. Must not live here: what a tape means (tape), or playing it.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from hicache.core.errors import CallerError

from . import tape as tapes
from .tape import Tape

SUFFIX = ".jsonl"
SHORT = 16


def digest(tape: Tape) -> str:
    """SHA-256 of the canonical text: the same tape has the same name everywhere."""
    return sha256(tapes.dumps(tape).encode()).hexdigest()


def name_of(tape: Tape) -> str:
    return digest(tape)[:SHORT] + SUFFIX


def add(folder: Path, tape: Tape) -> Path:
    """Where it lies now; a tape that is there already is left as it is."""
    path = folder / name_of(tape)
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallerError(
                f"{folder}: expected a folder for tapes, found: {error.strerror}; name another"
            ) from None
        tapes.write(path, tape)
    return path


def paths(folder: Path) -> list[Path]:
    """Every tape of the folder, by name."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def read(path: Path) -> Tape:
    """Raises CallerError where the text is not what the name says: it was edited or cut off."""
    tape = tapes.read(path)
    if name_of(tape) != path.name:
        raise CallerError(
            f"{path}: expected the tape of that digest, found that of {name_of(tape)}; it was "
            "edited: rename it, or fetch it again"
        )
    return tape
