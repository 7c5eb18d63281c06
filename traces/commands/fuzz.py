"""`hicache fuzz`: draws sequences from seeds, checks each, and keeps failing ones as tapes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.hicache import device as devices

from .. import executors
from .. import outside as entries
from ..fuzzing.results import FailureGroup, Files, Tally, conclusions, document, hunt, show, shrink
from ..fuzzing.work import Settings, Work, hash_seed, replay
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences

SECONDS = 60


@dataclass(frozen=True)
class Options(Settings):
    """seconds, seed, jobs: None means the default that the help describes."""

    seconds: int | None = option(
        f"stop after this many seconds (default: {SECONDS}; none with --sequences)",
        read.at_least(1),
        "S",
    )
    sequences: int | None = option("stop after N sequences", *read.COUNT)
    seed: int | None = option(
        "seed of the first sequence; each further one has the next seed (default: from the commit)",
        read.at_least(0),
    )
    jobs: int | None = option("worker processes (default: one for each core)", *read.COUNT)
    executor: str = option(
        ", ".join(executors.EXECUTORS),
        read.choice([*executors.EXECUTORS]),
        default=executors.LOCAL,
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )
    first: bool = option("stop at the first failure", default=False)
    replay: str | None = option("play this tape and nothing else", *read.FILE)


def _check(options: Options) -> None:
    """Raises CallerError, before long work, if options conflict or an output cannot be written."""
    inputs = {"tape": options.replay, **entries.files()}
    check_outputs(inputs, json=options.json)
    if options.replay and options.first:
        raise CallerError(
            "--replay takes no --first; leave it out, since it ends at the first failure anyway"
        )


def run(options: Options, command: str) -> int:
    """Returns 0, or the exit code of the worst failure."""
    _check(options)
    if options.replay:
        return replay(options.replay, options, options.json, command)
    if options.device:
        devices.check(options.device)
    executors.check(options.executor)
    check_folder(options.output, f"--output {options.output}")
    if options.device and options.ranks > 1:
        raise CallerError(
            f"--device: expected one rank, found {options.ranks}; leave the option out"
        )
    seed = commit_seed() if options.seed is None else options.seed
    stream = sys.stderr if options.json == "-" else sys.stdout
    with ignore_broken_pipe():
        print(f"hicache fuzz --seed {seed}", file=stream, flush=True)
    work = Work(options, entries.given())
    if options.sequences is None and options.seconds is None:
        options = replace(options, seconds=SECONDS)
    tally = Tally()
    files = Files(Path(options.output))
    how = executors.JobOptions(_lost, hash_seed=int(hash_seed() or seed))
    seeds = _seeds(seed, options)
    with closing(executors.run(options.executor, options.jobs or 0, work, seeds, how)) as results:
        complete, lost = hunt(results, tally, files, options.first)
        if complete:
            complete = shrink(tally, files, work)
        settings = _settings(options, seed)
        code = lost or tally.code() or (0 if complete else INTERRUPTED)

        def hint(kind: FailureGroup) -> str:
            return f"not written; to draw it again: {work.command(kind.seed)}"

        told = conclusions(tally, complete, bool(lost), options.check)
        with ignore_broken_pipe():
            show(tally, settings, files.paths, hint, stream)
            print_sentences("In words", told, stream)
        if options.json:
            with ignore_broken_pipe():
                result = document(tally, settings, files.paths, command, complete, code)
                write_json(options.json, result | {"conclusions": told})
    return code


def _lost(seed: int, open_sequences: int, how_ended: str) -> str:
    return (
        f"a worker was lost near the sequence of seed {seed}: {how_ended}; to repeat it in one "
        f"process, use the same options and --seed {seed} --sequences {open_sequences} --jobs 1"
    )


def commit_seed() -> int:
    """A seed from the hash of the current commit; 0 outside git.

    Each commit tries other sequences, and each run can be repeated.
    """
    words = ["git", "-C", str(Path(__file__).resolve().parent), "rev-parse", "HEAD"]
    try:
        git = subprocess.run(words, capture_output=True, text=True, check=True)
        return int(git.stdout.strip()[:12], 16)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


def _seeds(first: int, options: Options) -> Iterator[int]:
    """Seeds until the budget is spent. A sequence that has started is played to its end."""
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
        "passes": options.passes or "",
        "checks": options.check,
        "compared with": options.against,
        "device": options.device or "",
        "executor": options.executor,
        "jobs": options.jobs or "",
    }
