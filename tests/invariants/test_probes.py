"""Probes: enough names, none that nobody can count, and a gate that closes."""

from __future__ import annotations

from collections import Counter

import pytest

from invariants.fuzz import play, probes
from invariants.fuzz.ops import base
from invariants.fuzz.swarm import COMPONENTS, draw_swarm

OPS = base.load()
NAMED = (
    "tombstone healed",
    "aux-only load",
    "landed before its reply",
    "drain while loading",
    "garbage locked",
    "split under a leg",
    "window cut for a short pool",
    "branch checkpoint",
    "track refilled in decode",
)


def test_there_are_enough_names_and_each_is_there_once() -> None:
    names = probes.expected()
    assert len(names) >= 150
    assert len(set(names)) == len(names)
    assert set(NAMED) <= set(names)


def test_fewer_components_expect_less_and_nothing_of_the_others() -> None:
    everything = set(probes.expected())
    for components in COMPONENTS:
        names = set(probes.expected(*components))
        assert names <= everything
        for absent in {"swa", "mamba"} - set(components):
            assert not [name for name in names if absent in name.replace("+", " ").split()]
    assert len(probes.expected("full")) >= 100


def test_the_gate_closes_on_one_name_after_enough_sequences() -> None:
    seen = dict.fromkeys(probes.expected("full"), 1)
    assert probes.gate(seen, probes.ENOUGH, ("full",)) == 0
    seen["split under a leg"] = 0
    assert probes.unreached(seen, ("full",)) == ["split under a leg"]
    assert probes.gate(seen, probes.ENOUGH, ("full",)) == probes.MISSED
    assert probes.gate(seen, 10, ("full",)) == 0


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    seen: Counter[str] = Counter()
    weights = {name: one.WEIGHT for name, one in OPS.items()}
    for seed in range(60):
        made = play.generate(draw_swarm(seed, weights), OPS, seed, 60, "off")
        assert made.failure is None, made.failure
        seen += made.hand.probes.seen
    return seen


def test_most_names_are_met_soon(counted: Counter[str]) -> None:
    assert len(probes.unreached(counted)) < len(probes.expected()) * 2 // 5


def test_what_contradicts_itself_is_not_counted_together(counted: Counter[str]) -> None:
    assert counted["Prefill of nothing"] <= counted["Prefill"]
    assert counted["split under a lock"] <= counted["split"]
    assert counted["Seated with a load beside the backbone"] == counted["aux-only load"]
