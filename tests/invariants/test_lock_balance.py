"""What LOCK-BAL says of one node whose holders are not those that the books expect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from invariants.base import Broken
from invariants.checks.ends import LockBalance

SLOTS = ("device", "device swa", "host", "host swa")


def look(expected: list[int]) -> None:
    """A node of two components that one request holds on device, its window twice."""
    one, other = SimpleNamespace(name="request 1"), SimpleNamespace(name="flight 2")
    holders = (({1: one}, {1: one, 2: other}), ({}, {}))
    book: Any = SimpleNamespace(pages=[SimpleNamespace(where=where) for where in SLOTS])
    mirror: Any = SimpleNamespace(locked=expected)
    node: Any = SimpleNamespace(id=9, locks=holders)
    LockBalance().node(book, mirror, node)


def test_a_node_with_the_expected_locks_passes() -> None:
    look([1, 2, 0, 0])


@pytest.mark.parametrize("slot", range(4))
def test_a_missing_or_extra_lock_is_found(slot: int) -> None:
    expected = [1, 2, 0, 0]
    expected[slot] += 1
    said = f"node 9, {SLOTS[slot]}: expected {expected[slot]} holders, found {expected[slot] - 1} "
    with pytest.raises(Broken, match=said):
        look(expected)
