"""Where a command finds a tape: a file that `hicache fuzz` wrote, or a test that shrink exported.

Must not live here: what a tape means, or whether this version knows what it speaks of.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.tapes import lines
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape


def open_tape(path: str) -> Tape:
    """Raises CallerError, one line, for anything that holds no whole tape."""
    if not path.endswith(".py"):
        return tapes.read(Path(path))
    lines.text_of(Path(path), "test that shrink exported")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # where a document may be due
            found = runpy.run_path(path).get("TAPE")
    except (Exception, SystemExit) as error:
        said = (str(error).splitlines() or [""])[0][:100]
        raise CallerError(
            f"{path}: expected a test that shrink exported, found {type(error).__name__}"
            f"{f': {said}' if said else ''}; name a tape"
        ) from None
    if not isinstance(found, Tape):
        raise CallerError(
            f"{path}: expected a test that shrink exported, with its TAPE, found none; name a tape"
        )
    return found
