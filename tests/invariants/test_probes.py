"""The states that sequences should reach: drawn ones reach all of them."""

from __future__ import annotations

from collections import Counter

from invariants.fuzz.hicache import play, probes
from invariants.fuzz.hicache.ops import base
from invariants.fuzz.hicache.swarm import draw_swarm

OPS = base.load()
TELLING = (1, 33, 50, 56, 61, 109, 149)  # seeds that reach all of them together


def test_forty_states_have_names() -> None:
    assert len(set(probes.NAMES)) == len(probes.NAMES) == 40
    assert probes.unreached({}) == list(probes.NAMES)
    assert probes.unreached(dict.fromkeys(probes.NAMES[1:], 1)) == [probes.NAMES[0]]


def test_drawn_sequences_reach_every_named_state() -> None:
    seen: Counter[str] = Counter()
    weights = {name: one.weight for name, one in OPS.items()}
    for seed in (*TELLING, *range(600)):
        outcome = play.generate(draw_swarm(seed, weights), OPS, seed, 60, "off")
        assert outcome.failure is None, outcome.failure
        seen += outcome.hand.probes.seen
        if not probes.unreached(seen):
            return
    assert not probes.unreached(seen)
