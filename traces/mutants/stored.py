"""The tapes that are kept with the tests: those whose decisions are recorded, and one for each
planted bug, named after it.

The tape of a bug fails with the bug planted and passes without, so the tests play it instead of
hunting. Does not define options or output (see commands/mutants).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz import shrink as shrinker
from invariants.fuzz.ops.base import load as load_ops
from invariants.fuzz.play import Outcome, replay
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import decisions
from invariants.mutants.sources import Endless
from invariants.planted import _kill as kill
from invariants.planted.base import load, planted

from ..fuzzing.planting import NOTE
from .limits import SEQUENCE_S, time_limit

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
RECORDED, STORED = CORPUS / "decisions", CORPUS / "planted"
SEEDS = range(1, 1_000_000)
SHORT, LONG = 25, 120  # entries of a sequence; a short one is shrunk sooner
EVENTS = 4_000  # of short sequences; then come long ones
MOST_PLAYS = 300
TRIES = 5


@dataclass(frozen=True)
class StoreJob:
    """events: after so many the bug has survived."""

    name: str
    events: int
    folder: Path = STORED


def path_of(name: str, folder: Path = STORED) -> Path:
    return folder / f"{name}.jsonl"


def work(job: StoreJob) -> tuple[str, bool]:
    """Stores the tape of one bug in this process; returns its name, and whether it has one. A bug
    that shows only between processes with different hash seeds has none."""
    tape = None if load(job.name).hashed else found(job.name, job.events)
    if tape is not None:
        job.folder.mkdir(parents=True, exist_ok=True)
        tapes.write(path_of(job.name, job.folder), tape)
    return job.name, tape is not None


def found(name: str, events: int) -> Tape | None:
    """A shrunk tape that fails with the bug planted and passes without; None if there is none."""
    for operations, most in ((SHORT, min(EVENTS, events)), (LONG, events)):
        seeds = iter(SEEDS)  # a hunt goes on behind a tape that fails without the bug, too
        for _ in range(TRIES):
            hunted = kill.hunt(name, seeds, operations, most_events=most)
            if hunted.tape is None:
                break
            for tape in (_shrunk(name, hunted.tape), hunted.tape):
                if _is_clean(tape):
                    return replace(tape, notes=tape.notes | {NOTE: name})
    return None


def _is_clean(tape: Tape) -> bool:
    """Whether the tape passes without the bug. One whose settings are legal only with it does
    not."""
    try:
        return replay(tape, load_ops()).failure is None
    except CallerError:
        return False


def _shrunk(name: str, tape: Tape) -> Tape:
    """The tape shrunk by a number of plays, so that it is the same on every machine."""
    ops = load_ops()

    def play(one: Tape) -> Outcome:
        with time_limit(SEQUENCE_S):
            return replay(one, ops)

    with planted(name):
        failed = play(tape)
        if failed.failure is None:  # as drawn it fails, as a tape it may not
            return tape
        search = shrinker.Search(tape, failed.failure, play, MOST_PLAYS)
        with suppress(Endless):
            search.run()
        shrunk: Tape = search.shrunk().tape
        return shrunk


# -- recorded decisions


def corpus_tapes() -> Iterator[Tape]:
    """The tapes that are always played, even if other tapes run the same lines."""
    return (corpus.read(path) for folder in (CORPUS, RECORDED) for path in corpus.paths(folder))


def record(folder: Path = RECORDED) -> list[Path]:
    """Stores the decisions of the current core in the recorded tapes; returns those changed."""
    changed = []
    for path in corpus.paths(folder):
        tape = corpus.read(path)
        _, digest, _ = decisions.play(tape, checked=False)
        if tape.notes.get(decisions.NOTE) != digest:
            changed.append(corpus.add(folder, decisions.noted(tape, decisions=digest)))
            path.unlink()
    return changed
