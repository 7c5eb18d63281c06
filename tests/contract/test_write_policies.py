"""Every policy in hicache/core/write_policies, and others that a user might write: what it declares
is all that the core and the checks ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hicache import registry
from hicache.core.config import Config
from hicache.core.core import Core
from invariants.against import Against
from invariants.fuzz.hicache.draw import POLICIES, draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import generate

NAMES = registry.stems(registry.WRITE_POLICIES)


def declared(threshold: int, on_evict: bool, contiguous: bool) -> SimpleNamespace:
    return SimpleNamespace(
        name="another", threshold=threshold, on_evict=on_evict, contiguous=contiguous
    )


# At the third use; at the second or when evicted; at the first, in any order; never.
OTHERS = [
    declared(3, False, True),
    declared(2, True, False),
    declared(1, False, False),
    declared(0, False, True),
]


@pytest.fixture
def another(request: pytest.FixtureRequest) -> Iterator[str]:
    """A policy that no file of the folder defines."""
    registry.add(registry.WRITE_POLICIES, "another", lambda: request.param)
    yield "another"
    registry.remove(registry.WRITE_POLICIES, "another")


@pytest.mark.parametrize("name", NAMES)
def test_sequences_under_a_policy_are_clean_to_every_check(name: str) -> None:
    assert name in POLICIES, "the fuzzer draws it"
    assert Core(Config(1, (4,), write_policy=name)).view.writes.name == name
    clean(name)


@pytest.mark.parametrize("another", OTHERS, indirect=True, ids=repr)
def test_sequences_under_a_policy_with_other_properties_are_clean(another: str) -> None:
    declared = registry.load(registry.WRITE_POLICIES, another)()
    # that a backup of no eviction failed only shows where copies begin in both ways
    clean(another, 30 if declared.threshold and declared.on_evict else 3)


def clean(name: str, seeds: int = 3) -> None:
    ops = OPERATIONS
    for seed in range(seeds):
        outcome = generate(draw_swarm(seed, policy=name), ops, seed, 100)
        assert outcome.hand.config.write_policy == name
        assert Against(outcome.hand.config).lockstep is not None, "compared with the specification"
        assert outcome.failure is None, outcome.failure.text
