"""The corpus: tapes in files named by the digest of their text, so that each is stored once.

Lives here: names, adding and listing. Does not interpret tapes (see tape) or play them.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.hicache import tape as tapes
from invariants.fuzz.hicache.tape import Tape

SUFFIX = ".jsonl"
SHORT = 16


def digest(tape: Tape) -> str:
    """SHA-256 of the canonical text, so a tape has the same name everywhere."""
    return sha256(tapes.dumps(tape).encode()).hexdigest()


def name_of(tape: Tape) -> str:
    return digest(tape)[:SHORT] + SUFFIX


def add(folder: Path, tape: Tape) -> Path:
    """Writes a tape unless it exists, and returns its path. Raises CallerError."""
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
    """Paths of all tapes of the folder, sorted."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def read(path: Path) -> Tape:
    """Reads a tape. Raises CallerError if its text does not match its name."""
    tape = tapes.read(path)
    if name_of(tape) != path.name:
        raise CallerError(
            f"{path}: expected the tape of that digest, found that of {name_of(tape)}; it was "
            "edited: rename it, or fetch it again"
        )
    return tape
