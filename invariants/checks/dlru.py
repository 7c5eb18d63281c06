"""The eviction queues of device copies of windows and states."""

from __future__ import annotations

from hicache.core.types import Tier
from invariants.checks._aux_queue import AuxQueue


class DeviceLru(AuxQueue):
    name = "DLRU"
    sentence = (
        "The device queue of a component other than full attention holds exactly its unlocked "
        "device copies, with garbage in the part that is evicted first."
    )
    tier = Tier.DEVICE


def check() -> DeviceLru:
    return DeviceLru()
