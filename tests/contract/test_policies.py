"""Every eviction, write and prefetch policy, and others that a user might write: what each
declares is all that the core, the specification and the checks ask of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hicache import registry
from hicache.core.actions import Abandoned, Admitted, Prefetched, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import PrefetchLimitReached
from hicache.core.eviction_policies import Facts, LruPath, Term, before
from hicache.core.node import Node
from invariants.differential import DifferentialChecker
from invariants.fuzz.hicache.draw import ORDERS, POLICIES, sample_config
from invariants.fuzz.hicache.play import generate
from tests.core.rig import Rig

EVICTION, WRITE = registry.EVICTION_POLICIES, registry.WRITE_POLICIES
PREFETCH = registry.PREFETCH_POLICIES


@contextmanager
def added(package: str, maker: Any) -> Iterator[str]:
    """A policy that the project does not define."""
    registry.add(package, "another", maker)
    try:
        yield "another"
    finally:
        registry.remove(package, "another")


def played(seeds: range, components: tuple[str, ...] = (), **policy: str) -> set[str]:
    """The kinds of failures of drawn sequences, each compared with the specification."""
    texts = set()
    for seed in seeds:
        outcome = generate(sample_config(seed, components, **policy), 100)
        config = outcome.player.config
        assert {*policy.values()} <= {config.eviction_policy, config.write_policy}
        assert DifferentialChecker(config).lockstep is not None
        texts.add(outcome.failure.kind if outcome.failure is not None else "")
    return texts


# -- eviction


@pytest.mark.parametrize("name", registry.stems(EVICTION))
def test_sequences_under_an_eviction_policy_are_clean(name: str) -> None:
    assert name in ORDERS, "the fuzzer draws it"
    made = Core(Config(1, (4,), eviction_policy=name)).view.eviction
    assert made.name == name
    assert made.order, "ours are all judged"
    assert played(range(2), eviction=name) == {""}


class Sound:
    name = "another"
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


class Lossless(Sound):
    """A whole path is used."""

    whole_path = True


@pytest.mark.parametrize("maker", [Sound, Own, Lossless])
def test_a_policy_of_the_user_decides_as_it_declares(maker: Any) -> None:
    with added(EVICTION, maker) as name:
        assert played(range(2), eviction=name) == {""}


@pytest.mark.parametrize("maker", [Other, Misjudged])
def test_a_policy_of_the_user_that_decides_otherwise_is_found(maker: Any) -> None:
    with added(EVICTION, maker) as name:
        assert any("SPEC Evicted" in played(range(n, n + 1), eviction=name) for n in range(8))


def test_a_deep_state_that_goes_before_a_shallow_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LruPath, "rank", lambda self, node, index: node.last_use[index])
    assert "SPEC Evicted" in played(range(1, 2), ("full", "mamba"), eviction="lru_path")


# -- write


@pytest.mark.parametrize("name", registry.stems(WRITE))
def test_sequences_under_a_write_policy_are_clean(name: str) -> None:
    assert name in POLICIES, "the fuzzer draws it"
    assert Core(Config(1, (4,), write_policy=name)).view.writes.name == name
    assert played(range(3), policy=name) == {""}


@pytest.mark.parametrize(
    ("threshold", "on_evict", "contiguous", "seeds"),
    [
        (3, False, True, range(3)),
        # that a backup of no eviction failed only shows where copies begin in both ways
        (2, True, False, range(10, 13)),
        (1, False, False, range(3)),
        (0, False, True, range(3)),
    ],
)
def test_sequences_under_a_write_policy_with_other_properties_are_clean(
    threshold: int, on_evict: bool, contiguous: bool, seeds: range
) -> None:
    """At the third use; at the second or when evicted; at the first, in any order; never."""
    declared = SimpleNamespace(
        name="another", threshold=threshold, on_evict=on_evict, contiguous=contiguous
    )
    with added(WRITE, lambda: declared) as name:
        assert played(seeds, policy=name) == {""}


# -- prefetch


def keeps_to(name: str) -> None:
    rig = Rig(8, 8, storage=True, prefetch_policy=name)
    lookup = rig.lookup(1, "ab")
    outcomes = rig.admit(1)
    ended = [Prefetched(1, 0, 2, 0, 0, "late"), Abandoned(lookup.transfer)]
    if rig.view.prefetching.waits:
        assert rig.single(Refused, outcomes).reason == "fetching"
        assert rig.feed(PrefetchLimitReached(1)) == ended
        outcomes = rig.admit(1)
    else:
        assert outcomes[:2] == ended
    rig.single(Admitted, outcomes)


@pytest.mark.parametrize("name", registry.stems(PREFETCH))
def test_an_admission_waits_if_the_policy_says_so(name: str) -> None:
    policy = Core(Config(1, (4,), prefetch_policy=name)).view.prefetching
    assert policy.name == name
    assert policy.waits or not policy.limited, "there is no wait to limit"
    keeps_to(name)


@pytest.mark.parametrize("waits", [False, True])
def test_a_prefetch_policy_of_the_user_is_treated_the_same(waits: bool) -> None:
    policy = SimpleNamespace(name="another", waits=waits, limited=False)
    with added(PREFETCH, lambda: policy) as name:
        keeps_to(name)
