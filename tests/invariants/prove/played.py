"""Sequences with models, for tests: played from seeds and tapes."""

from __future__ import annotations

from invariants.fuzz.executors import ModelSettings
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base
from invariants.fuzz.play import Outcome, generate, replay
from invariants.fuzz.tapes.tape import Tape
from invariants.prove import model
from invariants.prove.hand import ModelHand

OPS = base.load()
LLAMA, STATES = ModelSettings("llama"), ModelSettings("qwen3-next")


def drawn(settings: ModelSettings, seed: int, operations: int, faults: bool = True) -> Outcome:
    """A sequence without the checks of the books, so that logits alone judge."""
    swarm = model.drawn(settings, seed, base_weights(), faults)
    return generate(swarm, OPS, seed, operations, "off", against=False)


def base_weights() -> dict[str, int]:
    return weights_of(OPS)


def again(tape: Tape) -> Outcome:
    return replay(tape, OPS, "off", against=False)


def hand_of(outcome: Outcome) -> ModelHand:
    assert isinstance(outcome.hand, ModelHand)
    return outcome.hand


def said(outcome: Outcome) -> tuple[object, ...]:
    """What two runs share that did the same, to the last bit."""
    hand = hand_of(outcome)
    failure = outcome.failure and (outcome.failure.kind, outcome.failure.text.splitlines()[:2])
    return failure, hand.events, hand.counts, hand.paths, hand.figures()
