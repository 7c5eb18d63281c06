"""A pass fails after its load has landed: the loaded pages stay, and the request is computed
again.
"""

from __future__ import annotations

from hicache.core.actions import Prefill

from ..records import Pending
from .base import Fault, Player


class AfterItsLoad(Fault):
    fine = False
    sites = ("Prefill",)

    def before(self, hand: Player, one: Pending) -> None:
        after = one.action.after if isinstance(one.action, Prefill) else ()
        for load in [other for other in hand.pending if other.number in after]:
            hand.take(load)


KINDS = {"pass error after its load": AfterItsLoad()}
