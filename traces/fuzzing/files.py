"""The files of a hunt: a tape and a text for the smallest failure of each kind.

Lives here: writing them as they are found, and removing what a smaller one replaces. Must not live
here: what a failure is (fuzzing/work), or what is said of it (fuzzing/report).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from hicache.core.errors import CallerError

from ..terminal.output import unwritable, write_whole
from ..terminal.streams import ignore_broken_pipe
from .report import Tally
from .work import Found


@dataclass
class Files:
    """paths: where the tape of each failure lies, by its name. A hunt goes on where one cannot be
    written: the seed in the summary draws it again."""

    folder: Path
    paths: dict[str, str] = field(default_factory=dict)
    _found_there: set[str] = field(default_factory=set)  # by another run: not ours to remove

    def keep(self, found: Found, tally: Tally) -> None:
        """What is a failure's, the files of a larger one of its kind removed."""
        current = {kind.found.name for kind in tally.kinds.values()}
        larger = [name for name in self.paths if name not in current]
        try:
            self._write(found)
            for name in larger:
                self._remove(name)
        except CallerError as error:
            said = f"hicache: {error}; the run goes on"
        else:
            instead = ", smaller than the previous one, which was removed" if larger else ""
            said = f"{found.code} {found.kind}: {self.paths[found.name]}{instead}"
        with ignore_broken_pipe():
            print(said, file=sys.stderr, flush=True)

    def keep_what_is_left(self, tally: Tally) -> None:
        """Another run into the same folder may have taken a tape for its own, and removed it."""
        for kind in tally.kinds.values():
            path = self.paths.get(kind.found.name)
            if path is not None and not Path(path).exists():
                self.keep(kind.found, tally)

    def _write(self, found: Found) -> None:
        path = self.folder / f"{found.name}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._found_there.add(found.name)
        except OSError as error:
            raise unwritable(str(path), error.strerror) from None
        write_whole(str(path), [found.tape])
        self.paths[found.name] = str(path)
        write_whole(str(path.with_suffix(".txt")), [found.text.rstrip("\n"), "\n"])

    def _remove(self, name: str) -> None:
        old = Path(self.paths.pop(name))
        if name in self._found_there:
            return
        try:
            old.unlink(missing_ok=True)
            old.with_suffix(".txt").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(str(old), error.strerror) from None
