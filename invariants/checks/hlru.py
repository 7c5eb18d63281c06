"""The eviction queues of host copies of windows and states."""

from __future__ import annotations

from hicache.core.types import Tier
from invariants.checks._aux_queue import AuxQueue


class HostLru(AuxQueue):
    name = "HLRU"
    sentence = (
        "The host queues of a component other than full attention hold exactly its unlocked host "
        "copies, with host-only copies apart from duplicates, and with garbage in the part that "
        "is evicted first."
    )
    tier = Tier.HOST


def check() -> HostLru:
    return HostLru()
