"""Plays one sequence, from its seed to a result that can be sent between processes and machines;
and one tape, for `hicache fuzz --replay`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from hicache import registry
from hicache.core.errors import CallerError
from invariants.against import AGAINST, SPEC
from invariants.base import HARNESS, NONDETERMINISM
from invariants.fuzz import sequence as corpus
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache import device as devices
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.difference import replay_told
from invariants.fuzz.hicache.drain import Stuck
from invariants.fuzz.hicache.executors import REAL, on_device
from invariants.fuzz.hicache.generate import weights_of
from invariants.fuzz.hicache.ops import base as operations
from invariants.fuzz.hicache.play import Failure, Outcome
from invariants.fuzz.hicache.simpler import WAYS
from invariants.fuzz.hicache.swarm import COMPONENTS, MOST_PASSES, Swarm, draw_swarm
from invariants.fuzz.sequence import MOST_RANKS, Tape, has_storage
from invariants.fuzz.shrink import shrink
from invariants.watch import Level

from .. import outside as entries
from ..terminal import options as read
from ..terminal.options import OptionRecord, option, rows
from ..terminal.output import write_json
from ..terminal.signals import alarm
from ..terminal.streams import command_line, ignore_broken_pipe

MOST_OPERATIONS = 100_000  # a tape of this length can still be read
FOLDER = "fuzz-failures"
_LEVELS: tuple[Level, ...] = get_args(Level)
PLAYS = 1000  # of one failure, to shrink it
LEAST_S, PER_ENTRY_S = 60.0, 0.05  # far more than a sequence takes on a busy machine
_PACKAGES = {"write_policy": registry.WRITE_POLICIES, "eviction": registry.EVICTION_POLICIES}


def components(text: str) -> tuple[str, ...]:
    """Raises ValueError for what is never drawn."""
    given = tuple(part.strip() for part in text.split(","))
    if given not in COMPONENTS:
        known = " or ".join(",".join(one) for one in COMPONENTS)
        raise ValueError(f"expected {known}, found {text!r}")
    return given


@dataclass(frozen=True)
class Settings(OptionRecord):
    """What every sequence is drawn and judged with."""

    operations: int = option(
        f"operations in a sequence, at most {MOST_OPERATIONS}",
        read.between(1, MOST_OPERATIONS),
        "N",
        default=120,
    )
    components: tuple[str, ...] = option(
        "components, such as full,swa (default: drawn)",
        components,
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
        f"number of ranks, 1 to {MOST_RANKS} (default: drawn)",
        read.between(1, MOST_RANKS),
        "N",
        default=0,
    )
    passes: int = option(
        f"passes of one request in flight at a time, 1 to {MOST_PASSES} (default: drawn)",
        read.between(1, MOST_PASSES),
        "N",
        default=0,
    )
    check: Level = option(", ".join(_LEVELS), read.choice(_LEVELS), default="every")
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
    output: str = option(
        "folder for the tape and the text of each failure",
        read.name,
        "FOLDER",
        short="-o",
        default=FOLDER,
    )


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
    """The result of one sequence. operations: entries of the tape. events: handled by the core."""

    seed: int
    operations: int
    events: int
    busy_ns: int
    counts: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    failure: FoundFailure | None = None


@dataclass(frozen=True)
class Work:
    """Everything that a worker needs except the seed. A call plays one sequence. outside: policies
    of the user. limit_s: 0 for `allowed_s` of the operations."""

    settings: Settings = field(default_factory=Settings)
    outside: entries.Outside = ()
    limit_s: float = 0.0

    def __call__(self, seed: int) -> Result:
        started = time.process_time_ns()
        entries.load(self.outside)
        length, level = self.settings.operations, self.settings.check
        with self.time_limit():
            ops, command = operations.load(), self.command(seed)
            outcome = play.generate(
                *(self.swarm(seed), ops, seed, length, level, None, command, self.compares)
            )
        hand = outcome.hand
        failure = self.judge(outcome) if outcome.failure else None
        busy, played = time.process_time_ns() - started, len(outcome.tape.entries)
        return Result(*(seed, played, hand.events, busy, hand.counts, hand.probes.seen, failure))

    @property
    def compares(self) -> bool:
        return self.settings.against == SPEC

    def swarm(self, seed: int) -> Swarm:
        given = self.settings
        return draw_swarm(
            *(seed, weights_of(operations.load()), given.components, given.write_policy or ""),
            given.ranks,
            executor=given.device or "",
            eviction=given.eviction or "",
            passes=given.passes,
        )

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
                return play.replay(tape, ops, self.settings.check, against=self.compares)

        tape = shrink(tapes.loads(found.tape), found, play_one, WAYS, PLAYS).tape
        path = self.path(name_of(found, tape))
        with self.time_limit():
            told = replay_told(
                tape, ops, self.settings.check, path, self.compares, whole=True
            ).failure
        if told is None or (told.code, told.kind) != (found.code, found.kind):
            return found
        return found_failure(told, tape, path)

    def time_limit(self) -> AbstractContextManager[None]:
        return limit(self.limit_s or allowed_s(self.settings.operations))

    def path(self, name: str) -> str:
        return str(Path(self.settings.output) / f"{name}.jsonl")

    def replayed(self, tape: Tape, name: str) -> Failure | None:
        with self.time_limit():
            ops, path = operations.load(), self.path(name)
            return play.replay(tape, ops, self.settings.check, path, against=self.compares).failure

    def drawn(self, seed: int) -> Tape:
        """The tape of a seed, drawn without checks."""
        ops = operations.load()
        return play.generate(self.swarm(seed), ops, seed, self.settings.operations, "off").tape

    def command(self, seed: int, sequences: int = 1) -> str:
        """The command that plays the sequence of this seed alone, or this many from it on."""
        words = ["hicache", "fuzz", "--seed", str(seed), "--sequences", str(sequences)]
        for one in rows(Settings):
            value = getattr(self.settings, one.name)
            if one.name == "output" or (value == one.default and one.name != "operations"):
                continue
            if one.name in _PACKAGES:
                value = entries.spelled(_PACKAGES[one.name], value)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [one.flag] if value is True else [one.flag, text]
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


# -- one tape


def replay(path: str, settings: Settings, json: str | None, command: str) -> int:
    """Plays one tape exactly and prints the result. Returns the exit code."""
    device = settings.device
    tape = tapes.read(Path(path))
    if device:
        tape = _moved(tape, device, path)
    with limit(allowed_s(len(tape.entries))):
        ops, compares = operations.load(), settings.against == SPEC
        outcome = replay_told(tape, ops, settings.check, path, compares)
    code = outcome.failure.code if outcome.failure else 0
    stream = sys.stderr if json == "-" else sys.stdout
    with ignore_broken_pipe():
        print(_told(outcome, device), file=stream)
    with ignore_broken_pipe():
        if json:
            write_json(json, _document(outcome, code, command))
    return code


def _moved(tape: Tape, device: str, path: str) -> Tape:
    """The tape on this device. Raises CallerError if it cannot run on one, or there is none."""
    unfit = {
        f"{tape.ranks} ranks": tape.ranks > 1,
        "token pairs": tape.pairs,
        "a storage": has_storage(tape),
    }
    if found := next((what for what, there in unfit.items() if there), ""):
        raise CallerError(
            "--device: expected a tape of one rank without token pairs and storage, "
            f"found {found} in {path}; leave the option out"
        )
    devices.check(device)
    return replace(tape, executor=on_device(tape.executor, device))


def _told(outcome: Outcome, device: str | None) -> str:
    failure, size = outcome.failure, len(outcome.tape.entries)
    if failure is None:
        where = f" on the {device} device" if device else ""
        return f"{size} entries, {outcome.hand.events} events{where}: no failure"
    text = failure.text.rstrip()
    text += shlex.join(["", *entries.options()]) if entries.given() else ""
    if device:
        text += shlex.join(["", "--device", device])
    return f"{text}\nfailed at entry {failure.at} of {size}: {failure.code} {failure.kind}"


def _document(outcome: Outcome, code: int, command: str) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    failure, hand = outcome.failure, outcome.hand
    found = (
        {"code": code, "kind": failure.kind, "at": failure.at, "text": failure.text}
        if failure
        else None
    )
    return {
        "format": "hicache-fuzz-replay",
        "version": 1,
        "command": command,
        "exit_code": code,
        "failure": found,
        "entries": len(outcome.tape.entries),
        "events": hand.events,
        "counts": dict(sorted(hand.counts.items())),
        "probes": dict(sorted(hand.probes.seen.items())),
    }
