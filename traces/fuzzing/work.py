"""Plays one sequence, from its seed to a result that can be sent between processes and machines.

Contains the work of a worker, its time limit, and the tape and text of a failure. Does not choose
seeds (see commands/fuzz) or start workers (see traces/executors).
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hicache import registry
from invariants.against import SPEC
from invariants.base import HARNESS, NONDETERMINISM
from invariants.fuzz import play, variants
from invariants.fuzz.difference import replay_told
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.plain import Stuck
from invariants.fuzz.play import Failure, Outcome
from invariants.fuzz.shrink import shrink
from invariants.fuzz.swarm import Swarm, draw_swarm
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Level

from ..outside import entries
from ..terminal.signals import alarm
from ..terminal.streams import command_line

PLAYS = 1000  # of one failure, to shrink it
LEAST_S, PER_ENTRY_S = 60.0, 0.05  # far more than a sequence takes on a busy machine


class Hangs(Stuck):
    """One sequence took longer than its limit."""


@dataclass(frozen=True)
class FoundFailure:
    """A failure, the tape that repeats it, and the name of its files.

    at: entries of the tape that were played, with the one that failed. hash_seed: of the process
    that found it; empty if it was not set. event: number of the last event before it, from 1.
    event_text: that event.
    """

    code: int
    kind: str
    text: str
    at: int
    tape: str
    name: str
    hash_seed: str = ""
    event: int = 0
    event_text: str = ""


@dataclass(frozen=True)
class Result:
    """The result of one sequence. operations: entries of the tape. variants: twins and failing
    transfers that were played, too. events: handled by the core, with those of variants.
    """

    seed: int
    operations: int
    events: int
    busy_ns: int
    variants: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    failure: FoundFailure | None = None


@dataclass(frozen=True)
class Work:
    """Everything that a worker needs except the seed. A call plays one sequence."""

    operations: int
    components: tuple[str, ...] = ()
    policy: str = ""
    level: Level = "every"
    folder: str = ""
    limit_s: float = 0.0  # 0: `allowed_s` of the operations
    ranks: int = 0  # of every sequence; 0: drawn
    passes: int = 0  # of one request in flight, of every sequence; 0: drawn
    eviction: str = ""
    outside: entries.Outside = ()  # policies of the user
    device: str = ""  # the device with real bytes of every sequence
    twins: bool = False  # also play the twins of every clean sequence
    fail_each_transfer: bool = False
    against: str = SPEC  # what the core is compared with after each event

    def __call__(self, seed: int) -> Result:
        started = time.process_time_ns()
        entries.load(self.outside)
        ops = operations.load()
        swarm = self.swarm(seed)
        with self.time_limit():
            command = self.command(seed)
            outcome = play.generate(
                swarm,
                ops,
                seed,
                self.operations,
                self.level,
                None,
                command,
                self.compares,
            )
        hand = outcome.hand
        failure = self.judge(outcome) if outcome.failure else None
        count, events = 0, hand.events
        for variant in self.variants(outcome) if failure is None else ():
            count, events = count + 1, events + variant.hand.events
            if variant.failure:
                failure = self.judge(variant)
                break
        busy = time.process_time_ns() - started
        played = len(outcome.tape.entries)
        return Result(
            seed,
            played,
            events,
            busy,
            count,
            hand.counts,
            hand.probes.seen,
            failure,
        )

    @property
    def compares(self) -> bool:
        return self.against == SPEC

    def swarm(self, seed: int) -> Swarm:
        weights = weights_of(operations.load())
        return draw_swarm(
            seed,
            weights,
            self.components,
            self.policy,
            self.ranks,
            executor=self.device,
            eviction=self.eviction,
            passes=self.passes,
        )

    def variants(self, outcome: Outcome) -> Iterator[Outcome]:
        """Plays the variants that were asked for. Each has the time limit of a sequence."""
        ops, makers = operations.load(), []
        if self.fail_each_transfer:
            makers.append(variants.failed_transfers(outcome, ops, self.level, self.compares))
        if self.twins:
            makers.append(variants.played_twins(outcome, ops, self.level, self.compares))
        for maker in makers:
            played: Outcome | None = outcome
            while played is not None:
                with self.time_limit():
                    played = next(maker, None)
                if played is not None:
                    yield played

    def judge(self, outcome: Outcome) -> FoundFailure:
        """Repeats a failure from its tape; returns what the replay found.

        A tape that fails in another way, or not at all, is a failure of its own.
        """
        first = outcome.failure
        assert first is not None
        name = name_of(first, outcome.tape)
        replayed = self.replayed(outcome.tape, name)
        if replayed is None or (replayed.code, replayed.kind) != (first.code, first.kind):
            result = f"{replayed.code} {replayed.kind}" if replayed else "nothing"
            mismatch = Failure(
                NONDETERMINISM if replayed else HARNESS,
                "REPLAY",
                f"REPLAY: A tape must fail as it did when it was drawn.\n    drawn: {first.code} "
                f"{first.kind}, replayed: {result}\n{first.text}",
                first.at,
                event=first.event,
                event_text=first.event_text,
            )
            return found_failure(mismatch, outcome.tape, self.path(name_of(mismatch, outcome.tape)))
        return found_failure(replayed, outcome.tape, self.path(name))

    def shrunk(self, found: FoundFailure) -> FoundFailure:
        """The same failure of a smaller tape, told with its operations; itself if its tape does not
        repeat it."""
        if found.code in (NONDETERMINISM, HARNESS):
            return found
        ops = operations.load()

        def play_one(tape: Tape) -> Outcome:
            with self.time_limit():
                return play.replay(tape, ops, self.level, against=self.compares)

        tape = shrink(tapes.loads(found.tape), found, play_one, PLAYS).tape
        path = self.path(name_of(found, tape))
        with self.time_limit():
            told = replay_told(tape, ops, self.level, path, self.compares, whole=True).failure
        if told is None or (told.code, told.kind) != (found.code, found.kind):
            return found
        return found_failure(told, tape, path)

    def time_limit(self) -> AbstractContextManager[None]:
        return limit(self.limit_s or allowed_s(self.operations))

    def path(self, name: str) -> str:
        return str(Path(self.folder) / f"{name}.jsonl")

    def replayed(self, tape: Tape, name: str) -> Failure | None:
        with self.time_limit():
            ops, path = operations.load(), self.path(name)
            return play.replay(tape, ops, self.level, path, against=self.compares).failure

    def drawn(self, seed: int) -> Tape:
        """The tape of a seed, drawn without checks."""
        ops = operations.load()
        return play.generate(self.swarm(seed), ops, seed, self.operations, "off").tape

    def command(self, seed: int, sequences: int = 1) -> str:
        """The command that plays the sequence of this seed alone, or this many from it on."""
        words = ["hicache", "fuzz", "--seed", str(seed), "--sequences", str(sequences)]
        words += ["--operations", str(self.operations)]
        words += ["--check", self.level] if self.level != "every" else []
        words += ["--against", self.against] if self.against != SPEC else []
        words += ["--components", ",".join(self.components)] if self.components else []
        for package, flag, name in (
            (registry.WRITE_POLICIES, "--write-policy", self.policy),
            (registry.EVICTION_POLICIES, "--eviction", self.eviction),
        ):
            words += [flag, entries.spelled(package, name)] if name else []
        words += ["--ranks", str(self.ranks)] if self.ranks else []
        words += ["--passes", str(self.passes)] if self.passes else []
        words += ["--device", self.device] if self.device else []
        words += ["--twins"] if self.twins else []
        words += ["--fail-each-transfer"] if self.fail_each_transfer else []
        return command_line(words)


def found_failure(failure: Failure, tape: Tape, path: str) -> FoundFailure:
    """The failure as a result. Its text ends with the command that repeats it."""
    lines = failure.text.rstrip("\n").splitlines()
    again = f"replay: {command_line(['hicache', 'fuzz', '--replay', path])}"
    lines = [line for line in lines if line != again]
    if not lines or not lines[-1].startswith("replay: "):
        lines.append(" ".join([again, *entries.options()]))
    seed = hash_seed()
    if seed:
        lines.insert(-1, f"hash seed: {seed} (PYTHONHASHSEED={seed} sets it again)")
    text, name = "\n".join(lines), name_of(failure, tape)
    return FoundFailure(
        failure.code,
        failure.kind,
        text,
        failure.at,
        tapes.dumps(tape),
        name,
        seed,
        failure.event,
        failure.event_text,
    )


def hash_seed() -> str:
    """The hash seed of this process; empty if it was not set."""
    given = os.environ.get("PYTHONHASHSEED", "")
    return given if given.isdecimal() else ""


def name_of(failure: Failure | FoundFailure, tape: Tape) -> str:
    """Code, kind and digest of the tape. Equal failures have equal names on every machine."""
    kind = re.sub(r"[^a-z0-9]+", "-", failure.kind.lower()).strip("-")
    return f"{failure.code}-{kind[:40]}-{corpus.digest(tape)[:12]}"


def allowed_s(entries: int) -> float:
    return LEAST_S + PER_ENTRY_S * entries


def limit(seconds: float) -> AbstractContextManager[None]:
    """Raises Hangs in a block that computes for longer than `seconds`."""
    return alarm(seconds, Hangs(f"one sequence was still at work after {seconds:g} s of computing"))
