"""Planted bugs in the order of eviction that one check finds alone, by what the books keep."""

from __future__ import annotations

import pytest

from invariants.planted._kill import hunt


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("uses-do-not-raise-a-cost", "order-ref"),
        ("evicted-states-do-not-age", "lru"),
        ("visited-copies-get-no-second-chance", "second-chance"),
        ("copies-known-to-the-ghost-come-into-small", "second-chance"),
        ("spared-copies-stay-at-the-front", "second-chance"),
    ],
)
def test_the_check_finds_the_bug_alone(name: str, check: str) -> None:
    found = hunt(name, range(20), checks=(check,))
    assert found.failure is not None, "planted, not found"
    assert found.failure.kind == check.upper()
