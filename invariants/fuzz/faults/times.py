"""A good reply at another time: lost until the run is healed, late, at once, or together with
others.
"""

from __future__ import annotations

from .base import EVERY, LOST, Fault, Player


class Timed(Fault):
    """later: delay of the reply, at once if negative. step: the reply waits for the next multiple
    of it, so that several come together. turned: the latest action is answered first.
    """

    def __init__(self, later: int, step: int = 1, turned: bool = False, *sites: str) -> None:
        self.later, self.step, self.turned = later, step, turned
        self.sites = sites or EVERY

    def due(self, hand: Player, due: int) -> int:
        if self.later >= LOST:
            return LOST
        return -(-(due + self.later) // self.step) * self.step if self.later >= 0 else hand.now

    def tie(self, number: int, tie: int) -> int:
        return -number if self.turned else tie


KINDS = {
    "lost": Timed(LOST),
    "late": Timed(200),
    "very late": Timed(5000),
    "burst": Timed(-1),
    "bunched": Timed(0, 64),
    "reordered": Timed(0, 64, True),
    "engine stall": Timed(3000, 1, False, "Prefill"),
    "overtaken load": Timed(400, 1, False, "Load"),
}
