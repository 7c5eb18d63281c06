"""The double run of one tape: here, and in a process with another hash seed, event by event.

An order that comes from hashing is the same in all of a process, also on ranks that share it, and
differs between processes. Contains the trail of a tape, the other process, and the search for the
first difference of two trails. Does not choose the seeds that run twice; see work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.view import CoreView
from hicache.runtime.encoding import event_bytes, outcome_bytes
from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.ranks.hand import hand_of
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Watch

from ..outside.entries import Outside
from ..terminal.workers import MOST_HASH_SEED, Child, ChildLost

KEPT_FOR = 32  # seeds of sequences with the same other process
_SHOWN = 160
_LIMIT_S = 120


class Source(Protocol):
    """The draw that a tape came from."""

    @property
    def operations(self) -> int: ...
    @property
    def components(self) -> tuple[str, ...]: ...
    @property
    def policy(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def passes(self) -> int: ...
    @property
    def plant(self) -> str: ...
    @property
    def eviction(self) -> str: ...
    @property
    def outside(self) -> Outside: ...
    @property
    def device(self) -> str: ...

    def command(self, seed: int) -> str:
        """The command that plays the sequence of a seed again."""

    def drawn(self, seed: int) -> Tape:
        """The tape of a seed."""


@dataclass(frozen=True)
class Step:
    """One event, and the digest of all events and outcomes up to it."""

    digest: str
    event: str


class Follower(Watch):
    """A watch that checks nothing and keeps the trail: one step for each event."""

    def __init__(self) -> None:
        super().__init__("off")
        self.steps: list[Step] = []
        self._digest = blake2b(digest_size=16)

    def on_event(self, event: Event, view: CoreView) -> None:
        self._digest.update(event_bytes(event))

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._digest.update(outcome_bytes(outcomes))
        name = type(event).__name__
        request, flight = getattr(event, "request", None), getattr(event, "flight", None)
        subject = f"request {request}" if request is not None else f"flight {flight}"
        answers = ", ".join(type(item).__name__ for item in outcomes)
        self.steps.append(Step(self._digest.hexdigest(), f"{name} ({subject}) -> {answers}"))


def trail_of(tape: Tape) -> list[Step]:
    """The trail of a replay of the tape."""
    follower, ops = Follower(), operations.load()
    hand = hand_of(tape, follower)
    for entry in tape.entries:
        play.step(hand, ops, entry)
    play.end(hand)
    hand.close()
    return follower.steps


def differs(tape: Tape, source: Source) -> str:
    """Describes the first difference between the two runs; empty if they are equal."""
    trail = trail_of(tape)
    other = _other_process(tape, source)
    drawn, text = tapes.loads(other["drawn"]), tapes.dumps(tape)
    difference = first_difference(trail, [Step(*step) for step in other["trail"]])
    if not difference and other["drawn"] != text:
        pairs = zip(tape.entries, drawn.entries, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs) if a != b), len(drawn.entries))
        difference = f"entry {at + 1} of the tape is drawn differently"
    if not difference:
        return ""
    sentence = "DETERMINISM: The same input gives the same events in every process."
    seeds = f"PYTHONHASHSEED is {hash_seed() or 'not set'} here, and {other['hash_seed']} there"
    command = f"{source.command(tape.seed)} --twice 100"
    return f"{sentence}\n    {difference}\n    {seeds}\nreplay: {with_hash_seed(command)}"


def hash_seed() -> str:
    """The hash seed of this process; empty if it was not set."""
    given = os.environ.get("PYTHONHASHSEED", "")
    return given if given.isdecimal() else ""


def with_hash_seed(command: str) -> str:
    """The command, run with the hash seed of this process."""
    return f"PYTHONHASHSEED={hash_seed()} {command}" if hash_seed() else command


def first_difference(here: Sequence[Step], there: Sequence[Step]) -> str:
    """Names the first event at which two trails differ; empty if they are equal."""
    pairs = zip(here, there, strict=False)
    at = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(here), len(there)))
    if at == len(here) == len(there):
        return ""
    one, other = (run[at].event if at < len(run) else "(ended)" for run in (here, there))
    return f"event {at + 1}: here {one[:_SHOWN]}; in the fresh process {other[:_SHOWN]}"


class _Other:
    """The other process, which is kept for further tapes while it has the wanted hash seed and the
    same environment.
    """

    child: Child | None = None
    started_in: tuple[object, ...] = ()
    seed = ""

    def of(self, wanted: str) -> Child:
        """Returns the process with the hash seed `wanted`."""
        here = (os.getpid(), Path.cwd(), dict(os.environ))
        if self.child is not None and (here, wanted) != (self.started_in, self.seed):
            self.close()
        if self.child is None:
            self.started_in, self.seed = here, wanted
            self.child = Child("traces.fuzzing.double_run_child", {"PYTHONHASHSEED": wanted})
        return self.child

    def close(self) -> None:
        if self.child is not None and self.started_in[0] == os.getpid():
            self.child.close()
        self.child = None


_other = _Other()


def _other_process(tape: Tape, source: Source) -> dict[str, Any]:
    """The same run in another process. Its hash seed is another one for each KEPT_FOR seeds of
    sequences, since two hash seeds may well order a small set alike.
    """
    text = tapes.dumps(tape)
    given = {
        "tape": text,
        "operations": source.operations,
        "components": source.components,
        "policy": source.policy,
        "ranks": source.ranks,
        "passes": source.passes,
        "plant": source.plant,
        "eviction": source.eviction,
        "outside": source.outside,
        "device": source.device,
    }
    wanted = (int(hash_seed() or 0) + 1 + tape.seed // KEPT_FOR) % MOST_HASH_SEED
    child = _other.of(str(wanted))
    try:
        result: dict[str, Any] = json.loads(child.ask(json.dumps(given), _LIMIT_S))
    except ChildLost as lost:
        _other.close()
        result = {"drawn": text, "trail": [("", f"(failed: {lost})")]}
    return result | {"hash_seed": _other.seed}
