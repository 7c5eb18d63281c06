"""The target `hicache`: this project's own core, played in the worker processes of the machine."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hicache import registry
from hicache.core.errors import CallerError, unknown
from invariants.base import HARNESS, NONDETERMINISM
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache import play, probes
from invariants.fuzz.hicache.difference import replay_told
from invariants.fuzz.hicache.draw import COMPONENTS, MOST_PASSES, Swarm, draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import Outcome
from invariants.fuzz.hicache.simpler import WAYS
from invariants.fuzz.sequence import MOST_RANKS, Tape
from invariants.fuzz.shrink import shrink
from sim.errors import StuckError

from .. import executors
from .. import outside as entries
from ..terminal import options as read
from ..terminal.signals import alarm
from ..terminal.streams import command_line
from .results import Failure, Result

FOLDER = "fuzz-failures"
PLAYS = 1000  # of one failure, to shrink it
LEAST_S, PER_ENTRY_S = 60.0, 0.05  # far more than a sequence takes on a busy machine
_POLICIES = {"write_policy": registry.WRITE_POLICIES, "eviction": registry.EVICTION_POLICIES}
_SETTINGS: dict[str, Callable[[str], Any]] = {
    "components": read.choice([",".join(names) for names in COMPONENTS]),
    **{key: entries.entry(package) for key, package in _POLICIES.items()},
    "ranks": read.between(1, MOST_RANKS),
    "passes": read.between(1, MOST_PASSES),
}


def configured(given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The settings that are not drawn. Raises CallerError."""
    found: dict[str, Any] = {}
    for key, text in given:
        if key not in _SETTINGS:
            raise unknown("setting of hicache", key, [*_SETTINGS])
        try:
            found[key] = _SETTINGS[key](text)
        except ValueError as error:
            raise CallerError(f"--config {key}: {error}") from None
    return found


class Hangs(StuckError):
    """One sequence took longer than its limit."""


def limit(entries: int, limit_s: float = 0.0) -> AbstractContextManager[None]:
    """Raises Hangs in a block that computes for too long for a sequence of so many entries."""
    seconds = limit_s or LEAST_S + PER_ENTRY_S * entries
    return alarm(seconds, Hangs(f"one sequence was still at work after {seconds:g} s of computing"))


