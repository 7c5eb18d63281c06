"""The work fails: at once, when it is due, or later."""

from __future__ import annotations

from .base import Fault, Player


class Error(Fault):
    fine = False

    def __init__(self, later: int, *sites: str) -> None:
        self.later = later
        self.sites = sites or self.sites

    def due(self, hand: Player, due: int) -> int:
        return hand.now if self.later < 0 else due + self.later


KINDS = {
    "fail": Error(0),
    "submit error": Error(-1),
    "late error": Error(200),
    "pass error": Error(0, "Prefill"),
}
