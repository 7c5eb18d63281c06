"""Lives of one core, drawn by the fuzzer, in a corner and under a watch that a test chooses."""

from hicache.core.config import Config
from invariants.checker import Checker
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import WEIGHTS, ConfigSample, next_entry
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.sequence import FuzzSequence


def corner(config: Config, fail: int = 5, without: tuple[str, ...] = ()) -> ConfigSample:
    """Every operation but some, so many percent of actions that fail, and no other fault."""
    weights = tuple((name, item) for name, item in WEIGHTS.items() if item and name not in without)
    return ConfigSample(FuzzSequence(config, (), 3), weights, (("fail", fail),) if fail else ())


class Life:
    def __init__(self, sample: ConfigSample, checker: Checker | None = None) -> None:
        self.checker = Checker("every") if checker is None else checker
        self.player = Player(sample.sequence.config, sample.sequence.order, self.checker)
        self.core = self.player.core
        self._sample = sample
        self._drawn = 0

    def run(self, entries: int) -> None:
        for _ in range(entries):
            entry = next_entry(self.player, self._sample, self._drawn)
            self._drawn += 1
            if entry is not None:
                play.step(self.player, entry)
