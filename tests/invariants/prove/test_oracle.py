"""The oracle: it remembers cold logits, sees a wrong page, and tells a jump from one."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from hicache.core.errors import CallerError
from invariants.prove import building as base
from invariants.prove import cold
from invariants.prove import oracle as judging
from invariants.prove.oracle import ACCEPTED, Oracle, measure

from . import spoiled
from .oracles import PROMPTS, drawn, oracle_of

LEAST = 1000  # bounds


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", base.names())
def test_every_part_of_another_prompt_is_seen(name: str) -> None:
    oracle = oracle_of(name)
    found = {part: spoiled.bounds(oracle, one, 3) for part, one in spoiled.SPOILERS.items()}
    seen = {part: off for part, off in found.items() if off is not None}
    assert seen
    assert min(seen.values()) > LEAST, seen


@pytest.mark.one_in(32)
def test_verdicts() -> None:
    oracle, tokens = oracle_of("draft"), drawn(1, 90)
    target, draft = (rows[64:] for rows in oracle.logits(tokens))
    assert oracle.judge(tokens, 64, (target, draft)).kind == "equal"
    limit = oracle.bounds[1].accepted
    assert oracle.judge(tokens, 64, (target, draft + 0.9 * limit)).kind == "equal"
    wrong = oracle.judge(tokens, 64, (target, draft + 1.2 * limit))
    assert (wrong.kind, wrong.model) == ("wrong", 1)
    assert wrong.bounds == pytest.approx(1.2 * ACCEPTED, rel=0.1)
    assert 0 < wrong.spread < limit
    assert oracle.judge(tokens, 64, (target * float("nan"), draft)).kind == "wrong"


@pytest.mark.one_in(64)
def test_a_prompt_that_jumps_does_not_widen_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    jumping, model = drawn(0, 1), base.build("llama")  # the first prompt of seed 0
    in_chunks = cold.in_chunks

    def jump(model: PreTrainedModel, tokens: list[int], sizes: tuple[int, ...]) -> torch.Tensor:
        return in_chunks(model, tokens, sizes) + (tokens[:1] == jumping)

    plain = measure(model, prompts=3)
    monkeypatch.setattr(judging, "in_chunks", jump)
    jumped = measure(model, prompts=3)
    assert (plain.jumps, jumped.jumps, jumped.prompts) == (0, 1, 3)
    assert jumped.largest <= plain.largest < 1e-4


@pytest.mark.one_in(32)
def test_a_longer_run_serves_its_prefixes_and_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []
    at_once = cold.at_once
    monkeypatch.setattr(
        judging,
        "at_once",
        lambda model, tokens: runs.append(len(tokens)) or at_once(model, tokens),
    )
    oracle = Oracle((base.build("llama"),), prompts=1, remembered=200)
    one, other, third = drawn(1, 90), drawn(2, 90), drawn(3, 90)
    runs.clear()
    long = oracle.logits(one)[0]
    for end in (1, 15, 16, 17, 64, 89, 90):
        assert torch.equal(oracle.logits(one[:end])[0], long[:end])
    oracle.logits([*one[:88], 0])  # another end
    assert runs == [90, 89]
    oracle.logits(other)
    oracle.logits(third)
    oracle.logits(other)
    assert runs == [90, 89, 90, 90]
    oracle.logits(one)
    assert runs == [90, 89, 90, 90, 90]


@pytest.mark.one_in(8)
def test_scores_of_zero_tie_where_an_indexer_has_few_heads() -> None:
    """Its scores are sums of ReLU: with few heads some are exactly zero, and which of those are
    selected depends on how many there are to choose from. That is unstable, and not wrong."""
    oracle = Oracle((_with_heads(8),), prompts=PROMPTS)
    verdicts = {}
    for seed in range(40):
        tokens = drawn(seed, 96)
        chunked = cold.in_chunks(oracle.models[0], tokens, (48, 48))
        verdict = oracle.judge(tokens, 48, (chunked[48:],))
        verdicts[verdict.kind] = verdict
        if len(verdicts) > 1:
            break
    assert set(verdicts) == {"equal", "unstable"}
    assert verdicts["unstable"].spread > 1e-2
    assert spoiled.bounds(oracle, spoiled.full, 3) > LEAST


@pytest.mark.one_in(8)
def test_a_model_that_always_jumps_is_refused() -> None:
    with pytest.raises(CallerError, match="expected cold runs that agree up to rounding, found"):
        Oracle((_with_heads(1),), prompts=PROMPTS)


def _with_heads(heads: int) -> PreTrainedModel:
    (configuration,) = base.configurations("deepseek-v32")
    configuration.index_n_heads = heads
    return base.built(configuration)
