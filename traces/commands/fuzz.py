"""`hicache fuzz`: draws sequences from seeds, checks each, and keeps failing ones as tapes.

Contains the command, its options and its time budget. Does not play sequences (see fuzzing/work),
start workers (see traces/executors), write tapes (see fuzzing/files) or print the summary (see
fuzzing/report).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

from hicache import registry
from hicache.core.errors import CallerError
from invariants.against import AGAINST, SPEC
from invariants.fuzz.device import real
from invariants.fuzz.executors import REAL
from invariants.fuzz.swarm import MOST_PASSES
from invariants.fuzz.tapes.tape import MOST_RANKS
from invariants.watch import Level

from .. import executors
from ..fuzzing import option_values
from ..fuzzing.files import Files, hunt, shrink
from ..fuzzing.replaying import replay
from ..fuzzing.report import FailureGroup, Tally, conclusions, document, show
from ..fuzzing.work import Work, hash_seed
from ..outside import entries
from ..replaying.defaults import CHECKS
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences

SECONDS = 60
MOST_OPERATIONS = 100_000  # a tape of this length can still be read
FOLDER = "fuzz-failures"


@dataclass(frozen=True)
class Options(OptionRecord):
    """seconds, seed, jobs: None means the default that the help describes."""

    seconds: int | None = option(
        f"stop after this many seconds (default: {SECONDS}; none with --sequences)",
        read.at_least(1),
        "S",
    )
    sequences: int | None = option("stop after N sequences", *read.COUNT)
    operations: int = option(
        f"operations in a sequence, at most {MOST_OPERATIONS}",
        read.between(1, MOST_OPERATIONS),
        "N",
        default=120,
    )
    seed: int | None = option(
        "seed of the first sequence; each further one has the next seed (default: from the commit)",
        read.at_least(0),
    )
    components: tuple[str, ...] = option(
        "components, such as full,swa (default: drawn)",
        option_values.components,
        "LIST",
        default=(),
    )
    write_policy: str | None = option(
        lambda: f"{entries.spelled_out(registry.WRITE_POLICIES)} (default: drawn)",
        entries.entry(registry.WRITE_POLICIES),
        "POLICY",
    )
    eviction: str | None = option(
        lambda: f"{entries.spelled_out(registry.EVICTION_POLICIES)} (default: drawn)",
        entries.entry(registry.EVICTION_POLICIES),
        "POLICY",
    )
    ranks: int = option(
        f"number of ranks, 1 to {MOST_RANKS} (default: drawn)", option_values.ranks, "N", default=0
    )
    passes: int = option(
        f"passes of one request in flight at a time, 1 to {MOST_PASSES} (default: drawn)",
        read.between(1, MOST_PASSES),
        "N",
        default=0,
    )
    check: Level = option(", ".join(CHECKS), read.choice(CHECKS), default="every")
    jobs: int | None = option("worker processes (default: one for each core)", *read.COUNT)
    executor: str = option(
        ", ".join(executors.EXECUTORS),
        read.choice([*executors.EXECUTORS]),
        default=executors.LOCAL,
    )
    against: str = option(
        "what every outcome is compared with: spec, the executable specification, or none",
        read.choice(AGAINST),
        default=SPEC,
    )
    device: str | None = option(
        f"carry out every copy on real memory, too, and compare the bytes: {', '.join(REAL)}",
        read.choice(REAL),
        "NAME",
    )
    twins: bool = option(
        "also play each sequence under other settings, and compare the contents", default=False
    )
    fail_each_transfer: bool = option(
        "also play each sequence with its first transfer failing, its second, and so on",
        default=False,
    )
    output: str = option(
        "folder for the tape and the text of each failure",
        read.name,
        "FOLDER",
        short="-o",
        default=FOLDER,
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
    if options.replay and (options.twins or options.fail_each_transfer):
        raise CallerError(
            "--replay takes no --twins or --fail-each-transfer; leave it out, since a tape of a "
            "twin plays its twin by itself"
        )
    if options.replay and options.first:
        raise CallerError(
            "--replay takes no --first; leave it out, since it ends at the first failure anyway"
        )


def run(options: Options, command: str) -> int:
    """Returns 0, or the exit code of the worst failure."""
    _check(options)
    if options.replay:
        judged = options.device, options.check, options.against
        return replay(options.replay, *judged, options.json, command)
    if options.device:
        real.check(options.device)
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
    work = _work(options)
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
        files.restore_missing(tally)
        settings = _settings(options, seed)
        code = lost or tally.code() or (0 if complete else INTERRUPTED)
        told = conclusions(tally, complete, bool(lost), options.check)
        with ignore_broken_pipe():
            show(tally, settings, files.paths, lambda kind: _hint(work, kind), stream)
            print_sentences("In words", told, stream)
        if options.json:
            with ignore_broken_pipe():
                result = document(tally, settings, files.paths, command, complete, code)
                write_json(options.json, result | {"conclusions": told})
    return code


def _work(options: Options) -> Work:
    return Work(
        options.operations,
        options.components,
        options.write_policy or "",
        options.check,
        options.output,
        ranks=options.ranks,
        passes=options.passes,
        eviction=options.eviction or "",
        outside=entries.given(),
        device=options.device or "",
        twins=options.twins,
        fail_each_transfer=options.fail_each_transfer,
        against=options.against,
    )


def _lost(seed: int, open_sequences: int, how_ended: str) -> str:
    return (
        f"a worker was lost near the sequence of seed {seed}: {how_ended}; to repeat it in one "
        f"process, use the same options and --seed {seed} --sequences {open_sequences} --jobs 1"
    )


def _hint(work: Work, kind: FailureGroup) -> str:
    """The hint for a failure that has no file."""
    return f"not written; to draw it again: {work.command(kind.seed)}"


def commit_seed() -> int:
    """A seed from the hash of the current commit; 0 outside git.

    Each commit tries other sequences, and each run can be repeated.
    """
    folder = Path(__file__).resolve().parent
    try:
        git = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return 0
    try:
        return int(git.stdout.strip()[:12], 16) if git.returncode == 0 else 0
    except ValueError:
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
        "twins": "yes" if options.twins else "",
        "each transfer fails": "yes" if options.fail_each_transfer else "",
        "executor": options.executor,
        "jobs": options.jobs or "",
    }
