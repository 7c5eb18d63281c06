"""Writing files whole or not at all.

A new file appears under its name only when its last byte was written: the text goes to a file
beside it, which is renamed. What stood there before stays until then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from hicache.core.errors import CallerError


def write_whole(path: str, pieces: Iterable[str]) -> None:
    """Write text to a file; `-` is standard output. Raises CallerError if it cannot be written."""
    if path == "-":
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    target = Path(os.path.realpath(path))
    # a device or a pipe has no "before": write to it, never replace it
    special = target.exists() and not target.is_file()
    beside = target if special else target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "a directory of that name")
        with open(beside, "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        if not special:
            os.replace(beside, target)
    except OSError as error:
        raise CallerError(
            f"{path}: expected a file that can be written, found: {error.strerror}; "
            "name another file"
        ) from None
    finally:
        if not special:
            beside.unlink(missing_ok=True)
