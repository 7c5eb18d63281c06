"""One sequence of the fuzzer, from its seed to a result that may cross processes and machines.

Lives here: what a worker does, its time limit, and the tape and words of a failure. Must not live
here: which seeds there are, or who runs them (commands/fuzz, fuzzing/executors).
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hicache.core import registry
from invariants.base import HARNESS, NONDETERMINISM
from invariants.fuzz import play
from invariants.fuzz.draws import Draws
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.play import Failure, Outcome, Stuck
from invariants.fuzz.reach.gauges import Readings
from invariants.fuzz.swarm import Swarm, draw_swarm
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Level

from ..outside import entries
from ..terminal.alarm import alarm
from .canary import canary
from .planting import NOTE, planted
from .twice import differs

LEAST_S, PER_ENTRY_S = 60.0, 0.05  # far beyond what a sequence takes on a busy machine


class Hangs(Stuck):
    """One sequence took longer than any may."""


@dataclass(frozen=True)
class Found:
    """A failure, the tape that shows it again and the name of its files."""

    code: int
    kind: str
    text: str
    at: int
    tape: str
    name: str


@dataclass(frozen=True)
class Result:
    """What a sequence came to. operations: entries; events: what the core was fed."""

    seed: int
    operations: int
    events: int
    busy_ns: int
    twice: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    readings: Readings = field(default_factory=Counter)
    components: tuple[str, ...] = ()
    found: Found | None = None


@dataclass(frozen=True)
class Work:
    """Everything a worker needs but the seed; calling it plays one sequence."""

    operations: int
    components: tuple[str, ...] = ()
    policy: str = ""
    level: Level = "every"
    twice: int = 0  # percent of the seeds that are run a second time, in a fresh process
    folder: str = ""
    canary: bool = False
    limit_s: float = 0.0  # 0: what so many operations may take
    ranks: int = 0  # of every sequence; 0: drawn
    plant: str = ""  # the planted bug that all of it is played with
    eviction: str = ""
    outside: entries.Outside = ()  # policies of a user's own

    def __call__(self, seed: int) -> Result:
        started = time.process_time_ns()
        entries.load(self.outside)
        ops = operations.load()
        swarm = self.swarm(seed)
        with canary(self.canary), planted(self.plant), self.in_time():
            command = self.command(seed)
            outcome = play.generate(swarm, ops, seed, self.operations, self.level, None, command)
        outcome = replace(outcome, tape=self.noted(outcome.tape))
        hand = outcome.hand
        found = self.judge(outcome) if outcome.failure else None
        twice = found is None and Draws(seed, "twice").chance(self.twice)
        if twice:
            found = self.look_twice(outcome.tape)
        busy = time.process_time_ns() - started
        played = len(outcome.tape.entries)
        return Result(
            seed,
            played,
            hand.events,
            busy,
            twice,
            hand.counts,
            hand.probes.seen,
            hand.gauges.readings,
            hand.config.components,
            found,
        )

    def swarm(self, seed: int) -> Swarm:
        weights = weights_of(operations.load())
        return draw_swarm(
            seed, weights, self.components, self.policy, self.ranks, eviction=self.eviction
        )

    def judge(self, outcome: Outcome) -> Found | None:
        """The failure, said anew by its own tape; a planted one only if it is the planted bug."""
        first = outcome.failure
        assert first is not None
        name = name_of(first, outcome.tape)
        again = self.replayed(outcome.tape, name, self.canary)
        if again is None or (again.code, again.kind) != (first.code, first.kind):
            said = f"{again.code} {again.kind}" if again else "nothing"
            what = Failure(
                NONDETERMINISM if again else HARNESS,
                "REPLAY",
                f"REPLAY: A tape must fail as it did when it was drawn.\n    drawn: {first.code} "
                f"{first.kind}, replayed: {said}\n{first.text}",
                first.at,
            )
            return found_of(what, outcome.tape, self.path(name_of(what, outcome.tape)))
        if self.canary:
            sound = self.replayed(outcome.tape, name, bird=False)
            if sound is not None and (sound.code, sound.kind) == (first.code, first.kind):
                return None
        return found_of(again, outcome.tape, self.path(name))

    def in_time(self) -> AbstractContextManager[None]:
        return limit(self.limit_s or allowed_s(self.operations))

    def path(self, name: str) -> str:
        return str(Path(self.folder) / f"{name}.jsonl")

    def replayed(self, tape: Tape, name: str, bird: bool) -> Failure | None:
        with canary(bird), planted(self.plant), self.in_time():
            return play.replay(tape, operations.load(), self.level, self.path(name)).failure

    def look_twice(self, tape: Tape) -> Found | None:
        with planted(self.plant):
            text = differs(tape, self)
        if not text:
            return None
        what = Failure(NONDETERMINISM, "DETERMINISM", text, len(tape.entries))
        return found_of(what, tape, self.path(name_of(what, tape)))

    def drawn(self, seed: int) -> Tape:
        """The tape of a seed, with no check."""
        ops = operations.load()
        with planted(self.plant):
            outcome = play.generate(self.swarm(seed), ops, seed, self.operations, "off")
        return self.noted(outcome.tape)

    def noted(self, tape: Tape) -> Tape:
        """It notes the bug that it is played with, so that whoever plays it again does the same."""
        return replace(tape, notes=tape.notes | {NOTE: self.plant}) if self.plant else tape

    def command(self, seed: int) -> str:
        """What plays this sequence again, and no other."""
        words = ["hicache", "fuzz", "--seed", str(seed), "--sequences", "1", "--operations"]
        words.append(str(self.operations))
        words += ["--check", self.level] if self.level != "every" else []
        words += ["--components", ",".join(self.components)] if self.components else []
        for package, flag, name in (
            (registry.WRITE_POLICIES, "--write-policy", self.policy),
            (registry.EVICTION_POLICIES, "--eviction", self.eviction),
        ):
            words += [flag, entries.spelled(package, name)] if name else []
        words += ["--ranks", str(self.ranks)] if self.ranks else []
        words += ["--plant", self.plant] if self.plant else []
        return shlex.join(words)


def found_of(failure: Failure, tape: Tape, path: str) -> Found:
    """The words end with the command that shows it again, whoever wrote them."""
    text = failure.text.rstrip("\n")
    if not text.splitlines()[-1:] or not text.splitlines()[-1].startswith("replay: "):
        text += f"\nreplay: {shlex.join(['hicache', 'fuzz', '--replay', path, *entries.options()])}"
    name = name_of(failure, tape)
    return Found(failure.code, failure.kind, text, failure.at, tapes.dumps(tape), name)


def name_of(failure: Failure, tape: Tape) -> str:
    """Code, kind and the digest of the tape: the same find has the same name everywhere."""
    kind = re.sub(r"[^a-z0-9]+", "-", failure.kind.lower()).strip("-")
    return f"{failure.code}-{kind[:40]}-{corpus.digest(tape)[:12]}"


def allowed_s(entries: int) -> float:
    return LEAST_S + PER_ENTRY_S * entries


def limit(seconds: float) -> AbstractContextManager[None]:
    """Whatever takes longer is stuck."""
    return alarm(seconds, Hangs(f"one sequence was still at work after {seconds:g} s"))
