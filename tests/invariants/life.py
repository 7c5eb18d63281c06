"""Lives of one core, drawn by the fuzzer, in a corner and under a watch that a test chooses."""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import WEIGHTS, Swarm, next_entry
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.watch import Watch


def corner(config: Config, fail: int = 5, without: tuple[str, ...] = ()) -> Swarm:
    """Every operation but some, so many percent of actions that fail, and no other fault."""
    weights = tuple(
        (name, weight) for name, weight in WEIGHTS.items() if weight and name not in without
    )
    return Swarm(config, "time", weights, (("fail", fail),) if fail else ())


class Life:
    def __init__(self, swarm: Swarm, seed: int, watch: Watch | None = None) -> None:
        self.watch = Watch("every", f"seed {seed}") if watch is None else watch
        self.hand = Hand(swarm.config, swarm.order, self.watch)
        self.core = self.hand.core
        self._swarm = swarm
        self._seed = seed
        self._drawn = 0

    def run(self, entries: int) -> None:
        for _ in range(entries):
            entry = next_entry(self.hand, self._swarm, OPS, self._seed, self._drawn)
            self._drawn += 1
            if entry is not None:
                play.step(self.hand, OPS, entry)

    def end(self) -> None:
        """Until nothing is left: faults are over, all that runs ends well, all is evicted."""
        play.end(self.hand)
