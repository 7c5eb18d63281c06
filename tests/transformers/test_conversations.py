"""Drawn conversations of every family: whichever way an answer is generated, wherever its past is,
and whatever came before, the logits are those of the model without a cache."""

from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
from transformers import CONFIG_MAPPING

from hicache.transformers import PrefixCache
from hicache.transformers.layers import DTYPES

from . import building as base
from .building import Streamer, empty_device, empty_memory
from .test_cache import SIZES, prompt

SMALL = (
    {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16}
    | {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    | {"n_embd": 32, "n_layer": 4, "n_head": 4}
    | {"sliding_window": 12, "attention_chunk_size": 12}
    | {"max_position_embeddings": 256, "n_positions": 256}
    | {"num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
    | {"initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
)
# Slopes, windows, places that are learned, convolutions, chunks, experts, states.
MODELS = ("bloom", "gemma2", "gpt2", "lfm2", "llama4_text", "mixtral", "qwen3_5_text")
_APART = 1e-3  # in standard deviations of the logits; half of the steps may be farther


def answered(
    model: Any, cache: PrefixCache, ids: torch.Tensor, requested: dict[str, Any]
) -> tuple[torch.Tensor, float]:
    """The prompt with its answer, and how far its logits are from those of one pass."""
    requested = {"attention_mask": torch.ones_like(ids), "do_sample": False, **requested}
    out = cache.generate(ids, return_dict_in_generate=True, output_logits=True, **requested)
    with torch.inference_mode():
        full = model(out.sequences, use_cache=False).logits[0, ids.shape[1] - 1 : -1].float()
    result = torch.cat(out.logits)[: len(full)].float()
    steps = (result - full).abs().amax(dim=1) / full.std()
    return out.sequences, float(steps.median())


class Ended(Exception):
    """What ends a call before its answer is complete."""


def end(call: int) -> None:
    if call == 2:  # the prompt, and one token
        raise Ended


def converse(
    model: Any, folder: Path, before: list[str], chunks: bool = True, most: float = _APART
) -> None:
    """Whatever comes before an answer, its logits are those of one pass, and its past was found.
    before: the first is nothing."""
    value = {"storage": f"file:{folder}", **SIZES}
    draws = Random(1)
    with ExitStack() as stack:
        cache = stack.enter_context(PrefixCache(model, **value))
        ids = prompt(50).tile(2)[:, :70].to(model.device)
        for number, what in enumerate(before):
            if what == "device":
                empty_device(cache)
            elif what == "memory":
                empty_memory(cache)
            elif what == "restart":
                stack.close()
                cache = stack.enter_context(PrefixCache(model, **value))
            elif what == "abort":
                ending = {"attention_mask": torch.ones_like(ids), "streamer": Streamer(end)}
                with pytest.raises(Ended):
                    cache.generate(ids, max_new_tokens=9, do_sample=False, **ending)
            requested: dict[str, Any] = {"max_new_tokens": draws.randrange(1, 20)}
            if chunks and draws.randrange(2):
                requested["prefill_chunk_size"] = 7
            hits = cache.stats.hits
            ids, apart = answered(model, cache, ids, requested)
            assert apart < most, (what, requested)
            tier = {"device": "host", "memory": "disk", "restart": "disk"}.get(what, "device")
            assert not number or cache.stats.hits[tier] > hits[tier], (what, requested)
            more = prompt(draws.randrange(1, 12), draws.randrange(9)).to(model.device)
            ids = torch.cat([ids, more], dim=1)


@pytest.mark.parametrize("name", base.names())
def test_the_logits_of_a_conversation_are_those_of_one_pass(
    name: str, place: str, tmp_path: Path
) -> None:
    before = ["", "device", "memory", "restart", "abort", ""]
    Random(1).shuffle(before)
    chunks = name != "mamba2"  # the library asks states for a length
    converse(base.build(name).to(place), tmp_path, before, chunks)


@pytest.mark.parametrize(
    ("name", "dtype", "attention"),
    [
        *(("llama", "bf16", "eager"), ("qwen3-next", "bf16", "sdpa")),
        *(("gemma3", "fp16", "eager"), ("gemma3", "fp32", "sdpa")),
    ],
)
def test_other_types_and_attentions(name: str, dtype: str, attention: str, tmp_path: Path) -> None:
    model = base.build(name, dtype=DTYPES[dtype], attention=attention)
    most = _APART if dtype == "fp32" else 0.2
    converse(model, tmp_path, ["", "device", "", "memory"], most=most)


@pytest.mark.parametrize("name", MODELS)
def test_models_beside_the_families(name: str, tmp_path: Path) -> None:
    """Small and with random weights: their caches can be cut."""
    known = CONFIG_MAPPING[name]().to_dict()
    fields: dict[str, Any] = {key: value for key, value in SMALL.items() if key in known}
    if types := known.get("layer_types"):
        fields["layer_types"] = ([*dict.fromkeys(types)] * 4)[:4]
    model = base.built(CONFIG_MAPPING[name](**fields), seed=0)
    converse(model, tmp_path, ["", "device", "memory"], chunks=False)
