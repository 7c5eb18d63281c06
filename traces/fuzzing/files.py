"""The hunt, and its files: the tape and the text of the smallest failure of each kind.

Takes the results of sequences as they arrive, writes failures as they are found, removes those that
a smaller failure replaces, and says what ended the hunt. Does not start workers (see executors),
define failures (see work) or print results (see report).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from hicache.core.errors import CallerError

from ..executors import WorkerLost
from ..terminal.output import unwritable, write_whole
from ..terminal.streams import ignore_broken_pipe, one_line, print_error
from ..terminal.streams import name as shown
from .report import Tally
from .work import FoundFailure, Result, Work


@dataclass
class Files:
    """paths: the tape of each failure, by the failure's name.

    The run goes on if a file cannot be written; the seed in the summary draws the sequence again.
    """

    folder: Path
    paths: dict[str, str] = field(default_factory=dict)
    _existing: set[str] = field(default_factory=set)  # written by another run; never removed

    def keep(self, failure: FoundFailure, tally: Tally) -> None:
        """Writes the files of a failure, and removes those of a larger failure of its kind."""
        current = {kind.smallest.name for kind in tally.kinds.values()}
        larger = [name for name in self.paths if name not in current]
        try:
            self._write(failure)
            for name in larger:
                self._remove(name)
        except CallerError as error:
            message = one_line(f"hicache: {error}; the run goes on")
        else:
            note = ", smaller than the previous one, which was removed" if larger else ""
            message = f"{failure.code} {failure.kind}: {shown(self.paths[failure.name])}{note}"
        with ignore_broken_pipe():
            print(message, file=sys.stderr, flush=True)

    def restore_missing(self, tally: Tally) -> None:
        """Writes missing tapes again. Another run in the same folder may have removed them."""
        for kind in tally.kinds.values():
            path = self.paths.get(kind.smallest.name)
            if path is not None and not Path(path).exists():
                self.keep(kind.smallest, tally)

    def _write(self, failure: FoundFailure) -> None:
        path = self.folder / f"{failure.name}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._existing.add(failure.name)
        except OSError as error:
            raise unwritable(str(path), error.strerror) from None
        write_whole(str(path), [failure.tape])
        self.paths[failure.name] = str(path)
        write_whole(str(path.with_suffix(".txt")), [failure.text.rstrip("\n"), "\n"])

    def _remove(self, name: str) -> None:
        old = Path(self.paths.pop(name))
        if name in self._existing:
            return
        try:
            old.unlink(missing_ok=True)
            old.with_suffix(".txt").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(str(old), error.strerror) from None


_BAD_INPUT = 2


def hunt(results: Generator[Result], tally: Tally, files: Files, first: bool) -> tuple[bool, int]:
    """Adds all results to the tally; with `first`, only up to the first failure.

    Returns whether it was not interrupted, and the exit code of what ended it, or 0.
    """
    complete, lost, begun = True, 0, time.monotonic()
    try:
        for result in results:
            failure = tally.add(result, time.monotonic() - begun)
            if failure is not None:
                files.keep(failure, tally)
            if tally.kinds and first:
                break
    except KeyboardInterrupt:
        complete = False
        print_error("interrupted; found so far:")
    except (WorkerLost, CallerError) as error:
        if not tally.sequences and isinstance(error, CallerError):
            raise
        complete, lost = False, getattr(error, "exit_code", _BAD_INPUT)
        print_error(str(error))
    return complete, lost


def shrink(tally: Tally, files: Files, work: Work) -> bool:
    """Shrinks the tape of each failure. Returns whether it was not interrupted."""
    try:
        for kind in tally.sorted_kinds():
            small = work.shrunk(kind.smallest)
            if small.name != kind.smallest.name:
                kind.smallest = small
                files.keep(small, tally)
    except KeyboardInterrupt:
        print_error("interrupted; not every tape is shrunk")
        return False
    return True
