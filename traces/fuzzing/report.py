"""The results of a fuzz run: the sums, the printed tables, the JSON document, and what it means.

Does not run sequences (see commands/fuzz) or write the files of failures (see files).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

from invariants.fuzz import probes

from ..terminal.tables import console, pairs, table
from .work import FoundFailure, Result

_Name = TypeVar("_Name", str, tuple[str, str])
FORMAT, VERSION = "hicache-fuzz-report", 1
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
        return (self.smallest.tape.count("\n"), self.seed)


@dataclass
class Tally:
    sequences: int = 0
    operations: int = 0
    events: int = 0
    busy_ns: int = 0
    variants: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    kinds: dict[tuple[int, str], FailureGroup] = field(default_factory=dict)

    def add(self, result: Result, seconds: float = 0.0) -> FoundFailure | None:
        """Adds a result. Returns its failure if that is the smallest of its kind so far.

        seconds: since the start of the run.
        """
        self.sequences += 1
        self.operations += result.operations
        self.events += result.events
        self.busy_ns += result.busy_ns
        self.variants += result.variants
        self.counts += result.counts
        self.probes += result.probes
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
        return [self.kinds[key] for key in sorted(self.kinds, key=lambda one: _order(*one))]


def _badness(code: int) -> int:
    return WORST.index(code) if code in WORST else len(WORST)


def _order(code: int, kind: str) -> tuple[int, str]:
    return _badness(code), kind


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
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    rows += [
        ("sequences", f"{tally.sequences:,}"),
        ("operations", f"{tally.operations:,}"),
        ("events", f"{tally.events:,}, {tally.speed:,} per second and core"),
        *([("variants", f"{tally.variants:,}")] if tally.variants else []),
        ("faults used", f"{sum(faults.values()):,}, of {len(faults)} different kinds"),
        ("states reached", _states(tally)),
        ("failures", f"{tally.failures:,}" + (f", of {kinds} kinds" if kinds > 1 else "")),
    ]
    out.print(pairs("Fuzz", rows))
    for title, counts in (
        ("Faults used", faults),
        ("States reached most often", dict(tally.probes)),
    ):
        if counts:
            result = table(title, "", "times")
            for name, count in _most(counts.items()):
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


def _states(tally: Tally) -> str:
    """How many of the named states were reached, and the last few that were not."""
    missing, named = probes.unreached(tally.probes), len(probes.NAMES)
    left = f"; not {'; '.join(missing)}" if 0 < len(missing) <= SHOWN else ""
    return f"{named - len(missing)} of {named}{left}"


def _most(counts: Iterable[tuple[_Name, int]]) -> list[tuple[_Name, int]]:
    return sorted(counts, key=lambda one: (-one[1], one[0]))[:SHOWN]


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
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "complete": complete,
        "exit_code": code,
        "settings": settings,
        "sequences": tally.sequences,
        "operations": tally.operations,
        "events": tally.events,
        "events_per_second_and_core": tally.speed,
        "variants": tally.variants,
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
    told = [] if complete else [_stopped(tally, lost)]
    if tally.kinds:
        kinds = f" in {len(tally.kinds)} ways" if len(tally.kinds) > 1 else ""
        which = "this failure" if len(tally.kinds) == 1 else "the failure with the fewest entries"
        return [
            *told,
            f"{_count(tally.failures, 'sequence')} of {tally.sequences:,} failed{kinds}.",
            f"Begin with {which}.",
        ]
    if not tally.sequences:
        return told
    played = f"{_count(tally.sequences, 'sequence')} with {tally.events:,} events"
    return [
        *told,
        f"{'No sequence failed' if checks == 'off' else 'No check failed'} in {played}"
        + ("; no invariant was checked." if checks == "off" else "."),
        "This does not prove that there is no bug. Another --seed or a longer run (--seconds 600) "
        "draws other sequences.",
    ]


def _stopped(tally: Tally, lost: bool) -> str:
    why = "An error ended the run" if lost else "The run was interrupted"
    return f"{why} after {_count(tally.sequences, 'sequence')}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
