"""Passes of real models on pages give the logits of a run without a cache."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, logging

from hicache.core.types import Tier
from hicache.transformers.describing import DTYPES, describe
from hicache.transformers.layers.base import WINDOW
from hicache.transformers.moving import PagedRows

from . import building as base
from .rig import FIRST_CHECKPOINT, PAGES, Rig

ROUNDING = 1e-4  # of logits whose standard deviation is about 1; measured: at most 2e-5
WRONG = 1e-2


def rig_of(name: str, page_size: int = 8, **options: object) -> Rig:
    model, *draft = base.build_all(name, **options)
    return Rig(model, page_size, draft=draft[0] if draft else None)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one.float() - other.float()).abs().max().item()


def worst(rig: Rig) -> float:
    """The largest difference over chunks, steps and hits."""
    cold = rig.cold()
    chunks = [rig.prefill(first, end) for first, end in ((0, 13), (13, 37), (37, 64))]
    steps = [rig.decode(length) for length in range(65, 75)]
    own = apart(torch.cat([*chunks, *steps]), cold[:74])
    return max(own, *(apart(rig.again(depth), cold[depth:]) for depth in (64, 40)))


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", base.names())
def test_chunks_steps_and_hits_are_a_run_without_a_cache(name: str) -> None:
    rig = rig_of(name)
    cold = rig.cold()
    chunks = [rig.prefill(first, end) for first, end in ((0, 13), (13, 37), (37, 64), (64, 64))]
    steps = [rig.decode(length) for length in range(65, 91)]
    assert apart(torch.cat([*chunks, *steps]), cold[:90]) < ROUNDING
    assert sorted(rig.decoded) == [80, 88]
    for depth in (88, 80, 64, 32, 8, 56):
        assert apart(rig.again(depth), cold[depth:]) < ROUNDING


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", base.names())
def test_every_pool_matters(name: str) -> None:
    """A page of zeros in any one pool is seen in the logits of a later request."""
    rig = rig_of(name)
    cold = rig.cold()
    rig.prefill(0, 64)
    described = rig.described
    for component in described.components:
        if component == "mamba":
            page = FIRST_CHECKPOINT + 64 // 8
        else:
            page = int(rig.tables[rig.positional.index(component)][7])
        for pool in rig.arena.pools(0, component):
            if not pool.plan.pool.layers:
                continue
            kept = pool.view[:, page].copy()
            pool.view[:, page] = 0
            assert apart(rig.again(64), cold[64:]) > WRONG, pool.plan.pool.name
            pool.view[:, page] = kept
    assert apart(rig.again(64), cold[64:]) < ROUNDING


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-next", "deepseek-v4"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision(name: str, dtype: str) -> None:
    rig = rig_of(name, dtype=DTYPES[dtype])
    whole = rig.cold()
    rig.prefill(0, 64)
    found = apart(rig.again(64), whole[64:])
    assert found < 0.2
    assert {pool.dtype for pool in rig.described.model.pools} >= {dtype}


@pytest.mark.one_in(32)
@pytest.mark.parametrize("name", [one for one in base.names() if "sdpa" in base.attentions(one)])
def test_other_attention(name: str) -> None:
    rig = rig_of(name, attention="sdpa")
    cold = rig.cold()
    rig.prefill(0, 40)
    rig.prefill(40, 64)
    assert apart(rig.again(48), cold[48:]) < ROUNDING


def test_the_widest_window_may_be_the_drafts() -> None:
    """The core keeps one window for both models, so it is the wider one."""
    (narrow,), (wide,) = base.configurations("gemma3"), base.configurations("gemma3")
    wide.sliding_window = 24
    model, draft = base.built(narrow), base.built(wide)
    assert describe(model, 8, draft).window_tokens == 24
    assert describe(draft, 8, model).window_tokens == 24


def test_rows_without_a_page_are_left_out() -> None:
    """A window has no pages for the tokens before it. Their rows are not written anywhere."""
    rig = rig_of("gemma3")
    layer = rig.described.caches[0].layers[0]
    (kind,) = layer.rows
    assert kind.component == WINDOW
    rows = torch.ones((3 * 8, len(kind.parts), kind.heads, kind.head_elements))
    PagedRows(rig.described, rig.arena).write(layer, kind, torch.tensor([-1, 5, -1]), 0, rows)
    pools = rig.arena.pools(Tier.DEVICE, "swa")
    written = {page for pool in pools for page in range(PAGES) if (pool.view[:, page] != 255).any()}
    assert written == {5}


SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "n_embd": 32,
    "n_layer": 4,
    "n_head": 4,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "sliding_window": 12,
    "max_position_embeddings": 256,
    "n_positions": 256,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = (
    *("bloom", "cohere2", "exaone4", "falcon", "gemma2", "glm4", "glm4_moe", "gpt2", "gpt_neox"),
    *("lfm2", "llama4_text", "mistral", "mixtral", "olmo2", "olmo3", "opt", "phi3", "qwen2"),
    *("qwen3", "qwen3_5_text", "qwen3_moe", "smollm3", "stablelm", "starcoder2"),
)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", MODELS)
def test_models_beside_the_families(name: str) -> None:
    """Small and with random weights: their caches can be cut."""
    logging.set_verbosity_error()
    made = CONFIG_MAPPING[name]()
    known = made.to_dict()
    fields = {key: value for key, value in SMALL.items() if key in known}
    types = known.get("layer_types")
    if types:
        fields["layer_types"] = [*dict.fromkeys(types)] * 4
        fields["layer_types"] = fields["layer_types"][:4]
    torch.manual_seed(0)
    rig = Rig(AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**fields)).eval(), 8)
    assert worst(rig) < ROUNDING * rig.cold().std()
