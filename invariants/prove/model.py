"""The hand of a tape whose passes are those of a real model: what the fuzzer imports when it needs
it, as it needs a library."""

from __future__ import annotations

from hicache.core.errors import CallerError
from invariants.fuzz.executors import ModelSettings, model_of
from invariants.fuzz.hand import Hand
from invariants.fuzz.swarm import Swarm
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Watch

from .building import attentions, names
from .hand import Figures, ModelHand
from .subjects import check, subject
from .swarm import draw
from .wrong import planted

__all__ = ["attentions", "check", "drawn", "figures", "hand_of", "names", "planted"]


def hand_of(tape: Tape, watch: Watch | None = None) -> ModelHand:
    """Raises CallerError for an unknown model and for a configuration that it cannot have."""
    settings = model_of(tape.executor)
    assert settings is not None, "the executor of the tape is a model"
    if tape.pairs:
        raise CallerError("executor model: expected keys of tokens, found token pairs")
    return ModelHand(tape, subject(settings), watch)


def drawn(
    settings: ModelSettings,
    seed: int,
    weights: dict[str, int],
    faults: bool,
    eviction: str = "",
    wanted: bool = False,
) -> Swarm:
    """The swarm of a seed for this model. faults: whether actions may fail. eviction, wanted: as of
    a swarm without a model."""
    return draw(subject(settings), seed, weights, faults, eviction, wanted)


def figures(hand: Hand) -> Figures:
    """What the hand of a model has seen."""
    assert isinstance(hand, ModelHand), "only a hand with a model compares logits"
    return hand.figures()
