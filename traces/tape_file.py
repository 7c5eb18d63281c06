"""Where a command finds a tape: a file that `hicache fuzz` wrote, or a test that shrink exported.

Must not live here: what a tape means, or whether this version knows what it speaks of.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz import tape as tapes
from invariants.fuzz.tape import Tape


def open_tape(path: str) -> Tape:
    """Raises CallerError, one line, for anything that holds no whole tape."""
    if not path.endswith(".py"):
        return tapes.read(Path(path))
    try:
        found = runpy.run_path(path).get("TAPE")
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CallerError(f"{path}: expected a test that shrink exported, found: {said}") from None
    if not isinstance(found, Tape):
        raise CallerError(
            f"{path}: expected a test that shrink exported, with its TAPE, found none; name a tape"
        )
    return found
