"""The results of a fuzz run: the sums, the files of the smallest failure of each kind, the printed
tables, the JSON document, and what it means."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from hicache.core.errors import CallerError
from invariants.fuzz.hicache import probes

from ..executors import WorkerLost
from ..terminal.output import unwritable, write_whole
from ..terminal.streams import ignore_broken_pipe, one_line, print_error
from ..terminal.streams import name as shown
from ..terminal.tables import console, pairs, table
from .work import FoundFailure, Result, Work

SHOWN = 12
# Codes that make all other results doubtful come first, then the costliest ones for a user.
WORST = (17, 16, 12, 13, 10, 11, 15, 14)


@dataclass
class FailureGroup:
    """All failures of one code and kind: their number, and the smallest of them. seconds: when the
    first of them was found, since the start.
    """

    count: int
    seed: int
    smallest: FoundFailure
    seconds: float = 0.0

    def rank(self) -> tuple[int, int]:
        return self.smallest.tape.count("\n"), self.seed


@dataclass
class Tally:
    sequences: int = 0
    operations: int = 0
    events: int = 0
    busy_ns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    kinds: dict[tuple[int, str], FailureGroup] = field(default_factory=dict)

    def add(self, result: Result, seconds: float = 0.0) -> FoundFailure | None:
        """Adds a result. Returns its failure if that is the smallest of its kind so far.

        seconds: since the start of the run.
        """
        self.sequences += 1
        for name in ("operations", "events", "busy_ns", "counts", "probes"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        if result.failure is None:
            return None
        key = (result.failure.code, result.failure.kind)
        new = FailureGroup(1, result.seed, result.failure, seconds)
        old = self.kinds.get(key)
        if old is not None:
            old.count += 1
            if old.rank() <= new.rank():
                return None
            new.count, new.seconds = old.count, old.seconds
        self.kinds[key] = new
        return result.failure

    @property
    def failures(self) -> int:
        return sum(kind.count for kind in self.kinds.values())

    @property
    def speed(self) -> int:
        """Events per second of one core."""
        return self.events * 10**9 // self.busy_ns if self.busy_ns else 0

    def code(self) -> int:
        """The exit code of the worst failure; 0 if there is none."""
        return min((code for code, _ in self.kinds), key=_badness, default=0)

    def sorted_kinds(self) -> list[FailureGroup]:
        keys = sorted(self.kinds, key=lambda one: (_badness(one[0]), one[1]))
        return [self.kinds[key] for key in keys]


def _badness(code: int) -> int:
    return WORST.index(code) if code in WORST else len(WORST)


@dataclass
class Files:
    """paths: the tape of each failure, by the failure's name.

    The run goes on if a file cannot be written; the seed in the summary draws the sequence again.
    """

    folder: Path
    paths: dict[str, str] = field(default_factory=dict)

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

    def _write(self, failure: FoundFailure) -> None:
        path = self.folder / f"{failure.name}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(str(path), error.strerror) from None
        write_whole(str(path), [failure.tape])
        self.paths[failure.name] = str(path)
        write_whole(str(path.with_suffix(".txt")), [failure.text.rstrip("\n"), "\n"])

    def _remove(self, name: str) -> None:
        old = Path(self.paths.pop(name))
        try:
            old.unlink(missing_ok=True)
            old.with_suffix(".txt").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(str(old), error.strerror) from None


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
        complete, lost = False, getattr(error, "exit_code", 2)
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


def show(
    tally: Tally,
    settings: dict[str, object],
    files: dict[str, str],
    hint: Callable[[FailureGroup], str],
    stream: TextIO,
) -> None:
    """Prints the summary.

    files: the tape of each failure, by the failure's name. hint: the text for one without a file.
    """
    out = console(stream)
    kinds = len(tally.kinds)
    faults = {name: n for name, n in tally.counts.items() if name.startswith("fault ")}
    missing, named = probes.unreached(tally.probes), len(probes.NAMES)
    left = f"; not {'; '.join(missing)}" if 0 < len(missing) <= SHOWN else ""
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    rows += [
        ("sequences", f"{tally.sequences:,}"),
        ("operations", f"{tally.operations:,}"),
        ("events", f"{tally.events:,}, {tally.speed:,} per second and core"),
        ("faults used", f"{sum(faults.values()):,}, of {len(faults)} different kinds"),
        ("states reached", f"{named - len(missing)} of {named}{left}"),
        ("failures", f"{tally.failures:,}" + (f", of {kinds} kinds" if kinds > 1 else "")),
    ]
    out.print(pairs("Fuzz", rows))
    for title, counts in (
        ("Faults used", faults),
        ("States reached most often", dict(tally.probes)),
    ):
        if counts:
            result = table(title, "", "times")
            for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:SHOWN]:
                result.add_row(name.removeprefix("fault "), f"{count:,}")
            if len(counts) > SHOWN:
                result.add_row(f"and {len(counts) - SHOWN:,} more", "")
            out.print(result)
    if tally.kinds:
        result = table("Failures", "code", "times", "entries", "kind")
        for kind in tally.sorted_kinds():
            one = kind.smallest
            result.add_row(str(one.code), f"{kind.count:,}", str(one.at), one.kind)
        out.print(result)
        for kind in tally.sorted_kinds():
            print(f"\n{kind.smallest.code} {kind.smallest.kind}", file=stream)
            told = kind.smallest.text.splitlines()
            for line in told if kind.smallest.name in files else [*told, hint(kind)]:
                print(f"    {line}", file=stream)


def document(
    tally: Tally,
    settings: dict[str, object],
    files: dict[str, str],
    command: str,
    complete: bool,
    code: int,
) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys.

    code: the exit code of the command.
    """
    return {
        "format": "hicache-fuzz-report",
        "version": 1,
        "command": command,
        "complete": complete,
        "exit_code": code,
        "settings": settings,
        "sequences": tally.sequences,
        "operations": tally.operations,
        "events": tally.events,
        "events_per_second_and_core": tally.speed,
        "failures": [
            {
                "code": kind.smallest.code,
                "kind": kind.smallest.kind,
                "times": kind.count,
                "seed": kind.seed,
                "entries": kind.smallest.at,
                "hash_seed": int(kind.smallest.hash_seed) if kind.smallest.hash_seed else None,
                "seconds": round(kind.seconds, 3),
                "event": kind.smallest.event,
                "event_text": kind.smallest.event_text,
                "tape": files.get(kind.smallest.name),
                "text": kind.smallest.text,
            }
            for kind in tally.sorted_kinds()
        ],
        "counts": dict(sorted(tally.counts.items())),
        "probes": dict(sorted(tally.probes.items())),
        "not_reached": probes.unreached(tally.probes),
    }


def conclusions(
    tally: Tally, complete: bool, lost: bool = False, checks: str = "every"
) -> list[str]:
    """The sentences. complete: whether all sequences were played. lost: whether an error of the
    harness ended the run. checks: the level of checks."""
    played = f"{tally.sequences:,} sequence{'' if tally.sequences == 1 else 's'}"
    why = "An error ended the run" if lost else "The run was interrupted"
    told = [] if complete else [f"{why} after {played}."]
    if failed := tally.failures:
        first = f"Begin with {'the one with the fewest entries' if len(tally.kinds) > 1 else 'it'}."
        told += [f"{failed:,} of {played} failed, in {len(tally.kinds)} ways. {first}"]
    elif tally.sequences:
        what = "No sequence failed" if checks == "off" else "No check failed"
        told += [f"{what} in {played} with {tally.events:,} events. Another --seed draws others."]
    return told
