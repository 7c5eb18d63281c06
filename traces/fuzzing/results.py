"""The results of a fuzz run, whatever is fuzzed: sums, the smallest failure of each kind and its
files, the printed summary, and the JSON document."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TextIO

from hicache.core.errors import CallerError

from ..executors import WorkerLost
from ..terminal.output import unwritable, write_whole
from ..terminal.streams import ignore_broken_pipe, one_line, print_error
from ..terminal.streams import name as shown
from ..terminal.tables import console, pairs, table

SHOWN = 12
# Codes that make all other results doubtful come first, then the costliest ones for a user.
WORST = (17, 16, 12, 13, 10, 11, 15, 14)


@dataclass(frozen=True)
class Failure:
    """A failure, and the sequence that repeats it.

    kind: equal for failures of the same sort. text: how it is told. at: entries that were played,
    with the one that failed. event: number of the core's last event before it, from 1, and
    event_text that event. raw: as the process of an engine gave it. known: the row of known
    failures that it is. script: the engine's own calls.
    """

    code: int
    kind: str
    text: str
    at: int
    sequence: str
    event: int = 0
    event_text: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] | None = None
    script: str = ""

    @property
    def name(self) -> str:
        """Of its files. Equal failures have equal names on every machine."""
        kind = re.sub(r"[^a-z0-9]+", "-", self.kind.lower()).strip("-")
        return f"{self.code}-{kind[:40]}-{sha256(self.sequence.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Result:
    """The result of one sequence. operations: entries that were played. events: that the core
    handled. counts: how often each operation, fault and state was reached."""

    seed: int
    operations: int
    events: int
    busy_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None


class Target(Protocol):
    """What is fuzzed. reaches: what a run should reach."""

    @property
    def reaches(self) -> Sequence[str]: ...

    def results(self, seeds: Iterator[int]) -> Generator[Result]:
        """Plays the sequences of these seeds."""

    def shrunk(self, failure: Failure) -> Failure:
        """The same failure of a smaller sequence, told with all that is known of it."""

    def command(self, seed: int) -> str:
        """The command that plays the sequence of this seed alone."""


@dataclass
class FailureGroup:
    """All failures of one code and kind: their number, and the smallest of them. seconds: when the
    first of them was found, since the start. shrunk: whether it is told with its operations."""

    count: int
    seed: int
    smallest: Failure
    seconds: float = 0.0
    shrunk: bool = False

    def rank(self) -> tuple[int, int]:
        return self.smallest.sequence.count("\n"), self.seed


@dataclass
class Tally:
    sequences: int = 0
    operations: int = 0
    events: int = 0
    busy_ns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[tuple[int, str], FailureGroup] = field(default_factory=dict)

    def add(self, result: Result, seconds: float = 0.0) -> FailureGroup | None:
        """Adds a result. Returns its group if its failure is the smallest of its kind so far."""
        self.sequences += 1
        for name in ("operations", "events", "busy_ns"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.counts.update(result.counts)
        if result.failure is None:
            return None
        key = (result.failure.code, result.failure.kind)
        new = FailureGroup(1, result.seed, result.failure, seconds)
        old = self.kinds.get(key)
        if old is not None:
            old.count += 1
            if old.shrunk or old.rank() <= new.rank():
                return None
            new.count, new.seconds = old.count, old.seconds
        self.kinds[key] = new
        return new

    def per_second(self, count: int) -> int:
        """Of one core."""
        return count * 10**9 // self.busy_ns if self.busy_ns else 0

    def code(self) -> int:
        """The exit code of the worst failure that is not known; 0 if there is none."""
        codes = [kind.smallest.code for kind in self.kinds.values() if not kind.smallest.known]
        return min(codes, key=_badness, default=0)

    def sorted_kinds(self) -> list[FailureGroup]:
        keys = sorted(self.kinds, key=lambda key: (_badness(key[0]), key[1]))
        return [self.kinds[key] for key in keys]


def _badness(code: int) -> int:
    return WORST.index(code) if code in WORST else len(WORST)


@dataclass
class Files:
    """paths: the sequence of each failure, by the failure's name.

    The run goes on if a file cannot be written; the seed in the summary draws the sequence again.
    """

    folder: Path
    paths: dict[str, str] = field(default_factory=dict)

    def keep(self, failure: Failure, tally: Tally) -> None:
        """Writes the files of a failure, and removes those of a larger failure of its kind."""
        current = {kind.smallest.name for kind in tally.kinds.values()}
        larger = [name for name in self.paths if name not in current]
        try:
            self._write(failure)
            for name in larger:
                for suffix in (".jsonl", ".txt", ".py"):
                    Path(self.paths[name]).with_suffix(suffix).unlink(missing_ok=True)
                del self.paths[name]
        except CallerError as error:
            message = one_line(f"hicache: {error}; the run goes on")
        except OSError as error:
            message = one_line(f"hicache: {unwritable(str(self.folder), error.strerror)}")
        else:
            note = ", smaller than the previous one, which was removed" if larger else ""
            message = f"{failure.code} {failure.kind}: {shown(self.paths[failure.name])}{note}"
        with ignore_broken_pipe():
            print(message, file=sys.stderr, flush=True)

    def _write(self, failure: Failure) -> None:
        path = self.folder / f"{failure.name}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(str(path), error.strerror) from None
        write_whole(str(path), [failure.sequence])
        self.paths[failure.name] = str(path)
        write_whole(str(path.with_suffix(".txt")), [failure.text.rstrip("\n"), "\n"])
        if failure.script:
            write_whole(str(path.with_suffix(".py")), [failure.script])


def hunt(
    target: Target, seeds: Iterator[int], tally: Tally, files: Files, first: bool
) -> tuple[bool, int]:
    """Plays the sequences, and shrinks the smallest failure of each kind; with `first`, only up to
    the first failure that is not known.

    Returns whether it was not interrupted, and the exit code of what ended it, or 0.
    """
    begun = time.monotonic()

    def shrink(group: FailureGroup) -> None:
        small, group.shrunk = target.shrunk(group.smallest), True
        if small != group.smallest:
            group.smallest = small
            files.keep(small, tally)

    try:
        with closing(target.results(seeds)) as results:
            for result in results:
                group = tally.add(result, time.monotonic() - begun)
                if group is None:
                    continue
                files.keep(group.smallest, tally)
                if first:
                    shrink(group)
                    if not group.smallest.known:
                        break
        for group in tally.sorted_kinds():
            if not group.shrunk:
                shrink(group)
    except KeyboardInterrupt:
        print_error("interrupted; found so far:")
        return False, 0
    except (WorkerLost, CallerError) as error:
        if not tally.sequences and isinstance(error, CallerError):
            raise
        print_error(str(error))
        return False, getattr(error, "exit_code", 2)
    return True, 0


def show(
    tally: Tally,
    settings: Mapping[str, object],
    target: Target,
    files: Mapping[str, str],
    stream: TextIO,
) -> None:
    """Prints the summary. files: the sequence of each failure, by the failure's name."""
    out, reaches = console(stream), target.reaches
    missing = [name for name in reaches if not tally.counts[name]]
    left = f"; not {'; '.join(missing)}" if 0 < len(missing) <= SHOWN else ""
    failed, kinds = sum(kind.count for kind in tally.kinds.values()), len(tally.kinds)
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    rows += [
        ("sequences", f"{tally.sequences:,}"),
        ("operations", f"{tally.operations:,}, {tally.per_second(tally.operations):,} per second"),
        ("events", f"{tally.events:,}, {tally.per_second(tally.events):,} per second"),
        ("states reached", f"{len(reaches) - len(missing)} of {len(reaches)}{left}"),
        ("failures", f"{failed:,}" + (f", of {kinds} kinds" if kinds > 1 else "")),
    ]
    out.print(pairs("Fuzz", [row for row in rows if row[0] != "events" or tally.events]))
    if not tally.kinds:
        return
    result = table("Failures", "code", "times", "entries", "known", "kind")
    for kind in tally.sorted_kinds():
        one = kind.smallest
        known = str(one.known["report"]) if one.known else ""
        result.add_row(str(one.code), f"{kind.count:,}", str(one.at), known, one.kind)
    out.print(result)
    for kind in tally.sorted_kinds():
        print(f"\n{kind.smallest.code} {kind.smallest.kind}", file=stream)
        lines = kind.smallest.text.splitlines()
        if kind.smallest.name not in files:
            lines.append(f"not written; to draw it again: {target.command(kind.seed)}")
        print("\n".join(f"    {line}" for line in lines), file=stream)


def documented(
    tally: Tally, settings: Mapping[str, object], target: Target, files: Mapping[str, str]
) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    return {
        "settings": dict(settings),
        "sequences": tally.sequences,
        "operations": tally.operations,
        "operations_per_second_and_core": tally.per_second(tally.operations),
        "events": tally.events,
        "events_per_second_and_core": tally.per_second(tally.events),
        "failures": [
            {
                "code": kind.smallest.code,
                "kind": kind.smallest.kind,
                "times": kind.count,
                "seed": kind.seed,
                "entries": kind.smallest.at,
                "seconds": round(kind.seconds, 3),
                "event": kind.smallest.event,
                "event_text": kind.smallest.event_text,
                "sequence": files.get(kind.smallest.name),
                "script": bool(kind.smallest.script),
                "known": kind.smallest.known,
                "text": kind.smallest.text,
            }
            for kind in tally.sorted_kinds()
        ],
        "counts": dict(sorted(tally.counts.items())),
        "not_reached": [name for name in target.reaches if not tally.counts[name]],
    }
