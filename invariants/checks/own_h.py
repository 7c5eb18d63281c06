"""Every host page has one owner, and the core's ledger agrees."""

from __future__ import annotations

from hicache.core.types import Tier
from invariants.checks._ownership import Ownership


class OwnHost(Ownership):
    name = "OWN-H"
    sentence = "Every host page has exactly one owner: the free list, a node, a backup or a fetch."
    tier = Tier.HOST


def check() -> OwnHost:
    return OwnHost()
