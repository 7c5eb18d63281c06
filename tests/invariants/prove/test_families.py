"""Families: their weights follow from a seed, and their logits depend on distant tokens."""

from __future__ import annotations

import pytest
import torch

from hicache.transformers.describing import DTYPES
from invariants.prove import building as base
from invariants.prove import cold

from .oracles import drawn, oracle_of, same_weights

EACH = pytest.mark.parametrize("name", base.names())
FAR = 100  # tokens


def test_every_family_of_the_issue_is_there() -> None:
    wanted = {"llama", "gemma3", "gpt-oss", "qwen3-next", "nemotron-h", "falcon-h1", "mamba2"}
    wanted |= {"deepseek-v3", "deepseek-v32", "deepseek-v4", "draft"}
    assert set(base.names()) == wanted
    assert [len(base.build_all(name)) for name in ("llama", "draft")] == [1, 2]


@EACH
def test_a_seed_gives_the_same_weights(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = torch.get_rng_state()
    one, same, other = (base.build(name, seed=seed) for seed in (1, 1, 2))
    assert same_weights(one, same)
    assert not same_weights(one, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


@pytest.mark.one_in(16)
@EACH
def test_cold_runs_agree_within_the_bound(name: str) -> None:
    oracle, tokens = oracle_of(name), drawn(7, 100)
    for model, bound in zip(oracle.models, oracle.bounds, strict=True):
        at_once = cold.at_once(model, tokens)
        for sizes in ((11,), (24, 1), (50, 3, 1)):
            assert cold.difference(at_once, cold.in_chunks(model, tokens, sizes)) < bound.accepted
        assert cold.difference(at_once[:60], cold.at_once(model, tokens[:60])) < bound.accepted


@pytest.mark.one_in(64)
@EACH
def test_an_early_token_moves_late_logits_by_thousands_of_bounds(name: str) -> None:
    oracle, tokens = oracle_of(name), drawn(8, FAR + 20)
    changed = [(tokens[0] + 1) % base.VOCABULARY, *tokens[1:]]
    for model, bound in zip(oracle.models, oracle.bounds, strict=True):
        one, other = (cold.at_once(model, these)[FAR:] for these in (tokens, changed))
        assert cold.difference(one, other) > 3000 * bound.largest


@pytest.mark.one_in(64)
@EACH
def test_every_dtype_and_implementation_of_attention_runs(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = drawn(9, 40)
    for label, dtype in DTYPES.items():
        eager, *others = (
            cold.in_chunks(base.build(name, dtype=dtype, attention=one), tokens, (16, 1))
            for one in base.attentions(name)
        )
        assert torch.isfinite(eager).all()
        if label == "fp32":
            assert all(cold.difference(eager, one) < 1e-3 for one in others)
    assert capfd.readouterr() == ("", "")
