"""Mistakes in the definitions change logits: each is seen by a request played by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from invariants.prove import building, wrong

from .rig import Rig
from .test_passes import ROUNDING, apart

CASES = [(name, family) for name in wrong.names() for family in wrong.load(name).families]
# A rig has a table with every page, copies nothing between the tiers, and uses a state once, and
# none that its steps store. Sequences show these: see tests/invariants/prove/test_planted.py.
ONLY_IN_SEQUENCES = {
    "decoded-state-is-a-token-late",
    "sidecar-does-not-follow",
    "states-are-not-copied",
    "window-is-a-page-short",
    "window-is-a-token-short",
}


def worst(rig: Rig) -> float:
    """The largest difference over chunks, steps and hits."""
    cold = rig.cold()
    chunks = [rig.prefill(first, end) for first, end in ((0, 13), (13, 37), (37, 64))]
    steps = [rig.decode(length) for length in range(65, 75)]
    own = apart(torch.cat([*chunks, *steps]), cold[:74])
    return max(own, *(apart(rig.again(depth), cold[depth:]) for depth in (64, 40)))


@pytest.mark.parametrize(("name", "family"), CASES)
def test_logits_show_it(name: str, family: str) -> None:
    model, *draft = building.build_all(family)
    with wrong.planted(name):
        found = worst(Rig(model, 8, draft=draft[0] if draft else None))
    if name in ONLY_IN_SEQUENCES:
        assert found < ROUNDING
    else:
        assert not found < 10 * ROUNDING, name
