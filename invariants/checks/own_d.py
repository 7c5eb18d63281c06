"""Every device page has one owner, and the core's ledger agrees."""

from __future__ import annotations

from hicache.core.types import Tier
from invariants.checks._ownership import Ownership


class OwnDevice(Ownership):
    name = "OWN-D"
    sentence = (
        "Every device page has exactly one owner: the free list, a node, a request or a load."
    )
    tier = Tier.DEVICE


def check() -> OwnDevice:
    return OwnDevice()
