"""The double run of one tape: here, and in a new process with another hash seed, event by event.

Contains the trail of a tape, the start of the new process, and the search for the first difference
of two trails. Does not choose the seeds that run twice; see work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
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
from ..terminal.workers import run_child

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
    child = _run_child(tape, source)
    drawn, text = tapes.loads(child["drawn"]), tapes.dumps(tape)
    difference = first_difference(trail, [Step(*step) for step in child["trail"]])
    if not difference and child["drawn"] != text:
        pairs = zip(tape.entries, drawn.entries, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs) if a != b), len(drawn.entries))
        difference = f"entry {at + 1} of the tape is drawn differently"
    if not difference:
        return ""
    sentence = "DETERMINISM: The same input gives the same events in every process."
    command = f"{source.command(tape.seed)} --twice 100"
    return f"{sentence}\n    {difference}\nreplay: {command}"


def first_difference(here: Sequence[Step], there: Sequence[Step]) -> str:
    """Names the first event at which two trails differ; empty if they are equal."""
    pairs = zip(here, there, strict=False)
    at = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(here), len(there)))
    if at == len(here) == len(there):
        return ""
    one, other = (run[at].event if at < len(run) else "(ended)" for run in (here, there))
    return f"event {at + 1}: here {one[:_SHOWN]}; in the fresh process {other[:_SHOWN]}"


def _run_child(tape: Tape, source: Source) -> dict[str, Any]:
    """The same run in a new process. Its hash seed is derived from the tape."""
    text = tapes.dumps(tape)
    given = {
        "tape": text,
        "operations": source.operations,
        "components": source.components,
        "policy": source.policy,
        "ranks": source.ranks,
        "plant": source.plant,
        "eviction": source.eviction,
        "outside": source.outside,
        "device": source.device,
    }
    hash_seed = int(sha256(text.encode()).hexdigest()[:6], 16)
    child = run_child(
        "traces.fuzzing.double_run_child",
        (),
        {"PYTHONHASHSEED": str(hash_seed)},
        input=json.dumps(given),
        timeout=_LIMIT_S,
    )
    if child.returncode:
        message = (child.stderr.strip().splitlines() or ["nothing"])[-1]
        return {"drawn": text, "trail": [("", f"(failed: {message})")]}
    result: dict[str, Any] = json.loads(child.stdout)
    return result
