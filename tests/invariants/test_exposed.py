"""Bugs that a kind of fault exposes, and the list of kinds that expose none."""

from __future__ import annotations

import pytest

from invariants.fuzz.faults.base import names as kinds
from invariants.fuzz.generate import EVEN, weights_of
from invariants.fuzz.ops.base import load as load_ops
from invariants.fuzz.play import generate
from invariants.fuzz.swarm import draw_swarm
from invariants.planted import _exposed as exposed
from invariants.planted import base

ALONE = ("root-child-count-is-not-decreased", "landed-backup-pages-stay-with-the-flight")


def test_each_kind_of_fault_exposes_a_bug_or_is_on_the_list() -> None:
    found = exposed.gaps()
    assert (found.missing, found.stale) == ((), ())
    named = {kind for name in base.names() for kind in base.load(name).faults}
    assert named <= {*kinds(), *kinds(of_storage=True)}


@pytest.mark.one_in(16)
def test_a_bug_is_found_with_its_fault_and_not_without() -> None:
    name, fault = "reply-kind-is-not-checked", "reply of another kind"
    assert fault in base.load(name).faults
    assert exposed.hunt(name, fault, range(12), 60).failure is not None
    calm = exposed.hunt(name, "", range(3), 60)
    assert (calm.failure, calm.sequences) == (None, 3)


@pytest.mark.one_in(16)
def test_calm_sequences_differ_by_the_fault_alone() -> None:
    ops = load_ops()
    weights = weights_of(ops)
    swarm = exposed.calm(draw_swarm(3, weights))
    tape = generate(swarm, ops, 3, 40).tape
    acts = [act for entry in tape.entries for act in entry.acts]
    assert {entry.op for entry in tape.entries} <= {*exposed.CALM}
    assert {(act.delay, act.tie, act.fault) for act in acts} == {(EVEN, 0, "")}
    hit = generate(exposed.calm(draw_swarm(3, weights), "torn"), ops, 3, 40).tape
    assert {act.fault for entry in hit.entries for act in entry.acts} == {"", "torn"}


def test_gaps_are_missing_listed_or_stale_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposed, "kinds", lambda: ["torn", "b", "c"])
    monkeypatch.setattr(exposed, "UNEXPOSED", {"b": "why", "torn": "why", "z": "why"})
    assert exposed.gaps() == (("c",), ("b",), ("torn", "z"))
