"""Every policy in hicache/core/eviction_policies, and others that a user might write: each ranks as
it declares, and the specification decides the same by what it declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hicache import registry
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.eviction_policies.base import (
    EvictionPolicy,
    Facts,
    SecondChance,
    Term,
    before,
    depth,
    second_chance_of,
)
from hicache.core.eviction_policies.lru_path import LruPath
from hicache.core.radix.node import Node
from invariants.against import Against
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import generate
from invariants.fuzz.swarm import ORDERS, draw_swarm
from tests.contract.contracts.eviction_policies import wrong

NAMES = registry.stems(registry.EVICTION_POLICIES)


def policy(name: str) -> EvictionPolicy:
    made: EvictionPolicy = registry.load(registry.EVICTION_POLICIES, name).policy()
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_keeps_the_contract_and_has_the_name_of_its_file(name: str) -> None:
    assert wrong(policy(name)) == ""
    assert policy(name).name == name
    made = policy(name)
    judged = made.order or hasattr(made, "reference") or second_chance_of(made)
    assert judged, "ours are all judged"
    assert Core(Config(1, (4,), eviction_policy=name)).view.eviction.name == name


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", NAMES)
def test_sequences_under_a_policy_are_clean_to_every_check(name: str) -> None:
    assert name in ORDERS, "the fuzzer draws it"
    ops = load()
    for seed in range(4):
        outcome = generate(draw_swarm(seed, weights_of(ops), eviction=name), ops, seed, 100)
        assert outcome.hand.config.eviction_policy == name
        assert outcome.failure is None, outcome.failure.text


class Sound:
    name = "sound"
    whole_path = False
    order: object = (Term("hits"), Term("last_use"))

    def rank(self, node: Node, component: int) -> object:
        return before(node.hits, node.last_use[component])


class Falling(Sound):
    def rank(self, node: Node, component: int) -> object:
        return -node.last_use[component]


class Other(Sound):
    def rank(self, node: Node, component: int) -> object:
        return node.last_use[component]


class Fickle(Sound):
    def __init__(self) -> None:
        self.turn = 0

    def rank(self, node: Node, component: int) -> object:
        self.turn += 1
        return self.turn


class Text(Sound):
    def rank(self, node: Node, component: int) -> object:
        return str(node.hits)


class Unranked:
    name, whole_path, order = "unranked", False, ()


class Own(Sound):
    """No list of facts tells this order: its reference does."""

    order = ()

    def rank(self, node: Node, component: int) -> object:
        return node.last_use[component] + 8 * node.hits

    def reference(self, facts: Facts) -> tuple[int, ...]:
        return (facts.last_use + 8 * facts.hits,)


class Shallow(Sound):
    """Declares the depth of windows and states, and forgets it."""

    order = (Term("last_use"), Term("depth"))

    def rank(self, node: Node, component: int) -> object:
        return node.last_use[component]


class Deep(Shallow):
    def rank(self, node: Node, component: int) -> object:
        return before(node.last_use[component], -depth(node, component))


class Misjudged(Own):
    def reference(self, facts: Facts) -> tuple[int, ...]:
        return (-facts.hits,)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Sound, ""),
        (Own, ""),
        (type("Undeclared", (Other,), {"order": ()}), ""),
        (Falling, "a rank that only grows"),
        (Other, "ranks in the declared order"),
        (Misjudged, "ranks in the declared order"),
        (Shallow, "ranks in the declared order"),
        (Deep, "a rank that only grows"),
        (Fickle, "the same rank for the same node twice"),
        (Text, "an integer"),
        (Unranked, "a method rank"),
        (type("Nameless", (Sound,), {"name": "Not A Name"}), "a word in lower case"),
        (type("Unsaid", (Sound,), {"whole_path": None}), "whole_path"),
        (type("Listed", (Sound,), {"order": ["hits"]}), "a tuple of Term"),
        (type("Strange", (Sound,), {"order": (Term("size"),)}), "facts of last_use"),  # type: ignore[arg-type]
    ],
)
def test_a_broken_contract_is_reported(made: type, words: str) -> None:
    found = wrong(made())
    assert words in found
    assert bool(found) == bool(words)


class Visited(Sound):
    """A whole path is used, and what cost most and was visited last goes last."""

    whole_path, marks, order = True, True, ()

    def rank(self, node: Node, component: int) -> object:
        marks = node.marks
        return before(marks.visits[component] * marks.cost[component], node.last_use[component])

    def reference(self, facts: Facts) -> tuple[int, ...]:
        return facts.visits * facts.cost, facts.last_use


class Aged(Sound):
    """Ages as the core counts them, and the insertion before a copy's own."""

    order = (Term("age"), Term("earlier"), Term("inserted"))

    def rank(self, node: Node, component: int) -> object:
        marks = node.marks
        return before(before(marks.age[component], marks.earlier), node.inserted)


class Queued(Sound):
    """Two queues of other sizes than those of S3-FIFO."""

    order, second_chance = (), SecondChance(40, 1, 1, 30)

    def rank(self, node: Node, component: int) -> object:
        return node.marks.place[component]


@pytest.fixture
def outside(request: pytest.FixtureRequest) -> Iterator[str]:
    """A policy that no file of the folder defines."""
    registry.add(registry.EVICTION_POLICIES, "sound", SimpleNamespace(policy=request.param))
    yield "sound"
    registry.remove(registry.EVICTION_POLICIES, "sound")


def played(name: str, components: tuple[str, ...] = (), seeds: range = range(8)) -> set[str]:
    """The kinds of failures of drawn sequences."""
    ops, found = load(), set()
    for seed in seeds:
        swarm = draw_swarm(seed, weights_of(ops), components, eviction=name)
        outcome = generate(swarm, ops, seed, 100)
        assert Against(outcome.hand.config).lockstep is not None, "compared with the specification"
        found.add(outcome.failure.kind if outcome.failure is not None else "")
    return found


@pytest.mark.one_in(32)
@pytest.mark.parametrize("outside", [Sound, Own, Visited, Queued], indirect=True)
def test_a_policy_from_outside_decides_as_it_declares(outside: str) -> None:
    assert played(outside) == {""}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("outside", [Other, Misjudged], indirect=True)
def test_a_policy_from_outside_that_decides_otherwise_is_found(outside: str) -> None:
    assert "SPEC Evicted" in played(outside)


@pytest.mark.one_in(8)
def test_a_deep_state_that_goes_before_a_shallow_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LruPath, "rank", lambda self, node, index: node.last_use[index])
    assert "SPEC Evicted" in played("lru_path", ("full", "mamba"), range(40))


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_names_a_file_of_the_folder(name: str) -> None:
    config = replace(Config(1, (4,)), eviction_policy=name)
    assert registry.load(registry.EVICTION_POLICIES, config.eviction_policy).policy().name == name
