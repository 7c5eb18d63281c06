"""Drawn conversations of every family: whichever way an answer is generated, and wherever its past
is, the logits are those of the model without a cache."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from hicache.transformers import PrefixCache, building
from invariants.prove import building as base

from .emptying import empty_device
from .test_cache import SIZES, both, prompt

TURNS = 8
_APART = 1e-3  # in standard deviations of the logits; half of the steps may be farther


def ways(model: Any, drafts: list[Any]) -> list[dict[str, Any]]:
    """Arguments of `generate`. Of some models the library cannot take tokens back."""
    found: list[dict[str, Any]] = [{}]
    if model.config.model_type != "mamba2":  # the library asks states for a length
        found += [{"prefill_chunk_size": 7}]
    if not model._is_stateful:
        found += [{"prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 1}]
    return found + [{"assistant_model": one} for one in drafts]


def answered(
    model: Any, cache: PrefixCache, ids: torch.Tensor, asked: dict[str, Any]
) -> tuple[torch.Tensor, float]:
    """The prompt with its answer, and how far its logits are from those of one pass."""
    asked = {"attention_mask": torch.ones_like(ids), "do_sample": False, **asked}
    out = cache.generate(ids, return_dict_in_generate=True, output_logits=True, **asked)
    with torch.inference_mode():
        whole = model(out.sequences, use_cache=False).logits[0, ids.shape[1] - 1 : -1].float()
    found = torch.cat(out.logits)[: len(whole)].float()
    steps = (found - whole).abs().amax(dim=1) / whole.std()
    return out.sequences, float(steps.median())


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", base.names())
def test_the_logits_of_a_conversation_are_those_of_one_pass(name: str) -> None:
    model, *drafts = base.build_all(name)
    draws = Random(1)
    with PrefixCache(model, draft=drafts[0] if drafts else None, **SIZES) as cache:
        ids = prompt(50).tile(2)[:, :70]  # repeats itself, so that a lookup finds something
        for _ in range(TURNS):
            if not draws.randrange(3):
                empty_device(cache)
            asked = {"max_new_tokens": draws.randrange(1, 20), **draws.choice(ways(model, drafts))}
            ids, apart = answered(model, cache, ids, asked)
            assert apart < _APART, asked
            ids = torch.cat([ids, prompt(draws.randrange(1, 12), draws.randrange(9))], dim=1)
        assert cache.stats.saved_tokens


@pytest.mark.one_in(32)
@pytest.mark.parametrize("name", ["llama", "deepseek-v32"])
def test_whichever_copy_of_a_load_fails_the_prompt_is_computed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy of the load in turn."""
    model, *drafts = base.build_all(name)
    loaded: list[str] = []
    failing = -1

    def fails(direction: Any, component: str, *_: Any) -> bool:
        if direction.value == "h2d":
            loaded.append(component)
        return direction.value == "h2d" and len(loaded) == failing

    monkeypatch.setattr(building, "_LAYOUT", replace(building._LAYOUT, fault=fails))
    ids = prompt(20)
    with PrefixCache(model, draft=drafts[0] if drafts else None, **SIZES) as cache:
        both(model, cache, ids)
        while len(loaded) >= failing:
            empty_device(cache)
            loaded.clear()
            failing = max(0, failing) + 1
            assert not cache.stats.saved_tokens, (failing - 1, loaded)
            both(model, cache, ids)
        assert failing > 1
        assert cache.stats.hits["host"] == 16
