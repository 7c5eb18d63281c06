"""Wrong definitions in drawn sequences: logits see them soon, and the checks stay silent."""

from __future__ import annotations

import pytest

from invariants.fuzz.executors import ModelSettings
from invariants.fuzz.play import Outcome, generate
from invariants.prove import model
from invariants.prove.wrong import planted
from tests.invariants.prove.played import OPS, base_weights, hand_of

MOST = 12  # sequences
FAR = 100  # bounds, of the mistake that is only a matter of precision
ONLY_SEQUENCES = (  # which a request that is played by hand does not show
    ("decoded-state-is-a-token-late", "nemotron-h"),
    ("sidecar-does-not-follow", "draft"),
    ("states-are-not-copied", "mamba2"),
    ("window-is-a-page-short", "gpt-oss"),
    ("window-is-a-token-short", "gpt-oss"),
)


def first_failure(name: str, family: str) -> tuple[Outcome, int]:
    """The first sequence that fails with all checks and the specification, and its seed."""
    settings = ModelSettings(family)
    model.drawn(settings, 1, base_weights(), False)  # the models are built before it is planted
    with planted(name):
        for seed in range(1, MOST):
            swarm = model.drawn(settings, seed, base_weights(), False)
            outcome = generate(swarm, OPS, seed, 60)
            if outcome.failure is not None:
                return outcome, seed
    pytest.fail(f"{name}: nobody sees it")


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("name", "family"), ONLY_SEQUENCES)
def test_logits_see_a_wrong_definition_and_no_check_does(name: str, family: str) -> None:
    outcome, seed = first_failure(name, family)
    assert outcome.failure is not None
    assert outcome.failure.kind == f"LOGITS {family}"
    wrong = hand_of(outcome).figures().wrong
    assert wrong > FAR or "found none" in outcome.failure.text
    settings = ModelSettings(family)
    with planted(name):
        swarm = model.drawn(settings, seed, base_weights(), False)
        alone = generate(swarm, OPS, seed, 60, follow=silent)
    assert alone.failure is None


def silent(hand: object) -> None:
    """No pass is computed, so that only the checks judge."""
    assert hasattr(hand, "computes")
    hand.computes = False