@dataclass(frozen=True)
class Work:
    """Everything that a worker needs except the seed. A call plays one sequence. config: what is
    not drawn. outside: policies of the user. limit_s: of a sequence, 0 for the usual."""

    operations: int = 120
    config: tuple[tuple[str, Any], ...] = ()
    output: str = FOLDER
    outside: entries.Outside = ()
    limit_s: float = 0.0

    def __call__(self, seed: int) -> Result:
        started = time.process_time_ns()
        entries.load(self.outside)
        with limit(self.operations, self.limit_s):
            ops, command = OPERATIONS, self.command(seed)
            outcome = play.generate(self.swarm(seed), ops, seed, self.operations, command=command)
        hand, played = outcome.hand, len(outcome.tape.entries)
        failure = self.judge(outcome) if outcome.failure else None
        counts = hand.counts + hand.probes.seen
        busy = time.process_time_ns() - started
        return Result(seed, played, hand.events, busy, counts, failure)

    def swarm(self, seed: int) -> Swarm:
        given = dict(self.config)
        names = tuple(part for part in given.get("components", "").split(",") if part)
        return draw_swarm(
            *(seed, names, given.get("write_policy", "")),
            given.get("ranks", 0),
            eviction=given.get("eviction", ""),
            passes=given.get("passes", 0),
        )

    def judge(self, outcome: Outcome) -> Failure:
        """Repeats a failure from its sequence; returns what the replay found.

        A sequence that fails in another way, or not at all, is a failure of its own.
        """
        first = outcome.failure
        assert first is not None
        drawn = self.failure(first, outcome.tape)
        again = self.replayed(outcome.tape, self.path(drawn))
        if again is not None and (again.code, again.kind) == (first.code, first.kind):
            return self.failure(again, outcome.tape)
        result = f"{again.code} {again.kind}" if again else "nothing"
        text = (
            "REPLAY: A sequence must fail as it did when it was drawn.\n"
            f"    drawn: {first.code} {first.kind}, replayed: {result}\n{first.text}"
        )
        code = NONDETERMINISM if again else HARNESS
        return self.failure(replace(first, code=code, kind="REPLAY", text=text), outcome.tape)

    def shrunk(self, found: Failure) -> Failure:
        """The same failure of a smaller sequence, told with its operations; itself if its sequence
        does not repeat it."""
        if found.code in (NONDETERMINISM, HARNESS):
            return found
        ops = OPERATIONS

        def play_one(tape: Tape) -> Outcome:
            with limit(self.operations, self.limit_s):
                return play.replay(tape, ops)

        tape = shrink(tapes.loads(found.sequence), found, play_one, WAYS, PLAYS).tape
        path = self.path(replace(found, sequence=tapes.dumps(tape)))
        with limit(self.operations, self.limit_s):
            told = replay_told(tape, ops, name=path, whole=True).failure
        if told is None or (told.code, told.kind) != (found.code, found.kind):
            return found
        return self.failure(told, tape)

    def replayed(self, tape: Tape, path: str) -> play.Failure | None:
        with limit(self.operations, self.limit_s):
            return play.replay(tape, OPERATIONS, name=path).failure

    def failure(self, found: play.Failure, tape: Tape) -> Failure:
        """The failure as a result. Its text ends with the command that repeats it."""
        sequence = tapes.dumps(tape)
        made = Failure(
            found.code, found.kind, "", found.at, sequence, found.event, found.event_text
        )
        again = f"replay: {command_line(['hicache', 'fuzz', '--replay', self.path(made)])}"
        lines = [line for line in found.text.rstrip("\n").splitlines() if line != again]
        if seed := os.environ.get("PYTHONHASHSEED", ""):
            lines.append(f"hash seed: PYTHONHASHSEED={seed}")
        if not lines or not lines[-1].startswith("replay: "):
            lines.append(" ".join([again, *outside_options()]))
        return replace(made, text="\n".join(lines))

    def path(self, failure: Failure) -> str:
        return str(Path(self.output) / f"{failure.name}.jsonl")

    def drawn(self, seed: int) -> Tape:
        """The sequence of a seed, drawn without checks."""
        ops = OPERATIONS
        return play.generate(self.swarm(seed), ops, seed, self.operations, "off").tape

    def command(self, seed: int, sequences: int = 1) -> str:
        """The command that plays the sequence of this seed alone, or this many from it on."""
        words = ["hicache", "fuzz", "--seed", str(seed), "--sequences", str(sequences)]
        words += ["--operations", str(self.operations)]
        for key, value in self.config:
            text = entries.spelled(_POLICIES[key], value) if key in _POLICIES else value
            words += ["--config", f"{key}={text}"]
        return command_line(words)


def outside_options() -> list[str]:
    """The options that load the policies of the user again."""
    keys = {package: key for key, package in _POLICIES.items()}
    given = [(keys[package], text) for package, text in entries.given() if package in keys]
    return [word for key, text in given for word in ("--config", f"{key}={text}")]


@dataclass(frozen=True)
class Core:
    """The core as a target."""

    work: Work
    jobs: int = 0
    hash_seed: int = 0
    reaches: Sequence[str] = probes.NAMES

    def results(self, seeds: Iterator[int]) -> Generator[Result]:
        how = executors.JobOptions(_lost, hash_seed=self.hash_seed)
        yield from executors.run(executors.LOCAL, self.jobs, self.work, seeds, how)

    def shrunk(self, failure: Failure) -> Failure:
        return self.work.shrunk(failure)

    def command(self, seed: int) -> str:
        return self.work.command(seed)


def _lost(seed: int, open_sequences: int, how_ended: str) -> str:
    return (
        f"a worker was lost near the sequence of seed {seed}: {how_ended}; to repeat it in one "
        f"process, use the same options and --seed {seed} --sequences {open_sequences} --jobs 1"
    )


def replay(path: str) -> tuple[Failure | None, dict[str, Any]]:
    """Plays one sequence exactly. Returns its failure and what its document has besides."""
    tape = tapes.read(Path(path))
    with limit(len(tape.entries)):
        outcome = replay_told(tape, OPERATIONS, name=path)
    hand, found = outcome.hand, outcome.failure
    about = {
        "events": hand.events,
        "counts": dict(sorted((hand.counts + hand.probes.seen).items())),
    }
    about["entries"] = len(outcome.tape.entries)
    if found is None:
        return None, about
    more = outside_options()
    text = re.sub(
        r"(?m)^(replay: .*)$", lambda line: " ".join([line[1], *more]), found.text.rstrip()
    )
    return Failure(found.code, found.kind, text, found.at, tapes.dumps(tape)), about
