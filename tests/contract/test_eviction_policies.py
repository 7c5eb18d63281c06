"""Every eviction policy of the project, and others that a user might write: each ranks as
it declares, and the specification decides the same by what it declares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hicache import registry
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.eviction_policies import (
    Facts,
    LruPath,
    Term,
    before,
)
from hicache.core.node import Node
from invariants.against import Against
from invariants.fuzz.hicache.draw import ORDERS, draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import generate

NAMES = registry.stems(registry.EVICTION_POLICIES)


@pytest.mark.parametrize("name", NAMES)
def test_sequences_under_a_policy_are_clean_to_every_check(name: str) -> None:
    assert name in ORDERS, "the fuzzer draws it"
    made = Core(Config(1, (4,), eviction_policy=name)).view.eviction
    assert made.name == name
    assert made.order, "ours are all judged"
    ops = OPERATIONS
    for seed in range(2):
        outcome = generate(draw_swarm(seed, eviction=name), ops, seed, 100)
        assert outcome.hand.config.eviction_policy == name
        assert outcome.failure is None, outcome.failure.text


class Sound:
    name = "sound"
    whole_path = False
    order: object = (Term("hits"), Term("last_use"))

    def rank(self, node: Node, component: int) -> object:
        return before(node.hits, node.last_use[component])


class Other(Sound):
    def rank(self, node: Node, component: int) -> object:
        return node.last_use[component]


class Own(Sound):
    """No list of facts tells this order: its reference does."""

    order = ()

    def rank(self, node: Node, component: int) -> object:
        return node.last_use[component] + 8 * node.hits

    def reference(self, facts: Facts) -> tuple[int, ...]:
        return (facts.last_use + 8 * facts.hits,)


class Misjudged(Own):
    def reference(self, facts: Facts) -> tuple[int, ...]:
        return (-facts.hits,)


class Whole(Sound):
    """A whole path is used."""

    whole_path = True


@pytest.fixture
def outside(request: pytest.FixtureRequest) -> Iterator[str]:
    """A policy that no file of the folder defines."""
    registry.add(registry.EVICTION_POLICIES, "sound", request.param)
    yield "sound"
    registry.remove(registry.EVICTION_POLICIES, "sound")


def played(name: str, components: tuple[str, ...] = (), seeds: range = range(8)) -> set[str]:
    """The kinds of failures of drawn sequences."""
    ops, found = OPERATIONS, set()
    for seed in seeds:
        swarm = draw_swarm(seed, components, eviction=name)
        outcome = generate(swarm, ops, seed, 100)
        assert Against(outcome.hand.config).lockstep is not None, "compared with the specification"
        found.add(outcome.failure.kind if outcome.failure is not None else "")
    return found


@pytest.mark.parametrize("outside", [Sound, Own, Whole], indirect=True)
def test_a_policy_from_outside_decides_as_it_declares(outside: str) -> None:
    assert played(outside, seeds=range(2)) == {""}


@pytest.mark.parametrize("outside", [Other, Misjudged], indirect=True)
def test_a_policy_from_outside_that_decides_otherwise_is_found(outside: str) -> None:
    assert "SPEC Evicted" in played(outside)


def test_a_deep_state_that_goes_before_a_shallow_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LruPath, "rank", lambda self, node, index: node.last_use[index])
    assert "SPEC Evicted" in played("lru_path", ("full", "mamba"), range(1, 2))
