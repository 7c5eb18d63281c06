"""The states that sequences should reach: drawn ones reach all of them."""

from collections import Counter

from invariants.fuzz.hicache import play, probes
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.operations import OPERATIONS as OPS

TELLING = (0, 1, 2, 3, 5, 6, 16, 22, 28, 39)  # reach all of them


def test_drawn_sequences_reach_every_named_state() -> None:
    seen: Counter[str] = Counter()
    for seed in (*TELLING, *range(150)):
        outcome = play.generate(sample_config(seed), OPS, seed, 120, "off")
        assert outcome.failure is None, outcome.failure
        seen += outcome.player.probes.seen
        if {*probes.NAMES} <= {*seen}:
            return
    assert not {*probes.NAMES} - {*seen}
