"""`hicache fuzz`: sequences drawn from seeds, every one checked, and what fails kept as a tape.

Lives here: the command, its options, its budget and its files. Must not live here: what a sequence
does (fuzzing/work), who runs it (fuzzing/executors), or what is said of it (fuzzing/report).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

from hicache.core import registry
from hicache.core.errors import CallerError
from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.reach import probes, rates
from invariants.fuzz.swarm import COMPONENTS
from invariants.fuzz.tapes.tape import MOST_RANKS
from invariants.watch import Level

from ..fuzzing import planting
from ..fuzzing.executors import base as executors
from ..fuzzing.files import Files
from ..fuzzing.report import Kind, Tally, document, reached, show
from ..fuzzing.tape_file import open_tape
from ..fuzzing.work import Work, allowed_s, limit
from ..outside import entries
from ..replaying.options import CHECKS
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_apart, check_folder, check_writable, write_json
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe

SUMMARY = "look for bugs: random operations, faults and schedules, every check after each event"
SECONDS = 60
MOST_OPERATIONS = 100_000  # their tape can still be read
CANARY_SURVIVED = 19
FOLDER = "fuzz-failures"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """seconds, seed, jobs: see the help for what they are where not given."""

    seconds: int | None
    sequences: int | None
    operations: int
    seed: int | None
    components: tuple[str, ...]
    write_policy: str | None
    eviction: str | None
    ranks: int
    check: Level
    jobs: int | None
    executor: str
    twice: int
    output: str
    json: str | None
    plant: str | None
    rates: str | None
    replay: str | None
    canary: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--seconds",
        type=read.at_least(1),
        metavar="S",
        help=f"stop after this many seconds (default: {SECONDS}; none with --sequences)",
    )
    add("--sequences", type=read.at_least(1), metavar="N", help="stop after N sequences")
    add(
        "--operations",
        type=read.between(1, MOST_OPERATIONS),
        default=120,
        metavar="N",
        help=f"operations in a sequence, at most {MOST_OPERATIONS}",
    )
    add(
        "--seed",
        type=read.at_least(0),
        help="seed of the first sequence; each further one has the next seed (default: from the "
        "commit)",
    )
    add(
        "--components",
        type=_components,
        default=(),
        metavar="LIST",
        help="components, such as full,swa (default: drawn)",
    )
    for flag, package in (
        ("--write-policy", registry.WRITE_POLICIES),
        ("--eviction", registry.EVICTION_POLICIES),
    ):
        known = ", ".join(registry.spellings(package))
        help_ = f"{known}, or path.py:Name (default: drawn)"
        add(flag, type=entries.entry(package), metavar="POLICY", help=help_)
    add(
        "--ranks",
        type=_ranks,
        default=0,
        metavar="N",
        help=f"number of ranks, 1 to {MOST_RANKS} (default: drawn)",
    )
    add("--check", type=read.choice(CHECKS), default="every", help=", ".join(CHECKS))
    add(
        "--jobs",
        type=read.at_least(1),
        metavar="N",
        help="worker processes (default: one for each core)",
    )
    add(
        "--executor",
        type=read.entry(executors.EXECUTORS),
        default="local",
        help=", ".join(registry.names(executors.EXECUTORS)),
    )
    add(
        "--twice",
        type=_percent,
        default=10,
        metavar="PERCENT",
        help="percentage of sequences that run again in a new process with another hash seed",
    )
    _add_names(parser)


def _add_names(parser: argparse.ArgumentParser) -> None:
    """Of files, and of a bug."""
    add = parser.add_argument
    add(
        "-o",
        "--output",
        type=read.name,
        default=FOLDER,
        metavar="FOLDER",
        help="folder for the tape and the text of each failure",
    )
    add(
        "--json",
        type=read.name,
        metavar="FILE",
        help="also write the results to this file as JSON; - is stdout",
    )
    planting.add_option(parser, "none; with --replay, the bug in the tape's notes")
    add(
        "--rates",
        type=read.name,
        metavar="FILE",
        help="write how often each state was reached (rates.json)",
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--replay",
        type=read.name,
        metavar="FILE",
        help="play this tape and nothing else",
    )
    one.add_argument(
        "--canary", action="store_true", help="plant a bug; exit code 0 if it is found, 19 if not"
    )


def _check(options: Options) -> None:
    """Before long work: the options agree, and everything that is to be written can be."""
    if options.json == "-" == options.rates:
        raise CallerError("--rates: expected a file, since --json goes to stdout, found -")
    check_apart(tape=options.replay, json=options.json, rates=options.rates)
    for path in (options.json, options.rates):
        if path:
            check_writable(path)
    if options.canary and options.plant:
        raise CallerError("--plant: expected no other bug beside --canary, found one; choose one")


def run(options: Options, command: str) -> int:
    """0, or the code of the worst failure."""
    _check(options)
    if options.replay:
        return _replay(options.replay, options, command)
    executor = executors.load(options.executor)
    if not options.canary:
        check_folder(options.output, f"--output {options.output}")
    plant = planting.check(options.plant or "")
    components, ranks = planting.at_home(plant, options.components, options.ranks)
    options = replace(options, components=components, ranks=ranks)
    seed = commit_seed() if options.seed is None else options.seed
    stream = sys.stderr if "-" in (options.json, options.rates) else sys.stdout
    with ignore_broken_pipe():
        print(f"hicache fuzz --seed {seed}", file=stream, flush=True)
    work = Work(
        options.operations,
        options.components,
        options.write_policy or "",
        options.check,
        0 if options.canary else options.twice,
        options.output,
        options.canary,
        ranks=options.ranks,
        plant=plant,
        eviction=options.eviction or "",
        outside=entries.given(),
    )
    if options.sequences is None and options.seconds is None:
        options = replace(options, seconds=SECONDS)
    tally = Tally()
    files = Files(Path(options.output))
    with closing(executor.run(work, _seeds(seed, options), options.jobs or 0)) as results:
        complete, lost = _hunt(results, tally, files, options.canary)
        files.keep_what_is_left(tally)
        settings = _settings(options, seed)
        tally.missed = _missed(tally, options) if complete else []
        code = lost or tally.code() or (0 if complete else INTERRUPTED)
        if options.canary and complete:
            code = 0 if tally.kinds else CANARY_SURVIVED
        with ignore_broken_pipe():
            show(tally, settings, files.paths, lambda kind: _again(work, kind), stream)
            if options.canary and complete:
                verdict = "found" if tally.kinds else "SURVIVED: no check found it"
                print(f"\ncanary {verdict}", file=stream)
        if options.json:
            with ignore_broken_pipe():
                found = document(tally, settings, files.paths, command, complete, code)
                write_json(options.json, found)
        if options.rates and complete:
            write_json(options.rates, rates.document(reached(tally), probes.expected()))
    return code


def _hunt(results: executors.Results, tally: Tally, files: Files, canary: bool) -> tuple[bool, int]:
    """Until there are no more. Whether nobody ended it, and the code of a worker that was lost."""
    complete, lost = True, 0
    try:
        for result in results:
            found = tally.add(result)
            if found is not None and not canary:
                files.keep(found, tally)
            if canary and tally.kinds:
                break
    except KeyboardInterrupt:
        complete = False
        with ignore_broken_pipe():
            print("hicache: interrupted; found so far:", file=sys.stderr)
    except executors.WorkerLost as error:
        complete, lost = False, error.exit_code
        with ignore_broken_pipe():
            print(f"hicache: {error}", file=sys.stderr)
    return complete, lost


def _again(work: Work, kind: Kind) -> str:
    """What is said of a failure that has no file."""
    if work.canary:
        return "the planted canary; no file is kept"
    return f"not written; to draw it again: {work.command(kind.seed)}"


def _missed(tally: Tally, options: Options) -> list[str]:
    """What the run owes; nothing where it was not drawn as those were that the rates are of."""
    usual = options.operations >= rates.OPERATIONS
    usual &= not (options.write_policy or options.eviction or options.ranks)
    if not usual or options.canary or options.plant or options.rates:
        return []
    return probes.missed(tally.probes, tally.played, options.components)


def commit_seed() -> int:
    """From the hash of the commit that this code is of, so that every commit hunts elsewhere and
    each can be hunted again; 0 outside git."""
    here = Path(__file__).resolve().parent
    try:
        said = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return 0
    try:
        return int(said.stdout.strip()[:12], 16) if said.returncode == 0 else 0
    except ValueError:
        return 0


def _seeds(first: int, options: Options) -> Iterator[int]:
    """Until the budget is spent; a sequence that has begun is played to its end."""
    end = None if options.seconds is None else time.monotonic() + options.seconds
    for seed in islice(count(first), options.sequences):
        if end is not None and time.monotonic() >= end:
            return
        yield seed


def _settings(options: Options, seed: int) -> dict[str, object]:
    return {
        "seed": seed,
        "operations a sequence": options.operations,
        "components": ",".join(options.components),
        "write policy": options.write_policy,
        "eviction": options.eviction,
        "ranks": options.ranks or "",
        "planted": options.plant,
        "checks": options.check,
        "executor": options.executor,
        "jobs": options.jobs or "",
    }


def _replay(path: str, options: Options, command: str) -> int:
    """One tape, bit for bit; prints what it came to."""
    tape = open_tape(path)
    plant = planting.wanted(options.plant, tape, path)
    with planting.planted(plant), limit(allowed_s(len(tape.entries))):
        outcome = play.replay(tape, operations.load(), options.check, path)
    failure, hand = outcome.failure, outcome.hand
    code = failure.code if failure else 0
    stream = sys.stderr if options.json == "-" else sys.stdout
    bug = f", with {plant} planted" if plant else ""
    said = f"{len(tape.entries)} entries, {hand.events} events: no failure{bug}"
    if failure:
        at = f"failed at entry {failure.at} of {len(tape.entries)}"
        said = f"{failure.text.rstrip()}\n{at}: {code} {failure.kind}{bug}"
    with ignore_broken_pipe():
        print(said, file=stream)
    if options.json:
        found = {"code": code, "kind": failure.kind, "at": failure.at} if failure else None
        write_json(
            options.json,
            {
                "format": "hicache-fuzz-replay",
                "version": 1,
                "command": command,
                "exit_code": code,
                "failure": found,
                "entries": len(tape.entries),
                "events": hand.events,
                "counts": dict(sorted(hand.counts.items())),
                "probes": dict(sorted(hand.probes.seen.items())),
            },
        )
    return code


def _ranks(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RANKS:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected 1 to {MOST_RANKS}, found {text!r}")


def _components(text: str) -> tuple[str, ...]:
    given = tuple(part.strip() for part in text.split(","))
    if given not in COMPONENTS:
        known = " or ".join(",".join(one) for one in COMPONENTS)
        raise argparse.ArgumentTypeError(f"expected {known}, found {text!r}")
    return given


def _percent(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"expected a percentage from 0 to 100, found {text!r}")
    return int(text)
