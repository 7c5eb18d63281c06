"""Drawn conversations of every family: whichever way an answer is generated, wherever its past is,
and whatever came before, the logits are those of the model without a cache."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from hicache.transformers import PrefixCache, building

from . import building as base
from .emptying import Streamer, empty_device, empty_memory
from .test_cache import SIZES, both, prompt

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


class Ended(Exception):
    """What ends a call before its answer is complete."""


def end(call: int) -> None:
    if call == 2:  # the prompt, and one token
        raise Ended


@pytest.mark.parametrize("name", base.names())
def test_the_logits_of_a_conversation_are_those_of_one_pass(name: str, tmp_path: Path) -> None:
    model, *drafts = base.build_all(name)
    given = {"storage": f"file:{tmp_path}", "draft": drafts[0] if drafts else None, **SIZES}
    draws = Random(1)
    before = ["", "device", "memory", "restart", "abort"] * 2
    draws.shuffle(before)
    with ExitStack() as stack:
        cache = stack.enter_context(PrefixCache(model, **given))
        ids = prompt(50).tile(2)[:, :70]  # repeats itself, so that a lookup finds something
        for what in before:
            if what == "device":
                empty_device(cache)
            elif what == "memory":
                empty_memory(cache)
            elif what == "restart":
                stack.close()
                cache = stack.enter_context(PrefixCache(model, **given))
            elif what == "abort":
                ending = {"attention_mask": torch.ones_like(ids), "streamer": Streamer(end)}
                with pytest.raises(Ended):
                    cache.generate(ids, max_new_tokens=9, do_sample=False, **ending)
            asked = {"max_new_tokens": draws.randrange(1, 20), **draws.choice(ways(model, drafts))}
            hits = cache.stats.hits
            ids, apart = answered(model, cache, ids, asked)
            assert apart < _APART, (what, asked)
            tier = {"device": "host", "memory": "disk", "restart": "disk"}.get(what, "device")
            assert what == before[0] or cache.stats.hits[tier] > hits[tier], (what, asked)
            ids = torch.cat([ids, prompt(draws.randrange(1, 12), draws.randrange(9))], dim=1)


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
