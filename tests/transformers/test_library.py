"""What the library does with lengths and settings is what a cache goes by: drawn calls of both."""

import copy
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
import transformers
from transformers import GenerationConfig, Glm4MoeConfig

from hicache.transformers import PrefixCache, UnsupportedArgumentError
from hicache.transformers.arguments import check

from . import building as base
from .test_cache import SIZES, prompt

LIMIT = 64  # tokens; a longer text turns its first tokens by other angles
ROPES = {
    "dynamic": {"factor": 4.0},
    "longrope": {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "factor": 4.0}
    | {"original_max_position_embeddings": LIMIT},
}


def rope(kind: str, family: str = "llama") -> Any:
    """A configuration of a model whose rotary embeddings change with the length."""
    config = base.configuration(family)
    config.max_position_embeddings = LIMIT if kind == "dynamic" else 4 * LIMIT
    item = {"rope_theta": 1e4, "rope_type": kind, **ROPES[kind]}
    kinds = ("sliding_attention", "full_attention") if family == "gemma3" else ()
    config.rope_parameters = dict.fromkeys(kinds, item) if kinds else item
    return config


@pytest.mark.parametrize(
    ("kind", "family"),
    [("longrope", "llama"), ("dynamic", "gemma3")],
)
def test_prompts_around_a_limit_of_the_model_are_served_as_it_serves_them(
    kind: str, family: str
) -> None:
    """Also after a text that was longer, which leaves other angles in the model."""
    model, draws, full = base.built(rope(kind, family)), Random(1), prompt(2 * LIMIT)
    lengths = (*range(LIMIT - 3, LIMIT + 4), LIMIT // 2, 2 * LIMIT)
    value = {"return_dict_in_generate": True, "output_logits": True, "do_sample": False}
    with PrefixCache(model, **SIZES) as cache:
        for number in range(14):
            if draws.randrange(2):
                model.generate(full[:, : draws.choice(lengths)], max_new_tokens=1)
            ids = full[:, : draws.choice(lengths)]
            requested = {"max_new_tokens": draws.randrange(1, 6), **value}
            wanted = copy.deepcopy(model).generate(ids, **requested)  # with the angles of now
            result = cache.generate(ids, **requested)
            for logit, other in zip(result.logits, wanted.logits, strict=True):
                assert torch.allclose(logit, other, atol=1e-4), (number, ids.shape)
        assert 0 < cache.stats.uncached < 14
        assert cache.stats.saved_tokens
        assert not cache.stats.unkept
        cache.generate(full[:, : LIMIT - 1], max_new_tokens=1)
        assert cache.match(full[:, : LIMIT - 1]) == LIMIT - 8
        assert cache.match(full) == cache.match(full[:, :LIMIT]) == 0


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_limit_that_was_raised_leaves_angles_of_longer_texts(family: str) -> None:
    """Where the configuration of a model is changed that was made with a lower one."""
    model, ids = base.built(rope("dynamic", family)), prompt(6 * LIMIT)
    model.config.max_position_embeddings = 4 * LIMIT
    with PrefixCache(model, **SIZES) as cache:
        for length in (6 * LIMIT, 2 * LIMIT):
            cache.generate(ids[:, :length], max_new_tokens=1)
            assert cache.match(ids[:, : LIMIT - 1]) == 0
        cache.generate(ids[:, : LIMIT - 1], max_new_tokens=1)
        assert cache.match(ids[:, : LIMIT - 1]) == LIMIT - 8


@pytest.mark.parametrize("kind", ROPES)
def test_with_candidates_nothing_is_reused_or_kept(kind: str) -> None:
    """Those of an assistant model or of a prompt lookup, which may cross the limit in one pass."""
    model, draft, ids = base.built(rope(kind)), base.built(rope(kind)), prompt(20).tile(3)[:, :50]
    draft.generation_config.num_assistant_tokens = 25
    lookup = {"prompt_lookup_num_tokens": 25, "max_matching_ngram_size": 1}
    with PrefixCache(model, **SIZES) as cache:
        for helped in ({"assistant_model": draft}, lookup, {}, lookup):
            requested = {"max_new_tokens": 18, "do_sample": False, **helped}
            wanted = copy.deepcopy(model).generate(ids, **requested)
            assert torch.equal(cache.generate(ids, **requested), wanted)
            assert cache.match(ids) == (0 if cache.stats.requests < 3 else 48)
        assert (cache.stats.uncached, cache.stats.saved_tokens) == (3, 0)


def test_layers_that_predict_further_tokens_see_the_whole_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a model whose layers for them are made here, since the library reads them from files."""
    layers = pytest.importorskip("transformers.modeling_layers")
    if not hasattr(layers, "MtpModel"):
        pytest.skip("transformers before 5.24")
    sizes = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2}
    config = Glm4MoeConfig(**sizes, first_k_dense_replace=1, num_mtp_layers=1, eos_token_id=None)
    model, ids = transformers.Glm4MoeForCausalLM(config).eval(), prompt(60) % 90
    further = layers.MtpModel(model, 1).eval()
    monkeypatch.setattr(layers.MtpModel, "from_pretrained", lambda *args, **kwargs: further)
    with PrefixCache(model, **SIZES) as cache:
        for helped in ({}, {"use_mtp": True}, {"use_mtp": False}):
            requested = {"max_new_tokens": 8, "do_sample": False, **helped}
            assert torch.equal(cache.generate(ids, **requested), model.generate(ids, **requested))
        assert (cache.stats.uncached, cache.stats.saved_tokens) == (1, 56)


@pytest.mark.parametrize("where", ["the model", "a configuration"])
@pytest.mark.parametrize(
    ("settings", "served"),
    [
        *(({"num_beams": 3}, False), ({"num_beams": 1, "cache_implementation": "hybrid"}, True)),
        *(({"use_cache": False}, False), ({"num_return_sequences": 2}, False)),
        *(({"cache_implementation": "static"}, False), ({"token_healing": True}, False)),
        *(({"pad_token_id": 9}, False), ({"pad_token_id": 9, "eos_token_id": [9, 11]}, True)),
    ],
)
def test_settings_count_wherever_they_are(
    settings: dict[str, Any], served: bool, where: str
) -> None:
    """In a configuration that a call is given, or in that of the model. 9 is inside the prompt."""
    model, made, kwargs = base.build("llama"), GenerationConfig(), dict[str, Any]()
    for name, value in settings.items():
        setattr(made, name, value)
    if where == "the model":
        model.generation_config = made
    else:
        kwargs = {"generation_config": made}
    refused = nullcontext() if served else pytest.raises(UnsupportedArgumentError)
    with refused:
        check(model, torch.tensor([[30, 9, 30]]), kwargs)
