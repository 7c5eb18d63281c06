"""The results of a fuzz run, whatever is fuzzed: sums, the smallest failure of each kind and its
files, the printed summary, and the JSON document."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from hicache.core.errors import CallerError

from ..executors import WorkerLost
from ..terminal.output import unwritable, write_whole
from ..terminal.streams import name as shown
from ..terminal.streams import print_error
from ..terminal.tables import console, pairs, table

SHOWN = 12
# What is fuzzed: `results(seeds)` plays the sequences of seeds; `named(failure)` says whether it is
# known, before it is shrunk; `shrunk(failure)` is the same failure of a smaller sequence, told with
# all that is known of it; `reaches` is what a run should reach.
Target = Any
# Codes that make all other results doubtful come first, then the costliest ones for a user.
WORST = (17, 16, 12, 13, 10, 11, 15, 14)


@dataclass(frozen=True)
class Failure:
    """A failure, and the sequence that repeats it.

    kind: equal for failures of the same sort. text: how it is told. at: entries that were played,
    with the one that failed. event, event_text: the core's last event before it. raw: as the
    process of an engine gave it. known: the row of known failures that it is. script: the engine's
    own calls.
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


@dataclass
class FailureGroup:
    """All failures of one code and kind: their number, and the first of them, which is shrunk at
    the end. seconds: when it was found, since the start. path: of its sequence, once written."""

    seed: int
    failure: Failure
    seconds: float
    count: int = 1
    shrunk: bool = False
    path: str = ""


@dataclass
class Tally:
    sequences: int = 0
    operations: int = 0
    events: int = 0
    busy_ns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[tuple[int, str], FailureGroup] = field(default_factory=dict)

    def add(self, result: Result, seconds: float = 0.0) -> FailureGroup | None:
        """Adds a result. Returns the group of its failure if it is the first of its kind."""
        self.sequences += 1
        for name in ("operations", "events", "busy_ns"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.counts.update(result.counts)
        if result.failure is None:
            return None
        key = (result.failure.code, result.failure.kind)
        if key in self.kinds:
            self.kinds[key].count += 1
            return None
        self.kinds[key] = FailureGroup(result.seed, result.failure, seconds)
        return self.kinds[key]

    def per_second(self, count: int) -> int:
        """Of one core."""
        return count * 10**9 // self.busy_ns if self.busy_ns else 0

    def code(self) -> int:
        """The exit code of the worst failure that is not known; 0 if there is none."""
        codes = [group.failure.code for group in self.kinds.values() if not group.failure.known]
        return min(codes, key=WORST.index, default=0)

    def groups(self) -> list[FailureGroup]:
        keys = sorted(self.kinds, key=lambda key: (WORST.index(key[0]), key[1]))
        return [self.kinds[key] for key in keys]


def keep(group: FailureGroup, folder: str) -> None:
    """Writes the files of a failure, in place of those from before it was shrunk. The run goes on
    if one cannot be written; the seed in the summary draws the sequence again."""
    failure, old = group.failure, group.path
    path = Path(folder) / f"{failure.name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(str(path), [failure.sequence])
        group.path = str(path)
        write_whole(str(path.with_suffix(".txt")), [failure.text.rstrip("\n"), "\n"])
        if failure.script:
            write_whole(str(path.with_suffix(".py")), [failure.script])
        for suffix in (".jsonl", ".txt") if old and old != group.path else ():
            Path(old).with_suffix(suffix).unlink(missing_ok=True)
    except (CallerError, OSError) as error:
        wrong = error if isinstance(error, CallerError) else unwritable(folder, error.strerror)
        print_error(f"{wrong}; the run goes on")
        return
    print(f"{failure.code} {failure.kind}: {shown(group.path)}", file=sys.stderr, flush=True)


def hunt(
    target: Target, seeds: Iterator[int], tally: Tally, folder: str, first: bool
) -> tuple[bool, int]:
    """Plays the sequences, and shrinks the first failure of each kind; with `first`, only up to the
    first failure that is not known, and shrinks only that.

    Returns whether it was not interrupted, and the exit code of what ended it, or 0.
    """
    begun = time.monotonic()

    def shrink(group: FailureGroup) -> None:
        small, group.shrunk = target.shrunk(group.failure), True
        if small != group.failure:
            group.failure = small
            keep(group, folder)

    try:
        with closing(target.results(seeds)) as results:
            for result in results:
                group = tally.add(result, time.monotonic() - begun)
                if group is not None:
                    keep(group, folder)
                    if first:
                        group.failure = target.named(group.failure)
                        group.shrunk = bool(group.failure.known)
                        if not group.shrunk:
                            break
        for group in tally.groups():
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


def show(tally: Tally, settings: Mapping[str, object], target: Target, stream: TextIO) -> None:
    """Prints the summary."""
    out, reaches = console(stream), target.reaches
    missing = [name for name in reaches if not tally.counts[name]]
    left = f"; not {'; '.join(missing)}" if 0 < len(missing) <= SHOWN else ""
    failed, kinds = sum(group.count for group in tally.kinds.values()), len(tally.kinds)
    rows = [(name, str(value)) for name, value in settings.items()]
    rows += [
        ("sequences", f"{tally.sequences:,}"),
        ("operations", f"{tally.operations:,}, {tally.per_second(tally.operations):,} per second"),
        ("events", f"{tally.events:,}, {tally.per_second(tally.events):,} per second"),
        ("states reached", f"{len(reaches) - len(missing)} of {len(reaches)}{left}"),
        ("failures", f"{failed:,}" + (f", of {kinds} kinds" if kinds > 1 else "")),
    ]
    empty = {"events": not tally.events, "states reached": not reaches}
    out.print(pairs("Fuzz", [row for row in rows if not empty.get(row[0])]))
    if not tally.kinds:
        return
    result = table("Failures", "code", "times", "entries", "known", "kind")
    for group in tally.groups():
        failure, known = group.failure, "yes" if group.failure.known else ""
        result.add_row(str(failure.code), f"{group.count:,}", str(failure.at), known, failure.kind)
    out.print(result)
    for group in tally.groups():
        lines = group.failure.text.splitlines()
        if not group.path:
            lines.append(f"not written; again: the same with --seed {group.seed} --sequences 1")
        print(f"\n{group.failure.code} {group.failure.kind}", file=stream)
        print("\n".join(f"    {line}" for line in lines), file=stream)


def documented(tally: Tally, settings: Mapping[str, object], target: Target) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    keys = ("code", "kind", "event", "event_text", "known", "text")
    return {
        "settings": dict(settings),
        "sequences": tally.sequences,
        "operations": tally.operations,
        "operations_per_second_and_core": tally.per_second(tally.operations),
        "events": tally.events,
        "events_per_second_and_core": tally.per_second(tally.events),
        "failures": [
            {key: getattr(group.failure, key) for key in keys}
            | {"times": group.count, "seed": group.seed, "entries": group.failure.at}
            | {"seconds": round(group.seconds, 3), "sequence": group.path or None}
            | {"script": bool(group.failure.script)}
            for group in tally.groups()
        ],
        "counts": dict(sorted(tally.counts.items())),
        "not_reached": [name for name in target.reaches if not tally.counts[name]],
    }
